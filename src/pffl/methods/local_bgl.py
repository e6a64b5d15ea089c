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

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from pffl.constraints.base import Cells
from pffl.methods.base import PRICES, Grid
from pffl.methods.descent import Iterates, Objective
from pffl.methods.pffl import Prices, PrimalDual
from pffl.methods.step_sizes import STABLE
from pffl.problem import Point, Problem
from pffl.queries import TrainTotal
from pffl.typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False, kw_only=True)
class State(Prices):
    """Where the method stands; vectors are over the cells (k, z)."""

    cells: Cells  # (k, z)


@dataclass(frozen=True, kw_only=True)
class LocalBGL(PrimalDual[State]):
    """PFFL with local constraints.

    As there, every cell weighs B/(Z+1) in the first round: an inactive bound changes
    the iterates, and less the longer it stays inactive.

    Parameters
    ----------
    multiplier_bound, risk_weight
        B, of each silo, and β.
    dual_rounds, rounds_per_dual, dual_step_size
        E, T and η_θ, as for `PFFL`.
    iterate
        What to return: the "average" of all rounds, the "recent" mean or the "last", as
        for `PFFL`; None takes the recent for convex models and the last for others.
    local_steps, step_size, batch_size, …
        J, η_w and the rest of the local training, see `LocalTraining`.
    """

    iterate: Literal["average", "recent", "last"] | None = None
    iterates: ClassVar[Iterates] = (None, "average", "recent", "last")
    name: ClassVar[str] = "local-bgl"
    weighs_silos: ClassVar[bool] = True
    looks_at_silos: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"multiplier_bound": PRICES}

    def own(self, problem: Problem) -> Problem:
        """Return the problem of weighing the cells (k, z)."""
        return problem.over(own_cells(problem))

    def start(self, problem: Problem) -> State:
        """Line 1."""
        cells = own_cells(problem)
        theta = np.zeros(len(cells))
        return State.at_start(
            problem,
            theta=theta,
            multiplier_sum=theta,
            dual_step_size=self.dual_step_size,
            cells=cells,
        )

    def prices(self, problem: Problem, state: State) -> FloatArray:
        """Line 3: λ_{k,z}, a `capped_softmax` in every silo."""
        theta, silo, silos = state.theta, state.cells.silo, len(problem.silo_names)
        shift = np.zeros(silos)
        np.maximum.at(shift, silo, theta)
        exponentials = np.exp(theta - shift[silo])
        below = np.exp(-shift) + np.bincount(silo, exponentials, silos)
        return problem.multiplier_bound * exponentials / below[silo]

    def objective(self, problem: Problem, state: State) -> Objective:
        """Line 5: p_k λ_{k,z} is what (k, z) weighs in the mean over silos."""
        return self.priced(problem, state.cells, self.prices(problem, state))

    def priced(self, problem: Problem, cells: Cells, lam: FloatArray) -> Objective:
        """Return what a round descends at prices λ."""
        weights = problem.task.shares[cells.silo] * lam / problem.count(cells)
        weights = np.concatenate([np.zeros(problem.n_cells), weights])
        return Objective(problem.with_cells(cells), weights, problem.risk_weight)

    def slack(
        self, problem: Problem, cells: Cells, lam: FloatArray, r: FloatArray
    ) -> float:
        """Return Σ_k p_k (B max(0, max_z r_{k,z}) − Σ_z λ_{k,z} r_{k,z}), which is ≥ 0.

        How far the prices are from the dearest ones at these violations.
        """
        worst = np.zeros(len(problem.silo_names))
        np.maximum.at(worst, cells.silo, r)
        shares = problem.task.shares
        dearest = problem.multiplier_bound * float(shares @ worst)
        return dearest - float((shares[cells.silo] * lam) @ r)

    def violation(
        self, problem: Problem, state: State, total: TrainTotal
    ) -> FloatArray:
        """Return r_{k,z} at the w that was sent; NaN where a silo was not asked."""
        losses = total.cell_losses[problem.n_cells :]
        asked = self.asked(problem, state.round)
        return problem.over(state.cells).violation_among(losses, asked)

    def finish(self, problem: Problem, state: State) -> Point:
        """Line 9, with Σ_k p_k λ_{k,z} as the price of the constraint's cell z."""
        pair = self.averaged(problem, state)
        prices = np.zeros(problem.n_cells)
        parent = own_copies(problem) % max(1, problem.n_cells)
        shares = problem.task.shares[state.cells.silo]
        np.add.at(prices, parent, shares * pair.multipliers)
        return Point(pair.w, prices)

    def length(self, problem: Problem, lam: FloatArray, v: FloatArray) -> float:
        """Return how long a move of θ is as the λ_k see it, silo by silo."""
        cells, silos = self.own(problem).cells.silo, len(problem.silo_names)
        mean = np.bincount(cells, lam * v, silos) ** 2 / problem.multiplier_bound
        own = np.bincount(cells, lam * v**2, silos) - mean
        return math.sqrt(max(0.0, float(problem.task.shares @ own)))

    def tuned(self, problem: Problem, state: State) -> State:
        """Return the first state with L for the first λ."""
        return self.smoothed(problem, state)

    def smoothed(self, problem: Problem, state: State) -> State:
        """Return the state with L of the silos' objectives for its λ."""
        if state.curvatures is None:
            return state
        whole, local = state.curvatures
        curved = self.prices(problem, state) * whole[1:]
        sums = np.bincount(state.cells.silo, curved, len(problem.silo_names))
        risk = max(float(whole[0]), float(local[0]) / STABLE)
        L = problem.risk_weight * risk + float(sums.max())
        return replace(state, smoothness=L)


def own_copies(problem: Problem) -> IntArray:
    """Which of the cells' copies, silo after silo, have rows."""
    cells, silos = problem.cells, problem.silo_names
    there = cells.everywhere | (np.arange(len(silos))[:, None] == cells.silo)
    counts = problem.count(cells.in_each_silo(silos))
    return np.flatnonzero(there.reshape(-1) & (counts > 0))


def own_cells(problem: Problem) -> Cells:
    """Return the cells (k, z)."""
    return problem.cells.in_each_silo(problem.silo_names).take(own_copies(problem))
