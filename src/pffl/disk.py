"""Files that appear whole or not at all, and errors that name the path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pffl.errors import ArtefactError


def write_all(
    directory: Path,
    files: Mapping[str, bytes],
    *,
    previous: Mapping[str, str] | None = None,
) -> None:
    """Write files so that a crash, a full disk or `kill -9` leaves the old ones.

    All are first written beside their targets and forced to the disk; only then do they
    take their names, one by one. A file named in `previous` that is there already takes
    that other name just before. Reference: FAULTS 65 and 69.
    """
    beside = {name: directory / f".{name}.tmp" for name in files}
    path = directory
    try:
        for name, content in files.items():
            path = beside[name]
            _write(path, content)
        for name in files:
            path = directory / name
            if previous and name in previous:
                with suppress(FileNotFoundError):
                    os.replace(path, directory / previous[name])
            os.replace(beside[name], path)
        _force(directory)
    except OSError as error:
        raise cannot_write(path, error, "; earlier results are intact") from error
    finally:
        for path in beside.values():
            with suppress(OSError):
                path.unlink(missing_ok=True)


def cannot_write(path: Path, error: OSError, remark: str = "") -> ArtefactError:
    """Say which path cannot be written, and why."""
    return ArtefactError(
        f"'{path}' cannot be written: {error.strerror or error}{remark}"
    )


def read(path: Path, *, largest: int = -1) -> bytes:
    """Read a file, or say which one cannot be read.

    Of a file with more than `largest` bytes, if that is given, only one byte more is
    read: enough to refuse it.
    """
    try:
        with open(path, "rb") as stream:
            return stream.read(largest + 1 if largest >= 0 else -1)
    except OSError as error:
        raise ArtefactError(
            f"'{path}' cannot be read: {error.strerror or error}"
        ) from error


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _force(directory: Path) -> None:
    """Force the new names to the disk, where the system can do that."""
    with suppress(OSError, AttributeError):
        place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(place)
        finally:
            os.close(place)
