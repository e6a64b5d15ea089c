"""Plain figures: how they are stored, read and compared."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

DIGITS = 13
TOLERANCE = 1e-9
NO_OTHERS: Mapping[str, float] = MappingProxyType({})
HERE = Path(__file__).parent
WIDE = 88


def plain(value: Any) -> Any:
    """Return what JSON can hold, numbers with thirteen digits."""
    match value:
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case np.ndarray():
            return plain(value.tolist())
        case list() | tuple():
            return [plain(one) for one in value]
        case str():
            return str(value)
        case None | bool() | int():
            return value
        case np.bool_():
            return bool(value)
        case np.integer():
            return int(value)
        case float() | np.floating():
            number = float(value)
            if not math.isfinite(number):
                return str(number)
            return float(f"{number:.{DIGITS}g}") + 0.0
    raise TypeError(f"a golden run returned a {type(value).__name__}")


def text_of(figures: Any) -> str:
    """Return sorted, indented JSON, with lists of plain values on few lines."""
    text = json.dumps(figures, indent=1, sort_keys=True, ensure_ascii=False)
    return re.sub(r"\[[^\[\]{}]*\]", _folded, text) + "\n"


def _folded(found: re.Match[str]) -> str:
    items = [line.strip() for line in found[0][1:-1].strip().split("\n")]
    lines = [""]
    for item in items:
        if len(lines[-1]) + len(item) > WIDE - 12:
            lines.append("")
        lines[-1] += f" {item}" if lines[-1] else item
    return "[" + "\n  ".join(lines) + "]"


def place(name: str, *, real: bool = False) -> Path:
    """Where the figures of a run are stored."""
    return (HERE / "real" if real else HERE) / f"{name}.json"


def read(name: str, *, real: bool = False) -> Any:
    """Return the stored figures of a run."""
    return json.loads(place(name, real=real).read_text("utf-8"))


def differences(
    stored: Any,
    found: Any,
    tolerances: Mapping[str, float] = NO_OTHERS,
    *,
    tolerance: float = TOLERANCE,
    key: str = "",
) -> Iterator[str]:
    """Name each key where the two differ, with the stored and the found value.

    Words and whole numbers agree exactly; others up to `tolerance` of their scale,
    which is the largest number of their list, and at least 1; `tolerances` has other
    ones by key. A stored interval ({"from": …, "to": …}) holds the number found.
    """
    tolerance = tolerances.get(key, tolerance)
    more: Any = {"tolerances": tolerances, "tolerance": tolerance}
    if isinstance(stored, Mapping) and set(stored) == {"from", "to"}:
        good = _number(found) and stored["from"] <= found <= stored["to"]
        if not good:
            ends = f"[{stored['from']!r}, {stored['to']!r}]"
            yield f"{key}: stored {ends}, found {found!r}"
    elif isinstance(stored, Mapping) and isinstance(found, Mapping):
        for name in sorted({*stored, *found}):
            inner = f"{key}/{name}" if key else name
            if name not in found:
                yield f"{inner}: stored {_short(stored[name])}, found nothing"
            elif name not in stored:
                yield f"{inner}: stored nothing, found {_short(found[name])}"
            else:
                yield from differences(stored[name], found[name], **more, key=inner)
    elif isinstance(stored, list) and isinstance(found, list):
        if len(stored) != len(found):
            yield f"{key}: stored {len(stored)} entries, found {len(found)}"
            return
        scale = _scale(stored)
        for place, pair in enumerate(zip(stored, found, strict=True)):
            inner = f"{key}[{place}]"
            if _number(pair[0]) and _number(pair[1]):
                yield from _compared(*pair, tolerance * scale, inner)
            else:
                yield from differences(*pair, **more, key=inner)
    elif _number(stored) and _number(found):
        yield from _compared(stored, found, tolerance * _scale([stored]), key)
    elif type(stored) is not type(found) or stored != found:
        yield f"{key}: stored {_short(stored)}, found {_short(found)}"


def _compared(stored: Any, found: Any, tolerance: float, key: str) -> Iterator[str]:
    whole = isinstance(stored, int) and isinstance(found, int)
    if stored != found if whole else not abs(stored - found) <= tolerance:
        yield f"{key}: stored {stored!r}, found {found!r}"


def _scale(values: Sequence[Any]) -> float:
    return max([1.0, *(abs(value) for value in values if _number(value))])


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
