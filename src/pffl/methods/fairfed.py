"""FairFed: silos whose own fairness is close to the global one weigh more.

Yahya Ezzeldin, Shen Yan, Chaoyang He, Emilio Ferrara, Salman Avestimehr. *FairFed:
Enabling Group Fairness in Federated Learning*, AAAI 2023.

    1  ω_k ← m_k/m, w ← 0
    2  for t = 1 … T:
    3      rates of ŷ = 1 per silo, label and group, at w      queries.evaluate
    4      F ← gap over all rows, F_k ← gap in silo k
    5      Δ_k ← |F − F_k|;  where F_k is undefined, |accuracy − accuracy of silo k|
    6      ω_k ← max(0, ω_k − β(Δ_k − mean of Δ));  ω ← ω/Σω
    7      each silo: J steps on its own mean loss;  w ← w + Σ ω_k Δw_k
    8  return w

The gap is that of equal opportunity (EOD, among y = 1) or of demographic parity (SPD),
with its sign. With more than two groups, it is that of the two which are furthest apart
over all rows. ω starts at shares, not at counts, against which β would mean nothing.
Silos debias locally by reweighing (Kamiran, Calders 2012): a row of silo k counts
P(a)P(y)/P(a, y) times. A round asks twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pffl.flow import Round, Start, Steps
from pffl.methods.base import NonNegative, check_groups, check_two_classes, label_groups
from pffl.methods.local import Descent, Trainer
from pffl.problem import Point, Problem
from pffl.queries import Evaluate
from pffl.typing import FloatArray


@dataclass(frozen=True, kw_only=True)
class FairFed(Descent):
    """FairFed.

    Parameters
    ----------
    metric
        "eod" (equal opportunity difference) or "spd" (statistical parity difference).
    fairness_budget
        β: how strongly fairness moves the silos' weights.
    debiasing
        What silos do to their own rows: "reweighing" or "none".
    rounds
        T.
    by
        Attributes that cut out the groups; None for all of them crossed.
    local_steps, step_size, …
        J, η_w and the rest of the local training, see `LocalTraining`.
    """

    metric: Literal["eod", "spd"] = "eod"
    fairness_budget: NonNegative = 0.05
    debiasing: Literal["reweighing", "none"] = "reweighing"
    by: str | tuple[str, ...] | None = None
    name: ClassVar[str] = "fairfed"
    queries_per_round: ClassVar[int] = 2
    ignores_cells: ClassVar[bool] = True
    looks_at_silos: ClassVar[bool] = True
    weighs_updates: ClassVar[bool] = True

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Rates at w, weights of silos by them, and local training."""
        check_two_classes(self, problem.schema)
        cells = label_groups(problem, self.by, in_each_silo=True)  # by silo and label
        shape = (len(problem.silo_names), problem.schema.n_labels, -1)
        counts, n = problem.count(cells).reshape(shape), problem.n_cells
        check_groups(self, (self.among(counts).sum(axis=0) > 0).sum() > 1)
        trainer, w = Trainer(problem, self, cells=cells), problem.start()
        yield from trainer.tune()
        rows = counts.sum(axis=(1, 2))
        omega = rows / counts.sum()  # line 1
        times = reweighing(counts) if self.debiasing == "reweighing" else counts > 0
        for _ in range(self.rounds):  # line 2
            total = yield Evaluate(trainer.task, w, "train")  # line 3
            positive, correct = (
                total.column(name, of="cells")[n:].reshape(counts.shape)
                for name in ("positive", "correct")
            )
            away = distances(self.among(positive), self.among(counts))  # lines 4 and 5
            off = np.abs(correct.sum() / rows.sum() - correct.sum(axis=(1, 2)) / rows)
            away = np.where(np.isnan(away), off, away)
            step = self.fairness_budget * (away - away.mean())
            omega = np.maximum(0.0, omega - step)  # line 6
            omega = omega / omega.sum()
            c = ((omega / rows)[:, None, None] * times).reshape(-1)
            weighed = trainer.weighing(c, shares=omega)
            w, _ = yield from trainer.descend(w, weighed)  # line 7
            yield Round(Point(w, np.zeros(n)))
        return Point(w, np.zeros(n))  # line 8

    def among(self, sums: FloatArray) -> FloatArray:
        """From (silo, label, group) to (silo, group): the labels that count."""
        return sums.sum(axis=1) if self.metric == "spd" else sums[:, 1]


def distances(positive: FloatArray, counts: FloatArray) -> FloatArray:
    """|F − F_k| per silo, from sums per (silo, group); NaN where F_k is undefined."""
    pooled = ratio(positive.sum(axis=0), counts.sum(axis=0), np.nan)
    order = np.argsort(pooled)  # NaN last; two groups also where all are equal
    low, high = order[0], order[(~np.isnan(pooled)).sum() - 1]
    local, gap = ratio(positive, counts, np.nan), pooled[high] - pooled[low]  # F
    return np.asarray(np.abs(gap - (local[:, high] - local[:, low])))


def reweighing(counts: FloatArray) -> FloatArray:
    """P(a)P(y)/P(a, y) per (silo, label, group); 0 without people."""
    rows = counts.sum(axis=(1, 2), keepdims=True)
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=2, keepdims=True)
    return ratio(expected / rows, counts, 0.0)


def ratio(numerator: FloatArray, denominator: FloatArray, empty: float) -> FloatArray:
    """Divide; `empty` without people."""
    out = np.full_like(denominator, empty)
    return np.divide(numerator, denominator, out=out, where=denominator > 0)
