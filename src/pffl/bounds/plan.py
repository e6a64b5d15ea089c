"""Before training: how many rounds Algorithm 1 needs for a target gap ν.

The averages of E dual rounds have a gap of at most the regret of λ plus the mean
error of the inner solves,

    ν  ≤  B·log(Z+1)/(η_θE) + η_θρ²B   +   max_e (G(w_e; λ_e) − min_w G(w; λ_e))

The first part is exponentiated gradient with |r_z| ≤ ρ; λ moves E times, not E·T as
printed. The second is FedAvg with T rounds of J local steps on a strongly convex,
smooth G. Both constants are worst cases: a plan is a promise, not a forecast, and the
measured gap (`gap.py`) is what a certificate reports.

Reference: Hu, Wu, Smith, Theorem 1, corrected; Agarwal et al., *A Reductions Approach
to Fair Classification*, ICML 2018, theorem 1; Li et al., *On the Convergence of FedAvg
on Non-IID Data*, ICLR 2020, theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pffl.bounds.checks import (
    Numbers,
    nonnegative,
    positive,
    probability,
    refuse,
    whole,
)

#: What a plan stands on, in words.
ASSUMPTIONS: tuple[str, ...] = (
    "The loss is convex and smooth in the model, and the ridge term is positive.",
    "No mean loss of a cell is ever further from its bound than the number given.",
    "Every silo takes part in every round and does the local steps it was asked for.",
    "Step sizes fall as 2/(modulus · (delay + step)), anew in each dual round.",
    "Gradients of silos stay below the bound given on all models met on the way.",
    "The multipliers move with the violation of the model that ends each dual round, "
    "and the models and multipliers of all dual rounds are averaged.",
)


def dual_step_size(dual_rounds: int, *, cells: int, violation_bound: float) -> float:
    """Return the η_θ that minimises the dual term: ``√(log(Z+1)/E)/ρ``."""
    E = float(whole("dual_rounds", dual_rounds, least=1))
    Z = float(whole("cells", cells, least=1))
    return math.sqrt(math.log(Z + 1.0) / E) / positive(
        "violation_bound", violation_bound
    )


def dual_term(
    dual_rounds: int,
    *,
    cells: int,
    multiplier_bound: float,
    violation_bound: float,
    step_size: float | None = None,
) -> float:
    """Return ``B·log(Z+1)/(η_θE) + η_θρ²B``; at the best η_θ, ``2Bρ√(log(Z+1)/E)``."""
    B, rho = (
        positive("multiplier_bound", multiplier_bound),
        positive("violation_bound", violation_bound),
    )
    best = dual_step_size(dual_rounds, cells=cells, violation_bound=rho)
    eta = best if step_size is None else positive("step_size", step_size)
    return B * math.log(cells + 1.0) / (eta * dual_rounds) + eta * rho**2 * B


def dual_rounds_for(
    target: float, *, cells: int, multiplier_bound: float, violation_bound: float
) -> int:
    """Return the least E whose dual term is at most `target`: ``4B²ρ²log(Z+1)/ν²``."""
    B = positive("multiplier_bound", multiplier_bound)
    rho = positive("violation_bound", violation_bound)
    ratio = 2.0 * B * rho / positive("target", target)
    Z = float(whole("cells", cells, least=1))
    return max(1, math.ceil(ratio**2 * math.log(Z + 1.0)))


def local_smoothness(
    loss_smoothness: float,
    shares: Numbers,
    silo_weights: Numbers,
    *,
    risk_weight: float,
    l2: float,
    multiplier_bound: float,
) -> float:
    """Return a smoothness constant of every silo's objective G_k, for any λ.

    ``β(L + μ) + B·L·max_{k,z} m_{kz}/(m_z p_k)``: in ``G_k = (1/p_k) Σ c_i ℓ_i`` the
    cells of a silo weigh m_{kz}/(m_z p_k), which is K if one silo owns a cell.

    Parameters
    ----------
    loss_smoothness
        L of one example's loss: X²/4 for logistic with ‖x‖ ≤ X.
    shares
        m_{kz}/m_z, the silo's part of each cell, shape (K, Z).
    silo_weights
        p, shape (K,).
    risk_weight, l2, multiplier_bound
        β, μ, B.
    """
    L = positive("loss_smoothness", loss_smoothness)
    p = nonnegative("silo_weights", silo_weights)
    if not (p > 0).all():
        raise refuse("silo_weights", "> 0", silo_weights)
    heaviest = float((nonnegative("shares", shares) / p[:, None]).max(initial=0.0))
    beta = float(nonnegative("risk_weight", risk_weight))
    ridge = beta * (L + float(nonnegative("l2", l2)))
    return ridge + positive("multiplier_bound", multiplier_bound) * L * heaviest


@dataclass(frozen=True)
class InnerProblem:
    """The constants of one inner minimisation of G(·; λ), valid for every λ.

    Attributes
    ----------
    smoothness
        L of every silo's objective, see `local_smoothness`.
    modulus
        βμ.
    gradient_bound
        Largest norm 𝒢 of a silo's (stochastic) gradient on the way.
    distance
        ‖w_start − w*‖: at most 2R on a ball.
    heterogeneity
        Γ = min G − Σ p_k min G_k ≥ 0; at most Σ c_i ℓ_i(w) + β(μ/2)‖w‖² at any w.
    noise
        Σ p_k² σ_k², variance of the averaged gradients; 0 with full batches.
    """

    smoothness: float
    modulus: float
    gradient_bound: float
    distance: float
    heterogeneity: float
    noise: float = 0.0

    def __post_init__(self) -> None:
        positive("smoothness", self.smoothness)
        if positive("modulus", self.modulus) > self.smoothness:
            raise refuse("modulus", "at most 'smoothness'", self.modulus)
        for name in ("gradient_bound", "distance", "heterogeneity", "noise"):
            nonnegative(name, getattr(self, name))

    def delay(self, local_steps: int) -> float:
        """Return γ = max(8L/m, J); step t uses ``2/(m(γ + t))``."""
        return max(8.0 * self.smoothness / self.modulus, float(local_steps))

    def numerator(self, local_steps: int) -> float:
        """Return ``(L/m)·(2𝓑/m + mγ‖w₁ − w*‖²/2)``.

        ``𝓑 = Σp_k²σ_k² + 6LΓ + 8(J − 1)²𝒢²``.
        """
        drift = 8.0 * (local_steps - 1) ** 2 * self.gradient_bound**2
        spread = self.noise + 6.0 * self.smoothness * self.heterogeneity + drift
        start = 0.5 * self.modulus * self.delay(local_steps) * self.distance**2
        ratio = self.smoothness / self.modulus
        return ratio * (2.0 * spread / self.modulus + start)


def primal_term(inner: InnerProblem, rounds_per_dual: int, local_steps: int) -> float:
    """Return FedAvg's (expected) error after T·J steps: ``numerator/(γ + TJ − 1)``."""
    T = float(whole("rounds_per_dual", rounds_per_dual, least=1))
    J = float(whole("local_steps", local_steps, least=1))
    return inner.numerator(local_steps) / (inner.delay(local_steps) + T * J - 1.0)


def rounds_per_dual_for(target: float, inner: InnerProblem, local_steps: int) -> int:
    """Return the least T whose primal term is at most `target`."""
    J = int(whole("local_steps", local_steps, least=1))
    needed = inner.numerator(J) / positive("target", target) - inner.delay(J) + 1.0
    return max(1, math.ceil(needed / J))


@dataclass(frozen=True)
class Plan:
    """Rounds that suffice for a target gap, and what they are made of."""

    target_gap: float
    dual_rounds: int
    rounds_per_dual: int
    local_steps: int
    dual_step_size: float
    dual_term: float
    primal_term: float
    assumptions: tuple[str, ...] = ASSUMPTIONS

    @property
    def rounds(self) -> int:
        """E·T, the number of times that silos are asked."""
        return self.dual_rounds * self.rounds_per_dual

    @property
    def gap(self) -> float:
        """The gap that these rounds guarantee, at most the target."""
        return self.dual_term + self.primal_term


def plan(
    target_gap: float,
    inner: InnerProblem,
    *,
    cells: int,
    multiplier_bound: float,
    violation_bound: float,
    local_steps: int = 1,
    dual_share: float = 0.5,
) -> Plan:
    """Return E, T and η_θ that guarantee a gap of `target_gap` after E·T rounds.

    `dual_share` of the target goes to the dual term, the rest to the primal term.
    """
    target = positive("target_gap", target_gap)
    share = probability("dual_share", dual_share)
    B, rho = multiplier_bound, violation_bound
    E = dual_rounds_for(
        share * target, cells=cells, multiplier_bound=B, violation_bound=rho
    )
    T = rounds_per_dual_for((1.0 - share) * target, inner, local_steps)
    return Plan(
        target_gap=target,
        dual_rounds=E,
        rounds_per_dual=T,
        local_steps=local_steps,
        dual_step_size=dual_step_size(E, cells=cells, violation_bound=rho),
        dual_term=dual_term(E, cells=cells, multiplier_bound=B, violation_bound=rho),
        primal_term=primal_term(inner, T, local_steps),
    )
