"""For commands that are still on their way to `options` and `progress`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pffl.cli.options import build as build
from pffl.cli.options import open_data as open_data

if TYPE_CHECKING:
    from pffl.progress import Progress


def progress() -> Progress:
    """Show what arrives."""
    from pffl.progress import arriving

    return arriving()
