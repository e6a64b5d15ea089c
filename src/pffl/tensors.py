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
        raise Malformed(f"[bad-frame] the header's metadata is not '{HEADER}' alone")
    return Parcel(_json(metadata[HEADER], "own header"), arrays)


def judge(
    content: bytes, *, largest: int = MAX_BYTES, most: int = MAX_ARRAYS
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Judge the bytes of a safetensors file; return its metadata and arrays."""
    size = len(content)
    if size > largest:
        raise Malformed(
            f"[too-large] {size:,} bytes, where at most {largest:,} are accepted"
        )
    length = int.from_bytes(content[:8], "little")
    if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
        raise Malformed(
            f"[bad-frame] a header of {length:,} bytes is announced in {size:,} bytes "
            f"(at most {MAX_HEADER_BYTES:,} are accepted)"
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
    end = 0
    for _, _, begin, stop in sorted(places.values(), key=lambda place: place[2:]):
        if begin != end:
            raise Malformed("[bad-layout] arrays overlap or leave holes")
        end = stop
    if end != size - 8 - length:
        raise Malformed(
            f"[bad-layout] arrays take {end:,} bytes of {size - 8 - length:,}"
        )
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
        raise Malformed(
            f"[bad-array] array {repr(name)[:80]} is announced as {repr(entry)[:80]}"
        )
    return dtype, shape, begin, end


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
