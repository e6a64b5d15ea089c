"""Numbers and arrays as JSON knows them, and the way back."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from pffl.errors import ArtefactError, UsageError

Json: TypeAlias = (
    bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
)


def plain(value: object) -> Any:
    """Return `value` made of JSON's types only; a non-finite number becomes None.

    >>> plain({"a": np.array([1.0, np.nan]), "b": np.int64(2)})
    {'a': [1.0, None], 'b': 2}
    """
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_key(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence):
        return [plain(entry) for entry in value]
    raise UsageError(f"cannot be written to a certificate: {type(value).__name__}")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise UsageError(f"a key of a certificate must be text. Got {key!r} instead.")
    return key


def take(
    data: object, types: Mapping[str, tuple[type, ...]], what: str
) -> dict[str, Any]:
    """Return a mapping with exactly these keys and types, or say all that is wrong."""
    if not isinstance(data, Mapping):
        raise ArtefactError(f"{what}: not a mapping but {type(data).__name__}")
    problems = [f"'{name}' is missing" for name in types if name not in data]
    problems += [f"{name!r} is unknown" for name in data if name not in types]
    problems += [
        f"'{name}' is {type(data[name]).__name__}, which it cannot be"
        for name, kinds in types.items()
        if name in data and not _fits(data[name], kinds)
    ]
    if problems:
        raise ArtefactError(f"{what}: {'; '.join(problems)}")
    return dict(data)


def _fits(value: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, bool):  # a bool is an int to Python, not to us
        return bool in kinds
    return isinstance(value, kinds)


def texts(values: Collection[object], what: str) -> tuple[str, ...]:
    """Return a tuple of texts, or refuse."""
    out = tuple(value for value in values if isinstance(value, str))
    if len(out) != len(tuple(values)):
        raise ArtefactError(f"{what}: not all entries are text")
    return out
