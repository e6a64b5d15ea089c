"""Run the quick tests, and one run, with the wheel: each Python × lowest, newest.

    python tests/matrix.py                    every Python that is there, both sets
    python tests/matrix.py --python 3.13      one of them
    python tests/matrix.py --brief            what .ci/run does, in less than a minute

The wheel is built once and installed into a fresh virtual environment for each Python
and each set of dependencies, with what pip finds where it is configured to look: the
newest versions, or the lowest that pyproject.toml allows and that have a wheel for that
Python. The tests are copied to a place outside the repository, so that what they import
is what was installed. A Python that is absent is skipped and named. The exit code is 1
if anything fails, or nothing could be run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = ("report", "parquet")
TOOLS = ("pytest", "hypothesis", "cloudpickle")
BRIEF = (
    "tests/queries",
    "tests/runs",
    "tests/test_files.py",
    "tests/test_records.py",
)
#: What the oldest typer needs: it warns with a later click, and warnings are errors.
LOWEST_ALSO = ("click<8.5",)
#: First versions with a wheel for a later Python, where the lower bound has none.
FIRST_WHEELS = {
    "3.12": {
        "daqp": "0.5.1.post1",
        "matplotlib": "3.8.0",
        "numpy": "1.26.0",
        "pandas": "2.1.1",
        "pyarrow": "14.0.0",
    },
    "3.13": {
        "daqp": "0.6.0",
        "matplotlib": "3.9.2",
        "numpy": "2.1.0",
        "pandas": "2.2.3",
        "pyarrow": "18.0.0",
        "pydantic": "2.8.0",
        "scipy": "1.14.1",
    },
}
BOUND = re.compile(r"([\w-]+)>=([\d.]+)(?:,<[\d.]+)?")
SHOWN = ("numpy", "scipy", "pandas", "pydantic", "typer", "rich")
RUN = ("run", "synthetic", "--silos=3", "--bound=0.8", "--seed=0", "--out=here")
RUN_LEAVES = ("result.json", "certificate.json", "report.html")


@dataclass
class Job:
    """One Python with one set of dependencies, and what came of it."""

    version: str
    lowest: bool
    seconds: dict[str, float] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    tests: str = "-"
    failed: str = ""

    def __str__(self) -> str:
        which = "lowest" if self.lowest else "newest"
        versions = "  ".join(f"{self.found.get(name, '-'):9}" for name in SHOWN)
        times = ", ".join(f"{what} {s:.0f} s" for what, s in self.seconds.items())
        verdict = f"FAILED: {self.failed}" if self.failed else "ok"
        return f"{self.version}  {which}  {versions}  {self.tests}; {times}; {verdict}"


class Failed(Exception):
    """A step of a job did not end well."""


def interpreter(version: str) -> Path | None:
    """Find a Python: this one, one on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    named = shutil.which(f"python{version}")
    places = [Path(sys.executable), *([Path(named)] if named else [])]
    places += sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    ask = "import sys; print(*sys.version_info[:2], sep='.')"
    for place in places:  # a shim of pyenv may be there without the Python
        seen = subprocess.run(
            [place, "-c", ask], capture_output=True, text=True, check=False
        )
        if seen.returncode == 0 and seen.stdout.strip() == version:
            return place
    return None


def lowest(version: str) -> list[str]:
    """Pins of the core and EXTRAS at their lower bounds, or at the first wheels."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(r for name in EXTRAS for r in optional[name])]
    pins = []
    for requirement in wanted:
        bound = BOUND.fullmatch(requirement)
        if bound is None:
            raise SystemExit(f"pyproject.toml: {requirement} has no lower bound")
        first = FIRST_WHEELS.get(version, {}).get(bound[1], "0")
        pins.append(f"{bound[1]}=={max(bound[2], first, key=numbers)}")
    return [*pins, *LOWEST_ALSO]


def numbers(version: str) -> tuple[int, ...]:
    """'1.26.4' as numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def step(
    command: list[Path | str],
    place: Path | None = None,
    allowed: tuple[int, ...] = (0,),
) -> str:
    """Run a command to its end; its output, or what it ended with."""
    without = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}  # nothing is compiled twice
    environment = {k: v for k, v in os.environ.items() if k not in without}
    done = subprocess.run(
        command,
        cwd=place,
        env=environment | {"NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode not in allowed:
        print(done.stdout[-6000:], file=sys.stderr)
        words = " ".join(str(word) for word in command[1:4])
        raise Failed(f"'{words} …' ended with {done.returncode}")
    return done.stdout


def run(job: Job, python: Path, parts: Path, *, brief: bool) -> None:
    """Install, test, run; the outcome is written into the job."""
    (wheel,) = parts.glob("pffl-*.whl")
    with tempfile.TemporaryDirectory(prefix="pffl-matrix-") as scratch:
        place = Path(scratch)
        shutil.copytree(parts, place, dirs_exist_ok=True)
        try:
            clock = time.monotonic()
            own = install(job, python, wheel, place)
            clock = timed(job, "install", clock)
            job.tests = tests(own, place, brief=brief)
            clock = timed(job, "tests", clock)
            step([own, "-m", "pffl", *RUN], place)
            absent = [n for n in RUN_LEAVES if not (place / "here" / n).is_file()]
            if absent:
                raise Failed(f"'pffl run' left no {', '.join(absent)}")
            timed(job, "run", clock)
        except Failed as failed:
            job.failed = str(failed)


def gather(parts: Path) -> None:
    """Build the wheel, and put it with the tests as they are now."""
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "-w", parts, ROOT]
    step([sys.executable, *build])
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tests", parts / "tests", ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", parts)


def timed(job: Job, what: str, since: float) -> float:
    """Note how long it took, and return the time."""
    now = time.monotonic()
    job.seconds[what] = now - since
    return now


def install(job: Job, python: Path, wheel: Path, place: Path) -> Path:
    """Make the environment; its Python."""
    step([python, "-m", "venv", place / "venv"])
    own = place / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    constraints = place / "constraints.txt"
    pins = lowest(job.version) if job.lowest else []
    constraints.write_text("\n".join(pins), "utf-8")
    options = ("-q", "--no-compile", "--only-binary", ":all:", "-c", constraints)
    what = f"{wheel}[{','.join(EXTRAS)}]"
    step([own, "-m", "pip", "install", *options, what, *TOOLS])
    listed = step([own, "-m", "pip", "list", "--format=freeze"])
    job.found = dict(re.findall(r"^([\w-]+)==(\S+)$", listed, re.MULTILINE))
    return own


def tests(own: Path, place: Path, *, brief: bool) -> str:
    """Run the quick tests, away from the repository; pytest's last line."""
    command = [own, "-m", "pytest", "-q", "-m", "quick", "-p", "no:cacheprovider"]
    told = step([*command, *(BRIEF if brief else ())], place)
    return told.strip().splitlines()[-1].partition(" in ")[0]


def main() -> None:
    """Run what is asked for, and show a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", choices=PYTHONS, action="append")
    parser.add_argument("--only", choices=("lowest", "newest"))
    parser.add_argument(
        "--brief",
        action="store_true",
        help="the newest Python with the newest dependencies, and a few tests",
    )
    asked = parser.parse_args()
    versions = asked.python or (PYTHONS[-1:] if asked.brief else PYTHONS)
    sets = [asked.only] if asked.only else ["lowest", "newest"][asked.brief :]
    jobs: list[Job] = []
    with tempfile.TemporaryDirectory(prefix="pffl-wheel-") as folder:
        gather(Path(folder))
        for version in versions:
            python = interpreter(version)
            if python is None:
                print(f"{version}  is not on this machine: SKIPPED", flush=True)
                continue
            for which in sets:
                jobs.append(Job(version, lowest=which == "lowest"))
                run(jobs[-1], python, Path(folder), brief=asked.brief)
                print(jobs[-1], flush=True)
    if any(job.failed for job in jobs):
        sys.exit(1)
    if not jobs:
        print("no Python was there to test with")
        sys.exit(0 if asked.brief else 1)


if __name__ == "__main__":
    main()
