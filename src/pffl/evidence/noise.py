"""What noise leaves to be known: an interval for each figure that was released.

A released sum is the true one plus Gaussian noise of a known deviation. Of a cell with
the loss sum L and n people, L̃ = L + N(0, s²) and ñ = n + N(0, t²) were released, and
for its true mean loss m = L/n

    L̃ − m·ñ  is  N(0, s² + m²t²),

so that all m with |L̃ − m·ñ| ≤ z√(s² + m²t²) hold the true one with the probability of
z (Fieller 1954); the ends are the roots of a square. z is for all cells together.

For people not seen: the log-sums of held-out rows with noise, S̃_j = S_j + N(0, s_j²).
exp(S̃_j − s_j²/2) has the mean of exp(S_j), so that

    Σ_j π_j exp(S̃_j − s_j²/2) / (1 − γ_j μ̄)ⁿ < 1/δ

still holds with probability 1 − δ; n is replaced by the lower end of ñ, at a part of δ.
Bets γ are planned from training counts and from how many people are held out in all:
whatever these are, the losses of a cell's held-out people have the law they have.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from pffl.privacy.accounting import epsilon_of
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from pffl.evidence.record import Evidence, Figures, Noise

Share: TypeAlias = Literal["loss", "wrong", "selected"]
SUMS = ("counts", "losses", "correct")  # of `Figures`
COUNTED = 0.1  # part of δ for the number of held-out people
MOST = 100.0  # ε: no larger one is named


def member(e: Evidence) -> FloatArray:
    """Which atom is in which cell, shape (Z, atoms)."""
    labels: list[str | None] = list(e.labels) or [None]
    atoms = [(group, label) for group in e.groups for label in labels]
    return np.array([[float(a in map(tuple, c.of)) for a in atoms] for c in e.cells])


def factor(delta: float, sets: int = 1) -> float:
    """Return z: none of so many sets is further off, but with probability δ."""
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


def ends(
    e: Evidence, noise: Noise, figures: Figures | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends of the cells' mean losses, all cells together.

    Of training rows, or of those that the `figures` are of.
    """
    seen, which = figures or noise.seen, member(e)
    losses, people = which @ seen.losses, which @ seen.counts
    z, root = factor(1.0 - e.terms.confidence, len(e.cells)), np.sqrt(which.sum(axis=1))
    off, apart = root * seen.loss_deviation, root * seen.count_deviation
    rows = np.stack([losses, people, off, apart], axis=1).tolist()
    found = [fieller(L, n, s, t, z, noise.loss_bound) for L, n, s, t in rows]
    low, high = np.array(found).reshape(-1, 2).T
    return low, high


def between(
    e: Evidence,
    noise: Noise,
    split: str,
    what: Share,
    atoms: IntArray | slice = slice(None),
) -> tuple[float, float] | None:
    """Return the ends of the mean loss of atoms, or of a share of predictions.

    By themselves, with the confidence of the run; None where nothing was released. The
    share of "selected", positive predictions is that of the two atoms of a group: its
    noise and that of the number of people have the people of the first atom in common,
    which makes the ends wider than they had to be.
    """
    figures, name = noise.seen, "final errors"
    if split != "train":
        if noise.heldout is None:
            return None
        figures, name = noise.heldout, "errors"
    total = {k: np.asarray(v)[atoms] for k, v in vars(figures).items() if k in SUMS}
    people, root = float(total["counts"].sum()), math.sqrt(len(total["counts"]))
    z, t = factor(1.0 - e.terms.confidence), figures.count_deviation
    if what == "loss":
        L, s = float(total["losses"].sum()), root * figures.loss_deviation
        return fieller(L, people, s, root * t, z, noise.loss_bound)
    off = [r.deviation for r in noise.releases if (r.name, r.split) == (name, split)]
    if not off:
        return None
    right, s = total["correct"], root * off[0]
    if what == "selected":
        chosen = float(right[1] + total["counts"][0] - right[0])
        return fieller(chosen, people, math.hypot(s, t), root * t, z, 1.0)
    low, high = fieller(float(right.sum()), people, s, root * t, z, 1.0)
    return 1.0 - high, 1.0 - low


def upper(e: Evidence, noise: Noise, delta: float) -> FloatArray | None:
    """Bound the mean losses of people not seen, each with probability 1 − δ."""
    held = noise.heldout
    if held is None or not held.logs:
        return None
    which = member(e)
    z = -factor(2 * COUNTED * delta) * held.count_deviation
    people = which @ held.counts + z * np.sqrt(which.sum(axis=1))
    rows = zip(held.logs, held.log_deviation, people.tolist(), strict=True)
    share = (1 - COUNTED) * delta
    found = [log_sum_upper(logs, off, held, n, share) for logs, off, n in rows]
    return noise.loss_bound * np.array(found)


def log_sum_upper(
    logs: list[float], off: list[float], held: Figures, n: float, delta: float
) -> float:
    """Solve Σ π_j exp(S̃_j − s_j²/2 − n·log(1 − γ_j m)) = 1/δ for m; 1 if none does."""
    if n < 1:
        return 1.0
    from scipy.optimize import brentq
    from scipy.special import logsumexp

    s, gamma = np.array(off), np.array(held.bets)
    base = np.log(held.bet_weights) + np.array(logs) - s**2 / 2

    def left(m: float) -> float:
        return float(logsumexp(base - n * np.log1p(-gamma * m))) + math.log(delta)

    if left(1.0) <= 0:
        return 1.0
    if left(0.0) >= 0:
        return 0.0
    return float(brentq(left, 0.0, 1.0, xtol=1e-12)) * (1 + 1e-9)


def deciding_epsilon(
    e: Evidence, noise: Noise, low: FloatArray, high: FloatArray
) -> float | None:
    """Return about which ε would decide; None where more would not help.

    A margin shrinks as 1/μ; the estimates stay about where they are.
    """
    which, seen, worst = member(e), noise.seen, 1.0
    middle = (which @ seen.losses) / np.maximum(which @ seen.counts, 1.0)
    for z in np.flatnonzero(high > e.bounds).tolist():
        room = float(e.bounds[z] - middle[z])
        # Where it is above, more would rather show that it is not met.
        wide = float(high[z] - middle[z] if room > 0 else middle[z] - low[z])
        if room == 0 or not math.isfinite(wide):
            return None
        worst = max(worst, wide / abs(room))
    needed = epsilon_of(noise.mu * worst, noise.delta)
    return needed if needed < MOST else None


def possible(
    figures: Figures, most: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return people, loss sums and correct predictions per atom, as they can be.

    People are whole numbers, nobody's loss is below 0 or above `most`, and no more are
    right than there are. So tables have released sums; margins come from the sums as
    they were released.
    """
    people = np.maximum(np.rint(figures.counts), 0.0)
    losses = np.clip(figures.losses, 0.0, most * people)
    return people, losses, np.clip(np.rint(figures.correct), 0.0, people)
