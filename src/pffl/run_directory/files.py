"""The manifest that knows the hashes of the files, and files that go away."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from pffl.disk import cannot_write as cannot_write
from pffl.disk import read as read
from pffl.disk import write_all as write_all
from pffl.errors import ArtefactError

MANIFEST = "manifest.json"
FORMAT = "pffl run directory"
VERSION = 1


def remove(directory: Path, names: Iterable[str]) -> None:
    """Remove files of an earlier run."""
    for name in names:
        try:
            (directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise cannot_write(directory / name, error) from error


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
