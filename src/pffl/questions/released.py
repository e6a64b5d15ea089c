"""What an answer lets out: how many numbers, about which rows.

It follows from the declared fields. A number about all rows, a cell or an atom is one
equation in the inputs of its rows, so a site can count equations against unknowns
(`site.release`). Differences are counted, too: what a message says of F and of some
cells says as much of every set of rows that these cut out, and so do messages whose
cells cut the rows in different ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, TypeAlias

import numpy as np

from pffl.questions.base import Question
from pffl.questions.declared import AnswerField
from pffl.typing import BoolArray, FloatArray, IntArray

Atoms: TypeAlias = tuple[int, ...]  # codes, in order: a set of rows
Charges: TypeAlias = dict[Atoms, int]  # numbers about each
Layout: TypeAlias = tuple[Atoms, ...]  # sets that do not overlap, in order
Told: TypeAlias = dict[Layout, int]  # numbers about every set of each
RELEASE = 0.25  # numbers per row and input: no attack that was tried found a row
LARGEST = 2**30  # of what the flow is computed with, in 32 bits


@dataclass(frozen=True)
class Numbers:
    """Numbers of an answer that depend on inputs: about all rows, each cell, atom."""

    of_all: int
    of_cell: int
    of_atom: int

    @classmethod
    def of(cls, question: Question[Any]) -> Numbers:
        """Count the declared fields of a question's answers."""
        count = {"": 0, "z": 0, "atoms": 0}
        lengths = {"K": 1, **question.dims}
        lengths |= {f"△{name}": n * (n + 1) // 2 for name, n in lengths.items()}
        for field in question.total_type.declared.values():
            axes = field.sent.axes
            if field.envelope or field.implied:
                continue
            one = _numbers(field, lengths)
            if "1+z" in axes:  # F stands first
                count[""] += one
                count["z"] += one
            else:
                count[next((a for a in ("atoms", "z") if a in axes), "")] += one
        return cls(count[""], count["z"], count["atoms"])


def _numbers(field: AnswerField, lengths: Mapping[str, int]) -> int:
    """Count a field's numbers that depend on inputs, for each of its sets of rows."""
    others = [a for a in field.sent.axes if a not in ("atoms", "z", "1+z")]
    sizes = [a if isinstance(a, int) else lengths[a] for a in others]
    if len(field.rows) > 1:
        sizes[-1] = sum(row.inputs for row in field.rows)
    elif not field.rows[0].inputs:
        return 0
    return math.prod(sizes)


def told_by(question: Question[Any], shown: BoolArray) -> Told:
    """Return how many numbers an answer tells of which sets of rows.

    Cells and F cut the shown atoms into blocks, and what is told of them all is told of
    each block, in differences. Where the server weighs the cells, as in `train`, what
    is told of all rows is told of a block at the next weights. Single atoms bear what
    is told of them beside that.
    """
    numbers, there = Numbers.of(question), np.flatnonzero(shown)
    cells = None if question.task is None else question.task.cells.membership
    whole: Layout = (tuple(there.tolist()),)
    if cells is None or not len(cells):
        found = [(whole, numbers.of_all)]
    else:
        weighed = any("z" in (of.axes or ()) for of in question.asked.values())
        in_block = numbers.of_cell + weighed * numbers.of_all
        found = [(whole, numbers.of_all - in_block), (_alike(cells, there), in_block)]
    found.append((tuple((atom,) for atom in there.tolist()), numbers.of_atom))
    return summed({layout: many} for layout, many in found if many > 0 and len(there))


def _alike(cells: BoolArray, there: IntArray) -> Layout:
    """Cut atoms into those that are in the same cells."""
    _, code = np.unique(cells[:, there], axis=1, return_inverse=True)
    codes = code.reshape(-1)
    blocks = [there[codes == one].tolist() for one in range(codes.max(initial=-1) + 1)]
    return tuple(sorted(map(tuple, blocks)))


def summed(parts: Iterable[Told]) -> Told:
    """Add what was told."""
    found: Told = {}
    for part in parts:
        for layout, many in part.items():
            found[layout] = found.get(layout, 0) + many
    return found


def charges_of(told: Told) -> Charges:
    """Return how many numbers were told of each set, as such."""
    found: Charges = {}
    for layout, many in told.items():
        for atoms in layout:
            found[atoms] = found.get(atoms, 0) + many
    return found


def crossed(told: Told) -> Charges:
    """Return what was told in differences between layouts that cut across each other.

    As long as every layout only cuts up the sets of another, sums over these sets are
    all that there is. Sets that overlap in part are told apart where both are told of
    at one w: then every part bears what was told of all.
    """
    layouts = sorted(told, key=len)
    if all(_cuts_up(fine, coarse) for coarse, fine in pairwise(layouts)):
        return {}
    parts: dict[Layout, list[int]] = {}
    for atom in sorted({atom for layout in told for one in layout for atom in one}):
        around = tuple(one for layout in layouts for one in layout if atom in one)
        parts.setdefault(around, []).append(atom)
    return {tuple(atoms): sum(told.values()) for atoms in parts.values()}


def _cuts_up(fine: Layout, coarse: Layout) -> bool:
    """Whether every set of one layout is made of sets of the other."""
    same = sorted(chain(*fine)) == sorted(chain(*coarse))
    return same and all(any(set(f) <= set(c) for c in coarse) for f in fine)


def bears(charges: Mapping[Atoms, int], room: FloatArray) -> bool:
    """Whether atoms with so much room can bear what was told, each set by its own.

    That is so if and only if no union of atoms has less room than numbers were told of
    sets within it (Hall): the one rule covers every set and every difference.
    """
    sets = [(atoms, many) for atoms, many in charges.items() if many]
    told, free = sum(many for _, many in sets), np.minimum(np.floor(room), 1e18)
    if not told or all(told <= free[list(atoms)].min() for atoms, _ in sets):
        return True
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    scale = max(1.0, told / LARGEST)
    needed = [math.ceil(many / scale) for _, many in sets]
    source, sink, first = 0, 1 + len(sets) + len(room), 1 + len(sets)
    edges = [(source, 1 + i, many) for i, many in enumerate(needed)]
    for i, (atoms, _) in enumerate(sets):
        edges += [(1 + i, first + atom, needed[i]) for atom in atoms]
    edges += [
        (first + atom, sink, min(int(free[atom] / scale), LARGEST))
        for atom in range(len(room))
    ]
    tails, heads, capacity = np.array(edges, dtype=np.int64).T
    graph = csr_array(
        (capacity.astype(np.int32), (tails, heads)), shape=(sink + 1, sink + 1)
    )
    return int(maximum_flow(graph, source, sink).flow_value) >= sum(needed)
