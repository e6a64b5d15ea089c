"""Weights of a model as evidence keeps them: a plain list, packed where it is long."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pffl.records import Record
from pffl.typing import FloatArray

LONG, LONGEST = 1 << 12, 1 << 28  # numbers that are packed, and at most


@dataclass(frozen=True)
class Packed(Record):
    """A long vector: its numbers other than 0, and where they are.

    Attributes
    ----------
    length
        How many numbers there are.
    places
        Their places, ascending, counted from 0: 32-bit integers, little-endian, in
        base64. None: all numbers are there.
    values
        The numbers, in 64 bits, little-endian, in base64.
    """

    length: int
    places: str | None
    values: str

    def __post_init__(self) -> None:
        places = self._places
        count = self.length if places is None else len(places)
        good = len(self._values) == count and 0 <= self.length <= LONGEST
        good = good and bool(np.isfinite(self._values).all())
        if places is not None and len(places):
            ends = np.append(places, self.length).astype(np.int64)
            good = good and bool((np.diff(ends) > 0).all())
        if not good:
            raise ValueError("a packed vector whose places and values do not fit")

    @cached_property
    def _places(self) -> NDArray[Any] | None:
        return None if self.places is None else _numbers(self.places, "<u4")

    @cached_property
    def _values(self) -> NDArray[Any]:
        return _numbers(self.values, "<f8")

    def unpacked(self) -> FloatArray:
        """Return all numbers."""
        found = np.zeros(self.length)
        found[slice(None) if self._places is None else self._places] = self._values
        return found


#: Numbers as evidence.json has them.
Vector: TypeAlias = list[float] | Packed


def kept(numbers: FloatArray) -> Vector:
    """Return a vector as evidence keeps it."""
    if len(numbers) < LONG:
        return [float(number) for number in numbers]
    places = np.flatnonzero(numbers)
    if 3 * len(places) > 2 * len(numbers):
        return Packed(len(numbers), None, _text(numbers, "<f8"))
    values = _text(numbers[places], "<f8")
    return Packed(len(numbers), _text(places, "<u4"), values)


def numbers_of(vector: Vector) -> FloatArray:
    """Return the numbers of a vector."""
    if isinstance(vector, Packed):
        return vector.unpacked()
    return np.array(vector, dtype=np.float64)


def _text(numbers: NDArray[Any], kind: str) -> str:
    return b64encode(np.ascontiguousarray(numbers, dtype=kind).tobytes()).decode()


def _numbers(text: str, kind: str) -> NDArray[Any]:
    try:
        content = b64decode(text, validate=True)
        return np.frombuffer(content, dtype=kind)
    except (Error, ValueError) as error:
        raise ValueError(f"a packed vector that cannot be read: {error}") from error
