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

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pffl.flow import Round, Start, Steps
from pffl.methods import base
from pffl.methods.local import Descent, Trainer
from pffl.numerics import divisors
from pffl.problem import Point, Problem
from pffl.queries import Evaluate
from pffl.typing import FloatArray

Notion = Literal["accuracy", "dp", "eo", "eodds"]


@dataclass(frozen=True, kw_only=True)
class FairGrad(Descent):
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
    gap_bound: base.NonNegative = 0.01
    dual_step_size: base.NonNegative = 0.1
    rounds: base.Count = 300
    by: str | tuple[str, ...] | None = None
    name: ClassVar[str] = "fairgrad"
    queries_per_round: ClassVar[int] = 2
    ignores_cells: ClassVar[bool] = True

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Levels at w, multipliers by them, and local training."""
        if self.notion == "dp":
            base.check_two_classes(self, problem.schema)
        cells, none = base.label_groups(problem, self.by), np.zeros(problem.n_cells)
        counts = problem.count(cells).reshape(problem.schema.n_labels, -1)  # m_{y,a}
        base.check_groups(self, (counts.sum(axis=0) > 0).sum() > 1)
        own, m, w = problem.over(cells), counts.reshape(-1), problem.start()
        trainer = Trainer(problem, self, own, cells)
        yield from trainer.tune()
        offsets, slopes = constants(self.notion, counts)  # C⁰ and C
        up = lo = np.zeros(len(offsets))  # line 1
        eta, eps = self.dual_step_size, self.gap_bound
        for _ in range(self.rounds):  # line 2
            total = yield Evaluate(trainer.task, w, "train")
            correct = total.column("correct", of="cells")[problem.n_cells :]
            F = offsets + slopes @ (1 - correct / divisors(m))  # lines 3 and 4
            up = np.maximum(0.0, up + eta * (F - eps))  # line 5
            lo = np.maximum(0.0, lo - eta * (F + eps))
            weights = np.where(m > 0, m / counts.sum() + (up - lo) @ slopes, 0.0)
            c = weights / own.counts  # line 6
            weighed = trainer.weighing(c, trainer.smoothness(weights))
            w, _ = yield from trainer.descend(w, weighed)  # line 7
            yield Round(Point(w, none))
        return Point(w, none)  # line 8


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
