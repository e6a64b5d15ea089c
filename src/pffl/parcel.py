"""Parcels: a JSON header and named arrays in one string of bytes.

What travels between server and sites, and what a checkpoint is made of. The bytes are
a safetensors file whose only metadata is the header, written by the format's own
library. Reading judges everything that is announced (lengths, types, shapes, places)
against the bytes that are there, before memory is given to anything; arrays are then
views of those bytes. No code is ever loaded, and nothing but `Malformed` is raised.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from pffl.errors import Malformed

HEADER = "pffl"  # key of our header in safetensors' metadata
LARGEST = 1 << 30  # bytes of a parcel
LARGEST_HEADER = 16 << 20
MOST_ARRAYS = 256
MOST_AXES = 8
TYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
}


@dataclass(frozen=True, eq=False)
class Parcel:
    """A header of plain JSON values, and named arrays."""

    header: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def pack(parcel: Parcel) -> bytes:
    """Write a parcel; equal parcels give equal bytes.

    Booleans become bytes 0 and 1; other types than float64, float32, int64 and uint8
    are an error of the caller.
    """
    from safetensors.numpy import save

    arrays = {name: _writable(array) for name, array in parcel.arrays.items()}
    text = json.dumps(
        dict(parcel.header), sort_keys=True, ensure_ascii=False, allow_nan=False
    )
    return save(arrays, metadata={HEADER: text})


def unpack(
    content: bytes, *, largest: int = LARGEST, most: int = MOST_ARRAYS
) -> Parcel:
    """Read a parcel, or raise `Malformed` with the reason."""
    metadata, arrays = judge(content, largest=largest, most=most)
    if set(metadata) != {HEADER}:
        raise Malformed(f"[bad-frame] the header's metadata is not '{HEADER}' alone")
    return Parcel(_json(metadata[HEADER], "own header"), arrays)


def judge(
    content: bytes, *, largest: int = LARGEST, most: int = MOST_ARRAYS
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Judge the bytes of a safetensors file; return its metadata and arrays."""
    size = len(content)
    if size > largest:
        raise Malformed(
            f"[too-large] {size:,} bytes, where at most {largest:,} are accepted"
        )
    if size < 8:
        raise Malformed(f"[bad-frame] {size} bytes are no parcel")
    length = int.from_bytes(content[:8], "little")
    if length > min(size - 8, LARGEST_HEADER):
        raise Malformed(
            f"[bad-frame] a header of {length:,} bytes is announced in {size:,} bytes "
            f"(at most {LARGEST_HEADER:,} are accepted)"
        )
    table = _json(content[8 : 8 + length], "header")
    metadata = table.pop("__metadata__", None)
    if not isinstance(metadata, dict):
        raise Malformed("[bad-frame] the header has no metadata")
    if len(table) > most:
        raise Malformed(
            f"[too-many-arrays] {len(table)} arrays, where at most {most} may be"
        )
    places = {name: _place(name, entry) for name, entry in table.items()}
    _check_places(places, size - 8 - length)
    return metadata, {
        name: np.frombuffer(
            content, place.dtype, place.count, 8 + length + place.begin
        ).reshape(place.shape)
        for name, place in places.items()
    }


@dataclass(frozen=True)
class _Place:
    """Where an array lies among the bytes, and what it is."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def count(self) -> int:
        return math.prod(self.shape)


def _place(name: str, entry: Any) -> _Place:
    """Judge one entry of the table."""
    try:
        dtype = TYPES[entry["dtype"]]
        shape, (begin, end) = entry["shape"], entry["data_offsets"]
        whole = all(type(n) is int and 0 <= n <= LARGEST for n in (*shape, begin, end))
        good = whole and len(shape) <= MOST_AXES and set(entry) == _ENTRY
    except (TypeError, ValueError, KeyError):
        good = False
    if not good:
        raise Malformed(
            f"[bad-array] array {_short(name)} is announced as {_short(entry)}"
        )
    place = _Place(dtype, tuple(shape), begin, end)
    if place.end - place.begin != place.count * dtype.itemsize:
        raise Malformed(
            f"[bad-array] array {_short(name)}: shape {list(shape)} does not take "
            f"{end - begin:,} bytes"
        )
    return place


_ENTRY = {"dtype", "shape", "data_offsets"}


def _check_places(places: Mapping[str, _Place], size: int) -> None:
    """Refuse arrays that overlap, leave holes, or end before or after the bytes."""
    end = 0
    for place in sorted(places.values(), key=lambda place: (place.begin, place.end)):
        if place.begin != end:
            raise Malformed("[bad-layout] arrays overlap or leave holes")
        end = place.end
    if end != size:
        raise Malformed(
            f"[bad-layout] arrays take {end:,} bytes, and {size:,} are there"
        )


def _json(text: object, what: str) -> dict[str, Any]:
    """Parse an object of plain values; no NaN, no infinity."""
    if not isinstance(text, str | bytes):
        raise Malformed(f"[not-text] the {what} is not text")
    try:
        plain = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"[not-json] the {what} is not JSON: {error}") from error
    if not isinstance(plain, dict):
        raise Malformed(f"[not-json] the {what} is not a JSON object")
    return plain


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    array = np.asarray(array, order="C")
    array = array.astype(np.uint8) if array.dtype == np.bool_ else array
    if array.dtype not in TYPES.values():
        raise TypeError(f"a parcel holds no arrays of type {array.dtype}")
    return array


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
