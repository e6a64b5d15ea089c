"""What each silo has reported so far, in memory, and reports that do not go with it.

Flags refuse nothing: an honest silo may earn one. They are named in the run record,
without figures.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from pffl.admission.ceilings import Ceilings
from pffl.admission.reports import Known
from pffl.questions import Train, TrainTotal
from pffl.typing import FloatArray

LONGEST = 200  # values kept of a series
FEWEST = 10  # changes before a change can be unusual
UNUSUAL = 20.0  # times the median change


@dataclass
class Series:
    """Loss sums of one silo's cells in one split, and the w they were taken at.

    A **jump** is a change that the move of w does not allow: for losses with slopes of
    at most ρ, |Δ Σℓ| ≤ ρ √n_z A(Δw); for squares, |Δ √Σℓ| ≤ A(Δw) (see
    `pffl.admission.ceilings`). One of the two reports is then false. Where the model
    has no such constant, a jump is more than 20 times the median of earlier changes.
    """

    w: FloatArray | None = None
    values: deque[FloatArray] = field(default_factory=lambda: deque(maxlen=LONGEST))

    def add(
        self, w: FloatArray, sums: FloatArray, n: FloatArray, ceilings: Ceilings
    ) -> bool:
        """Take the next report, and say whether it is a jump."""
        before, here = self.values[-1] if self.values else None, self.w
        jump = False
        if before is not None and here is not None:
            jump = self._jumps(w - here, before, sums, n, ceilings)
        self.w = w
        self.values.append(sums)
        return jump

    def _jumps(
        self,
        moved: FloatArray,
        before: FloatArray,
        sums: FloatArray,
        n: FloatArray,
        ceilings: Ceilings,
    ) -> bool:
        shape, slack = ceilings.shape, 1e-9 * (n + np.abs(before) + np.abs(sums))
        if shape is None:
            return self._unusual(sums)
        reach = ceilings.reach(moved)
        if shape.slope is not None:
            allowed = shape.slope * np.sqrt(n) * reach + slack
            return bool((np.abs(sums - before) > allowed).any())
        change = np.abs(np.sqrt(np.maximum(sums, 0)) - np.sqrt(np.maximum(before, 0)))
        return bool((change > reach + np.sqrt(slack) * 1e-3).any())

    def _unusual(self, sums: FloatArray) -> bool:
        if len(self.values) <= FEWEST:
            return False
        changes = np.abs(np.diff(np.stack([*self.values, sums]), axis=0))
        usual = np.median(changes[:-1], axis=0)
        return bool((changes[-1] > UNUSUAL * usual + 1e-9).any())


@dataclass(frozen=True, eq=False)
class Descent:
    """A silo's report of a round of training, as a statement on its own objective.

    G_k(w) = βF_k(w) + Σ_z (λ_z/m_z p_k) L_kz(w) + (ridge/2)‖w‖² is known at every w
    that the silo reported losses for, whatever λ; and with J = 1 its update says ∇G_k.
    """

    w: FloatArray
    mean: float  # F_k
    losses: FloatArray  # L_kz
    update: FloatArray  # Δ_k
    length: float  # Σ η_j
    steps: int  # J
    risk_weight: float
    cell_weights: FloatArray  # λ_z/(m_z p_k)
    ridge: float
    cells: bytes
    convex: bool  # whether G_k is, and Δ_k was taken on all of its rows

    @classmethod
    def of(cls, question: Train, total: TrainTotal, known: Known) -> Descent:
        """Read a report of a silo with a share."""
        whole = question.batch_size is None or question.batch_size >= known.rows
        lifted = bool((question.cell_weights[known.sizes > 0] < 0).any())
        length = float(question.step_sizes.sum())
        return cls(
            question.w,
            total.risk / total.share,
            total.cell_losses,
            total.update / total.powers[0],
            length,
            len(question.step_sizes),
            question.risk_weight,
            question.cell_weights / total.share,
            question.ridge_weight,
            known.member.tobytes(),
            question.task.model.convex and whole and not lifted and length > 0,
        )

    def value(self, at: Descent) -> float:
        """Return G_k with this round's weights, at the w of another report."""
        losses = self.risk_weight * at.mean + float(self.cell_weights @ at.losses)
        return losses + 0.5 * self.ridge * float(at.w @ at.w)

    def fits(self, before: Descent) -> bool:
        """Whether G_k is convex between two reports, as it must be.

        With d the move of w and g = −Δ/Σ η: g_before·d ≤ change of G_k ≤ g_now·d, each
        with its own round's weights. With more than one step, g is a mean over the
        local path, and what it may be off by is put at ‖Δ‖²/Σ η (half of it for two):
        enough unless steps are large for many of the directions.
        """
        d = self.w - before.w
        rise = before.value(self) - before.value(before)
        if rise < before.slope(d) - before.leeway(rise, d):
            return False
        rise = self.value(self) - self.value(before)
        return rise <= self.slope(d) + self.leeway(rise, d)

    def slope(self, d: FloatArray) -> float:
        """Return g·d."""
        return -float(self.update @ d) / self.length

    def leeway(self, rise: float, d: FloatArray) -> float:
        """Return what rounding, and more than one step, allow."""
        path = float(self.update @ self.update) / self.length
        size = abs(self.value(self)) + abs(rise) + abs(self.slope(d))
        return 1e-9 * size + min((self.steps - 1) / 2, 1.0) * path


@dataclass
class Updates:
    """The last report of training of each silo.

    Two flags: the very same update for another w ("repeated"), and updates that
    contradict the silo's own losses ("slope"), as those with the sign turned do.
    """

    last: dict[int, Descent] = field(default_factory=dict)

    def flags(
        self, index: int, question: Train, total: TrainTotal, known: Known
    ) -> tuple[str, ...]:
        """Take a silo's next report, and say what is odd."""
        if not (total.share > 0 and total.powers[0] > 0):
            return ()
        before = self.last.get(index)
        now = self.last[index] = Descent.of(question, total, known)
        # A run that has converged moves w by rounding only, and nothing else changes.
        if before is None or np.allclose(before.w, now.w, rtol=1e-9, atol=1e-12):
            return ()
        found = []
        if total.update.any() and np.array_equal(before.update, now.update):
            found.append("repeated")
        convex = before.convex and now.convex and before.cells == now.cells
        if convex and not now.fits(before):
            found.append("slope")
        return tuple(found)
