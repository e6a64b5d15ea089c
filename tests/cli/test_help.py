"""Help as a terminal of 80 columns shows it."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import typer.main
from typer.testing import CliRunner

from pffl.cli.app import app

GROUP = typer.main.get_command(app)
NAMES = [
    (name, *more)
    for name, command in GROUP.commands.items()
    for more in ([(m,) for m in getattr(command, "commands", {})] or [()])
]


@pytest.mark.parametrize("names", NAMES, ids=" ".join)
def test_paragraphs_flow_to_the_width(names):
    runner = CliRunner()
    shown = runner.invoke(app, [*names, "--help"], env={"COLUMNS": "80"}).output
    prose = re.split(r"╭─", shown)[0].splitlines()
    lines = [line.rstrip() for line in prose]
    for line, after in pairwise(lines):
        if line.strip() and after.strip() and not after.startswith("  "):
            word = after.split()[0]
            assert len(line) + 1 + len(word) > 79, (line, after)
