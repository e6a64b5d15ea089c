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
