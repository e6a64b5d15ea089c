"""FCFL: the worst silo's loss is lowered while every silo's parity gap stays under ε.

Sen Cui, Weishen Pan, Jian Liang, Changshui Zhang, Fei Wang. *Addressing Algorithmic
Disparity and Performance Inconsistency in Federated Learning*, NeurIPS 2021. In silo k,
l_k is the mean loss and g_k = |Δ_k| the gap between two groups' means of σ(s·z), smooth
rates of positive predictions (among y = 1 for equal opportunity).

    1  w ← 0, temperatures δ_l ← δ_g ← 0.5
    2  every round: l_k, ∇l_k, g_k, ∇g_k at w                  queries.expand
    3      a^l ← softmax(l/δ_l), a^g ← softmax(g/δ_g)
    4      d_L ← Σ a^l_k ∇l_k,   d_G ← Σ a^g_k ∇g_k
    5      stage 1: c on the 2-simplex, with d(c) = c₁ d_L + c₂ d_G, in closed form
               if max g ≤ ε:  maximise ⟨d(c), d_L⟩
               otherwise:     maximise ⟨d(c), d_G⟩ subject to ⟨d(c), d_L⟩ ≥ 0
       stage 2: c on the (K+1)-simplex, d(c) = Σ c_k ∇l_k + c_{K+1} d_G, by an LP
               (d_G is 0 if max g < ε);  maximise ⟨d(c), mean of ∇l_k⟩ subject to
               ⟨d(c), each direction⟩ ≥ 0;  if the LP fails, d(c) of least norm
    6      w ← w − η (d(c) + μ w)
    7      where 0.1‖d‖ ≤ δ and δ > 10⁻⁴:  δ ← 0.01 δ, for (d_L, δ_l) and for (d_G, δ_g)
    8  return w

Silos in which the gap is undefined have no g_k. With more than two groups, every pair
has a gap. In gaps per silo a small silo dominates: `pooled` takes one over all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from pffl.flow import Round, Start, Steps
from pffl.methods import base
from pffl.methods.local import curvatures, smoothness, typical
from pffl.numerics import divisors
from pffl.problem import Point, Problem
from pffl.queries import Expand, ExpandTotal
from pffl.typing import FloatArray

START = 0.5  # first temperature
COOLING = 0.01
COLDEST = 1e-4
BEND = 4 / (6 * np.sqrt(3))  # max|σ''| over the 1/4 that bounds the logistic loss's


@dataclass(frozen=True, eq=False)
class Gaps:
    """Losses and gaps at one w, and their gradients, one row each.

    Attributes
    ----------
    losses, loss_gradients
        l_k and ∇l_k, one per silo.
    gaps, gap_gradients
        g and ∇g, of the silos in which a gap is defined, or one over all rows.
    """

    losses: FloatArray
    loss_gradients: FloatArray
    gaps: FloatArray
    gap_gradients: FloatArray


@dataclass(frozen=True, kw_only=True)
class FCFL(base.Method):
    """FCFL, for linear models with two classes.

    Parameters
    ----------
    notion
        "dp" for demographic parity, "eo" for equal opportunity.
    gap_bound
        ε.
    pooled
        Whether g is one gap over all rows, instead of one per silo.
    stage_one_rounds, stage_two_rounds
        Rounds of minimax under the bound, and of Pareto descent.
    step_size
        η; None takes 1/L of the losses in d(c), or what keeps the gaps under ε.
    sharpness
        s of σ(s·z).
    by
        Attributes that cut out the groups; None for all of them crossed.
    """

    notion: Literal["dp", "eo"] = "dp"
    gap_bound: base.NonNegative = 0.05
    pooled: bool = False
    stage_one_rounds: base.Count = 800
    stage_two_rounds: base.Count = 400
    step_size: base.Positive | None = None
    sharpness: base.Positive = 10.0
    by: str | tuple[str, ...] | None = None
    name: ClassVar[str] = "fcfl"
    ignores_cells: ClassVar[bool] = True
    looks_at_silos: ClassVar[bool] = True

    @classmethod
    def within(cls, budget: int, **parameters: Any) -> Self:
        """Build it with two thirds of the budget in stage 1."""
        parameters["stage_one_rounds"] = max(1, 2 * budget // 3)
        return cls(**parameters | {"stage_two_rounds": max(1, budget // 3)})

    @property
    def planned_rounds(self) -> int:
        """Of both stages."""
        return self.stage_one_rounds + self.stage_two_rounds

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Both stages; the step size is 1/L, or what keeps the gaps under ε."""
        base.check_two_classes(self, problem.schema)
        cells = base.label_groups(
            problem, self.by, in_each_silo=True
        )  # by silo and label
        shape = (len(problem.silo_names), problem.schema.n_labels, -1)
        counts = problem.count(cells).reshape(shape)
        both = (self.among(counts) > 0).sum(axis=1) > 1
        base.check_groups(self, both.any(), "no silo has rows of two")
        w, L, none = problem.start(), 1.0, np.zeros(problem.n_cells)
        if self.step_size is None:
            plain = replace(problem, risk_weight=1.0)
            total = yield Expand(problem.task, w, 0, typical=typical(problem))
            L = smoothness(curvatures(plain, total), plain, none) or 1.0
        bend = 2 * L * BEND * self.sharpness**2  # L_g, as if groups curve as silos do
        task, delta = problem.with_cells(cells), np.full(2, START)  # line 1
        for t in range(self.planned_rounds):
            total = yield Expand(task, w, sharpness=self.sharpness)
            at_w = self.slopes(problem, counts, total)  # line 2
            a_l, a_g = softmax(at_w.losses / delta[0]), softmax(at_w.gaps / delta[1])
            d_L, d_G = a_l @ at_w.loss_gradients, a_g @ at_w.gap_gradients
            worst = float(at_w.gaps.max())
            if t < self.stage_one_rounds:  # line 5
                c = stage_one(d_L, d_G, inside=worst <= self.gap_bound)
                directions = np.stack([d_L, d_G])
            else:
                used = d_G if worst >= self.gap_bound else np.zeros_like(d_G)
                directions = np.vstack([at_w.loss_gradients, used])
                c = stage_two(directions)
            d = c @ directions  # d(c)
            eta = self.step_size or guarded_step(
                d, at_w, self.gap_bound, loss_bend=L * (1 - c[-1]), gap_bend=bend
            )
            w = w - eta * (d + problem.mu * w)  # line 6
            norms = np.array([np.linalg.norm(d_L), np.linalg.norm(d_G)])
            cool = (0.1 * norms <= delta) & (delta > COLDEST)
            delta = np.where(cool, COOLING * delta, delta)  # line 7
            yield Round(Point(w, none))
        return Point(w, none)  # line 8

    def among(self, sums: FloatArray) -> FloatArray:
        """Add sums per (silo, label, group, …) to those that the gap compares."""
        chosen = sums.sum(axis=1) if self.notion == "dp" else sums[:, 1]
        return chosen.sum(axis=0, keepdims=True) if self.pooled else chosen

    def slopes(self, problem: Problem, counts: FloatArray, total: ExpandTotal) -> Gaps:
        """Line 2: silos' losses and gaps, from sums per (silo, label, group)."""
        n = problem.n_cells
        deep = (*counts.shape, problem.n_parameters)
        rows = counts.sum(axis=(1, 2))
        losses = total.losses[1 + n :].reshape(counts.shape).sum(axis=(1, 2))
        gradients = total.gradients[1 + n :].reshape(deep).sum(axis=(1, 2))
        size = self.among(counts)
        safe = divisors(size)
        rates = self.among(total.scores[n:].reshape(counts.shape)) / safe
        score_slopes = total.score_gradients[n:].reshape(deep)
        slopes = self.among(score_slopes) / safe[:, :, None]
        a, b = np.triu_indices(size.shape[1], 1)
        both = (size[:, a] > 0) & (size[:, b] > 0)  # where the gap is defined
        gaps = (rates[:, a] - rates[:, b])[both]  # Δ
        gap_slopes = (slopes[:, a] - slopes[:, b])[both]
        return Gaps(
            losses / rows,
            gradients / rows[:, None],
            np.abs(gaps),
            np.sign(gaps)[:, None] * gap_slopes,
        )


def softmax(values: FloatArray) -> FloatArray:
    """Weights of a smooth maximum, with the exponent shifted by the maximum."""
    exponentials = np.exp(values - values.max())
    return np.asarray(exponentials / exponentials.sum())


def stage_one(d_L: FloatArray, d_G: FloatArray, *, inside: bool) -> FloatArray:
    """Return c on the 2-simplex for d(c) = c₁ d_L + c₂ d_G, in closed form.

    Inside the bound: maximise ⟨d(c), d_L⟩. Outside: maximise ⟨d(c), d_G⟩ subject to
    ⟨d(c), d_L⟩ ≥ 0.
    """
    ll, lg, gg = float(d_L @ d_L), float(d_L @ d_G), float(d_G @ d_G)
    if inside:
        c = 1.0 if ll >= lg else 0.0
    elif gg < lg:
        c = 1.0
    else:  # as much of d_G as does not raise the loss
        c = 0.0 if lg >= 0 else -lg / (ll - lg)
    return np.array([c, 1.0 - c])


def stage_two(directions: FloatArray) -> FloatArray:
    """Return c on the (K+1)-simplex for d(c) = Σ c_k ∇l_k + c_{K+1} d_G, by an LP.

    Maximise ⟨d(c), mean of ∇l_k⟩ subject to ⟨d(c), each direction⟩ ≥ 0; d_G is the last
    row of the directions. The point of least norm satisfies that, so the LP fails only
    by rounding: then that point is it.
    """
    from scipy.optimize import linprog

    gram = directions @ directions.T
    scale = max(float(gram.max()), 1e-300)
    found = linprog(
        -gram[:, :-1].mean(axis=1) / scale,
        A_ub=-gram / scale,
        b_ub=np.zeros(len(gram)),
        A_eq=np.ones((1, len(gram))),
        b_eq=[1.0],
        method="highs",
    )
    if found.status == 0:
        return np.asarray(found.x, dtype=np.float64)
    return least_norm(directions)


def least_norm(directions: FloatArray) -> FloatArray:
    """Return c on the simplex with the shortest Σ c_i d_i.

    It minimises ‖Σ c_i d_i‖² + (Σc − 1)² over c ≥ 0, up to its length: NNLS.
    """
    from scipy.optimize import nnls

    n = len(directions)
    scale = max(float(np.abs(directions).max()), 1e-300)
    tall = np.vstack([directions.T / scale, np.ones((1, n))])
    free, _ = nnls(tall, np.append(np.zeros(directions.shape[1]), 1.0))
    return np.asarray(free / free.sum())


def guarded_step(
    d: FloatArray, at_w: Gaps, gap_bound: float, *, loss_bend: float, gap_bend: float
) -> float:
    """Return the step along −d: 1/L of the loss, unless a gap would pass its bound.

    A gap rises by at most η⟨−d, ∇g⟩ + ½L_g‖d‖²η². Below the bound that may use up what
    is left; above it, η minimises it. 1/L_g is always allowed.
    """
    longest = 1 / loss_bend if loss_bend > 0 else np.inf
    rise = -(at_w.gap_gradients @ d)
    left = np.maximum(gap_bound - at_w.gaps, 0.0)
    square = gap_bend * float(d @ d)
    if square == 0:
        return min(longest, 1 / gap_bend)
    root = (np.sqrt(rise**2 + 2 * square * left) - rise) / square
    lengths = np.where(left > 0, root, np.maximum(-rise, 0.0) / square)
    return float(min(longest, max(lengths.min(), 1 / gap_bend)))
