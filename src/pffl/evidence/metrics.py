"""Error, risk and fairness gaps, all from `evaluate` totals.

Names follow the literature and fairlearn. A rate of nobody is undefined, never 0.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from pffl.bounds.rates import clopper_pearson_lower, clopper_pearson_upper
from pffl.evidence.figures import Judged, Share
from pffl.evidence.record import Evidence, Sample, known
from pffl.records import Record
from pffl.typing import FloatArray

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

    def as_dict(self) -> dict[str, float | None]:
        """Plain form."""
        return asdict(self)


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
    classified = bool(schema.labels) and weight > 0
    binary = len(schema.labels) == 2
    among = {y: group_rates(total, schema, label=y) for y in (0, 1)} if binary else {}
    return Metrics(
        int(count),
        risk / total.share if total.share > 0 else None,
        float(1 - total.column("correct").sum() / weight) if classified else None,
        top(mean_losses(total, judged)[:n_cells]),
        top(group_losses(total, schema, judged)),
        spread(group_rates(total, schema)) if binary else None,
        spread(among[1]) if binary else None,
        largest(spread(among[0]), spread(among[1])) if binary else None,
    )


@dataclass(frozen=True)
class Rate(Record):
    """How often something happens among so many people, and what that says of others.

    Attributes
    ----------
    people
        Rows among which it was counted.
    value
        The rate there, by weight; None for nobody.
    lower, upper
        Hold the rate among unseen people, by itself, with the confidence of the run;
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
        "held-out", or "training" where nothing can be said by held-out rows.
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

    The intervals are Clopper and Pearson's: each holds by itself. There are none where
    people have several rows, or rows have weights. Under noise they are what it leaves.
    """
    e = j.e
    if not e.labels:
        return []
    held = j.heldout.usable if j.noise is None else None
    apart = held is not None and held.rows > 0
    sample = held if held is not None and apart else e.seen
    before = known(e.before)
    samples = {} if before is None else before.samples
    free = samples.get("+".join(sample.splits))
    old = {} if free is None else _events(free, e)
    alike = not (e.data.several or e.heldout_weighted)
    side = j.heldout.delta / 2 if apart and alike else None
    counted, out = _events(sample, e), []
    for a in j.reported_groups:
        rows = "held-out" if apart else "training"
        found = {
            kind: _rate(events[:, a], side, old[kind][:, a] if kind in old else None)
            for kind, events in counted.items()
        }
        if j.noise is not None:
            found = _blurred(j, a, found)
        out.append(GroupRates(e.groups[a], rows, **found))
    return out


def _blurred(j: Judged, group: int, rates: dict[str, Rate]) -> dict[str, Rate]:
    """Give the rates of a group the ends that noise leaves, of training rows."""
    many = len(j.e.labels)
    strata = group * many + np.arange(many)
    parts = {"false_positive": strata[:1], "false_negative": strata[1:]}
    out = {}
    for kind, rate in rates.items():
        what: Share = "selected" if kind == "selected" else "wrong"
        low, high = j.between("train", what, parts.get(kind, strata)) or (None, None)
        out[kind] = replace(rate, lower=low, upper=high)
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


def _rate(found: FloatArray, delta: float | None, free: FloatArray | None) -> Rate:
    events, weight, people = map(float, found)
    value = events / weight if weight else None
    old = None if free is None or not free[1] else float(free[0] / free[1])
    if delta is None:
        return Rate(int(people), value, None, None, old)
    low = clopper_pearson_lower(events, people, delta=delta)
    high = clopper_pearson_upper(events, people, delta=delta)
    return Rate(int(people), value, float(low), float(high), old)


def mean_losses(total: Sums, judged: str = "bounded_loss") -> FloatArray:
    """Mean loss per cell; NaN where a cell has no rows."""
    losses = total.column(judged, of="cells")
    return ratio(losses, total.column("weight", of="cells"))


def group_losses(
    total: Sums, schema: Named, judged: str = "bounded_loss"
) -> FloatArray:
    """Mean loss per group; NaN where nobody is."""
    by_label = (len(schema.groups), -1)
    losses = total.column(judged).reshape(by_label).sum(axis=1)
    return ratio(losses, total.column("weight").reshape(by_label).sum(axis=1))


def group_rates(total: Sums, schema: Named, *, label: int | None = None) -> FloatArray:
    """Share of positive predictions per group, among one label if given.

    NaN where nobody is.
    """
    by_label = (len(schema.groups), -1)
    positive = total.column("positive").reshape(by_label)
    weight = total.column("weight").reshape(by_label)
    chosen = slice(None) if label is None else [label]
    return ratio(positive[:, chosen].sum(axis=1), weight[:, chosen].sum(axis=1))


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide; NaN where nobody is."""
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
