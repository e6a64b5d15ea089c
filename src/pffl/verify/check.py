"""One comparison of a stated number with the same number computed again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EXACT = 0.0
SUMS = 1e-9  # relative: sums over the same rows in another order
SINGLE = 1e-5  # the same, of losses that were computed in 32 bits
BOUNDS = 1e-7  # relative: bounds solved by another method


@dataclass(frozen=True)
class Check:
    """What was stated, what came out, and whether they agree.

    Attributes
    ----------
    what
        Which number or text, by name.
    stated, found
        As the certificate says, and as it came out here.
    agrees
        Whether the statement stands.
    detail
        Why not, or what was done.
    """

    what: str
    stated: object
    found: object
    agrees: bool
    detail: str = ""

    @property
    def difference(self) -> float | None:
        """By how much they differ; None if they are not both numbers."""
        if _is_number(self.stated) and _is_number(self.found):
            return float(self.found) - float(self.stated)  # type: ignore[arg-type]
        return None

    def __str__(self) -> str:
        if self.agrees:
            return f"agrees: {self.what}"
        text = f"does not agree: {self.what}: stated {show(self.stated)}"
        text += f", found {show(self.found)}"
        if self.difference is not None:
            text += f" (a difference of {self.difference:+.3g})"
        return f"{text}; {self.detail}" if self.detail else text


def show(value: object) -> str:
    """One value, short."""
    if _is_number(value) and not isinstance(value, int):
        return f"{value:.10g}"
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 70 else f"{text[:69]}…"


def same(
    what: str,
    stated: object,
    found: object,
    *,
    tolerance: float = EXACT,
    detail: str = "",
) -> Check:
    """Compare two values; numbers up to `tolerance`, relative to 1 or to the found."""
    if _is_number(stated) and _is_number(found):
        a, b = float(stated), float(found)  # type: ignore[arg-type]
        close = abs(a - b) <= tolerance * max(1.0, abs(b))
        agrees = math.isfinite(a) and math.isfinite(b) and close
    else:
        agrees = stated == found
    return Check(what, stated, found, agrees, detail)


def same_list(
    what: Callable[[int], str],
    stated: Sequence[object],
    found: Sequence[object],
    *,
    tolerance: float = EXACT,
) -> Iterator[Check]:
    """Compare two lists, entry by entry."""
    if len(stated) != len(found):
        yield Check(f"number of entries: {what(0)} …", len(stated), len(found), False)
        return
    for i, (a, b) in enumerate(zip(stated, found, strict=True)):
        yield same(what(i), a, b, tolerance=tolerance)


def leaves(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every entry of a nested plain value, with its path."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from leaves(entry, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for i, entry in enumerate(value):
            yield from leaves(entry, f"{path}[{i}]")
    else:
        yield path, value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
