"""q-FFL: silos with a larger loss count more, the larger q.

Tian Li, Maziar Sanjabi, Ahmad Beirami, Virginia Smith. *Fair Resource Allocation in
Federated Learning*, 2020: Algorithm 2 (q-FedAvg); with J = 1, Algorithm 1 (q-FedSGD).

    min_w  Σ_k p_k/(q+1) · f_k(w)^{q+1}              f_k: mean loss of silo k

    1  w ← 0
    2  for t = 1 … T:
    3      silo k: w_k ← J steps of size η = 1/L on f_k, from w;  F_k ← f_k(w)
    4      Δw_k ← (w − w_k)/η                          J = 1: the gradient ∇f_k(w)
    5      D_k ← F_k^q Δw_k;   h_k ← q F_k^{q−1}‖Δw_k‖² + (1/η) F_k^q
    6      w ← w − Σ_k p_k D_k / Σ_k p_k h_k
    7  return w

The paper samples silos with probability p_k and adds D_k and h_k without weights; here
all silos reply (or a fraction, drawn evenly) and p_k weighs them, which has the same
expectations. The totals carry Σ p_k F_k^q (w_k − w), Σ p_k F_k^q and
Σ p_k q F_k^{q−1}‖w_k − w‖², so that line 6 is  w + update / (powers₀ + powers₁/η).
The ridge term is weight decay of the local steps: it is not part of F_k.
q = 0 is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from pffl.methods import _steps
from pffl.methods.base import Grid, check_choice
from pffl.methods.inner import Inner, LocalTraining
from pffl.problem import Point, Problem
from pffl.questions import Curvature, CurvatureTotal, Train, TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class State:
    """Where the method stands."""

    round: int
    inner: Inner
    w_sum: FloatArray


@dataclass(frozen=True, kw_only=True)
class QFFL(LocalTraining[State]):
    """q-FedAvg; with ``local_steps=1`` q-FedSGD.

    Parameters
    ----------
    q
        How much a silo's loss counts: 0 is FedAvg, large q approaches AFL.
    rounds
        T.
    iterate
        What to return: "last" or "average".
    local_steps, step_size, schedule, batch_size, …
        J, η and the rest of the inner solver, see `LocalTraining`. With a schedule, η
        in lines 4 and 5 is the round's first step size.
    """

    q: float = 1.0
    rounds: int = 300
    iterate: Literal["last", "average"] = "last"
    name: ClassVar[str] = "qffl"
    steps_without_some: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"q": (1.0, 0.1, 5.0)}

    def __post_init__(self) -> None:
        self.check(
            nonnegative=("q",),
            counts=("rounds",),
        )
        check_choice(self, "iterate", ("last", "average"))

    @property
    def planned_rounds(self) -> int:
        """T."""
        return self.rounds

    def init(self, problem: Problem) -> State:
        """Line 1."""
        inner = self.start(problem)
        return State(0, inner, np.zeros_like(inner.w))

    def question(self, problem: Problem, state: State) -> Train | Curvature | None:
        """Line 3."""
        if state.round == self.rounds:
            return None
        if state.inner.smoothness is None and self.wants_majorant(problem):
            return self.ask_majorant(problem)
        return self.ask(
            replace(problem, risk_weight=1.0),
            state.inner,
            state.round,
            cell_weights=np.zeros(problem.n_cells),
            loss_power=self.q,
        )

    def step(
        self, problem: Problem, state: State, total: TrainTotal | CurvatureTotal
    ) -> State:
        """Lines 4 to 6."""
        plain = replace(problem, risk_weight=1.0)
        if isinstance(total, CurvatureTotal):
            majorant = plain.expand(state.inner.w, total)
            L = _steps.smoothness(majorant, plain, np.zeros(problem.n_cells))
            return replace(state, inner=replace(state.inner, smoothness=L))
        t = state.round
        sizes = _steps.step_sizes(self, plain, state.inner.smoothness, t)
        eta = float(sizes[0])  # η
        h = total.powers[0] + total.powers[1] / eta  # η Σ p_k h_k
        inner = self.push(state.inner, total.update / h)
        return State(t + 1, inner, state.w_sum + inner.w)

    def finish(self, problem: Problem, state: State) -> Point:
        """Line 7."""
        average = self.iterate == "average" and state.round > 0
        w = state.w_sum / state.round if average else state.inner.w
        return Point(w, np.zeros(problem.n_cells))
