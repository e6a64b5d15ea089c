"""Files that appear whole or not at all, and the manifest that knows their hashes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pffl.errors import ArtefactError

MANIFEST = "manifest.json"
FORMAT = "pffl run directory"
VERSION = 1


def write_all(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files so that a crash, a full disk or `kill -9` leaves the old ones.

    All are first written beside their targets and forced to the disk; only then do they
    take their names, one by one. Reference: FAULTS 65 and 69.
    """
    beside = {name: directory / f".{name}.tmp" for name in files}
    path = directory
    try:
        for name, content in files.items():
            path = beside[name]
            _write(path, content)
        for name in files:
            path = directory / name
            os.replace(beside[name], path)
        _force(directory)
    except OSError as error:
        raise cannot_write(path, error, "; earlier results are intact") from error
    finally:
        for path in beside.values():
            with suppress(OSError):
                path.unlink(missing_ok=True)


def remove(directory: Path, names: Iterable[str]) -> None:
    """Remove files of an earlier run."""
    for name in names:
        try:
            (directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise cannot_write(directory / name, error) from error


def cannot_write(path: Path, error: OSError, remark: str = "") -> ArtefactError:
    """Say which path cannot be written, and why."""
    return ArtefactError(
        f"'{path}' cannot be written: {error.strerror or error}{remark}"
    )


def read(path: Path) -> bytes:
    """Read a file, or say which one cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtefactError(
            f"'{path}' cannot be read: {error.strerror or error}"
        ) from error


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def manifest_text(hashes: Mapping[str, str]) -> bytes:
    """Content of a manifest."""
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "files": dict(sorted(hashes.items())),
    }
    return (json.dumps(plain, indent=2) + "\n").encode()


def read_manifest(directory: Path) -> dict[str, str]:
    """Return file → SHA-256, or say that this is no run directory."""
    path = directory / MANIFEST
    if not path.is_file():
        raise ArtefactError(f"'{directory}' is not a run directory: no {MANIFEST}")
    try:
        plain = json.loads(read(path))
        if (plain["format"], plain["version"]) != (FORMAT, VERSION):
            raise ArtefactError(
                f"'{path}' is of format {plain['format']!r}, version "
                f"{plain['version']!r}; this is {FORMAT!r}, version {VERSION}"
            )
        hashes = {str(name): str(known) for name, known in plain["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtefactError(f"'{path}' is not a manifest of pffl: {error}") from error
    foreign = [name for name in hashes if Path(name).name != name or name in ("", "..")]
    if foreign:
        raise ArtefactError(f"'{path}' names files outside its directory: {foreign}")
    return hashes


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
