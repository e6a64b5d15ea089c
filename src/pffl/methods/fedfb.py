"""FedFB: the weights of (label, group) sets move until the groups are treated equally.

Yuchen Zeng, Hongxu Chen, Kangwook Lee. *Improving Fairness via Federated Learning*,
2021; FairBatch: Roh et al. 2021. Rows m_z of group z, m_{y,z} with label y, N in all.

    1  λ_{y,z} ← m_z/N (demographic parity) or m_{y,z}/N (equal opportunity), w ← 0
    2  for t = 0 … T − 1:
    3      each silo: J steps on Σ_i c_i ℓ_i, with c_i = λ_{y,z}/m_z or λ_{y,z}/m_{y,z}
    4      w ← w + Σ p_k Δ_k / Σ p_k
    5      S_{y,z} ← Σ of the losses of (y, z), over all silos
    6      demographic parity, for z ≥ 1:
               f_z ← (S_{0,z} − S_{1,z})/m_z − (S_{0,0} − S_{1,0})/m_0
                     + m_{0,0}/m_0 − m_{0,z}/m_z        ≈ P(ŷ=1|z) − P(ŷ=1|0)
               λ_{0,z} += α f_z/√(t+1);   λ_{0,0} −= α Σ_{z≥1} f_z/√(t+1)
               λ_{0,z} ← clip(λ_{0,z}, 0, 2m_z/N);   λ_{1,z} ← 2m_z/N − λ_{0,z}
       equal opportunity: d_z ← S_{1,z}/m_{1,z} minus the mean of it over groups
               λ_{1,z} += α d_z/(max|d| √(t+1));   project on λ ≥ 0, Σ_z λ_{1,z} = m_1/N
    7  return w

The published code divides a silo's objective by the sum of its row weights c_i, and
weighs its model with that sum: `by_mass=True`. All c_i start at 1/N, so α = 0 is FedAvg
by rows. S in line 5 is taken at the w that was
sent: it comes with the same reply. With two groups, equal opportunity is FairBatch's
λ ± α, with mean losses and with a step that decays, so that λ settles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pffl.flow import Round, Start, Steps
from pffl.methods import base
from pffl.methods.local import Descent, Trainer
from pffl.numerics import divisors, project_simplex
from pffl.problem import Point, Problem
from pffl.typing import FloatArray

ROUNDING = 1e-12  # mean losses that differ by less are the same


@dataclass(frozen=True, kw_only=True)
class FedFB(Descent):
    """FedFB.

    Parameters
    ----------
    notion
        "dp" for demographic parity, "eo" for equal opportunity.
    alpha
        α: how far the weights of (label, group) move.
    rounds
        T.
    by
        Attributes that cut out the groups; None for all of them crossed.
    by_mass
        True for the published aggregation: silos count by the sum of their row weights,
        and step by the mean of their weighted losses. By default (linear models) they
        count p_k, with which more than one local step leads elsewhere.
    local_steps, step_size, …
        J, η_w and the rest of the local training, see `LocalTraining`.
    """

    notion: Literal["dp", "eo"] = "dp"
    alpha: base.NonNegative = 0.1
    rounds: base.Count = 300
    by: str | tuple[str, ...] | None = None
    name: ClassVar[str] = "fedfb"
    ignores_cells: ClassVar[bool] = True
    grid: ClassVar[base.Grid] = {"alpha": (0.1, 0.05, 0.5, 1.0)}

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Local training on λ, and λ by the losses that come with it."""
        base.check_two_classes(self, problem.schema)
        cells, none = base.label_groups(problem, self.by), np.zeros(problem.n_cells)
        there = problem.count(cells).reshape(2, -1).sum(axis=0) > 0
        cells = cells.take(np.flatnonzero(np.tile(there, 2)))  # groups with rows
        own, m = problem.over(cells), problem.count(cells).reshape(2, -1)  # m_{y,z}
        base.check_groups(self, m.shape[1] > 1)
        parity = self.notion == "dp"
        lam = (np.tile(m.sum(axis=0), (2, 1)) if parity else m) / m.sum()  # line 1
        rows = divisors(m.sum(axis=0) if parity else m)
        move = move_dp if parity else move_eo
        trainer, w = Trainer(problem, self, own, cells), problem.start()
        yield from trainer.tune()
        for t in range(self.rounds):  # line 2
            c = np.asarray(lam / rows).reshape(-1)  # line 3
            weighed = trainer.weighing(c, trainer.smoothness(c * own.counts))
            w, total = yield from trainer.descend(w, weighed)  # line 4
            S = total.cell_losses[problem.n_cells :].reshape(2, -1)  # line 5
            seen = problem.count(cells, trainer.silos).reshape(2, -1)
            lam = move(lam, S, seen, m, self.alpha / np.sqrt(t + 1))  # line 6
            yield Round(Point(w, none))
        return Point(w, none)  # line 7


def move_dp(
    weights: FloatArray,
    losses: FloatArray,
    seen: FloatArray,
    sizes: FloatArray,
    step_size: float,
) -> FloatArray:
    """Line 6, demographic parity. `losses` and `seen` are of the silos that replied."""
    rows = seen.sum(axis=0)
    f = parity_surrogate(losses, seen)
    f = np.where((rows > 0) & (rows[0] > 0), f, 0.0)  # who did not reply stays put
    caps = 2 * sizes.sum(axis=0) / sizes.sum()  # 2m_z/N
    change = np.append(-f[1:].sum(), f[1:])
    zero = np.clip(weights[0] + step_size * change, 0.0, caps)
    return np.stack([zero, caps - zero])


def parity_surrogate(losses: FloatArray, counts: FloatArray) -> FloatArray:
    """f_z ≈ P(ŷ=1|z) − P(ŷ=1|0) with the loss for the error; f_0 = 0."""
    rows = divisors(counts.sum(axis=0))
    positive = (losses[0] - losses[1] + counts[1]) / rows  # + 1 − m_{0,z}/m_z
    return np.asarray(positive - positive[0])


def move_eo(
    weights: FloatArray,
    losses: FloatArray,
    seen: FloatArray,
    sizes: FloatArray,
    step_size: float,
) -> FloatArray:
    """Line 6, equal opportunity."""
    known = seen[1] > 0
    means = losses[1, known] / seen[1, known]
    d = np.zeros(len(known))
    d[known] = means - means.mean()
    largest = float(np.abs(d).max())
    if largest <= ROUNDING * float(means.max()):
        return weights
    able = sizes[1] > 0  # the groups that have such rows at all
    moved = np.zeros(len(able))
    share = float(weights[1].sum())  # m_1/N
    moved[able] = (weights[1] + step_size / largest * d)[able]
    moved[able] = project_simplex(moved[able], share)
    return np.stack([weights[0], moved])
