"""Size and shape of the package: what a maintainer has to walk through.

    python benchmarks/house.py            counts and traces
    python benchmarks/house.py -v         and the files behind them

Counted: files and code lines of src/pffl (no blank, comment or docstring lines),
modules that exactly one other imports, and the files and functions of ours that run in
`pffl run` on a CSV, in `solve`, and in one round of a deployed run (over a transport in
memory). Import time is left out: what is counted is called while the work is done.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import io
import sys
import tempfile
import tokenize
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pffl"
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
NOISE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT)
NOISE += (tokenize.DEDENT, tokenize.ENDMARKER)


def module_of(path: Path) -> str:
    """Return the dotted name of a file."""
    parts = list(path.relative_to(SOURCE.parent).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the lines of a file's docstrings."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            text = first.value if isinstance(first, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found |= set(range(first.lineno, (first.end_lineno or 0) + 1))
    return found


def code_lines(text: str) -> int:
    """Count lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOISE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(ast.parse(text)))


def importers(names: dict[str, Path]) -> dict[str, set[str]]:
    """Return, by module, the modules that import it."""
    users: dict[str, set[str]] = collections.defaultdict(set)
    for name, path in names.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    users[full if full in names else node.module].add(name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    users[alias.name].add(name)
    return users


@contextlib.contextmanager
def traced() -> Iterator[set[tuple[str, str]]]:
    """Collect (file, function) of ours that are called, import time left out."""
    seen: set[tuple[str, str]] = set()
    ours = str(SOURCE)

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ours):
            return
        if code.co_name != "<module>" and not _importing(frame):
            name = str(Path(code.co_filename).relative_to(SOURCE))
            seen.add((name, code.co_qualname))

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def _importing(frame: Any) -> bool:
    """Whether a call is made while a module is imported (decorators, class bodies)."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and "importlib" in str(
            frame.f_back and frame.f_back.f_code.co_filename
        ):
            return True
        frame = frame.f_back
    return False


def people(folder: Path) -> Path:
    """Write a table of 1,500 people who do not exist."""
    import numpy as np

    rng = np.random.default_rng(0)
    lines = ["age,income,sex,branch,hired"]
    for _ in range(1500):
        sex, branch = rng.choice(["f", "m"]), rng.choice(["north", "south", "west"])
        age, income = rng.integers(20, 65), rng.normal(50, 12)
        hired = int(rng.random() < 1 / (1 + np.exp(-(income - 50) / 12 - (sex == "m"))))
        lines.append(f"{age},{income:.2f},{sex},{branch},{hired}")
    path = folder / "people.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run_command() -> None:
    """Run the command line once, on a table."""
    from pffl.cli import main

    with tempfile.TemporaryDirectory() as name:
        table = people(Path(name))
        words = ["run", str(table), "--label", "hired", "--group", "sex"]
        words += ["--silo", "branch", "--bound", "0.66", "--seed", "0"]
        words += ["--out", str(Path(name) / "run")]
        before, sys.argv = sys.argv, ["pffl", *words]
        try:
            main()
        except SystemExit:
            pass
        finally:
            sys.argv = before


def solve_once() -> None:
    """Solve once, in Python."""
    import pffl

    federation = pffl.datasets.synthetic(1500, silos=3, features=3, random_state=0)
    with traced() as seen:
        pffl.solve(federation, pffl.BoundedGroupLoss(0.68), random_state=0)
    LAST.append(seen)


LAST: list[set[tuple[str, str]]] = []


def trace(work: Callable[[], None]) -> set[tuple[str, str]]:
    """Run work twice and return what the second run, all imports done, called."""
    work()
    with traced() as seen:
        work()
    return seen


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", action="store_true", help="also list the files")
    verbose = parser.parse_args().v
    warnings.simplefilter("ignore")
    files = sorted(SOURCE.rglob("*.py"))
    names = {module_of(path): path for path in files}
    users = importers(names)
    single = sorted(
        name
        for name, path in names.items()
        if not path.name.startswith("__") and len(users[name] - {name}) == 1
    )
    lines = sum(code_lines(path.read_text("utf-8")) for path in files)
    print(f"{len(files)} files, {lines:,} code lines")
    print(f"{len(single)} modules with one importer: {', '.join(single)}")
    show("pffl run people.csv", trace(run_command), verbose)
    solve_once()
    solve_once()
    show("solve", LAST[-1], verbose)


def show(title: str, seen: set[tuple[str, str]], verbose: bool) -> None:
    """Print how many files and functions ran."""
    names = sorted({file for file, _ in seen})
    print(f"{title}: {len(names)} files, {len(seen)} functions")
    if verbose:
        print("    " + ", ".join(names))


if __name__ == "__main__":
    main()
