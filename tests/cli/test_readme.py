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

from tests.cli.helpers import pffl, program
from tests.datasets.compas_file import is_cached

README = Path(__file__).parents[2] / "README.md"
COMMAND = re.compile(r"\.venv/bin/pffl (run .*)")
BLOCK = re.compile(r"(?<=\n```text\n).*?(?=```\n)", re.DOTALL)
#: Parts of the output that README leaves out: measures of all rows, and remarks.
LEFT_OUT = ("measured on", "duality gap")


def command():
    found = COMMAND.search(README.read_text("utf-8"))
    assert found is not None
    return shlex.split(found[1])


def shown(out):
    """What README shows of an output: all but some parts between blank lines."""
    lines = "\n".join(line.rstrip() for line in out.splitlines())
    parts = re.split(r"\n{2,}", lines.strip("\n"))
    kept = [p for p in parts if not re.search(f"^({'|'.join(LEFT_OUT)})", p, re.M)]
    return "\n\n".join(kept) + "\n"


@pytest.mark.skipif(not is_cached(), reason="COMPAS is not cached")
def test_the_main_job_prints_what_readme_shows(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    seen = pffl(capsys, *command())
    assert seen.code == 0
    found = BLOCK.search(README.read_text("utf-8"))
    assert found is not None
    assert found[0] == shown(seen.out)
    result = json.loads(Path("runs/compas-001/result.json").read_text())
    rounds = ("no", "one", "two", "three", "four", "five")[result["rounds"]]
    asked, messages = (result["questions"][key] for key in ("asked", "messages"))
    told = README.read_text("utf-8")
    assert f"{rounds} rounds in the run below" in told
    assert f"{asked} questions in {messages} messages" in told


def main():
    with tempfile.TemporaryDirectory() as place:
        run = subprocess.run(
            program(*command()),
            cwd=place,
            env=os.environ | {"COLUMNS": "80"},
            capture_output=True,
            text=True,
            check=True,
        )
    text = README.read_text("utf-8")
    README.write_text(BLOCK.sub(lambda _: shown(run.stdout), text, count=1), "utf-8")


if __name__ == "__main__":
    main()
