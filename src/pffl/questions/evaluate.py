"""`evaluate`: counts, losses and predictions per (group, label) and per cell.

Every metric of the product is computed from these totals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from pffl.questions.base import ModelQuestion, View
from pffl.questions.census import COUNT, WEIGHT
from pffl.questions.declared import (
    NOTHING,
    ROUNDING,
    Row,
    Total,
    array,
    number,
    scalar,
    text,
)
from pffl.questions.plausible import LOSS, Known, require, within
from pffl.typing import FloatArray

PREDICTED = Row(0.0, 1.0, whole=True, called="a count of predictions")
ROWS = {
    "count": COUNT,
    "loss": LOSS,
    "loss_squared": LOSS,
    "capped_loss": Row(0.0, "M", called="a capped loss"),
    "capped_loss_squared": Row(0.0, "M²", called="a capped loss"),
    "correct": PREDICTED,
    "positive": PREDICTED,
    "weight": WEIGHT,
}
COLUMNS = tuple(ROWS)


class EvaluateTotal(Total):
    """Sums over silos.

    Attributes
    ----------
    atoms, cells
        Sums of `COLUMNS` per atom, shape (atoms, 8), and per cell, shape (Z, 8):
        `count` of rows, for floors and bounds, `weight` of sample weights, for means.
    risk
        Σ p_k × silo k's mean loss.
    share
        Σ p_k of the silos that have rows in the split.
    """

    atoms: FloatArray = array("atoms", len(COLUMNS), row=tuple(ROWS.values()))
    cells: FloatArray = array("z", len(COLUMNS), row=tuple(ROWS.values()))
    risk: float = number(LOSS)
    share: float = number(NOTHING)

    def column(self, name: str, *, of: str = "atoms") -> FloatArray:
        """One column by name, per atom or (``of="cells"``) per cell."""
        table = self.atoms if of == "atoms" else self.cells
        column: FloatArray = table[:, COLUMNS.index(name)]
        return column


class Evaluate(ModelQuestion[EvaluateTotal]):
    """Ask how `w` does on a split.

    `loss_bound` is M: the capped columns count a loss as at most M, which is what
    confidence statements about unseen people need.
    """

    total_type: ClassVar = EvaluateTotal

    split: str = text(default="test")
    loss_bound: float = scalar(default=np.inf, optional=True)

    @property
    def scales(self) -> Mapping[str, float]:
        """Numbers that an answer's ranges name."""
        return {"M": self.loss_bound, "M²": self.loss_bound**2}

    @property
    def caps(self) -> tuple[float, ...]:
        """Caps on losses: each is a point of their distribution."""
        return (self.loss_bound,) if np.isfinite(self.loss_bound) else ()

    def gradients(self, rows: float) -> float:
        """Count none: losses only."""
        return 0.0

    def columns(
        self, losses: FloatArray, classes: FloatArray | None, y: FloatArray
    ) -> FloatArray:
        """Per-example values of `COLUMNS`, shape (n, 8)."""
        capped = np.minimum(losses, self.loss_bound)
        blank = np.zeros_like(losses)
        return np.stack(
            [
                np.ones_like(losses),
                losses,
                losses**2,
                capped,
                capped**2,
                blank if classes is None else (classes == y).astype(np.float64),
                blank if classes is None else (classes == 1).astype(np.float64),
                np.ones_like(losses),
            ],
            axis=1,
        )

    def answer(self, view: View) -> EvaluateTotal:
        """Answer for one silo."""
        model = self.task.model
        losses = model.losses(self.w, view.X, view.y)
        return self.total(view, losses, model.classes(self.w, view.X))

    def total(
        self, view: View, losses: FloatArray, classes: FloatArray | None
    ) -> EvaluateTotal:
        """Return one silo's answer from its losses and predicted classes."""
        cells = self.task.cells
        columns = self.columns(losses, classes, view.y)
        atoms = view.atom_sums(columns, cells.membership.shape[1])
        share = float(self.task.shares[view.index]) if len(view) else 0.0
        return EvaluateTotal(
            atoms,
            cells.of_silo(view.index) @ atoms,
            share * float(losses.mean()) if len(view) else 0.0,
            share,
        )

    def losses(self, total: EvaluateTotal) -> FloatArray:
        """Return the loss sums of the cells at w."""
        return total.column("loss", of="cells")

    def check(self, known: Known, total: EvaluateTotal) -> EvaluateTotal:
        """Judge counts, losses and predictions of one silo."""
        n, table = known.counts, {c: total.column(c) for c in COLUMNS}
        for name in ("count", "weight"):
            require(bool((table[name] == n).all()), f"{name}s changed since the census")
        known.loss_sums(self.w, n, table["loss"])
        limit = known.ceilings.squared_losses(self.w, n)
        _check_squares(table["loss"], table["loss_squared"], n, limit)
        M = self.loss_bound
        capped, squares = table["capped_loss"], table["capped_loss_squared"]
        _check_squares(capped, squares, n, limit)
        for small, large in ((capped, table["loss"]), (squares, table["loss_squared"])):
            slack = ROUNDING * (n + large)
            within(small, -slack, large + slack, "a capped loss")
            same = not np.isinf(M) or bool((np.abs(small - large) <= slack).all())
            require(same, "a capped loss")
        if np.isfinite(M):
            most = M * capped + ROUNDING * n * (1 + M * M)
            within(squares, -n, most, "a capped loss")
        total.check_ranges(known.in_each, self.scales)
        _check_predictions(known, table["correct"], table["positive"])
        expected = known.member @ total.atoms
        slack = ROUNDING * (1 + known.member @ np.abs(total.atoms))
        within(total.cells, expected - slack, expected + slack, "a cell's sums")
        share = known.share if known.rows else 0.0
        require(total.share == share, "another share than the agreed one")
        here = replace(known, share=share)
        here.mean_loss(self.w, total.risk, total.column("loss", of="cells"))
        if share and n.sum() == known.rows:
            whole = total.risk / share * known.rows
            sums = float(table["loss"].sum())
            require(abs(whole - sums) <= ROUNDING * (known.rows + sums), "a risk")
        return total


def _check_squares(
    sums: FloatArray, squares: FloatArray, n: FloatArray, limit: FloatArray
) -> None:
    """Demand (Σℓ)² ≤ n Σℓ², and Σℓ² ≤ (Σℓ)² and its ceiling."""
    slack = ROUNDING * (n + sums) ** 2
    require(bool((sums**2 <= n * squares + slack).all()), "squared losses too small")
    most = np.minimum(sums**2 + slack, limit * (1 + ROUNDING) + slack)
    require(bool((squares <= most).all()), "squared losses too large")


def _check_predictions(known: Known, correct: FloatArray, positive: FloatArray) -> None:
    """Demand predictions that fit the labels and each other."""
    n, labels = known.counts, len(known.schema.labels)
    if not labels:
        require(not (correct.any() or positive.any()), "classes of a number")
        return
    label = np.arange(len(n)) % labels
    same = bool((correct == positive)[label == 1].all())
    if labels == 2:
        same = same and bool((correct + positive == n)[label == 0].all())
    require(same, "correct and positive predictions do not fit each other")
