"""What a run may claim: a status, and one plain sentence with numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pffl.certificates.empirical import (
    choose_risk_bound,
    example_weights,
    implied_risk,
    threshold,
    with_ridge,
)
from pffl.feasibility import Feasibility
from pffl.objective import Problem
from pffl.typing import FloatArray

Status = Literal[
    "met", "within_slack", "not_met", "infeasible", "diverged", "interrupted"
]

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
    violation: FloatArray,
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
    worst = int(np.argmax(violation))
    loss = float(violation[worst] + problem.cells.bounds[worst])
    cell = problem.cells.names[worst]
    if minimax:
        known = "" if gap is None else f", within {gap:.2g} of the smallest possible"
        return Verdict("met", f"The worst loss is {loss:.4f} ({cell}){known}.")
    bound, excess = float(problem.cells.bounds[worst]), float(violation[worst])
    numbers = f"{cell} has loss {loss:.4f} against its bound {bound:.4f}"
    if excess <= TOLERANCE:
        return Verdict(
            "met",
            f"Every bound is met on the training rows: the tightest is {cell}, loss "
            f"{loss:.4f}, bound {bound:.4f}, margin {max(0.0, -excess):.4f}.",
        )
    if feasible is not None and feasible.impossible:
        return Verdict("infeasible", _impossible(problem, feasible, numbers, excess))
    slack = lemma_slack(problem, gap, feasible)
    if slack is not None and excess <= slack:
        return Verdict(
            "within_slack",
            f"Not every bound is met: {numbers} ({excess:+.4f}), which is within "
            f"the slack {slack:.4f} that multiplier bound {problem.multiplier_bound:g} "
            "and the gap allow; raise the multiplier bound or run longer.",
            slack,
        )
    beyond = "" if slack is None else f", beyond the slack {slack:.4f}"
    return Verdict("not_met", f"Not met: {numbers} ({excess:+.4f}{beyond}).", slack)


def lemma_slack(
    problem: Problem, gap: float | None, feasible: Feasibility | None
) -> float | None:
    """Return (βM + 2ν)/B; None where no M is known.

    M bounds F of the best feasible model: F of a feasible model already found, or what
    the bounds themselves imply. Reference: Lemma 1 with β, DESIGN §2 and §5.
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
    """Bound F over the ball for every model that meets all bounds; None if none."""
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


def _impossible(
    problem: Problem, feasible: Feasibility, numbers: str, excess: float
) -> str:
    bounds = problem.cells.bounds
    common = bool(np.ptp(bounds) == 0)
    least = feasible.excess.lower
    what = (
        f"no model with ‖w‖ ≤ {problem.radius:g} brings every loss below "
        f"{bounds[0] + least:.4f}"
        if common
        else f"every model with ‖w‖ ≤ {problem.radius:g} exceeds some bound by at "
        f"least {least:.4f}"
    )
    return (
        f"The bounds are impossible, and this is proved: {what}. The model returned "
        f"comes closest at this multiplier bound: {numbers} ({excess:+.4f})."
    )
