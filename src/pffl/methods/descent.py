"""What gradient methods share: a round of local training, and what the server does.

A method on top of this is its objective, its step sizes and its update:

    objective   what the next round descends
    own, tuned  whose smoothness is asked for before round 1, and what follows from it
    step        `descend`, and whatever moves besides w

FedAvg (McMahan et al. 2017): J local steps, weighted mean of the updates.
FedProx (Li et al. 2020): the same with a proximal term (`proximal`).
FedAvgM, FedAdam, FedYogi (Hsu et al. 2019; Reddi et al. 2021): the mean update is a
pseudo-gradient for a server optimiser (`server`).
Partial participation: each round asks a random fraction of the silos, and the update
is scaled by K/n, so its expectation is that of all silos.
Drift correction (SCAFFOLD, Karimireddy et al. 2020; FedLin, Mitra et al. 2021): local
steps on silos that differ lead each to its own optimum, and their mean is not that of
all. Each local gradient loses the silo's own at the last round's w and gains that of
all silos there, so that at the optimum nobody moves. Silos keep nothing: that w, its
weights and its gradient come with the next query.
Steps by mass (`by_mass`; Agnostic FedAvg, Ro et al. 2021): under bounds a silo of few
groups has a heavy objective, and steps that suit FedAvg are too long for it. It takes
them shorter by what its rows weigh, and its update counts that much more.
Step sizes come from constants of the problem, so that defaults need no tuning.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from pffl.constraints.base import Cells
from pffl.errors import UsageError
from pffl.methods.base import Method, check_choice, check_parameters
from pffl.methods.step_sizes import curvatures, smoothness, typical
from pffl.models.linear import LinearModel
from pffl.problem import Point, Problem
from pffl.queries import (
    Evaluate,
    EvaluateTotal,
    Expand,
    ExpandTotal,
    Query,
    Task,
    Train,
    TrainTotal,
)
from pffl.typing import FloatArray, IntArray

DECAY = 0.99  # β₂ of Adam and Yogi
FLOOR = 1e-3  # τ of Adam and Yogi
UNTUNED = 0.1  # η_w where neither the user nor the model's curvature says anything

Iterate = Literal["average", "recent", "last", "best"]
Iterates = tuple[Iterate | None, ...]
#: Round t counts t^power: all alike, or hardly any but the last eighth.
MEANS: dict[str, int] = {"average": 0, "recent": 7}


@dataclass(frozen=True, eq=False, kw_only=True)
class State:
    """Where a method stands after `round` rounds of training.

    Attributes
    ----------
    w, w_sum
        The model, and the sum of all so far, each as often as it counts.
    momentum, second
        First and second moments of the server optimiser.
    smoothness
        L of the local objectives for the weights in use, where it is known.
    curvatures
        L of F and of each set of rows that the method weighs, see `step_sizes`.
    anchor
        The last round's w, weights of cells, and gradient, by which drift is corrected.
    """

    round: int
    w: FloatArray
    w_sum: FloatArray
    momentum: FloatArray
    second: FloatArray
    smoothness: float | None = None
    curvatures: FloatArray | None = None
    anchor: tuple[FloatArray, FloatArray, FloatArray] | None = None

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
        η_w; None takes 1/L for the current weights, from one `smoothness` round.
    batch_size
        Rows per local step; None for all.
    proximal
        FedProx's weight; 0 is FedAvg.
    drift_correction
        Whether local gradients are corrected by the last round's, so that more than one
        local step does not lead silos that differ astray. A round sends two vectors of
        w's length more and receives one, and costs a silo a gradient more (on batches:
        twice the gradients, and one over all rows).
    by_mass
        Whether a silo's steps are divided by what its rows weigh in its objective, and
        its update counts as much more, so that no λ makes steps longer. None: for
        models that are not convex, whose step sizes no curvature limits; unless drift
        is corrected. It needs a risk (β > 0) where drift is corrected.
    participation
        Fraction of silos asked in each round.
    server, server_step_size, server_momentum
        What the server does with the mean update: "mean" adds it; "momentum", "adam"
        and "yogi" smooth it.
    """

    local_steps: int = 5
    step_size: float | None = None
    batch_size: int | None = None
    proximal: float = 0.0
    drift_correction: bool = False
    by_mass: bool | None = None
    participation: float = 1.0
    server: Literal["mean", "momentum", "adam", "yogi"] = "mean"
    server_step_size: float = 1.0
    server_momentum: float = 0.9
    iterates: ClassVar[Iterates] = ("last",)  # that it can return
    weighs_updates: ClassVar[bool] = False  # silos by anything else than their p_k
    one_objective: ClassVar[bool] = False  # every round descends the same one

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
        check_choice(self, "server", ("mean", "momentum", "adam", "yogi"))
        check_choice(self, "iterate", self.iterates)
        check_choice(self, "drift_correction", (False, True))
        check_choice(self, "by_mass", (None, False, True))
        for parameter in ("drift_correction", "by_mass"):
            if getattr(self, parameter) and self.weighs_updates:
                raise UsageError(
                    f"[wrong-parameter] {type(self).__name__} moves the weights of "
                    f"silos, for which the '{parameter}' parameter has no meaning: "
                    "leave it out"
                )

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
        """Rounds of training, where each is one query."""
        return self.last_round

    @abstractmethod
    def objective(self, problem: Problem, state: S) -> Objective:
        """Return what the next round descends."""

    @abstractmethod
    def start(self, problem: Problem) -> S:
        """Return the first state, as far as it is known without constants."""

    def own(self, problem: Problem) -> Problem:
        """Return the problem whose smoothness the step sizes are taken from.

        It is F with β = 1: a minimax constraint would set β to 0.
        """
        return replace(problem, risk_weight=1.0)

    def tuned(self, problem: Problem, state: S) -> S:
        """Return the first state with what follows from its `curvatures`."""
        own = self.own(problem)
        if state.curvatures is None:
            return state
        L = smoothness(state.curvatures, own, np.zeros(own.n_cells))
        return replace(state, smoothness=L)

    def setup(self, problem: Problem) -> Expand | None:
        """Ask how much losses curve at most, where η_w needs it."""
        first = self.start(problem)  # which refuses what it cannot train on
        linear = isinstance(problem.task.model, LinearModel)
        if not linear or self.step_size is not None:
            return None
        own = self.own(problem)
        return Expand(own.task, first.w, 0, typical=typical(own))

    def init(self, problem: Problem, constants: ExpandTotal | None = None) -> S:
        """Return the first state, with step sizes."""
        state = self.start(problem)
        if constants is None:
            return state
        found = curvatures(self.own(problem), constants)
        return self.tuned(problem, replace(state, curvatures=found))

    def query(self, problem: Problem, state: S) -> Query[Any] | None:
        """Ask for a round of local training on the objective."""
        return self.training(problem, state)

    def training(self, problem: Problem, state: S) -> Train | None:
        """Return the next round of training; None after the last."""
        if state.round == self.last_round:
            return None
        objective = self.objective(problem, state)
        divides = self.divides(problem)
        if divides and self.drift_correction and not objective.risk_weight > 0:
            raise UsageError(
                f"[parameters-conflict] {type(self).__name__}: an objective without a "
                "risk (β = 0) is either corrected for drift or stepped by mass: leave "
                "out 'by_mass'"
            )
        none = (np.zeros(0),) * 3
        anchor, anchor_weights, anchor_gradient = state.anchor or none
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
            self.drift_correction,
            anchor,
            anchor_weights,
            anchor_gradient,
            divides,
            self.asked(problem, state.round),
        )

    def divides(self, problem: Problem) -> bool:
        """Whether silos' steps are divided by their mass."""
        if self.by_mass is not None:
            return self.by_mass
        free = not (self.drift_correction or self.weighs_updates)
        return free and not problem.task.model.convex

    def step_sizes(self, objective: Objective, state: S) -> FloatArray:
        """η_w of each of the J local steps of a round, where L is known or not."""
        L = objective.smoothness or state.smoothness
        untuned = UNTUNED if L is None else 1.0 / L
        return np.full(self.local_steps, self.step_size or untuned)

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
        update = total.update * scale
        if self.divides(problem):
            mass = self.mass(problem, state) if asked else float(total.powers[0])
            times = silos / len(asked) if asked else 1.0
            update = total.update * (times / mass if mass > 0 else 0.0)
        moved = self.push(state, update)
        if self.drift_correction:
            weights = self.objective(problem, state).cell_weights
            moved = replace(moved, anchor=(state.w, weights, total.gradient * scale))
        n = problem.task.model.n_trained
        if n < len(state.w):  # statistics are averaged, whatever the server does
            mean = state.w[n:] + total.update[n:] / total.powers[0]
            moved = replace(moved, w=np.concatenate([moved.w[:n], mean]))
        return self.counted(problem, moved)

    def mass(self, problem: Problem, state: S) -> float:
        """Return Σ p_k M_k over all silos: what all rows weigh in the objective."""
        objective = self.objective(problem, state)
        cells = objective.task.cells
        rows = problem.once(("of", id(cells)), lambda: (problem.count(cells), cells))[0]
        return objective.risk_weight + float(np.abs(objective.cell_weights) @ rows)

    def counted(self, problem: Problem, state: S) -> S:
        """Return the state after its round, with w in the mean."""
        t = state.round + 1
        return replace(
            state, round=t, w_sum=state.w_sum + self.count(problem, t) * state.w
        )

    def count(self, problem: Problem, round: int | IntArray) -> Any:
        """How much a round, or each of some, counts in the mean that is returned."""
        return np.float64(round) ** MEANS.get(self.returned(problem), 0)

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

    def mean(
        self, problem: Problem, state: S, sums: FloatArray, last: FloatArray
    ) -> FloatArray:
        """Return the mean over rounds from what they add up to, or the last."""
        if self.returned(problem) not in MEANS or not state.round:
            return last
        counts = self.count(problem, np.arange(1, state.round + 1))
        return sums / float(counts.sum())

    def finish(self, problem: Problem, state: S) -> Point:
        """Return the last or the mean w. No bound is priced, so λ = 0."""
        w = self.mean(problem, state, state.w_sum, state.w)
        return Point(w, np.zeros(problem.n_cells))


@dataclass(frozen=True, kw_only=True)
class Descent(LocalTraining[S]):
    """Rounds of local training, all alike.

    Parameters
    ----------
    rounds
        T.
    local_steps, step_size, batch_size, …
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
class Measured(State):
    """Where a method stands that asks twice a round."""

    measured: bool = False  # whether this round's rates are known


M = TypeVar("M", bound=Measured)


@dataclass(frozen=True, kw_only=True)
class MeasuredDescent(Descent[M]):
    """Local training whose weights follow rates of predictions: a round asks twice."""

    @property
    def planned_rounds(self) -> int:
        """Two queries a round."""
        return 2 * self.rounds

    @abstractmethod
    def cells(self, problem: Problem) -> Cells:
        """Return the sets of rows whose rates count."""

    @abstractmethod
    def weigh(self, problem: Problem, state: M, total: EvaluateTotal) -> M:
        """Return the state with the weights that the rates at w ask for."""

    def query(self, problem: Problem, state: M) -> Train | Evaluate | None:
        """Ask for rates at w, then for training."""
        if state.measured or state.round == self.rounds:
            return self.training(problem, state)
        return Evaluate(problem.with_cells(self.cells(problem)), state.w, "train")

    def step(self, problem: Problem, state: M, total: TrainTotal | EvaluateTotal) -> M:
        """Move the weights, or w."""
        if isinstance(total, EvaluateTotal):
            return replace(self.weigh(problem, state, total), measured=True)
        return replace(self.descend(problem, state, total), measured=False)
