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
from itertools import combinations
from typing import ClassVar

import numpy as np

from pffl.flow import Round, Start, Steps
from pffl.methods.base import Count, NonNegative, check_groups, label_groups
from pffl.methods.local import Descent, Objective, Trainer, concentration
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
        local = label_groups(problem, self.by, in_each_silo=True)
        gaps, none = self.gaps(problem), np.zeros(problem.n_cells)
        check_groups(
            self, bool(gaps.any()), "no silo has rows of two with the same label"
        )
        pooled = problem.over(label_groups(problem, self.by))
        trainer, w = Trainer(problem, self, pooled), problem.start()
        yield from trainer.tune()
        lam_a = lam_b = np.full(len(gaps), START)  # line 1
        beta, eps = self.dual_step_size, self.gap_bound
        keep = 1 - self.dual_decay * beta  # 1 − γβ
        for _ in range(self.rounds):  # line 2
            lam = lam_a - lam_b
            c = 1 / problem.silo_weights.sum() + lam @ gaps
            L = self.smoothness(problem, trainer.curvatures, lam, c)
            w, total = yield from trainer.descend(  # line 3
                w, Objective.over(problem, local, c, L)
            )
            told = self.gaps(problem, trainer.silos)
            D = told @ total.cell_losses[problem.n_cells :]  # D̄
            lam_a = np.maximum(0, keep * lam_a + beta * (D - eps))  # line 4
            lam_b = np.maximum(0, keep * lam_b - beta * (D + eps))  # line 5
            yield Round(Point(w, none))
        return Point(w, none)  # line 6

    def gaps(
        self, problem: Problem, silos: tuple[int, ...] | None = None
    ) -> FloatArray:
        """D̄ as weights of loss sums: shape (pairs, silos × labels × groups)."""
        local = label_groups(problem, self.by, in_each_silo=True)
        shape = (len(problem.silo_names), problem.schema.n_labels, -1)
        return gap_weights(problem.count(local, silos).reshape(shape))

    def smoothness(
        self,
        problem: Problem,
        curvatures: FloatArray | None,
        lam: FloatArray,
        c: FloatArray,
    ) -> float | None:
        """L of line 3, taking a group's mean over silos to curve as its pooled mean."""
        if curvatures is None:
            return None
        cells, labels = label_groups(problem, self.by), problem.schema.n_labels
        in_risk = problem.count(cells) / problem.silo_weights.sum()
        in_gaps = group_multipliers(lam, len(cells) // labels)
        weights = in_risk + np.tile(in_gaps, labels)
        L = float(weights @ curvatures[0, 1:]) + problem.mu
        if self.local_steps == 1:
            return L  # the silos' mean step is one step on the whole
        own = problem.over(label_groups(problem, self.by, in_each_silo=True))
        return L * concentration(own, np.abs(c) * own.counts)


def gap_weights(counts: FloatArray) -> FloatArray:
    """Return A with D̄ = A × loss sums, from rows per (silo, label, group).

    One row per pair a < b: 1/(K_c m_{k,a,c}) for group a, minus that for group b.
    """
    pairs = list(combinations(range(counts.shape[2]), 2))
    weights = np.zeros((len(pairs), *counts.shape))
    for p, (a, b) in enumerate(pairs):
        both = (counts[:, :, a] > 0) & (counts[:, :, b] > 0)  # (silos, labels)
        having = np.maximum(both.sum(axis=0), 1.0)  # K_c
        for group, sign in ((a, 1.0), (b, -1.0)):
            rows = np.where(both, counts[:, :, group], 1.0)
            weights[p, :, :, group] = sign * both / (having * rows)
    return weights.reshape(len(pairs), counts.size)


def group_multipliers(multipliers: FloatArray, groups: int) -> FloatArray:
    """Σ |λ_a − λ_b| over the pairs that a group is in."""
    totals = np.zeros(groups)
    pairs = combinations(range(groups), 2)
    for multiplier, pair in zip(multipliers, pairs, strict=True):
        totals[list(pair)] += abs(multiplier)
    return totals
