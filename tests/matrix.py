"""Use what is built as a user would: each Python × lowest, newest, sdist.

    python tests/matrix.py                    every Python that is there, all three
    python tests/matrix.py --python 3.13      one of them
    python tests/matrix.py --brief            what .ci/run does, in less than a minute

The wheel is installed into a fresh environment with what pip finds: the lowest versions
that pyproject.toml allows and that have a wheel for that Python, or the newest.
The quick tests and one run follow, outside the repository, so that what they import is
what was installed. The newest versions also walk as a user would: README's main command
and others that need its run, five notebooks of the gallery that need no torch and no
fairlearn, and the package of examples/outside. From the sdist the quick tests and the
examples run that it carries. COMPAS is downloaded where it is not cached. A Python that
is absent is skipped and named. The exit code is 1 if anything fails, or nothing could
be run.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.test_outside_package import CHECKS, COMPARED, PACKAGE, RUN_FILE  # noqa: E402

SETS = ("lowest", "newest", "sdist")
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = ("report", "parquet")
TOOLS = ("pytest", "hypothesis", "cloudpickle")
QUICK = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "quick")
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
        "matplotlib": "3.8.0",
        "pyarrow": "14.0.0",
    },
    "3.13": {
        "matplotlib": "3.9.2",
        "numpy": "2.1.0",
        "pandas": "2.2.3",
        "pyarrow": "18.0.0",
        "scipy": "1.14.1",
    },
}
BOUND = re.compile(r"([\w-]+)>=([\d.]+)(?:,<[\d.]+)?")
SHOWN = ("numpy", "scipy", "pandas", "pydantic", "typer", "rich")
RUN = ("run", "synthetic", "--silos=3", "--bound=0.8", "--seed=0", "--out=here")
RUN_LEAVES = ("result.json", "certificate.json", "report.html")
MAIN = re.compile(r"\.venv/bin/pffl (run .*)")
FOLLOWING = """
run compas --constraint cbgl --bound 0.7 --seed 0
predict {run} new.csv -o scores.csv
audit {run} compas --certify 0.9
verify {run}
report {run} -o page.html
report {run} --card --set 'about.owner=Unit 7'
reproduce list
site init a
""".strip().format(run="runs/compas-001")
NEW = (
    "import pandas as pd, pffl\n"
    "f = pffl.datasets.compas()\n"
    "rows = pd.DataFrame(f.pooled('test').X, columns=f.schema.features)\n"
    "rows.to_csv('new.csv', index=False)\n"
)
DONE = (0, 4)  # 4: a bound is not met, or not certified
NOTEBOOKS = ("ten_lines", "own_table", "bounds", "certify", "hospitals")
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OPTION = re.compile(r"^:\w+:.*$", re.MULTILINE)  # of a cell


@dataclass
class Job:
    """One Python with one set of dependencies, and what came of it."""

    version: str
    which: str
    seconds: dict[str, float] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    tests: str = "-"
    failed: str = ""

    def __str__(self) -> str:
        versions = "  ".join(f"{self.found.get(name, '-'):9}" for name in SHOWN)
        times = ", ".join(f"{what} {s:.0f} s" for what, s in self.seconds.items())
        verdict = f"FAILED: {self.failed}" if self.failed else "ok"
        what = f"{self.version}  {self.which}  {versions}"
        return f"{what}  {self.tests}; {times}; {verdict}"


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
    kind = "pffl-*.tar.gz" if job.which == "sdist" else "pffl-*.whl"
    (built,) = parts.glob(kind)
    with tempfile.TemporaryDirectory(prefix="pffl-matrix-") as scratch:
        place = Path(scratch)
        shutil.copytree(parts, place, dirs_exist_ok=True)
        try:
            clock = time.monotonic()
            own = install(job, python, built, place)
            clock = timed(job, "install", clock)
            if job.which == "sdist":
                with tarfile.open(built) as packed:
                    packed.extractall(place, filter="data")
                place = place / built.name.removesuffix(".tar.gz")
            told = step([own, *QUICK, *(BRIEF if brief else ())], place)
            job.tests = told.strip().splitlines()[-1].partition(" in ")[0]
            if job.which == "sdist":
                step([own, *QUICK[:-2], "tests/test_examples.py"], place)
            clock = timed(job, "tests", clock)
            step([own, "-m", "pffl", *RUN], place)
            absent = [n for n in RUN_LEAVES if not (place / "here" / n).is_file()]
            if absent:
                raise Failed(f"'pffl run' left no {', '.join(absent)}")
            clock = timed(job, "run", clock)
            if job.which == "newest" and not brief:
                walk(own, built, place)
                timed(job, "walk", clock)
        except Failed as failed:
            job.failed = str(failed)


def walk(own: Path, wheel: Path, place: Path) -> None:
    """Run what README and the gallery show, and use a package from outside by name."""
    step([own, "-m", "pip", "install", "-q", "--no-compile", f"{wheel}[flower]"])
    step([own, "-c", NEW], place)
    main = MAIN.search((ROOT / "README.md").read_text("utf-8"))
    assert main is not None
    for words in (main[1], *FOLLOWING.splitlines()):
        step([own, "-m", "pffl", *shlex.split(words)], place, allowed=DONE)
    for name in NOTEBOOKS:
        text = (ROOT / "docs" / "gallery" / f"{name}.md").read_text("utf-8")
        step([own, "-c", OPTION.sub("", "\n".join(CELL.findall(text)))], place)
    copy = place / "outside"  # a build leaves files beside the sources
    shutil.copytree(PACKAGE, copy)
    step([own, "-m", "pip", "install", "-q", "--no-deps", copy])
    (place / "outside.toml").write_text(RUN_FILE, "utf-8")
    short = ["run", "outside.toml", "--out", "outside-run"]
    step([own, "-m", "pffl", *short], place, allowed=DONE)
    step([own, "-m", "pffl", *COMPARED, "--out", "outside-compared"], place)
    step([own, "-c", CHECKS], place)


def gather(parts: Path, *, brief: bool) -> None:
    """Build wheel and sdist, and put the tests as they are now with them."""
    build = [ROOT / "recipe" / "release.py", "--out", parts]
    if brief:
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


def install(job: Job, python: Path, built: Path, place: Path) -> Path:
    """Make the environment; its Python."""
    step([python, "-m", "venv", place / "venv"])
    own = place / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    constraints = place / "constraints.txt"
    pins = lowest(job.version) if job.which == "lowest" else []
    constraints.write_text("\n".join(pins), "utf-8")
    options = ("-q", "--no-compile", "--prefer-binary", "-c", constraints)
    what = f"{built}[{','.join(EXTRAS)}]"
    step([own, "-m", "pip", "install", *options, what, *TOOLS])
    listed = step([own, "-m", "pip", "list", "--format=freeze"])
    job.found = dict(re.findall(r"^([\w-]+)==(\S+)$", listed, re.MULTILINE))
    return own


def main() -> None:
    """Run what is asked for, and show a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", choices=PYTHONS, action="append")
    parser.add_argument("--only", choices=SETS)
    parser.add_argument(
        "--brief",
        action="store_true",
        help="the newest Python with the newest dependencies, and a few tests",
    )
    asked = parser.parse_args()
    versions = asked.python or (PYTHONS[-1:] if asked.brief else PYTHONS)
    sets = ("newest",) if asked.brief else SETS
    sets = (asked.only,) if asked.only else sets
    jobs: list[Job] = []
    with tempfile.TemporaryDirectory(prefix="pffl-wheel-") as folder:
        gather(Path(folder), brief=asked.brief)
        for version in versions:
            python = interpreter(version)
            if python is None:
                print(f"{version}  is not on this machine: SKIPPED", flush=True)
                continue
            for which in sets:
                jobs.append(Job(version, which))
                run(jobs[-1], python, Path(folder), brief=asked.brief)
                print(jobs[-1], flush=True)
    if any(job.failed for job in jobs):
        sys.exit(1)
    if not jobs:
        print("no Python was there to test with")
        sys.exit(0 if asked.brief else 1)


if __name__ == "__main__":
    main()
