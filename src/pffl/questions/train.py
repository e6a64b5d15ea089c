"""`train`: J local steps on the silo's own objective, and the losses before them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pffl.models.base import Step, trained
from pffl.questions.base import ModelQuestion, View
from pffl.typing import FloatArray, IntArray

TINY = 1e-10  # added to a loss before a power of it is taken, as q-FFL's code does


@dataclass(frozen=True, eq=False)
class TrainTotal:
    """Sums over silos.

    Attributes
    ----------
    update
        Σ p_k Δ_k.
    share
        Σ p_k of those who answered (1 when all did).
    risk
        Σ p_k × silo k's mean loss at the w that was sent (no ridge).
    cell_losses
        Loss sums per cell at the w that was sent.
    powers
        Σ p_k F_k^q and Σ p_k q F_k^{q−1}‖Δ_k‖², see `Train.loss_power`.
    """

    update: FloatArray
    share: float
    risk: float
    cell_losses: FloatArray
    powers: FloatArray

    def __add__(self, other: TrainTotal) -> TrainTotal:
        return TrainTotal(
            self.update + other.update,
            self.share + other.share,
            self.risk + other.risk,
            self.cell_losses + other.cell_losses,
            self.powers + other.powers,
        )


@dataclass(frozen=True, eq=False)
class Train(ModelQuestion[TrainTotal]):
    """Ask for local training from `w`.

    Silo k descends G_k = (1/p_k) Σ_i c_i ℓ_i + β(μ/2)‖w‖² with
    c_i = β p_k/m_k + Σ_{z∋i} λ_z/m_z, whose p_k-weighted mean over silos is G.

    Attributes
    ----------
    risk_weight
        β.
    cell_weights
        λ_z/m_z, shape (Z,).
    step_sizes
        One per local step, so J is their number.
    batch_size
        Rows per step, drawn without replacement pass by pass; None for all.
    proximal
        Weight of FedProx's term (proximal/2)‖w − w_sent‖².
    seed, round
        With the silo's index they seed the batches.
    ridge
        Weight of (ridge/2)‖w‖² in every G_k; None for βμ.
    loss_power
        q: silo k's update counts F_k^q times, F_k its mean loss at `w`.
    silos
        Which silos are asked, by index; None for all.
    """

    risk_weight: float
    cell_weights: FloatArray
    step_sizes: FloatArray
    batch_size: int | None = None
    proximal: float = 0.0
    seed: int = 0
    round: int = 0
    ridge: float | None = None
    loss_power: float = 0.0
    silos: tuple[int, ...] | None = None
    split: str = field(default="train", init=False)

    def row_weights(self, view: View) -> FloatArray:
        """Return c_i/p_k for each of the silo's rows."""
        per_atom = self.cell_weights @ self.task.cells.of_silo(view.index)
        share = float(self.task.shares[view.index])
        per_row: FloatArray = per_atom[view.atom] / share if share > 0 else np.zeros(1)
        return per_row + np.full(len(view), self.risk_weight / len(view))

    @property
    def ridge_weight(self) -> float:
        """Weight of (·/2)‖w‖²."""
        return (
            self.risk_weight * self.task.model.l2 if self.ridge is None else self.ridge
        )

    def powers(self, loss: float, update: FloatArray) -> FloatArray:
        """Return F^q and q F^{q−1}‖Δ‖² for one silo."""
        q, safe = self.loss_power, loss + TINY
        if not q:
            return np.array([1.0, 0.0])
        return np.array([safe**q, q * safe ** (q - 1) * float(update @ update)])

    def batches(self, index: int, rows: int) -> Iterator[IntArray | slice]:
        """Yield the rows of each local step."""
        if self.batch_size is None or self.batch_size >= rows:
            for _ in self.step_sizes:
                yield slice(None)
            return
        sequence = np.random.SeedSequence(self.seed, spawn_key=(self.round, index))
        generator = np.random.default_rng(sequence)
        order = np.zeros(0, dtype=np.int64)
        for _ in self.step_sizes:
            if len(order) < self.batch_size:
                order = np.concatenate([order, generator.permutation(rows)])
            yield order[: self.batch_size]
            order = order[self.batch_size :]

    def steps(self, index: int) -> list[Step]:
        """Return the local steps of one silo."""
        return [
            Step(
                float(size),
                self.ridge_weight,
                self.proximal,
                self.w,
                (self.seed, self.round, index, j),
            )
            for j, size in enumerate(self.step_sizes)
        ]

    def answer(self, view: View) -> TrainTotal:
        """Answer for one silo: the plain loop that every engine must reproduce."""
        losses = self.task.model.losses(self.w, view.X, view.y)
        # Steps that are too large overflow; the server sees it and says "diverged".
        with np.errstate(over="ignore", invalid="ignore"):
            return self.total(view, losses, self.descend(view))

    def descend(self, view: View) -> FloatArray:
        """Return the w that one silo's local steps reach."""
        weights, w = self.row_weights(view), self.w.copy()
        for step, batch in zip(
            self.steps(view.index), self.batches(view.index, len(view)), strict=True
        ):
            scale = 1.0 if isinstance(batch, slice) else len(view) / len(batch)
            part = (view.X[batch], view.y[batch], weights[batch] * scale)
            w = self.task.model.local_step(w, *part, step)
        return w

    def total(self, view: View, losses: FloatArray, w: FloatArray) -> TrainTotal:
        """Return one silo's answer from its losses at `self.w` and the w it reached."""
        cells, share = self.task.cells, float(self.task.shares[view.index])
        atom_losses = view.atom_sums(losses, cells.membership.shape[1])
        mean = float(losses.mean())
        powers = self.powers(mean, trained(self.task.model, w - self.w))
        return TrainTotal(
            share * powers[0] * (w - self.w),
            share,
            share * mean,
            cells.of_silo(view.index) @ atom_losses,
            share * powers,
        )
