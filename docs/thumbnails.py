"""Draw the pictures of the gallery's cards: the first chart of each notebook.

``python docs/thumbnails.py [NAME…]``, from the root of the checkout.
"""

from __future__ import annotations

import re
import sys
import tempfile
import warnings
from contextlib import chdir
from pathlib import Path
from typing import Any

from pffl.figures import Chart

GALLERY = Path(__file__).resolve().parent / "gallery"
PICTURES = GALLERY.parent / "figures" / "gallery"
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OPTION = re.compile(r"^:[\w-]+:.*\n", re.MULTILINE)


def draw(name: str) -> None:
    """Run a notebook up to its first chart, and save that."""
    page = (GALLERY / f"{name}.md").read_text("utf-8")
    cells = [OPTION.sub("", cell) for cell in CELL.findall(page)]
    charts = [
        i for i, cell in enumerate(cells) if re.search(r"figures\.|\.chart\(", cell)
    ]
    scope: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells[: charts[0]]:
        exec(compile(cell, name, "exec"), scope)  # noqa: S102
    *lines, last = cells[charts[0]].strip().splitlines()
    exec("\n".join(lines), scope)  # noqa: S102
    chart = eval(last, scope)  # noqa: S307
    assert isinstance(chart, Chart), last  # noqa: S101
    chart.save(PICTURES / f"{name}.svg")


def main() -> None:
    """Draw all, or those that are named."""
    every = sorted(p.stem for p in GALLERY.glob("*.md") if p.stem != "index")
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place, chdir(place):
        for name in sys.argv[1:] or every:
            draw(name)


if __name__ == "__main__":
    main()
