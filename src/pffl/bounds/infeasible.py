"""Proofs that no model meets the bounds, and the smallest bounds that can be met.

λ on the simplex is a **witness**: if ``λᵀr(w) > 0`` for all w, then in every model some
cell is above its bound. With c_i = Σ_{z∋i} λ_z/m_z ≥ 0 and any slopes u_i at which the
conjugate ℓ* is finite (Fenchel and Young),

    max_z r_z(w)  ≥  λᵀr(w)  =  Σ c_i ℓ_i(w) − λᵀζ  ≥  value + residualᵀw,

    value = Σ c_i (−ℓ*(u_i)) − λᵀζ,     residual = Σ c_i u_i ⊗ (x_i, 1)

So it holds for ‖w‖ ≤ R up to R‖residual‖, and where the residual is 0 it holds for all
models. In floating point it never is; what is left, and what rounding can do to it, is
charged, and how far a proof reaches is a part of it. Anyone with the rows can compute
both sums again: a witness needs no trust in the solver.

Reference: Boyd and Vandenberghe, sections 3.3.2 and 5.8 (theorems of alternatives).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pffl.bounds.checks import Numbers, finite, nonnegative, refuse

#: Rows whose sums are plain; sums of blocks are exact (`queries.expand`).
BLOCK = 128
UNIT = 2.0**-53  # rounding of one operation
FAR = 1e6  # times the longest w seen: then no model is longer, for any purpose
SHARP = 1e-5  # of the smallest bound: what reaching further may cost
NEAR = 10.0  # times the longest w: a proof must reach further


@dataclass(frozen=True)
class Support:
    """A cone below max_z r_z: ``max_z r_z(w) ≥ value − slope·‖w‖`` for every w."""

    value: float
    slope: float

    def within(self, radius: float) -> float:
        """Return the lower bound for all w with ‖w‖ ≤ `radius`."""
        return self.value - radius * self.slope

    def proof(self, longest: float) -> tuple[float, float] | None:
        """Return by how much some cell is always above its bound, and up to which ‖w‖.

        `longest` is the length of the longest w that was seen. Up to `FAR` times that
        if there the bound is above 0; else, where half of the value is left; None if
        that is nowhere, or not even `NEAR` times `longest`.
        """
        far = FAR * longest
        if self.within(far) > 0:
            return self.within(far), far
        if self.value <= 0 or self.value < 2.0 * NEAR * longest * self.slope:
            return None
        return 0.5 * self.value, 0.5 * self.value / self.slope

    def reach(self, longest: float, worth: float) -> float:
        """Return how far to reach: as far as it costs next to nothing.

        Parameters
        ----------
        longest
            Length of the longest w that was seen.
        worth
            The number that is bounded from below, as far as it is known.
        """
        most, least = 4.0 * FAR * longest, NEAR * longest
        free = SHARP * worth
        if self.slope * most <= free:
            return most
        return float(np.clip(free / self.slope, least, most))


def support(
    value: float,
    residual: Numbers,
    sizes: Numbers,
    *,
    multipliers: Numbers,
    bounds: Numbers,
    outputs: int = 1,
) -> Support:
    """Return what sums over all rows prove, whatever rounding did to them.

    Parameters
    ----------
    value, residual, sizes
        Of a `witness` total: Σ c_i (−ℓ*(u_i)), Σ c_i u_i ⊗ (x_i, 1), and how large the
        terms of both are.
    multipliers, bounds
        λ ≥ 0, summing to 1 unless a multiple of max r is to be bounded; and ζ.
    outputs
        Scores of an example.
    """
    lam, zeta = nonnegative("multipliers", multipliers), finite("bounds", bounds)
    if lam.shape != zeta.shape or not lam.sum() > 0:
        raise refuse("multipliers", "one per bound, not all zero", multipliers)
    g, (size, length) = finite("residual", residual), nonnegative("sizes", sizes)
    # Weights (pairwise sums of those of equal rows), conjugates, plain sums of blocks,
    # one exact sum, pairs of silos.
    gamma = (BLOCK + len(lam) + outputs + 96) * UNIT * 1.01
    size += float(lam @ np.abs(zeta))
    return Support(
        float(finite("value", value)) - float(lam @ zeta) - gamma * float(size),
        float(np.linalg.norm(g)) * (1.0 + 1e-12) + gamma * float(length),
    )
