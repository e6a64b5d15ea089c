"""What measured differences show: intervals and corrected tests; pure functions.

Two methods are compared on the same seeds, so differences are taken seed by seed:

    t            mean ± t·s·√(1/n + ρ), Student with n − 1 degrees of freedom
    permutation  each difference keeps or turns its sign: the means of all subsets of
                 the differences cut the line into 2ⁿ parts that are equally likely to
                 hold the centre (Hartigan 1969), which gives interval and p exactly
    Holm         over all comparisons of a panel (Holm 1979)

Seeds that split the same people anew share most of them, so their differences are less
independent than they look. ρ = test rows / training rows stands for that (Nadeau and
Bengio 2003); it is 0 where every seed has people of its own.

A word follows from these alone: "holds" or "does not hold" where Holm's p of the t test
is at most 5 % and the permutation interval, if there are seeds enough for one, leaves 0
out; otherwise "no difference shown".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from pffl.records import Record
from pffl.typing import FloatArray

LEVEL = 0.05
EXACT = 14  # differences whose 2ⁿ signs are all tried
DRAWN = 1 << 14  # signs that are drawn of more
RESAMPLED = 4_000

Word: TypeAlias = Literal["holds", "does not hold", "no difference shown"]


@dataclass(frozen=True)
class Decision(Record):
    """What paired differences show; negative ones are in the claim's favour.

    Attributes
    ----------
    mean
        Mean difference; None for no pair.
    low, high, p
        Interval and p of the t test; None for fewer than two pairs, and where all
        differences are the same: what is the same on every seed was drawn once.
    permuted_low, permuted_high, permuted_p
        The same of the permutation test; None for fewer than six pairs, which no
        permutation test at 5 % can tell apart.
    adjusted
        p of the t test after Holm's correction.
    word
        What follows.
    pairs, seeds
        Seeds on which both were measured, and all.
    """

    mean: float | None
    low: float | None
    high: float | None
    p: float | None
    permuted_low: float | None
    permuted_high: float | None
    permuted_p: float | None
    adjusted: float | None
    word: Word
    pairs: int
    seeds: int


def decide(
    differences: Mapping[str, Sequence[float]],
    *,
    overlap: float = 0.0,
    level: float = LEVEL,
) -> dict[str, Decision]:
    """Judge the comparisons of one panel together; NaN is a seed without a pair.

    A comparison in which some seed has no pair is given no word: which seeds have one
    may depend on what is compared.
    """
    found = {name: np.asarray(d, dtype=float) for name, d in differences.items()}
    known = {name: d[~np.isnan(d)] for name, d in found.items()}
    tests = {
        name: student(d, overlap=overlap, level=level) for name, d in known.items()
    }
    plain = {name: test[2] for name, test in tests.items() if test is not None}
    adjusted = dict(zip(plain, holm(list(plain.values())), strict=True))
    out = {}
    for name, d in known.items():
        test, signs = tests[name], permuted(d, level=level)
        shown = len(d) == len(found[name]) and adjusted.get(name, 1.0) <= level
        if signs is not None:
            shown = shown and not signs[0] <= 0.0 <= signs[1]
        mean = float(d.mean()) if len(d) else None
        word: Word = "no difference shown"
        if shown and mean is not None:
            word = "holds" if mean < 0 else "does not hold"
        low, high, p = test or (None, None, None)
        lowest, highest, chance = signs or (None, None, None)
        out[name] = Decision(
            mean,
            low,
            high,
            p,
            lowest,
            highest,
            chance,
            adjusted.get(name),
            word,
            len(d),
            len(found[name]),
        )
    return out


def student(
    differences: Sequence[float] | FloatArray,
    *,
    overlap: float = 0.0,
    level: float = LEVEL,
) -> tuple[float, float, float] | None:
    """Return interval and p of the t test; None where there is none."""
    from scipy import stats

    d = np.asarray(differences, dtype=float)
    if len(d) < 2 or np.ptp(d) == 0:
        return None
    n, mean = len(d), float(d.mean())
    error = float(d.std(ddof=1)) * np.sqrt(1.0 / n + overlap)
    wide = error * float(stats.t.ppf(1 - level / 2, n - 1))
    p = 2.0 * float(stats.t.sf(abs(mean) / error, n - 1))
    return mean - wide, mean + wide, p


def permuted(
    differences: Sequence[float] | FloatArray, *, level: float = LEVEL
) -> tuple[float, float, float] | None:
    """Return interval and p of the permutation test; None where there is none.

    Turning the signs of the set S of d − δ makes its sum at least as large as it is
    where the mean of d over S is at most δ: the interval ends at quantiles of these
    means.
    """
    d = np.asarray(differences, dtype=float)
    n = len(d)
    if n <= EXACT:
        codes = np.arange(1, 1 << n)
        chosen = (codes[:, None] >> np.arange(n)) & 1 if n else np.zeros((0, 0), int)
    else:
        chosen = np.random.default_rng(0).integers(0, 2, (DRAWN - 1, n))
        chosen[chosen.sum(axis=1) == 0, 0] = 1
    signs = len(chosen) + 1
    outside = int(level / 2 * signs)
    if outside == 0:
        return None
    means = np.sort(chosen @ d / chosen.sum(axis=1))
    slack = 1e-12 * max(1.0, float(np.abs(d).max()))  # sums of the same, rounded
    below, above = (means <= slack).sum(), (means >= -slack).sum()
    p = min(1.0, 2.0 * (1 + min(int(below), int(above))) / signs)
    return float(means[outside - 1]), float(means[-outside]), p


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number: those of Holm's step-down test."""
    p = np.asarray(values, dtype=float)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    out = np.empty_like(p)
    out[order] = np.minimum(1.0, steps)
    return [float(value) for value in out]


def bootstrapped(
    values: Sequence[float] | FloatArray, *, level: float = LEVEL, seed: int = 0
) -> tuple[float, float] | None:
    """Return the percentile interval of the mean over seeds drawn with repeat."""
    v = np.asarray(values, dtype=float)
    if len(v) < 2:
        return None
    drawn = np.random.default_rng(seed).integers(0, len(v), (RESAMPLED, len(v)))
    low, high = np.quantile(v[drawn].mean(axis=1), (level / 2, 1 - level / 2))
    return float(low), float(high)
