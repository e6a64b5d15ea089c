"""FedFair: the mean over silos of the gap between two groups' losses stays in ±ε.

Lingyang Chu, Lanjun Wang, Yanjie Dong, Jian Pei, Zirui Zhou, Yong Zhang. *FedFair:
Training Fair Models in Cross-Silo Federated Learning*, 2021. For groups a and b (DGEO):

    D_k(w) = Σ_c [mean loss of (a, c) in silo k − mean loss of (b, c) in silo k]
    min_w Σ_k (m_k/m) f_k(w)   subject to   |D̄(w)| ≤ ε,   D̄ = (1/K) Σ_k D_k

    1  λ_a ← λ_b ← 0.1, w ← 0
    2  for t = 1 … T:
    3      one gradient: w ← w − η ∇[Σ_k (m_k/m) f_k + (λ_a − λ_b) D̄](w)
    4      λ_a ← max(0, (1 − γβ) λ_a + β (D̄ − ε))
    5      λ_b ← max(0, (1 − γβ) λ_b − β (D̄ + ε))
    6  return w

D̄ in lines 4 and 5 is taken at the w that was sent: it comes with the same reply.
D̄ averages the silos' own gaps, so it is not the gap over all rows together.

Where a silo lacks (a, c) or (b, c), its gap for label c is undefined: each label's gaps
are averaged over the K_c silos that have both. With more than two groups every pair of
groups has its own D̄, λ_a and λ_b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pffl.flow import Round, Start, Steps
from pffl.methods.base import Count, NonNegative, check_groups, label_groups
from pffl.methods.local import Descent, Trainer, concentration
from pffl.problem import Point, Problem
from pffl.typing import FloatArray

START = 0.1  # of λ_a and λ_b


@dataclass(frozen=True, kw_only=True)
class FedFair(Descent):
    """FedFair.

    Parameters
    ----------
    gap_bound
        ε.
    dual_step_size, dual_decay
        β and γ of the multipliers λ_a, λ_b.
    rounds
        T.
    by
        Attributes that cut out the groups; None for all of them crossed.
    local_steps, step_size, …
        As for `LocalTraining`; the paper takes one step a round.
    """

    gap_bound: NonNegative = 0.01
    dual_step_size: NonNegative = 0.05
    dual_decay: NonNegative = 0.001
    rounds: Count = 500
    by: str | tuple[str, ...] | None = None
    local_steps: Count = 1
    name: ClassVar[str] = "fedfair"
    ignores_cells: ClassVar[bool] = True
    looks_at_silos: ClassVar[bool] = True

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Descent on the loss and the gaps, ascent in their multipliers."""
        shape = (len(problem.silo_names), problem.schema.n_labels, -1)
        local = label_groups(problem, self.by, in_each_silo=True)
        gaps = told = gap_weights(problem.count(local).reshape(shape))
        why = "no silo has rows of two with the same label"
        check_groups(self, bool(gaps.any()), why)
        pooled, none = label_groups(problem, self.by), np.zeros(problem.n_cells)
        trainer = Trainer(problem, self, problem.over(pooled), local)
        yield from trainer.tune()
        w, m, own = problem.start(), problem.silo_weights.sum(), problem.over(local)
        in_risk = problem.count(pooled) / m
        lam_a = lam_b = np.full(len(gaps), START)  # line 1
        beta, eps = self.dual_step_size, self.gap_bound
        keep = 1 - self.dual_decay * beta  # 1 − γβ
        for _ in range(self.rounds):  # line 2
            lam = lam_a - lam_b
            c = 1 / m + lam @ gaps
            L = self.smoothness(trainer.curvatures, own, in_risk, lam, c)
            weighed = trainer.weighing(c, L)
            w, total = yield from trainer.descend(w, weighed)  # line 3
            if trainer.silos is not None:
                told = gap_weights(problem.count(local, trainer.silos).reshape(shape))
            D = told @ total.cell_losses[problem.n_cells :]  # D̄
            lam_a = np.maximum(0, keep * lam_a + beta * (D - eps))  # line 4
            lam_b = np.maximum(0, keep * lam_b - beta * (D + eps))  # line 5
            yield Round(Point(w, none))
        return Point(w, none)  # line 6

    def smoothness(
        self,
        curvatures: FloatArray | None,
        own: Problem,
        in_risk: FloatArray,
        lam: FloatArray,
        c: FloatArray,
    ) -> float | None:
        """L of line 3, taking a group's mean over silos to curve as its pooled mean."""
        if curvatures is None:
            return None
        labels = own.schema.n_labels
        a, b = np.triu_indices(groups := len(in_risk) // labels, 1)
        in_gaps = np.abs(lam) @ (np.eye(groups)[a] + np.eye(groups)[b])
        weights = in_risk + np.tile(in_gaps, labels)
        L = float(weights @ curvatures[0, 1:]) + own.mu
        if self.local_steps == 1:
            return L  # the silos' mean step is one step on the whole
        return L * concentration(own, np.abs(c) * own.counts)


def gap_weights(counts: FloatArray) -> FloatArray:
    """Return A with D̄ = A × loss sums, from rows per (silo, label, group).

    One row per pair a < b: 1/(K_c m_{k,a,c}) for group a, minus that for group b.
    """
    pairs = list(zip(*np.triu_indices(counts.shape[2], 1), strict=True))
    weights = np.zeros((len(pairs), *counts.shape))
    for p, (a, b) in enumerate(pairs):
        both = (counts[:, :, a] > 0) & (counts[:, :, b] > 0)  # (silos, labels)
        having = np.maximum(both.sum(axis=0), 1.0)  # K_c
        for group, sign in ((a, 1.0), (b, -1.0)):
            rows = np.where(both, counts[:, :, group], 1.0)
            weights[p, :, :, group] = sign * both / (having * rows)
    return weights.reshape(len(pairs), counts.size)
