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

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

from pffl.constraints import Cells, ConditionalBoundedGroupLoss
from pffl.data.schema import Schema
from pffl.errors import DataError, UsageError
from pffl.flow import Start, Steps
from pffl.problem import Problem
from pffl.records import Count as Count
from pffl.records import NonNegative as NonNegative
from pffl.records import Positive as Positive
from pffl.records import Share as Share
from pffl.records import check_parameters

Grid = Mapping[str, tuple[float | int | str, ...]]
MAX_HESSIAN_PARAMETERS = 2000  # beyond, Hessians are too large to send
MAX_HESSIAN_NUMBERS = 4_000_000  # of all cells: 32 MB in a message
GRADIENTS_ONLY = "`method='first-order'` (FirstOrder) asks for gradients only"
MULTIPLIER_BOUNDS = (10.0, 1.0, 100.0)  # B to try; the first is where an open B starts


class Method(ABC):
    """A way to train: a frozen dataclass of parameters, and `run`.

    Types of fields say what is allowed (`Positive | None`, `Count`, a `Literal`); all
    that is wrong with the parameters is refused in one message.

    Attributes
    ----------
    name
        What run files and the command line call it.
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
    multiplier_bound, risk_weight
        B and β of the problem that it solves; B = 0 for methods without multipliers.
        None lets B be raised until the bounds are met or proved impossible.
    target_gap
        Gap, in parts of β + Σλ (and of the target's variance, for numeric targets), at
        which it counts as converged; None without one.
    planned_rounds, most_rounds
        Queries in all, None if that is not known beforehand; and those that a site
        should be ready for, None for some dozens.
    local_steps, batch_size, participation
        J, rows of a local step (None for all), and the share of silos that a round
        asks.
    """

    name: ClassVar[str]
    looks_at_silos: ClassVar[bool] = False
    ignores_cells: ClassVar[bool] = False
    resumes: ClassVar[bool] = False
    saddle: ClassVar[bool] = False
    grid: ClassVar[Grid] = {}
    multiplier_bound: float | None = 0.0
    risk_weight: float = 1.0
    target_gap: float | None = None
    local_steps: int = 1
    batch_size: int | None = None
    participation: float = 1.0

    @property
    def planned_rounds(self) -> int | None:
        """Queries that `query` asks; None if that is not known beforehand."""
        return None

    @property
    def most_rounds(self) -> int | None:
        """Queries that a site should be ready for; None for some dozens."""
        return self.planned_rounds

    def __post_init__(self) -> None:
        check_parameters(self)

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


def check_hessians(owner: object, problem: Problem, instead: str) -> None:
    """Refuse to ask for Hessians that are too large to send; say what to do."""
    p = problem.n_parameters
    if p > MAX_HESSIAN_PARAMETERS:
        raise UsageError(
            "too-many-parameters",
            name=type(owner).__name__,
            p=p,
            max_hessian_parameters=MAX_HESSIAN_PARAMETERS,
            instead=instead,
        )


def check_two_classes(owner: object, schema: Schema) -> None:
    """Refuse data for which "predicted positive" has no meaning."""
    if len(schema.labels) != 2:
        raise UsageError(
            "needs-two-classes",
            name=type(owner).__name__,
            target=schema.target,
            n_labels=len(schema.labels) or "numeric values",
        )


def check_groups(
    owner: object, enough: bool, why: str = "fewer than two have rows"
) -> None:
    """Refuse data without groups to compare."""
    if not enough:
        name = type(owner).__name__
        raise DataError("too-few-groups", name=name, why=why)


def label_groups(
    problem: Problem, by: str | tuple[str, ...] | None, *, in_each_silo: bool = False
) -> Cells:
    """Return the sets (label, group), label by label, of groups cut out by `by`."""
    every = ConditionalBoundedGroupLoss(0.0, by=by)
    cells = every.cells(problem.schema, problem.silo_names)
    return cells.in_each_silo(problem.silo_names) if in_each_silo else cells
