"""What gradient methods share: a round of local training, and what the server does.

A method on top of this is its objective, its step sizes and its update:

    objective   what the next round descends
    own, tuned  whose curvature is asked for before round 1, and what follows from it
    step        `descend`, and whatever moves besides w

FedAvg (McMahan et al. 2017): J local steps, weighted mean of the updates.
FedProx (Li et al. 2020): the same with a proximal term (`proximal`).
FedAvgM, FedAdam, FedYogi (Hsu et al. 2019; Reddi et al. 2021): the mean update is a
pseudo-gradient for a server optimiser (`server`).
Partial participation: each round asks a random fraction of the silos, and the update
is scaled by K/n, so its expectation is that of all silos.
Step sizes come from constants of the problem, so that defaults need no tuning.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from pffl.constraints.base import Cells
from pffl.errors import UsageError
from pffl.methods.base import (
    Method,
    check_choice,
    check_hessians,
    check_parameters,
)
from pffl.models.linear import LinearModel
from pffl.numerics import project_simplex
from pffl.problem import Expansion, Point, Problem
from pffl.questions import (
    Curvature,
    CurvatureTotal,
    Evaluate,
    EvaluateTotal,
    Task,
    Train,
    TrainTotal,
)
from pffl.typing import FloatArray

DECAY = 0.99  # β₂ of Adam and Yogi
FLOOR = 1e-3  # τ of Adam and Yogi
STABLE = 1.9  # steps of less than 2/L do not diverge
UNTUNED = 0.1  # η_w where neither the user nor the model's curvature says anything

Iterate = Literal["average", "last", "best"]
Iterates = tuple[Iterate | None, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class State:
    """Where a method stands after `round` rounds of training.

    Attributes
    ----------
    w, w_sum
        The model, and the sum of all so far.
    momentum, second
        First and second moments of the server optimiser.
    smoothness
        L of the local objectives for the weights in use, where it is known.
    curvatures
        L of the sets of rows that the method weighs, where their weights change with
        every round.
    """

    round: int
    w: FloatArray
    w_sum: FloatArray
    momentum: FloatArray
    second: FloatArray
    smoothness: float | None = None
    curvatures: FloatArray | None = None

    @classmethod
    def at_start(cls, problem: Problem, **more: Any) -> Self:
        """Return the first state, at the model's first w."""
        w = problem.task.model.start(problem.seed)
        zero = np.zeros_like(w)
        return cls(round=0, w=w, w_sum=zero, momentum=zero, second=zero, **more)


@dataclass(frozen=True, eq=False)
class Objective:
    """What a round descends: βF + Σ_z c_z Σ_{i∈z} ℓ_i, and a ridge.

    Attributes
    ----------
    task
        Model, cells z and silo weights p_k.
    cell_weights
        c_z.
    risk_weight
        β.
    ridge
        Weight of (ridge/2)‖w‖²; None for βμ.
    smoothness
        L, where it is not that of the state.
    loss_power
        q of q-FFL.
    """

    task: Task
    cell_weights: FloatArray
    risk_weight: float
    ridge: float | None = None
    smoothness: float | None = None
    loss_power: float = 0.0

    @property
    def modulus(self) -> float:
        """How strongly convex it is."""
        mu = self.task.model.mu
        return self.risk_weight * mu if self.ridge is None else self.ridge

    @classmethod
    def over(
        cls,
        problem: Problem,
        cells: Cells,
        row_weights: FloatArray,
        smoothness: float | None = None,
        *,
        shares: FloatArray | None = None,
    ) -> Self:
        """Return Σ_i c_i ℓ_i + (μ/2)‖w‖², with c_i by cells of the method's own.

        `shares` replaces the p_k.
        """
        task = problem.with_cells(cells)
        task = task if shares is None else replace(task, shares=shares)
        weights = np.concatenate([np.zeros(problem.n_cells), row_weights])
        return cls(task, weights, 0.0, problem.mu, smoothness)


S = TypeVar("S", bound=State)


@dataclass(frozen=True, kw_only=True)
class LocalTraining(Method[S]):
    """A method with local training, and the parameters that all of them share.

    Parameters
    ----------
    local_steps
        J.
    step_size
        η_w; None takes 1/L for the current weights, from one `curvature` round.
    schedule
        "constant", or "decay" for η_w = 2/(βμ(γ + t)) with γ = 8L/(βμ).
    batch_size
        Rows per local step; None for all.
    proximal
        FedProx's weight; 0 is FedAvg.
    participation
        Fraction of silos asked in each round.
    server, server_step_size, server_momentum
        What the server does with the mean update: "mean" adds it; "momentum", "adam"
        and "yogi" smooth it.
    """

    local_steps: int = 5
    step_size: float | None = None
    schedule: Literal["constant", "decay"] = "constant"
    batch_size: int | None = None
    proximal: float = 0.0
    participation: float = 1.0
    server: Literal["mean", "momentum", "adam", "yogi"] = "mean"
    server_step_size: float = 1.0
    server_momentum: float = 0.9
    iterates: ClassVar[Iterates] = ("last",)  # that it can return

    def __post_init__(self) -> None:
        self.check()

    def check(self, **kinds: tuple[str, ...]) -> None:
        """Refuse bad parameters, the method's own and the shared ones, all at once.

        `kinds` are those of `check_parameters`.
        """
        shared = {
            "positive": ("step_size", "participation", "server_step_size"),
            "nonnegative": ("proximal", "server_momentum"),
            "counts": ("local_steps", "batch_size"),
            "optional": ("step_size", "batch_size"),
        }
        check_parameters(
            self, **{kind: shared[kind] + kinds.get(kind, ()) for kind in shared}
        )
        if self.participation > 1:
            raise UsageError(
                f"The 'participation' parameter of {type(self).__name__} must be at "
                f"most 1. Got {self.participation!r} instead."
            )
        check_choice(self, "schedule", ("constant", "decay"))
        check_choice(self, "server", ("mean", "momentum", "adam", "yogi"))
        check_choice(self, "iterate", self.iterates)

    @property
    def iterate(self) -> Iterate | None:
        """Which w is returned; None leaves it to the model."""
        return "last"

    @property
    @abstractmethod
    def last_round(self) -> int:
        """Rounds of training."""

    @property
    def planned_rounds(self) -> int:
        """Rounds of training, where each is one question."""
        return self.last_round

    @abstractmethod
    def objective(self, problem: Problem, state: S) -> Objective:
        """Return what the next round descends."""

    @abstractmethod
    def start(self, problem: Problem) -> S:
        """Return the first state, as far as it is known without constants."""

    def own(self, problem: Problem) -> Problem:
        """Return the problem whose curvature the step sizes are taken from.

        It is F with β = 1: a minimax constraint would set β to 0.
        """
        return replace(problem, risk_weight=1.0)

    def tuned(self, problem: Problem, state: S, majorant: Expansion) -> S:
        """Return the first state with what follows from curvature at every w."""
        own = self.own(problem)
        L = smoothness(majorant, own, np.zeros(own.n_cells))
        return replace(state, smoothness=L)

    def wants_majorant(self, problem: Problem) -> bool:
        """Whether step sizes are to be derived from the curvature."""
        linear = isinstance(problem.task.model, LinearModel)
        return linear and (self.step_size is None or self.schedule == "decay")

    def setup(self, problem: Problem) -> Curvature | None:
        """Ask for curvature that holds at every w, where step sizes need it."""
        first = self.start(problem)  # which refuses what it cannot train on
        if not self.wants_majorant(problem):
            return None
        check_hessians(self, problem, "give a step_size, with a constant schedule")
        return Curvature(self.own(problem).task, first.w, majorant=True)

    def init(self, problem: Problem, constants: CurvatureTotal | None = None) -> S:
        """Return the first state, with step sizes."""
        state = self.start(problem)
        if constants is None:
            return state
        return self.tuned(problem, state, self.own(problem).expand(state.w, constants))

    def question(self, problem: Problem, state: S) -> Train | Evaluate | None:
        """Ask for a round of local training on the objective."""
        if state.round == self.last_round:
            return None
        objective = self.objective(problem, state)
        return Train(
            objective.task,
            state.w,
            objective.risk_weight,
            objective.cell_weights,
            self.step_sizes(objective, state),
            self.batch_size,
            self.proximal,
            problem.seed,
            state.round,
            objective.ridge,
            objective.loss_power,
            self.asked(problem, state.round),
        )

    def step_sizes(self, objective: Objective, state: S) -> FloatArray:
        """η_w of each of the J local steps of a round, where L is known or not."""
        L = objective.smoothness or state.smoothness
        if L is None:
            return np.full(self.local_steps, self.step_size or UNTUNED)
        if self.schedule == "constant" or objective.modulus == 0:
            return np.full(self.local_steps, self.step_size or 1.0 / L)
        t = state.round * self.local_steps + np.arange(self.local_steps)
        return np.divide(2.0, 8.0 * L + objective.modulus * t)

    def asked(self, problem: Problem, round: int) -> tuple[int, ...] | None:
        """Indices of the silos asked in a round; None for all."""
        silos = len(problem.task.shares)
        # Rounded to the nearest; Python's own rounds halves to even.
        chosen = max(1, int(np.floor(self.participation * silos + 0.5)))
        if chosen >= silos:
            return None
        sequence = np.random.SeedSequence(problem.seed, spawn_key=(round,))
        drawn = np.random.default_rng(sequence).choice(silos, chosen, replace=False)
        return tuple(sorted(drawn.tolist()))

    def step(self, problem: Problem, state: S, total: Any) -> S:
        """Move w."""
        return self.descend(problem, state, total)

    def descend(self, problem: Problem, state: S, total: TrainTotal) -> S:
        """Move w by the mean update of those who were asked; the round is over."""
        asked = self.asked(problem, state.round)
        silos = len(problem.task.shares)
        scale = 1 / total.share if asked is None else silos / len(asked)
        moved = self.push(state, total.update * scale)
        n = problem.task.model.n_trained
        if n < len(state.w):  # statistics are averaged, whatever the server does
            mean = state.w[n:] + total.update[n:] / total.powers[0]
            moved = replace(moved, w=np.concatenate([moved.w[:n], mean]))
        return replace(moved, round=state.round + 1, w_sum=state.w_sum + moved.w)

    def push(self, state: S, update: FloatArray) -> S:
        """Apply the server optimiser to a mean update."""
        eta, beta = self.server_step_size, self.server_momentum
        if self.server == "mean":
            return replace(state, w=state.w + eta * update)
        if self.server == "momentum":
            m = beta * state.momentum + update
            return replace(state, w=state.w + eta * m, momentum=m)
        m = beta * state.momentum + (1 - beta) * update
        square = update**2
        if self.server == "adam":
            v = DECAY * state.second + (1 - DECAY) * square
        else:
            v = state.second - (1 - DECAY) * square * np.sign(state.second - square)
        w = state.w + eta * m / (np.sqrt(v) + FLOOR)
        return replace(state, w=w, momentum=m, second=v)

    def returned(self, problem: Problem) -> Iterate:
        """Which w is returned; unasked, the average where it has a guarantee."""
        return self.iterate or ("average" if problem.task.model.convex else "last")

    def averages(self, problem: Problem, state: S) -> bool:
        """Whether means over rounds are returned."""
        return self.returned(problem) == "average" and state.round > 0

    def finish(self, problem: Problem, state: S) -> Point:
        """Return the last or the mean w. No bound is priced, so λ = 0."""
        average = self.averages(problem, state)
        w = state.w_sum / state.round if average else state.w
        return Point(w, np.zeros(problem.n_cells))


@dataclass(frozen=True, kw_only=True)
class Descent(LocalTraining[S]):
    """Rounds of local training, all alike.

    Parameters
    ----------
    rounds
        T.
    local_steps, step_size, schedule, batch_size, …
        J, η_w and the rest, see `LocalTraining`.
    """

    rounds: int = 200

    def check(self, **kinds: tuple[str, ...]) -> None:
        """Refuse bad parameters, the number of rounds among them."""
        super().check(**{**kinds, "counts": ("rounds", *kinds.get("counts", ()))})

    @property
    def last_round(self) -> int:
        """T."""
        return self.rounds

    @classmethod
    def within(cls, budget: int, **parameters: Any) -> Self:
        """Build it with as many rounds of J steps as the budget allows."""
        steps = int(parameters.get("local_steps", cls.local_steps))
        return cls(**{**parameters, "rounds": max(1, budget // steps)})


@dataclass(frozen=True, eq=False, kw_only=True)
class Weighing(State):
    """Where descent in w and ascent in weights stand; sums are over rounds."""

    weights: FloatArray  # λ, on the simplex
    weight_sum: FloatArray
    dual_step_size: float | None  # η_λ


@dataclass(frozen=True, kw_only=True)
class DescentAscent(Descent[Weighing]):
    """min_w max_{λ ∈ simplex} Σ_z λ_z L_z(w) by gradients, one of each a round.

    Parameters
    ----------
    dual_step_size
        η_λ; None takes half the largest one at which descent and ascent are stable, or,
        for models without curvature, √(2/T)/‖L‖.
    ridge
        Weight of (ridge/2)‖w‖² in the objective; None for the model's μ, 0 for none, as
        in the papers.
    """

    local_steps: int = 1
    rounds: int = 1000
    dual_step_size: float | None = None
    ridge: float | None = None

    def __post_init__(self) -> None:
        self.check(
            positive=("dual_step_size",),
            nonnegative=("ridge",),
            optional=("dual_step_size", "ridge"),
        )

    @abstractmethod
    def losses(self, problem: Problem, round: int, total: TrainTotal) -> FloatArray:
        """Return L at the w that was sent."""

    @abstractmethod
    def steepest(self, majorant: Expansion) -> float:
        """Return L of the local objectives, whatever λ, without the ridge."""

    def decay(self, problem: Problem) -> float:
        """Weight of (·/2)‖w‖²."""
        return problem.mu if self.ridge is None else self.ridge

    def weighing(self, problem: Problem, weights: FloatArray) -> Weighing:
        """Return the first state, with these weights."""
        return Weighing.at_start(
            problem,
            weights=weights,
            weight_sum=np.zeros_like(weights),
            dual_step_size=self.dual_step_size,
        )

    def tuned(self, problem: Problem, state: Weighing, majorant: Expansion) -> Weighing:
        """Return the first state with η_w and η_λ."""
        L = self.steepest(majorant) + self.decay(problem)
        eta = state.dual_step_size or ascent_step(majorant)
        return replace(state, smoothness=L, dual_step_size=eta)

    def step_sizes(self, objective: Objective, state: Weighing) -> FloatArray:
        """η_w; the weights move on, so no schedule counts on the ridge."""
        return super().step_sizes(replace(objective, ridge=0.0), state)

    def step(self, problem: Problem, state: Weighing, total: TrainTotal) -> Weighing:
        """Descend in w, and ascend in λ by the losses at the w that was sent."""
        losses = self.losses(problem, state.round, total)
        eta = state.dual_step_size or ascent_regret_step(losses, self.rounds)
        return replace(
            self.descend(problem, state, total),
            weights=project_simplex(state.weights + eta * losses),
            weight_sum=state.weight_sum + state.weights,
            dual_step_size=eta,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured(State):
    """Where a method stands that asks twice a round."""

    measured: bool = False  # whether this round's rates are known


M = TypeVar("M", bound=Measured)


@dataclass(frozen=True, kw_only=True)
class MeasuredDescent(Descent[M]):
    """Local training whose weights follow rates of predictions: a round asks twice."""

    @property
    def planned_rounds(self) -> int:
        """Two questions a round."""
        return 2 * self.rounds

    @abstractmethod
    def cells(self, problem: Problem) -> Cells:
        """Return the sets of rows whose rates count."""

    @abstractmethod
    def weigh(self, problem: Problem, state: M, total: EvaluateTotal) -> M:
        """Return the state with the weights that the rates at w ask for."""

    def question(self, problem: Problem, state: M) -> Train | Evaluate | None:
        """Ask for rates at w, then for training."""
        if state.measured or state.round == self.rounds:
            return super().question(problem, state)
        return Evaluate(problem.with_cells(self.cells(problem)), state.w, "train")

    def step(self, problem: Problem, state: M, total: TrainTotal | EvaluateTotal) -> M:
        """Move the weights, or w."""
        if isinstance(total, EvaluateTotal):
            return replace(self.weigh(problem, state, total), measured=True)
        return replace(self.descend(problem, state, total), measured=False)


def smoothness(majorant: Expansion, problem: Problem, multipliers: FloatArray) -> float:
    """Return L for which steps of 1/L are safe, for G(·; λ) and for every silo's G_k.

    The majorant gives the largest eigenvalue of ∇²G over all silos together. A silo in
    which the weighted cells are over-represented curves more than the average by the
    ratio of its weight Σ_i c_i/p_k to the mean one, β + Σλ. That silos' inputs may
    differ in scale, too, is what the peaks bound: no G_k curves more than
    β·peak₀ + Σλ_z·peak_z, and steps below 2/L_k do not diverge.
    """
    beta, lam = problem.risk_weight, multipliers
    hessian = beta * majorant.risk_hessian + np.tensordot(
        lam, majorant.hessians, axes=1
    )
    largest = float(np.linalg.eigvalsh(hessian)[-1]) * concentration(problem, lam)
    if majorant.peaks is None:
        return largest
    local = beta * majorant.peaks[0] + float(lam @ majorant.peaks[1:])
    return max(largest, local / STABLE)


def curvatures(majorant: Expansion) -> FloatArray:
    """Return L_z of each cell's mean loss, over all silos and in any one, (2, Z)."""
    whole = np.linalg.eigvalsh(majorant.hessians)[:, -1]
    local = np.zeros_like(whole) if majorant.peaks is None else majorant.peaks[1:]
    return np.stack([whole, local])


def weighted_smoothness(
    curvatures: FloatArray | None, problem: Problem, weights: FloatArray
) -> float | None:
    """Return L for Σ_z λ_z × mean loss of z, with λ of any sign, and the ridge.

    As `smoothness`, with Σ|λ_z|L_z for the largest eigenvalue: weights may change in
    every round. The problem is one without risk (`Problem.over`). None where L_z is
    not known.
    """
    if curvatures is None:
        return None
    size = np.abs(weights)
    whole, local = curvatures @ size
    largest = max(whole * concentration(problem, size), local / STABLE)
    return float(largest) + problem.mu


def concentration(problem: Problem, multipliers: FloatArray) -> float:
    """Largest ratio of a silo's weight Σ_i c_i/p_k to the mean β + Σλ; at least 1."""
    beta = problem.risk_weight
    per_row = problem.cells.spread(
        problem.cell_weights(multipliers), len(problem.silo_counts)
    )
    masses = beta + (per_row * problem.silo_weights).sum(axis=1) / problem.task.shares
    return max(1.0, float(masses.max()) / (beta + float(multipliers.sum())))


def contracting_dual_step(majorant: Expansion, problem: Problem) -> float:
    """Return the largest η_θ at which dual ascent with exact best responses contracts.

    One step maps θ to θ + η r(w(λ(θ))); its slope is I − η S D with
    S = J H(λ)⁻¹ Jᵀ (how r answers to λ) and D = diag(λ) − λλᵀ/B (how λ answers to θ),
    so η = 2 / max eig(S D), taken at θ = 0. The dual term B·log(Z+1)/(η_θ E) of
    Theorem 1 asks for steps that are as large as possible.
    """
    z, bound = problem.n_cells, problem.multiplier_bound
    lam = np.full(z, bound / (z + 1))
    hessian = problem.risk_weight * majorant.risk_hessian
    hessian = hessian + np.tensordot(lam, majorant.hessians, axes=1)
    hessian += 1e-9 * np.trace(hessian) / len(hessian) * np.eye(len(hessian))
    answer = majorant.jacobian @ np.linalg.solve(hessian, majorant.jacobian.T)
    mirror = np.diag(lam) - np.outer(lam, lam) / bound
    largest = float(np.linalg.eigvals(answer @ mirror).real.max(initial=0.0))
    return 2.0 / largest if largest > 1e-12 else 1.0


def regret_dual_step(violation: FloatArray, dual_rounds: int) -> float:
    """Return η_θ = √(log(Z+1)/E)/ρ with ρ = max|r|, for models without curvature.

    It minimises the dual term B·log(Z+1)/(η_θ E) + η_θ ρ² B of the corrected Theorem 1.
    """
    rho = max(float(np.abs(violation).max(initial=0.0)), 1e-6)
    return math.sqrt(math.log(len(violation) + 1) / dual_rounds) / rho


def ascent_step(majorant: Expansion) -> float:
    """Return half the largest η at which descent in w and ascent in weights are stable.

    For min_w max_λ Σ λ_z L_z(w) over the simplex, a step each a round. Near the saddle,
    a mode of curvature h whose coupling to λ is j is stable if and only if η j² < h,
    whatever η_w ≤ 1/h; so η < 1 / max eig(J H⁻¹ Jᵀ), along the simplex.
    """
    slopes = majorant.jacobian - majorant.jacobian.mean(axis=0)
    largest = largest_answer(slopes.T @ slopes, majorant.hessians.mean(axis=0), 1e-6)
    return 0.5 / largest if largest > 1e-12 else 1.0


def ascent_regret_step(losses: FloatArray, rounds: int) -> float:
    """Return η = √(2/T)/‖L‖, for models without curvature: the simplex is √2 wide."""
    return math.sqrt(2 / rounds) / max(float(np.linalg.norm(losses)), 1e-6)


def largest_answer(spread: FloatArray, hessian: FloatArray, floor: float) -> float:
    """Return max eig(H⁻¹ A), with H a little above singular."""
    from scipy.linalg import eigh

    size = max(float(np.trace(hessian)) / len(hessian), 1e-12)
    lifted = hessian + floor * size * np.eye(len(hessian))
    return float(eigh(spread, lifted, eigvals_only=True)[-1])
