"""README's main job prints what README shows.

``python -m tests.cli.test_readme`` writes the block anew.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest

import pffl
from tests.cli.helpers import pffl as run
from tests.cli.helpers import program

README = Path(__file__).parents[2] / "README.md"
COMMAND = re.compile(r"\.venv/bin/pffl (run .*)")
BLOCK = re.compile(r"(?<=\n```text\n).*?(?=```\n)", re.DOTALL)


def command():
    found = COMMAND.search(README.read_text("utf-8"))
    assert found is not None
    return shlex.split(found[1])


def shown(out):
    """An output without blanks at the ends of its lines."""
    return "\n".join(line.rstrip() for line in out.splitlines()) + "\n"


def is_cached():
    try:
        pffl.datasets.adult()
    except pffl.PFFLError:
        return False
    return True


def test_the_main_job_prints_what_readme_shows(capsys, monkeypatch, tmp_path):
    if not is_cached():
        pytest.skip("Adult cannot be fetched")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    seen = run(capsys, *command())
    assert seen.code == 0
    told = README.read_text("utf-8")
    found = BLOCK.search(told)
    assert found is not None
    assert found[0] == shown(seen.out)
    assert len(found[0].splitlines()) <= 24
    result = json.loads(Path("runs/adult-001/result.json").read_text())
    assert [one["verdict"] for one in result["verdicts"].values()] == [
        "met",
        "within",
        "certified",
    ]


def main():
    with tempfile.TemporaryDirectory() as place:
        ended = subprocess.run(
            program(*command()),
            cwd=place,
            env=os.environ | {"COLUMNS": "80"},
            capture_output=True,
            text=True,
            check=True,
        )
    text = README.read_text("utf-8")
    README.write_text(BLOCK.sub(lambda _: shown(ended.stdout), text, count=1), "utf-8")


if __name__ == "__main__":
    main()
