"""What a run may claim: a status, and one plain sentence with numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pffl import certificates
from pffl.certificates.empirical import (
    choose_risk_bound,
    example_weights,
    implied_risk,
    threshold,
    with_ridge,
)
from pffl.certificates.words import down, up, words
from pffl.feasibility import Feasibility
from pffl.problem import Problem

Status = Literal[
    "met", "within_slack", "not_met", "infeasible", "diverged", "interrupted"
]

EXIT_CODES: dict[Status, int] = {
    "met": 0,
    "within_slack": 0,
    "not_met": 4,
    "infeasible": 4,
    "diverged": 4,
    "interrupted": 130,
}
TOLERANCE = 1e-6  # a loss this little above its bound counts as met: solver rounding


@dataclass(frozen=True, eq=False)
class Verdict:
    """A status, the sentence that goes with it, and the slack of Lemma 1."""

    status: Status
    message: str
    slack: float | None = None


def judge(
    problem: Problem,
    *,
    losses: certificates.CellLosses,
    gap: float | None,
    feasible: Feasibility | None,
    stopped: Literal["diverged", "interrupted"] | None,
    minimax: bool = False,
) -> Verdict:
    """Decide the status from measured numbers."""
    if stopped == "diverged":
        return Verdict(
            "diverged",
            "The run diverged and stopped at the last finite model: use a smaller "
            "step size.",
        )
    if stopped == "interrupted":
        return Verdict(
            "interrupted", "The run was interrupted; its model is unfinished."
        )
    if problem.n_cells == 0:
        return Verdict("met", "No bound was asked for.")
    if minimax:
        worst = int(np.argmax(losses.means))
        known = "" if gap is None else f", within {up(gap)} of the smallest possible"
        loss = f"{losses.names[worst]}, mean loss {words(losses.means[worst])}"
        return Verdict("met", f"The worst cell is {loss}{known}.")
    impossible = feasible is not None and feasible.impossible
    slack = None
    if not impossible and float(losses.violation.max()) > TOLERANCE:
        slack = lemma_slack(problem, gap, feasible)
    status, sentence = certificates.judge(
        losses, slack=slack, impossible=impossible, tolerance=TOLERANCE
    )
    if status == "infeasible" and feasible is not None:
        sentence += _smallest_possible(problem, feasible)
    return Verdict(status, sentence, slack)


def lemma_slack(
    problem: Problem, gap: float | None, feasible: Feasibility | None
) -> float | None:
    """Return (βM + 2ν)/B; None where no M is known.

    M bounds F of the best feasible model: F of a feasible model already found, or what
    the bounds themselves imply. Reference: Lemma 1 with β, see docs/paper.md.
    """
    if gap is None or problem.multiplier_bound <= 0:
        return None
    found = feasible is not None and feasible.excess.upper <= 0
    risk_bound = choose_risk_bound(
        feasible_risk=feasible.risk if feasible is not None and found else None,
        implied=implied_risk_of(problem),
    )
    if risk_bound is None:
        return None
    return threshold(
        risk_bound.value,
        gap,
        risk_weight=problem.risk_weight,
        multiplier_bound=problem.multiplier_bound,
    )


def implied_risk_of(problem: Problem) -> float | None:
    """Bound F over the ball for every model that meets all bounds; None if none.

    Rows that sites withhold are in F, and no bound speaks of them.
    """
    if problem.withheld:
        return None
    counts = problem.silo_counts
    silos, atoms = counts.shape
    member = np.stack([problem.cells.of_silo(k) for k in range(silos)], axis=1)
    weights = example_weights(problem.task.shares, counts.sum(axis=1))
    implied = implied_risk(
        counts.reshape(-1).astype(np.float64),
        np.repeat(weights, atoms),
        member.reshape(problem.n_cells, -1).astype(np.float64),
        problem.cells.bounds,
    )
    if implied is None:
        return None
    return with_ridge(implied, l2=problem.l2, radius=problem.radius)


def _smallest_possible(problem: Problem, feasible: Feasibility) -> str:
    """Say in words how far the bounds are from what is possible."""
    bounds, excess = problem.cells.bounds, feasible.excess
    ball = f"(among models with ‖w‖ ≤ {problem.radius:g})"
    if np.ptp(bounds) == 0:
        least = down(float(bounds[0]) + excess.lower)
        return f" The smallest common bound that is possible is {least} {ball}."
    return f" All bounds together would have to rise by {down(excess.lower)} {ball}."
