"""`evaluate`: counts, losses and predictions per (group, label) and per cell.

Every metric of the product is computed from these totals, and so is every statement on
unseen people: they are about the *bounded* predictor, whose loss is at most M.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from pffl.bounds.mean import LARGEST
from pffl.errors import Malformed, UsageError
from pffl.queries.base import ModelQuery, View
from pffl.queries.census import COUNT, WEIGHT
from pffl.queries.declared import (
    NOTHING,
    Dims,
    Row,
    Total,
    array,
    choice,
    empty,
    kept,
    number,
    scalar,
    table,
    text,
)
from pffl.queries.expand import linear
from pffl.queries.plausible import LOSS, Known, require
from pffl.queries.release import (
    UNIT,
    Adding,
    Part,
    Releasable,
    ReleasedSums,
    ScoredRows,
    blocks_of,
    check_linear,
)
from pffl.queries.stakes import (
    IMPOSSIBLE,
    RISES,
    STAKES,
    Stakes,
    means,
)
from pffl.typing import BoolArray, FloatArray, IntArray

MOST_TRIALS, MOST_BETS, MOST_LEVELS = 8, 16, 8
PREDICTED = Row(0.0, 1.0, whole=True, weighted=True, called="a count of predictions")
BOUNDED = Row(0.0, "M", weighted=True, called="a bounded loss")
ROWS = {
    "count": COUNT,
    "loss": LOSS,
    "loss_squared": replace(LOSS, loss=False),
    "bounded_loss": BOUNDED,
    "bounded_loss_squared": replace(BOUNDED, high="M²"),
    "correct": PREDICTED,
    "positive": PREDICTED,
    "weight": WEIGHT,
}
COLUMNS = tuple(ROWS)
OF_SILOS = ("count", "weight", "bounded_loss")
TRIED = replace(BOUNDED, high="largest M")
PEOPLE = (COUNT, *(replace(BOUNDED, high=most, weighted=False) for most in ("M", "M²")))
LOG_SUM = Row("log(1 − γ)", "largest log", called="a log-sum")
STAKE = Row(0.0, 1.0, called="a sum of weights")
RISE = Row(0.0, called="a sum of an alarm")


Bounded = Callable[[float], FloatArray]  # M → the bounded predictor's losses


class EvaluateTotal(Total):
    """Sums over silos.

    Attributes
    ----------
    atoms, cells
        Sums of `COLUMNS` per atom, shape (atoms, 8), and per cell, shape (Z, 8):
        `count` of rows, for floors and bounds, `weight` of their weights s_i, for
        means; all others are sums of s_i times what they say.
    risk, bounded_risk
        Σ p_k × silo k's mean loss, of the model and of the bounded predictor.
    share
        Σ p_k of the silos that have rows in the split.
    trials
        Σ s_i × bounded loss per cell, at each M that was to be tried.
    people
        Where bets were asked for: how many people a cell's rows are about, the sum of
        their mean bounded losses in it, and that of the squares; shape (Z, 3). Rows
        are people where nobody knows whom they are about.
    below
        Σ log(1 − γx) over the people of a cell, per bet γ, with x = mean bounded
        loss / M.
    stakes, diluted
        Where rows have weights, instead of the last two: sums of `STAKES` per cell,
        and Σ log(1 − γu) per cell, bet and level; see `bounds.mean`.
    rises
        For an alarm: sums of `RISES` per cell; then `diluted` are the log-sums of
        `bounds.alarm`.
    of_silos
        `OF_SILOS` per silo and cell, where answers came one by one, (K, Z, 3).
    """

    atoms: FloatArray = array("atoms", len(COLUMNS), row=tuple(ROWS.values()))
    cells: FloatArray = array("z", len(COLUMNS), row=tuple(ROWS.values()))
    risk: float = number(LOSS)
    bounded_risk: float = number(replace(BOUNDED, weighted=False))
    share: float = number(NOTHING)
    trials: FloatArray = array("z", "trials", row=TRIED)
    people: FloatArray = array("z", 3, row=PEOPLE)
    below: FloatArray = array("z", "bets", row=LOG_SUM)
    stakes: FloatArray = array("z", "stakes", row=STAKE)
    diluted: FloatArray = array("z", "tests", "levels", row=LOG_SUM)
    rises: FloatArray = array("z", "rises", row=RISE)
    of_silos: FloatArray = kept("told", len(OF_SILOS))

    def column(self, name: str, *, of: str = "atoms") -> FloatArray:
        """One column by name, per atom or (``of="cells"``) per cell."""
        table = self.atoms if of == "atoms" else self.cells
        column: FloatArray = table[:, COLUMNS.index(name)]
        return column


class Evaluate(Releasable, ModelQuery[EvaluateTotal]):
    """Ask how `w` does on a split.

    Attributes
    ----------
    loss_bound
        M of the bounded predictor; infinite where there is none.
    trials
        Other values of M, to be tried.
    bets
        γ of each cell, shape (Z, J), for confidence statements about unseen people.
    weight_bound, levels
        s_max, and losses of each cell at which bets are to be tested, shape (Z, G), in
        order, where rows have weights; infinite and none where they count alike.
    rising
        1 asks for the sums of an alarm: `levels` are then the bounds of the cells, and
        losses need none; see `bounds.alarm`.
    noise
        Of people, bounded losses and correct predictions of each atom, and of the
        log-sums of each block; bets are then the same for all cells.
    """

    total_type: ClassVar = EvaluateTotal
    releasable: ClassVar = ("counts", "losses", "correct", "logs")

    split: str = text(default="test")
    loss_bound: float = scalar(default=np.inf, optional=True)
    trials: FloatArray = table("any", most=MOST_TRIALS, default_factory=empty)
    bets: FloatArray = table("z", "any", most=MOST_BETS, default_factory=empty)
    weight_bound: float = scalar(default=np.inf, optional=True)
    levels: FloatArray = table("z", "any", most=MOST_LEVELS, default_factory=empty)
    rising: int = choice(0, 1, default=0)
    noise: FloatArray = table("any", most=4, default_factory=empty)
    adding: Adding | None = None

    def __post_init__(self) -> None:
        model, M = self.task.model, self.loss_bound
        for name in ("bets", "levels"):
            if getattr(self, name).size == 0:
                object.__setattr__(self, name, np.zeros((len(self.task.cells), 0)))
        if np.isfinite(M) and model.loss_bound(M) != M:
            raise UsageError(
                "[wrong-loss-bound] the loss bound is not that of the model's targets"
            )
        for trial in self.trials.tolist():
            if model.loss_bound(trial) != trial:
                raise UsageError(
                    "[wrong-loss-bound] loss bounds are tried for classifiers only"
                )
        if not ((self.bets > 0) & (self.bets <= LARGEST)).all():
            raise UsageError(
                f"[wrong-bets] a bet must be above 0, and at most {LARGEST:g}"
            )
        if self.bets.size and not (np.isfinite(M) or self.rising):
            raise UsageError("[wrong-bets] bets need a loss bound")
        self._check_levels()
        if self.released:
            self._check_release()

    def _check_release(self) -> None:
        """Refuse what has no declared length, and log-sums without bets."""
        self.check_noise()
        check_linear(self.task.model, self.loss_bound)
        alike = bool((self.bets == self.bets[:1]).all())
        if not alike or ("logs" in self.asked_for) != bool(self.bets.size):
            raise Malformed(
                "[wrong-bets] under noise bets are those of all cells, and go with "
                "log-sums"
            )

    def lengths(self) -> Mapping[str, Part]:
        """Return what is released: a person is in one atom, and in one block."""
        atoms, bets = self.task.cells.membership.shape[1], self.bets.shape[1]
        blocks = len(blocks_of(self.task.cells)[0])
        return {
            "counts": Part((atoms,), 1.0),
            "losses": Part((atoms,), self.loss_bound + 2.0**-UNIT),
            "correct": Part((atoms,), 1.0),
            "logs": Part((blocks, bets), math.nextafter(math.sqrt(bets), math.inf)),
        }

    def add_whole(self, view: View) -> Iterator[Mapping[str, IntArray]]:
        """Yield sums over some rows."""
        parts, model = self.parts, linear(self.task)
        atoms = np.eye(self.task.cells.membership.shape[1])
        blocks = blocks_of(self.task.cells)[0]
        for chunk in ScoredRows.each(model, self.w, view):
            out: dict[str, IntArray] = {}
            if "counts" in parts:
                out["counts"] = chunk.in_sets(np.ones(len(chunk.y)), atoms)
            if "losses" in parts:
                out["losses"] = chunk.in_sets(chunk.losses(self.loss_bound), atoms)
            if "correct" in parts:
                codes = np.asarray(model.score_classes(chunk.z), np.float64)
                right = (codes == chunk.y).astype(np.float64)
                out["correct"] = chunk.in_sets(right, atoms)
            if "logs" in parts:
                x = chunk.losses(self.loss_bound) / self.loss_bound
                # In units of −log(1 − γ): one row adds between −1 and 0 to each.
                logs = [
                    np.minimum(np.log1p(-bet * x) / np.log1p(-bet), 1.0)
                    for bet in self.bets[0]
                ]
                sums = [-chunk.in_sets(log, blocks) for log in logs]
                out["logs"] = np.stack(sums, axis=1)
            yield out

    def log_sums(self, total: ReleasedSums) -> FloatArray:
        """Return released Σ log(1 − γx) as numbers, shape (blocks, bets)."""
        return self.real(total, "logs") * -np.log1p(-self.bets[0])

    def log_deviations(self, adding: Adding) -> FloatArray:
        """Return the standard deviation of the noise in each of them, by bet."""
        return self.deviation("logs", adding) * -np.log1p(-self.bets[0])

    def _check_levels(self) -> None:
        """Refuse levels that no mean loss is at, and bets on weights without any."""
        levels, s_max = self.levels, self.weight_bound
        if self.rising:
            if not (self.weighs and s_max > 0 and (levels > 0).all()):
                raise UsageError(
                    "[wrong-levels] an alarm needs bounds above 0, and one on weights"
                )
            return
        good = (levels >= 0) & (levels <= self.loss_bound)
        if not good.all() or (np.diff(levels) < 0).any():
            raise UsageError(
                "[wrong-levels] levels must be from 0 to the loss bound, in order"
            )
        if self.weighs and not (s_max > 0 and np.isfinite(self.loss_bound)):
            raise UsageError(
                "[wrong-levels] weights need a bound above 0, and losses one"
            )
        if bool(levels.size) != (self.weighs and bool(self.bets.size)):
            raise UsageError(
                "[wrong-levels] levels go with bets and a bound on weights"
            )

    @property
    def weighs(self) -> bool:
        """Whether sums over weighted rows are asked for."""
        return bool(np.isfinite(self.weight_bound))

    @property
    def by_row(self) -> bool:
        """Whether more is asked than sums of columns."""
        return self.weighs or bool(self.bets.size)

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer."""
        if self.released:
            return {"n": self.length}
        bets, weighs = self.bets.shape[1], self.weighs
        own = {"trials": len(self.trials), "bets": 0 if weighs else bets}
        own |= {"tests": bets if weighs else 0, "levels": self.levels.shape[1]}
        own |= {"stakes": len(STAKES) if weighs and not self.rising else 0}
        return {**super().dims, **own, "rises": len(RISES) * self.rising}

    @property
    def scales(self) -> Mapping[str, float]:
        """Numbers that an answer's ranges name."""
        return {
            "M": self.loss_bound,
            "M²": self.loss_bound**2,
            "largest M": float(self.trials.max(initial=0.0)),
            "log(1 − γ)": float(np.log1p(-self.bets.max(initial=0.0))),
            "largest log": np.inf if self.rising else 0.0,
        }

    @property
    def caps(self) -> tuple[float, ...]:
        """Bounds of losses: each is a point of their distribution."""
        known = (self.loss_bound,) if np.isfinite(self.loss_bound) else ()
        return (*known, *self.trials.tolist())

    def gradients(self, rows: float) -> float:
        """Count none: losses only."""
        return 0.0

    def passes(self, rows: float) -> float:
        """Half a gradient."""
        return 0.5

    @property
    def width(self) -> int:
        """Number of columns, trials included."""
        return len(COLUMNS) + len(self.trials)

    def columns(
        self,
        losses: FloatArray,
        classes: FloatArray | None,
        y: FloatArray,
        bounded: Bounded,
    ) -> FloatArray:
        """Per-example values of `COLUMNS`, and of the trials, shape (n, 8 + trials)."""
        cut = bounded(self.loss_bound) if np.isfinite(self.loss_bound) else losses
        blank = np.zeros_like(losses)
        return np.stack(
            [
                np.ones_like(losses),
                losses,
                losses**2,
                cut,
                cut**2,
                blank if classes is None else (classes == y).astype(np.float64),
                blank if classes is None else (classes == 1).astype(np.float64),
                np.ones_like(losses),
                *(bounded(trial) for trial in self.trials.tolist()),
            ],
            axis=1,
        )

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
    ) -> tuple[FloatArray, ...]:
        """Return `people`, `below`, `stakes`, `diluted` and `rises`.

        ``member(z)`` says which rows are in a cell. Rows of one person are no
        independent draws: each person counts once in a cell, with their mean. `times`
        says for how many rows each stands, where nobody knows whom they are about and
        no weights are asked about.
        """
        cells, dims = len(self.bets), self.dims
        people, below = np.zeros((cells, 3)), np.zeros((cells, dims["bets"]))
        stakes = np.zeros((cells, dims["stakes"]))
        diluted = np.zeros((cells, dims["tests"], dims["levels"]))
        rises = np.zeros((cells, dims["rises"]))
        for z, bets in enumerate(self.bets if self.by_row else ()):
            rows = member(z)
            x, who = bounded[rows], None if person is None else person[rows]
            if self.weighs:
                s = np.ones(len(x)) if weight is None else weight[rows]
                if self.rising:
                    own = Stakes.of(x, s / self.weight_bound, who)
                    never = self.task.model.n_classes > 0 and x >= IMPOSSIBLE
                    rises[z] = own.rises(int(np.sum(never)))
                    diluted[z] = own.log_rises(bets, float(self.levels[z, 0]))
                    continue
                own = Stakes.of(x / self.loss_bound, s / self.weight_bound, who)
                stakes[z] = own.sums()
                diluted[z] = own.log_sums(bets, self.levels[z] / self.loss_bound)
                continue
            cut = bounded[rows] if who is None else means(bounded[rows], who)
            many = np.ones(len(cut)) if times is None else times[rows]
            sums = (many, many * cut, many * np.square(cut))
            people[z] = [each.sum() for each in sums]
            x = cut[:, None] / self.loss_bound
            below[z] = many @ np.log1p(-bets * x)
        return people, below, stakes, diluted, rises

    def answer(self, view: View) -> EvaluateTotal:
        """Answer for one silo."""
        if self.released:
            whole: Any = self.whole(view)
            return whole
        model, w = self.task.model, self.w
        losses, classes = model.losses(w, view.X, view.y), model.classes(w, view.X)

        def bounded(bound: float) -> FloatArray:
            return model.bounded_losses(w, view.X, view.y, bound)

        return self.total(view, losses, classes, bounded)

    def total(
        self,
        view: View,
        losses: FloatArray,
        classes: FloatArray | None,
        bounded: Bounded,
    ) -> EvaluateTotal:
        """Return one silo's answer from its losses and predicted classes.

        ``bounded(M)`` are the losses of the bounded predictor.
        """
        cells = self.task.cells
        columns = self.columns(losses, classes, view.y, bounded)
        weighed = self.weighed(columns, view.weight)
        atoms = view.atom_sums(weighed, cells.membership.shape[1])
        here = cells.of_silo(view.index).astype(bool)
        sums, width = here @ atoms, len(COLUMNS)
        share = float(self.task.shares[view.index]) if len(view) else 0.0
        cut = columns[:, COLUMNS.index("bounded_loss")]
        logs = self.row_sums(
            cut, lambda z: here[z][view.atom], view.person, view.weight
        )
        return EvaluateTotal(
            atoms[:, :width],
            sums[:, :width],
            share * view.mean(losses) if len(view) else 0.0,
            share * view.mean(cut) if len(view) else 0.0,
            share,
            sums[:, width:],
            *logs,
        )

    def pooled(self, total: EvaluateTotal, views: Sequence[View]) -> EvaluateTotal:
        """Count people once who have rows in several silos; or add noise."""
        if self.released:
            noised: Any = super().pooled(total, views)
            return noised
        known = [view.person for view in views if view.person is not None]
        if not self.by_row or len(known) < len(views):
            return total
        cells, w, M = self.task.cells, self.w, self.loss_bound
        model = self.task.model
        cut = [model.bounded_losses(w, v.X, v.y, M) for v in views]
        atom = np.concatenate([view.atom for view in views])
        silo = np.repeat([view.index for view in views], [len(v) for v in views])

        def member(z: int) -> BoolArray:
            rows: BoolArray = cells.membership[z][atom]
            return rows if cells.everywhere[z] else rows & (silo == cells.silo[z])

        weights = [v.weigh(np.ones(len(v))) for v in views]
        who, weight = np.concatenate(known), np.concatenate(weights)
        found = self.row_sums(np.concatenate(cut), member, who, weight)
        names = ("people", "below", "stakes", "diluted", "rises")
        parts: dict[str, Any] = dict(zip(names, found, strict=True))
        return replace(total, **parts)

    def keeping(
        self, total: EvaluateTotal, parts: Sequence[EvaluateTotal]
    ) -> EvaluateTotal:
        """Return the total with each silo's part of the cells."""
        if self.released:
            return total
        columns = [COLUMNS.index(name) for name in OF_SILOS]
        return replace(total, of_silos=np.stack([p.cells[:, columns] for p in parts]))

    def check(self, known: Known, total: EvaluateTotal) -> EvaluateTotal:
        """Judge counts, losses and predictions of one silo."""
        if not self.released:
            same = bool((total.column("count") == known.counts).all())
            require(same, "counts changed since the census")
            known.judge(self, total)
        return total
