"""What a site was asked and what it said: `answers.jsonl`, a line for every message.

A line is on disk before its answer leaves, and holds no figure of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pffl import files
from pffl.records import Record, read
from pffl.wire import Request

FILE = "answers.jsonl"
LARGEST = 10 << 20  # bytes; then it is put aside, and an older one dropped


@dataclass(frozen=True, kw_only=True)
class Entry(Record):
    """One message.

    Attributes
    ----------
    time
        When it was dealt with, in UTC.
    run, number, step
        Of the server's message; None and 0 where it could not be read.
    queries
        What was asked for, by kind.
    size
        Bytes that left the site.
    refused
        Why there was no answer; empty if there was one.
    left
        What the run may still ask, by what is counted.
    """

    time: str
    run: str | None
    number: tuple[int, int] | None
    step: int = 0
    queries: tuple[str, ...] = ()
    size: int
    refused: str = ""
    left: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        request: Request | None,
        sent: bytes,
        *,
        refused: str = "",
        left: Mapping[str, float] | None = None,
    ) -> Entry:
        """Describe a message that is being answered, or refused."""
        return cls(
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            run=request.run if request else None,
            number=request.number if request else None,
            step=request.step if request else 0,
            queries=request.kinds if request else (),
            size=len(sent),
            refused=refused,
            left=dict(left or {}),
        )


class Log:
    """The log in a site's folder.

    Parameters
    ----------
    folder
        Where it lies.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def write(self, entry: Entry) -> None:
        """Append a line, on disk before this returns."""
        files.append(self.path, asdict(entry), private=True, largest=LARGEST)

    def read(self) -> list[Entry]:
        """Return what is kept, oldest first; a line that a crash cut short is none."""
        found = []
        for path in (self.path.with_name(f"{FILE}.1"), self.path):
            if not path.exists():
                continue
            *whole, _ = files.read(path).split(b"\n")
            for number, line in enumerate(whole, start=1):
                found.append(read(Entry, line, source=f"'{path}', line {number}"))
        return found
