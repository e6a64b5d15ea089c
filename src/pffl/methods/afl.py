"""AFL: agnostic federated learning, the worst silo's loss as small as possible.

Mehryar Mohri, Gary Sivek, Ananda Theertha Suresh. *Agnostic Federated Learning*, 2019,
Figure 2 (Stochastic-AFL, with full gradients).

    min_w max_{λ ∈ simplex}  Σ_k λ_k f_k(w)          f_k: mean loss of silo k

    1  w ← 0, λ_k ← 1/K
    2  for t = 1 … T:
    3      every silo: w_k ← J steps of size η_w on f_k, from w
    4      w ← w + Σ_k λ_k (w_k − w)                 J = 1: w − η_w Σ λ_k ∇f_k(w)
    5      λ ← projection of λ + η_λ (f_1 … f_K) on the simplex, f_k at the w sent
    6  return the mean of all w

J = 1 is the paper's; J > 1 are local steps as in flgo's port. A silo with λ_k = 0 does
not move w, and still tells its loss. In the history, `risk` is Σ λ_k f_k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from pffl.constraints.per_silo import PerSilo
from pffl.methods import _steps
from pffl.methods.base import check_choice
from pffl.methods.inner import Inner, LocalTraining, returns_average
from pffl.numerics import project_simplex
from pffl.problem import Point, Problem
from pffl.questions import Curvature, CurvatureTotal, Train, TrainTotal
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class State:
    """Where the method stands."""

    round: int
    inner: Inner
    lam: FloatArray  # λ, one weight per silo, on the simplex
    w_sum: FloatArray  # Σ w over rounds
    dual_step_size: float | None  # η_λ


@dataclass(frozen=True, kw_only=True)
class AFL(LocalTraining[State]):
    """Gradient descent in w, projected gradient ascent in the silos' weights.

    Parameters
    ----------
    rounds
        T.
    dual_step_size
        η_λ; None takes half the largest one at which descent and ascent are stable, or,
        for models without curvature, √(2/T)/‖f‖.
    ridge
        Weight of (ridge/2)‖w‖² in the objective; None for the model's μ, 0 for none, as
        in the paper.
    iterate
        What to return: "average" or "last"; None takes the average for convex models
        (guaranteed) and the last for others.
    local_steps, step_size, schedule, batch_size, …
        J, η_w and the rest of the inner solver, see `LocalTraining`.
    """

    local_steps: int = 1
    rounds: int = 1000
    dual_step_size: float | None = None
    ridge: float | None = None
    iterate: Literal["average", "last"] | None = None
    name: ClassVar[str] = "afl"

    def __post_init__(self) -> None:
        self.check(
            positive=("dual_step_size",),
            nonnegative=("ridge",),
            counts=("rounds",),
            optional=("dual_step_size", "ridge"),
        )
        check_choice(self, "iterate", (None, "last", "average"))

    @property
    def planned_rounds(self) -> int:
        """T."""
        return self.rounds

    def decay(self, problem: Problem) -> float:
        """Weight of (·/2)‖w‖²."""
        return problem.l2 if self.ridge is None else self.ridge

    def init(self, problem: Problem) -> State:
        """Line 1."""
        inner, silos = self.start(problem), len(problem.silo_names)
        lam = np.full(silos, 1.0 / silos)
        return State(0, inner, lam, np.zeros_like(inner.w), self.dual_step_size)

    def question(self, problem: Problem, state: State) -> Train | Curvature | None:
        """Line 3."""
        if state.round == self.rounds:
            return None
        own = self.silos(problem)
        if state.inner.smoothness is None and self.wants_majorant(problem):
            return self.ask_majorant(own)
        task = replace(problem.with_cells(own.cells), shares=state.lam)
        return self.ask(
            own,
            state.inner,
            state.round,
            cell_weights=np.zeros(len(task.cells)),
            risk_weight=1.0,
            ridge=self.decay(problem),
            task=task,
        )

    def silos(self, problem: Problem) -> Problem:
        """Return the problem of weighing silos: one cell for each."""
        return problem.over(PerSilo(0.0).cells(problem.schema, problem.silo_names))

    def step(
        self, problem: Problem, state: State, total: TrainTotal | CurvatureTotal
    ) -> State:
        """Lines 4 and 5."""
        own = self.silos(problem)
        if isinstance(total, CurvatureTotal):
            majorant = own.expand(state.inner.w, total)
            L = float(_steps.curvatures(majorant)[0].max()) + self.decay(problem)
            return replace(
                state,
                inner=replace(state.inner, smoothness=L),
                dual_step_size=state.dual_step_size or _steps.ascent_step(majorant),
            )
        asked = self.asked(problem, state.round)
        f = total.cell_losses[problem.n_cells :] / own.counts  # 0 if not asked
        if asked is not None:
            f = f * (len(f) / len(asked))  # so that its expectation is that of all
        eta = state.dual_step_size or _steps.ascent_regret_step(f, self.rounds)
        inner = self.move(own, state.inner, state.round, total)
        lam = project_simplex(state.lam + eta * f)
        return State(state.round + 1, inner, lam, state.w_sum + inner.w, eta)

    def finish(self, problem: Problem, state: State) -> Point:
        """Line 6. λ weighs silos, not the constraint's cells: those have none."""
        average = returns_average(self.iterate, problem) and state.round > 0
        w = state.w_sum / state.round if average else state.inner.w
        return Point(w, np.zeros(problem.n_cells))
