"""`evaluate`: counts, losses and predictions per (group, label) and per cell.

Every metric of the product is computed from these totals, and so is every statement on
unseen people: they are about the *bounded* predictor, whose loss is at most M.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from pffl.bounds.mean import LARGEST, MOMENTS
from pffl.errors import Malformed, UsageError
from pffl.queries.base import (
    AGREED,
    LOSS,
    Dims,
    ModelQuery,
    RowRange,
    Total,
    View,
    array,
    empty,
    vector,
)
from pffl.queries.census import COUNT, WEIGHT
from pffl.queries.release import (
    Adding,
    Part,
    Releasable,
    ReleasedSums,
    ScoredRows,
    blocks_of,
    check_linear,
    losses_part,
)
from pffl.typing import BoolArray, FloatArray, IntArray

STAKES = ("count", "above", *MOMENTS)
RISES = ("count", "above", "impossible", "t", "tx")
IMPOSSIBLE = 744.0  # log loss of a probability that a 64-bit number cannot tell from 0
MOST = 1e290  # a loss next to its bound: a larger one counts as this
MAX_BETS, MAX_LEVELS = 16, 8
PREDICTED = RowRange(0.0, 1.0, whole=True, weighted=True)
BOUNDED = RowRange(0.0, lambda query: query.loss_bound, weighted=True)
SQUARED = RowRange(0.0, lambda query: query.loss_bound**2, weighted=True)
ROWS = {
    "count": COUNT,
    "loss": LOSS,
    "loss_squared": LOSS,
    "bounded_loss": BOUNDED,
    "bounded_loss_squared": SQUARED,
    "correct": PREDICTED,
    "positive": PREDICTED,
    "weight": WEIGHT,
}
COLUMNS = tuple(ROWS)
BY_ROW = ("people", "logs", "rises")  # not sums of columns
LOG_SUM = RowRange(
    lambda query: float(np.log1p(-query.bets.max(initial=0.0))),
    lambda query: np.inf if query.rising else 0.0,
)
PERSON = (COUNT, COUNT, *[RowRange(0.0, 1.0)] * (len(STAKES) - 2))


class EvaluateTotal(Total):
    """Sums over silos.

    Attributes
    ----------
    strata, cells
        Sums of `COLUMNS` per stratum, shape (strata, 8), and per cell, shape (Z, 8):
        `count` of rows, for floors and bounds, `weight` of their weights s_i, for
        means; all others are sums of s_i times what they say.
    risk, bounded_risk
        Σ p_k × silo k's mean loss, of the model and of the bounded predictor.
    share
        Σ p_k of the silos that have rows in the split.
    people
        Where a bound on weights was given: sums of `STAKES` over the people of each
        cell. Rows are people where no id is known.
    logs
        Σ log(1 − γu) over a cell's people, per bet and level; see `bounds.mean`.
    rises
        For an alarm: sums of `RISES` per cell; then `logs` are the log-sums of
        `bounds.alarm`.
    """

    strata: FloatArray = array("strata", len(COLUMNS), row=tuple(ROWS.values()))
    cells: FloatArray = array("z", len(COLUMNS), row=tuple(ROWS.values()))
    risk: float = array(row=LOSS)
    bounded_risk: float = array(row=replace(BOUNDED, weighted=False))
    share: float = array(row=AGREED)
    people: FloatArray = array("z", len(STAKES), row=PERSON)
    logs: FloatArray = array("z", "bets", "levels", row=LOG_SUM)
    rises: FloatArray = array("z", "rises", row=RowRange(0.0))

    def column(self, name: str, *, of: str = "strata") -> FloatArray:
        """One column by name, per stratum or (``of="cells"``) per cell."""
        table = self.strata if of == "strata" else self.cells
        column: FloatArray = table[:, COLUMNS.index(name)]
        return column


class Evaluate(Releasable[EvaluateTotal], ModelQuery[EvaluateTotal]):
    """Ask how `w` does on a split.

    Attributes
    ----------
    loss_bound
        M of the bounded predictor; infinite without one.
    bets
        γ of each cell, shape (Z, J), for confidence statements about unseen people.
    weight_bound, levels
        s_max, and losses of each cell at which bets are to be tested, shape (Z, G), in
        order. Bets without them are on unweighted rows: 1, and from 0 to M.
    rising
        Asks for the sums of an alarm: `levels` are then the bounds of the cells, and
        losses need none; see `bounds.alarm`.
    noise
        Of people, bounded losses and correct predictions of each stratum, and of the
        log-sums of each block; bets are then the same for all cells.
    """

    total_type: ClassVar = EvaluateTotal
    releasable: ClassVar = ("counts", "losses", "correct", "logs")

    split: str = "test"
    loss_bound: float = np.inf
    bets: FloatArray = vector("z", "any", most=MAX_BETS, default_factory=empty)
    weight_bound: float = np.inf
    levels: FloatArray = vector("z", "any", most=MAX_LEVELS, default_factory=empty)
    rising: bool = False

    def __post_init__(self) -> None:
        model, M = self.task.model, self.loss_bound
        many, given = len(self.task.cells), bool(self.levels.size)
        if self.bets.size and not (given or self.weighs or self.released):
            object.__setattr__(self, "weight_bound", 1.0)
            object.__setattr__(self, "levels", np.tile([0.0, M], (many, 1)))
        for name in ("bets", "levels"):
            if getattr(self, name).size == 0:
                object.__setattr__(self, name, np.zeros((many, 0)))
        if np.isfinite(M) and model.loss_bound(M) != M:
            raise UsageError("wrong-loss-bound:evaluate")
        if not ((self.bets > 0) & (self.bets <= LARGEST)).all():
            raise UsageError("wrong-bets:evaluate", largest=LARGEST)
        if self.bets.size and not (np.isfinite(M) or self.rising):
            raise UsageError("wrong-bets:evaluate-2")
        self._check_levels()
        super().__post_init__()

    def _check_levels(self) -> None:
        """Refuse levels that no mean loss is at, and bets on weights without any."""
        levels, M = self.levels, self.loss_bound
        if self.rising:
            good = self.weighs and self.weight_bound > 0 and bool((levels > 0).all())
        else:
            inside = ((levels >= 0) & (levels <= M)).all()
            ordered = (np.diff(levels) >= 0).all()
            bounded = not self.weighs or (self.weight_bound > 0 and np.isfinite(M))
            pairs = bool(levels.size), bool(self.bets.size)
            paired = pairs in ((False, False), (self.weighs, True)) or self.released
            good = bool(inside and ordered and bounded and paired)
        if not good:
            raise UsageError("wrong-levels")

    def check_release(self) -> None:
        """Refuse what has no declared length, and log-sums without bets."""
        check_linear(self.task.model, self.loss_bound)
        same = bool((self.bets == self.bets[:1]).all())
        if not same or ("logs" in self.parts) != bool(self.bets.size):
            raise Malformed("wrong-bets:check-release")

    def declared_parts(self) -> Mapping[str, Part]:
        """Return what is released: a person is in one stratum, and in one block."""
        cells, M, J = self.task.cells, self.loss_bound, self.bets.shape[1]
        strata, (blocks, _) = np.eye(cells.membership.shape[1]), blocks_of(cells)

        def counts(rows: ScoredRows) -> IntArray:
            return rows.in_sets(np.ones(len(rows.y)), strata)

        def correct(rows: ScoredRows) -> IntArray:
            codes = np.asarray(rows.model.score_classes(rows.z), np.float64)
            return rows.in_sets((codes == rows.y).astype(np.float64), strata)

        def logs(rows: ScoredRows) -> IntArray:
            """In units of −log(1 − γ): one row adds between −1 and 0 to each."""
            x, sums = rows.losses(M) / M, []
            for bet in self.bets[0]:
                log = np.minimum(np.log1p(-bet * x) / np.log1p(-bet), 1.0)
                sums.append(-rows.in_sets(log, blocks))
            return np.stack(sums, axis=1)

        longest = math.nextafter(math.sqrt(J), math.inf)
        return {
            "counts": Part((len(strata),), 1.0, counts),
            "losses": losses_part(M, strata),
            "correct": Part((len(strata),), 1.0, correct),
            "logs": Part((len(blocks), J), longest, logs),
        }

    def chunks(self, view: View) -> Iterator[ScoredRows]:
        """Yield the rows as the model scores them at w."""
        return ScoredRows.each(self.task.model, self.w, view)

    def log_sums(self, total: ReleasedSums) -> FloatArray:
        """Return released Σ log(1 − γx) as numbers, shape (blocks, bets)."""
        return self.real(total, "logs") * -np.log1p(-self.bets[0])

    def log_deviations(self, adding: Adding) -> FloatArray:
        """Return the standard deviation of the noise in each of them, by bet."""
        return self.deviation("logs", adding) * -np.log1p(-self.bets[0])

    @property
    def weighs(self) -> bool:
        """Whether sums over people are asked for: more than sums of columns."""
        return bool(np.isfinite(self.weight_bound))

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer."""
        if self.released:
            return {"n": self.length}
        own = {"bets": self.bets.shape[1], "levels": self.levels.shape[1]}
        own |= {"rises": len(RISES) * self.rising}
        return {**super().dims, **own}

    def bounded(self, losses: FloatArray, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return losses of the bounded predictor; those of classes need no scores."""
        M, model = self.loss_bound, self.task.model
        if np.isinf(M):
            return losses
        if model.n_classes:
            return model.bounded(losses, M)
        return model.score_bounded_losses(z, y, M)

    def columns(
        self,
        losses: FloatArray,
        classes: FloatArray | None,
        y: FloatArray,
        cut: FloatArray,
    ) -> FloatArray:
        """Per-example values of `COLUMNS`, shape (n, 8)."""
        blank = np.zeros_like(losses)
        found = [
            np.ones_like(losses),
            losses,
            losses**2,
            cut,
            cut**2,
            blank if classes is None else classes == y,
            blank if classes is None else classes == 1,
            np.ones_like(losses),
        ]
        return np.array(found, dtype=np.float64).T  # each column in one piece

    def weighed(
        self,
        columns: FloatArray,
        weight: FloatArray | None,
        times: FloatArray | float = 1.0,
    ) -> FloatArray:
        """Return `columns` times s_i; the count times how many rows each stands for."""
        if weight is None:
            return columns
        weighed = columns * weight[:, None]
        weighed[:, COLUMNS.index("count")] = times
        return weighed

    def row_sums(
        self,
        bounded: FloatArray,
        member: Callable[[int], BoolArray],
        person: IntArray | None = None,
        weight: FloatArray | None = None,
        times: FloatArray | None = None,
    ) -> dict[str, FloatArray]:
        """Return `people`, `logs` and `rises`, by name.

        ``member(z)`` says which rows are in a cell. Rows of one person are no
        independent draws: each person counts once in a cell, with their mean. `times`
        says for how many rows each stands, where no id is known.
        """
        shapes = {n: EvaluateTotal.declared[n].shape(self.dims) for n in BY_ROW}
        out = {name: np.zeros(shape) for name, shape in shapes.items()}
        unit = 1.0 if self.rising else self.loss_bound
        for z, bets in enumerate(self.bets if self.weighs else ()):
            rows = member(z)
            x, who = bounded[rows], None if person is None else person[rows]
            many = None if times is None else times[rows]
            s = np.ones(len(x)) if weight is None else weight[rows]
            own = Stakes.of(x / unit, s / self.weight_bound, who, many)
            if self.rising:
                never = (x >= IMPOSSIBLE) * (1.0 if many is None else many)
                never = never * (self.task.model.n_classes > 0)
                out["rises"][z] = own.rises(never.sum())
                out["logs"][z] = own.log_rises(bets, float(self.levels[z, 0]))
            else:
                out["people"][z] = own.sums()
                out["logs"][z] = own.log_sums(bets, self.levels[z] / unit)
        return out

    def answer(self, view: View) -> EvaluateTotal:
        """Answer for one silo."""
        if self.released:
            return self.add_whole(view)
        model, y = self.task.model, view.y
        z = model.scores(self.w, view.X)
        losses, classes = model.score_losses(z, y), model.score_classes(z)
        return self.total(view, losses, classes, self.bounded(losses, z, y))

    def total(
        self,
        view: View,
        losses: FloatArray,
        classes: FloatArray | None,
        cut: FloatArray,
    ) -> EvaluateTotal:
        """Return one silo's answer from its losses, classes and bounded losses."""
        cells = self.task.cells
        columns = self.columns(losses, classes, view.y, cut)
        weighed = self.weighed(columns, view.weight)
        strata = view.stratum_sums(weighed, cells.membership.shape[1])
        here = cells.of_silo(view.index).astype(bool)
        share = float(self.task.shares[view.index]) if len(view) else 0.0
        logs = self.row_sums(
            cut, lambda z: here[z][view.stratum], view.person, view.weight
        )
        return EvaluateTotal(
            strata,
            here @ strata,
            share * view.mean(losses) if len(view) else 0.0,
            share * view.mean(cut) if len(view) else 0.0,
            share,
            **logs,
        )

    def pooled(self, total: EvaluateTotal, views: Sequence[View]) -> Any:
        """Count people once who have rows in several silos; or add noise."""
        known = [view.person for view in views if view.person is not None]
        if self.released or not self.weighs or len(known) < len(views):
            return super().pooled(total, views)
        cells, model = self.task.cells, self.task.model
        cut = [model.bounded_losses(self.w, v.X, v.y, self.loss_bound) for v in views]
        stratum = np.concatenate([view.stratum for view in views])
        silo = np.repeat([view.index for view in views], [len(v) for v in views])

        def member(z: int) -> BoolArray:
            rows: BoolArray = cells.membership[z][stratum]
            return rows if cells.everywhere[z] else rows & (silo == cells.silo[z])

        weight = np.concatenate([v.weigh(np.ones(len(v))) for v in views])
        person = np.concatenate(known)
        sums: Any = self.row_sums(np.concatenate(cut), member, person, weight)
        return replace(total, **sums)


@dataclass(frozen=True, eq=False)
class Stakes:
    """What the people of one cell put in: t, tx, and how many rows are above s_max.

    `times` says how many people each entry stands for.
    """

    t: FloatArray
    tx: FloatArray
    times: FloatArray
    above: float

    @classmethod
    def of(
        cls,
        x: FloatArray,
        weights: FloatArray,
        person: IntArray | None,
        times: FloatArray | None,
    ) -> Stakes:
        """Return those of rows with these x and weights in units of s_max.

        A person who has several rows counts once, with the mean of their weights and
        their weighted mean loss.
        """
        t, many = np.minimum(weights, 1.0), np.ones(len(x)) if times is None else times
        tx, above = t * x, float(many[weights > 1.0].sum())
        if person is not None:
            _, who, rows = np.unique(person, return_inverse=True, return_counts=True)
            t, tx = (np.bincount(who, v, len(rows)) / rows for v in (t, tx))
            many = np.ones(len(rows))
        return cls(t, tx, many, above)

    def sums(self) -> FloatArray:
        """Return the sums of `STAKES`."""
        t, tx, many = self.t, self.tx, self.times
        parts = (t, tx, t * t, t * tx, tx * tx)
        return np.array([many.sum(), self.above, *(many @ part for part in parts)])

    def log_sums(self, bets: FloatArray, levels: FloatArray) -> FloatArray:
        """Return Σ log(1 − γu), u = tx + (1 − t)z, shape (bets, levels)."""
        out, same = np.zeros((len(bets), len(levels))), bool((self.t == 1.0).all())
        for place, z in enumerate(levels[:1] if same else levels):
            u = self.tx + (1.0 - self.t) * z
            for j, bet in enumerate(bets):
                out[j, place] = self.times @ np.log1p(-bet * u)
        return np.repeat(out[:, :1], len(levels), axis=1) if same else out

    def rises(self, impossible: float) -> FloatArray:
        """Return the sums of `RISES`."""
        many, sums = self.times, (self.times @ self.t, self.times @ self.tx)
        return np.array([many.sum(), self.above, impossible, *sums])

    def log_rises(self, bets: FloatArray, level: float) -> FloatArray:
        """Return Σ log(1 + γ(tx/ζ − t)), x the loss itself, shape (bets, 1)."""
        over = np.minimum(self.tx / level, MOST) - self.t
        return np.array([[self.times @ np.log1p(bet * over)] for bet in bets])
