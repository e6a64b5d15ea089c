"""The reference of commands and run-file keys is what the models say."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_current() -> None:
    made = runpy.run_path(str(DOCS / "commands.py"))
    page = (DOCS / "commands.md").read_text("utf-8")
    assert page == made["page"](), "run python docs/commands.py"


def test_every_key_says_what_it_means() -> None:
    made = runpy.run_path(str(DOCS / "commands.py"))
    silent = [name for name in made["keys"]() if not made["meaning"](name)]
    assert silent == []
