"""What every query shares: the task, a silo's rows as the model sees them, requests.

A query is a frozen request with ``answer(view)``, a pure function of one silo's
rows. Answers add, and only their total is used: that is the whole protocol. What is
sent is all that a site needs to answer, and nothing of other sites: its own share p_k,
its own part of the cells, and no names or bounds.

Fields of answers and requests are declared once. An answer's field says its shape (in
p, z, strata, …), what one row adds to it, and whether silos' values add or stand side
by side. Addition, bytes, and checks of shape and range follow from that. A request's
plain values are read by their types, its arrays by their axes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import (
    MISSING,
    Field,
    dataclass,
    field,
    fields,
    make_dataclass,
    replace,
)
from functools import cache, cached_property
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Self,
    TypeAlias,
    TypeVar,
    dataclass_transform,
)

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Bounds

from pffl.constraints import EVERY_SILO, Cells
from pffl.data.rows import Matrix, Silo
from pffl.data.schema import Schema
from pffl.errors import Malformed, PFFLError, Refused
from pffl.models import Inputs, Model, Target, rebuild
from pffl.models.base import UNSCALED
from pffl.models.scaled import Design, ScaledRows
from pffl.records import Record, read
from pffl.typing import BoolArray, FloatArray, IntArray

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
        Numbers, or what a query says that they are.
    whole
        Whether it is a whole number; where rows have weights, only if not `weighted`.
    weighted
        Whether it is that times the row's weight s_i.
    """

    low: float | Callable[[Any], float] = -math.inf
    high: float | Callable[[Any], float] = math.inf
    whole: bool = False
    weighted: bool = False

    def check(self, name: str, sums: FloatArray, n: FloatArray, query: Any) -> None:
        """Refuse sums over n rows outside of n·low … n·high, up to rounding."""
        if self.whole and not (sums == np.round(sums)).all():
            raise Refused("implausible-count", name=name)
        ends = (self.low, self.high)
        low, high = (end(query) if callable(end) else end for end in ends)
        largest = max(abs(end) for end in (1.0, low, high) if math.isfinite(end))
        slack = 0.0 if self.whole else ROUNDING * largest
        under = math.isfinite(low) and (sums < n * (low - slack)).any()
        if under or (math.isfinite(high) and (sums > n * (high + slack)).any()):
            raise Refused("implausible-sum:check", name=name)


ANYTHING = RowRange()
AGREED = RowRange(0.0, 0.0)  # agreed on before: no row changes it
LOSS = RowRange(0.0, weighted=True)


@dataclass(frozen=True)
class AnswerField:
    """An array of an answer, or of a request; a number without axes.

    Attributes
    ----------
    axes
        Length of each axis, as a number or the name of one; `K` is that of silos, and
        "any" is not known beforehand.
    rows
        What one row adds: equal for all numbers, or one for each of the last axis.
    per_silo
        Whether silos stand side by side, along the first axis, or add.
    most
        Of a request: how long an axis of any length is at most.
    optional
        Of a request: whether the last axis may have no length.
    """

    axes: tuple[str | int, ...] = ()
    rows: tuple[RowRange, ...] = (ANYTHING,)
    per_silo: bool = False
    most: float = math.inf
    optional: bool = False

    @property
    def dtype(self) -> type[Any]:
        """Type of the array."""
        return np.int64 if self.rows[0].whole and len(self.rows) == 1 else np.float64

    def shape(self, dims: Dims) -> tuple[int, ...]:
        """Return its shape for one silo, or a sum of them."""
        lengths = {"K": 1, **dims}
        return tuple(a if isinstance(a, int) else lengths[a] for a in self.axes)

    def read(self, name: str, found: NDArray[Any] | None, dims: Dims) -> NDArray[Any]:
        """Return an array that was sent: its type, shape and numbers are as declared.

        Numbers so large that sums of them could overflow are not finite, either.
        """
        if found is None or found.dtype != self.dtype:
            given = "missing" if found is None else found.dtype
            raise Malformed(f"'{name}' is {given}, not {np.dtype(self.dtype)}")
        if not (np.abs(found.astype(np.float64)) <= MAX_SUM).all():
            raise Malformed("not-finite:read", name=name)
        ends = found.shape or (0,)
        shape = self.shape({"cells": ends[0], "any": ends[-1], **dims})
        if self.optional and found.shape[-1:] == (0,):
            shape = (*shape[:-1], 0)
        if found.shape != shape:
            raise Malformed(f"'{name}' has shape {found.shape}, not {shape}")
        if "any" in self.axes and not (not self.optional) <= shape[-1] <= self.most:
            raise Malformed(f"'{name}' has {shape[-1]} numbers")
        return found


def array(
    *axes: str | int,
    row: RowRange | Sequence[RowRange] = ANYTHING,
    per_silo: bool = False,
) -> Any:
    """Declare an array of an answer, a number without axes; see `AnswerField`."""
    rows = (row,) if isinstance(row, RowRange) else tuple(row)
    axes = ("K", *axes) if per_silo else axes
    return field(metadata={DECLARED: AnswerField(axes, rows, per_silo)})


def vector(
    *axes: str,
    most: float = math.inf,
    default_factory: Any = MISSING,
    kw_only: bool = False,
) -> Any:
    """Declare an array of a request; with a default it is optional."""
    optional = default_factory is not MISSING
    declared = AnswerField(axes, most=most, optional=optional)
    return field(
        default_factory=default_factory, metadata={DECLARED: declared}, kw_only=kw_only
    )


def empty() -> FloatArray:
    """Return no numbers."""
    return np.zeros(0)


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(array,))
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
        """Return one array a field, for a message or a log."""
        return {
            n: np.asarray(getattr(self, n), f.dtype) for n, f in self.declared.items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the total that `arrays` were taken of."""
        check_names(arrays, cls.declared)
        found = {n: arrays[n] for n in cls.declared}
        return cls(**{n: a if a.ndim else a.item() for n, a in found.items()})

    @classmethod
    def received(cls, arrays: Mapping[str, NDArray[Any]], dims: Dims) -> Self:
        """Read what one silo, or a sum of them, sent (faults 46, 47)."""
        return cls.from_arrays(read_arrays(cls.declared, arrays, dims))

    def check_size(self) -> None:
        """Refuse numbers so large that sums of them could overflow."""
        for values in self.arrays().values():
            if not (np.abs(values.astype(np.float64)) <= MAX_SUM).all():
                raise Refused("not-finite:check-size")

    def check_ranges(
        self,
        query: Query[Any] | None,
        rows: Mapping[str, FloatArray],
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
                row.check(name, column, n.reshape(-1, *[1] * (inner - several)), query)


T = TypeVar("T", bound=Total)


def add_all(answers: Sequence[T]) -> T:
    """Add answers pairwise: less rounding than one by one, and no quadratic copies."""
    layer = list(answers)
    while len(layer) > 1:
        paired = [a + b for a, b in zip(layer[::2], layer[1::2], strict=False)]
        layer = paired + layer[2 * len(paired) :]
    return layer[0]


# Requests


def check_names(arrays: Mapping[str, object], declared: Mapping[str, object]) -> None:
    """Refuse arrays that are missing, and unknown ones."""
    if set(arrays) != set(declared):
        different = sorted(set(arrays) ^ set(declared))
        raise Malformed("wrong-keys:check-names", different=different[:5])


def read_arrays(
    declared: Mapping[str, AnswerField],
    arrays: Mapping[str, NDArray[Any]],
    dims: Dims,
) -> Arrays:
    """Read arrays that were sent: names, types, shapes and numbers are as declared."""
    check_names(arrays, declared)
    return {name: of.read(name, arrays[name], dims) for name, of in declared.items()}


#: Plain values of a request, by their type.
PLAIN: dict[str, Any] = {
    "float": Annotated[float, Bounds(ge=0, lt=1e300)],
    "int": Annotated[int, Bounds(ge=0, lt=2**63)],
    "bool": bool,
    "str": Annotated[str, Bounds(max_length=100)],
}
MAX_CELLS = 10_000
MAX_SILOS = 1_000_000
MAX_UNEVEN = 1000.0  # times the mean that a row of a pool may weigh in F

CheckStep: TypeAlias = Callable[[FloatArray], None]  # refuses a w, or does nothing
Rebuild: TypeAlias = Callable[[object, int], Model]  # describe(), len(w) → unbound
T_co = TypeVar("T_co", bound=Total, covariant=True)


@dataclass(frozen=True)
class Pool(Record):
    """Silos whose answers are added before anybody reads them, as if they were one.

    Attributes
    ----------
    silos
        How many there are.
    by_rows
        Whether p_k is m_k/m; otherwise it is 1/K.
    mass
        m: what all training rows weigh together.
    """

    silos: Annotated[int, Bounds(gt=0, le=MAX_SILOS)]
    by_rows: bool
    mass: Annotated[float, Bounds(gt=0, le=MAX_SUM)]

    def share(self, mass: float) -> float:
        """Return p_k of a silo whose training rows weigh so much.

        What is proved of totals needs that no row weighs far more in F than others: a
        silo with hardly any rows, and a share like all others, takes no part.
        """
        if self.by_rows:
            return mass / self.mass
        if mass * self.silos * MAX_UNEVEN < self.mass:
            raise Refused("uneven-silo", max_uneven=MAX_UNEVEN)
        return 1 / self.silos

    @property
    def uneven(self) -> float:
        """How many times the mean a training row weighs in F at most."""
        return 1.0 if self.by_rows else MAX_UNEVEN


@dataclass(frozen=True)
class Place:
    """Which silo of a pool it is that reads a query, and what its rows weigh."""

    index: int
    mass: float


TASK_ARRAYS = {
    "input_mean": AnswerField(("features",)),
    "input_scale": AnswerField(("features",)),
    "input_fill": AnswerField(("gaps",)),
    "target": AnswerField((2,)),
    "membership": AnswerField(("cells", "strata")),
}


@dataclass(frozen=True, eq=False)
class Task:
    """What all silos agree on after the census.

    Attributes
    ----------
    model
        The model, bound to the schema and to the agreed scaling.
    cells
        The cells of the constraint.
    shares
        p_k: the weight of each silo in the risk F, shape (K,), sum 1.
    pool
        The silos behind what answers as one: all receive the same, and each finds its
        own share. None where silos are kept apart.
    """

    model: Model
    cells: Cells
    shares: FloatArray
    pool: Pool | None = None

    @cached_property
    def digest(self) -> bytes:
        """Hash of all that answers depend on: bounds are no part of it."""
        cells, given = self.cells, (self.scoring, self.model.mu, self.pool)
        return _hash(*given, cells.membership, cells.silo, self.shares).digest()

    @cached_property
    def scaling(self) -> str:
        """Hash of how the model sees rows."""
        inputs = self.model.inputs
        return _hash(*inputs.arrays, inputs.deferred, inputs.longest).hexdigest()

    @cached_property
    def scoring(self) -> str:
        """Hash of what the losses of rows depend on, besides w."""
        plain = {k: v for k, v in self.model.describe().items() if k != "l2"}
        return _hash(self.scaling, sorted(plain.items()), self.model.target).hexdigest()

    def plain(self, index: int) -> tuple[dict[str, Any], Arrays]:
        """Return what the silo at `index` is to know of it."""
        inputs, target, apart = self.model.inputs, self.model.target, self.pool is None
        header = {
            "model": dict(self.model.describe()),
            "index": index if apart else 0,
            "share": float(self.shares[index]) if apart else 0.0,
            "pool": None if apart else vars(self.pool),
        }
        arrays = {
            "input_mean": inputs.mean,
            "input_scale": inputs.scale,
            "input_fill": inputs.fill,
            "target": np.array([target.mean, target.scale]),
            "membership": self.cells.of_silo(index),
        }
        return header, arrays

    @classmethod
    def read(
        cls,
        header: Any,
        arrays: Arrays,
        schema: Schema,
        build: Callable[[object], Model],
        place: Place | None,
    ) -> tuple[Task, int]:
        """Make a task of what was read of a message; return also the silo's place."""
        pool, index, share = header.pool, header.index, header.share
        if (pool is None) != (place is None):
            raise Malformed("a query to a pool of silos, or one that should be")
        if place is not None:
            index, share = place.index, pool.share(place.mass)
            if index >= pool.silos or not share <= 1:
                raise Malformed("a pool without this silo, or without its rows")
        mean, scale, fill, (centre, width), member = map(arrays.pop, TASK_ARRAYS)
        if (scale <= 0).any() or width <= 0:
            raise Malformed("a scale is not positive")
        if len(member) > MAX_CELLS or not np.isin(member, (0.0, 1.0)).all():
            raise Malformed(
                f"membership of more than {MAX_CELLS} cells, or not 0 and 1"
            )
        inputs = Inputs(mean, scale, fill=fill, gaps=schema.gaps)
        target = UNSCALED if schema.labels else Target(float(centre), float(width))
        try:
            model = build(header.model).bind(schema, inputs).with_target(target)
        except Malformed:
            raise
        except PFFLError as error:
            raise Malformed(f"the model cannot be built: {error}") from error
        z = len(member)
        names, everywhere = tuple(map(str, range(z))), np.full(z, EVERY_SILO)
        cells = Cells(names, np.zeros(z), member.astype(bool), everywhere)
        shares = np.zeros(index + 1)  # a silo knows its own
        shares[index] = share
        return cls(model, cells, shares, pool), index


@dataclass(frozen=True, eq=False)
class View:
    """One silo's rows of one split, as the model sees them.

    `person` names the person of each row, where that is known; `weight` how much it
    counts, s_i > 0, where rows have weights.
    """

    index: int
    X: Design
    y: FloatArray
    stratum: IntArray
    person: IntArray | None = None
    weight: FloatArray | None = None

    @classmethod
    def of(cls, silo: Silo, schema: Schema, model: Model | None, split: str) -> View:
        """Scale the inputs and code the strata of one split; without a model, raw."""
        rows = silo.rows(split).counting
        X = raw(rows.X) if model is None else model.inputs.apply(rows.X)
        stratum = schema.strata(rows.group, rows.y)
        return cls(silo.index, X, rows.y, stratum, rows.person, rows.weight)

    def without(self, strata: BoolArray) -> View:
        """Return the rows of all other strata, as if these were not there."""
        if not strata.any():
            return self
        return self.take(np.flatnonzero(~strata[self.stratum]))

    def take(self, rows: IntArray | slice) -> View:
        """Return some of the rows, in this order."""
        names = ("X", "y", "stratum", "person", "weight")
        known = {n: v for n in names if (v := getattr(self, n)) is not None}
        return replace(self, **{name: value[rows] for name, value in known.items()})

    def __len__(self) -> int:
        return len(self.y)

    @property
    def mass(self) -> float:
        """m_k: what all rows weigh together."""
        return float(len(self) if self.weight is None else self.weight.sum())

    def weigh(self, values: FloatArray) -> FloatArray:
        """Return `values`, shape (n,) or (n, c), times s_i."""
        return weighed(values, self.weight)

    def mean(self, values: FloatArray) -> float:
        """Return the mean of `values`, shape (n,)."""
        if self.weight is None:
            return float(values.mean())
        return float(self.weigh(values).sum()) / self.mass

    def stratum_sums(self, values: FloatArray, n_strata: int) -> FloatArray:
        """Sum `values`, shape (n,) or (n, c), per stratum."""
        sums = np.zeros((n_strata, *values.shape[1:]))
        np.add.at(sums, self.stratum, values)
        return sums


def raw(X: Matrix | Design) -> Design:
    """Return inputs as they are, sparse ones with nothing taken off."""
    if isinstance(X, np.ndarray | ScaledRows):
        return X
    return ScaledRows(X, np.zeros(X.shape[1]))


def weighed(values: FloatArray, weight: FloatArray | None) -> FloatArray:
    """Return each row's values, shape (n, …), times its weight."""
    if weight is None:
        return values
    return values * weight.reshape(-1, *[1] * (values.ndim - 1))


@dataclass_transform(
    eq_default=False, frozen_default=True, field_specifiers=(vector, field)
)
class Query(Generic[T_co]):
    """A request that a silo can answer from one split of its rows.

    A subclass is a frozen class of fields, is known under its name in small letters,
    and names the class of its answers. All fields travel but those in `LOCAL`, which
    are the server's own, or known at the site.

    Attributes
    ----------
    split
        The split that is asked about.
    task
        What the silos agreed on; None before they did.
    silos
        Which silos are asked, by index; None for all.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    kinds: ClassVar[dict[str, type[Query[Any]]]] = {}
    kind: ClassVar[str]
    total_type: ClassVar[type[Total]]

    split: str
    task: Task | None
    silos: tuple[int, ...] | None = None

    @cached_property
    def digest(self) -> bytes:
        """Hash of all that the answer depends on."""
        known = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value.size if isinstance(value, np.ndarray) else value != f.default:
                known[f.name] = value.digest if isinstance(value, Task) else value
        return _hash(self.kind, *known, *known.values()).digest()[:8]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, eq=False)(cls)
        cls.kind = cls.__name__.lower()
        if "total_type" in vars(cls):
            cls.kinds[cls.kind] = cls

    def answer(self, view: View) -> T_co:
        """Answer for one silo."""
        raise NotImplementedError

    @property
    def released(self) -> bool:
        """Whether the answer is whole numbers with noise; see `queries.release`."""
        return False

    @property
    def counts_rows(self) -> bool:
        """Whether it is the census that is asked once, and frozen."""
        return False

    @property
    def answer_type(self) -> type[Total]:
        """The class of its answers."""
        return self.total_type

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer."""
        raise NotImplementedError

    def pooled(self, total: Any, views: Sequence[View]) -> Any:
        """Return the total of silos in this process, put right by their rows."""
        return total

    @property
    def view_key(self) -> tuple[str, str]:
        """What tells the view that it is answered from, from others in a message."""
        return self.split, "" if self.task is None else self.task.scaling

    def plain(self, index: int) -> tuple[dict[str, Any], Arrays]:
        """Return what is sent to the silo at `index`: plain values, and arrays."""
        header: dict[str, Any] = {"query": self.kind}
        arrays: Arrays = {}
        if self.task is not None:
            own, arrays = self.task.plain(index)
            header |= own
        for part in _sent(type(self), arrays=False):
            value = getattr(self, part.name)
            header[part.name] = None if value in (None, math.inf) else value
        for part in _sent(type(self), arrays=True):
            arrays[part.name] = getattr(self, part.name)
        return header, {n: np.asarray(a, np.float64) for n, a in arrays.items()}


class ModelQuery(Query[T_co]):
    """A query about the model at `w`, on rows as the model sees them."""

    task: Task
    w: FloatArray = vector("p")

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer."""
        z, strata = self.task.cells.membership.shape
        p = self.task.model.n_parameters
        return {"p": p, "z": z, "1+z": 1 + z, "strata": strata}

    # What a site checks before it answers

    def within(self, view: View, check: CheckStep) -> T_co:
        """Answer for one silo; `check` is shown each w to which local steps lead."""
        return self.answer(view)

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        """Everything that rows are scored with."""
        return (self.w,)

    @property
    def steepness(self) -> float:
        """By how much the answer is steeper in w than losses are."""
        return 1.0


def read_query(
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    schema: Schema,
    *,
    own_model: Rebuild | None = None,
    place: Place | None = None,
) -> tuple[Query[Any], int]:
    """Read a query, and the place of the silo that it is meant for.

    Every type, length and range is checked against the site's schema. `own_model`
    rebuilds models with a module of the user's own. `place` is that of a silo in a
    pool; without one, queries to a pool are refused, and with one all others.
    """
    kind = header.get("query")
    if not isinstance(kind, str) or kind not in Query.kinds:
        raise Malformed(f"'query' is {str(kind)[:40]!r}, not one of {[*Query.kinds]}")
    cls, index, n = Query.kinds[kind], 0, schema.n_features
    plain = read(_header_of(kind), header, source="a query", error=Malformed)
    about_model = issubclass(cls, ModelQuery)
    declared = dict(TASK_ARRAYS) if about_model else {}
    declared |= {part.name: part.metadata[DECLARED] for part in _sent(cls, arrays=True)}
    w, member = (arrays.get(name, np.zeros(0)) for name in ("w", "membership"))
    p, z = w.size, len(member) if member.ndim else 0
    dims = {"features": n, "1+features": 1 + n, "p": p, "z": z, "1+z": 1 + z}
    dims |= {"gaps": len(schema.indicators), "strata": schema.n_strata}
    own = read_arrays(declared, arrays, dims)
    known: dict[str, Any] = {"schema": schema}
    if about_model:
        build = own_model or rebuild
        task, index = Task.read(plain, own, schema, lambda d: build(d, p), place)
        if p != task.model.n_parameters:
            raise Malformed(f"w has {p} numbers, not {task.model.n_parameters}")
        known = {"task": task}
    for part in _sent(cls, arrays=False):
        value = getattr(plain, part.name)
        known[part.name] = part.default if value is None else value
    return cls(**known, **own), index


LOCAL = ("task", "schema", "silos", "adding", "sample")


def _sent(cls: type[Query[Any]], *, arrays: bool) -> list[Field[Any]]:
    """Return the fields that are sent: arrays, or plain values."""
    sent = [f for f in fields(cls) if f.init and f.name not in LOCAL]
    return [f for f in sent if (DECLARED in f.metadata) == arrays]


@cache
def _header_of(kind: str) -> Any:
    """Return the plain part of a request, as it is read; null is None, or infinity."""
    cls, entries = Query.kinds[kind], dict[str, Any](query=str)
    for part in _sent(cls, arrays=False):
        value = PLAIN[str(part.type).removesuffix(" | None")]
        optional = part.default is None or part.default == math.inf
        entries[part.name] = value | None if optional else value
    if issubclass(cls, ModelQuery):
        entries |= {"model": dict[str, Any], "pool": Pool | None}
        entries["index"] = Annotated[int, Bounds(ge=0, lt=MAX_SILOS)]
        entries["share"] = Annotated[float, Bounds(ge=0, le=1)]
    return make_dataclass(kind, entries.items(), bases=(Record,))


def _hash(*values: object) -> Any:
    parts = []
    for value in values:
        if isinstance(value, np.ndarray):
            parts += [repr(value.shape).encode(), value.tobytes()]
        else:
            parts.append(repr(value).encode() + b"\0")
    return hashlib.blake2b(b"".join(parts))
