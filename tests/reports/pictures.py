"""The two pictures of the page that README shows, on COMPAS.

``python -m tests.reports.pictures`` makes them anew: the first screen of README's main
job, and the slider over the models of a promise.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pffl
from tests.inside import render
from tests.reports.browsing import Window, opened

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
WIDE = 1000
#: From the top of one element to the top of another, in pixels of the page.
BETWEEN = """const top = s => document.querySelector(s).getBoundingClientRect().top;
return [top(arguments[0]) + scrollY, top(arguments[1]) + scrollY]"""


def taken(window: Window, page: str, start: str, end: str, out: Path) -> None:
    """Take a picture of a page from one element to another."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "page.html")
        path.write_text(page, encoding="utf-8")
        window.show(path, WIDE)
        low, high = window.run(BETWEEN, start, end)
        window.picture(out, low, high - low)


def main() -> None:
    """Make both."""
    data, bounds = (
        pffl.datasets.compas(silos=10, seed=0),
        pffl.ConditionalBoundedGroupLoss,
    )
    run = pffl.solve(data, bounds(0.7), seed=0)
    sure = pffl.solve(data, bounds(0.81), seed=0, promise=pffl.Promise())
    with opened() as window:
        cut = ("h1", "nav", FIGURES / "page-run.png")
        taken(window, render([run]), *cut)
        cut = (".explorer h2", ".explorer details", FIGURES / "page-promise.png")
        taken(window, render([sure]), *cut)


if __name__ == "__main__":
    main()
