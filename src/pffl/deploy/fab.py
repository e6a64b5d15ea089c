"""The app as one file, which a site installs: what it runs, and nothing else."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path

from pffl.files import digest


def bundle(app: Path) -> tuple[str, bytes] | None:
    """Return name and content of the app's .fab file; None without Flower.

    Made by Flower's own function, so it is byte for byte what ``flwr run`` sends.
    """
    try:
        from flwr.cli.build import build_fab_from_disk, get_fab_filename
    except ImportError:
        return None
    with warnings.catch_warnings():  # of Flower's use of another library
        warnings.simplefilter("ignore", DeprecationWarning)
        content: bytes = build_fab_from_disk(app)
    config = tomllib.loads((app / "pyproject.toml").read_text("utf-8"))
    name: str = get_fab_filename(config, digest(content))
    return name, content
