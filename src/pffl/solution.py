"""The result of a run: a model, what it promises, and the evidence behind it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from pffl import figures
from pffl.data.columns import TableEncoder
from pffl.data.schema import Schema
from pffl.errors import NotMetError, UsageError
from pffl.evidence import tables
from pffl.evidence.conclude import CellResult, Conclusions, conclude
from pffl.evidence.figures import Converged
from pffl.evidence.looks import Looks
from pffl.evidence.rates import GroupRates, Metrics
from pffl.evidence.record import Data, Evidence, Training
from pffl.evidence.statements import Certificate
from pffl.flow import Round
from pffl.models.base import Model
from pffl.models.predictor import Predictor
from pffl.problem import Point, Problem
from pffl.text import element, text_table, visible
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

    from pffl.figures import Chart
    from pffl.models.predictor import Table

#: Where the figures of a `Result` are looked up, in this order: conclusions are drawn
#: where nothing else has one.
PLACES = ("evidence.training", "evidence.terms", "predictor", "evidence", "conclusions")


class Result:
    """A model with its verdicts: trained here, audited, or read from a run directory.

    Everything but the model follows from the evidence.
    """

    predictor: Predictor  # the model with the preparation of its tables
    evidence: Evidence  # all that was declared and measured
    # Found in the conclusions
    status: str  # the verdict on the training rows, in a word
    message: str  # the same in a sentence
    exit_code: int  # what a command ends with
    certificate: Certificate  # everything that is claimed, with its grounds
    gap: float | None  # duality gap ν of the pair; None where it was not measured
    slack: (
        float | None
    )  # (β(F(w°) − F(w)) + ν)/B, where a bound is missed that w° meets
    converged: Converged  # whether the gap is under its target
    train: Metrics  # risk, error and fairness gaps on the training rows
    test: Metrics | None  # the same on held-out rows
    rates: list[GroupRates]  # error, false-positive, … rates of groups, with intervals
    smallest_bound: float | None  # where infeasible: one that the same run would meet
    witness: dict[str, float] | None  # where infeasible: λ that proves it
    # In the run
    rounds: int
    seed: int
    seconds: float  # earlier sittings included
    method: dict[str, Any]
    constraint: dict[str, Any]  # empty without one
    # In the evidence, its terms and the predictor
    data: Data
    confidence: float  # 1 − δ of `test_upper` of a cell, each alone
    loss_bound: float | None  # M: for unseen people a loss counts up to M
    model: Model
    schema: Schema
    w: FloatArray
    multipliers: FloatArray

    def __getattr__(self, name: str) -> Any:
        """Look a figure up where it belongs."""
        if name in Result.__annotations__ and name not in ("predictor", "evidence"):
            for home in map(attrgetter, PLACES):
                if hasattr(home(self), name):
                    return getattr(home(self), name)
            return getattr(self.training, name)  # which says why there is none
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *Result.__annotations__]

    @cached_property
    def conclusions(self) -> Conclusions:
        """Every figure, verdict and statement that follows from the evidence."""
        return conclude(self.evidence)

    @property
    def looks(self) -> Looks:
        """The looks at held-out rows that are known: a folder counts them."""
        return Looks()

    @property
    def training(self) -> Training:
        """How the model came about: method, rounds, queries, seconds."""
        found = self.evidence.training
        if not isinstance(found, Training):
            raise UsageError(f"[not-available] {found.missing}")
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the run."""
        return tuple(self.evidence.notes)

    @property
    def encoding(self) -> TableEncoder:
        """How tables become inputs."""
        return self.predictor.preparation

    @property
    def cell_results(self) -> tuple[CellResult, ...]:
        """The rows of `cells`."""
        return self.conclusions.cells

    @property
    def ok(self) -> bool:
        """Whether every bound was met."""
        return self.status == "met"

    def or_raise(self) -> Self:
        """Return self if every bound was met, and raise the message otherwise."""
        if not self.ok:
            raise NotMetError(self.message)
        return self

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Per cell: bound, count, losses, violation, multiplier, upper bound."""
        import pandas as pd

        names = [f.name for f in fields(CellResult)]
        rows = [vars(row) for row in self.cell_results]
        return pd.DataFrame(rows, columns=names).set_index("cell")

    def as_dict(self) -> dict[str, Any]:
        """Return what `result.json` holds."""
        return self.conclusions.result()

    def __repr__(self) -> str:
        """Return the three verdicts and the table of cells, in plain lines."""
        lines = [f"{type(self).__name__} of '{visible(self.data.name)}'"]
        for found in tables.verdicts(self.conclusions):
            lines.append(f"{found.sign} {found.title}: {found.word}")
            lines.append(f"  {visible(found.sentence)}")
        return "\n".join([*lines, "", *text_table(self._table)]).rstrip()

    @property
    def _table(self) -> list[dict[str, str]]:
        return tables.table(self.conclusions, tables.by_urgency(self.cell_results))

    def _repr_html_(self) -> str:
        """Show the verdicts in a notebook; every text is escaped."""
        c, chart = self.conclusions, figures.group_losses(map(vars, self.cell_results))
        return element(
            "solution",
            f"{type(self).__name__} of '{self.data.name}'",
            [*([] if c.binding is None else [c.binding]), *self.evidence.notes],
            self._table,
            tables.rate_table(c),
            lead=tables.as_html(tables.verdicts(c)) + chart._repr_html_(),
        )

    def predict(self, table: Table) -> NDArray[Any]:
        """Labels in their own type, or numbers; see `Predictor.predict`."""
        return self.predictor.predict(table)

    def predict_proba(self, table: Table) -> FloatArray:
        """Class probabilities; see `Predictor.predict_proba`."""
        return self.predictor.predict_proba(table)

    def decision_function(self, table: Table) -> FloatArray:
        """Scores; see `Predictor.decision_function`."""
        return self.predictor.decision_function(table)

    @cached_property
    def history(self) -> pd.DataFrame:
        """Per round: risk, worst cell, violation, gap, seconds, λ and loss of cells."""
        import pandas as pd

        return pd.DataFrame(self.history_rows())

    def history_rows(self) -> list[dict[str, Any]]:
        """Return the history as plain rows; nothing where nothing was trained."""
        return []

    def plot(self, kind: str = "group_losses") -> Chart:
        """Return a chart: ``group_losses``, ``group_rates`` or ``convergence``."""
        known = kind in ("group_losses", "group_rates", "convergence")
        made: Chart | None = getattr(figures, kind)(self) if known else None
        if made is None:
            raise UsageError("not-available:plot", kind=kind)
        return made

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write a run directory, which `pffl.load` reads."""
        from pffl.runs import save

        return save(self, directory)

    def report(self, out: str | os.PathLike[str] | None = None) -> str:
        """Return the page, and write it to a file if one is named."""
        from pffl._report.page import report

        return report(self, out=out)

    def card(self, out: str | os.PathLike[str] | None = None, **about: str) -> str:
        """Return the model card in Markdown; `about` names purpose, owner and date."""
        from pffl._report.card import card

        return card(self, out=out, **about)


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Result):
    """What `pffl.solve` returns: a trained model with its verdicts.

    Attributes
    ----------
    predictor
        The model with the preparation of its tables: what is exported.
    evidence
        All that was declared and measured.
    problem
        What was solved: model, cells, bounds on multipliers.
    rows
        One entry per round.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), random_state=0)
    >>> solution.status, solution.ok, solution.exit_code
    ('met', True, 0)
    >>> solution.cells["train_loss"].round(2).to_dict()
    {'f': 0.56, 'm': 0.65}
    """

    predictor: Predictor
    evidence: Evidence
    problem: Problem
    rows: tuple[Round, ...]

    @classmethod
    def of(
        cls,
        point: Point,
        problem: Problem,
        rows: Sequence[Round],
        evidence: Evidence,
        encoding: TableEncoder,
    ) -> Solution:
        """Return what came of a problem."""
        predictor = Predictor(
            encoding,
            problem.task.model,
            point.w,
            evidence.terms.loss_bound,
            evidence.data.trained_on,
            problem.cells.names,
            problem.cells.bounds,
            point.multipliers,
        )
        return cls(predictor, evidence, problem, tuple(rows))

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: no conclusions, which follow from the rest."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def history_rows(self) -> list[dict[str, Any]]:
        """Return the history as plain rows."""
        names, bounds = self.problem.cells.names, self.problem.cells.bounds
        out: list[dict[str, Any]] = []
        for row in self.rows:
            known = np.nan_to_num(row.violation, nan=-np.inf)
            worst = int(known.argmax()) if np.isfinite(known).any() else None
            told: dict[str, Any] = {"round": row.number, "risk": row.risk}
            told["worst_cell"] = None if worst is None else names[worst]
            at = None if worst is None else float(row.violation[worst])
            told |= {"worst_violation": at, "upper": row.upper, "gap": row.gap}
            told["seconds"] = row.seconds
            columns = {"loss": row.violation + bounds, "multiplier": row.multipliers}
            for title, values in columns.items():
                for name, value in zip(names, values.tolist(), strict=True):
                    told[f"{title}: {name}"] = value
            out.append(told)
        return out
