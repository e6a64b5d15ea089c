"""Fields of requests and answers, declared once.

An answer's field says its shape (in p, z, strata, …), what one row adds to it, and
whether silos' values add or stand side by side. Addition, bytes, and checks of
shape and range follow from that. A request's field says how it travels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from pffl.errors import Malformed, Refused
from pffl.typing import FloatArray

ROUNDING = 1e-9  # relative, of sums that are computed in another order
MAX_SUM = 1e150  # sums of any number of silos, and their squares, stay finite
DECLARED = "declared"  # key of a field's metadata

Dims: TypeAlias = Mapping[str, int]
Arrays: TypeAlias = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class RowRange:
    """What one row adds to a number: something between `low` and `high`.

    Attributes
    ----------
    low, high
        Numbers, or names of numbers that the query gives (`Query.scales`).
    whole
        Whether it is a whole number; where rows have weights, only if not `weighted`.
    weighted
        Whether it is that times the row's weight s_i.
    loss
        Whether it is the row's own loss at w: ceilings of losses hold for its sums.
    called
        What a refusal calls the sum.
    """

    low: float | str = -math.inf
    high: float | str = math.inf
    whole: bool = False
    weighted: bool = False
    loss: bool = False
    called: str = "a number"

    def check(
        self, sums: FloatArray, n: FloatArray, scales: Mapping[str, float]
    ) -> None:
        """Refuse sums over n rows outside of n·low … n·high, up to rounding."""
        if self.whole and not (sums == np.round(sums)).all():
            raise Refused(f"[implausible-count] {self.called} that is not whole")
        low, high = (
            scales[end] if isinstance(end, str) else end
            for end in (self.low, self.high)
        )
        largest = max(abs(end) for end in (1.0, low, high) if math.isfinite(end))
        slack = 0.0 if self.whole else ROUNDING * largest
        under = math.isfinite(low) and (sums < n * (low - slack)).any()
        if under or (math.isfinite(high) and (sums > n * (high + slack)).any()):
            raise Refused(f"[implausible-sum] {self.called} outside what is possible")


ANYTHING = RowRange()
AGREED = RowRange(0.0, 0.0)  # agreed on before: no row changes it


@dataclass(frozen=True)
class AnswerField:
    """A field of an answer.

    Attributes
    ----------
    axes
        Length of each axis, as a number or the name of one; `K` is that of silos.
    rows
        What one row adds: equal for all numbers, or one for each of the last axis.
    per_silo
        Whether silos stand side by side, along the first axis, or add.
    symmetric
        Whether the last two axes are a symmetric matrix: it travels as a triangle.
    """

    axes: tuple[str | int, ...] = ()
    rows: tuple[RowRange, ...] = (ANYTHING,)
    per_silo: bool = False
    symmetric: bool = False

    @property
    def dtype(self) -> type[Any]:
        """Type of the array."""
        return np.int64 if self.rows[0].whole and len(self.rows) == 1 else np.float64

    def sent_shape(self, dims: Dims) -> tuple[int, ...]:
        """Return the shape in which one silo, or a sum of them, sends it."""
        lengths = {"K": 1, **dims}
        shape = tuple(a if isinstance(a, int) else lengths[a] for a in self.axes)
        if self.symmetric:
            return (*shape[:-2], triangle_size(shape[-1]))
        return shape


def array(
    *axes: str | int,
    row: RowRange | Sequence[RowRange] = ANYTHING,
    per_silo: bool = False,
    symmetric: bool = False,
) -> Any:
    """Declare an array of an answer; see `AnswerField`."""
    rows = (row,) if isinstance(row, RowRange) else tuple(row)
    axes = ("K", *axes) if per_silo else axes
    what = AnswerField(axes, rows, per_silo=per_silo, symmetric=symmetric)
    return field(metadata={DECLARED: what})


def number(row: RowRange = ANYTHING) -> Any:
    """Declare a number of an answer."""
    return array(row=row)


@dataclass_transform(
    eq_default=False, frozen_default=True, field_specifiers=(array, number)
)
class Total:
    """An answer, or a sum of answers: a frozen class of declared fields."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    declared: ClassVar[Mapping[str, AnswerField]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, eq=False)(cls)
        cls.declared = {f.name: f.metadata[DECLARED] for f in fields(cls)}

    def __post_init__(self) -> None:
        # In one memory order: sums of what a log gives back round as those before.
        for name in self.declared:
            value = getattr(self, name)
            if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
                object.__setattr__(self, name, np.ascontiguousarray(value))

    def __add__(self, other: Self) -> Self:
        pairs = ((n, getattr(self, n), getattr(other, n)) for n in self.declared)
        return type(self)(
            **{
                name: np.concatenate([a, b]) if self.declared[name].per_silo else a + b
                for name, a, b in pairs
            }
        )

    def arrays(self) -> Arrays:
        """Return one array a field, for a log."""
        return {
            n: np.asarray(getattr(self, n), f.dtype) for n, f in self.declared.items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the total that `arrays` were taken of."""
        _check_names(arrays, cls.declared)
        return cls(
            **{
                n: arrays[n] if f.axes else arrays[n].item()
                for n, f in cls.declared.items()
            }
        )

    def sent(self) -> Arrays:
        """Return the arrays that a site sends: symmetric matrices as triangles."""
        arrays = self.arrays()
        return {
            name: _folded(arrays[name]) if of.symmetric else arrays[name]
            for name, of in self.declared.items()
        }

    @classmethod
    def received(cls, arrays: Mapping[str, NDArray[Any]], dims: Dims) -> Self:
        """Read what one silo, or a sum of them, sent.

        Names, types and shapes must be exactly those that the query asks for, and
        every number finite (faults 46, 47).
        """
        declared, values = cls.declared, {}
        _check_names(arrays, declared)
        for name, of in declared.items():
            found, shape = arrays[name], of.sent_shape(dims)
            if found.dtype != of.dtype or found.shape != shape:
                raise Malformed(
                    f"'{name}' is {found.dtype}{list(found.shape)}, not "
                    f"{np.dtype(of.dtype)}{list(shape)}"
                )
            if not np.isfinite(found).all():
                raise Malformed(
                    f"[not-finite] '{name}' has numbers that are not finite"
                )
            if of.symmetric:
                found = unfolded(found, dims[str(of.axes[-1])])
            values[name] = found if of.axes else found.item()
        return cls(**values)

    def check_size(self) -> None:
        """Refuse numbers so large that sums of them could overflow."""
        for values in self.arrays().values():
            if not (np.abs(values.astype(np.float64)) <= MAX_SUM).all():
                raise Refused(
                    "[not-finite] a number that is not finite, or larger than any sum"
                )

    def check_ranges(
        self,
        rows: Mapping[str, FloatArray],
        scales: Mapping[str, float],
        weights: Mapping[str, FloatArray] | None = None,
    ) -> None:
        """Refuse sums that n rows cannot have, and parts of whole numbers.

        `rows` says how many there are for each entry of an axis, and of all ("");
        `weights` what they weigh together, where they have weights.
        """
        for name, of in self.declared.items():
            values = np.asarray(getattr(self, name), np.float64)
            axis = next((str(a) for a in of.axes if a in rows), "")
            inner = len(of.axes) - of.axes.index(axis) - 1 if axis else 0
            several = len(of.rows) > 1
            columns = np.moveaxis(values, -1, 0) if several else [values]
            for column, row in zip(columns, of.rows, strict=True):
                if row in (ANYTHING, AGREED) or not values.size:
                    continue
                n = rows[axis]
                if row.weighted and weights is not None:
                    n, row = weights[axis], replace(row, whole=False)
                row.check(column, n.reshape(-1, *[1] * (inner - several)), scales)


T = TypeVar("T", bound=Total)


def add_all(answers: Sequence[T]) -> T:
    """Add answers pairwise: less rounding than one by one, and no quadratic copies."""
    layer = list(answers)
    while len(layer) > 1:
        paired = [a + b for a, b in zip(layer[::2], layer[1::2], strict=False)]
        layer = paired + layer[2 * len(paired) :]
    return layer[0]


@dataclass(frozen=True)
class RequestField:
    """A field of a request: how it is read, with care.

    Attributes
    ----------
    accepts, wanted
        Whether a plain value can be the field's, and what a refusal says it is not.
    optional
        Whether null stands for the field's default: none, or infinity. Of an array,
        whether its last axis may have no length.
    axes
        Shape of an array; None for a plain value.
    most
        Largest length of the axis `any`, which is the last.
    """

    accepts: Callable[[Any], bool] = lambda value: True
    wanted: str = ""
    optional: bool = False
    axes: tuple[str, ...] | None = None
    most: int = 2**63

    def take(self, name: str, left: dict[str, Any], default: Any = None) -> Any:
        """Take a plain value out of a header."""
        if name not in left:
            raise Malformed(f"[missing-key] '{name}' is missing")
        value = left.pop(name)
        if value is None and self.optional:
            return default
        if not self.accepts(value):
            raise Malformed(f"'{name}' is {str(value)[:40]!r}, not {self.wanted}")
        return value

    def take_array(self, name: str, left: Arrays, dims: Dims) -> FloatArray:
        """Take an array of finite numbers out of those of a message."""
        found = left.pop(name, None)
        if found is None or found.dtype != np.float64:
            raise Malformed(f"'{name}' is missing or not of 64-bit numbers")
        if not np.isfinite(found).all():
            raise Malformed(f"[not-finite] '{name}' has numbers that are not finite")
        axes = self.axes or ()
        shape = tuple(dims.get(a) for a in axes)
        if self.optional and found.shape[-1:] == (0,):
            shape = (*shape[:-1], 0)
        fits = found.ndim == len(shape) and all(
            n in (None, m) for n, m in zip(shape, found.shape, strict=True)
        )
        if not fits:
            raise Malformed(f"'{name}' has shape {found.shape}, not {shape}")
        least = 0 if self.optional else 1
        if "any" in axes and not least <= found.shape[-1] <= self.most:
            raise Malformed(f"'{name}' has {found.shape[-1]} numbers")
        return found


def vector(axis: str = "any", *, most: int = 2**63) -> Any:
    """Declare an array of a request, with one axis: p, z, or of any length."""
    return field(metadata={DECLARED: RequestField(axes=(axis,), most=most)})


def empty() -> FloatArray:
    """Return no numbers."""
    return np.zeros(0)


def table(
    *axes: str,
    default_factory: Callable[[], FloatArray],
    most: int = 2**63,
    kw_only: bool = False,
) -> Any:
    """Declare an array of a request that may be empty along its last axis."""
    what = RequestField(axes=axes, most=most, optional=True)
    return field(
        default_factory=default_factory, metadata={DECLARED: what}, kw_only=kw_only
    )


def scalar(
    *, default: Any = MISSING, optional: bool = False, kw_only: bool = False
) -> Any:
    """Declare a finite number ≥ 0 of a request."""

    def accepts(value: Any) -> bool:
        return type(value) in (int, float) and 0 <= value < 1e300

    what = RequestField(accepts, "a number ≥ 0", optional)
    return field(default=default, metadata={DECLARED: what}, kw_only=kw_only)


def whole(*, default: Any = MISSING, optional: bool = False, least: int = 0) -> Any:
    """Declare a whole number of a request."""

    def accepts(value: Any) -> bool:
        return type(value) is int and least <= value < 2**63

    what = RequestField(accepts, "a whole number", optional)
    return field(default=default, metadata={DECLARED: what})


def choice(*allowed: Any, default: Any) -> Any:
    """Declare one of a few values, of the same type."""
    types = {type(value) for value in allowed}
    what = RequestField(
        lambda value: type(value) in types and value in allowed, f"one of {allowed}"
    )
    return field(default=default, metadata={DECLARED: what})


def text(*, default: str) -> Any:
    """Declare a short text of a request."""
    what = RequestField(lambda v: isinstance(v, str) and len(v) <= 100, "a short text")
    return field(default=default, metadata={DECLARED: what})


def _check_names(arrays: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
    if set(arrays) != set(declared):
        different = sorted(set(arrays) ^ set(declared))
        raise Malformed(f"arrays {different[:5]} are missing or unknown")


def triangle_size(p: int) -> int:
    """Numbers of the upper triangle of a p × p matrix."""
    return p * (p + 1) // 2


def _folded(matrices: NDArray[Any]) -> NDArray[Any]:
    """Keep the upper triangles of the last two axes."""
    rows, columns = np.triu_indices(matrices.shape[-1])
    return np.ascontiguousarray(matrices[..., rows, columns])


def unfolded(triangles: NDArray[Any], p: int) -> NDArray[Any]:
    """Return symmetric matrices, from their upper triangles."""
    matrices = np.zeros((*triangles.shape[:-1], p, p))
    rows, columns = np.triu_indices(p)
    matrices[..., rows, columns] = triangles
    matrices[..., columns, rows] = triangles
    return matrices
