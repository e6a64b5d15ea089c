"""Auto: the method that fits a problem, chosen once the census is in.

For linear models `Exact` and `FirstOrder` end at the same saddle point:

    Exact         in few rounds, each with Hessians: n·p² work, (Z + 1)·p²/2 numbers
    FirstOrder    in more rounds, each with gradients: n·p work, (Z + 1)·p numbers

so that their cost decides (`costs`), if Hessians may be asked for at all. The same
choice says who measures gaps and the smallest bounds that are possible. See
docs/choosing.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pffl.errors import UsageError
from pffl.flow import Start, Steps
from pffl.methods.base import (
    MAX_HESSIAN_PARAMETERS,
    MULTIPLIER_BOUNDS,
    Grid,
    Method,
    check_parameters,
)
from pffl.methods.exact import Exact
from pffl.methods.first_order import FirstOrder
from pffl.methods.pffl import PFFL
from pffl.methods.quasi_newton import room
from pffl.models.linear import LinearModel
from pffl.problem import Access, Problem
from pffl.processors import free_memory, processors

EXACT_ROUNDS, FIRST_ROUNDS = 5, 30  # as a rule, on data of people
PASS = 2e-9  # seconds of an entry of the inputs, in a pass for gradients
GRAM = 1e-10  # of a product of two entries of a row, in a pass for Hessians
STEP, SADDLE = 1e-6, 1.5e-7  # of a number in a cell's gradient, Hessian, in a step
QUICK = 0.2  # seconds that make no difference
TRIP = 3.0  # of a round over sites, whatever it carries
SENT = 8e-6  # of a number that a site sends: a megabyte a second
COPIES = 5  # of all Hessians: a total, three expansions, what is made of them


@dataclass(frozen=True, kw_only=True)
class Auto(Method):
    """The method that fits: `Exact`, `FirstOrder`, or `PFFL` for networks.

    Parameters
    ----------
    multiplier_bound, risk_weight
        B and β, see `Exact`.
    target_gap, max_rounds
        Of the method that is chosen; None for its own.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), seed=0)
    >>> solution.method["kind"], solution.status
    ('exact', 'met')
    """

    multiplier_bound: float | None = None
    risk_weight: float = 1.0
    target_gap: float | None = None
    max_rounds: int | None = None
    name: ClassVar[str] = "auto"
    resumes: ClassVar[bool] = True
    saddle: ClassVar[bool] = True
    steps_without_some: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"multiplier_bound": MULTIPLIER_BOUNDS}

    def __post_init__(self) -> None:
        check_parameters(
            self,
            positive=("multiplier_bound", "target_gap"),
            nonnegative=("risk_weight",),
            counts=("max_rounds",),
            optional=("multiplier_bound", "target_gap", "max_rounds"),
        )

    def resolved(self, problem: Problem) -> tuple[Method, str]:
        """Return the method that fits, with these parameters, and why it does."""
        given: dict[str, Any] = {"risk_weight": self.risk_weight}
        for name in ("multiplier_bound", "target_gap", "max_rounds"):
            if getattr(self, name) is not None:
                given[name] = getattr(self, name)
        if isinstance(problem.task.model, LinearModel):
            exact, why = choose(problem)
            kind = Exact if exact else FirstOrder
            return kind(**given), why
        if self.max_rounds is not None:
            raise UsageError(
                "[wrong-parameter] 'auto' takes PFFL for models that are not linear, "
                "which has dual_rounds and rounds_per_dual and no max_rounds: ask for "
                "PFFL"
            )
        return PFFL(**given), "the model is not linear"

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Train by the method that fits."""
        return (yield from self.resolved(problem)[0].run(problem, start))


def choose(problem: Problem) -> tuple[bool, str]:
    """Return whether Hessians are to be asked for of a linear model, and why."""
    p, rows = problem.n_parameters, int(problem.silo_counts.sum())
    entries = rows * (problem.stored or p)
    return hessians_fit(p, problem.n_cells, entries=entries, access=problem.access)


def hessians_fit(
    parameters: int, cells: int, *, entries: int, access: Access
) -> tuple[bool, str]:
    """Return whether to ask for Hessians, and why.

    Parameters
    ----------
    parameters, cells
        p and Z.
    entries
        Inputs that all rows together store.
    access
        How silos are reached, and what they show.
    """
    p, z = parameters, cells
    size = f"{p:,} parameter{'s' * (p > 1)} in {z:,} cell{'s' * (z != 1)}"
    if not access.hessians:
        return False, "the silos show no Hessians"
    if p > MAX_HESSIAN_PARAMETERS:
        return (
            False,
            f"{size}, and above {MAX_HESSIAN_PARAMETERS:,} parameters Hessians are too "
            "large",
        )
    exact, first = costs(p, z, entries=entries, elsewhere=access.elsewhere)
    where = "to send and compute" if access.elsewhere else "to compute"
    if exact <= max(first, QUICK):
        least = "least" if exact <= first else "next to nothing"
        return True, f"{size}: Hessians in few rounds cost {least} {where}"
    times = f"{exact / first:.2g}"
    return False, f"{size}: Hessians would cost about {times} times as much {where}"


def costs(
    parameters: int, cells: int, *, entries: int, elsewhere: bool
) -> tuple[float, float]:
    """Return about how many seconds `Exact` and `FirstOrder` take."""
    gradient, hessian = float(parameters), 0.5 * parameters * (parameters + 1)
    exact = first = PASS * entries
    exact += GRAM * entries * 0.5 * parameters + SADDLE * (1 + cells) * hessian
    first += STEP * (1 + cells) * gradient
    if elsewhere:
        exact += TRIP + SENT * (1 + cells) * (hessian + gradient)
        first += TRIP + SENT * (1 + cells) * gradient
    return EXACT_ROUNDS * exact, FIRST_ROUNDS * first


def check_memory(problem: Problem, method: Method) -> None:
    """Refuse a linear model whose training in process needs twice what is free."""
    if not isinstance(problem.task.model, LinearModel) or problem.access.elsewhere:
        return
    p, z = problem.n_parameters, problem.n_cells
    rows, atoms = int(problem.silo_counts.sum()), problem.silo_counts.shape[1]
    entries = rows * (problem.stored or p)
    exact, first = costs(p, z, entries=entries, elsewhere=False)
    # What is measured beside other methods is measured by the cheaper one.
    cheaper = (
        exact < first
        and p <= MAX_HESSIAN_PARAMETERS
        and not isinstance(method, FirstOrder)
    )
    kept = float(room(p, z) + COPIES) * (z + 2) * p
    if isinstance(method, Exact) or cheaper:
        kept = float(p) * p * (COPIES * (1 + z) + processors() * (1 + atoms))
    needed, free = 8.0 * (entries + kept), free_memory()
    if needed > 2.0 * free:
        instead = "" if isinstance(method, FirstOrder) else "`method=FirstOrder()`, or "
        raise UsageError(
            f"[too-little-memory] {rows:,} training rows, {p:,} parameters and {z:,} "
            f"cells need about {needed / 1e9:,.2g} GB of memory, and "
            f"{free / 1e9:,.2g} GB are free: use {instead}fewer inputs or cells"
        )
