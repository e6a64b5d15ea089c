"""`presence`: how many silos have enough rows of each atom.

Asked before the census where silos' answers are added under masks: what is withheld is
then decided by everybody alike. No count of rows is told before that is known: one of a
single person would be told, too.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pffl.data.schema import counted_alike
from pffl.questions.base import RowsQuestion, View
from pffl.questions.declared import Row, Total, array, text, whole
from pffl.typing import BoolArray, IntArray

SILO = Row(0.0, whole=True, called="a number of silos")
FEWEST = 3  # silos that must have enough rows of an atom: two know each other's sums


class PresenceTotal(Total):
    """Sums over silos.

    Attributes
    ----------
    silos_with
        Silos that have at least `Presence.floor` rows of each atom, all of which count.
    """

    silos_with: IntArray = array("atoms", row=SILO)

    def hidden(self, floor: int, fewest: int = FEWEST) -> BoolArray:
        """Say which atoms nobody is told of: too few silos have `floor` rows of them.

        With a floor below 2 none is.
        """
        if floor < 2:
            return np.zeros(len(self.silos_with), dtype=bool)
        return self.silos_with < fewest


class Presence(RowsQuestion[PresenceTotal]):
    """Ask which atoms a silo has enough rows of."""

    total_type: ClassVar = PresenceTotal

    split: str = text(default="train")
    floor: int = whole(default=1)

    def answer(self, view: View) -> PresenceTotal:
        """Answer for one silo."""
        counts = counted_alike(view.atom, view.weight, self.schema.n_atoms)
        return PresenceTotal((counts >= max(self.floor, 1)).astype(np.int64))
