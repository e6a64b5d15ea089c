"""Classes by the name that run files and the command line know them under.

Ours are given. Those of other packages are found by entry point, and loaded when they
are asked for: a package that is broken breaks nothing but its own name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

from pffl.errors import UsageError

T = TypeVar("T")


class Registry(Mapping[str, type[T]]):
    """The classes of one kind, ours first.

    Parameters
    ----------
    group
        Entry point group in which other packages name theirs, such as "pffl.methods":
        the entry's name is the class's `name`. A name of ours stays ours.
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
        for entry in entry_points(group=self._group, name=name):
            return self._load(entry)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        theirs = (entry.name for entry in entry_points(group=self._group))
        return iter(dict.fromkeys([*self.own, *theirs]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in list(self)

    def _load(self, entry: Any) -> type[T]:
        """Import a class of another package, or say whose fault it is that one cannot.

        Whatever an import may raise is the package's doing, so all of it is caught.
        """
        origin = f"{entry.dist.name} {entry.dist.version}"
        refused = f"'{entry.name}' of {self._group}, from {origin}, cannot be used:"
        try:
            kind: Any = entry.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"[cannot-load] {refused} {reason}") from error
        base = f"{self._base.__module__}.{self._base.__qualname__}"
        if not (isinstance(kind, type) and issubclass(kind, self._base)):
            raise UsageError("wrong-class:load", refused=refused, base=base)
        if (own := getattr(kind, "name", None)) != entry.name:
            raise UsageError("wrong-class:load-2", refused=refused, own=own)
        return kind
