"""A JSON header and named arrays in one string of bytes.

What travels between server and sites, and what logs and model files are made of. The
bytes are a safetensors file whose only metadata is the header, written by the format's
own library. Reading judges everything that is announced (lengths, types, shapes,
places) against the bytes that are there, before memory is given to anything; arrays
are then views of those bytes. No code is loaded, and only `Malformed` is raised.
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
MAX_BYTES = 1 << 30
MAX_HEADER_BYTES = 16 << 20
MAX_ARRAYS = 256
MAX_AXES = 8
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
    """Write header and arrays; equal ones give equal bytes.

    Booleans become bytes 0 and 1; other types than float64, float32, int64 and uint8
    are an error of the caller.
    """
    from safetensors.numpy import save

    arrays = {name: np.asarray(a, order="C") for name, a in parcel.arrays.items()}
    for name, array in arrays.items():
        if array.dtype == np.bool_:
            arrays[name] = array.astype(np.uint8)
        elif array.dtype not in TYPES.values():
            raise TypeError(f"arrays of type {array.dtype} cannot be written")
    text = json.dumps(
        dict(parcel.header), sort_keys=True, ensure_ascii=False, allow_nan=False
    )
    return save(arrays, metadata={HEADER: text})


def unpack(
    content: bytes, *, largest: int = MAX_BYTES, most: int = MAX_ARRAYS
) -> Parcel:
    """Read what `pack` wrote, or raise `Malformed` with the reason."""
    metadata, arrays = judge(content, largest=largest, most=most)
    if set(metadata) != {HEADER}:
        raise Malformed("bad-frame:unpack", header=HEADER)
    return Parcel(_json(metadata[HEADER], "own header"), arrays)


def judge(
    content: bytes, *, largest: int = MAX_BYTES, most: int = MAX_ARRAYS
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Judge the bytes of a safetensors file; return its metadata and arrays."""
    size = len(content)
    if size > largest:
        raise Malformed("too-large:judge", size=size, largest=largest)
    length = int.from_bytes(content[:8], "little")
    if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
        raise Malformed(
            "bad-frame:judge",
            length=length,
            size=size,
            max_header_bytes=MAX_HEADER_BYTES,
        )
    table = _json(content[8 : 8 + length], "header")
    metadata = table.pop("__metadata__", None)
    if not isinstance(metadata, dict):
        raise Malformed("bad-frame:judge-2")
    if len(table) > most:
        raise Malformed("too-many-arrays", n_table=len(table), most=most)
    places = {name: _place(name, entry) for name, entry in table.items()}
    end = 0
    for _, _, begin, stop in sorted(places.values(), key=lambda place: place[2:]):
        if begin != end:
            raise Malformed("bad-layout:judge")
        end = stop
    if end != size - 8 - length:
        raise Malformed("bad-layout:judge-2", end=end, size=size - 8 - length)
    return metadata, {
        name: np.frombuffer(
            content, dtype, math.prod(shape), 8 + length + begin
        ).reshape(shape)
        for name, (dtype, shape, begin, _) in places.items()
    }


def _place(name: str, entry: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Judge one entry of the table: type, shape, and where the bytes begin and end."""
    try:
        dtype = TYPES[entry["dtype"]]
        shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
        numbers = (*shape, begin, end)
        whole = all(type(n) is int and 0 <= n <= MAX_BYTES for n in numbers)
        good = whole and len(shape) <= MAX_AXES and len(entry) == 3
    except (TypeError, ValueError, KeyError):
        good = False
    if not good or end - begin != math.prod(shape) * dtype.itemsize:
        raise Malformed("bad-array", name=repr(name)[:80], entry=repr(entry)[:80])
    return dtype, shape, begin, end


def _json(text: object, what: str) -> dict[str, Any]:
    """Parse an object of plain values; no NaN, no infinity."""
    if not isinstance(text, str | bytes):
        raise Malformed("not-text:json", what=what)
    try:
        plain = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Malformed("not-json:json", what=what, error=error) from error
    if not isinstance(plain, dict):
        raise Malformed("not-json:json-2", what=what)
    return plain


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
