"""The duality gap of a pair (w, λ), from one value and one gradient, and its rounding.

For ``G(w; λ) = βF(w) + λᵀr(w)`` with λ ≥ 0 and ‖λ‖₁ ≤ B, weak duality gives

    min_v G(v; λ)  ≤  saddle value  ≤  max_λ G(w; λ) = βF(w) + B·max(0, max_z r_z(w))

The right side is measured. The left side is bounded from below by what convexity
says about all models, given the value and the gradient at one of them. The number
is therefore an upper bound of the true gap, whoever found the pair, and however.

**Rounding.** What floating-point arithmetic can have done to it is charged. A row's
score z = xᵀw is a sum of p products, and so off by at most γ_k·|x|ᵀ|w|, with
γ_k = k·u/(1 − k·u), u = 2⁻⁵³ and k a little more than p; a residual likewise, with the
target next to the products. What that does to a loss is its slope times that, and a
little for its curvature; sums add their own. For a mean Σ c_i ℓ_i with Σ c_i = 1 and no
weight above c, Minkowski's and Cauchy's inequalities turn rows into what is known:

    √Σ c_i δ_i²  ≤  d = γ_k · √c · (A(w) + T)        A(w) = ‖ |W| q ‖,  q_j² = Σ x_j²
    √Σ c_i ℓ'²   ≤  s                                the steepest slope, or √(2h·mean)
    mean         off by  s·d + ½ h d² + sums         h ≥ ℓ''
    gradient     off by  (h d + sums · s) · √c · ‖q‖

T is that of the targets, in units of the score. No rows are needed, and the bound holds
whatever the order of summation was; it is no estimate.

Sparse rows are centred inside products: x stands in the sum of a row, which has at most
e terms, and the means in one sum for all rows, which is added up in pairs. So k is a
little more than e, and A(w) = √e·‖W q‖ + ‖ |W| m ‖ with m_j = |mean_j|·√n/scale_j and
q_j that of x itself, √Σx_j² ≤ √Σ(x_j − mean_j)² + m_j.

Reference: Hu, Wu, Smith, *Fair Federated Learning via Bounded Group Loss*, Theorem 1
and Lemma 1; Boyd and Vandenberghe, *Convex Optimization*, sections 5.4 and 9.1.2;
Higham, *Accuracy and Stability of Numerical Algorithms*, sections 3.1, 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from pffl.bounds.checks import Numbers, finite, nonnegative, positive, refuse
from pffl.typing import FloatArray

Number = TypeVar("Number", float, FloatArray)

UNIT = 2.0**-53
FEW = 16  # operations on one number, of a few each for scaling, losses, slopes, means
PAIRS = 64  # operations of a sum in pairs, of any length
BLOCK = 64  # rows whose losses are added up at once, at least


def lower_strong(value: float, gradient: Numbers, modulus: float) -> float:
    """Bound min_v G(v) over **all** v, for G strongly convex.

    ``G(w) − ‖∇G(w)‖²/(2m)``, the minimum over v of
    ``G(w) + ∇G(w)ᵀ(v − w) + (m/2)‖v − w‖²``. Here m = βμ; the (β + B)μ of the paper
    is only an upper bound of the modulus.

    Reference: Boyd and Vandenberghe, equation (9.9).
    """
    m = positive("modulus", modulus)
    g = finite("gradient", gradient)
    return float(finite("value", value)) - float(g @ g) / (2.0 * m)


def lower_ball(value: float, gradient: Numbers, w: Numbers, radius: float) -> float:
    """Bound min G(v) over the declared ball ‖v‖ ≤ R.

    ``G(w) − ∇G(w)ᵀw − R‖∇G(w)‖``, the exact minimum over the ball of the tangent
    plane, and never below ``G − ‖∇G‖(R + ‖w‖)``. w itself need not lie in the ball.
    """
    g, point = finite("gradient", gradient), finite("w", w)
    if g.shape != point.shape:
        raise refuse("gradient", f"of the shape of w, {point.shape}", g.shape)
    R, length = float(nonnegative("radius", radius)), float(np.linalg.norm(g))
    return float(finite("value", value)) - float(g @ point) - R * length


def gap_unit(loss: float, unit: float, least: float = 1e-6) -> float:
    """Return what a gap is small against: the unit of losses, or the loss itself.

    The latter where it is much smaller, as where one wild value makes the unit; but not
    below a part `least` of the unit, where rounding begins. (Log losses have no wild
    unit, and go to 0 where classes can be told apart: a gap of 1e-8 is nothing then.)
    """
    return min(max(10.0 * loss, least * unit), unit)


def gap_of(upper_value: float, lower_value: float) -> float:
    """Return ν of two measured ends: their difference, at least what rounding hides."""
    rounding = 1e-15 * max(abs(upper_value), abs(lower_value))
    return max(upper_value - lower_value, rounding)


def slack(
    feasible_risk: float,
    gap: float,
    risk: float,
    *,
    risk_weight: float,
    multiplier_bound: float,
) -> float:
    """Return ``(β(F(w°) − F(w)) + ν)/B``: how far above a bound B leaves a model.

    Lemma 1 with β: for a pair (w, λ) with gap ν and any model w° that meets every bound

        βF(w) + B·max(0, max r(w))  ≤  G(w°; λ) + ν  ≤  βF(w°) + ν

    so that max r(w) is at most this. The lemma as printed has M in place of F(w°) −
    F(w), which excuses nearly anything; w° is a model that was found, and without one
    the lemma says nothing. It may be negative: then w° would contradict the gap.
    """
    beta = float(nonnegative("risk_weight", risk_weight))
    best, nu = (
        float(nonnegative("feasible_risk", feasible_risk)),
        float(nonnegative("gap", gap)),
    )
    own = float(nonnegative("risk", risk))
    return (beta * (best - own) + nu) / positive("multiplier_bound", multiplier_bound)


# Rounding


@dataclass(frozen=True, eq=False)
class Sparse:
    """How scores of sparse rows are computed.

    Attributes
    ----------
    entries
        e: most terms of a row's sum.
    shifts
        m_j of each input, 0 of those that are centred before.
    """

    entries: int
    shifts: FloatArray


@dataclass(frozen=True, eq=False)
class Sizes:
    """How large the numbers are that losses are computed from.

    Attributes
    ----------
    columns
        q_j of each input as the model sees it, √n for the intercept.
    targets
        T: √Σ(y − mean)² of a numeric target, in units of its scale.
    counts, heaviest
        Rows in each sum, and the largest weight c of a row in each mean, (1 + Z,): of
        F first, then of each cell.
    parts
        Sums of sums: silos times strata.
    slope
        The steepest ∂ℓ/∂z; None where only ℓ'² ≤ 2hℓ is known.
    curvature
        h: the largest ∂²ℓ/∂z².
    weighted
        Whether what means are divided by is a sum as well, of the rows' weights.
    sparse
        How scores are computed where some rows are sparse.
    """

    columns: FloatArray
    targets: float
    counts: FloatArray
    heaviest: FloatArray
    parts: int
    slope: float | None
    curvature: float
    weighted: bool = False
    sparse: Sparse | None = None

    def errors(
        self,
        w: FloatArray,
        losses: FloatArray,
        bounds: FloatArray,
        *,
        mu: float,
    ) -> Errors:
        """Return what rounding can have done at w.

        Parameters
        ----------
        losses
            Measured means, without ridge: of F, then of each cell.
        bounds
            ζ of each cell, which is taken off its mean.
        mu
            μ of the ridge term in F.
        """
        terms, reach, columns = self._reach(np.abs(w).reshape(-1, len(self.columns)))
        root = np.sqrt(self.heaviest)
        d = gamma(terms + FEW) * root * (reach + self.targets)
        mean = np.maximum(losses, 0.0)
        # The measured mean may be too small itself: by no more than this.
        s = np.sqrt(2.0 * self.curvature * mean) + self.curvature * d
        if self.slope is not None:
            s = np.full_like(mean, self.slope)
        added = FEW + np.log2(1.0 + self.counts) + self.parts + self.counts / BLOCK
        sums = 2.0 if self.weighted else 1.0
        value = s * d + 0.5 * self.curvature * d**2 + sums * gamma(added) * mean
        value[1:] += gamma(FEW) * (mean[1:] + np.abs(bounds))
        length, slack = float(np.linalg.norm(w)), gamma(len(w) + FEW)
        value[0] += slack * mu * length**2
        gradient = self.curvature * d
        gradient += sums * gamma(self.counts + self.parts + FEW) * s
        gradient *= root * float(np.linalg.norm(columns))
        gradient[0] += slack * mu * length
        return Errors(2.0 * float(value[0]), 2.0 * value[1:], 2.0 * gradient)

    def _reach(self, w: FloatArray) -> tuple[int, float, FloatArray]:
        """Return k, A(w) and the size of the terms of each column, for |w|."""
        if self.sparse is None:
            return w.size, float(np.linalg.norm(w @ self.columns)), self.columns
        entries, shifts = self.sparse.entries, self.sparse.shifts
        q = self.columns + shifts
        rows = np.sqrt(entries * (np.square(w) @ np.square(q)))
        reach = np.minimum(w @ q, rows) + w @ shifts
        return entries + PAIRS, float(np.linalg.norm(reach)), q + shifts


@dataclass(frozen=True, eq=False)
class Errors:
    """How far an expansion may be off.

    Attributes
    ----------
    risk, violation
        F, and r of each cell.
    gradients
        Length of the error of ∇F, then of each ∇r_z, (1 + Z,).
    """

    risk: float
    violation: FloatArray
    gradients: FloatArray

    def times(self, factor: float) -> Errors:
        """Return the errors with losses in another unit."""
        return Errors(
            factor * self.risk, factor * self.violation, factor * self.gradients
        )

    def upper(self, risk_weight: float, multiplier_bound: float) -> float:
        """Return by how much βF + B·max(0, max r) may be larger than was measured."""
        worst = float(self.violation.max(initial=0.0))
        return risk_weight * self.risk + multiplier_bound * worst

    def lower(
        self,
        risk_weight: float,
        multipliers: FloatArray,
        *,
        gradient: float,
        modulus: float,
        reach: float,
    ) -> float:
        """Return by how much a lower bound on G(·; λ) may be too high.

        Parameters
        ----------
        gradient
            ‖∇G‖, as it was measured.
        modulus, reach
            βμ, and R + ‖w‖ of the ball that takes its place where it is 0.
        """
        value = risk_weight * self.risk + float(multipliers @ self.violation)
        off = risk_weight * float(self.gradients[0])
        off += float(multipliers @ self.gradients[1:])
        off += gamma(len(multipliers) + FEW) * gradient
        if modulus > 0:
            return value + off * (2.0 * gradient + off) / (2.0 * modulus)
        return value + reach * off


def gamma(operations: Number) -> Number:
    """Return γ_k = k·u/(1 − k·u): the relative error of k operations."""
    return operations * UNIT / (1.0 - operations * UNIT)
