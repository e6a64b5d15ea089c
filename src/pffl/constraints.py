"""Constraints: the groups whose mean loss is bounded, and by how much.

A cell is a union of strata (group × label), in one silo or over all. A constraint is
anything that can name its cells for a schema.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from pffl.data.schema import Schema
from pffl.errors import Problems, UsageError, wrong
from pffl.numerics import is_number
from pffl.records import suggestion
from pffl.registry import Registry
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
        Which strata belong to a cell, shape (Z, strata).
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
            np.zeros((0, schema.n_strata), dtype=bool),
            np.zeros(0, dtype=np.int64),
        )

    @cached_property
    def everywhere(self) -> BoolArray:
        """Which cells run over all silos, shape (Z,)."""
        return self.silo == EVERY_SILO

    def of_silo(self, index: int) -> FloatArray:
        """Membership as seen by one silo: other silos' cells are empty there."""
        return self.membership * (self.everywhere | (self.silo == index))[:, None]

    def of_label(self, schema: Schema, label: int) -> Cells:
        """Return the part of each cell that has a label."""
        names = tuple(f"{name}, {schema.label_names[label]}" for name in self.names)
        among = np.arange(schema.n_strata) % schema.n_labels == label
        return replace(self, names=names, membership=self.membership & among)

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
                problems.add("unknown-cell", name=name, hint=hint)
            if not unknown and len(given) < len(bound):
                problems.add("repeated-bound", bound=list(bound))
            elif not (unknown or given):
                problems.add("needs-bound:bounded")
        kept = sorted(given)
        left = [name for z, name in enumerate(self.names) if z not in given]
        some = self.take(kept).with_bounds(np.array([given[z] for z in kept]))
        return replace(some, unbounded=(*self.unbounded, *left))

    def with_bounds(self, bounds: FloatArray) -> Cells:
        """Return the same cells with other bounds."""
        return replace(self, bounds=np.asarray(bounds, dtype=np.float64))

    def totals(self, by_silo: FloatArray) -> FloatArray:
        """Add sums per (silo, stratum), shape (K, strata, …), into sums per cell."""
        pooled = by_silo.sum(axis=0)
        out = np.tensordot(self.membership.astype(np.float64), pooled, axes=1)
        local = np.flatnonzero(~self.everywhere)
        if len(local):
            own = by_silo[self.silo[local]]
            out[local] = np.einsum("za,za...->z...", self.membership[local], own)
        return out

    @cached_property
    def _own(self) -> tuple[IntArray, IntArray]:
        """Cell, and place in (K, strata), of the strata of cells confined to a silo."""
        cell, stratum = np.nonzero(self.membership & ~self.everywhere[:, None])
        return cell, self.silo[cell] * self.membership.shape[1] + stratum

    def spread(self, weights: FloatArray, n_silos: int) -> FloatArray:
        """Turn weights per cell, shape (Z,), into weights per (silo, stratum).

        The result, shape (K, strata), is read-only where no cell is confined to a silo.
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
    goal
        What is bounded: "loss", or a rate ("error", "fnr", "fpr") for new people.
    risk_weight, multiplier_bound
        β and B where the constraint fixes them; None leaves them to the method.
    """

    name: ClassVar[str]
    minimax: ClassVar[bool] = False
    goal: str = "loss"
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
        goals = {self.first.goal, self.second.goal}
        if self.first.minimax or self.second.minimax:
            raise UsageError("not-joinable:both")
        if len(goals) > 1 and "loss" in goals:
            raise UsageError("not-joinable:both-2")
        object.__setattr__(self, "goal", goals.pop() if len(goals) == 1 else "error")

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


@dataclass(frozen=True)
class BoundConstraint(Constraint):
    """A constraint with a number, or several by name.

    Parameters
    ----------
    bound
        ζ: one number, "auto", or a mapping from name to either.
    """

    bound: Bound = None
    by: ClassVar[str | tuple[str, ...] | None]  # attributes that cut out the groups
    wanted: ClassVar[str] = "a finite number ≥ 0, or 'auto'"

    def __post_init__(self) -> None:
        owner, bound = type(self).__name__, self.bound
        if bound is None:
            raise UsageError("needs-bound:boundconstraint", owner=owner)
        each = bound if isinstance(bound, Mapping) else {"": bound}
        with Problems(owner, UsageError) as problems:
            for cell, value in each.items():
                if not self.allows(value):
                    name = f"bound of {cell}" if cell else "bound"
                    problems.add(wrong(name, owner, self.wanted, value))

    def allows(self, value: Any) -> bool:
        """Whether it can be a bound."""
        return (
            value == AUTO if isinstance(value, str) else is_number(value) and value >= 0
        )

    def at(self, bound: float) -> Self:
        """Return the constraint with this bound wherever it has ``"auto"``."""
        return replace(self, bound=settled(self.bound, bound))

    @property
    def title(self) -> str:
        """The attributes that cut out the groups."""
        return " × ".join(attribute_names(self.by) or ()) or self.name

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        bound = dict(self.bound) if isinstance(self.bound, Mapping) else self.bound
        names = attribute_names(self.by)
        by = None if names is None else list(names)
        return {"kind": self.name, "bound": bound, "by": by}


@dataclass(frozen=True)
class BoundedGroupLoss(BoundConstraint):
    """``mean loss of group a ≤ ζ_a`` for every group.

    Reference: Agarwal, Dudík, Wu 2019, Definition 2; Hu, Wu, Smith, Definition 1.

    Parameters
    ----------
    bound
        ζ: one number for all groups, or a mapping from group to number; groups that it
        does not name are not bounded. "auto" instead of a number lets `solve` choose
        one number on training rows that are set aside.
    by
        Attributes that cut out the groups: None for all of them crossed, one name, or
        several names (crossed). Join constraints with ``&`` for overlapping cells.

    Raises
    ------
    UsageError
        There is no bound, or one that is no number.

    Examples
    --------
    >>> both = BoundedGroupLoss(0.6, by="sex") & BoundedGroupLoss(0.7, by="race")
    """

    by: str | tuple[str, ...] | None = None  # type: ignore[misc]
    name: ClassVar[str] = "bgl"

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """One cell per group."""
        return group_cells(schema, self.by).bounded(self.bound, type(self).__name__)


@dataclass(frozen=True)
class ErrorRate(BoundedGroupLoss):
    """``Pr[ŷ ≠ y | group a] ≤ bound`` for new people, certified on calibration rows.

    A rate has no slope to train by. So losses stand in for it: a path of models is
    trained, with tighter and tighter bounds on the mean losses of the same people, and
    the model that is shipped is the last one whose rates calibration rows certify. It
    needs `certify`, one row for each person, and rows without weights.

    Parameters
    ----------
    bound
        The largest rate: one number for all groups, or a mapping from group to number.
    by
        As for `BoundedGroupLoss`.

    Raises
    ------
    UsageError
        There is no bound, or one that is not between 0 and 1.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(6000, silos=3, groups=["f", "m"])
    >>> people = people.with_calibration(0.3)
    >>> goal = pffl.constraints.FalseNegativeRate(0.45)
    >>> solution = pffl.solve(people, goal, certify=True, random_state=0)
    >>> solution.certificate.verdicts["new_people"]["verdict"]
    'certified'
    """

    name: ClassVar[str] = "error"
    goal = "error"
    label: ClassVar[int | None] = None  # among whom it is counted; None: everyone

    wanted: ClassVar[str] = "a rate between 0 and 1"

    def allows(self, value: Any) -> bool:
        """Whether it is a rate."""
        return is_number(value) and 0 <= value <= 1

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """One cell per group: everyone, or those of one label."""
        binary = len(schema.labels) == 2
        if not (binary or (schema.labels and self.label is None)):
            raise UsageError(
                "wrong-model:cells",
                name=type(self).__name__,
                n_labels=len(schema.labels),
            )
        cells = super().cells(schema, silos)
        return cells if self.label is None else cells.of_label(schema, self.label)


@dataclass(frozen=True)
class FalseNegativeRate(ErrorRate):
    """``Pr[ŷ = 0 | group a, y = 1] ≤ bound`` for new people; see `ErrorRate`.

    Parameters
    ----------
    bound, by
        As for `ErrorRate`.

    Raises
    ------
    UsageError
        There is no bound, or one that is not between 0 and 1.

    Examples
    --------
    >>> import pffl
    >>> pffl.constraints.FalseNegativeRate({"f": 0.4}).describe()["bound"]
    {'f': 0.4}
    """

    name: ClassVar[str] = "fnr"
    goal = "fnr"
    label: ClassVar[int | None] = 1


@dataclass(frozen=True)
class FalsePositiveRate(ErrorRate):
    """``Pr[ŷ = 1 | group a, y = 0] ≤ bound`` for new people; see `ErrorRate`.

    Parameters
    ----------
    bound, by
        As for `ErrorRate`.

    Raises
    ------
    UsageError
        There is no bound, or one that is not between 0 and 1.

    Examples
    --------
    >>> import pffl
    >>> pffl.constraints.FalsePositiveRate({"f": 0.4}).describe()["bound"]
    {'f': 0.4}
    """

    name: ClassVar[str] = "fpr"
    goal = "fpr"
    label: ClassVar[int | None] = 0


@dataclass(frozen=True)
class ConditionalBoundedGroupLoss(BoundConstraint):
    """``mean loss of group a among label y ≤ ζ_{a,y}``, for the labels asked for.

    Reference: Hu, Wu, Smith, Definition 2 (with Pr[h(x) ≠ y]: see docs/paper.md).

    Parameters
    ----------
    bound
        ζ: one number; a mapping from label to number; or from cell name
        ("Female, recidivism") to number. What it does not name is not bounded; "auto"
        as for `BoundedGroupLoss`.
    labels
        Label names (or codes) to constrain; None for all of them.
    by
        As for `BoundedGroupLoss`.

    Raises
    ------
    UsageError
        There is no bound, or one that is no number.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> bounds = pffl.ConditionalBoundedGroupLoss(0.68, labels=["class 1"])
    >>> solution = pffl.solve(people, bounds, random_state=0)
    >>> list(solution.cells.index), solution.status
    (['f, class 1', 'm, class 1'], 'met')
    """

    labels: tuple[str | int, ...] | None = None
    by: str | tuple[str, ...] | None = None  # type: ignore[misc]
    name: ClassVar[str] = "cbgl"

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """One cell per group and label."""
        labels, names = label_codes(schema, self.labels), schema.label_names
        groups, owner = group_cells(schema, self.by), type(self).__name__
        cells, bound = Cells.none(schema), self.bound
        for y in labels:
            cells = cells.join(groups.of_label(schema, y))
        if not isinstance(bound, Mapping):
            return cells.bounded(bound, owner)
        of_label = {find_cell(name, names): b for name, b in bound.items()}
        if None in of_label or len(of_label) < len(bound):
            return cells.bounded(bound, owner, names)
        if unasked := [y for y in of_label if y not in labels]:
            raise UsageError(
                "unknown-label:cells",
                owner=owner,
                unasked=[schema.labels[y] for y in unasked if y is not None],
            )
        each = zip(cells.names, np.repeat(labels, len(groups)).tolist(), strict=True)
        return cells.bounded(
            {cell: of_label[y] for cell, y in each if y in of_label}, owner
        )

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        labels = None if self.labels is None else list(self.labels)
        return {**super().describe(), "labels": labels}


@dataclass(frozen=True)
class MinMax(Constraint):
    """``min over w of the largest group's mean loss``.

    It is bounded group loss with ζ = 0, β = 0 and B = 1: the risk plays no part.
    Reference: Papadaki et al. 2022 (FedMinMax).

    Parameters
    ----------
    by
        Attributes that cut out the groups, as for `BoundedGroupLoss`.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> solution = pffl.solve(people, pffl.MinMax(), random_state=0)
    >>> float(solution.cells["train_loss"].max().round(3))
    0.622
    """

    by: str | tuple[str, ...] | None = None
    name: ClassVar[str] = "minmax"
    minimax: ClassVar[bool] = True
    risk_weight: ClassVar[float | None] = 0.0
    multiplier_bound: ClassVar[float | None] = 1.0

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """One cell per group, with bound 0."""
        return BoundedGroupLoss(0.0, by=self.by).cells(schema, silos)

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        plain = BoundedGroupLoss(0.0, by=self.by).describe()
        return {**plain, "kind": self.name, "bound": None}


@dataclass(frozen=True)
class PerSilo(BoundConstraint):
    """``mean loss of silo k ≤ ζ_k`` for every silo.

    With bound 0, β = 0 and B = 1 this is the objective of AFL (Mohri et al. 2019).

    Parameters
    ----------
    bound
        ζ: one number for all silos, or a mapping from silo name to number (others are
        not bounded); "auto" as for `BoundedGroupLoss`.

    Raises
    ------
    UsageError
        There is no bound, or one that is no number.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> solution = pffl.solve(people, pffl.PerSilo(0.65), random_state=0)
    >>> solution.status, len(solution.cells)
    ('met', 3)
    """

    by: ClassVar[None] = None
    name: ClassVar[str] = "per-silo"

    def cells(self, schema: Schema, silos: Sequence[str]) -> Cells:
        """One cell per silo, over all its rows."""
        n = len(silos)
        member = np.ones((n, schema.n_strata), dtype=bool)
        cells = Cells(tuple(silos), np.zeros(n), member, np.arange(n))
        return cells.bounded(self.bound, type(self).__name__)


def group_cells(schema: Schema, by: str | Sequence[str] | None) -> Cells:
    """Return the groups cut out by some attributes (all of them if None), unbounded.

    Naming fewer attributes merges groups; naming several crosses them.
    """
    values = {a.name: a.names for a in schema.attributes}
    names = attribute_names(by) or tuple(values)
    codes = np.stack([schema.attribute_codes(name) for name in names], axis=1)
    crossed = list(dict.fromkeys(map(tuple, codes.tolist())))
    labels = tuple(
        " × ".join(values[name][code] for name, code in zip(names, one, strict=True))
        for one in crossed
    )
    member = np.array([(codes == one).all(axis=1) for one in crossed])
    return Cells(
        labels,
        np.zeros(len(crossed)),
        np.repeat(member, schema.n_labels, axis=1),
        np.full(len(crossed), EVERY_SILO),
    )


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


def settled(bound: Bound, value: float) -> Bound:
    """Return a bound with this number wherever it has ``"auto"``."""
    if isinstance(bound, Mapping):
        return {name: value if b == AUTO else b for name, b in bound.items()}
    return value if bound == AUTO else bound


def _number(bound: Number) -> float:
    return np.nan if bound == AUTO else float(bound)


def attribute_names(by: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Accept one name where several are possible."""
    return (by,) if isinstance(by, str) else None if by is None else tuple(by)


def label_codes(schema: Schema, labels: Sequence[str | int] | None) -> list[int]:
    """Codes of the labels asked for, by name or code."""
    if not schema.labels:
        raise UsageError("numeric-target:label-codes")
    codes = []
    for label in range(schema.n_labels) if labels is None else labels:
        place = find_cell(str(label), schema.label_names)
        if place is not None:
            codes.append(place)
        elif str(label).isdigit() and int(label) < schema.n_labels:
            codes.append(int(label))
        else:
            raise UsageError(
                "unknown-label:label-codes", label=label, labels=list(schema.labels)
            )
    return codes


CONSTRAINTS: Registry[Constraint] = Registry(
    "pffl.constraints",
    Constraint,
    (
        BoundedGroupLoss,
        ConditionalBoundedGroupLoss,
        MinMax,
        PerSilo,
        ErrorRate,
        FalseNegativeRate,
        FalsePositiveRate,
    ),
)


def is_minimax(described: Mapping[str, object]) -> bool:
    """Whether the constraint of this plain form has no bound to be met."""
    kind = str(described.get("kind"))
    return kind in CONSTRAINTS and CONSTRAINTS[kind].minimax


def as_constraint(value: Constraint | Bound | str | None) -> Constraint | None:
    """Return the constraint that a user means.

    A number or a mapping is a bound on groups (`BoundedGroupLoss`). A name such as
    "cbgl" is that constraint with the bound "auto"; "minmax" needs none.

    Examples
    --------
    >>> as_constraint(0.6)
    BoundedGroupLoss(bound=0.6, by=None)
    >>> as_constraint("cbgl").open
    True
    """
    if value is None or isinstance(value, Constraint):
        return value
    if not isinstance(value, str) or value == AUTO:
        return BoundedGroupLoss(value)
    if value not in CONSTRAINTS:
        raise UsageError(
            "unknown-name:as-constraint", value=value, constraints=sorted(CONSTRAINTS)
        )
    kind: Any = CONSTRAINTS[value]
    made: Constraint = kind() if kind.minimax else kind(AUTO)
    return made
