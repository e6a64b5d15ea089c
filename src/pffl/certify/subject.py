"""What is to be certified: a model, the problem that it stands for, and the silos."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from pffl.constraints import is_minimax
from pffl.constraints.group_loss import BoundedGroupLoss
from pffl.data.checks import repeated_rows
from pffl.data.federation import Federation
from pffl.engines.base import Engine
from pffl.errors import DataError
from pffl.files import digest
from pffl.models.base import Model
from pffl.preparation import Weighting, open_engine, shares, withholds
from pffl.problem import Point, Problem
from pffl.solution import Solution
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with all that is known of it.

    Attributes
    ----------
    engine
        Where the rows are.
    problem, point
        What was asked for, counted on these rows, and the pair (w, λ).
    weighting, loss_bound
        As in `Options`.
    promise, minimax, trained, stopped
        As in `Basis`.
    recorded
        Fingerprint of the data that the model was trained on, if known.
    local_steps
        J of the method, for plans.
    notes
        What a reader must know.
    """

    engine: Engine
    problem: Problem
    point: Point
    weighting: Weighting
    loss_bound: float | None
    promise: bool = True
    minimax: bool = False
    trained: bool = True
    stopped: Literal["diverged", "interrupted"] | None = None
    recorded: str | None = None
    local_steps: int = 1
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def of_solution(
        cls, solution: Solution, federation: Federation | Engine
    ) -> Subject:
        """Take the model of a solution to these rows."""
        engine = open_engine(federation, "local")
        require_schema(engine, solution.schema.hash)
        weighting: Weighting = "rows" if solution.weighting == "rows" else "silos"
        problem = on_rows_of(engine, solution.problem, weighting)
        subject = cls(
            engine,
            problem,
            Point(solution.w, solution.multipliers),
            weighting,
            solution.loss_bound,
            minimax=is_minimax(solution.constraint),
            stopped=_stopped(solution.status),
            recorded=_text(solution.data.get("fingerprint")),
            local_steps=_count(solution.method.get("local_steps")),
            notes=(*solution.notes, *_met_by_the_run(solution)),
        )
        return subject.with_cells()

    def with_cells(self) -> Subject:
        """Return self; without any bound, with the groups as cells to report on."""
        if self.problem.n_cells:
            return replace(self, promise=self.promise and not self.minimax)
        problem = self.problem
        cells = BoundedGroupLoss(0.0).cells(problem.schema, problem.silo_names)
        counts = problem.count(cells)
        kept = np.flatnonzero(counts)
        problem = replace(
            problem,
            task=replace(problem.task, cells=cells.take(kept)),
            counts=counts[kept],
            multiplier_bound=0.0,
        )
        point = Point(self.point.w, np.zeros(len(kept)))
        return replace(self, problem=problem, point=point, promise=False)

    @property
    def federation(self) -> Federation | None:
        """The rows themselves, where they are in this process."""
        found = getattr(self.engine, "federation", None)
        return found if isinstance(found, Federation) else None

    @property
    def other_data(self) -> bool:
        """Whether these are known not to be the data that it was trained on."""
        here = self.federation
        return (
            self.recorded is not None
            and here is not None
            and here.fingerprint != self.recorded
        )

    def fingerprints(self) -> dict[str, str]:
        """Hashes of what is certified."""
        found = {
            "model": model_fingerprint(self.problem.task.model, self.point.w),
            "schema": self.engine.schema.hash,
        }
        if self.federation is not None:
            found["data"] = self.federation.fingerprint
        here = found.get("data") == self.recorded and self.trained
        if self.recorded is not None and not here:
            found["trained on"] = self.recorded
        return found

    def overlap(self, split: str) -> int | None:
        """Rows of the split that were trained on; None if nobody can know."""
        here = self.federation
        unknown = self.recorded is None and not self.trained
        if here is None or unknown or self.other_data:
            return None
        return repeated_in(here, split)


def repeated_in(federation: Federation, split: str) -> int:
    """Return how many rows of a split are known to be training rows, too."""
    if split == "train":
        return federation.rows("train")
    if split == "test":
        return federation.overlap
    return repeated_rows(
        [silo.rows("train") for silo in federation.silos],
        [silo.rows(split) for silo in federation.silos],
    )


def model_fingerprint(model: Model, w: FloatArray) -> str:
    """SHA-256 of a model: its kind, its scaling and its weights."""
    plain = json.dumps(dict(model.describe()), sort_keys=True, ensure_ascii=False)
    arrays = (
        np.asarray(array, dtype="<f8")
        for array in (model.inputs.mean, model.inputs.scale, w)
    )
    return digest(plain, *(p for a in arrays for p in (f"\0{len(a)}\0", a)))


def require_schema(engine: Engine, known: str) -> None:
    """Refuse rows with other inputs, groups or labels than the model knows."""
    if engine.schema.hash != known:
        raise DataError(
            "these data have other inputs, groups or labels than the model was "
            f"trained with (schema {engine.schema.hash[:12]}, not {known[:12]}): it "
            "says nothing about them"
        )


def on_rows_of(engine: Engine, problem: Problem, weighting: Weighting) -> Problem:
    """Count the rows of these silos; the problem is otherwise the same."""
    census = engine.census()
    names = engine.silo_names
    if names == problem.silo_names and np.array_equal(
        census.counts, problem.silo_counts
    ):
        return problem
    cells = problem.cells
    if names != problem.silo_names and not cells.everywhere.all():
        raise DataError(
            "the cells are silos, and these data have other silos: "
            f"{list(names)[:5]}, not {list(problem.silo_names)[:5]}"
        )
    counts = cells.totals(census.counts.astype(np.float64))
    empty = [cells.names[z] for z in np.flatnonzero(counts == 0)]
    if empty:
        raise DataError(f"no training rows in any silo for {', '.join(empty)}")
    return replace(
        problem,
        task=replace(problem.task, shares=shares(census, weighting)),
        silo_names=names,
        counts=counts,
        silo_counts=census.counts,
        withheld=withholds(census),
    )


def _stopped(status: str) -> Literal["diverged", "interrupted"] | None:
    if status == "diverged":
        return "diverged"
    return "interrupted" if status == "interrupted" else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 1 else 1


def _met_by_the_run(solution: Solution) -> tuple[str, ...]:
    """Say what bound the same run would meet, where its own is impossible."""
    least = solution.smallest_bound
    return smallest_note(least, {cell.bound for cell in solution.cell_results})


def smallest_note(
    least: float | None, bounds: Mapping[float, object] | set[float]
) -> tuple[str, ...]:
    """Say what bound the same run would meet; nothing if there is none."""
    if least is None:
        return ()
    if len(bounds) == 1:
        return (f"The same run meets a common bound of {least:.6f}.",)
    return (f"The same run meets all bounds if each is raised by {least:.6f}.",)
