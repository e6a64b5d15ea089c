"""Auto: the method that fits a problem, chosen once the census is in.

For linear models `Exact` and `FirstOrder` end at the same saddle point:

    Exact         in about 5 rounds, each with Hessians: (Z + 1)·p² numbers
    FirstOrder    in about 30 rounds, each with gradients: (Z + 1)·p numbers

So the rule is

    Hessians are small: p ≤ 200 in one process, p ≤ 2,000 from sites,
    and (Z + 1)·p² ≤ 4,000,000                                            Exact
    otherwise                                                        FirstOrder

and in one process `FirstOrder` hands over to `Exact` after 30 rounds. The same rule
says who measures gaps and the smallest bounds that are possible. See docs/choosing.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pffl.errors import UsageError
from pffl.flow import Start, Steps
from pffl.methods.base import (
    MAX_HESSIAN_NUMBERS,
    MAX_HESSIAN_PARAMETERS,
    MULTIPLIER_BOUNDS,
    Count,
    Grid,
    Method,
    NonNegative,
    Positive,
)
from pffl.methods.exact import Exact
from pffl.methods.first_order import FirstOrder
from pffl.methods.pffl import PFFL
from pffl.models.linear import LinearModel
from pffl.problem import Access, Problem

MAX_LOCAL_PARAMETERS = 200  # beyond, a Hessian takes longer than six gradients


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
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), random_state=0)
    >>> solution.method["kind"], solution.status
    ('exact', 'met')
    """

    multiplier_bound: Positive | None = None
    risk_weight: NonNegative = 1.0
    target_gap: Positive | None = None
    max_rounds: Count | None = None
    name: ClassVar[str] = "auto"
    resumes: ClassVar[bool] = True
    saddle: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"multiplier_bound": MULTIPLIER_BOUNDS}

    def resolved(self, problem: Problem) -> tuple[Method, str]:
        """Return the method that fits, with these parameters, and why it does."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if isinstance(problem.task.model, LinearModel):
            exact, why = choose(problem)
            return Exact(**given) if exact else FirstOrder(**given), why
        if self.max_rounds is not None:
            raise UsageError("wrong-parameter:resolved")
        return PFFL(**given), "the model is not linear"

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Train by the method that fits."""
        return (yield from self.resolved(problem)[0].run(problem, start))


def choose(problem: Problem) -> tuple[bool, str]:
    """Return whether Hessians are to be asked for of a linear model, and why."""
    return hessians_fit(problem.n_parameters, problem.n_cells, access=problem.access)


def hessians_fit(parameters: int, cells: int, *, access: Access) -> tuple[bool, str]:
    """Return whether to ask for Hessians, and why.

    Parameters
    ----------
    parameters, cells
        p and Z.
    access
        How silos are reached.
    """
    p, z = parameters, cells
    size = f"for {p:,} parameter{'s' * (p > 1)}"
    most = MAX_HESSIAN_PARAMETERS
    most = most if access.elsewhere else min(most, MAX_LOCAL_PARAMETERS)
    if p <= most and (1 + z) * p**2 <= MAX_HESSIAN_NUMBERS:
        return True, f"second order; cheapest {size}"
    return False, f"first order; cheapest {size}"
