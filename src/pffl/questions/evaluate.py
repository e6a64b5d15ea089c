"""`evaluate`: counts, losses and predictions per (group, label) and per cell.

Every metric of the product is computed from these totals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pffl.questions.base import ModelQuestion, View
from pffl.typing import FloatArray

COLUMNS = (
    "count",
    "loss",
    "loss_squared",
    "capped_loss",
    "capped_loss_squared",
    "correct",
    "positive",
)


@dataclass(frozen=True, eq=False)
class EvaluateTotal:
    """Sums over silos.

    Attributes
    ----------
    atoms, cells
        Sums of `COLUMNS` per atom, shape (atoms, 7), and per cell, shape (Z, 7).
    risk
        Σ p_k × silo k's mean loss.
    share
        Σ p_k of the silos that have rows in the split.
    """

    atoms: FloatArray
    cells: FloatArray
    risk: float
    share: float

    def __add__(self, other: EvaluateTotal) -> EvaluateTotal:
        return EvaluateTotal(
            self.atoms + other.atoms,
            self.cells + other.cells,
            self.risk + other.risk,
            self.share + other.share,
        )

    def column(self, name: str, *, of: str = "atoms") -> FloatArray:
        """One column by name, per atom or (``of="cells"``) per cell."""
        table = self.atoms if of == "atoms" else self.cells
        column: FloatArray = table[:, COLUMNS.index(name)]
        return column


@dataclass(frozen=True, eq=False)
class Evaluate(ModelQuestion[EvaluateTotal]):
    """Ask how `w` does on a split.

    `loss_bound` is M: the capped columns count a loss as at most M, which is what
    confidence statements about unseen people need.
    """

    split: str = "test"
    loss_bound: float = np.inf

    def columns(
        self, losses: FloatArray, classes: FloatArray | None, y: FloatArray
    ) -> FloatArray:
        """Per-example values of `COLUMNS`, shape (n, 7)."""
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
