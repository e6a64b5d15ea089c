"""Small cells: which (group, label) a site withholds, and how nothing of it leaves.

Cells are unions of atoms (group × label), so no difference of cells is smaller than an
atom, and the floor acts on atoms. Rows of a withheld atom get an extra code that
belongs to no cell: they count in F, and in nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from pffl.questions import (
    CensusTotal,
    Curvature,
    Evaluate,
    EvaluateTotal,
    Question,
    Total,
    Train,
    View,
)
from pffl.typing import BoolArray, IntArray

Asked: TypeAlias = Train | Evaluate | Curvature


def withheld(counts: IntArray, floor: int) -> BoolArray:
    """Say which atoms to withhold, given the rows of each.

    All with 0 < rows < floor; and the next smallest, until at least two atoms and
    `floor` rows are: F less all cells that are shown is the sum over what is withheld.

    >>> withheld(np.array([3, 40, 12, 0]), floor=10).tolist()
    [True, False, True, False]
    """
    hidden = (counts > 0) & (counts < floor)
    if not hidden.any():
        return hidden
    for atom in np.argsort(counts, kind="stable"):
        if hidden.sum() > 1 and counts[hidden].sum() >= floor:
            break
        hidden[atom] |= counts[atom] > 0
    return hidden


def padded(question: Asked) -> Asked:
    """Return the question with one more atom, which belongs to no cell."""
    cells = question.task.cells
    wider = np.pad(cells.membership, ((0, 0), (0, 1)))
    task = replace(question.task, cells=replace(cells, membership=wider))
    return replace(question, task=task)


def moved(view: View, hidden: BoolArray) -> View:
    """Return the rows with those of withheld atoms in the extra atom."""
    return replace(view, atom=np.where(hidden[view.atom], len(hidden), view.atom))


def answer(question: Question[Any], view: View, hidden: BoolArray) -> Total:
    """Answer without the withheld atoms; the extra one is taken off again."""
    if not isinstance(question, Asked):
        raise TypeError(f"{type(question).__name__} is none of the questions")
    if not hidden.any():
        return question.answer(view)
    total = padded(question).answer(moved(view, hidden))
    if isinstance(total, EvaluateTotal):
        return replace(total, atoms=total.atoms[:-1])
    return total


def census(total: CensusTotal, hidden: BoolArray) -> CensusTotal:
    """Return a census whose withheld counts are 0."""
    return replace(total, counts=np.where(hidden, 0, total.counts))
