"""Curvature of G(·; λ) learnt from gradients: limited-memory BFGS, for any λ.

A pair is a step s and how the gradients of F's losses and of every cell changed along
it: ΔJ, with 1 + Z rows. As all rows are kept, y(λ) = βΔ∇F + Σ λ_z Δ∇r_z belongs to the
λ at hand, whatever it was when the step was taken. The ridge is known, and not learnt:

    H(λ) ≈ BFGS of the pairs (s, y(λ) + βμ s), begun at σ·diag(c) + βμ I

c_j is the curvature that input j can have, from the census; σ fits the last pair.

Reference: Nocedal and Wright, *Numerical Optimization*, section 7.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pffl.typing import FloatArray

MOST = 30  # pairs
LARGEST = 2**26  # numbers of all pairs together: half a GB
FLATTEST = 1e-14  # sᵀy, in parts of ‖s‖·‖y‖, of a pair that says nothing


def room(p: int, z: int) -> int:
    """Return how many pairs are kept."""
    return int(np.clip(LARGEST // (p * (z + 2)), 3, MOST))


@dataclass(frozen=True, eq=False)
class Inverse:
    """H(λ)⁻¹ for one λ."""

    steps: tuple[FloatArray, ...]  # s
    slopes: tuple[FloatArray, ...]  # y + βμ s
    diagonal: FloatArray  # what the BFGS begins with

    @classmethod
    def of(
        cls,
        steps: Sequence[FloatArray],
        changes: Sequence[FloatArray],
        weights: FloatArray,
        *,
        sizes: FloatArray,
        modulus: float,
    ) -> Inverse:
        """Learn H(λ) from pairs, for weights (β, λ), sizes c and βμ."""
        kept, slopes, scale = [], [], float(weights.sum())
        for s, change in zip(steps, changes, strict=True):
            y = weights @ change
            if float(s @ y) > FLATTEST * float(np.linalg.norm(s) * np.linalg.norm(y)):
                scale = float(y @ (y / sizes)) / float(s @ y)
                kept.append(s)
                slopes.append(y + modulus * s)
        return cls(tuple(kept), tuple(slopes), scale * sizes + modulus)

    def times(self, columns: FloatArray) -> FloatArray:
        """Return H⁻¹ of the columns of a matrix, shape (p, q), by the two loops."""
        v, parts = columns.copy(), []
        pairs = list(zip(self.steps, self.slopes, strict=True))
        for s, y in reversed(pairs):
            parts.append((s @ v) / float(s @ y))
            v -= np.outer(y, parts[-1])
        v /= self.diagonal[:, None]
        for s, y in pairs:
            v += np.outer(s, parts.pop() - (y @ v) / float(s @ y))
        return v
