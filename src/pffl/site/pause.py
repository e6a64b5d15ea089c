"""A site that answers nobody for a while, by a file in its folder: `paused.json`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pffl import files
from pffl.records import Record, read

FILE = "paused.json"


@dataclass(frozen=True)
class Pause(Record):
    """Since when a site is paused, and why."""

    since: str
    reason: str = ""

    def __str__(self) -> str:
        return f"paused since {self.since}" + (
            f": {self.reason}" if self.reason else ""
        )


def pause(folder: Path, reason: str = "") -> Pause:
    """Let a site refuse every message from now on; a pause that is there stays."""
    there = paused(folder)
    if there is not None:
        return there
    begun = Pause(datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"), reason)
    files.write(folder / FILE, json.dumps(asdict(begun)).encode(), private=True)
    return begun


def paused(folder: Path) -> Pause | None:
    """Return the pause of a site, if it is paused; a file that is damaged pauses it."""
    path = folder / FILE
    if not path.exists():
        return None
    return read(Pause, files.read(path), source=f"'{path}' cannot be read")


def resume(folder: Path) -> None:
    """Let a site answer again."""
    files.remove([folder / FILE])
