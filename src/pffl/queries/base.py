"""What every query shares: the task, a silo's rows as the model sees them, requests.

A query is a frozen request with ``answer(view)``, a pure function of one silo's
rows. Answers add, and only their total is used: that is the whole protocol. What is
sent is all that a site needs to answer, and nothing of other sites: its own share p_k,
its own part of the cells, and no names or bounds.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import (
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

from pffl.constraints import EVERY_SILO, Cells
from pffl.data.rows import Matrix, Silo
from pffl.data.schema import Schema
from pffl.errors import Malformed, PFFLError, Refused
from pffl.files import digest_arrays
from pffl.models import Inputs, Model, Target, rebuild
from pffl.models.base import UNSCALED
from pffl.models.scaled import Design, ScaledRows
from pffl.queries.fields import (
    DECLARED,
    MAX_SUM,
    Arrays,
    Dims,
    RequestField,
    Total,
    choice,
    scalar,
    table,
    text,
    vector,
    whole,
)
from pffl.typing import BoolArray, FloatArray, IntArray

MAX_CELLS = 10_000
MAX_SILOS = 1_000_000
MAX_UNEVEN = 1000.0  # times the mean that a row of a pool may weigh in F

CheckStep: TypeAlias = Callable[[FloatArray], None]  # refuses a w, or does nothing
Rebuild: TypeAlias = Callable[[object, int], Model]  # describe(), len(w) → unbound
T_co = TypeVar("T_co", bound=Total, covariant=True)


@dataclass(frozen=True)
class Pool:
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

    silos: int
    by_rows: bool
    mass: float

    def share(self, mass: float) -> float:
        """Return p_k of a silo whose training rows weigh so much.

        What is proved of totals needs that no row weighs far more in F than others: a
        silo with hardly any rows, and a share like all others, takes no part.
        """
        if self.by_rows:
            return mass / self.mass
        if mass * self.silos * MAX_UNEVEN < self.mass:
            raise Refused(
                "[uneven-silo] each of this silo's rows would weigh more than "
                f"{MAX_UNEVEN:,.0f} times as much as the mean row: weight silos by "
                "their rows (weighting = 'rows')"
            )
        return 1 / self.silos

    def uneven(self, split: str) -> float:
        """Return how many times the mean a row of a split weighs in F at most.

        Shares are those of training rows: of other rows, nothing is known.
        """
        if split != "train":
            return math.inf
        return 1.0 if self.by_rows else MAX_UNEVEN


@dataclass(frozen=True)
class Place:
    """Which silo of a pool it is that reads a query, and what its rows weigh."""

    index: int
    mass: float


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
        cells, inputs = self.cells, self.model.inputs
        parts = (
            dict(self.model.describe()),
            *(*inputs.arrays, inputs.longest),
            *(str(self.model.target), str(self.pool)),
            *(cells.membership, cells.silo, self.shares),
        )
        return hashlib.blake2b(b"".join(map(_bytes, parts))).digest()

    @cached_property
    def scaling(self) -> str:
        """Hash of how the model sees rows."""
        return digest_arrays(*self.model.inputs.arrays)

    @cached_property
    def scoring(self) -> str:
        """Hash of what the losses of rows depend on, besides w."""
        model = self.model
        plain = {k: v for k, v in model.describe().items() if k != "l2"}
        text = json.dumps(plain, sort_keys=True, default=str).encode()
        target = np.array([model.target.mean, model.target.scale])
        return digest_arrays(
            *model.inputs.arrays, target, np.frombuffer(text, np.uint8)
        )

    def plain(self, index: int) -> tuple[dict[str, Any], Arrays]:
        """Return what the silo at `index` is to know of it."""
        inputs, target = self.model.inputs, self.model.target
        header: dict[str, Any] = {"model": dict(self.model.describe())}
        if self.pool is not None:
            header["pool"] = asdict(self.pool)
        else:
            header |= {"index": index, "share": float(self.shares[index])}
        arrays: Arrays = {
            "input_mean": inputs.mean,
            "input_scale": inputs.scale,
            "membership": self.cells.of_silo(index),
        }
        if len(inputs.fill):
            arrays["input_fill"] = inputs.fill
        if target != UNSCALED:
            arrays["target"] = np.array([target.mean, target.scale])
        return header, arrays

    @classmethod
    def read(
        cls,
        header: dict[str, Any],
        arrays: Arrays,
        schema: Schema,
        build: Callable[[object], Model],
    ) -> tuple[Task, int]:
        """Take a task out of a message; return also the place of the silo.

        A pool's is not known yet: see `read_query`.
        """
        index, pool, share = 0, None, 0.0
        if "pool" in header:
            pool = Pool(**_POOL.take("pool", header))
        else:
            index, share = _INDEX.take("index", header), _SHARE.take("share", header)
        dims = {"features": schema.n_features, "strata": schema.n_strata}
        dims |= {"gaps": len(schema.indicators), "2": 2}

        def taken(name: str, *axes: str) -> FloatArray:
            return RequestField(axes=axes).take_array(name, arrays, dims)

        mean, scale = taken("input_mean", "features"), taken("input_scale", "features")
        inputs, target = Inputs(mean, scale), UNSCALED
        if schema.indicators:
            fill = taken("input_fill", "gaps")
            inputs = replace(inputs, fill=fill, gaps=schema.gaps)
        if "target" in arrays and not schema.labels:
            target = Target(*taken("target", "2").tolist())
        if (scale <= 0).any() or target.scale <= 0:
            raise Malformed("a scale is not positive")
        member = taken("membership", "cells", "strata")
        if len(member) > MAX_CELLS or not np.isin(member, (0.0, 1.0)).all():
            raise Malformed(
                f"membership of more than {MAX_CELLS} cells, or not 0 and 1"
            )
        try:
            model = build(RequestField().take("model", header))
            model = model.bind(schema, inputs).with_target(target)
        except Malformed:
            raise
        except PFFLError as error:
            raise Malformed(f"the model cannot be built: {error}") from error
        z = len(member)
        names, everywhere = tuple(map(str, range(z))), np.full(z, EVERY_SILO)
        cells = Cells(names, np.zeros(z), member.astype(bool), everywhere)
        return cls(model, cells, _share_of(index, share), pool), index

    def at(self, place: Place) -> Task:
        """Return a pool's task as one of its silos knows it."""
        if self.pool is None or place.index >= self.pool.silos:
            raise Malformed("a task of no pool, or of one without this silo")
        share = self.pool.share(place.mass)
        if not share <= 1:
            raise Malformed(f"a share of {share}")
        return replace(self, shares=_share_of(place.index, share))


def _share_of(index: int, share: float) -> FloatArray:
    """Return shares as one silo knows them: its own."""
    shares = np.zeros(index + 1)
    shares[index] = share
    return shares


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


def raw(X: Matrix) -> Design:
    """Return inputs as they are, sparse ones with nothing taken off."""
    return X if isinstance(X, np.ndarray) else ScaledRows(X, np.zeros(X.shape[1]))


def weighed(values: FloatArray, weight: FloatArray | None) -> FloatArray:
    """Return each row's values, shape (n, …), times its weight."""
    if weight is None:
        return values
    return values * weight.reshape(-1, *[1] * (values.ndim - 1))


@dataclass_transform(
    eq_default=False,
    frozen_default=True,
    field_specifiers=(vector, table, scalar, whole, choice, text, field),
)
class Query(Generic[T_co]):
    """A request that a silo can answer from one split of its rows.

    A subclass is a frozen class of fields, is known under its name in small letters,
    and names the class of its answers. Declared fields travel; others are the server's
    own, or known at the site.

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
    asked: ClassVar[Mapping[str, RequestField]]  # the fields that travel

    split: str
    task: Task | None
    silos: tuple[int, ...] | None = None

    @cached_property
    def digest(self) -> bytes:
        """Hash of all that the answer depends on."""
        digest = hashlib.blake2b(type(self).__name__.encode(), digest_size=8)
        for part in fields(self):
            value = getattr(self, part.name)
            content = value.digest if isinstance(value, Task) else _bytes(value)
            digest.update(part.name.encode() + content)
        return digest.digest()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, eq=False)(cls)
        cls.kind = cls.__name__.lower()
        declared = {f.name: f.metadata.get(DECLARED) for f in fields(cls)}
        cls.asked = {name: of for name, of in declared.items() if of is not None}
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
        return {}

    @property
    def scales(self) -> Mapping[str, float]:
        """Numbers that an answer's ranges name."""
        return {}

    def pooled(self, total: Any, views: Sequence[View]) -> Any:
        """Return the total of silos in this process, put right by their rows."""
        return total

    def addend(self, total: Any) -> Any:
        """Return a silo's total as one that can be added under masks."""
        return total

    def summed(self, total: Any, sites: int) -> Any:
        """Return the sum of n sites' `addend` as the total of one silo."""
        return total

    @property
    def view_key(self) -> tuple[str, str]:
        """What tells the view that it is answered from, from others in a message."""
        return self.split, "" if self.task is None else self.task.scaling

    def plain(self, index: int) -> tuple[dict[str, Any], Arrays]:
        """Return what is sent to the silo at `index`: plain values, and arrays."""
        header: dict[str, Any] = {"query": self.kind}
        arrays: Arrays = {}
        for name, of in self.asked.items():
            value = getattr(self, name)
            if of.axes is not None:
                arrays[name] = np.asarray(value, np.float64)
            else:
                header[name] = None if value in (None, np.inf) else value
        return header, arrays

    @classmethod
    def read(
        cls, header: dict[str, Any], arrays: Arrays, schema: Schema, build: Rebuild
    ) -> tuple[Self, int]:
        """Take a query out of a message; return also the place of the silo."""
        n = schema.n_features
        dims = {"1+features": 1 + n, "features": n}
        known: dict[str, Any] = {"schema": schema}
        return cls(**cls._taken(header, arrays, dims), **known), 0

    @classmethod
    def _taken(
        cls, header: dict[str, Any], arrays: Arrays, dims: Dims
    ) -> dict[str, Any]:
        """Take the declared fields out of a message."""
        default = {f.name: f.default for f in fields(cls)}
        return {
            name: of.take(name, header, default[name])
            if of.axes is None
            else of.take_array(name, arrays, dims)
            for name, of in cls.asked.items()
        }


class RowsQuery(Query[T_co]):
    """A query about rows as they are, before a model is agreed on."""

    schema: Schema
    task: None = field(default=None, init=False)

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer."""
        schema = self.schema
        sums = 0 if schema.labels else 2
        return {"features": schema.n_features, "strata": schema.n_strata, "sums": sums}


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

    def plain(self, index: int) -> tuple[dict[str, Any], Arrays]:
        """Return what is sent to the silo at `index`: plain values, and arrays."""
        header, arrays = super().plain(index)
        task_header, task_arrays = self.task.plain(index)
        as_sent = {k: np.asarray(v, np.float64) for k, v in task_arrays.items()}
        return {**header, **task_header}, {**as_sent, **arrays}

    @classmethod
    def read(
        cls, header: dict[str, Any], arrays: Arrays, schema: Schema, build: Rebuild
    ) -> tuple[Self, int]:
        """Take a query out of a message; return also the place of the silo."""
        w = RequestField(axes=("any",)).take_array("w", arrays, {})
        task, index = Task.read(header, arrays, schema, lambda d: build(d, len(w)))
        if len(w) != task.model.n_parameters:
            raise Malformed(f"w has {len(w)} numbers, not {task.model.n_parameters}")
        z = len(task.cells)
        dims = {"p": len(w), "z": z, "1+z": 1 + z}
        arrays["w"] = w
        return cls(**cls._taken(header, arrays, dims), task=task), index

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

    @property
    def leaves_ball(self) -> bool:
        """Whether local steps lead out of any ball, whatever the rows are."""
        return False

    @property
    def batch(self) -> int | None:
        """Rows of each local step, where not all."""
        return None

    @property
    def kept(self) -> Mapping[str, str]:
        """What may not change within a run, by what it is called."""
        return {}


def anywhere(w: FloatArray) -> None:
    """Refuse no w."""


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
    left, left_arrays = dict(header), dict(arrays)
    known = tuple(Query.kinds)
    kind = RequestField(lambda v: v in known, f"one of {known}").take("query", left)
    build = own_model or rebuild
    query, index = Query.kinds[kind].read(left, left_arrays, schema, build)
    if left or left_arrays:
        unknown = sorted([*left, *left_arrays])
        raise Malformed(f"[unknown-key] unknown fields {unknown[:5]}")
    task = query.task
    if task is not None and (task.pool is None) != (place is None):
        raise Malformed("a query to a pool of silos, or one that should be")
    if place is None:
        return query, index
    if task is not None:
        query = replace(query, task=task.at(place))
    return query, place.index


def _is_pool(value: Any) -> bool:
    try:
        pool = Pool(**value)
    except TypeError:
        return False
    good = type(pool.silos) is int and 0 < pool.silos <= MAX_SILOS
    good = good and type(pool.by_rows) is bool and type(pool.mass) is float
    return good and 0 < pool.mass <= MAX_SUM


_INDEX = RequestField(lambda v: type(v) is int and 0 <= v < MAX_SILOS, "a silo")
_SHARE = RequestField(lambda v: type(v) in (int, float) and 0 <= v <= 1, "a share")
_POOL = RequestField(_is_pool, "a pool of silos")


def _bytes(value: object) -> bytes:
    if isinstance(value, np.ndarray):
        return repr(value.shape).encode() + np.ascontiguousarray(value).tobytes()
    return repr(value).encode()
