"""Every figure that follows from evidence, computed once: `Judged`.

A mean loss has two ends, which are one number unless noise was added. So there is one
judge: a bound is met if the upper end is within it, and missed if the lower end is
above; what noise leaves open is not decided.

**New people.** The one number of a cell is its upper end at δ, each alone. Every
cell within its bound by that figure shows all bounds at once with the same confidence,
whatever the number of cells: to be wrong, the one cell that is above its bound must
have been misjudged. Every other statement on new people has the same confidence, by
itself.

**A path.** Where a certificate was asked for in advance, many models were fixed on
training rows, from the safest to the least constrained, and are tested on calibration
rows in this order:

    each with the full risk δ, every cell at δ; the first that is not shown ends it

To certify what is false, the first model of the order that breaks a bound must have
been shown, and in it the one cell that is above its bound: that happens with
probability δ at most, whatever the number of models and cells (fixed-sequence testing,
intersection–union). Of the model that is shipped "at most its bound" is certified, and
no smaller figure. Where not even the first is shown, it was fixed beforehand, and its
figures are those of any such model. Where bounds are on rates, the upper end of a cell
is Clopper and Pearson's of its wrong predictions; all else is the same.

**Noise.** Of a cell with the loss sum L and n people, L̃ = L + N(0, s²) and
ñ = n + N(0, t²) were released, and for its true mean loss m = L/n

    L̃ − m·ñ  is  N(0, s² + m²t²),

so that all m with |L̃ − m·ñ| ≤ z√(s² + m²t²) hold the true one with the probability of
z (Fieller 1954); the ends are the roots of a square. For new people: the log-sums of
test rows with noise, S̃_j = S_j + N(0, s_j²). exp(S̃_j − s_j²/2) has the mean of
exp(S_j), so that

    Σ_j π_j exp(S̃_j − s_j²/2) / (1 − γ_j μ̄)ⁿ < 1/δ

still holds with probability 1 − δ; n is replaced by the lower end of ñ, at a part of δ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, TypeAlias

import numpy as np

from pffl.bounds import mean
from pffl.bounds.gap import gap_unit
from pffl.bounds.gap import slack as slack_of
from pffl.bounds.mean import clopper_pearson_upper
from pffl.evidence.record import (
    NOT_ASKED,
    Candidate,
    Evidence,
    Figures,
    Missing,
    ModelPath,
    Noise,
    Sample,
    known,
)
from pffl.evidence.statements import HONEST, Assumption, State
from pffl.models.base import LOSS_BOUNDS
from pffl.models.linear import NumericModel, rebuild
from pffl.text import down, up, words
from pffl.typing import BoolArray, FloatArray

#: A loss this little above its bound, relative to the cell's scale, counts as met.
TOLERANCE = 1e-6
ROUNDING = 1e-6  # of the tolerance: what the addition of a million losses leaves
MOVED = 1e-3  # part of a mean training loss that the predictor's limits may change
SMALL = 1e-6  # of the unit of losses: a smaller change does not count
CROSSED = 1e-4  # part of a bound by which the shipped predictor may be above it
FEWEST = 10  # rows of a cell, for its mean loss to be held against its bound
COUNTED = 0.1  # under noise: part of δ for the number of held-out people
Converged: TypeAlias = Literal["yes", "no", "not measurable"]


# Losses against bounds


@dataclass(frozen=True, eq=False)
class Losses:
    """Rows, mean losses, their ends, bounds and tolerances of all cells, in a split."""

    names: tuple[str, ...]
    counts: FloatArray
    means: FloatArray
    low: FloatArray
    high: FloatArray
    bounds: FloatArray
    tolerance: FloatArray

    @property
    def violation(self) -> FloatArray:
        """Mean loss minus bound, per cell; NaN where there are no rows."""
        return self.means - self.bounds

    @property
    def met(self) -> bool:
        """Whether no cell can be above its bound, but for rounding."""
        return bool((self.high - self.bounds <= ROUNDING * self.tolerance).all())

    @property
    def above(self) -> BoolArray:
        """Which cells are above their bounds, by more than the tolerance."""
        over: BoolArray = self.low - self.bounds > self.tolerance
        return over

    @property
    def empty(self) -> tuple[str, ...]:
        """Names of cells without rows."""
        return tuple(self.names[z] for z in np.flatnonzero(self.counts == 0))

    @property
    def worst(self) -> int:
        """The cell that is furthest above (or least below) its bound."""
        return int(np.nanargmax(self.violation))


def tolerance(scales: FloatArray, bounds: FloatArray) -> FloatArray:
    """Return what a loss may be above its bound and count as met, cell by cell.

    It is small against the loss of a constant guess, and against the bound.
    """
    return TOLERANCE * np.maximum(np.minimum(scales, bounds), 0.0)


def unmoved(seen: Sample, bounds: FloatArray, allowed: FloatArray, unit: float) -> bool:
    """Whether limits change no mean training loss by much, nor across its bound.

    Of cells, and of all rows together; a bound of 0 or less does not count.
    """
    own, kept = (
        np.append(seen.mean_of(column), seen.overall(column))
        for column in ("loss", "bounded_loss")
    )
    bounds, allowed = np.append(bounds, 0.0), np.append(allowed, 0.0)
    near = np.abs(kept - own) <= np.maximum(MOVED * own, SMALL * unit)
    met = own - bounds <= allowed
    same = np.where(met, kept <= bounds * (1 + CROSSED), kept > bounds)
    return bool((near & (same | (bounds <= 0)))[~np.isnan(own)].all())


# Noise


def deviations(delta: float, sets: int = 1) -> float:
    """Return z: none of n sets is further off, but with probability δ."""
    from scipy.special import ndtri

    return float(-ndtri(delta / (2 * max(1, sets))))


def fieller(
    loss: float, people: float, s: float, t: float, z: float, most: float
) -> tuple[float, float]:
    """Return the ends of the mean loss of a cell, between 0 and `most`.

    The roots of (ñ² − z²t²)m² − 2L̃ñm + (L̃² − z²s²); none where ñ is within its noise.
    """
    a, c = people**2 - (z * t) ** 2, loss**2 - (z * s) ** 2
    if people <= z * t:
        return 0.0, most
    root = math.sqrt(max(0.0, (loss * people) ** 2 - a * c))
    low, high = (loss * people - root) / a, (loss * people + root) / a
    return min(max(0.0, low), most), min(max(0.0, high), most)


def log_sum_upper(
    logs: list[float], off: list[float], held: Figures, n: float, delta: float
) -> float:
    """Solve Σ π_j exp(S̃_j − s_j²/2 − n·log(1 − γ_j m)) = 1/δ for m; 1 if none does."""
    if n < 1:
        return 1.0
    from scipy.optimize import brentq
    from scipy.special import logsumexp

    gamma = np.array(held.bets)
    base = np.log(held.bet_weights) + np.array(logs) - np.array(off) ** 2 / 2

    def left(m: float) -> float:
        return float(logsumexp(base - n * np.log1p(-gamma * m))) + math.log(delta)

    if left(1.0) <= 0:
        return 1.0
    if left(0.0) >= 0:
        return 0.0
    return float(brentq(left, 0.0, 1.0, xtol=1e-12)) * (1 + 1e-9)


def possible(
    figures: Figures, most: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return people, loss sums and correct predictions per stratum, as they can be.

    People are whole numbers, no loss is below 0 or above `most`, and no more are
    right than there are. So tables have released sums; margins come from the sums as
    they were released.
    """
    people = np.maximum(np.rint(figures.counts), 0.0)
    losses = np.clip(figures.losses, 0.0, most * people)
    return people, losses, np.clip(np.rint(figures.correct), 0.0, people)


# New people


def upper_ends(sample: Sample, loss_bound: float, delta: float) -> FloatArray | None:
    """Bound the mean losses that rows were drawn from, each with probability 1 − δ.

    None without bets, or where a row weighs other than they assume.
    """
    bets, risk = sample.planned, {"loss_bound": loss_bound, "delta": delta}
    if bets is None or any(sample.people["above"]):
        return None
    count, t = sample.of_people("count"), sample.of_people("t")
    sums, levels = np.array(sample.logs), np.array(sample.levels)
    if not sample.unweighted:
        return mean.upper(bets, sums, count, levels=levels, **risk)
    if not np.allclose(t, count):
        return None
    total = loss_bound * sample.of_people("tx")
    return mean.upper_bounds(bets, sums[..., 0], count, total, **risk)


def upper_rates(sample: Sample, delta: float) -> FloatArray | None:
    """Bound the rates of wrong predictions, each with probability 1 − δ.

    None where rows have weights, or people several rows: rates are counted.
    """
    several = sample.people and sample.people["count"] != sample.cells["count"]
    if sample.weighted or several:
        return None
    events, count = sample.of_cells("wrong"), sample.of_cells("count")
    return clopper_pearson_upper(events, count, delta=delta)


def keeps(
    one: Candidate, bounds: FloatArray, risk: float, *, rates: bool = False
) -> bool:
    """Whether the calibration rows show every bound, each cell with this risk."""
    found = None if rates else upper_ends(one.calibration, one.loss_bound, risk)
    found = upper_rates(one.calibration, risk) if rates else found
    return found is not None and bool((found <= bounds).all())


def certified_models(
    candidates: Sequence[Candidate], bounds: FloatArray, risk: float, *, rates: bool
) -> list[bool]:
    """Test models in their order, each with the full risk, until one is not shown."""
    out: list[bool] = []
    for one in candidates:
        out.append(keeps(one, bounds, risk, rates=rates))
        if not out[-1]:
            break
    return out


@dataclass(frozen=True, eq=False)
class Unseen:
    """Rows that stand for new people: what may be said by them, and how surely.

    Attributes
    ----------
    sample
        The rows; missing without them.
    candidates
        Models that share δ: those that were compared on these rows.
    overlap
        Rows that are training rows, too; see `Data.overlap`.
    """

    j: Judged
    sample: Sample | Missing
    candidates: int
    overlap: int | None

    @property
    def delta(self) -> float:
        """The risk of each figure alone."""
        terms = self.j.e.terms
        return (1.0 - terms.confidence) / (self.candidates * terms.later_part)

    @cached_property
    def separate(self) -> Assumption:
        """Whether these rows were used in training.

        Rows that equal a training row may be of the same person or of another: only ids
        tell. Without ids, such rows stay, and are counted.
        """
        e, many, data = self.j.e, self.overlap, self.j.e.data
        if isinstance(self.sample, Missing):
            return Assumption(self.sample.missing, "failed")
        own = (e.trained or data.trained_on is not None) and not data.other
        if own and "train" in self.sample.splits:
            return Assumption.of("separate.trained", "failed")
        if data.by_person and many:
            return Assumption.of("separate.people", "failed", many=many)
        if many is None:
            return Assumption.of("separate.unknown", "could not be checked")
        if not many:
            return Assumption.of("separate", "checked")
        state: State = "could not be checked"
        return Assumption.of("separate.equal", state, many=many, rows=self.sample.rows)

    @cached_property
    def reuse(self) -> tuple[Assumption, ...]:
        """How reuse of the rows, and a choice by them, were paid for."""
        many, terms = self.candidates, self.j.e.terms
        state: State = "checked" if terms.counted else "assumed"
        found = Assumption.of("fixed", "assumed")
        if many > 1:
            found = Assumption.of("fixed.many", state, many=many)
        if terms.others:
            state = "could not be checked"
            found = Assumption.of("fixed.others", state, others=terms.others)
        if not terms.later:
            return (found,)
        figures = {"number": terms.later + 1, "part": terms.later_part}
        return found, Assumption.of("reuse", "checked", **figures)

    @cached_property
    def single_site(self) -> tuple[Assumption, ...]:
        """Under masks no site knows that people at two sites are the same."""
        sites, many = known(self.j.e.sites), self.j.e.data.shared
        if sites is None or not sites.masked or self.j.noise is not None:
            return ()
        if many:
            return (Assumption.of("single site.people", "failed", many=many),)
        state: State = "assumed" if many is None else "checked"
        return (Assumption.of("single site", state),)

    @cached_property
    def grounds(self) -> tuple[Assumption, ...]:
        """What all statements from these rows stand on."""
        if isinstance(self.sample, Missing):
            return (self.separate,)
        last = self.separate if self.j.noise is None else HONEST
        drawn = Assumption.of("sampling", "assumed")
        return (drawn, last, *self.single_site, *self.reuse)

    @cached_property
    def of_losses(self) -> tuple[Assumption, ...]:
        """What statements on losses stand on besides: they have a largest value.

        That no weight is above s_max, too, where rows have weights.
        """
        e, sample = self.j.e, known(self.sample)
        if self.j.noise is not None or sample is None:
            return ()
        if e.terms.on_rates:
            return self.alike
        found = bounded_loss(e)
        if not e.heldout_weighted:
            return found
        most, heaviest = e.terms.weight_bound, (e.data.weights or [0.0])[-1]
        over = any(sample.people.get("above", ()))
        if most is None or heaviest > most or over:
            return (*found, Assumption.of("weights.none", "failed"))
        if sample.unweighted:  # bets were planned before anybody knew of weights
            return (*found, Assumption.of("alike", "failed"))
        return (*found, Assumption.of("weights", "assumed", most=most))

    @property
    def alike(self) -> tuple[Assumption, ...]:
        """What fails where rates cannot be counted: each person has one row, alike."""
        e = self.j.e
        failed = {"single": e.data.several, "alike": e.heldout_weighted}
        return tuple(Assumption.of(key, "failed") for key in failed if failed[key])

    @cached_property
    def usable(self) -> Sample | None:
        """The rows, where something may be said by them."""
        found = (self.separate, *self.single_site)
        failed = any(one.state == "failed" for one in found)
        return None if failed else known(self.sample)

    @property
    def absent(self) -> str:
        """Why nothing is stated of the losses of new people."""
        grounds = (*self.grounds, *self.of_losses)
        return "; ".join(one.text for one in grounds if one.state == "failed")

    @cached_property
    def upper(self) -> FloatArray | None:
        """The one number per cell: its mean loss for unseen people is at most this.

        Each alone; None where nothing may be said.
        """
        e, sample, noise = self.j.e, self.usable, self.j.noise
        if sample is None or not e.cells or self.absent:
            return None
        if noise is not None:
            return None if e.terms.on_rates else self.j.noisy_upper(noise, self.delta)
        if e.terms.on_rates:
            return upper_rates(sample, self.delta)
        return upper_ends(sample, e.terms.loss_bound or math.inf, self.delta)


# The limits of the shipped predictor


def limits(e: Evidence) -> tuple[float, float] | None:
    """Return between which ends predictions are kept; None where they are not."""
    M = e.terms.loss_bound
    if M is None:
        return None
    if e.labels:
        least = math.exp(-M)
        return least, 1.0 - (len(e.labels) - 1) * least
    model = rebuild(e.model.described, e.model.parameters)
    return model.limits(M) if isinstance(model, NumericModel) else None


def unbounded(e: Evidence) -> str:
    """Say why losses have no bound."""
    if not e.labels and not e.model.described.get("target_range"):
        option = "--set model.target_range=[LOW,HIGH]"
        return f"needs a range that all targets keep to ({option})"
    if not e.trained:
        return (
            "needs a loss with a largest value, and that of this model is unbounded: "
            "declare the range of its probabilities (--p-min P), or audit the clipped "
            "model (--clip P)"
        )
    # Where they were all below the largest M, it would have changed nothing.
    square, loss = (e.seen.column(name).sum() for name in ("loss_squared", "loss"))
    largest = max(float(square / loss), LOSS_BOUNDS[-1] if e.labels else 0.0)
    return (
        f"needs a loss that has a bound: the largest training loss is {down(largest)} "
        "or more, and no limits on predictions leave the mean losses as they are"
    )


def bounded_loss(e: Evidence) -> tuple[Assumption, ...]:
    """Say why no loss is above M: the predictor that is shipped is bounded."""
    M, ends, who = e.terms.loss_bound, limits(e), e.terms.clipping
    if M is None or ends is None:
        return (Assumption(unbounded(e), "failed"),)
    state: State = "assumed" if who == "range" else "checked"
    kept = f"limited.{who}" if who in ("clip", "range") else "limited"
    if e.labels:
        text = f"probabilities within {down(ends[0])} and {up(ends[1])}"
        return (Assumption.of(kept, state, what=text, most=words(M), more=""),)
    low, high = map(words, e.model.described["target_range"])
    text = f"its numbers within {words(ends[0])} and {words(ends[1])}"
    more = f", for targets from {low} to {high}"
    found = Assumption.of(kept, state, what=text, most=up(M), more=more)
    return found, Assumption.of("targets", "assumed")


def named(e: Evidence) -> str:
    """Return what a model from elsewhere is called that was clipped for an audit."""
    M = e.terms.loss_bound
    if e.terms.clipping != "clip" or M is None:
        return ""
    least = math.exp(-M)
    if len(e.labels) > 2:
        return f"the model, kept at {least:.6g} or more"
    return f"the model, kept within {least:.6g}–{1 - least:.6g}"


# All of it


class Judged:
    """Every figure of one evidence; each is computed when it is first needed, once."""

    def __init__(self, e: Evidence) -> None:
        self.e = self.evidence = e
        self.noise = e.noise

    @cached_property
    def reported_groups(self) -> list[int]:
        """The groups that anyone belongs to, in any sample."""
        e, held = self.e, known(self.e.heldout)
        samples = [e.seen, *([] if held is None else [held])]
        counts = [s.of_strata("count", len(e.groups)).sum(axis=1) for s in samples]
        return [int(a) for a in np.flatnonzero(np.sum(counts, axis=0))]

    # Rows given

    def losses_of(self, sample: Sample, *, trained: bool = True) -> Losses:
        """Mean losses of the cells against their bounds.

        What was `trained` for these rows is met up to a `tolerance`.
        """
        e = self.e
        low = high = means = e.means(sample)
        exact = not (trained and e.trained) or e.terms.on_rates
        allowed = tolerance(e.scales, e.bounds) * (not exact)
        noise = self.noise
        released = noise and (noise.seen if trained else noise.heldout)
        if isinstance(released, Figures):
            low, high = self.ends(released)
            allowed = np.zeros(len(e.cells))
        counts = sample.of_cells("count")
        return Losses(e.names, counts, means, low, high, e.bounds, allowed)

    @cached_property
    def losses(self) -> dict[str, Losses]:
        """Of ``train`` rows (or of those that were audited), and of ``test`` rows."""
        held, found = known(self.e.heldout), {"train": self.losses_of(self.e.seen)}
        if held is not None:
            found["test"] = self.losses_of(held, trained=False)
        return found

    @cached_property
    def target(self) -> float | None:
        """The gap that a converged run is under, in units of the loss."""
        e = self.e
        if e.terms.target_gap is None:
            return None
        weight = e.terms.risk_weight + float(e.multipliers.sum())
        if weight == 0:  # nothing is asked of the model: any one is a saddle point
            weight = max(1.0, e.terms.multiplier_bound)
        largest = max([e.risk or 0.0, *e.seen.own_means.tolist()])
        least = 1e-2 if e.labels else 1e-6
        return e.terms.target_gap * weight * gap_unit(largest, e.model.unit, least)

    @cached_property
    def gap(self) -> float | None:
        """ν of the pair; None where it was not measured."""
        pair = known(self.e.proofs.gap)
        return None if pair is None else pair.gap

    @cached_property
    def converged(self) -> Converged:
        """Whether the run came as close to the best trade-off as was asked of it."""
        run = known(self.e.training)
        if run is not None and run.settled is False:
            return "no"
        if run is None or self.gap is None or self.target is None:
            return "not measurable"
        return "yes" if self.gap <= self.target else "no"

    @cached_property
    def longest(self) -> float:
        """The length of the longest w that is known of."""
        before = known(self.e.before)
        other = [0.0] if before is None else before.model
        return max(self.e.model.length, float(np.linalg.norm(other)))

    @cached_property
    def proof(self) -> tuple[float, float] | None:
        """By how much bounds are impossible, and up to which ‖w‖; None if not."""
        least = known(self.e.proofs.least)
        if least is None or not self.e.promise:
            return None
        return least.proof(self.e.bounds, self.longest)

    @cached_property
    def slack(self) -> float | None:
        """The slack of Lemma 1 where a bound is missed: (β(F(w°) − F(w)) + ν)/B.

        w° is a model that was found and meets all bounds, also those that the solver
        was given. There is none without such a model, and none for a run that did not
        converge: its own gap must not excuse it.
        """
        e, least, terms = self.e, known(self.e.proofs.least), self.e.terms
        missed = e.promise and self.losses["train"].above.any()
        if not missed or self.converged != "yes" or self.gap is None or least is None:
            return None
        room = -least.excess(e.bounds).upper
        aimed = (e.bounds - e.aimed).max()
        if terms.multiplier_bound <= 0 or e.risk is None or room < aimed:
            return None
        weights = {"risk_weight": terms.risk_weight}
        weights["multiplier_bound"] = terms.multiplier_bound
        return slack_of(least.risk, self.gap, e.risk, **weights)

    @cached_property
    def smallest_bound(self) -> float | None:
        """The smallest common bound that was met, where the bounds are impossible.

        (Or what all bounds must rise by, where they differ.) It is the upper end of
        what encloses the smallest of all, rounded up.
        """
        e, found = self.e, known(self.e.proofs.least)
        if found is None or self.proof is None:
            return None
        common = float(np.ptp(e.bounds)) == 0
        rise = found.excess(e.bounds).upper
        return float(up(rise + (float(e.bounds[0]) if common else 0.0), digits=6))

    @property
    def witness(self) -> dict[str, float] | None:
        """Weights of the cells that prove the bounds impossible."""
        excess = known(self.e.proofs.least)
        if excess is None or self.proof is None:
            return None
        return dict(zip(self.e.names, excess.multipliers, strict=True))

    # New people

    @cached_property
    def heldout(self) -> Unseen:
        """What test rows say."""
        e, many = self.e, self.e.terms.candidates
        path, held = known(e.path), known(e.heldout)
        if path is not None and held is not None and path.split in held.splits:
            many *= len(path.candidates)
        return Unseen(self, e.heldout, many, e.data.overlap)

    @cached_property
    def people(self) -> Unseen:
        """The statement on new people, and its rows: after a path calibration rows.

        The first model was fixed before; another is one of several that were.
        """
        path = known(self.e.path)
        if path is None:
            return self.heldout
        many = len(path.candidates) if path.chosen > 0 else 1
        many *= self.e.terms.candidates
        return Unseen(self, path.shipped.calibration, many, path.overlap)

    @property
    def asked(self) -> bool:
        """Whether a certificate was asked for in advance."""
        return self.e.path != NOT_ASKED

    @property
    def risk(self) -> float:
        """The risk with which each model of a path is tested."""
        terms = self.e.terms
        return (1.0 - terms.confidence) / (terms.candidates * terms.later_part)

    @cached_property
    def tested(self) -> tuple[bool, ...]:
        """What came of the models that were tested, until the first not shown."""
        e, path = self.e, known(self.e.path)
        found = [] if path is None else path.candidates
        rates = e.terms.on_rates
        return tuple(certified_models(found, e.bounds, self.risk, rates=rates))

    @cached_property
    def by_path(self) -> bool:
        """Whether the shipped model of a path and all that are safer were shown."""
        path = known(self.e.path)
        if path is None or self.people.usable is None or self.people.absent:
            return False
        first = self.tested[: path.chosen + 1]
        return len(first) == path.chosen + 1 and all(first)

    @cached_property
    def upper(self) -> FloatArray | None:
        """The one number per cell: its mean loss for unseen people is at most this.

        What a path shows is the bound itself.
        """
        return self.e.bounds if self.by_path else self.people.upper

    @cached_property
    def shown(self) -> bool | None:
        """Whether every bound holds for new people; None if nothing can be said."""
        found, e = self.upper, self.e
        if found is None or not e.promise:
            return None
        if isinstance(e.path, ModelPath):
            return self.by_path
        return bool((found <= e.bounds).all())

    # Noise

    @cached_property
    def member(self) -> FloatArray:
        """Which stratum is in which cell, shape (Z, strata)."""
        e = self.e
        labels: list[str | None] = list(e.labels) or [None]
        strata = [(group, label) for group in e.groups for label in labels]
        return np.array(
            [[float(a in map(tuple, c.of)) for a in strata] for c in e.cells]
        )

    @property
    def factor(self) -> float:
        """By how many deviations the ends of losses are apart from released ones."""
        return deviations(1.0 - self.e.terms.confidence, len(self.e.cells))

    def ends(self, figures: Figures) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper ends of the cells' mean losses, all cells together.

        Of the rows that the `figures` are of.
        """
        most = math.inf if self.noise is None else self.noise.loss_bound
        root = np.sqrt(self.member.sum(axis=1))
        sums = [self.member @ of for of in (figures.losses, figures.counts)]
        off = [root * of for of in (figures.loss_deviation, figures.count_deviation)]
        rows = zip(*sums, *off, strict=True)
        ends = partial(fieller, z=self.factor, most=most)
        found = [ends(*row) for row in rows]
        low, high = np.array(found).reshape(-1, 2).T
        return low, high

    def rate_ends(self, kind: str, group: int) -> tuple[float, float] | None:
        """Return what noise lets a rate of a group's training rows be, by itself.

        None without noise, and where nothing was released. The noise of those who are
        selected and of all people have that of the first label in common, which makes
        these ends wider than they had to be.
        """
        noise = self.noise
        released = [] if noise is None else noise.releases
        off = [one.deviation for one in released if one.name == "final errors"]
        if noise is None or not off:
            return None
        sums, s, t = noise.seen, off[0], noise.seen.count_deviation
        n, right = (
            np.reshape(column, (len(self.e.groups), -1))[group]
            for column in (sums.counts, sums.correct)
        )
        z = deviations(1.0 - self.e.terms.confidence)
        if kind == "selected":
            chosen, s = right[1] + n[0] - right[0], math.hypot(s, s, t)
            return fieller(chosen, n.sum(), s, math.sqrt(2) * t, z, 1.0)
        own = {"false_positive": slice(0, 1), "false_negative": slice(1, 2)}
        n, right = (column[own.get(kind, slice(None))] for column in (n, right))
        root = math.sqrt(len(n))
        low, high = fieller(right.sum(), n.sum(), root * s, root * t, z, 1.0)
        return 1.0 - high, 1.0 - low

    def noisy_upper(self, noise: Noise, delta: float) -> FloatArray | None:
        """Bound the mean losses of new people, each with probability 1 − δ."""
        held = noise.heldout
        if held is None or not held.logs:
            return None
        z = -deviations(2 * COUNTED * delta) * held.count_deviation
        people = self.member @ held.counts + z * np.sqrt(self.member.sum(axis=1))
        rows = zip(held.logs, held.log_deviation, people.tolist(), strict=True)
        share = (1 - COUNTED) * delta
        found = [log_sum_upper(logs, off, held, n, share) for logs, off, n in rows]
        return noise.loss_bound * np.array(found)
