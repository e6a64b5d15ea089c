"""The tools that judge the code are tests, so that one command runs everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# import-linter has no `python -m`; its command is called as its script calls it.
LINT_IMPORTS = (
    "import sys; from importlinter.cli import lint_imports_command; "
    "sys.exit(lint_imports_command())"
)

TOOLS = {
    "ruff-check": ["-m", "ruff", "check", "."],
    "ruff-format": ["-m", "ruff", "format", "--check", "."],
    "mypy": ["-m", "mypy", "src"],
    "lint-imports": ["-c", LINT_IMPORTS],
}


@pytest.mark.parametrize("tool", TOOLS)
def test_tool_has_no_complaint(tool):
    run = subprocess.run(
        [sys.executable, *TOOLS[tool]],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, f"{tool} complains:\n{run.stdout}{run.stderr}"
