"""The run record: one JSON line for each question, for audit.

It says who was asked, who answered, what was refused and why, and the SHA-256 of every
message. No figure of a silo is in it; those of a round are totals over all silos.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pffl import files

KEPT = 1000  # entries in memory


class Record:
    """Entries, in memory (the last ones) and, with a path, in a file.

    Parameters
    ----------
    path
        File to append to; None keeps them in memory only.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.entries: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append an entry, on disk before this returns."""
        full = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **entry}
        self.entries.append(full)
        if self.path is not None:
            files.append(self.path, full)


@dataclass
class Page:
    """What one question brings in, until it is written.

    Attributes
    ----------
    asked, answered
        Names of silos; those who answered in order of arrival.
    refused
        Pairs of a silo's name (or an address) and the reason, once for each reply.
    clipped, flagged
        Silos whose update was shortened; pairs of a silo and what is odd.
    sent, received
        Bytes.
    messages
        SHA-256 of requests and answers, in order, by silo or address.
    """

    asked: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    clipped: list[str] = field(default_factory=list)
    flagged: list[tuple[str, str]] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    messages: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def out(self, name: str, content: bytes) -> None:
        """Note a request."""
        self.sent += len(content)
        self._note(name, "requests", content)

    def back(self, name: str, content: bytes) -> None:
        """Note a reply."""
        self.received += len(content)
        self._note(name, "answers", content)

    def _note(self, name: str, way: str, content: bytes) -> None:
        kept = self.messages.setdefault(name, {"requests": [], "answers": []})
        kept[way].append(files.digest(content))

    def as_dict(self) -> dict[str, Any]:
        """Plain form."""
        missing = [name for name in self.asked if name not in set(self.answered)]
        return {
            "asked": self.asked,
            "answered": self.answered,
            "missing": missing,
            "refused": [list(pair) for pair in self.refused],
            "clipped": self.clipped,
            "flagged": [list(pair) for pair in self.flagged],
            "bytes_sent": self.sent,
            "bytes_received": self.received,
            "messages": self.messages,
        }
