"""Statements about the training rows, from numbers to plain words.

Each function takes numbers that the modules beside this one computed, and what is
known of the assumptions, and returns one `Statement`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pffl.certificates._plain import Json
from pffl.certificates.empirical import RiskBound
from pffl.certificates.infeasible import Witness
from pffl.certificates.interval import Interval
from pffl.certificates.plan import Plan
from pffl.certificates.statement import Assumption, Statement
from pffl.certificates.verdict import CellLosses
from pffl.certificates.words import down, up, words

HONEST = Assumption("The silos reported their sums truthfully.", "assumed")


def convexity(convex: bool) -> Assumption:
    """Say whether the loss is convex in the model's weights."""
    if convex:
        return Assumption("The loss is convex in the weights of the model.", "checked")
    text = "needs convexity, and the loss is not convex in the weights of this model"
    return Assumption(text, "failed")


def compared_with(radius: float | None, modulus: float) -> Assumption:
    """Say which models a bound speaks of: all of them, or those of a ball."""
    if radius is not None:
        text = (
            "Only models whose weights have length at most "
            f"{words(radius)} are considered."
        )
        return Assumption(text, "assumed")
    if modulus > 0:
        return Assumption(
            "There is a ridge term; all models are considered.", "checked"
        )
    return Assumption("needs a ridge term or a declared norm ball", "failed")


def gap_statement(
    gap: float,
    *,
    convex: bool,
    modulus: float,
    radius: float | None = None,
    target: float | None = None,
    inputs: Mapping[str, Json] | None = None,
) -> Statement:
    """State the duality gap of the pair returned."""
    text = (
        "No other model gives a better trade-off between overall loss and the bounds "
        f"than this one by more than {up(gap) if np.isfinite(gap) else gap} "
        "(the duality gap)."
    )
    return Statement(
        "gap",
        text,
        value=gap,
        holds=None if target is None else gap <= target,
        assumptions=(convexity(convex), compared_with(radius, modulus), HONEST),
        inputs={"modulus": modulus, "radius": radius, **(inputs or {})},
    )


def empirical_statement(
    cells: CellLosses,
    *,
    slack: float | None = None,
    risk_bound: RiskBound | None = None,
    tolerance: float = 0.0,
    inputs: Mapping[str, Json] | None = None,
) -> Statement:
    """State what was measured on the training rows, and the slack of Lemma 1."""
    if not cells.names:
        return Statement.not_available("empirical", "no bound was set")
    if cells.empty:
        reason = f"no training rows in {', '.join(cells.empty)}"
        return Statement.not_available("empirical", reason)
    covered = Assumption("Every cell has training rows.", "checked")
    worst = float(cells.violation.max())
    met = worst <= tolerance
    text = f"On the training rows, {cells.describe(cells.worst)}; "
    text += "no cell stands worse." if len(cells.names) > 1 else "it is the only cell."
    if slack is not None and slack >= 0 and not met:
        text += (
            " If any model meets all bounds, this one is above none of them by more "
            f"than {up(slack)}."
        )
    source = {} if risk_bound is None else {"risk_bound": risk_bound.value}
    return Statement(
        "empirical",
        text,
        value=worst,
        holds=met,
        assumptions=(covered, HONEST),
        inputs={"slack": slack, "tolerance": tolerance, **source, **(inputs or {})},
        per_cell=_training_rows(cells, tolerance),
    )


def _training_rows(cells: CellLosses, tolerance: float) -> tuple[dict[str, Json], ...]:
    return tuple(
        {
            "cell": name,
            "rows": int(cells.counts[z]),
            "loss": float(cells.means[z]),
            "bound": float(cells.bounds[z]),
            "margin": float(-cells.violation[z]),
            "holds": bool(cells.violation[z] <= tolerance),
        }
        for z, name in enumerate(cells.names)
    )


def infeasible_statement(
    witness: Witness, names: Sequence[str], *, convex: bool
) -> Statement:
    """State a proof that no model of the ball meets all bounds, with its witness."""
    ball = compared_with(witness.radius, 0.0)
    if not witness.proves:
        return Statement.not_available(
            "infeasible",
            "there is no proof that the bounds are impossible",
            (convexity(convex), ball),
        )
    text = (
        "No model with weights of length at most "
        f"{words(witness.radius)} meets all bounds: in each of them some cell is "
        f"above its bound by at least {down(witness.bound)}."
    )
    return Statement(
        "infeasible",
        text,
        value=witness.bound,
        holds=True,
        assumptions=(convexity(convex), ball, HONEST),
        inputs={
            "multipliers": witness.multipliers.tolist(),
            "w": witness.w.tolist(),
            "radius": witness.radius,
            "cells": list(names),
        },
    )


def attainable_statement(
    interval: Interval,
    *,
    convex: bool,
    radius: float,
    cell: str | None = None,
    inputs: Mapping[str, Json] | None = None,
) -> Statement:
    """State the smallest bound that can be met: for all cells, or for one of them."""
    what = (
        "The smallest bound that all cells can meet together"
        if cell is None
        else f"The smallest bound that '{cell}' can meet while the others keep theirs"
    )
    return Statement(
        "attainable",
        f"{what} lies between {down(interval.lower)} and {up(interval.upper)}.",
        value=interval.upper,
        assumptions=(convexity(convex), compared_with(radius, 0.0), HONEST),
        inputs={
            "lower": interval.lower,
            "upper": interval.upper,
            "cell": cell,
            "radius": radius,
            **(inputs or {}),
        },
    )


def plan_statement(plan: Plan, *, convex: bool) -> Statement:
    """State how many rounds are enough, before any of them is run."""
    text = (
        f"{plan.rounds:,} rounds ({plan.dual_rounds:,} updates of the multipliers, "
        f"each after {plan.rounds_per_dual:,} rounds of {plan.local_steps:,} local "
        f"steps) are enough for a gap of {words(plan.target_gap)}. Far fewer may do; "
        "the gap reached is measured."
    )
    grounds = tuple(Assumption(text, "assumed") for text in plan.assumptions)
    return Statement(
        "plan",
        text,
        value=float(plan.rounds),
        assumptions=(convexity(convex), *grounds),
        inputs={
            "target_gap": plan.target_gap,
            "dual_rounds": plan.dual_rounds,
            "rounds_per_dual": plan.rounds_per_dual,
            "local_steps": plan.local_steps,
            "dual_step_size": plan.dual_step_size,
            "dual_term": plan.dual_term,
            "primal_term": plan.primal_term,
        },
    )
