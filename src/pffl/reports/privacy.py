"""A privacy budget, as the page shows it: what was released, and what it spent.

Made of what result.json has under ``privacy``; a run without noise has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pffl.figures import Rows, budget
from pffl.reports.grid import Grid
from pffl.text import up, words

SPLITS = {"train": "training", "test": "held-out"}


@dataclass(frozen=True)
class PrivacyView:
    """The budget in words, and where it went."""

    words: Sequence[str]
    chart: Rows
    releases: Grid

    @classmethod
    def of(cls, privacy: Mapping[str, Any]) -> PrivacyView:
        """Lay out what was declared, released and spent."""
        releases = [
            {**one, "split": SPLITS.get(one["split"], one["split"])}
            for one in privacy["releases"]
        ]
        table = [
            {
                "what": f"{one['name']}, {one['split']} rows",
                "times": one["times"],
                "one person changes": one["sensitivity"],
                "noise": one["sigma"],
                "noise of all sites": one["deviation"],
            }
            for one in releases
        ]
        return cls(
            _in_words(privacy),
            budget(releases),
            Grid.of("What was released", table, "stack list"),
        )


def _in_words(privacy: Mapping[str, Any]) -> list[str]:
    """Say what was declared and spent, and who must be trusted."""
    delta = f"δ = {words(privacy['delta'])}"
    if privacy["repeatable"]:
        return [
            "Noise was added, but a seed repeats it: whoever knows the seed can take "
            "it away again, and nothing of this run is private."
        ]
    text = (
        f"Every number that was released has noise: ε = {words(privacy['epsilon'])}, "
        f"{delta} for each person of the training rows"
    )
    if privacy["spent"] is not None:
        text += f", of which {up(privacy['spent'])} was spent"
    if privacy["heldout_epsilon"] is not None:
        held = words(privacy["heldout_epsilon"])
        text += f"; ε = {held} for each person of the held-out rows, who are others"
    out = [f"{text}."]
    if privacy["shared"]:
        many, traitors = privacy["sites"], privacy["colluding"]
        out.append(
            f"{many:,} sites share the noise inside secure sums: it is enough as long "
            f"as no more than {traitors:,} of them work together against it."
        )
    return out
