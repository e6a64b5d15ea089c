"""The example package of examples/outside: found by its entry points, used by name."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "examples" / "outside"
CHECKS = """
from pffl.constraints import CONSTRAINTS
from pffl.methods import METHODS
from pffl.testing import check_constraint, check_method
check_method(METHODS["tilted-loss"](rounds=3))
check_constraint(CONSTRAINTS["label-loss"](0.65))
"""
RUN_FILE = """
[data]
name = "synthetic"
rows = 600
silos = 3
seed = 0
[constraint]
kind = "label-loss"
bound = 0.72
[method]
kind = "tilted-loss"
rounds = 4
[run]
seed = 0
"""
DATA = ("synthetic", "--set", "data.rows=600", "--silos", "3")
BOUND = ("--constraint", "label-loss", "--bound", "0.72")
AMONG = ("--methods", "fedavg,tilted-loss", "--seeds", "1", "--budget", "20")
COMPARED = ("compare", *DATA, *BOUND, *AMONG)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The package as an installer leaves it: its modules, and its entry points."""
    place = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    info = place / f"pffl_outside-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\n"
    (info / "METADATA").write_text(f"{head}Version: {project['version']}\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{n} = {value}" for n, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (place / "pffl_outside").symlink_to(PACKAGE / "src" / "pffl_outside")
    return place


def call(site, *command, folder):
    env = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_run_file_command_and_comparison_know_both(site, tmp_path):
    (tmp_path / "run.toml").write_text(RUN_FILE)
    plain = ["-m", "pffl", "run", "run.toml", "--out", "one"]
    done = call(site, *plain, folder=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    found = (tmp_path / "one" / "result.json").read_text()
    assert '"tilted-loss"' in found
    assert '"label-loss"' in found
    command = ["-m", "pffl", *COMPARED, "--out", "two"]
    done = call(site, *command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tilted-loss" in done.stdout
    unknown = call(tmp_path, *plain[:-1], "three", folder=tmp_path)
    assert unknown.returncode == 2
    assert "label-loss" in unknown.stderr


def test_it_passes_the_checks_of_the_test_kit(site, tmp_path):
    done = call(site, "-c", CHECKS, folder=tmp_path)
    assert done.returncode == 0, done.stderr
