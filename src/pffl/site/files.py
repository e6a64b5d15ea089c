"""Files of a site: whole or not at all, and for the site's own user alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from pffl.errors import ArtefactError

OWN_FILE = 0o600
OWN_FOLDER = 0o700


def write(path: Path, content: bytes | Callable[[BinaryIO], None]) -> None:
    """Write a file (bytes, or what a function writes), readable by its owner alone."""
    beside = path.with_name(f".{path.name}.tmp")
    try:
        beside.unlink(missing_ok=True)
        number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN_FILE)
        with os.fdopen(number, "wb") as stream:
            if isinstance(content, bytes):
                stream.write(content)
            else:
                content(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ArtefactError(
            f"'{path}' cannot be written: {error.strerror or error}"
        ) from error


def folder(path: Path) -> Path:
    """Make a folder that only its owner can enter."""
    try:
        path.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
    except OSError as error:
        raise ArtefactError(
            f"'{path}' cannot be made: {error.strerror or error}"
        ) from error
    return path
