"""Whether a silo's report can be true: ranges, and fields that must fit each other.

Every function refuses with a reason that holds no figure of the report.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pffl.admission.ceilings import Ceilings
from pffl.admission.policy import Policy, Refused
from pffl.data.schema import Schema
from pffl.models.base import trained
from pffl.questions import (
    CensusTotal,
    Curvature,
    CurvatureTotal,
    Evaluate,
    EvaluateTotal,
    Train,
    TrainTotal,
)
from pffl.questions.curvature import powers as schatten
from pffl.questions.evaluate import COLUMNS
from pffl.questions.train import TINY
from pffl.typing import FloatArray

ROUNDING = 1e-9  # relative, of sums that are computed in another order
LOOSE = 1e-6  # the same, after powers of them
REFUSE = 100.0  # times the clip


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a silo when its report comes in.

    Attributes
    ----------
    rows, counts
        n, and rows per atom, both frozen at the census; withheld atoms count 0.
    share
        p_k.
    member, sizes
        The silo's part of the cells, (Z, atoms), and its rows in each, (Z,).
    ceilings
        What its census implies.
    policy, schema
        Rules and names.
    """

    rows: int
    counts: FloatArray
    share: float
    member: FloatArray
    sizes: FloatArray
    ceilings: Ceilings
    policy: Policy
    schema: Schema

    def loss_sums(self, w: FloatArray, n: FloatArray, sums: FloatArray) -> None:
        """Refuse loss sums of n rows that no honest silo can have (fault 49)."""
        low, high = self.ceilings.losses(w, n)
        if self.policy.loss_bound is not None:
            high = np.minimum(high, self.policy.loss_bound * n)
        slack = ROUNDING * (n + np.where(np.isfinite(high), high, np.abs(sums)))
        within(sums, low - slack, high + slack, "a loss sum")
        require(bool((sums[n == 0] == 0).all()), "a loss where there are no rows")

    def mean_loss(self, w: FloatArray, risk: float, cells: FloatArray) -> float:
        """Judge p_k × the mean loss, alone and against the cells' sums; return it."""
        if self.share == 0:
            require(risk == 0, "a risk without a share")
            return 0.0
        mean = risk / self.share
        whole = np.array([mean * self.rows])
        self.loss_sums(w, np.array([float(self.rows)]), whole)
        slack = ROUNDING * (self.rows + abs(whole[0]))
        parts = bool((cells <= whole[0] + slack).all())
        require(parts, "a cell's loss is more than that of all rows")
        cover = self.member.sum(axis=0)[self.counts > 0]
        times = float(cover[0]) if len(cover) else 0.0
        if times and (cover == times).all() and self.counts.sum() == self.rows:
            sums = float(cells.sum())
            same = abs(sums - times * whole[0]) <= times * slack
            require(same, "the cells' losses do not add up to that of all rows")
        return mean


def check_census(
    total: CensusTotal, withheld: int, split: str, schema: Schema, policy: Policy
) -> None:
    """Judge counts and feature sums before they are frozen (fault 48)."""
    rows, counts = int(total.rows[0]), total.counts[0]
    require(0 <= rows <= policy.largest_rows, "an impossible number of rows")
    within(counts, np.zeros(len(counts)), np.full(len(counts), rows), "a count")
    short = rows - int(counts.sum())
    require(short >= 0, "more rows in groups than rows")
    require((short > 0) == (withheld > 0), "counts do not add up to the rows")
    empty = len(counts) - int(np.count_nonzero(counts))
    require(withheld <= empty, "counts that are withheld and given")
    sums, squares = total.feature_sums, total.feature_squares
    with np.errstate(over="ignore"):
        least = sums**2 / max(rows, 1)
    fits = squares * (1 + ROUNDING) >= least if rows else (sums == 0) & (squares == 0)
    require(bool(fits.all()), "feature sums and squares do not fit each other")


def check_train(known: Known, question: Train, total: TrainTotal) -> TrainTotal:
    """Judge an update and the losses before it; clip the update if it is too long."""
    require(total.share == known.share, "another share than the agreed one")
    w = question.w
    known.loss_sums(w, known.sizes, total.cell_losses)
    mean = known.mean_loss(w, total.risk, total.cell_losses)
    q, safe = question.loss_power, max(mean, 0.0) + TINY
    require(_near(total.powers[0], known.share * safe**q), "powers of another loss")
    weight = float(total.powers[0])
    if weight == 0:
        require(not total.update.any() and total.powers[1] == 0, "an update unweighted")
        return total
    part = trained(question.task.model, total.update)
    squared = float(part @ part)
    own = q * squared / weight / safe
    require(_near(total.powers[1], own), "powers of another update")
    limit = update_limit(known, question, mean)
    norm = float(np.sqrt(squared)) / weight
    if norm <= limit:
        return total
    require(norm <= REFUSE * limit, "an update far longer than its steps allow")
    factor = np.ones(len(total.update))
    factor[: len(part)] = limit / norm
    shorter = total.powers * np.array([1.0, (limit / norm) ** 2])
    return replace(total, update=total.update * factor, powers=shorter)


def update_limit(known: Known, question: Train, mean: float) -> float:
    """Return the longest update that is taken as it is (fault 50)."""
    per_atom = question.cell_weights @ known.member
    in_risk = question.risk_weight / known.rows
    kinds = np.append(in_risk + per_atom / known.share, in_risk)
    counts = np.append(known.counts, known.rows - known.counts.sum())
    proved = known.ceilings.update(question, kinds, counts, mean)
    given = known.policy.update_clip
    limit = proved if given is None else min(proved, given)
    # w_J − w is known to rounding of w only.
    return limit * (1 + ROUNDING) + 1e-3 * ROUNDING * float(np.linalg.norm(question.w))


def check_evaluate(known: Known, question: Evaluate, total: EvaluateTotal) -> None:
    """Judge counts, losses and predictions of one silo."""
    n, table = known.counts, {c: total.column(c) for c in COLUMNS}
    require(bool((table["count"] == n).all()), "counts changed since the census")
    known.loss_sums(question.w, n, table["loss"])
    limit = known.ceilings.squared_losses(question.w, n)
    _check_squares(table["loss"], table["loss_squared"], n, limit)
    M = question.loss_bound
    capped, squares = table["capped_loss"], table["capped_loss_squared"]
    _check_squares(capped, squares, n, limit)
    for small, large in ((capped, table["loss"]), (squares, table["loss_squared"])):
        slack = ROUNDING * (n + large)
        within(small, -slack, large + slack, "a capped loss")
        same = not np.isinf(M) or bool((np.abs(small - large) <= slack).all())
        require(same, "a capped loss")
    if np.isfinite(M):
        within(capped, -ROUNDING * n, M * n * (1 + ROUNDING), "a capped loss")
        within(squares, -n, M * capped + ROUNDING * n * (1 + M * M), "a capped loss")
    _check_predictions(known, table["correct"], table["positive"])
    expected = known.member @ total.atoms
    slack = ROUNDING * (1 + known.member @ np.abs(total.atoms))
    within(total.cells, expected - slack, expected + slack, "a cell's sums")
    share = known.share if known.rows else 0.0
    require(total.share == share, "another share than the agreed one")
    here = replace(known, share=share)
    here.mean_loss(question.w, total.risk, total.column("loss", of="cells"))
    if share and n.sum() == known.rows:
        whole = total.risk / share * known.rows
        sums = float(table["loss"].sum())
        require(abs(whole - sums) <= ROUNDING * (known.rows + sums), "a risk")


def check_curvature(known: Known, question: Curvature, total: CurvatureTotal) -> None:
    """Judge values, gradients, Hessians and scores of one silo."""
    sizes, w = known.sizes, question.w
    known.loss_sums(w, sizes, total.cell_losses)
    mean = known.mean_loss(w, total.risk, total.cell_losses)
    n = np.array([float(known.rows)])
    weight = known.share / max(known.rows, 1)
    most = known.ceilings.gradients(n, n * mean) * weight
    _check_length(total.risk_gradient[None], most, n * weight, "a gradient")
    most = known.ceilings.gradients(sizes, total.cell_losses)
    _check_length(total.cell_gradients, most, sizes, "a gradient")
    if question.order == 2:
        _check_hessians(known, total, weight)
    if question.sharpness:
        within(total.cell_scores, 0.0 * sizes, sizes * (1 + ROUNDING), "a score")
        steep = question.sharpness / 4 * np.sqrt(sizes) * known.ceilings.total
        _check_length(total.cell_score_gradients, steep, sizes, "a score's gradient")
    else:
        none = not (total.cell_scores.any() or total.cell_score_gradients.any())
        require(none, "scores that nobody asked for")
    peaks = np.zeros_like(total.peaks)
    if question.majorant and question.order == 2 and known.share > 0:
        own = np.concatenate([total.risk_hessian[None], total.cell_hessians])
        peaks = schatten(own[None] / known.share)[0]
    require(_near(total.peaks, peaks), "peaks of other Hessians")


def _check_hessians(known: Known, total: CurvatureTotal, weight: float) -> None:
    """Demand 0 ≤ H_ii ≤ curvature·q_i² and |H_ij|² ≤ H_ii·H_jj."""
    shape, columns = known.ceilings.shape, known.ceilings.columns
    if shape is None:
        return
    hessians = np.concatenate([total.risk_hessian[None], total.cell_hessians])
    q = np.tile(columns, hessians.shape[-1] // len(columns))
    scale = shape.curvature * np.append(weight, np.ones(len(known.member)))[:, None]
    diagonal = np.diagonal(hessians, axis1=1, axis2=2)
    slack = ROUNDING * scale * q**2
    within(diagonal, -slack, scale * q**2 + slack, "a Hessian's diagonal")
    root = np.sqrt(np.maximum(diagonal, 0.0) + slack)
    most = root[:, :, None] * root[:, None, :] * (1 + ROUNDING)
    within(hessians, -most, most, "a Hessian")


def _check_squares(
    sums: FloatArray, squares: FloatArray, n: FloatArray, limit: FloatArray
) -> None:
    """Demand (Σℓ)² ≤ n Σℓ², and Σℓ² ≤ (Σℓ)² and its ceiling."""
    slack = ROUNDING * (n + sums) ** 2
    require(bool((sums**2 <= n * squares + slack).all()), "squared losses too small")
    most = np.minimum(sums**2 + slack, limit * (1 + ROUNDING) + slack)
    require(bool((squares <= most).all()), "squared losses too large")


def _check_predictions(known: Known, correct: FloatArray, positive: FloatArray) -> None:
    """Demand whole numbers up to the counts, that fit the labels and each other."""
    n, labels = known.counts, len(known.schema.labels)
    for column in (correct, positive):
        within(column, np.zeros_like(n), n, "a count of predictions")
        whole = bool((column == np.round(column)).all())
        require(whole, "a count of predictions that is not whole")
    if not labels:
        require(not (correct.any() or positive.any()), "classes of a number")
        return
    label = np.arange(len(n)) % labels
    same = bool((correct == positive)[label == 1].all())
    if labels == 2:
        same = same and bool((correct + positive == n)[label == 0].all())
    require(same, "correct and positive predictions do not fit each other")


def _check_length(
    vectors: FloatArray, most: FloatArray, n: FloatArray, what: str
) -> None:
    """Demand ‖v‖ ≤ most for each row."""
    norms = np.linalg.norm(vectors, axis=1)
    within(norms, np.zeros_like(norms), most * (1 + ROUNDING) + ROUNDING * n, what)


def _near(a: FloatArray | float, b: FloatArray | float) -> bool:
    return bool(np.allclose(a, b, rtol=LOOSE, atol=1e-300))


def within(values: FloatArray, low: FloatArray, high: FloatArray, what: str) -> None:
    """Refuse numbers outside their range; NaN is outside of any."""
    inside = bool(((values >= low) & (values <= high)).all())
    require(inside, f"{what} outside what is possible")


def require(condition: bool, reason: str) -> None:
    """Refuse, unless the condition holds."""
    if not condition:
        raise Refused(reason)
