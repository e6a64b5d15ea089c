"""Sums over people, for statements on unseen ones; see `bounds.mean`.

With x = bounded loss / M and t = weight / s_max, both in [0, 1]: how many people there
are, how many rows weigh more than s_max (then nothing is said, and t counts as 1), the
moments by which bets are planned, and the log-sums of diluted losses. Of rows that
count alike t is 1. For an alarm (`bounds.alarm`) x is the loss itself, without an upper
end.
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
    """What the people of one cell put in: t, tx, and how many rows are above s_max.

    `times` says how many people each entry stands for.
    """

    t: FloatArray
    tx: FloatArray
    times: FloatArray
    above: float

    @classmethod
    def of(
        cls,
        x: FloatArray,
        weights: FloatArray,
        person: IntArray | None,
        times: FloatArray | None,
    ) -> Stakes:
        """Return those of rows with these x and weights in units of s_max.

        A person who has several rows counts once, with the mean of their weights and
        their weighted mean loss.
        """
        t, many = np.minimum(weights, 1.0), np.ones(len(x)) if times is None else times
        tx, above = t * x, float(many[weights > 1.0].sum())
        if person is not None:
            _, who, rows = np.unique(person, return_inverse=True, return_counts=True)
            t, tx = (np.bincount(who, v, len(rows)) / rows for v in (t, tx))
            many = np.ones(len(rows))
        return cls(t, tx, many, above)

    def sums(self) -> FloatArray:
        """Return the sums of `STAKES`."""
        t, tx, many = self.t, self.tx, self.times
        parts = (t, tx, t * t, t * tx, tx * tx)
        return np.array([many.sum(), self.above, *(many @ part for part in parts)])

    def log_sums(self, bets: FloatArray, levels: FloatArray) -> FloatArray:
        """Return Σ log(1 − γu), u = tx + (1 − t)z, shape (bets, levels)."""
        out, alike = np.zeros((len(bets), len(levels))), bool((self.t == 1.0).all())
        for place, z in enumerate(levels[:1] if alike else levels):
            u = self.tx + (1.0 - self.t) * z
            for j, bet in enumerate(bets):
                out[j, place] = self.times @ np.log1p(-bet * u)
        return np.repeat(out[:, :1], len(levels), axis=1) if alike else out

    def rises(self, impossible: float) -> FloatArray:
        """Return the sums of `RISES`."""
        many, sums = self.times, (self.times @ self.t, self.times @ self.tx)
        return np.array([many.sum(), self.above, impossible, *sums])

    def log_rises(self, bets: FloatArray, level: float) -> FloatArray:
        """Return Σ log(1 + γ(tx/ζ − t)), x the loss itself, shape (bets, 1)."""
        over = np.minimum(self.tx / level, MOST) - self.t
        return np.array([[self.times @ np.log1p(bet * over)] for bet in bets])
