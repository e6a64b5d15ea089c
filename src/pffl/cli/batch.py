"""For commands that are still on their way to `progress`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pffl.progress import Progress


def batch_progress() -> Progress:
    """Show the runs of a study."""
    from pffl.progress import counted

    return counted("run")
