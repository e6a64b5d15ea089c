"""Names of inputs; those of a hashed text are made only when they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import SupportsIndex, overload

import numpy as np

from pffl.records import Record
from pffl.typing import IntArray

MARK = "#"


@dataclass(frozen=True)
class Numbered(Record):
    """The names ``notes#0``, ``notes#1``, …: one for each input of a hashed text."""

    column: str
    count: int

    def name(self, place: int) -> str:
        """Return the name of one of them."""
        return f"{self.column}{MARK}{place}"

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or not name.startswith(f"{self.column}{MARK}"):
            return False
        digits = name[len(self.column) + 1 :]
        plain = digits.isascii() and digits.isdecimal()
        return plain and str(int(digits)) == digits and int(digits) < self.count


@dataclass(frozen=True)
class Names(Record, Sequence[str]):
    """Names in order, some of which are numbered: a million cost as much as one."""

    parts: tuple[str | Numbered, ...]

    @cached_property
    def _ends(self) -> IntArray:
        sizes = [1 if isinstance(part, str) else part.count for part in self.parts]
        return np.cumsum(sizes, dtype=np.int64)

    @property
    def numbered(self) -> tuple[slice, ...]:
        """Where the numbered ones are."""
        ends = zip(self.parts, self._ends.tolist(), strict=True)
        return tuple(
            slice(end - part.count, end)
            for part, end in ends
            if isinstance(part, Numbered)
        )

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.parts else 0

    @overload
    def __getitem__(self, place: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: SupportsIndex | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            return tuple(self[j] for j in range(*place.indices(len(self))))
        j = range(len(self))[place]  # from the end, too
        which = int(np.searchsorted(self._ends, j, side="right"))
        part = self.parts[which]
        if isinstance(part, str):
            return part
        return part.name(j - (int(self._ends[which]) - part.count))

    def __iter__(self) -> Iterator[str]:
        for part in self.parts:
            if isinstance(part, str):
                yield part
            else:
                yield from map(part.name, range(part.count))

    def __contains__(self, name: object) -> bool:
        return any(
            name == part if isinstance(part, str) else name in part
            for part in self.parts
        )


def repeated(names: Sequence[str]) -> list[str]:
    """Return the names that are there more than once, in order."""
    if not isinstance(names, Names):
        return sorted(name for name, count in Counter(names).items() if count > 1)
    plain = [part for part in names.parts if isinstance(part, str)]
    numbered = [part for part in names.parts if isinstance(part, Numbered)]
    twice = {name for name in plain if any(name in part for part in numbered)}
    columns = Counter(part.column for part in numbered)
    twice |= {f"{column}{MARK}0" for column, count in columns.items() if count > 1}
    return sorted({*twice, *repeated(plain)})


def names_in(parts: Iterable[str | Numbered]) -> tuple[str, ...] | Names:
    """Return names in order; as they are, where none are numbered."""
    found = tuple(parts)
    plain = tuple(part for part in found if isinstance(part, str))
    return plain if len(plain) == len(found) else Names(found)
