"""The picture of the page that README shows: its first screen, of README's main job.

``python -m tests.reports.pictures`` makes it anew.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.cli.helpers import program
from tests.cli.test_readme import command
from tests.reports.browsing import opened

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
WIDE = 1000
#: From the top of one element to the top of another, in pixels of the page.
BETWEEN = """const top = s => document.querySelector(s).getBoundingClientRect().top;
return [top(arguments[0]) + scrollY, top(arguments[1]) + scrollY]"""


def main() -> None:
    """Make it."""
    with tempfile.TemporaryDirectory() as place, opened() as window:
        subprocess.run(program(*command()), cwd=place, check=True)
        window.show(Path(place, "runs", "adult-001", "report.html"), WIDE)
        low, high = window.run(BETWEEN, "h1", "nav")
        window.picture(FIGURES / "page-run.png", low, high - low)


if __name__ == "__main__":
    main()
