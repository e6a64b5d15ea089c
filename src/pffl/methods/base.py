"""What a method is: a generator that yields queries, and reads like its paper.

    def run(self, problem, start=None):
        for _ in range(self.rounds):
            total = yield some_query
            …
            yield Round(point)
        return point

A method never talks to anyone, and follows from the totals that it hears: it has no
clock, and draws at random from the run's seed and the round alone. So the same file
runs in one process, as one of a stack, over machines, and can be stopped and resumed
anywhere. `flow.rounds` watches it: divergence, gaps, callbacks, interruptions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

from pffl.constraints import Cells, ConditionalBoundedGroupLoss, attribute_names
from pffl.data.schema import Schema
from pffl.errors import Problems, UsageError
from pffl.flow import Start, Steps
from pffl.problem import Problem

Grid = Mapping[str, tuple[float | int | str, ...]]
MAX_HESSIAN_PARAMETERS = 2000  # beyond, Hessians are too large to send
GRADIENTS_ONLY = "`method=FirstOrder()` asks for gradients only"
MULTIPLIER_BOUNDS = (10.0, 1.0, 100.0)  # B to try; the first is where an open B starts


class Method(ABC):
    """A way to train: a frozen dataclass of parameters, and `run`.

    Attributes
    ----------
    name
        What run files and the command line call it.
    steps_without_some
        Whether a round goes on where silos are missing (a quorum below all). Cells in
        which a missing silo has rows then come in as NaN.
    weighs_silos
        Whether silos have weights or losses of their own in it, so that it matters
        which silo has which rows.
    looks_at_silos
        Whether the server needs figures of single silos, which secure sums do not show.
    ignores_cells
        Whether its model is the same whatever the constraint.
    resumes
        Whether it can start at a pair that was found before.
    saddle
        Whether it aims at the saddle point of G, so that the gap says how far it came.
    grid
        Values to try when tuning, the default first.
    """

    name: ClassVar[str]
    steps_without_some: ClassVar[bool] = False
    weighs_silos: ClassVar[bool] = False
    looks_at_silos: ClassVar[bool] = False
    ignores_cells: ClassVar[bool] = False
    resumes: ClassVar[bool] = False
    saddle: ClassVar[bool] = False
    grid: ClassVar[Grid] = {}

    @property
    def multiplier_bound(self) -> float | None:
        """B of the problem that it solves; 0 for methods that price no bound.

        None lets B be raised until the bounds are met or proved impossible.
        """
        return 0.0

    @property
    def risk_weight(self) -> float:
        """β of the problem that it solves."""
        return 1.0

    @property
    def target_gap(self) -> float | None:
        """Gap, in parts of β + Σλ, at which it counts as converged; None if it is none.

        (And of the target's variance, for numeric targets.)
        """
        return None

    @property
    def planned_rounds(self) -> int | None:
        """Queries that `query` asks; None if that is not known beforehand."""
        return None

    @property
    def most_rounds(self) -> int | None:
        """Queries that a site should be ready for; None for some dozens."""
        return self.planned_rounds

    @property
    def local_steps(self) -> int:
        """J: steps that a silo takes in a round."""
        return 1

    @property
    def batch_size(self) -> int | None:
        """Rows per local step; None for all."""
        return None

    @property
    def participation(self) -> float:
        """Fraction of silos asked in a round."""
        return 1.0

    def gap_rounds(self, problem: Problem) -> Container[int]:
        """Return the rounds after which `rounds` measures its gap, and may end it."""
        return ()

    def resolved(self, problem: Problem) -> tuple[Method, str]:
        """Return the method that trains, and why, in words; itself unless it is Auto.

        Whoever runs a method runs this one, and the record of a run names it.
        """
        return self, ""

    @abstractmethod
    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Train: yield a query, whose total comes back, or a `Round` after each.

        Return the pair (w, λ), or `Finished` with what is known of it. A method that
        `resumes` begins at `start`.
        """

    @classmethod
    def within(cls, budget: int, **parameters: Any) -> Self:
        """Build it with as many rounds as a budget of gradients per silo allows."""
        return cls(**parameters)

    def describe(self) -> Mapping[str, object]:
        """Plain form of the parameters, for files and messages."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
        held = (int, float, str, list)
        return {"kind": self.name} | {
            k: v for k, v in plain.items() if v is None or isinstance(v, held)
        }


def check_parameters(
    owner: object,
    *,
    positive: tuple[str, ...] = (),
    nonnegative: tuple[str, ...] = (),
    counts: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
) -> None:
    """Refuse bad numbers, all at once, in one form of message."""
    name = type(owner).__name__
    with Problems(name, UsageError) as problems:
        for parameter in (*positive, *nonnegative, *counts):
            value = getattr(owner, parameter)
            if value is None and parameter in optional:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if parameter in counts:
                good = number and isinstance(value, int) and value >= 1
                wanted = "a whole number ≥ 1"
            elif parameter in positive:
                good = number and math.isfinite(value) and value > 0
                wanted = "a finite number > 0"
            else:
                good = number and math.isfinite(value) and value >= 0
                wanted = "a finite number ≥ 0"
            if not good:
                problems.add(
                    f"[wrong-value] The '{parameter}' parameter of {name} must be "
                    f"{wanted}. Got {value!r} instead."
                )


def check_hessians(owner: object, problem: Problem, instead: str) -> None:
    """Refuse to ask for Hessians that are too large to send, or are not shown.

    Say what to do instead.
    """
    p = problem.n_parameters
    if not problem.access.hessians:
        name = type(owner).__name__
        raise UsageError(
            f"[no-hessians] {name} asks for Hessians, and silos show none: {instead}"
        )
    if p > MAX_HESSIAN_PARAMETERS:
        raise UsageError(
            f"[too-many-parameters] {type(owner).__name__} would ask for Hessians of "
            f"{p} × {p} numbers per cell, and {MAX_HESSIAN_PARAMETERS:,} parameters "
            f"are the most: {instead}"
        )


def check_two_classes(owner: object, schema: Schema) -> None:
    """Refuse data for which "predicted positive" has no meaning."""
    if len(schema.labels) != 2:
        raise UsageError(
            f"[needs-two-classes] {type(owner).__name__} compares rates of positive "
            f"predictions and needs two classes; '{schema.target}' has "
            f"{len(schema.labels) or 'numeric values'}"
        )


def check_choice(owner: object, parameter: str, allowed: tuple[object, ...]) -> None:
    """Refuse a value that is none of those allowed."""
    value = getattr(owner, parameter)
    if value not in allowed:
        words = ", ".join(str(choice) for choice in allowed if choice is not None)
        raise UsageError(
            f"The '{parameter}' parameter of {type(owner).__name__} must be one of "
            f"{words}. Got {value!r} instead."
        )


def label_groups(
    problem: Problem, by: str | tuple[str, ...] | None, *, in_each_silo: bool = False
) -> Cells:
    """Return the sets (label, group), label by label, of groups cut out by `by`."""

    def made() -> Cells:
        every = ConditionalBoundedGroupLoss(0.0, by=by)
        cells = every.cells(problem.schema, problem.silo_names)
        return cells.in_each_silo(problem.silo_names) if in_each_silo else cells

    return problem.once(("label groups", attribute_names(by), in_each_silo), made)
