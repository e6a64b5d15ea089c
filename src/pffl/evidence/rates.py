"""Error, risk and rates of groups, from `evaluate` totals.

Names follow the literature and fairlearn. A rate of no people is undefined, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pffl.bounds.mean import clopper_pearson_lower, clopper_pearson_upper
from pffl.data.rows import Matrix, stored_width
from pffl.evidence.record import Evidence, Sample, Scores, known
from pffl.numerics import bounded_probabilities
from pffl.records import Record
from pffl.typing import FloatArray

if TYPE_CHECKING:
    from pffl.data.federation import Federation
    from pffl.evidence.figures import Judged
    from pffl.models.base import Model

THRESHOLDS = [k / 20 for k in range(1, 20)]  # that are tried, besides the model's own
PIECE = 2**17  # numbers of inputs that are scaled at once: they stay in cache

#: The sums of an `evaluate` total, or of a sample.
Sums: TypeAlias = Any
#: Who has names of groups and labels: a schema, or evidence.
Named: TypeAlias = Any


@dataclass(frozen=True)
class Metrics(Record):
    """What `result.json` says of one split.

    Attributes
    ----------
    rows
        Number of rows.
    risk
        Mean loss with the silo weights p_k, without the ridge term.
    error
        Share of wrong predictions, over all rows.
    worst_cell_loss
        Largest mean loss of a cell of the constraint.
    worst_group_loss
        Largest mean loss of a group, whatever the constraint.
    dp_gap
        Demographic parity: largest difference of Pr[ŷ = 1] between groups.
    eo_gap
        Equal opportunity: the same among y = 1.
    equalized_odds_gap
        The larger of the differences among y = 1 and among y = 0.
    """

    rows: int
    risk: float | None
    error: float | None
    worst_cell_loss: float | None
    worst_group_loss: float | None
    dp_gap: float | None
    eo_gap: float | None
    equalized_odds_gap: float | None


def metrics(
    total: Sums,
    schema: Named,
    *,
    n_cells: int | None = None,
    judged: str = "bounded_loss",
) -> Metrics:
    """Compute `Metrics` from one total, of which the first `n_cells` cells count.

    `judged` is the column of losses: those of the bounded predictor, or the model's.
    """
    risk = total.risk if judged == "loss" else total.bounded_risk
    count, weight = total.column("count").sum(), total.column("weight").sum()
    classified, binary = bool(schema.labels) and weight > 0, len(schema.labels) == 2
    positive = [
        spread(group_means(total, schema, "positive", label)) if binary else None
        for label in (None, 0, 1)
    ]
    return Metrics(
        int(count),
        risk / total.share if total.share > 0 else None,
        float(1 - total.column("correct").sum() / weight) if classified else None,
        top(mean_losses(total, judged)[:n_cells]),
        top(group_means(total, schema, judged)),
        positive[0],
        positive[2],
        largest(*positive[1:]),
    )


@dataclass(frozen=True)
class Rate(Record):
    """How often something happens among n people, and in the population.

    Attributes
    ----------
    people
        Rows among which it was counted.
    value
        The rate there, by weight; None without people.
    lower, upper
        Hold the rate among new people, alone, with the confidence of the run;
        None where the rows are those that the model was trained on, some people have
        several, or rows have weights. Under noise they hold the rate of the rows.
    unconstrained
        The rate of the same model without bounds, among the same rows, where known.
    """

    people: int
    value: float | None
    lower: float | None
    upper: float | None
    unconstrained: float | None


@dataclass(frozen=True)
class GroupRates(Record):
    """How often the model is wrong about one group, and for it.

    Attributes
    ----------
    rows
        "test", or "training" where nothing can be said by test rows.
    error
        Wrong predictions.
    false_positive, false_negative, selected
        Predicted positive among the negative, predicted negative among the positive,
        and predicted positive among all; None unless there are two classes.
    """

    group: str
    rows: str
    error: Rate
    false_positive: Rate | None = None
    false_negative: Rate | None = None
    selected: Rate | None = None


def rates(j: Judged) -> list[GroupRates]:
    """Return the error rates of all groups, with intervals; none for numeric targets.

    The intervals are Clopper and Pearson's: each holds alone. There are none where
    people have several rows, or rows have weights. Under noise they are what it leaves.
    """
    e, held = j.e, j.heldout.usable if j.noise is None else None
    if not e.labels:
        return []
    apart = held is not None and held.rows > 0
    sample, before = held if held is not None and apart else e.seen, known(e.before)
    free = None if before is None else before.samples.get("+".join(sample.splits))
    single = apart and not (e.data.several or e.heldout_weighted)
    now, old, out = _events(sample, e), {} if free is None else _events(free, e), []
    for a in j.reported_groups:
        found = {}
        for kind, events in now.items():
            low, high = None, None
            k, weight, people = map(float, events[:, a])
            if (ends := j.rate_ends(kind, a)) is not None:
                low, high = ends
            elif single:
                side = j.heldout.delta / 2
                low = float(clopper_pearson_lower(k, people, delta=side))
                high = float(clopper_pearson_upper(k, people, delta=side))
            then = old[kind][:, a] if kind in old else (0.0, 0.0)
            unconstrained = float(then[0] / then[1]) if then[1] else None
            value = k / weight if weight else None
            found[kind] = Rate(int(people), value, low, high, unconstrained)
        out.append(GroupRates(e.groups[a], "test" if apart else "training", **found))
    return out


def _events(sample: Sample, e: Evidence) -> dict[str, FloatArray]:
    """Return events, weight and rows of each group, for each kind of rate."""
    names = ("count", "weight", "correct", "positive")
    count, weight, correct, positive = (
        sample.of_strata(c, len(e.groups)) for c in names
    )
    every = weight.sum(axis=1), count.sum(axis=1)
    found = {"error": np.array([every[0] - correct.sum(axis=1), *every])}
    if len(e.labels) == 2:
        no, yes = zip(weight.T, count.T, strict=True)
        found["false_positive"] = np.array([positive[:, 0], *no])
        found["false_negative"] = np.array([yes[0] - positive[:, 1], *yes])
        found["selected"] = np.array([positive.sum(axis=1), *every])
    return found


def mean_losses(total: Sums, judged: str = "bounded_loss") -> FloatArray:
    """Mean loss per cell; NaN where a cell has no rows."""
    losses = total.column(judged, of="cells")
    return ratio(losses, total.column("weight", of="cells"))


def group_means(
    total: Sums, schema: Named, column: str, label: int | None = None
) -> FloatArray:
    """Mean of a column per group, among one label if given; NaN without people."""
    own = slice(None) if label is None else [label]
    sums, weight = (
        total.column(name).reshape(len(schema.groups), -1)[:, own].sum(axis=1)
        for name in (column, "weight")
    )
    return ratio(sums, weight)


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide; NaN without people."""
    out = np.full_like(numerator, np.nan)
    return np.divide(numerator, denominator, out=out, where=denominator > 0)


def top(values: FloatArray) -> float | None:
    """Largest of those that are defined."""
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None


def spread(rates: FloatArray) -> float | None:
    """Largest difference; undefined for fewer than two groups with anybody in them."""
    known = rates[~np.isnan(rates)]
    return float(known.max() - known.min()) if len(known) > 1 else None


def largest(*values: float | None) -> float | None:
    """Largest; undefined where one is."""
    return None if None in values else max(v for v in values if v is not None)


# Thresholds, ranking and calibration, of rows in one process


def with_scores(
    e: Evidence, here: Federation | None, model: Model, w: FloatArray
) -> Evidence:
    """Add what decisions at other thresholds would be, where rows are at hand."""
    if here is None or len(e.labels) != 2 or e.noise is not None or e.stopped:
        return e
    held, before = known(e.heldout), known(e.before)
    splits = e.seen.splits if held is None else held.splits
    rows = [silo.rows(split) for silo in here.silos for split in splits]
    rows = [part for part in rows if len(part)]
    if not rows:
        return e
    y, group, weight = (
        np.concatenate([np.asarray(getattr(part, name)) for part in rows])
        for name in ("y", "group", "weights")
    )
    size, own = len(e.groups), float(getattr(model, "threshold", 0.5))
    stratum, M = 2 * group + y.astype(np.int64), e.terms.loss_bound
    cuts = [own, *(cut for cut in THRESHOLDS if cut != own)]

    def by_stratum(weight: FloatArray) -> list[float]:
        found: list[float] = np.bincount(stratum, weight, 2 * size).tolist()
        return found

    def kept(w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return probabilities of the last label: the model's, and as shipped."""
        p = _probabilities(model, w, [part.X for part in rows])
        bounded = model.loss_bound(M) is not None
        return p[:, 1], (bounded_probabilities(p, M or np.inf) if bounded else p)[:, 1]

    def areas(p: FloatArray) -> list[float | None]:
        members = (group == a for a in range(size))
        return [area_under_curve(y[own], p[own], weight[own]) for own in members]

    p, shipped = kept(w)
    found = Scores(
        [*splits],
        cuts,
        by_stratum(weight),
        [by_stratum(weight * (p > cut)) for cut in cuts],
        areas(shipped),
        np.bincount(group, weight * shipped, size).tolist(),
        None if before is None else areas(kept(np.array(before.model))[1]),
    )
    return replace(e, scores=found)


def _probabilities(model: Model, w: FloatArray, parts: Sequence[Matrix]) -> FloatArray:
    """Return class probabilities of all rows, scaled in pieces that stay in cache."""
    found = []
    for X in parts:
        n, piece = X.shape[0], PIECE // max(1, stored_width(X))
        step = n if model.inputs.deferred else max(64, piece)
        for start in range(0, n, step):
            inputs = model.inputs.apply(X[start : start + step])
            found.append(model.predict_proba(w, inputs))
    return np.concatenate(found)


def area_under_curve(y: FloatArray, p: FloatArray, weight: FloatArray) -> float | None:
    """Return the area under the curve; None where a label is missing.

    Probabilities that agree to 12 decimals are ties, and count one half: the last
    digits of equal rows depend on how they were added up.
    """
    place = np.unique(np.round(p, 12), return_inverse=True)[1]
    ones, zeros = (np.bincount(place, weight * (y == label)) for label in (1, 0))
    whole = ones.sum() * zeros.sum()
    return float(ones @ (np.cumsum(zeros) - zeros / 2) / whole) if whole > 0 else None


def ranking(e: Evidence) -> list[dict[str, Any]]:
    """Return AUC and calibration of each group with rows; none where not known.

    `predicted` and `observed` are the mean probability and the share of the last label.
    """
    found = known(e.scores)
    if found is None:
        return []
    totals = np.reshape(found.totals, (-1, 2))
    return [
        {
            "group": e.groups[a],
            "auc": found.auc[a],
            "unconstrained_auc": None if found.free_auc is None else found.free_auc[a],
            "predicted": found.probabilities[a] / weight,
            "observed": float(totals[a, 1]) / weight,
        }
        for a, weight in enumerate(totals.sum(axis=1).tolist())
        if weight > 0
    ]
