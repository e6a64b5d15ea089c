"""A method's state as a JSON tree and arrays, and back, led by its type.

The dataclass that is wanted says how to read: which fields there are, which of them
are arrays and of what numbers. A file holds values only, never the name of a class, so
nothing but the type asked for can come out of it. What can be held:

    int, float (infinite, too), bool, str, Literal, None
    arrays of float64, int64 and bool, in the memory order that they had
    tuples, and dataclasses of all these, nested

The memory order is kept because sums over rows and over columns round differently.
"""

from __future__ import annotations

import math
import operator
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

INFINITE = {"inf": math.inf, "-inf": -math.inf}
STORED = {np.float64: np.float64, np.int64: np.int64, np.bool_: np.uint8}


class Unreadable(Exception):
    """A tree that does not hold what its type says, and where."""


class NotFinite(Exception):
    """A state with a number in it that is none: there is no point in keeping it."""


@dataclass
class Writer:
    """Turns values into trees; equal arrays (the same object) are kept once."""

    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _held: list[object] = field(default_factory=list)  # an id is theirs while they live

    def write(self, value: Any, kind: Any) -> Any:
        """Return the tree of a value of this type."""
        origin = get_origin(kind)
        if origin in (Union, types.UnionType):
            return None if value is None else self.write(value, _other_than_none(kind))
        if is_dataclass(kind) and isinstance(kind, type):
            hints = _hints(kind)
            if type(value) is not kind:
                raise TypeError(f"{value!r} is not of {kind}")
            return {n: self.write(getattr(value, n), k) for n, k in hints.items()}
        if origin is tuple:
            kinds = _kinds(kind, len(value))
            return [self.write(v, k) for v, k in zip(value, kinds, strict=True)]
        if origin is np.ndarray:
            return self._array(value, _numbers(kind))
        return _scalar(value, kind)

    def _array(self, value: NDArray[Any], numbers: type) -> dict[str, Any]:
        if value.dtype != numbers:
            raise TypeError(f"an array of {value.dtype} where {numbers} is declared")
        if numbers is np.float64 and not np.isfinite(value).all():
            raise NotFinite
        axes = sorted(range(value.ndim), key=lambda axis: -value.strides[axis])
        if id(value) not in self._names:
            self._names[id(value)] = name = str(len(self.arrays))
            self._held.append(value)
            self.arrays[name] = value.transpose(axes).astype(STORED[numbers])
        return {"array": self._names[id(value)], "axes": axes}


@dataclass
class Reader:
    """Turns trees back into values; refuses whatever its type does not say."""

    arrays: Mapping[str, NDArray[Any]]
    _made: dict[tuple[str, type], NDArray[Any]] = field(default_factory=dict)

    def read(self, tree: Any, kind: Any, like: Any = None, where: str = "state") -> Any:
        """Return the value of this type; arrays must have the shape of those in `like`.

        `like` is a value of the same type, or None where there is none.
        """
        origin = get_origin(kind)
        if origin in (Union, types.UnionType):
            if tree is None:
                return None
            return self.read(tree, _other_than_none(kind), like, where)
        if is_dataclass(kind) and isinstance(kind, type):
            hints = _hints(kind)
            if not isinstance(tree, dict) or set(tree) != set(hints):
                raise Unreadable(f"{where} does not have the fields {', '.join(hints)}")
            parts = {
                n: self.read(tree[n], k, getattr(like, n, None), f"{where}.{n}")
                for n, k in hints.items()
            }
            return kind(**parts)
        if origin is tuple:
            if not isinstance(tree, list):
                raise Unreadable(f"{where} is not a list")
            kinds = list(_kinds(kind, len(tree)))
            if len(kinds) != len(tree):
                raise Unreadable(f"{where} has {len(tree)} entries, not {len(kinds)}")
            pairs = zip(tree, kinds, strict=True)
            return tuple(self.read(t, k, None, where) for t, k in pairs)
        if origin is np.ndarray:
            return self._array(tree, _numbers(kind), like, where)
        return _read_scalar(tree, kind, where)

    def _array(self, tree: Any, numbers: type, like: Any, where: str) -> NDArray[Any]:
        try:
            name, axes = tree["array"], tree["axes"]
            stored = self.arrays[name]
            good = set(tree) == {"array", "axes"} and stored.dtype == STORED[numbers]
            good = good and sorted(axes) == list(range(stored.ndim))
        except (KeyError, TypeError):
            good = False
        if not good:
            raise Unreadable(f"{where} is not an array of {numbers.__name__}")
        key = (name + str(axes), numbers)
        if key not in self._made:
            order = np.argsort(np.array(axes, dtype=np.int64))
            self._made[key] = np.array(stored, dtype=numbers).transpose(order)
        array = self._made[key]
        if isinstance(like, np.ndarray) and like.shape != array.shape:
            raise Unreadable(f"{where} has the shape {array.shape}, not {like.shape}")
        if numbers is np.float64 and not np.isfinite(array).all():
            raise Unreadable(f"{where} holds numbers that are not finite")
        return array


def _scalar(value: Any, kind: Any) -> Any:
    """Return a JSON value; a number that is infinite becomes text."""
    if kind is bool and isinstance(value, bool | np.bool_):
        return bool(value)
    if kind is int and not isinstance(value, bool):
        return operator.index(value)
    if kind is float and isinstance(value, int | float):
        number = float(value)
        if math.isnan(number):
            raise NotFinite
        return str(number) if math.isinf(number) else number
    if (kind is str and isinstance(value, str)) or value in _choices(kind):
        return value
    raise TypeError(f"a checkpoint cannot hold {value!r} as {kind}")


def _read_scalar(tree: Any, kind: Any, where: str) -> Any:
    if kind is float and isinstance(tree, str) and tree in INFINITE:
        return INFINITE[tree]
    if kind in (bool, int, float, str) and type(tree) is kind:
        return tree
    if any(type(tree) is type(choice) and tree == choice for choice in _choices(kind)):
        return tree
    raise Unreadable(f"{where} is {str(tree)[:40]!r}, which is not {kind}")


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _other_than_none(kind: Any) -> Any:
    """Return T of ``T | None``."""
    known = [part for part in get_args(kind) if part is not types.NoneType]
    if len(known) != 1:
        raise TypeError(f"a checkpoint cannot tell the parts of {kind} apart")
    return known[0]


def _kinds(kind: Any, length: int) -> Iterator[Any]:
    """Types of a tuple's entries."""
    arguments = get_args(kind)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return iter([arguments[0]] * length)
    return iter(arguments)


def _numbers(kind: Any) -> type:
    """Type of an array's numbers."""
    numbers: type = get_args(get_args(kind)[1])[0]
    if numbers not in STORED:
        raise TypeError(f"a checkpoint holds no arrays of {numbers}")
    return numbers


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in fields(kind)}
