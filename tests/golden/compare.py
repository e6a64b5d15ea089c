"""Plain figures: how they are stored, read and compared."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

DIGITS = 13
TOLERANCE = 1e-9
HERE = Path(__file__).parent
WIDE = 76
NOTHING = type("Nothing", (), {"__repr__": lambda _: "nothing"})()


def plain(value: Any) -> Any:
    """Return what JSON can hold, numbers with thirteen digits."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    match value:
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case float():
            finite = math.isfinite(value)
            return float(f"{value:.{DIGITS}g}") + 0.0 if finite else str(value)
        case None | bool() | int() | str():
            return value
    raise TypeError(f"a golden run returned a {type(value).__name__}")


def text_of(figures: Any) -> str:
    """Return sorted, indented JSON, with lists of plain values on few lines."""
    text = json.dumps(figures, indent=1, sort_keys=True, ensure_ascii=False)
    return re.sub(r"\[[^\[\]{}]*\]", _folded, text) + "\n"


def _folded(found: re.Match[str]) -> str:
    lines = [""]
    for item in map(str.strip, found[0][1:-1].strip().split("\n")):
        if len(lines[-1]) + len(item) > WIDE:
            lines.append("")
        lines[-1] += f" {item}" if lines[-1] else item
    return "[" + "\n  ".join(lines) + "]"


def place(name: str, *, real: bool = False) -> Path:
    """Where the figures of a run are stored."""
    return (HERE / "real" if real else HERE) / f"{name}.json"


def read(name: str, *, real: bool = False) -> Any:
    """Return the stored figures of a run."""
    return json.loads(place(name, real=real).read_text("utf-8"))


def leaves(figures: Any, key: str = "", scale: float = 1.0) -> Iterator[Any]:
    """Each single figure: its key, itself, and the scale of its list, at least 1."""
    if isinstance(figures, Mapping) and set(figures) not in (set(), {"from", "to"}):
        for name, value in figures.items():
            yield from leaves(value, f"{key}/{name}" if key else name)
    elif isinstance(figures, list):
        yield f"{key}.length", len(figures), 1.0
        scale = max([1.0, *(abs(value) for value in figures if is_number(value))])
        for number, value in enumerate(figures):
            yield from leaves(value, f"{key}[{number}]", scale)
    else:
        yield key, figures, max(scale, abs(figures) if is_number(figures) else 1.0)


def differences(
    stored: Any, found: Any, tolerances: Mapping[str, float] | None = None
) -> list[str]:
    """Name each key where the two differ, with the stored and the found value.

    Words and whole numbers agree exactly; others up to a tolerance of their scale,
    which is the largest number of their list, and at least 1; `tolerances` has other
    ones by the beginning of a key. A stored interval ({"from": …, "to": …}) holds the
    number found.
    """
    old = {key: (value, scale) for key, value, scale in leaves(stored)}
    new = {key: value for key, value, _ in leaves(found)}
    told = []
    for key in sorted({*old, *new}):
        one, scale = old.get(key, (NOTHING, 1.0))
        other = new.get(key, NOTHING)
        close = [t for start, t in (tolerances or {}).items() if key.startswith(start)]
        if not _agree(one, other, scale * max([TOLERANCE, *close])):
            told.append(f"{key}: stored {one!r:.60}, found {other!r:.60}")
    return told


def _agree(stored: Any, found: Any, tolerance: float) -> bool:
    if isinstance(stored, Mapping) and stored:
        return is_number(found) and stored["from"] <= found <= stored["to"]
    whole = isinstance(stored, int) and isinstance(found, int)
    if is_number(stored) and is_number(found) and not whole:
        return bool(abs(stored - found) <= tolerance)
    return type(stored) is type(found) and stored == found


def is_number(value: object) -> bool:
    """Whether it is a number, and not True or False."""
    return isinstance(value, int | float) and not isinstance(value, bool)
