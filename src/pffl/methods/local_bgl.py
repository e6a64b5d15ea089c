"""Local BGL: Algorithm 1 with every silo's bounds on its own rows only.

The baseline "local" of Figure 1 in Hu, Wu, Smith, *Fair Federated Learning via Bounded
Group Loss*. Silo k has its own cells (k, z): its rows of the constraint's cells, where
it has any; its own θ_k and λ_k; and one model w is shared.

    1  w ← 0, θ_k ← 0
    2  for e = 1 … E:
    3      λ_{k,z} ← B e^{θ_{k,z}} / (1 + Σ_z e^{θ_{k,z}}), in each silo
    4      for t = 1 … T:
    5          silo k: J steps of size η_w on β f_k + λ_kᵀ r_k, r_{k,z} = L_{k,z} − ζ_z
    6          w ← w + Σ p_k Δ_k / Σ p_k
    7          w̄, λ̄ ← averages over all E·T rounds
    8      θ_{k,z} ← θ_{k,z} + η_θ r_{k,z}(w)
    9  return w̄

Rows of the cell (k, z) weigh β p_k/m_k + p_k λ_{k,z}/m_{k,z} in the mean of line 6, so
the saddle value is  min_w βF(w) + B Σ_k p_k max(0, max_z r_{k,z}(w)).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from pffl import dual
from pffl.constraints.base import Cells
from pffl.methods import _steps
from pffl.methods.base import PRICES, Grid, check_choice
from pffl.methods.inner import Inner, LocalTraining, returns_average
from pffl.models.linear import LinearModel
from pffl.problem import Expansion, Point, Problem
from pffl.questions import Curvature, CurvatureTotal, Train, TrainTotal
from pffl.typing import FloatArray, IntArray

LARGEST = 30_000_000  # numbers in the majorant: beyond, step sizes are not automatic


@dataclass(frozen=True, eq=False)
class State:
    """Where the method stands; sums are over rounds, vectors over the cells (k, z)."""

    round: int
    inner: Inner
    cells: Cells  # (k, z)
    theta: FloatArray  # θ
    w_sum: FloatArray
    multiplier_sum: FloatArray
    dual_step_size: float | None  # η_θ
    curvatures: FloatArray | None = None  # L of F, then of each cell


@dataclass(frozen=True, kw_only=True)
class LocalBGL(LocalTraining[State]):
    """PFFL with local constraints.

    Parameters
    ----------
    multiplier_bound, risk_weight
        B, of each silo, and β.
    dual_rounds, rounds_per_dual, dual_step_size
        E, T and η_θ, as for `PFFL`.
    iterate
        What to return: "average" or "last"; None takes the average for convex models
        (guaranteed) and the last for others.
    local_steps, step_size, schedule, batch_size, …
        J, η_w and the rest of the inner solver, see `LocalTraining`.
    """

    multiplier_bound: float = 10.0
    risk_weight: float = 1.0
    dual_rounds: int = 100
    rounds_per_dual: int = 10
    dual_step_size: float | None = None
    iterate: Literal["average", "last"] | None = None
    name: ClassVar[str] = "local-bgl"
    steps_without_some: ClassVar[bool] = True
    approaches_saddle: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"multiplier_bound": PRICES}

    def __post_init__(self) -> None:
        self.check(
            positive=("multiplier_bound", "dual_step_size"),
            nonnegative=("risk_weight",),
            counts=("dual_rounds", "rounds_per_dual"),
            optional=("dual_step_size",),
        )
        check_choice(self, "iterate", (None, "average", "last"))

    @classmethod
    def within(cls, budget: int, **parameters: Any) -> Self:
        """Build it with as many dual rounds as the budget allows."""
        steps = int(parameters.get("local_steps", cls.local_steps))
        inner = int(parameters.get("rounds_per_dual", cls.rounds_per_dual))
        return cls(**{**parameters, "dual_rounds": max(1, budget // (steps * inner))})

    @property
    def planned_rounds(self) -> int:
        """E·T."""
        return self.dual_rounds * self.rounds_per_dual

    def init(self, problem: Problem) -> State:
        """Line 1."""
        inner, cells = self.start(problem), own_cells(problem)
        w, theta = np.zeros_like(inner.w), np.zeros(len(cells))
        return State(0, inner, cells, theta, w, theta, self.dual_step_size)

    def question(self, problem: Problem, state: State) -> Train | Curvature | None:
        """Lines 3 to 5."""
        if state.round == self.planned_rounds:
            return None
        if state.curvatures is None and self.wants_majorant(problem):
            return self.ask_majorant(problem.over(state.cells))
        weights = shared(problem, state) / problem.count(state.cells)
        return self.ask(
            problem,
            state.inner,
            state.round,
            cell_weights=np.concatenate([np.zeros(problem.n_cells), weights]),
            task=problem.with_cells(state.cells),
        )

    def step(
        self, problem: Problem, state: State, total: TrainTotal | CurvatureTotal
    ) -> State:
        """Lines 6 to 8."""
        if isinstance(total, CurvatureTotal):
            majorant = problem.over(state.cells).expand(state.inner.w, total)
            return self._with_constants(problem, state, majorant)
        asked, lam = self.asked(problem, state.round), multipliers(problem, state)
        inner = self.move(problem, state.inner, state.round, total)
        state = replace(
            state,
            round=state.round + 1,
            inner=inner,
            w_sum=state.w_sum + inner.w,
            multiplier_sum=state.multiplier_sum + lam,
        )
        if state.round % self.rounds_per_dual:
            return state
        own = problem.over(state.cells)
        r = own.violation_among(total.cell_losses[problem.n_cells :], asked)
        known = np.nan_to_num(r)  # a cell that nobody reported does not move its θ
        eta = state.dual_step_size or _steps.regret_dual_step(known, self.dual_rounds)
        theta = dual.ascend(state.theta, known, eta)
        return self._smooth(problem, replace(state, theta=theta, dual_step_size=eta))

    def finish(self, problem: Problem, state: State) -> Point:
        """Line 9, with Σ_k p_k λ_{k,z} as the price of the constraint's cell z."""
        average = returns_average(self.iterate, problem) and state.round > 0
        w = state.w_sum / state.round if average else state.inner.w
        lam = multipliers(problem, state)
        lam = state.multiplier_sum / state.round if average else lam
        prices = np.zeros(problem.n_cells)
        parent = own_copies(problem) % max(1, problem.n_cells)
        np.add.at(prices, parent, problem.task.shares[state.cells.silo] * lam)
        return Point(w, prices)

    def wants_majorant(self, problem: Problem) -> bool:
        """Whether η_w or η_θ is to be derived from the curvature of every cell."""
        numbers = len(own_copies(problem)) * problem.n_parameters**2
        unknown = self.dual_step_size is None or super().wants_majorant(problem)
        linear = isinstance(problem.task.model, LinearModel)
        return linear and unknown and numbers <= LARGEST

    def _with_constants(
        self, problem: Problem, state: State, majorant: Expansion
    ) -> State:
        """Derive step sizes from the majorant."""
        largest = np.linalg.eigvalsh(majorant.risk_hessian)[-1]
        if majorant.peaks is not None:
            largest = max(largest, majorant.peaks[0] / _steps.STABLE)
        L = np.append(largest, _steps.curvatures(majorant)[0])
        eta = state.dual_step_size or _steps.contracting_local_step(
            majorant, problem, multipliers(problem, state), state.cells.silo
        )
        return self._smooth(problem, replace(state, curvatures=L, dual_step_size=eta))

    def _smooth(self, problem: Problem, state: State) -> State:
        """Know L of the silos' objectives for the new λ."""
        if state.curvatures is None or not super().wants_majorant(problem):
            return state
        curved = multipliers(problem, state) * state.curvatures[1:]
        sums = np.bincount(state.cells.silo, curved, len(problem.silo_names))
        L = problem.risk_weight * state.curvatures[0] + float(sums.max())
        return replace(state, inner=replace(state.inner, smoothness=L))


def own_copies(problem: Problem) -> IntArray:
    """Which of the cells' copies, silo after silo, have rows."""
    cells, silos = problem.cells, problem.silo_names
    there = cells.everywhere | (np.arange(len(silos))[:, None] == cells.silo)
    counts = problem.count(cells.in_each_silo(silos))
    return np.flatnonzero(there.reshape(-1) & (counts > 0))


def own_cells(problem: Problem) -> Cells:
    """Return the cells (k, z)."""
    return problem.cells.in_each_silo(problem.silo_names).take(own_copies(problem))


def multipliers(problem: Problem, state: State) -> FloatArray:
    """Line 3: λ_{k,z}, as `dual.multipliers` in every silo, with shifted exponents."""
    theta, silo, silos = state.theta, state.cells.silo, len(problem.silo_names)
    shift = np.zeros(silos)
    np.maximum.at(shift, silo, theta)
    exponentials = np.exp(theta - shift[silo])
    below = np.exp(-shift) + np.bincount(silo, exponentials, silos)
    return problem.multiplier_bound * exponentials / below[silo]


def shared(problem: Problem, state: State) -> FloatArray:
    """p_k λ_{k,z}: what the mean loss of (k, z) weighs in the mean over silos."""
    return problem.task.shares[state.cells.silo] * multipliers(problem, state)
