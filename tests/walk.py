"""Walk as a user would, with the wheel and with the sdist, away from the checkout.

    python tests/walk.py                      3.11 and 3.13, wheel and sdist
    python tests/walk.py --python 3.13 --only wheel

Each is installed into a fresh environment, with the newest dependencies that pip finds.
Then README's main command, predict, audit, verify, report, card, reproduce, a site's
init, and five notebooks of the gallery, which need no torch and no fairlearn, run in an
empty folder, and the package of examples/outside is installed and used; with the sdist
also the quick tests and the examples that it carries. COMPAS is downloaded where it is
not cached. The exit code is 1 if anything fails, or nothing could be run.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.matrix import LOWEST_ALSO, TOOLS, Failed, interpreter, step  # noqa: E402
from tests.test_outside_package import CHECKS, COMPARED, PACKAGE, RUN_FILE  # noqa: E402

PYTHONS = ("3.11", "3.13")
KINDS = ("wheel", "sdist")
NOTEBOOKS = (
    "ten_lines",
    "own_table",
    "bounds",
    "certify",
    "hospitals",
)
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MAIN = re.compile(r"\.venv/bin/pffl (run .*)")
SPEC = """
[data]
name = "compas"
silos = 3

[constraint]
kind = "bgl"
bound = 0.62
"""
NEW = (
    "import pandas as pd, pffl\n"
    "f = pffl.datasets.compas()\n"
    "rows = pd.DataFrame(f.pooled('test').X, columns=f.schema.features)\n"
    "rows.to_csv('new.csv', index=False)\n"
)


def commands() -> list[tuple[str, ...]]:
    """What is typed after `pffl`, one after the other."""
    main = MAIN.search((ROOT / "README.md").read_text("utf-8"))
    assert main is not None
    run = "runs/compas-001"
    return [
        tuple(shlex.split(main[1])),
        ("run", "compas", "--constraint", "cbgl", "--bound", "0.7", "--seed", "0"),
        ("predict", run, "new.csv", "-o", "scores.csv"),
        ("audit", run, "compas", "--certify", "0.9"),
        ("verify", run),
        ("report", run, "-o", "page.html"),
        ("report", run, "--card", "--set", "about.owner=Unit 7"),
        ("reproduce",),
        ("site", "init", "a"),
    ]


def unpacked(sdist: Path, place: Path) -> Path:
    """The folder that an sdist holds."""
    with tarfile.open(sdist) as files:
        files.extractall(place, filter="data")
    (folder,) = place.iterdir()
    return folder


def outside(own: Path, place: Path) -> None:
    """Install the example package, and use its method and its constraint by name."""
    copy = place / "outside"  # a build leaves files beside the sources
    shutil.copytree(PACKAGE, copy)
    step([own, "-m", "pip", "install", "-q", "--no-deps", copy])
    (place / "outside.toml").write_text(RUN_FILE, "utf-8")
    short = ["run", "outside.toml", "--out", "outside-run"]
    step([own, "-m", "pffl", *short], place, allowed=(0, 4))  # four rounds may miss it
    step([own, "-m", "pffl", *COMPARED, "--out", "outside-compared"], place)
    step([own, "-c", CHECKS], place)
    step([own, "-m", "pip", "uninstall", "-q", "-y", "pffl-outside"])


def walk(python: Path, kind: str, parts: Path) -> str:
    """Install and run everything; what was run, in a line."""
    pattern = "pffl-*.whl" if kind == "wheel" else "pffl-*.tar.gz"
    (built,) = parts.glob(pattern)
    told = []
    with tempfile.TemporaryDirectory(prefix="pffl-walk-") as scratch:
        place = Path(scratch) / "here"
        place.mkdir()
        step([python, "-m", "venv", Path(scratch) / "venv"])
        own = Path(scratch) / "venv" / "bin" / "python"
        wanted = [f"{built}[report,parquet,flower]", *TOOLS]
        step([own, "-m", "pip", "install", "-q", "--no-compile", *wanted])
        (place / "run.toml").write_text(SPEC, "utf-8")
        step([own, "-c", NEW], place)
        for words in commands():
            begun = time.monotonic()
            step([own, "-m", "pffl", *words], place)
            told.append(f"{words[0]} {time.monotonic() - begun:.0f} s")
        for name in NOTEBOOKS:
            text = (ROOT / "docs" / "gallery" / f"{name}.md").read_text("utf-8")
            cells = [
                re.sub(r"^:\w+:.*$", "", c, flags=re.M) for c in CELL.findall(text)
            ]
            step([own, "-c", "\n".join(cells)], place)
            told.append(name)
        outside(own, place)
        told.append("outside package")
        if kind == "sdist":
            source = unpacked(built, Path(scratch) / "source")
            # Flower holds typer back, which warns with a later click: see matrix.py.
            step([own, "-m", "pip", "install", "-q", *LOWEST_ALSO])
            quick = [own, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
            seen = step([*quick, "-m", "quick"], source)
            told.append(seen.strip().splitlines()[-1].partition(" in ")[0])
            seen = step([*quick, "tests/test_examples.py"], source)
            told.append("examples: " + seen.strip().splitlines()[-1])
    return ", ".join(told)


def main() -> None:
    """Walk what is asked for, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", choices=PYTHONS, action="append")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--parts", type=Path, help="Where wheel and sdist are built.")
    asked = parser.parse_args()
    failed, done = False, 0
    with tempfile.TemporaryDirectory(prefix="pffl-parts-") as folder:
        parts = asked.parts or Path(folder) / "dist"
        if asked.parts is None:
            step([sys.executable, ROOT / "recipe" / "release.py", "--out", parts])
        for version in asked.python or PYTHONS:
            python = interpreter(version)
            if python is None:
                print(f"{version}  is not on this machine: SKIPPED", flush=True)
                continue
            for kind in [asked.only] if asked.only else KINDS:
                done += 1
                try:
                    words = walk(python, kind, parts)
                except Failed as error:
                    failed, words = True, f"FAILED: {error}"
                print(f"{version}  {kind}  {words}", flush=True)
    if failed or not done:
        sys.exit(1)


if __name__ == "__main__":
    main()
