"""Classes by the name that run files and the command line know them under.

Ours are given. Those of other packages are found by entry point, and loaded when they
are asked for: a package that is broken breaks nothing but its own name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from pffl.errors import UsageError

T = TypeVar("T")


class Registry(Mapping[str, type[T]]):
    """The classes of one kind, ours first.

    Parameters
    ----------
    group
        Entry point group in which other packages name theirs, such as "pffl.methods":
        the entry's name is the class's `name`.
    base
        What all of them derive from.
    own
        Ours, which are in `own` by name.
    """

    def __init__(self, group: str, base: type[Any], own: Iterable[Any]) -> None:
        self._group, self._base = group, base
        self.own: Mapping[str, type[T]] = {kind.name: kind for kind in own}

    def __getitem__(self, name: str) -> type[T]:
        if name in self.own:
            return self.own[name]
        entries = [entry for entry in self._foreign() if entry.name == name]
        if not entries:
            raise KeyError(name)
        return self._load(name, entries)

    def __contains__(self, name: object) -> bool:
        return name in self.own or any(e.name == name for e in self._foreign())

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.own, *(e.name for e in self._foreign())]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def sound(self) -> dict[str, type[T]]:
        """Return all that can be loaded; what cannot is left out."""
        found = {}
        for name in self:
            with suppress(UsageError):
                found[name] = self[name]
        return found

    def _foreign(self) -> Iterator[EntryPoint]:
        """Yield entry points of other packages, nothing of them loaded."""
        for entry in entry_points(group=self._group):
            if entry.name not in self.own:
                yield entry
                continue
            warnings.warn(
                f"{_origin(entry)} names '{entry.name}' in {self._group}, which is "
                "a name of ours: it is left out",
                stacklevel=3,
            )

    def _load(self, name: str, entries: list[EntryPoint]) -> type[T]:
        """Import a class of another package, or say whose fault it is that one cannot.

        Whatever an import may raise is the package's doing, so all of it is caught.
        """
        origin = " and ".join(sorted({_origin(entry) for entry in entries}))
        refused = f"'{name}' of {self._group}, from {origin}, cannot be used:"
        if len({entry.value for entry in entries}) > 1:
            raise UsageError(
                f"[repeated-name] {refused} several packages have one of that name"
            )
        try:
            kind: Any = entries[0].load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"[cannot-load] {refused} {reason}") from error
        base = f"{self._base.__module__}.{self._base.__qualname__}"
        if not (isinstance(kind, type) and issubclass(kind, self._base)):
            reason = f"it is no class derived from {base}"
        elif getattr(kind, "name", None) != name:
            reason = f"the class calls itself {getattr(kind, 'name', None)!r}"
        else:
            return kind
        raise UsageError(f"[wrong-class] {refused} {reason}")


def _origin(entry: EntryPoint) -> str:
    """The distribution that names an entry point."""
    if entry.dist is None:
        return "an unknown package"
    return f"the package {entry.dist.name} {entry.dist.version}"
