"""The verdict in one word and one sentence that names the worst cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pffl.certificates._checks import Numbers, finite, nonnegative, refuse, whole
from pffl.certificates.statement import Verdict
from pffl.certificates.words import down, up, words
from pffl.typing import FloatArray

AT_THE_BOUND = 1e-6  # a margin this small is rounding


@dataclass(frozen=True, eq=False)
class CellLosses:
    """Names, rows, loss sums and bounds of all cells, in one split.

    Attributes
    ----------
    names
        What to call each cell.
    counts, totals
        Rows and loss sum of each cell, shape (Z,).
    bounds
        ζ, shape (Z,).
    """

    names: tuple[str, ...]
    counts: FloatArray
    totals: FloatArray
    bounds: FloatArray

    @classmethod
    def of(
        cls, names: tuple[str, ...], counts: Numbers, totals: Numbers, bounds: Numbers
    ) -> CellLosses:
        """Check and build."""
        parts = (
            whole("counts", counts),
            nonnegative("totals", totals),
            finite("bounds", bounds),
        )
        if any(part.shape != (len(names),) for part in parts):
            raise refuse("counts, totals, bounds", "one per name", len(names))
        return cls(tuple(names), *parts)

    @property
    def means(self) -> FloatArray:
        """Mean loss per cell; NaN where there are no rows."""
        safe = np.maximum(self.counts, 1.0)
        return np.where(self.counts > 0, self.totals / safe, np.nan)

    @property
    def violation(self) -> FloatArray:
        """Mean loss minus bound, per cell; NaN where there are no rows."""
        return self.means - self.bounds

    @property
    def empty(self) -> tuple[str, ...]:
        """Names of cells without rows."""
        return tuple(self.names[z] for z in np.flatnonzero(self.counts == 0))

    @property
    def worst(self) -> int:
        """The cell that is furthest above (or least below) its bound."""
        return int(np.nanargmax(self.violation))

    def describe(self, z: int) -> str:
        """Say how cell z stands, in words."""
        loss, bound, excess = self.means[z], self.bounds[z], self.violation[z]
        side = f"{up(excess)} above it" if excess > 0 else f"{down(-excess)} below it"
        if -AT_THE_BOUND <= excess <= 0:
            side = "right at it"
        return (
            f"'{self.names[z]}' has a mean loss of {words(loss)} against a bound of "
            f"{words(bound)}: {side}"
        )


def judge(
    cells: CellLosses,
    *,
    slack: float | None = None,
    impossible: bool = False,
    tolerance: float = 0.0,
) -> tuple[Verdict, str]:
    """Return the verdict on the training rows and its sentence.

    `slack` is the threshold of Lemma 1 (`empirical.threshold`), if it is known;
    `impossible` says that no model meets all bounds, as a proof showed; `tolerance`
    counts as "at the bound" (a solver's precision) and is named in the sentence if
    used. Every cell needs rows.
    """
    if cells.empty or not cells.names:
        raise refuse("cells", "at least one, each with rows", cells.empty)
    worst = cells.worst
    excess, facts = float(cells.violation[worst]), cells.describe(worst)
    if excess <= 0:
        return "met", (
            f"Every bound is met on the training rows; the closest case: {facts}."
        )
    if impossible:
        return "infeasible", (
            "No model can meet all bounds, and this is proved; "
            f"the worst case here: {facts}."
        )
    if excess <= tolerance:
        return "met", (
            "Every bound is met on the training rows, up to the tolerance "
            f"{words(tolerance)}; the worst case: {facts}."
        )
    if slack is not None and excess <= slack:
        return "within_slack", (
            f"Not every bound is met; the worst case: {facts}. This is within the "
            f"slack of {up(slack)} that the multiplier bound allows."
        )
    return "not_met", f"Not every bound is met; the worst case: {facts}."
