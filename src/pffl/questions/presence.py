"""`presence`: how many rows of each atom there are, and at how many silos enough.

Asked before the census where silos' answers are added under masks: what is withheld is
then decided by totals, and by everybody alike.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pffl.data.schema import withheld
from pffl.questions.base import RowsQuestion, View
from pffl.questions.declared import Row, Total, array, text, whole
from pffl.typing import BoolArray, IntArray

COUNT = Row(0.0, 1.0, whole=True, called="a count")
SILO = Row(0.0, whole=True, called="a number of silos")
FEWEST = 3  # silos that must have enough rows of an atom: two know each other's sums


class PresenceTotal(Total):
    """Sums over silos.

    Attributes
    ----------
    counts
        Rows of each atom.
    silos_with
        Silos that have at least `Presence.floor` rows of it.
    """

    counts: IntArray = array("atoms", row=COUNT)
    silos_with: IntArray = array("atoms", row=SILO)

    def hidden(self, floor: int, fewest: int = FEWEST) -> BoolArray:
        """Say which atoms nobody is told of, below; none with a floor below 2.

        Those with rows, but fewer than `floor`, or with enough of them at fewer than
        `fewest` silos; and the next smallest, see `withheld`.
        """
        few = (self.counts < floor) | (self.silos_with < fewest)
        if floor < 2:
            few[:] = False
        return withheld(self.counts, few, floor)


class Presence(RowsQuestion[PresenceTotal]):
    """Ask which atoms there are enough rows of."""

    total_type: ClassVar = PresenceTotal

    split: str = text(default="train")
    floor: int = whole(default=1)

    def answer(self, view: View) -> PresenceTotal:
        """Answer for one silo."""
        counts = np.bincount(view.atom, minlength=self.schema.n_atoms)
        enough = counts >= max(self.floor, 1)
        return PresenceTotal(counts, enough.astype(np.int64))
