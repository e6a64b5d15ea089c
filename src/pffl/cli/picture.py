"""A federation as a small picture: a row per group, a character per silo.

Silos stand from the largest to the smallest; where there are more than fit, a
character stands for several neighbours. Rows are shown as shades (powers of ten, the
mean of a character's silos), label rates as heights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from pffl.cli.console import clean

if TYPE_CHECKING:
    from pffl.typing import FloatArray, IntArray

MOST_GROUPS = 20
LONGEST = 22
NOBODY = "·"
SHADES = "░▒▓█"  # fewer than 10, 100, 1,000 rows; more
HEIGHTS = "▁▂▃▄▅▆▇"
KEY = "· none  ░ below 10  ▒ below 100  ▓ below 1,000  █ more"


def picture(groups: Sequence[str], counts: IntArray, width: int) -> list[Text]:
    """Draw training rows of shape (silos, groups, labels); rates of two labels, too."""
    silos, _, labels = counts.shape
    order = np.argsort(-counts.sum(axis=(1, 2)), kind="stable")
    by_group = counts.sum(axis=(0, 2))
    shown = np.sort(np.argsort(-by_group, kind="stable")[:MOST_GROUPS])
    names = [clean(groups[g], LONGEST) for g in shown]
    margin = max(map(len, names)) + 2
    room = max(8, width - margin)
    parts = np.array_split(order, min(silos, room))
    each = -(-silos // len(parts))
    joined = f", up to {each:,} silos in a character" if each > 1 else ""
    rows = np.array([counts[part].sum(axis=0) for part in parts])[:, shown]
    means = rows.sum(axis=2) / np.array([len(part) for part in parts])[:, None]
    out = [Text(f"rows of {silos:,} silos, large to small{joined}", style="bold")]
    out += _lines(names, margin, [[_shade(v) for v in column] for column in means.T])
    out.append(Text(KEY, style="dim"))
    if labels == 2:
        totals = rows.sum(axis=2)
        rates = rows[:, :, 1] / np.maximum(totals, 1)
        out.append(Text(f"share of the positive label{joined}", style="bold"))
        marks = [
            [_height(r) if n else NOBODY for r, n in zip(rate, total, strict=True)]
            for rate, total in zip(rates.T, totals.T, strict=True)
        ]
        out += _lines(names, margin, marks)
        out.append(Text(f"· nobody  {HEIGHTS[0]} 0 %  {HEIGHTS[-1]} 100 %", "dim"))
    if len(shown) < len(groups):
        rest = len(groups) - len(shown)
        out.append(Text(f"{rest:,} smaller groups are not drawn", style="dim"))
    return out


def _lines(
    names: Sequence[str], margin: int, marks: Sequence[Sequence[str]]
) -> list[Text]:
    return [
        Text(name.ljust(margin) + "".join(line), no_wrap=True)
        for name, line in zip(names, marks, strict=True)
    ]


def _shade(mean: float | FloatArray) -> str:
    if mean == 0:
        return NOBODY
    place = int(np.floor(np.log10(max(float(mean), 1.0))))
    return SHADES[min(place, len(SHADES) - 1)]


def _height(rate: float | FloatArray) -> str:
    return HEIGHTS[min(int(float(rate) * len(HEIGHTS)), len(HEIGHTS) - 1)]
