"""Figures on unseen people: bounds on losses, error rates and fairness metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pffl.certificates import rates
from pffl.certificates import uniform as uniform_bounds
from pffl.certificates.holdout import upper_bounds
from pffl.certificates.loss_bounds import loss_bound_linear, softmax_loss_bound
from pffl.certify.basis import Basis
from pffl.certify.stating_unseen import cell_delta, reported_groups, shares
from pffl.certify.subject import Subject
from pffl.typing import FloatArray

Figures = Mapping[str, Any]
BLOCK = 1 << 16  # rows scaled at a time

_METRICS: dict[str, Callable[..., rates.Spread]] = {
    "dp_gap": rates.demographic_parity,
    "eo_gap": rates.equal_opportunity,
    "equalised_odds": rates.equalised_odds,
}


def holdout_figures(basis: Basis) -> Figures:
    """Bound the mean loss of unseen people, every loss counted up to M."""
    sample = basis.unseen
    if sample is None or basis.loss_bound is None:
        return {}
    upper = upper_bounds(
        sample.of_cells("count"),
        sample.of_cells("capped_loss"),
        sample.of_cells("capped_loss_squared"),
        loss_bound=basis.loss_bound,
        delta=cell_delta(basis, "holdout"),
    )
    return {"upper": upper.tolist()}


def error_figures(basis: Basis) -> Figures:
    """Bound how often unseen people are misjudged (Clopper and Pearson)."""
    sample = basis.unseen
    if sample is None:
        return {}
    count = sample.of_cells("count")
    errors = count - sample.of_cells("correct")
    delta = cell_delta(basis, "holdout_error")
    return {"upper": rates.clopper_pearson_upper(errors, count, delta=delta).tolist()}


def metric_figures(kind: str, basis: Basis) -> Figures:
    """Enclose a fairness metric of unseen people."""
    if basis.unseen is None:
        return {}
    chosen = reported_groups(basis)
    tables = [
        basis.unseen.of_atoms(column, len(basis.groups))[chosen]
        for column in ("positive", "count")
    ]
    spread = _METRICS[kind](*tables, delta=cell_delta(basis, kind))
    return {
        "spread": spread.value,
        "lower": spread.interval.lower,
        "upper": spread.interval.upper,
        "undefined": [basis.groups[chosen[a]] for a in spread.undefined],
    }


def uniform_unavailable(basis: Basis) -> str | None:
    """Say what is missing for a statement from the training rows alone."""
    if not basis.model.linear:
        return "needs a linear model inside a declared norm ball"
    if basis.feature_bound is None:
        return (
            "needs a declared bound on the length of everyone's scaled inputs "
            "(feature_bound)"
        )
    if ball_loss(basis) is None:
        return "needs a declared bound on the target"
    return None


def ball_loss(basis: Basis) -> float | None:
    """Return the largest loss of any model of the ball; None where there is none."""
    X = basis.feature_bound
    if X is None:
        return None
    if basis.model.kind == "logistic":
        return loss_bound_linear(basis.radius, X)
    if basis.model.kind == "softmax":
        return softmax_loss_bound(basis.radius, X, basis.model.outputs)
    return None


def uniform_figures(subject: Subject, basis: Basis) -> Figures:
    """Bound the loss of unseen people for every model of the ball at once."""
    M, X, R = ball_loss(basis), basis.feature_bound, basis.radius
    if M is None or X is None:
        return {}
    several = basis.model.kind == "softmax"
    factor = uniform_bounds.contraction(
        float(np.sqrt(2.0)) if several else 1.0, basis.model.outputs
    )
    cells, delta = basis.losses(basis.seen), shares(basis)["uniform"]
    deviation = uniform_bounds.deviation(
        cells.counts,
        radius=R,
        feature_bound=X,
        loss_bound=M,
        delta=delta,
        factor=factor,
    )
    printed = uniform_bounds.printed_term(
        cells.counts, M, silos=basis.silos, cells=len(basis.cells), delta=delta
    )
    upper = uniform_bounds.upper_bounds(cells.means, deviation, M)
    return {
        "upper": upper.tolist(),
        "printed": printed.tolist(),
        "loss_bound": M,
        "longest_input": longest_input(subject),
    }


def longest_input(subject: Subject) -> float | None:
    """Return the largest length of a training row as the model sees it.

    None where the rows are out of reach.
    """
    federation = subject.federation
    if federation is None:
        return None
    model = subject.problem.task.model
    longest = 0.0
    for silo in federation.silos:
        X = silo.rows("train").X
        for start in range(0, len(X), BLOCK):
            rows = model.inputs.apply(X[start : start + BLOCK])
            squares: FloatArray = np.einsum("ij,ij->i", rows, rows)
            longest = max(longest, float(squares.max()))
    return float(np.sqrt(longest + bool(getattr(model, "intercept", False))))
