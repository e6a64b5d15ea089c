"""A local run needs nothing that only Linux has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# Hidden before anything of ours is imported, so that a name that is fetched at import
# is missed too. A system without `sched_getaffinity` has no count by it either.
HIDDEN = """
import os, signal, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None  # importing it fails
for owner, names in (
    (os, ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "fork", "geteuid",
          "getuid", "process_cpu_count", "sched_getaffinity", "sched_setaffinity")),
    (signal, ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "pthread_sigmask")),
):
    for name in names:
        vars(owner).pop(name, None)
"""

SOLVE = """
import pffl
from pffl import runs
federation = pffl.datasets.synthetic(300, silos=3, random_state=0)
bound = pffl.BoundedGroupLoss(0.8)
solution = pffl.solve(federation, bound, random_state=0, checkpoint="stopped")
place = runs.save(solution, "run")
assert runs.read_run(place).verified
assert runs.read_run(place).as_dict()["status"] == solution.status
"""

COMMAND = """
from pffl.cli import main
main(["run", "synthetic", "--silos=3", "--bound=0.8", "--seed=0", "--out=run"])
"""


def run(code: str, place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN + code],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_solve_and_save_without_the_names_of_linux(tmp_path):
    run(SOLVE, tmp_path)


def test_the_command_without_the_names_of_linux(tmp_path):
    run(COMMAND, tmp_path)
    result = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert result["status"] == "met"
