"""Finished work, one JSON line each, appended so that nothing finished is ever lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pffl.errors import ArtefactError


class Journal:
    """Entries by key, in memory and (with a path) in a file.

    A line is written, flushed and synced before `put` returns. A last line that a
    crash cut short is dropped on reading; damage anywhere else is refused.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._entries: dict[str, dict[str, Any]] = {}
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.exists():
                    self._read(path)
            except OSError as error:
                raise ArtefactError(f"{path}: {error.strerror}") from error

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self._entries[key]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: str, entry: Mapping[str, Any]) -> None:
        """Keep an entry; a later one with the same key takes its place."""
        self._entries[key] = dict(entry)
        if self.path is None:
            return
        line = json.dumps({"key": key, **entry}, allow_nan=False, ensure_ascii=False)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ArtefactError(f"{self.path}: {error.strerror}") from error

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        whole, _, torn = data.rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                self._entries[entry.pop("key")] = entry
            except (ValueError, KeyError, AttributeError) as error:
                raise ArtefactError(
                    f"{path}, line {number}: not an entry of ours"
                ) from error
        if torn:
            # Cut off what the crash left, so that the next line starts afresh.
            with path.open("r+b") as file:
                file.truncate(len(whole) + (1 if whole else 0))


def key_of(*parts: object) -> str:
    """Return one stable text for anything that JSON can hold."""
    return json.dumps(parts, sort_keys=True, ensure_ascii=False)
