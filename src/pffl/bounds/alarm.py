"""The alarm after deployment: an e-value against "the mean loss is within its bound".

Let ℓ ≥ 0 be the losses of a cell's people in the order of their batches, μ_i what is
expected of each given all before, and ζ the bound. Losses need no upper end: a cap
would hide just those that matter most. Bets γ_j ∈ (0, 1) with weights π_j, Σπ_j = 1,
are fixed before the first row is seen. Then

    N_j = Π_i (1 + γ_j(ℓ_i/ζ − 1))/(1 + γ_j(μ_i/ζ − 1))

is a martingale that begins with 1, and by the means of numbers Π_i (1 + γ(μ_i/ζ − 1))
is at most (1 + γ(μ̄/ζ − 1))ⁿ, which is at most 1 wherever μ̄ ≤ ζ. So

    E = Σ_j π_j exp(S_j),     S_j = Σ_i log(1 + γ_j(ℓ_i/ζ − 1))

is at most Σπ_jN_j whenever the mean so far is within the bound: by Ville's inequality
E ≥ c is ever seen at such a time with probability at most 1/c, however often one looks.
The S_j are cumulated over batches inside one mixture; a product of mixtures would ask
that the mean of every single batch is within the bound. A probability of 0 for what
happened is an infinite loss, and E infinite from then on.

A long good time would delay an alarm: what was lost must be won back first. So the b-th
batch with rows of the cell also begins another E, with the weight 1/(b(b + 1)).
These add up to 1; what has not begun counts as it is. With V_j the sum over starts of
weight × exp(S_j), a batch turns V_j into

    (V_j + 1/(b(b + 1))) · exp(S_j of the batch)

and E = Σ_j π_jV_j + 1/(b + 1). The same argument, start by start: with probability at
least 1 − 1/c, whenever E ≥ c, the mean of what was expected, of all people so far or of
those from the beginning of some batch on, is above the bound. With Z cells c = Z/δ.

Only sums over rows are needed, and they add over silos, which may differ. All
arithmetic is in logarithms and rounded down: rounding raises no alarm.

Reference: Ville, *Étude critique de la notion de collectif*, 1939; Shafer, Ramdas,
Vovk and others on e-values; Waudby-Smith and Ramdas, JRSS B 2024, for bets.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from pffl.bounds.checks import Numbers, nonnegative, probability, refuse, whole
from pffl.bounds.mean import BETS, EPS, LARGEST, Bets, logsumexp
from pffl.typing import FloatArray

#: Rises of the mean above the bound, in parts of it, that bets are planned for.
RISES = (0.05, 0.1, 0.2)
PLANNED = 0.25  # weight of each of them, where something is known; the rest is spread
SMALLEST = 0.01  # of bets that are spread: for losses that vary far more than ζ
LEAST = 1e-9  # a smaller bound is watched as if it were this, which raises fewer alarms


def plan(bounds: Numbers, *, variance: Numbers | None = None) -> Bets:
    """Return `BETS` bets per cell, fixed before the first row is seen.

    The best bet on a rise r is about r/(r² + variance/ζ²), which maximises the mean of
    the first two terms of log(1 + γ(ℓ/ζ − 1)).

    Parameters
    ----------
    bounds
        ζ of each cell.
    variance
        Of the cells' losses on rows that are known; None, or NaN for a cell, where
        nothing is known: all weight is then spread. A wrong plan costs time, and never
        validity.
    """
    level = np.atleast_1d(levels(bounds))
    spread = np.geomspace(SMALLEST, LARGEST, BETS)
    gammas = np.tile(np.minimum(spread, LARGEST), (len(level), 1))
    weights = np.full(gammas.shape, 1.0 / BETS)
    if variance is None:
        return Bets(gammas, weights)
    v, rise = np.broadcast_to(variance, level.shape), np.array(RISES)
    many = len(RISES)
    for z in np.flatnonzero(np.isfinite(v)):
        gammas[z, :many] = rise / (rise**2 + v[z] / level[z] ** 2)
        gammas[z, many:] = np.geomspace(SMALLEST, LARGEST, BETS - many)
        weights[z] = (1.0 - PLANNED * many) / (BETS - many)
        weights[z, :many] = PLANNED
    return Bets(np.clip(gammas, 1e-6, LARGEST), weights)


def levels(bounds: Numbers) -> FloatArray:
    """Return ζ as it is watched: above 0."""
    return np.maximum(nonnegative("bounds", bounds), LEAST)


def gains(bets: Bets, above: FloatArray, counts: Numbers) -> FloatArray:
    """Return by how much a batch raises log E, per cell and bet, rounded down.

    Parameters
    ----------
    bets
        As planned.
    above
        S_j of the batch, shape (…, Z, J).
    counts
        n of the batch, per cell.
    """
    n, g = whole("counts", counts)[..., None], bets.gammas
    sums = np.asarray(above, np.float64)
    if sums.shape[-2:] != g.shape:
        raise refuse("above", f"of shape {g.shape}", sums.shape)
    least = n * np.log1p(-g)
    if not (np.isfinite(sums) & (sums >= least - 1e-9 * (1 - least))).all():
        raise refuse("above", "sums of log(1 + γ(ℓ/ζ − 1)) with ℓ ≥ 0", "others")
    # Adding n numbers can be off by n·eps of their sizes, which add up to at most
    # |S| + 2n·|log(1 − γ)|, and each by a few eps/(1 − γ).
    size = np.abs(sums) - 2.0 * least
    found: FloatArray = sums - (n + 16.0) * EPS * size - 64.0 * EPS * n / (1.0 - g)
    return found


@dataclass(frozen=True, eq=False)
class Wealth:
    """What a monitor remembers: log V_j, shape (…, Z, J), and starts, shape (…, Z)."""

    logs: FloatArray
    starts: FloatArray

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> Wealth:
        """Before any row; `shape` is that of the bets, after any others."""
        return cls(np.full(shape, -np.inf), np.zeros(shape[:-1]))

    def after(self, gained: FloatArray, counts: Numbers) -> Wealth:
        """Return it after a batch; nothing changes for a cell without rows in it.

        Parameters
        ----------
        gained
            As `gains` says.
        counts
            Rows of the batch, per cell.
        """
        some = np.broadcast_to(whole("counts", counts) > 0, self.starts.shape)
        b = self.starts + some
        fresh = -np.log(np.maximum(b, 1.0)) - np.log(b + 1.0)
        logs = np.logaddexp(self.logs, fresh[..., None]) + gained
        logs -= 16.0 * EPS * (1.0 + np.abs(logs) + np.abs(gained))
        return Wealth(np.where(some[..., None], logs, self.logs), b)

    def log_values(self, bets: Bets) -> FloatArray:
        """Return log E per cell, rounded down: 0 before any row."""
        idle = -np.log(self.starts + 1.0)[..., None]
        terms = np.concatenate([self.logs + np.log(bets.weights), idle], axis=-1)
        found = logsumexp(terms)
        rounded: FloatArray = found - 16.0 * EPS * (1.0 + np.abs(found))
        return np.where(self.starts > 0, rounded, 0.0)


def threshold(cells: int, confidence: float) -> float:
    """Return Z/δ: an E of a cell that is as large is an alarm."""
    Z = int(whole("cells", cells, least=1))
    asked = Decimal(repr(probability("confidence", confidence)))  # 0.95, as it is read
    return float(Z / (1 - asked))
