"""The inner solver: one round of local training, the same slot for every method.

FedAvg (McMahan et al. 2017): J local steps, weighted mean of the updates.
FedProx (Li et al. 2020): the same with a proximal term (`proximal`).
FedAvgM, FedAdam, FedYogi (Hsu et al. 2019; Reddi et al. 2021): the mean update is a
pseudo-gradient for a server optimiser (`server`).
Partial participation: each round asks a random fraction of the silos, and the update
is scaled by K/n, so its expectation is that of all silos.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeVar

import numpy as np

from pffl.constraints.base import Cells
from pffl.errors import UsageError
from pffl.methods import _steps
from pffl.methods.base import Method, check_choice, check_parameters
from pffl.models.base import trained
from pffl.problem import Problem
from pffl.questions import Curvature, Task, Train, TrainTotal
from pffl.typing import FloatArray

DECAY = 0.99  # β₂ of Adam and Yogi
FLOOR = 1e-3  # τ of Adam and Yogi

S = TypeVar("S")


@dataclass(frozen=True, eq=False)
class Inner:
    """Where the inner solver stands.

    Attributes
    ----------
    w
        The model.
    momentum, second
        First and second moments of the server optimiser.
    smoothness
        L of the local objectives for the weights in use, where it is known.
    """

    w: FloatArray
    momentum: FloatArray
    second: FloatArray
    smoothness: float | None = None


@dataclass(frozen=True, kw_only=True)
class LocalTraining(Method[S]):
    """Parameters that every method with local training shares.

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

    def check(
        self,
        *,
        positive: tuple[str, ...] = (),
        nonnegative: tuple[str, ...] = (),
        counts: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
    ) -> None:
        """Refuse bad parameters, the method's own and the shared ones, all at once."""
        check_parameters(
            self,
            positive=("step_size", "participation", "server_step_size", *positive),
            nonnegative=("proximal", "server_momentum", *nonnegative),
            counts=("local_steps", "batch_size", *counts),
            optional=("step_size", "batch_size", *optional),
        )
        if self.participation > 1:
            raise UsageError(
                f"The 'participation' parameter of {type(self).__name__} must be at "
                f"most 1. Got {self.participation!r} instead."
            )
        check_choice(self, "schedule", ("constant", "decay"))
        check_choice(self, "server", ("mean", "momentum", "adam", "yogi"))

    @classmethod
    def within(cls, budget: int, **parameters: Any) -> Self:
        """Build it with as many rounds of J steps as the budget allows."""
        steps = int(parameters.get("local_steps", cls.local_steps))
        return cls(**{**parameters, "rounds": max(1, budget // steps)})

    def start(self, problem: Problem) -> Inner:
        """Return the first state."""
        w = problem.task.model.start(problem.seed)
        return Inner(w, np.zeros_like(w), np.zeros_like(w))

    def wants_majorant(self, problem: Problem) -> bool:
        """Whether step sizes need the majorant of a `curvature` round."""
        return _steps.wanted(self, problem)

    def ask_majorant(self, problem: Problem) -> Curvature:
        """Ask for curvature that holds at every w."""
        return Curvature(
            problem.task, problem.task.model.start(problem.seed), majorant=True
        )

    def ask(
        self,
        problem: Problem,
        inner: Inner,
        round: int,
        *,
        cell_weights: FloatArray,
        risk_weight: float | None = None,
        ridge: float | None = None,
        loss_power: float = 0.0,
        task: Task | None = None,
    ) -> Train:
        """Ask for a round of local training with these weights."""
        return Train(
            task or problem.task,
            inner.w,
            problem.risk_weight if risk_weight is None else risk_weight,
            cell_weights,
            _steps.step_sizes(self, problem, inner.smoothness, round),
            self.batch_size,
            self.proximal,
            problem.seed,
            round,
            ridge,
            loss_power,
            self.asked(problem, round),
        )

    def ask_over(
        self,
        problem: Problem,
        inner: Inner,
        round: int,
        cells: Cells,
        row_weights: FloatArray,
        *,
        shares: FloatArray | None = None,
    ) -> Train:
        """Ask for training on Σ_i c_i ℓ_i + (μ/2)‖w‖², with c_i by cells of one's own.

        `shares` replaces the p_k.
        """
        task = problem.with_cells(cells)
        return self.ask(
            replace(problem, risk_weight=1.0),  # the ridge is all that is left of it
            inner,
            round,
            cell_weights=np.concatenate([np.zeros(problem.n_cells), row_weights]),
            risk_weight=0.0,
            ridge=problem.l2,
            task=task if shares is None else replace(task, shares=shares),
        )

    def asked(self, problem: Problem, round: int) -> tuple[int, ...] | None:
        """Indices of the silos asked in a round; None for all."""
        silos = len(problem.task.shares)
        chosen = max(1, round_half_up(self.participation * silos))
        if chosen >= silos:
            return None
        sequence = np.random.SeedSequence(problem.seed, spawn_key=(round,))
        drawn = np.random.default_rng(sequence).choice(silos, chosen, replace=False)
        return tuple(sorted(drawn.tolist()))

    def move(
        self, problem: Problem, inner: Inner, round: int, total: TrainTotal
    ) -> Inner:
        """Move w by the mean update of those who were asked."""
        asked = self.asked(problem, round)
        silos = len(problem.task.shares)
        scale = 1 / total.share if asked is None else silos / len(asked)
        moved = self.push(inner, total.update * scale)
        n = len(trained(problem.task.model, inner.w))
        if n < len(inner.w):  # statistics are averaged, whatever the server does
            mean = inner.w[n:] + total.update[n:] / total.powers[0]
            moved = replace(moved, w=np.concatenate([moved.w[:n], mean]))
        return moved

    def push(self, inner: Inner, update: FloatArray) -> Inner:
        """Apply the server optimiser to a mean update."""
        eta, beta = self.server_step_size, self.server_momentum
        if self.server == "mean":
            return replace(inner, w=inner.w + eta * update)
        if self.server == "momentum":
            m = beta * inner.momentum + update
            return replace(inner, w=inner.w + eta * m, momentum=m)
        m = beta * inner.momentum + (1 - beta) * update
        square = update**2
        if self.server == "adam":
            v = DECAY * inner.second + (1 - DECAY) * square
        else:
            v = inner.second - (1 - DECAY) * square * np.sign(inner.second - square)
        w = inner.w + eta * m / (np.sqrt(v) + FLOOR)
        return replace(inner, w=w, momentum=m, second=v)


def round_half_up(number: float) -> int:
    """Round to the nearest whole number; Python's own rounds halves to even."""
    return int(np.floor(number + 0.5))


def returns_average(iterate: str | None, problem: Problem) -> bool:
    """Whether the average is returned; unasked, only where it has a guarantee."""
    if iterate is None:
        return problem.task.model.convex
    return iterate == "average"
