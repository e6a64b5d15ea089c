"""Messages that declare themselves: what each field of a request or an answer is.

An answer's field says its shape (in p, z, atoms, …), what one row adds to it, and
whether silos' values add or stand beside each other. Addition, bytes, checks of shape
and range, sensitivity and cost follow from that, and are written here, once. A
request's field says how it travels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from pffl.errors import FederationError, Malformed, Refused
from pffl.typing import FloatArray

UNBOUNDED = math.inf
ROUNDING = 1e-9  # relative, of sums that are computed in another order
HUGE = 1e150  # sums of any number of silos, and their squares, stay finite

Bound: TypeAlias = float | str  # a number, or the name of one that the query gives
Dims: TypeAlias = Mapping[str, int]
Arrays: TypeAlias = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Row:
    """What one row adds to a number: something between `low` and `high`.

    Attributes
    ----------
    whole
        Whether it is a whole number; where rows have weights, only if not `weighted`.
    weighted
        Whether it is that times the row's weight s_i.
    loss
        Whether it is the row's own loss at w: ceilings of losses hold for its sums.
    called
        What a refusal calls the sum.
    """

    low: Bound = -UNBOUNDED
    high: Bound = UNBOUNDED
    whole: bool = False
    weighted: bool = False
    loss: bool = False
    called: str = "a number"

    def range(self, scales: Mapping[str, float]) -> tuple[float, float]:
        """Return `low` and `high` as numbers."""
        ends = (self.low, self.high)
        low, high = (scales[end] if isinstance(end, str) else end for end in ends)
        return low, high


ANYTHING = Row()
NOTHING = Row(0.0, 0.0)  # agreed on before: no row changes it


@dataclass(frozen=True)
class AnswerField:
    """A field of an answer.

    Attributes
    ----------
    axes
        Length of each axis, as a number or the name of one; `K` is that of silos.
    rows
        What one row adds: alike for all numbers, or one for each of the last axis.
    per_silo
        Whether silos stand beside each other, along the first axis, or add.
    symmetric
        Whether the last two axes are a symmetric matrix: it travels as a triangle.
    envelope
        Who answers, what was agreed on, or what the server keeps of each silo:
        compared or put in order, never added, and not sent by a site.
    agreed
        What is agreed on, for a text.
    norm, unit
        Of a field that is released with noise: the length of what one row adds to it,
        as a number or the name of one, and the grid 2^−unit that it is written on.
    """

    axes: tuple[str | int, ...] = ()
    rows: tuple[Row, ...] = (ANYTHING,)
    per_silo: bool = False
    symmetric: bool = False
    envelope: bool = False
    agreed: str = ""
    norm: Bound | None = None
    unit: int = 0

    @property
    def dtype(self) -> type[Any]:
        """Type of the array."""
        if self.agreed:
            return np.uint8
        return np.int64 if self.rows[0].whole and len(self.rows) == 1 else np.float64

    @property
    def sent(self) -> AnswerField:
        """Return the field as it travels: of a symmetric matrix, its triangle."""
        if not self.symmetric:
            return self
        axes = (*self.axes[:-2], f"△{self.axes[-1]}")
        return replace(self, axes=axes, symmetric=False)

    def add(self, one: Any, other: Any) -> Any:
        """Add two silos' values."""
        if self.agreed:
            if one != other:
                raise FederationError(
                    f"[silos-differ] silos disagree on the {self.agreed}: {one[:12]} "
                    f"and {other[:12]}"
                )
            return one
        return np.concatenate([one, other]) if self.per_silo else one + other

    def pack(self, value: Any) -> NDArray[Any]:
        """Return the array that stands for a value."""
        if self.agreed:
            return np.frombuffer(value.encode(), np.uint8)
        return np.asarray(value, self.dtype)

    def unpack(self, array: NDArray[Any]) -> Any:
        """Return the value that an array stands for."""
        if self.agreed:
            return array.tobytes().decode()
        return array if self.axes else array.item()


def array(
    *axes: str | int,
    row: Row | Sequence[Row] = ANYTHING,
    per_silo: bool = False,
    symmetric: bool = False,
    norm: Bound | None = None,
    unit: int = 0,
) -> Any:
    """Declare an array of an answer; see `AnswerField`."""
    rows = (row,) if isinstance(row, Row) else tuple(row)
    if per_silo:
        axes = ("K", *axes)
    return _declared(
        AnswerField(
            axes,
            rows,
            per_silo=per_silo,
            symmetric=symmetric,
            norm=norm,
            unit=unit,
        )
    )


def number(row: Row = ANYTHING) -> Any:
    """Declare a number of an answer."""
    return _declared(AnswerField(rows=(row,)))


def places() -> Any:
    """Declare the silos' places in the federation, by which `per_silo` is put right."""
    whole = Row(0.0, whole=True)
    return _declared(AnswerField(("K",), (whole,), per_silo=True, envelope=True))


def kept(*axes: str | int) -> Any:
    """Declare what whoever adds answers keeps of each silo; nothing unless he does."""
    empty = tuple(n if isinstance(n, int) else 0 for n in ("K", *axes))
    what = AnswerField(("K", *axes), per_silo=True, envelope=True)
    return field(default_factory=lambda: np.zeros(empty), metadata={DECLARED: what})


def agreed(what: str) -> Any:
    """Declare a text that all silos must have in common."""
    return _declared(AnswerField(("length",), envelope=True, agreed=what))


@dataclass_transform(
    eq_default=False,
    frozen_default=True,
    field_specifiers=(array, number, places, kept, agreed),
)
class Total:
    """An answer, or a sum of answers: a frozen class of declared fields."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    declared: ClassVar[Mapping[str, AnswerField]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, eq=False)(cls)
        cls.declared = {f.name: f.metadata[DECLARED] for f in fields(cls)}

    def __add__(self, other: Self) -> Self:
        return type(self)(
            **{
                name: of.add(getattr(self, name), getattr(other, name))
                for name, of in self.declared.items()
            }
        )

    def in_order(self) -> Self:
        """Put what silos say of themselves in the order of the federation."""
        own = [name for name, of in self.declared.items() if of.per_silo]
        named = (getattr(self, n) for n in own if self.declared[n].envelope)
        order = next((np.argsort(who) for who in named if who.ndim == 1), None)
        if order is None:
            return self
        return replace(self, **{name: getattr(self, name)[order] for name in own})

    def arrays(self) -> Arrays:
        """Return one array a field, to be kept."""
        return {
            name: of.pack(getattr(self, name)) for name, of in self.declared.items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], dims: Dims) -> Self:
        """Read what was kept; refuse other names, types and shapes."""
        return cls(**_read(cls.declared, arrays, dict(dims)))

    def sent(self) -> Arrays:
        """Return the arrays that a site sends: no envelope, and triangles."""
        kept = self.arrays()
        return {
            name: _folded(kept[name]) if of.symmetric else kept[name]
            for name, of in self.declared.items()
            if not of.envelope
        }

    @classmethod
    def received(
        cls, arrays: Mapping[str, NDArray[Any]], dims: Dims, **envelope: Any
    ) -> Self:
        """Read what one silo sent, or `K` together; the envelope says who they are.

        Keys, types and shapes must be exactly those that the query asks for, and
        every number finite (faults 46, 47).
        """
        sent = {name: of.sent for name, of in cls.declared.items() if not of.envelope}
        lengths = {"K": 1, **dims}
        lengths |= {f"△{n}": _triangle_size(m) for n, m in lengths.items()}
        values = _read(sent, arrays, lengths)
        for name in sent:
            if not np.isfinite(arrays[name]).all():
                raise Malformed(
                    f"[not-finite] '{name}' has numbers that are not finite"
                )
            if (of := cls.declared[name]).symmetric:
                values[name] = _unfolded(values[name], dims[str(of.axes[-1])])
        known = {name: envelope[name] for name in cls.declared if name in envelope}
        return cls(**values, **known)

    @property
    def numbers(self) -> int:
        """How many numbers travel."""
        return sum(
            _triangle_size(np.shape(value)[-1]) * math.prod(np.shape(value)[:-2])
            if of.symmetric
            else np.size(value)
            for name, of in self.declared.items()
            if not of.envelope and (value := getattr(self, name)) is not None
        )

    @classmethod
    def sensitivity(
        cls, scales: Mapping[str, float], weight_bound: float = 1.0
    ) -> dict[str, FloatArray]:
        """Return by how much one row more or less can change each field's numbers.

        One number for all, or one for each of the last axis; infinite if `UNBOUNDED`.
        No row weighs more than `weight_bound`.
        """

        def largest(row: Row) -> float:
            factor = weight_bound if row.weighted else 1.0
            return factor * max(map(abs, row.range(scales)))

        return {
            name: np.array([largest(row) for row in of.rows])
            for name, of in cls.declared.items()
            if not of.envelope
        }

    def check_size(self) -> None:
        """Refuse numbers so large that sums of them could overflow."""
        for name, of in self.declared.items():
            value = 0.0 if of.agreed else getattr(self, name)
            if not np.all(np.abs(np.asarray(value, np.float64)) <= HUGE):
                raise Refused(
                    "[not-finite] a number that is not finite, or larger than any sum"
                )

    def check_ranges(
        self,
        rows: Mapping[str, FloatArray],
        scales: Mapping[str, float],
        weights: Mapping[str, FloatArray] | None = None,
    ) -> None:
        """Refuse sums that so many rows cannot have, and parts of whole numbers.

        `rows` says how many there are for each entry of an axis, and of all ("");
        `weights` what they weigh together, where they do not count alike.
        """
        for name, of in self.declared.items():
            if of.envelope or not np.size(getattr(self, name)):
                continue
            values = np.asarray(getattr(self, name), np.float64)
            axis = next((str(a) for a in of.axes if a in rows), "")
            inner = len(of.axes) - of.axes.index(axis) - 1 if axis else 0
            columns = np.moveaxis(values, -1, 0) if len(of.rows) > 1 else [values]
            for column, row in zip(columns, of.rows, strict=True):
                if row in (ANYTHING, NOTHING):
                    continue
                many = rows
                if row.weighted and weights is not None:
                    many, row = weights, replace(row, whole=False)
                n = many[axis].reshape(-1, *[1] * (inner - (len(of.rows) > 1)))
                _check_row(column, n, row, scales)


T = TypeVar("T", bound=Total)


def add_all(answers: Sequence[T]) -> T:
    """Add answers pairwise: less rounding than one by one, and no quadratic copies."""
    layer = list(answers)
    while len(layer) > 1:
        paired = [a + b for a, b in zip(layer[::2], layer[1::2], strict=False)]
        layer = paired + layer[2 * len(paired) :]
    return layer[0].in_order()


@dataclass(frozen=True)
class RequestField:
    """A field of a request: how it is written, and read with care.

    Attributes
    ----------
    read
        Returns a plain value as the field's, or None for one that cannot be.
    wanted
        What a refusal says it is not.
    optional
        Whether null stands for the field's default: none, or infinity. Of an array,
        whether its last axis may have no length.
    axes
        Shape of an array; None for what is no array.
    most
        Largest length of the axis `any`, which is the last.
    """

    read: Callable[[Any], Any] = lambda value: value
    wanted: str = ""
    optional: bool = False
    axes: tuple[str, ...] | None = None
    most: int = 2**63

    def take(self, name: str, left: dict[str, Any], default: Any) -> Any:
        """Take a plain value out of a header."""
        if name not in left:
            raise Malformed(f"[missing-key] '{name}' is missing")
        value = left.pop(name)
        if value is None and self.optional:
            return default
        found = self.read(value)
        if found is None:
            raise Malformed(f"'{name}' is {str(value)[:40]!r}, not {self.wanted}")
        return found

    def take_array(self, name: str, left: Arrays, dims: Dims) -> FloatArray:
        """Take an array of finite numbers out of those of a message."""
        found = left.pop(name, None)
        if found is None or found.dtype != np.float64:
            raise Malformed(f"'{name}' is missing or not of 64-bit numbers")
        if not np.isfinite(found).all():
            raise Malformed(f"[not-finite] '{name}' has numbers that are not finite")
        shape = tuple(dims.get(a) for a in self.axes or ())
        if self.optional and found.shape[-1:] == (0,):
            shape = (*shape[:-1], 0)
        if found.ndim != len(shape) or any(
            n not in (None, m) for n, m in zip(shape, found.shape, strict=True)
        ):
            wanted = ", ".join(map(str, shape)) + "," * (len(shape) == 1)
            raise Malformed(f"'{name}' has shape {found.shape}, not ({wanted})")
        least = 0 if self.optional else 1
        if "any" in (self.axes or ()) and not least <= found.shape[-1] <= self.most:
            raise Malformed(f"'{name}' has {found.shape[-1]} numbers")
        return found


def vector(axis: str = "any", *, most: int = 2**63) -> Any:
    """Declare an array of a request, with one axis: p, z, or of any length."""
    return _declared(RequestField(axes=(axis,), most=most))


def table(
    *axes: str, most: int = 2**63, default_factory: Callable[[], FloatArray]
) -> Any:
    """Declare an array of a request that may be empty along its last axis."""
    what = RequestField(axes=axes, most=most, optional=True)
    return field(default_factory=default_factory, metadata={DECLARED: what})


def empty() -> FloatArray:
    """Return no numbers."""
    return np.zeros(0)


def scalar(*, default: Any = MISSING, optional: bool = False) -> Any:
    """Declare a finite number ≥ 0 of a request."""

    def read(value: Any) -> float | None:
        good = type(value) in (int, float) and 0 <= value < 1e300
        return float(value) if good else None

    return _declared(RequestField(read, "a number ≥ 0", optional), default)


def whole(*, default: Any = MISSING, optional: bool = False, least: int = 0) -> Any:
    """Declare a whole number of a request."""

    def read(value: Any) -> int | None:
        return value if type(value) is int and least <= value < 2**63 else None

    return _declared(RequestField(read, "a whole number", optional), default)


def choice(*allowed: Any, default: Any = MISSING) -> Any:
    """Declare one of a few values, of the same type."""

    def read(value: Any) -> Any:
        same = (c for c in allowed if type(value) is type(c) and value == c)
        return next(same, None)

    return _declared(RequestField(read, f"one of {allowed}"), default)


def text(*, default: Any = MISSING) -> Any:
    """Declare a short text of a request."""

    def read(value: Any) -> str | None:
        return value if isinstance(value, str) and len(value) <= 100 else None

    return _declared(RequestField(read, "a short text"), default)


DECLARED = "declared"  # key of a field's metadata


def _declared(what: AnswerField | RequestField, default: Any = MISSING) -> Any:
    return field(default=default, metadata={DECLARED: what})


def _check_row(
    values: FloatArray, n: FloatArray, row: Row, scales: Mapping[str, float]
) -> None:
    """Demand n·low ≤ values ≤ n·high, up to rounding."""
    low, high = row.range(scales)
    if row.whole and not (values == np.round(values)).all():
        raise Refused(f"[implausible-count] {row.called} that is not whole")
    largest = max(abs(end) for end in (1.0, low, high) if math.isfinite(end))
    slack = 0.0 if row.whole else ROUNDING * largest
    under = math.isfinite(low) and (values < n * (low - slack)).any()
    over = math.isfinite(high) and (values > n * (high + slack)).any()
    if under or over:
        raise Refused(f"[implausible-sum] {row.called} outside what is possible")


def _read(
    declared: Mapping[str, AnswerField],
    arrays: Mapping[str, NDArray[Any]],
    dims: dict[str, int],
) -> dict[str, Any]:
    """Check names, types and shapes; an axis of unknown length takes its first one."""
    if set(arrays) != set(declared):
        different = sorted(set(arrays) ^ set(declared))
        raise Malformed(f"arrays {different[:5]} are missing or unknown")
    values = {}
    for name, of in declared.items():
        found = arrays[name]
        for axis, length in zip(of.axes, found.shape, strict=False):
            if isinstance(axis, str) and (of.agreed or axis not in dims):
                dims[axis] = length
        shape = tuple(a if isinstance(a, int) else dims[a] for a in of.axes)
        if found.dtype != of.dtype or found.shape != shape:
            raise Malformed(
                f"'{name}' is {found.dtype}{list(found.shape)}, not "
                f"{np.dtype(of.dtype)}{list(shape)}"
            )
        values[name] = of.unpack(found)
    return values


def _triangle_size(p: int) -> int:
    return p * (p + 1) // 2


def _folded(matrices: NDArray[Any]) -> NDArray[Any]:
    """Keep the upper triangles of the last two axes."""
    rows, columns = _triangle(matrices.shape[-1])
    return np.ascontiguousarray(matrices[..., rows, columns])


def _unfolded(triangles: NDArray[Any], p: int) -> NDArray[Any]:
    """Give the lower triangles back."""
    matrices = np.zeros((*triangles.shape[:-1], p, p))
    rows, columns = _triangle(p)
    matrices[..., rows, columns] = triangles
    matrices[..., columns, rows] = triangles
    return matrices


@lru_cache(maxsize=4)
def _triangle(p: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return where the upper triangle is; finding it takes longer than using it."""
    return np.triu_indices(p)
