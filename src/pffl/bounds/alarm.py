"""The alarm after deployment: an e-value against "the mean loss is within its bound".

Let x = ℓ/M ∈ [0, 1] be the losses of a cell's people in the order of their batches, μ_i
what is expected of each given all before, and u = ζ/M. Bets γ_j ∈ (0, 1) with weights
π_j, Σπ_j = 1, are fixed before the first row is seen. Then

    N_j = Π_i (1 − γ_j(1 − x_i))/(1 − γ_j(1 − μ_i))

is a martingale that begins with 1, and by the means of numbers Π_i (1 − γ(1 − μ_i)) is
at most (1 − γ(1 − μ̄))ⁿ, which is at most (1 − γ(1 − u))ⁿ wherever μ̄ ≤ u. So

    E = Σ_j π_j exp(S_j) / (1 − γ_j(1 − u))ⁿ,     S_j = Σ_i log(1 − γ_j(1 − x_i))

is at most Σπ_jN_j whenever the mean so far is within the bound: by Ville's inequality
E ≥ c is ever seen at such a time with probability at most 1/c, however often one looks.
It is the mirror of `logsum`: with x in the place of 1 − x it would grow while losses
are *small*. The S_j are cumulated over batches inside one mixture; a product of
mixtures would ask that the mean of every single batch is within the bound.

A long good time would delay an alarm: what was lost must be won back first. So the b-th
batch with rows of the cell also begins an E of its own, with the weight 1/(b(b + 1)).
These add up to 1; what has not begun counts as it is. With V_j the sum over starts of
weight × exp(S_j)/(1 − γ_j(1 − u))ⁿ, a batch turns V_j into

    (V_j + 1/(b(b + 1))) · exp(S_j of the batch) / (1 − γ_j(1 − u))^(n of the batch)

and E = Σ_j π_jV_j + 1/(b + 1). The same argument, start by start: with probability at
least 1 − 1/c, whenever E ≥ c, the mean of what was expected, of all people so far or of
those from the beginning of some batch on, is above the bound. With Z cells c = Z/δ.

Rows with weights s ≤ s_max count with the part t = s/s_max by their own loss, and with
the rest by the bound: with y = tx + (1 − t)u in the place of x, the mean of what is
expected of y is at most u wherever the weighted mean is at most ζ (`bounds.weighted`),
and all of the above holds of it.

Only sums over rows are needed, and they add over silos, which may differ. All
arithmetic is in logarithms and rounded down: rounding raises no alarm.

Reference: Ville, *Étude critique de la notion de collectif*, 1939; Shafer, Ramdas,
Vovk and others on e-values; Waudby-Smith and Ramdas, JRSS B 2024, for bets.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from pffl.bounds.checks import (
    Numbers,
    nonnegative,
    positive,
    probability,
    refuse,
    whole,
)
from pffl.bounds.logsum import (
    BETS,
    EPS,
    GRID,
    LARGEST,
    Bets,
    expected,
    logsumexp,
    scaled,
)
from pffl.typing import FloatArray

#: Rises of the mean above the bound, in parts of it, that bets are planned for.
RISES = (0.05, 0.1, 0.2)
PLANNED = 0.25  # weight of each of them, where something is known; the rest is spread


def plan(
    bounds: Numbers,
    *,
    loss_bound: float,
    mean: Numbers | None = None,
    variance: Numbers | None = None,
    weight: Numbers = 1.0,
) -> Bets:
    """Return `BETS` bets per cell, fixed before the first row is seen.

    Parameters
    ----------
    bounds
        ζ of each cell.
    loss_bound
        M.
    mean, variance
        Of the cells' losses on rows that are known; None, or NaN for a cell, where
        nothing is known: all weight is then spread. A wrong plan costs time, and never
        validity.
    weight
        Mean of t, where rows have weights; mean and variance are then those of M·y.
    """
    M = positive("loss_bound", loss_bound)
    u = np.atleast_1d(within(bounds, M))
    gammas, weights = np.zeros((len(u), BETS)), np.full((len(u), BETS), 1.0 / BETS)
    known = [
        np.full(len(u), np.nan) if a is None else np.broadcast_to(a, u.shape)
        for a in (mean, variance)
    ]
    part = np.broadcast_to(np.asarray(weight, np.float64), u.shape)
    for z, (level, m, v) in enumerate(zip(u, *known, strict=True)):
        planned = []
        if np.isfinite(m) and np.isfinite(v):
            width = scaled(float(m), float(v), M)[1]
            planned = [
                _best(level, level * (1.0 + part[z] * rise), width) for rise in RISES
            ]
            weights[z] = (1.0 - PLANNED * len(RISES)) / (BETS - len(RISES))
            weights[z, : len(RISES)] = PLANNED
        gammas[z] = [*planned, *_spread(level, BETS - len(planned))]
    return Bets(np.clip(gammas, 1e-6, LARGEST), weights)


def within(bounds: Numbers, M: float) -> FloatArray:
    """Return u = ζ/M, rounded up, and 1 where no loss can be above the bound."""
    return np.minimum(np.nextafter(nonnegative("bounds", bounds) / M, np.inf), 1.0)


def _spread(u: float, many: int) -> FloatArray:
    """Return bets from one for a small rise of a loss of any kind to the largest.

    A row's factor is 1 + λ(x − u) with λ = γ/(1 − γ(1 − u)): evenly in log λ.
    """
    high = LARGEST / (1.0 - LARGEST * (1.0 - u))
    low = min(RISES[0] / max(1.0 - u, RISES[0]), high / 4.0)
    return _gamma(np.geomspace(low, high, many), u)


def _gamma(slope: FloatArray, u: float) -> FloatArray:
    return slope / (1.0 + slope * (1.0 - u))


def _best(u: float, level: float, width: float) -> float:
    """Return the bet at which a row with this mean and variance adds most to log E."""
    m = min(max(level, 1e-9), 1.0 - 1e-9)
    gamma = np.minimum(_spread(u, GRID), LARGEST)
    gains = expected(gamma, 1.0 - m, min(width, m * (1.0 - m)))
    return float(gamma[int(np.argmax(gains - np.log1p(-gamma * (1.0 - u))))])


def gains(
    bets: Bets, above: FloatArray, counts: Numbers, bounds: Numbers, loss_bound: float
) -> FloatArray:
    """Return by how much a batch raises log E, per cell and bet, rounded down.

    S_j − n·log(1 − γ_j(1 − u)); shape (…, Z, J).

    Parameters
    ----------
    bets
        As planned.
    above
        S_j of the batch, shape (…, Z, J).
    counts
        n of the batch, per cell.
    bounds, loss_bound
        ζ per cell, and M.
    """
    M, n = positive("loss_bound", loss_bound), whole("counts", counts)[..., None]
    g, sums = bets.gammas, np.asarray(above, np.float64)
    if sums.shape[-2:] != g.shape:
        raise refuse("above", f"of shape {g.shape}", sums.shape)
    least = n * np.log1p(-g)
    if not ((sums <= 0) & (sums >= least - 1e-9 * (1 - least))).all():
        raise refuse("above", "sums of log(1 − γ(1 − x)) with x in [0, 1]", "others")
    # Adding n numbers of one sign can be off by n·eps, and each by a few eps/(1 − γ).
    lost = (n + 16.0) * EPS * np.abs(sums) + 64.0 * EPS * n / (1.0 - g)
    fair = n * np.log1p(-g * (1.0 - within(bounds, M)[..., None]))
    found: FloatArray = sums - lost - fair - 16.0 * EPS * np.abs(fair)
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
