"""The manifest that knows the hashes of the files, and files that go away."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pffl.errors import ArtefactError
from pffl.files import cannot_write as cannot_write
from pffl.files import digest as digest
from pffl.files import read as read
from pffl.files import remove as remove
from pffl.files import write_all as write_all

MANIFEST = "manifest.json"
FORMAT = "pffl run directory"
VERSION = 1


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
