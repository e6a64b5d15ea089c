"""Check the claims on unseen people, and the plan, from the rows themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pffl.certificates import Statement
from pffl.certify.stating_unseen import METRICS
from pffl.verify import bounds
from pffl.verify.check import BOUNDS, SUMS, Check, same, same_list
from pffl.verify.claims import Case
from pffl.verify.plain import Plain


def delta(case: Case, kind: str) -> float:
    """Return δ of one cell or metric, by the rule that the notes state."""
    basis = case.basis
    metrics = 3 if len(basis.labels) == 2 else 0
    uniform = basis.feature_bound is not None and basis.trained
    others = bool(basis.labels) + metrics + uniform
    share = 1.0 - basis.confidence
    if others:
        share = share / 2 if kind == "holdout" else share / (2 * others)
    if kind not in METRICS:
        share /= len(basis.cells)
    once = basis.fresh_split or kind == "uniform"
    return share if once else share / basis.candidates


def holdout(case: Case, statement: Statement, held: Plain) -> Iterator[Check]:
    """Compute the bounds on the mean loss again."""
    M, part = case.basis.loss_bound, delta(case, "holdout")
    if M is None:
        yield Check("holdout: loss bound", None, "needed", False)
        return
    losses = np.minimum(held.losses(case.w), M)
    found = [bounds.mean_loss_upper(losses[m], M, part) for m in held.members]
    yield same(
        "holdout: δ of one cell", statement.inputs["delta"], part, tolerance=SUMS
    )
    yield from _per_cell(case, "holdout: upper bound", statement, found)


def holdout_error(case: Case, statement: Statement, held: Plain) -> Iterator[Check]:
    """Compute the bounds on error rates again."""
    predicted, part = held.predicted(case.w), delta(case, "holdout_error")
    wrong = np.zeros(len(held.y)) if predicted is None else predicted != held.y
    found = [
        bounds.rate_upper(float(wrong[m].sum()), float(m.sum()), part)
        for m in held.members
    ]
    what = "error rates: δ of one cell"
    yield same(what, statement.inputs["delta"], part, tolerance=SUMS)
    yield from _per_cell(case, "error rates: upper bound", statement, found)


def _per_cell(
    case: Case, what: str, statement: Statement, found: list[float]
) -> Iterator[Check]:
    stated: Any = statement.inputs["upper"]
    names = case.basis.names
    tolerance = max(BOUNDS, case.rows.precision)
    yield from same_list(
        lambda z: f"{what} of '{names[z]}'", stated, found, tolerance=tolerance
    )


def metric(case: Case, statement: Statement, held: Plain) -> Iterator[Check]:
    """Compute a fairness metric and its interval again."""
    kind, inputs = statement.kind, statement.inputs
    predicted = held.predicted(case.w)
    if predicted is None:
        yield Check(f"{kind}: predictions", "classes", None, False)
        return
    present = _groups_with_rows(case, held)
    cells = [[(held.group == a) & (held.y == y) for y in (0, 1)] for a in present]
    positive = np.array([[float((predicted[m] == 1).sum()) for m in g] for g in cells])
    count = np.array([[float(m.sum()) for m in g] for g in cells])
    part = delta(case, kind)
    value, low, high = bounds.metric(kind, positive, count, part)
    yield same(f"{kind}: δ", inputs["delta"], part, tolerance=SUMS)
    yield same(f"{kind}: in the rows", inputs["spread"], value, tolerance=SUMS)
    yield same(f"{kind}: lower end", inputs["lower"], low, tolerance=BOUNDS)
    yield same(f"{kind}: upper end", inputs["upper"], high, tolerance=BOUNDS)
    labels = _AMONG[kind]
    missing = [
        case.basis.groups[a]
        for i, a in enumerate(present)
        if any(sum(count[i, y] for y in which) == 0 for which in labels)
    ]
    yield same(f"{kind}: groups without rows", inputs["undefined"], missing)


#: Among which labels each metric needs rows of every group.
_AMONG: dict[str, tuple[tuple[int, ...], ...]] = {
    "dp_gap": ((0, 1),),
    "eo_gap": ((1,),),
    "equalised_odds": ((0,), (1,)),
}


def _groups_with_rows(case: Case, held: Plain) -> list[int]:
    both = np.concatenate([held.group, case.rows.group])
    return [int(a) for a in np.unique(both)]


def uniform(case: Case, statement: Statement) -> Iterator[Check]:
    """Compute the bound for all models of the ball again."""
    basis, inputs = case.basis, statement.inputs
    part = delta(case, "uniform") * len(basis.cells)  # the formula divides by itself
    M, deviation = bounds.uniform_deviation(
        case.rows.counts,
        kind=basis.model.kind,
        outputs=basis.model.outputs,
        radius=basis.radius,
        feature_bound=basis.feature_bound or 0.0,
        delta=part,
    )
    yield same("uniform: δ", inputs["delta"], part, tolerance=SUMS)
    yield same("uniform: loss bound", inputs["loss_bound"], M, tolerance=SUMS)
    upper = np.minimum(case.rows.means(case.w) + deviation, M)
    yield from _per_cell(case, "uniform: upper bound", statement, upper.tolist())
    log_term = math.log(2.0 * len(basis.cells) / part)
    printed = M / case.rows.counts * math.sqrt(0.5 * basis.silos * log_term)
    stated: Any = inputs["printed"]
    yield from same_list(
        lambda z: f"uniform: printed term of '{basis.names[z]}'",
        stated,
        printed.tolist(),
        tolerance=BOUNDS,
    )
    if inputs["longest_input"] is not None:
        yield _longest("uniform", inputs["longest_input"], case)


def _longest(kind: str, stated: object, case: Case) -> Check:
    found = float(np.sqrt((case.rows.X**2).sum(axis=1).max()))
    return same(f"{kind}: longest input", stated, found, tolerance=SUMS)


def plan(case: Case, statement: Statement) -> Iterator[Check]:
    """Compute the constants of a plan again, and check that its rounds are enough."""
    basis, inputs = case.basis, statement.inputs
    X = basis.feature_bound
    if X is None:
        yield _longest("plan", inputs["longest_input"], case)
        X = float(np.sqrt((case.rows.X**2).sum(axis=1).max()))
    for name, number in constants(case, X).items():
        yield same(f"plan: {name}", inputs[name], number, tolerance=BOUNDS)
    yield from _enough(case, inputs)


def constants(case: Case, X: float) -> dict[str, float]:
    """Return the worst cases that a plan stands on."""
    basis, rows = case.basis, case.rows
    several = basis.model.kind == "softmax"
    classes = max(2, basis.model.outputs)
    curve, slope = (X * X / 2, math.sqrt(2.0)) if several else (X * X / 4, 1.0)
    beta, B, mu, R = (
        basis.risk_weight,
        basis.multiplier_bound,
        basis.model.l2,
        basis.radius,
    )
    sizes = np.bincount(rows.silo)
    p = np.array([rows.risk_weights[rows.silo == k].sum() for k in range(len(sizes))])
    part = np.array([(rows.members & (rows.silo == k)).sum(1) for k in range(len(p))])
    heaviest = float((part / rows.counts / p[:, None]).max())
    reach = R * X * (math.sqrt(2.0) if several else 1.0)
    worst = float(np.logaddexp(0.0, math.log(classes - 1.0) + reach))
    return {
        "longest_input": X,
        "heaviest": heaviest,
        "smoothness": beta * (curve + mu) + B * curve * heaviest,
        "modulus": beta * mu,
        "gradient_bound": (beta + B * heaviest) * slope * X + beta * mu * R,
        "distance": 2 * R,
        "heterogeneity": (beta + B) * math.log(classes),
        "violation_bound": max(worst, float(case.bounds.max())),
    }


def _enough(case: Case, inputs: Mapping[str, Any]) -> Iterator[Check]:
    """The gap that these rounds guarantee, by the corrected Theorem 1."""
    E, T, J = (
        float(inputs[key]) for key in ("dual_rounds", "rounds_per_dual", "local_steps")
    )
    B, rho = case.basis.multiplier_bound, float(inputs["violation_bound"])
    eta, log_term = float(inputs["dual_step_size"]), math.log(len(case.bounds) + 1.0)
    dual = B * log_term / (eta * E) + eta * rho**2 * B
    L, m = float(inputs["smoothness"]), float(inputs["modulus"])
    delay = max(8.0 * L / m, J)
    drift = 8.0 * (J - 1.0) ** 2 * float(inputs["gradient_bound"]) ** 2
    spread = 6.0 * L * float(inputs["heterogeneity"]) + drift
    start = 0.5 * m * delay * float(inputs["distance"]) ** 2
    primal = L / m * (2.0 * spread / m + start) / (delay + T * J - 1.0)
    yield same("plan: dual term", inputs["dual_term"], dual, tolerance=SUMS)
    yield same("plan: primal term", inputs["primal_term"], primal, tolerance=SUMS)
    target = float(inputs["target_gap"])
    what = "plan: the rounds are enough for the target"
    yield Check(what, target, dual + primal, dual + primal <= target * (1 + SUMS))
