"""FairGrad: each (label, group) weighs more or less until its fairness level is small.

Gaurav Maheshwari, Michaël Perrot. *FairGrad: Fairness Aware Gradient Descent*, TMLR
2023; federated as in DecLearn. Sets g = (y, a) with m_g rows of m.

    1  up ← 0, lo ← 0, w ← 0
    2  for t = 1 … T:
    3      err_g ← share of wrong predictions in g, at w          queries.evaluate
    4      F ← C⁰ + C err                                         the fairness levels
    5      up ← max(0, up + η(F − ε));   lo ← max(0, lo − η(F + ε))
    6      c_g ← [m_g/m + Σ_l (up_l − lo_l) C_lg] / m_g           negative now and then
    7      each silo: J steps on Σ_g c_g Σ_{i∈g} ℓ_i;   w ← w + Σ p_k Δ_k / Σ p_k
    8  return w

A level is positive for those who are better off than all together:

    accuracy            F_a = err − err_a
    demographic parity  F_a = P(ŷ=1|a) − P(ŷ=1)
    equal opportunity   F_a = err_{y=1} − err_{y=1,a}; equalized odds: for every label

DecLearn repeats a level for each label, which only changes η. A round asks twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from pffl.constraints.base import Cells
from pffl.errors import DataError
from pffl.methods.base import check_choice, check_two_classes, label_groups
from pffl.methods.descent import Measured, MeasuredDescent, Objective
from pffl.methods.step_sizes import weighted_smoothness
from pffl.numerics import divisors
from pffl.problem import Problem
from pffl.queries import EvaluateTotal
from pffl.typing import FloatArray

Notion = Literal["accuracy", "dp", "eo", "eodds"]
NOTIONS = ("accuracy", "dp", "eo", "eodds")


@dataclass(frozen=True, eq=False, kw_only=True)
class State(Measured):
    """Where FairGrad stands; `measured` says whether lines 3 to 5 are done."""

    up: FloatArray  # one per fairness level
    lo: FloatArray


@dataclass(frozen=True, kw_only=True)
class FairGrad(MeasuredDescent[State]):
    """FairGrad in a federation.

    Parameters
    ----------
    notion
        "accuracy" (parity), "dp" (demographic parity), "eo" (equal opportunity: the
        last label) or "eodds" (equalized odds).
    gap_bound
        ε: levels in ±ε are fair.
    dual_step_size
        η.
    rounds
        T.
    by
        Attributes that cut out the groups; None for all of them crossed.
    local_steps, step_size, …
        J, η_w and the rest of the local training, see `LocalTraining`.
    """

    notion: Notion = "dp"
    gap_bound: float = 0.01
    dual_step_size: float = 0.1
    rounds: int = 300
    by: str | tuple[str, ...] | None = None
    name: ClassVar[str] = "fairgrad"
    ignores_cells: ClassVar[bool] = True
    steps_without_some: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check(nonnegative=("gap_bound", "dual_step_size"))
        check_choice(self, "notion", NOTIONS)

    def cells(self, problem: Problem) -> Cells:
        """Sets (y, a), label by label."""
        return label_groups(problem, self.by)

    def counts(self, problem: Problem) -> FloatArray:
        """m_{y,a}, shape (labels, groups)."""
        return problem.count(self.cells(problem)).reshape(problem.schema.n_labels, -1)

    def own(self, problem: Problem) -> Problem:
        """Return the problem of weighing the sets (y, a)."""
        return problem.over(self.cells(problem))

    def start(self, problem: Problem) -> State:
        """Line 1."""
        if self.notion == "dp":
            check_two_classes(self, problem.schema)
        counts = self.counts(problem)
        if (counts.sum(axis=0) > 0).sum() < 2:
            raise DataError(
                "[too-few-groups] FairGrad compares groups, and fewer than two have "
                "rows"
            )
        zero = np.zeros(len(constants(self.notion, counts)[0]))
        return State.at_start(problem, up=zero, lo=zero)

    def tuned(self, problem: Problem, state: State) -> State:
        """Return the first state; L follows from the weights of each round."""
        return state

    def objective(self, problem: Problem, state: State) -> Objective:
        """Line 7."""
        own, weights = self.own(problem), self.weights(problem, state)
        L = weighted_smoothness(state.curvatures, own, weights)
        return Objective.over(problem, own.cells, weights / own.counts, L)

    def weights(self, problem: Problem, state: State) -> FloatArray:
        """Line 6, times m_g: the weight of each set's mean loss."""
        counts = self.counts(problem)
        slopes = constants(self.notion, counts)[1]  # C
        weights = counts.reshape(-1) / counts.sum() + (state.up - state.lo) @ slopes
        return np.where(counts.reshape(-1) > 0, weights, 0.0)

    def weigh(self, problem: Problem, state: State, total: EvaluateTotal) -> State:
        """Lines 3 to 5."""
        counts = self.counts(problem)
        correct = total.column("correct", of="cells")[problem.n_cells :]
        errors = 1 - correct / divisors(counts.reshape(-1))
        offsets, slopes = constants(self.notion, counts)
        F = offsets + slopes @ errors
        eta, eps = self.dual_step_size, self.gap_bound
        up = np.maximum(0.0, state.up + eta * (F - eps))
        lo = np.maximum(0.0, state.lo - eta * (F + eps))
        return replace(state, up=up, lo=lo)


def constants(notion: Notion, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """C⁰, shape (levels,), and C, shape (levels, labels × groups), of line 4.

    `counts` is m_{y,a}, shape (labels, groups). A group without the rows that a level
    is about has no level: its constants are 0.
    """
    labels, groups = counts.shape
    own, rows = np.eye(groups), divisors(counts.sum(axis=0))
    if notion in ("accuracy", "dp"):
        within = own[:, None, :] * (counts / rows)  # 1[same a] m_{y,a}/m_a
        slopes = np.broadcast_to(counts / counts.sum(), within.shape) - within
        offsets = np.zeros(groups)
        if notion == "dp":  # P(ŷ=1|a) falls with errors on label 1, rises on label 0
            slopes = slopes * np.array([-1.0, 1.0])[:, None]
            offsets = counts[1] / rows - counts[1].sum() / counts.sum()
        there = counts.sum(axis=0) > 0
        return offsets * there, slopes.reshape(groups, -1) * there[:, None]
    levels = np.zeros((labels, groups, labels, groups))
    for y in range(labels) if notion == "eodds" else (labels - 1,):
        share = counts[y] / divisors(counts[y].sum())
        levels[y, :, y] = (share - own) * (counts[y] > 0)[:, None]
    slopes = levels.reshape(labels * groups, -1)
    return np.zeros(len(slopes)), slopes
