"""Files of a site: whole or not at all, and for the site's own user alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from pffl.disk import cannot_write, write_through
from pffl.errors import ArtefactError

OWN_FILE = 0o600
OWN_FOLDER = 0o700


def write(path: Path, content: bytes | Callable[[BinaryIO], None]) -> None:
    """Write a file (bytes, or what a function writes), readable by its owner alone."""
    beside = path.with_name(f".{path.name}.tmp")
    try:
        beside.unlink(missing_ok=True)
        write_through(beside, content, opener=_own)
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def _own(path: str, flags: int) -> int:
    """Make a file that was not there, for its owner alone."""
    return os.open(path, flags | os.O_EXCL, OWN_FILE)


def folder(path: Path) -> Path:
    """Make a folder that only its owner can enter."""
    try:
        path.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
    except OSError as error:
        raise ArtefactError(
            f"'{path}' cannot be made: {error.strerror or error}"
        ) from error
    return path
