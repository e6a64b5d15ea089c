"""Watching a model in use: `monitor` counts new rows with labels, batch by batch."""

from __future__ import annotations

from pffl.monitoring.counting import monitor
from pffl.monitoring.watched import Deployed, default_state, run_of

__all__ = [
    "Deployed",
    "default_state",
    "monitor",
    "run_of",
]
