"""Sums over weighted rows, for statements on unseen people; see `bounds.mean`.

With x = bounded loss / M and t = weight / s_max, both in [0, 1]: how many people there
are, how many rows weigh more than s_max (then nothing is said, and t counts as 1), the
moments by which bets are planned, and the log-sums of diluted losses. For an alarm
(`bounds.alarm`) x is the loss itself, without an upper end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pffl.bounds.mean import MOMENTS
from pffl.queries.declared import ROUNDING
from pffl.queries.plausible import require, within
from pffl.typing import FloatArray, IntArray

STAKES = ("count", "above", *MOMENTS)
RISES = ("count", "above", "impossible", "t", "tx")
IMPOSSIBLE = 744.0  # log loss of a probability that a 64-bit number cannot tell from 0
MOST = 1e290  # a loss beside its bound: a larger one counts as this


@dataclass(frozen=True, eq=False)
class Stakes:
    """What the people of one cell put in: t, tx, and how many rows are above s_max."""

    t: FloatArray
    tx: FloatArray
    above: int

    @classmethod
    def of(cls, x: FloatArray, weights: FloatArray, person: IntArray | None) -> Stakes:
        """Return those of rows with these x and weights in units of s_max.

        A person who has several rows counts once, with the mean of their weights and
        their weighted mean loss.
        """
        t = np.minimum(weights, 1.0)
        tx, above = t * x, int((weights > 1.0).sum())
        if person is not None:
            t, tx = means(t, person), means(tx, person)
        return cls(t, tx, above)

    def sums(self) -> FloatArray:
        """Return the sums of `STAKES`."""
        t, tx = self.t, self.tx
        parts = (t, tx, t * t, t * tx, tx * tx)
        return np.array([len(t), self.above, *(part.sum() for part in parts)])

    def log_sums(self, bets: FloatArray, levels: FloatArray) -> FloatArray:
        """Return Σ log(1 − γu), u = tx + (1 − t)z, shape (bets, levels)."""
        out = np.zeros((len(bets), len(levels)))
        for place, z in enumerate(levels):
            u = self.tx + (1.0 - self.t) * z
            for j, bet in enumerate(bets):
                out[j, place] = np.log1p(-bet * u).sum()
        return out

    def rises(self, impossible: int) -> FloatArray:
        """Return the sums of `RISES`."""
        sums = (self.t.sum(), self.tx.sum())
        return np.array([len(self.t), self.above, impossible, *sums])

    def log_rises(self, bets: FloatArray, level: float) -> FloatArray:
        """Return Σ log(1 + γ(tx/ζ − t)), x the loss itself, shape (bets, 1)."""
        over = np.minimum(self.tx / level, MOST) - self.t
        return np.array([[np.log1p(bet * over).sum()] for bet in bets])


def means(values: FloatArray, person: IntArray) -> FloatArray:
    """Return the mean of each person's values."""
    _, who, many = np.unique(person, return_inverse=True, return_counts=True)
    return np.bincount(who, values, len(many)) / many


def check_stakes(
    stakes: FloatArray, *, rows: FloatArray, weight: FloatArray, loss: FloatArray
) -> None:
    """Demand sums that so many rows can have.

    `weight` and `loss` are the cells' Σs/s_max and Σsℓ/(s_max·M): people's means add up
    to that at most, and to just that where every row is a person, none above s_max.
    """
    count, above, t, tx, tt, ttx, ttxx = stakes.T
    good = (count <= rows) & ((count > 0) == (rows > 0)) & (above <= rows)
    whole = (count == np.round(count)) & (above == np.round(above))
    require(bool((good & whole).all()), "a number of people")
    slack = ROUNDING * (rows + weight)
    plain = (count == rows) & (above == 0)
    for mine, all_rows in ((t, weight), (tx, loss)):
        least = np.where(plain, all_rows, 0.0)
        within(mine, least - slack, all_rows + slack, "a sum of weights")
    for small, large in ((tx, t), (tt, t), (ttx, tt), (ttx, tx), (ttxx, ttx)):
        within(small, -slack, large + slack, "a sum of weights")
    room = slack * (1.0 + rows)
    squares = ((t, count, tt), (tx, count, ttxx), (ttx, tt, ttxx))
    for one, many, square in squares:
        require(bool((one**2 <= many * square + room).all()), "a sum of weights")


def check_log_sums(
    sums: FloatArray, stakes: FloatArray, bets: FloatArray, levels: FloatArray
) -> None:
    """Demand n·ū·log(1 − γ) ≤ Σ log(1 − γu) ≤ n·log(1 − γū): chord and Jensen."""
    count, _, t, tx, *_ = stakes.T
    many = np.maximum(count, 1.0)[:, None]
    mean = np.clip((tx[:, None] + (count - t)[:, None] * levels) / many, 0.0, 1.0)
    g, u, n = bets[:, :, None], mean[:, None, :], count[:, None, None]
    slack = ROUNDING * (1 - np.log1p(-g))
    low, high = n * (u * np.log1p(-g) - slack), n * (np.log1p(-g * u) + slack)
    within(sums, low, high, "a log-sum")


def check_rises(
    rises: FloatArray,
    sums: FloatArray,
    bets: FloatArray,
    levels: FloatArray,
    *,
    rows: FloatArray,
    weight: FloatArray,
    loss: FloatArray,
) -> None:
    """Demand sums for an alarm that so many rows can have.

    `weight` and `loss` are the cells' Σs/s_max and Σsℓ/s_max; the chord and Jensen give
    Σt·log(1 − γ) ≤ Σ log(1 + γ(tℓ/ζ − t)) ≤ n·log(1 + γΣ(tℓ/ζ − t)/n).
    """
    count, above, impossible, t, tx = rises.T
    good = (count <= rows) & ((count > 0) == (rows > 0))
    good &= (above <= rows) & (impossible <= rows) & (t <= count * (1 + ROUNDING))
    good &= (rises[:, :3] == np.round(rises[:, :3])).all(axis=1)
    require(bool(good.all()), "a number of people")
    for mine, all_rows in ((t, weight), (tx, loss)):
        slack = ROUNDING * (rows + all_rows)
        within(mine, -slack, all_rows + slack, "a sum of weights")
    over = np.minimum(tx / levels[:, 0], MOST) - t
    g, n = bets, np.maximum(count, 1.0)[:, None]
    most = n * np.log1p(np.maximum(g * over[:, None] / n, -g))
    slack = ROUNDING * (n * (1 - np.log1p(-g)) + np.abs(most))
    low, high = t[:, None] * np.log1p(-g) - slack, most + slack
    within(sums[:, :, 0], low, high, "a log-sum")
