"""`train`: J local steps on the silo's own objective, and the losses before them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from pffl.errors import Malformed
from pffl.models.base import Step
from pffl.queries.base import (
    AGREED,
    LOSS,
    CheckStep,
    Dims,
    Total,
    View,
    array,
    empty,
    vector,
)
from pffl.queries.expand import linear
from pffl.queries.release import (
    Part,
    TrainingQuery,
    blocks_of,
    longest_gradient,
    losses_part,
    refuse,
)
from pffl.typing import FloatArray, IntArray

MAX_STEPS = 1_000_000
TINY = 1e-10  # added to a loss before a power of it is taken, as q-FFL's code does


class TrainTotal(Total):
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
        Σ p_k F_k^q and Σ p_k q F_k^{q−1}‖Δ_k‖², see `Train.loss_power`; by mass, both
        M_k times. Updates are added with the weights of the first.
    gradient
        Σ_i c_i ∇ℓ_i at the w that was sent (no ridge); empty unless asked for.
    """

    update: FloatArray = array("p")
    share: float = array(row=AGREED)
    risk: float = array(row=LOSS)
    cell_losses: FloatArray = array("z", row=LOSS)
    powers: FloatArray = array(2)
    gradient: FloatArray = array("g")


class Train(TrainingQuery[TrainTotal]):
    """Ask for local training from `w`.

    Silo k descends G_k = (1/p_k) Σ_i c_i ℓ_i + β(μ/2)‖w‖² with
    c_i = s_i(β p_k/m_k + Σ_{z∋i} λ_z/m_z), whose p_k-weighted mean over silos is G.

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
        Weight of (ridge/2)‖w‖² in every G_k; None for βμ (`Model.mu`).
    loss_power
        q: silo k's update counts F_k^q times, F_k its mean loss at `w`.
    slope
        Whether the answer has the gradient at `w`.
    anchor, anchor_weights, anchor_gradient
        An earlier w, its λ_z/m_z, and the mean gradient that all silos had there; empty
        for none. Every local gradient is then corrected for drift: the silo's own at
        the anchor, on the same rows, is taken off, and that of all is added.
    by_mass
        Whether silo k steps η/M_k and its update counts M_k times, where
        M_k = β + Σ_z |λ_z|m_kz/(m_z p_k) is what its rows weigh together in G_k. One
        full step is then the same step on G; of more, none goes farther than with
        rows of weight 1, whatever λ.
    silos
        Which silos are asked, by index; None for all.
    noise, loss_bound, people
        Under noise a step is one, on all rows: its gradient Σ c_i∇ℓ_i is released, in
        units of the heaviest c, and losses up to M of each block. `people` is the
        released m by which F is a mean.
    """

    total_type: ClassVar = TrainTotal
    releasable: ClassVar = ("losses", "gradient")

    risk_weight: float
    cell_weights: FloatArray = vector("z")
    step_sizes: FloatArray = vector("any", most=MAX_STEPS)
    batch_size: int | None = None
    proximal: float = 0.0
    seed: int = 0
    round: int = 0
    ridge: float | None = None
    loss_power: float = 0.0
    slope: bool = False
    anchor: FloatArray = vector("p", default_factory=empty)
    anchor_weights: FloatArray = vector("z", default_factory=empty)
    anchor_gradient: FloatArray = vector("p", default_factory=empty)
    by_mass: bool = False
    silos: tuple[int, ...] | None = None
    people: float = 0.0

    def __post_init__(self) -> None:
        z = len(self.cell_weights) if self.corrected else 0
        given = len(self.anchor_gradient), len(self.anchor_weights)
        if self.batch_size == 0 or given != (len(self.anchor), z):
            raise Malformed("batches without rows, or an anchor without its gradient")
        if self.corrected and self.by_mass and not self.risk_weight > 0:
            raise Malformed("a correction for drift, and steps by mass without a risk")
        super().__post_init__()

    def check_release(self) -> None:
        """Refuse what has no declared length."""
        super().check_release()
        several = len(self.step_sizes) != 1 or self.batch_size is not None
        if several or self.loss_power or self.corrected or self.silos is not None:
            refuse("several local steps, batches, powers of losses, some of the silos")
        if not (self.people > 0 and self.heaviest > 0):
            raise Malformed("no-weights:check-release")

    @property
    def stratum_weights(self) -> FloatArray:
        """Weights c of rows by stratum, from public values: β/m + Σ_z λ_z/m_z."""
        in_cells = self.cell_weights @ self.task.cells.membership
        return np.asarray(self.risk_weight / self.people + in_cells)

    @property
    def heaviest(self) -> float:
        """The largest c."""
        return float(np.abs(self.stratum_weights).max())

    def declared_parts(self) -> Mapping[str, Part]:
        """Return what is released: a person is in one block."""
        model, (sets, _) = linear(self.task), blocks_of(self.task.cells)
        longest = longest_gradient(model)
        weights = self.stratum_weights / self.heaviest
        return {
            "losses": losses_part(self.loss_bound, sets),
            "gradient": Part(
                (model.n_parameters,), longest, lambda rows: rows.gradient(weights)
            ),
        }

    @property
    def corrected(self) -> bool:
        """Whether local gradients are corrected for drift."""
        return len(self.anchor) > 0

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer; g is that of the gradient."""
        if self.released:
            return {"n": self.length}
        p = self.task.model.n_parameters
        return {**super().dims, "g": p if self.slope else 0}

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        """Everything that rows are scored with, whatever the rows are.

        A correction alone moves w by all steps times its gradient, whose sender chooses
        it; a ridge may turn w around on the way. No silo's mass is below β.
        """
        if not self.corrected:
            return (self.w,)
        longest = self.step_sizes.sum() / (self.risk_weight if self.by_mass else 1.0)
        pushed = longest * self.anchor_gradient
        return self.w, self.anchor, self.w - pushed, self.w + pushed

    def row_weights(
        self, view: View, cell_weights: FloatArray | None = None
    ) -> FloatArray:
        """Return c_i/p_k for each of the silo's rows, at w or with other weights."""
        chosen = self.cell_weights if cell_weights is None else cell_weights
        per_stratum = chosen @ self.task.cells.of_silo(view.index)
        share = float(self.task.shares[view.index])
        per_row: FloatArray = (
            per_stratum[view.stratum] / share if share > 0 else np.zeros(1)
        )
        return view.weigh(per_row + np.full(len(view), self.risk_weight / view.mass))

    def mass(self, view: View) -> float:
        """Return M_k, by which a silo's steps are divided; 1 where they are not."""
        if not self.by_mass:
            return 1.0
        per_stratum = np.abs(self.cell_weights) @ self.task.cells.of_silo(view.index)
        in_cells = float(view.weigh(np.asarray(per_stratum)[view.stratum]).sum())
        share = float(self.task.shares[view.index])
        return self.risk_weight + (in_cells / share if share > 0 else 0.0)

    @property
    def ridge_weight(self) -> float:
        """Weight of (·/2)‖w‖²."""
        return (
            self.risk_weight * self.task.model.mu if self.ridge is None else self.ridge
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

    def steps(self, view: View) -> list[Step]:
        """Return the local steps of one silo, without what drift is corrected by.

        A silo without weight takes none.
        """
        mass = self.mass(view)
        sizes = self.step_sizes / mass if mass > 0 else 0.0 * self.step_sizes
        return [
            Step(
                float(size),
                self.ridge_weight,
                self.proximal,
                self.w,
                (self.seed, self.round, view.index, j),
            )
            for j, size in enumerate(sizes)
        ]

    def answer(self, view: View) -> TrainTotal:
        """Answer for one silo: the plain loop that every engine must reproduce."""
        return self.within(view, lambda w: None)

    def within(self, view: View, check: CheckStep) -> TrainTotal:
        """Answer for one silo; `check` is shown each w at which a step begins."""
        if self.released:
            return self.add_whole(view)
        losses = self.task.model.losses(self.w, view.X, view.y)
        # Steps that are too large overflow; the server sees it and says "diverged".
        with np.errstate(over="ignore", invalid="ignore"):
            return self.total(view, losses, self.descend(view, check))

    def descend(self, view: View, check: CheckStep = lambda w: None) -> FloatArray:
        """Return the w that one silo's local steps reach."""
        weights, w, model = self.row_weights(view), self.w.copy(), self.task.model
        shift: FloatArray | None = None
        for step, batch in zip(
            self.steps(view), self.batches(view.index, len(view)), strict=True
        ):
            check(w)
            scale = 1.0 if isinstance(batch, slice) else len(view) / len(batch)
            X, y = view.X[batch], view.y[batch]
            if self.corrected and (shift is None or not isinstance(batch, slice)):
                there = self.row_weights(view, self.anchor_weights)[batch] * scale
                own = model.step_gradient(self.anchor, X, y, there, step.key)
                shift = self.anchor_gradient - own
            moved = step if shift is None else replace(step, shift=shift)
            w = model.local_step(w, X, y, weights[batch] * scale, moved)
        return w

    def own_gradient(self, view: View) -> FloatArray:
        """Return Σ_i c_i ∇ℓ_i of one silo at w; empty unless asked for."""
        if not self.slope:
            return np.zeros(0)
        model, weights = self.task.model, self.row_weights(view)
        found = model.losses_and_gradient(self.w, view.X, view.y, weights)[1]
        return float(self.task.shares[view.index]) * found

    def total(self, view: View, losses: FloatArray, w: FloatArray) -> TrainTotal:
        """Return one silo's answer from its losses at `self.w` and the w it reached."""
        cells, share = self.task.cells, float(self.task.shares[view.index])
        stratum_losses = view.stratum_sums(
            view.weigh(losses), cells.membership.shape[1]
        )
        mean = view.mean(losses)
        powers = self.powers(mean, (w - self.w)[: self.task.model.n_trained])
        powers *= self.mass(view)
        return TrainTotal(
            share * powers[0] * (w - self.w),
            share,
            share * mean,
            cells.of_silo(view.index) @ stratum_losses,
            share * powers,
            self.own_gradient(view),
        )

    @property
    def leaves_ball(self) -> bool:
        """Whether local steps lead out of any ball, whatever the rows are."""
        sizes, pull = self.step_sizes, self.ridge_weight + self.proximal
        return bool((sizes < 0).any() or (sizes * pull > 2).any())
