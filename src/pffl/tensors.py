"""A JSON header and named arrays in one string of bytes.

What travels between server and sites, and what logs and model files are made of. The
bytes are a safetensors file whose only metadata is the header, written and read by the
format's own library: what is announced (lengths, types, shapes, places) is judged
against the bytes that are there. No code is loaded, and only `Malformed` is raised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pffl.errors import Malformed
from pffl.records import read

HEADER = "pffl"  # key of our header in safetensors' metadata
MAX_BYTES = 1 << 30
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


def unpack(content: bytes, *, largest: int = MAX_BYTES) -> Parcel:
    """Read what `pack` wrote, or raise `Malformed` with the reason."""
    metadata, arrays = judge(content, largest=largest)
    if set(metadata) != {HEADER}:
        raise Malformed("bad-frame:unpack", header=HEADER)
    header = read(dict[str, Any], metadata[HEADER], source="header", error=Malformed)
    return Parcel(header, arrays)


def judge(
    content: bytes, *, largest: int = MAX_BYTES
) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """Judge the bytes of a safetensors file; return its metadata and arrays.

    The format's own library checks lengths, places and shapes against the bytes.
    """
    from safetensors import SafetensorError, deserialize

    if len(content) > largest:
        raise Malformed("too-large:judge", size=len(content), largest=largest)
    try:
        found = deserialize(content)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise Malformed("bad-frame:judge", error=error) from error
    if len(found) > MAX_ARRAYS:
        raise Malformed("too-many-arrays", n_table=len(found), most=MAX_ARRAYS)
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    arrays = {}
    for name, entry in found:
        dtype, shape = TYPES.get(entry["dtype"]), entry["shape"]
        if dtype is None or len(shape) > MAX_AXES or max([0, *shape]) > MAX_BYTES:
            known = {"dtype": entry["dtype"], "shape": shape}
            raise Malformed("bad-array", name=repr(name)[:80], entry=str(known)[:80])
        arrays[name] = np.frombuffer(entry["data"], dtype).reshape(shape)
    return metadata, arrays
