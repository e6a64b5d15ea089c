"""What a deployed run must remember between two starts of its server.

Sites answer no message number twice, so a server that starts again begins a new
session: its numbers are above all earlier ones, whatever was lost.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from pffl import files, records

FILE = "session.json"


@dataclass(frozen=True)
class Session(records.Record):
    """Name of a run, and how often its server has started."""

    run: str
    session: int

    @classmethod
    def begin(cls, directory: Path, *, resume: bool) -> Session:
        """Go on with the run of a directory, or begin one; on disk when it returns."""
        path = directory / FILE
        if resume and path.exists():
            source = f"'{path}' cannot be read"
            before = records.read(cls, files.read(path), source=source)
            begun = cls(before.run, before.session + 1)
        else:
            begun = cls(secrets.token_hex(8), 0)
        files.write(path, json.dumps(asdict(begun)).encode())
        return begun
