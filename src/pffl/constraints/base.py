"""Cells: the sets of examples whose loss is bounded, and where they come from.

A cell is a union of atoms (group × label), in one silo or over all. A constraint is
anything that can name its cells for a schema; see `group_loss.py` for one in full.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from pffl.data.schema import Schema
from pffl.errors import Problems, UsageError
from pffl.numerics import is_number
from pffl.records import suggestion
from pffl.typing import BoolArray, FloatArray, IntArray

EVERY_SILO = -1
AUTO: Literal["auto"] = "auto"  # a bound that is chosen on training rows set aside
Number: TypeAlias = float | Literal["auto"]
Bound: TypeAlias = Number | Mapping[str, Number] | None


@dataclass(frozen=True, eq=False)
class Cells:
    """Z cells with one bound each.

    Attributes
    ----------
    names
        What to call each cell.
    bounds
        ζ, shape (Z,); NaN where it is yet to be chosen.
    membership
        Which atoms belong to a cell, shape (Z, atoms).
    silo
        The silo a cell is confined to, or `EVERY_SILO`, shape (Z,).
    unbounded
        What else the constraint could have bounded, and was given no bound for.
    """

    names: tuple[str, ...]
    bounds: FloatArray
    membership: BoolArray
    silo: IntArray
    unbounded: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def none(cls, schema: Schema) -> Cells:
        """No cell at all: plain risk minimisation."""
        return cls(
            (),
            np.zeros(0),
            np.zeros((0, schema.n_atoms), dtype=bool),
            np.zeros(0, dtype=np.int64),
        )

    @cached_property
    def everywhere(self) -> BoolArray:
        """Which cells run over all silos, shape (Z,)."""
        return self.silo == EVERY_SILO

    def of_silo(self, index: int) -> FloatArray:
        """Membership as seen by one silo: other silos' cells are empty there."""
        return self.membership * (self.everywhere | (self.silo == index))[:, None]

    def take(self, index: Sequence[int] | IntArray) -> Cells:
        """Return some of the cells, in the order given."""
        keep = np.asarray(index, dtype=np.int64)
        return Cells(
            tuple(self.names[i] for i in keep),
            self.bounds[keep],
            self.membership[keep],
            self.silo[keep],
            self.unbounded,
        )

    def join(self, other: Cells) -> Cells:
        """Return these cells followed by others."""
        return Cells(
            self.names + other.names,
            np.concatenate([self.bounds, other.bounds]),
            np.concatenate([self.membership, other.membership]),
            np.concatenate([self.silo, other.silo]),
            self.unbounded + other.unbounded,
        )

    def in_each_silo(self, silos: Sequence[str]) -> Cells:
        """Return one copy of the cells per silo, confined to it, silo after silo."""
        n = len(silos)
        return Cells(
            tuple(f"{silo}: {name}" for silo in silos for name in self.names),
            np.tile(self.bounds, n),
            np.tile(self.membership, (n, 1)),
            np.repeat(np.arange(n), len(self)),
            self.unbounded,
        )

    def bounded(self, bound: Bound, owner: str, others: Sequence[str] = ()) -> Cells:
        """Return the cells with one bound for all, or those that have one by name.

        The bounds were checked already. A name may leave out the columns of values and
        spaces (see `find_cell`); `others` are what else may have been meant.
        """
        if not isinstance(bound, Mapping):
            return self.with_bounds(np.full(len(self), _number(bound or 0.0)))
        places = {name: find_cell(name, self.names) for name in bound}
        given = {p: _number(bound[n]) for n, p in places.items() if p is not None}
        with Problems(owner, UsageError) as problems:
            unknown = [name for name, place in places.items() if place is None]
            for name in unknown:
                hint = suggestion(name, (*self.names, *others))
                problems.add(
                    f"[unknown-cell] there is no cell '{name}' to bound: {hint}"
                )
            if not unknown and len(given) < len(bound):
                problems.add(f"[repeated-bound] two bounds for one cell: {list(bound)}")
            elif not (unknown or given):
                problems.add("[needs-bound] no cell has a bound")
        kept = sorted(given)
        left = [name for z, name in enumerate(self.names) if z not in given]
        some = self.take(kept).with_bounds(np.array([given[z] for z in kept]))
        return replace(some, unbounded=(*self.unbounded, *left))

    def with_bounds(self, bounds: FloatArray) -> Cells:
        """Return the same cells with other bounds."""
        return replace(self, bounds=np.asarray(bounds, dtype=np.float64))

    def totals(self, by_silo: FloatArray) -> FloatArray:
        """Add sums per (silo, atom), shape (K, atoms, …), into sums per cell."""
        pooled = by_silo.sum(axis=0)
        out = np.tensordot(self.membership.astype(np.float64), pooled, axes=1)
        local = np.flatnonzero(~self.everywhere)
        if len(local):
            own = by_silo[self.silo[local]]
            out[local] = np.einsum("za,za...->z...", self.membership[local], own)
        return out

    @cached_property
    def _own(self) -> tuple[IntArray, IntArray]:
        """Cell, and silo × atoms + atom, of each atom of cells confined to a silo."""
        cell, atom = np.nonzero(self.membership & ~self.everywhere[:, None])
        return cell, self.silo[cell] * self.membership.shape[1] + atom

    def spread(self, weights: FloatArray, n_silos: int) -> FloatArray:
        """Turn weights per cell, shape (Z,), into weights per (silo, atom).

        The result, shape (K, atoms), is read-only where no cell is confined to a silo.
        """
        shared = (weights * self.everywhere) @ self.membership
        out = np.broadcast_to(shared, (n_silos, len(shared)))
        if self.everywhere.all():
            return out
        cell, place = self._own
        return out + np.bincount(place, weights[cell], out.size).reshape(out.shape)


class Constraint(ABC):
    """What a user demands of the cells' losses.

    Attributes
    ----------
    name
        What run files and the command line call it.
    minimax
        Whether the largest loss is made small, and no bound is to be met.
    risk_weight, multiplier_bound
        β and B where the constraint fixes them; None leaves them to the method.
    """

    name: ClassVar[str]
    minimax: ClassVar[bool] = False
    risk_weight: ClassVar[float | None] = None
    multiplier_bound: ClassVar[float | None] = None

    @abstractmethod
    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """Name the cells for these data."""

    @abstractmethod
    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""

    def at(self, bound: float) -> Constraint:
        """Return the constraint with this bound wherever it has ``"auto"``."""
        return self

    @property
    def open(self) -> bool:
        """Whether a bound is yet to be chosen."""
        return self.at(0.0) != self

    @property
    def title(self) -> str:
        """What to put before a cell's name to tell joined constraints apart."""
        return self.name

    def __and__(self, other: Constraint) -> Both:
        return Both(self, other)


@dataclass(frozen=True)
class Both(Constraint):
    """Two constraints at once: all their cells, overlapping where they overlap."""

    first: Constraint
    second: Constraint
    name: ClassVar[str] = "both"

    def __post_init__(self) -> None:
        for part in (self.first, self.second):
            if part.minimax:
                raise UsageError(
                    f"[not-joinable] {part.name} cannot be joined with other "
                    "constraints"
                )

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """Name the cells of both; equal names get the constraint's name in front."""
        a, b = self.first.cells(schema, silos), self.second.cells(schema, silos)
        clash = set(a.names) & set(b.names)
        parts = ((self.first, a), (self.second, b))
        names = [
            f"{part.title}: {name}" if name in clash else name
            for part, cells in parts
            for name in cells.names
        ]
        names = [
            f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name
            for i, name in enumerate(names)
        ]
        return replace(a.join(b), names=tuple(names))

    def at(self, bound: float) -> Both:
        """Return both with this bound wherever they have ``"auto"``."""
        return Both(self.first.at(bound), self.second.at(bound))

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        return {
            "kind": self.name,
            "of": [dict(self.first.describe()), dict(self.second.describe())],
        }


def group_cells(
    schema: Schema, by: Sequence[str] | None
) -> tuple[tuple[str, ...], BoolArray]:
    """Name and mark the groups cut out by some attributes (all of them if None).

    Returns the names and which of the schema's groups belong to each, shape
    (cells, groups). Naming fewer attributes merges groups; naming several crosses them.
    """
    names = tuple(a.name for a in schema.attributes) if by is None else tuple(by)
    columns = [schema.attribute_codes(name) for name in names]
    values = {a.name: a.names for a in schema.attributes}
    codes = np.stack(columns, axis=1)
    combinations = list(dict.fromkeys(map(tuple, codes.tolist())))
    labels = tuple(
        " × ".join(
            values[name][code] for name, code in zip(names, combination, strict=True)
        )
        for combination in combinations
    )
    member = np.array(
        [(codes == combination).all(axis=1) for combination in combinations]
    )
    return labels, member


def find_cell(text: str, names: Sequence[str]) -> int | None:
    """Place of the cell that is meant: by its name, or by its values alone.

    >>> find_cell("1,0", ("black = 0, approve = 0", "black = 1, approve = 0"))
    1
    """
    for form in (str, _squeezed, _values):
        found = [z for z, name in enumerate(names) if form(name) == form(text)]
        if len(found) == 1:
            return found[0]
    return None


def _squeezed(name: str) -> str:
    return "".join(name.split())


def _values(name: str) -> str:
    """Leave out the columns: ``black = 1, approve = 0`` is ``1,0``."""
    return re.sub(r"(^|[×,])[^×,=]+=", r"\1", _squeezed(name))


def check_bound(value: object, name: str, owner: str, problems: Problems) -> None:
    """Note a bound that is neither a finite number ≥ 0 nor ``"auto"``."""
    good = is_number(value) and float(value) >= 0  # type: ignore[arg-type]
    if not (good or value == AUTO):
        problems.add(
            f"[wrong-value] The '{name}' parameter of {owner} must be a finite number "
            f"≥ 0, or 'auto'. Got {value!r} instead."
        )


def settled(bound: Bound, value: float) -> Bound:
    """Return a bound with this number wherever it has ``"auto"``."""
    if isinstance(bound, Mapping):
        return {name: value if b == AUTO else b for name, b in bound.items()}
    return value if bound == AUTO else bound


def _number(bound: Number) -> float:
    return np.nan if bound == AUTO else float(bound)
