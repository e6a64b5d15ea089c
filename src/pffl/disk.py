"""Files that appear whole or not at all, and errors that name the path."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

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
    that other name just before. Reference: faults 65 and 69.
    """
    beside = {name: directory / f".{name}.tmp" for name in files}
    path = directory
    try:
        for name, content in files.items():
            path = beside[name]
            write_through(path, content)
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


def write_through(
    path: Path,
    content: bytes | Callable[[BinaryIO], None],
    *,
    opener: Callable[[str, int], int] | None = None,
) -> None:
    """Write a file (bytes, or what a function writes), and force it to the disk.

    `opener` is that of the built-in `open`.
    """
    with open(path, "wb", opener=opener) as stream:
        if isinstance(content, bytes):
            stream.write(content)
        else:
            content(stream)
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
