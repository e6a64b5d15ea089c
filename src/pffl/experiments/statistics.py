"""Paired statistics: what differences between two methods show. Pure functions.

Two methods are compared on the same seeds, and differences are taken seed by seed. One
interval is drawn, and that interval decides:

    mean ± max(t, t*)·s·√(1/n + ρ)

t is Student's quantile with n − 1 degrees of freedom. t* is the quantile of the
bootstrapped t statistic (Efron 1981), one for each end: it is larger than t on the side
on which the differences are skewed, e.g. by seeds on which a method fails. With fewer
than 29 seeds, where no word is given, t stands alone.

ρ is 0 in the column "conditional": these data, other splits. In the column "population"
ρ = (share of people that two seeds have in common) · (test rows / training rows), the
correction of Nadeau and Bengio (2003): other people of the same kind. See `overlap`.

    better, worse  the interval excludes 0
    same           the interval is inside ± margin (TOST, at half its usual risk)
    open           neither; a seed without a pair; or fewer than 29 seeds

A failure that no seed has shown leaves no trace in the differences: no test can allow
for it. 29 seeds without one show that failures befall fewer than one seed in ten
(0.9²⁹ < 5 %); rarer ones can still be missed.

Claims of one figure are judged together by Holm's steps (1979): each interval is drawn
at the level at which its claim is tested.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pffl.errors import UsageError
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from pffl.data.federation import Federation

LEVEL = 0.05
MIN_SEEDS = 29  # of a word: log 0.05 / log 0.9
RESAMPLES = 10_000

Word: TypeAlias = Literal["better", "worse", "same", "open"]
Better: TypeAlias = Literal["lower", "higher"]


@dataclass(frozen=True)
class DifferenceInterval:
    """A mean difference and its interval; the confidence is that of Holm's step."""

    mean: float
    low: float
    high: float
    confidence: float = 1 - LEVEL


@dataclass(frozen=True)
class Decision:
    """What follows for one claim, in one of the two columns.

    Attributes
    ----------
    word
        "better", "worse", "same" or "open".
    interval
        The interval that decides; None for fewer than two pairs, and where all
        differences are the same number other than 0.
    p, adjusted
        Two-sided p-value of "no difference", and after Holm's correction.
    """

    word: Word
    interval: DifferenceInterval | None
    p: float | None
    adjusted: float | None


@dataclass(frozen=True)
class Judgement:
    """A claim in both columns.

    Attributes
    ----------
    conditional
        For these data: other splits and other random numbers.
    population
        For other people of the same kind.
    seeds, pairs
        How many seeds there are, and on how many both methods have a value.
    reason
        Why no word is given, where it is not the interval's doing.
    """

    conditional: Decision
    population: Decision
    seeds: int
    pairs: int
    reason: str | None = None


@cache
def _resampled(n: int) -> FloatArray:
    """Return how often each of n differences is drawn, in all resamples."""
    rng = np.random.default_rng(0)
    return rng.multinomial(n, np.full(n, 1 / n), RESAMPLES).astype(float)


def _bootstrapped(centred: FloatArray) -> FloatArray:
    """Return the t statistics of resamples of differences with mean 0."""
    n, counts = len(centred), _resampled(len(centred))
    means = counts @ centred / n
    squares = np.maximum(counts @ centred**2 / n - means**2, 0.0)
    errors = np.sqrt(squares / (n - 1))
    still = squares <= 1e-12 * (centred**2).max()  # the same difference n times
    errors[still] = 1.0
    ratios = means / errors
    ratios[still] = np.copysign(np.inf, means[still])
    return ratios


class _Paired:
    """The t statistic of some differences, and its bootstrap."""

    def __init__(self, differences: FloatArray, correlation: float) -> None:
        n = len(differences)
        self.mean = float(differences.mean())
        deviation = float(differences.std(ddof=1))
        self.error = deviation * float(np.sqrt(1.0 / n + correlation))
        self.degrees = n - 1
        self._ratios = np.zeros(RESAMPLES)
        if n >= MIN_SEEDS:
            self._ratios = np.sort(_bootstrapped(differences - self.mean))

    def _tail(self, t: float) -> float:
        """Return how often Student's t is larger."""
        from scipy.special import stdtr

        return float(stdtr(self.degrees, -t))

    def above(self, value: float) -> float:
        """Return the one-sided p-value of "the true mean is at most `value`"."""
        t = (self.mean - value) / self.error
        beyond = len(self._ratios) - np.searchsorted(self._ratios, t, side="left")
        return max(self._tail(t), (1 + beyond) / (1 + RESAMPLES))

    def below(self, value: float) -> float:
        """Return the one-sided p-value of "the true mean is at least `value`"."""
        t = (self.mean - value) / self.error
        beyond = np.searchsorted(self._ratios, t, side="right")
        return max(self._tail(-t), (1 + beyond) / (1 + RESAMPLES))

    def interval(self, level: float) -> DifferenceInterval:
        """Return the interval that leaves out what is refused at this level."""
        from scipy.special import stdtrit

        outside = int(level / 2 * (1 + RESAMPLES))
        t = float(stdtrit(self.degrees, 1 - level / 2))
        least, most = -np.inf, np.inf
        if outside:
            least, most = self._ratios[[outside - 1, -outside]].tolist()
        low = self.mean - max(t, most) * self.error
        high = self.mean - min(-t, least) * self.error
        return DifferenceInterval(self.mean, low, high, 1 - level)

    def p(self) -> float:
        """Return the two-sided p-value of "no difference"."""
        return min(1.0, 2 * min(self.above(0.0), self.below(0.0)))

    def p_word(self, margin: float | None) -> float:
        """Return the smallest level at which the interval says a word."""
        if margin is None:
            return self.p()
        return min(self.p(), 2 * max(self.above(-margin), self.below(margin)))


def judge(
    differences: Mapping[str, ArrayLike],
    *,
    better: Better = "lower",
    margin: float | None = None,
    correlation: float | Mapping[str, float] = 0.0,
) -> dict[str, Judgement]:
    """Judge the claims of one figure together.

    Parameters
    ----------
    differences
        For each claim the differences "first method − second method", one for each
        seed; NaN for a seed on which one of them has no value.
    better
        Whether "lower" or "higher" values are better.
    margin
        Differences smaller than this do not matter; without it nothing is "same".
    correlation
        ρ of the column "population": see `overlap`. Infinite where every seed tests the
        same rows: then nothing follows for other people.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> losses = {"PFFL, FedAvg": rng.normal(-0.1, 0.05, 40)}
    >>> found = judge(losses, margin=0.005, correlation=1 / 3)["PFFL, FedAvg"]
    >>> found.conditional.word, found.population.word
    ('better', 'better')
    >>> print("{0.mean:.3f} ({0.low:.3f} to {0.high:.3f})".format(
    ...     found.conditional.interval
    ... ))
    -0.103 (-0.116 to -0.090)
    """
    names = list(differences)
    rows = {name: np.asarray(differences[name], dtype=float) for name in names}
    pairs = {name: d[~np.isnan(d)] for name, d in rows.items()}
    if not isinstance(correlation, Mapping):
        correlation = dict.fromkeys(names, correlation)
    reasons = {n: _reason(rows[n], pairs[n]) for n in names}
    columns = [
        _decide(pairs, which, margin, reasons, better)
        for which in (dict.fromkeys(names, 0.0), correlation)
    ]
    return {
        n: Judgement(
            columns[0][n], columns[1][n], len(rows[n]), len(pairs[n]), reasons[n]
        )
        for n in names
    }


def _reason(rows: FloatArray, pairs: FloatArray) -> str | None:
    """Say why there can be no word, whatever the interval is."""
    if len(pairs) < len(rows):
        return f"{len(rows) - len(pairs)} of {len(rows)} seeds have no pair"
    if len(pairs) < MIN_SEEDS:
        return f"a word needs at least {MIN_SEEDS} seeds, and there are {len(pairs)}"
    if np.ptp(pairs) == 0 and pairs[0] != 0:
        return "the difference is the same number on every seed"
    return None


def _decide(
    pairs: Mapping[str, FloatArray],
    correlation: Mapping[str, float],
    margin: float | None,
    reasons: Mapping[str, str | None],
    better: Better,
) -> dict[str, Decision]:
    """Decide one column by Holm's steps over the claims that have an interval."""
    tests = {
        name: _Paired(d, correlation[name])
        for name, d in pairs.items()
        if len(d) > 1 and np.ptp(d) > 0 and np.isfinite(correlation[name])
    }
    adjusted = dict(zip(tests, holm([t.p() for t in tests.values()]), strict=True))
    steps = sorted(tests, key=lambda name: tests[name].p_word(margin))
    out: dict[str, Decision] = {}
    left, stopped = len(steps), False
    for name in steps:
        test, own = tests[name], LEVEL / left
        interval = test.interval(own)
        word = "open" if stopped else _word(interval, margin, better)
        stopped = word == "open"
        left -= not stopped
        said: Word = "open" if reasons[name] else word
        out[name] = Decision(said, interval, test.p(), adjusted[name])
    for name, d in pairs.items():
        if name not in tests:
            equal = len(d) > 1 and not d.any()
            same = equal and margin is not None and not reasons[name]
            none = DifferenceInterval(0.0, 0.0, 0.0) if equal else None
            out[name] = Decision("same" if same else "open", none, None, None)
    return {name: out[name] for name in pairs}


def _word(interval: DifferenceInterval, margin: float | None, better: Better) -> Word:
    if margin is not None and -margin < interval.low and interval.high < margin:
        return "same"
    if interval.low > 0:
        return "better" if better == "higher" else "worse"
    if interval.high < 0:
        return "better" if better == "lower" else "worse"
    return "open"


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number: those of Holm's step-down test.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(values, dtype=float)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    out = np.empty_like(p)
    out[order] = np.minimum(1.0, steps)
    return [float(value) for value in out]


def choose(errors: ArrayLike, values: ArrayLike, *, limit: float) -> int | None:
    """Return the trial with the smallest value among those with errors ≤ `limit`.

    Equal values are decided by the error. None if no trial is within the limit.

    >>> choose([0.30, 0.31, 0.35], [0.7, 0.6, 0.5], limit=0.32)
    1
    """
    e, v = np.asarray(errors, dtype=float), np.asarray(values, dtype=float)
    inside = np.flatnonzero((e <= limit + 1e-12) & ~np.isnan(v))
    if not len(inside):
        return None
    return int(inside[np.lexsort((e[inside], v[inside]))[0]])


# People that seeds share


def overlap(seeds: Sequence[ArrayLike], *, test: float, train: float) -> float:
    """Return ρ: the share of people that two seeds have in common × test / train.

    Each seed is held against the next.

    Parameters
    ----------
    seeds
        For each seed the people of all its rows, by any name or number; `people` makes
        them of a federation.
    test, train
        Numbers of test and of training rows.

    Examples
    --------
    Seeds that split the same people anew, and seeds that share a tenth of them:

    >>> overlap([[1, 2, 3, 4], [4, 3, 2, 1]], test=1, train=2)
    0.5
    >>> overlap([range(0, 100), range(90, 190)], test=20, train=80)
    0.025
    """
    if not train > 0:
        raise UsageError("no-rows:overlap")
    counts = [np.unique(np.asarray(who), return_counts=True) for who in seeds]
    shares = []
    for (one, n), (other, m) in itertools.pairwise(counts):
        _, i, j = np.intersect1d(one, other, assume_unique=True, return_indices=True)
        shares.append(2 * np.minimum(n[i], m[j]).sum() / (n.sum() + m.sum()))
    return float(np.mean(shares)) * test / train if shares else 0.0


def people(federation: Federation) -> NDArray[Any]:
    """Return a number for each row's person: its id, or a hash of all that it says.

    People without an id with equal values count as one, which overstates an overlap.
    """
    parts = [rows for silo in federation.silos for rows in silo.splits.values()]
    if federation.by_person:
        return np.concatenate([np.asarray(rows.person) for rows in parts])
    return np.concatenate([_hashes(rows) for rows in parts])


def _hashes(rows: Any) -> IntArray:
    X = rows.X.toarray() if hasattr(rows.X, "toarray") else np.asarray(rows.X)
    table = np.column_stack([X, rows.y, rows.group]).astype(float)
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in table]
    return np.frombuffer(b"".join(digests), dtype=np.int64)
