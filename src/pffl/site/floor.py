"""The floor: a site leaves out its own people of which it has few, whatever others say.

It acts on the smallest sets into which the cells of the agreed constraint split:
groups, or (group, label)s where the bounds are conditional. Which rows are left out
follows from the site's own rows and from what its people agreed to; no message changes
it.
"""

from __future__ import annotations

import numpy as np

from pffl.constraints.base import Constraint
from pffl.data.schema import Schema, counted_alike
from pffl.data.silo import Rows
from pffl.errors import Problems, UsageError
from pffl.site.agreement import Agreement
from pffl.typing import BoolArray, IntArray


def agreed_sets(agreement: Agreement) -> IntArray:
    """Number, for each atom, the set of the agreed constraint that it is in.

    Where no run was agreed on, each atom is a set.
    """
    schema = agreement.schema
    if not agreement.run:
        return np.arange(schema.n_atoms)
    from pffl.config import read_constraint

    with Problems("the agreed run", UsageError) as problems:
        constraint = read_constraint(agreement.run.get("constraint"), problems)
    return sets_of(constraint, schema, agreement.sites)


def sets_of(
    constraint: Constraint | None, schema: Schema, sites: tuple[str, ...]
) -> IntArray:
    """Number the smallest sets into which a constraint's cells split, by atom."""
    if constraint is None:
        return np.zeros(schema.n_atoms, dtype=np.int64)
    member = constraint.cells(schema, sites).membership
    return np.unique(member, axis=1, return_inverse=True)[1].reshape(-1)


def left_out(rows: Rows, schema: Schema, sets: IntArray, floor: int) -> BoolArray:
    """Say which atoms a site leaves out: of sets with fewer people than the floor.

    People, not rows, where it is known whose rows they are.
    """
    rows = rows.counting
    code, n = sets[schema.atoms(rows.group, rows.y)], int(sets.max()) + 1
    people = counted_alike(code, rows.weight, n)
    if rows.person is not None:
        pairs = np.unique(np.stack([code, rows.person], axis=1), axis=0)
        people = np.minimum(people, np.bincount(pairs[:, 0], minlength=n))
    return (people < floor)[sets]
