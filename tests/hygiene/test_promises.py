"""Promises that hold for the whole tree: SECURITY.md, and CONTRIBUTING.md."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
SOURCES = sorted((SRC / "pffl").rglob("*.py"))
EXTRAS = {"cryptography", "flwr", "torch"}
HEAVY = {"flwr", "matplotlib", "numpy", "pandas", "rich", "scipy.stats", "sklearn"}
HEAVY |= {"torch"}
LARGEST_FILE = 1_000_000
HERE = Path(__file__)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
CITED = re.compile(r"DESIGN(?: |,|\.md)|FAULTS [0-9]|METHODS §")
PAGE = re.compile(r"docs/\w+\.md")
MACHINE_PATH = re.compile(r"""["'\s(=](/(?:home|opt|root|tmp|Users|work)/\w+)""")


def name_of(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


def module_of(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    run = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False
    )
    if run.returncode != 0:
        pytest.skip("git cannot read this checkout")
    paths = (ROOT / os.fsdecode(name) for name in run.stdout.split(b"\0") if name)
    return [path for path in paths if path.is_file()]


def unsafe(*arguments, code=None):
    """Ask ruff what would run, or unpickle, what was read."""
    rules = "--select=S102,S301,S302,S307,S506,S602,S605"
    asked = ["-m", "ruff", "check", "-q", "--isolated", "--output-format=concise"]
    ran = subprocess.run(
        [sys.executable, *asked, rules, *arguments],
        input=code,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode in (0, 1), ran.stderr
    return ran.stdout.splitlines()


def test_source_never_runs_what_it_reads():
    assert unsafe(str(SRC)) == []
    unpickled = re.compile(
        r"import (?:pickle|joblib|dill)|np\.load\((?!.*_pickle=False)|torch\.load\("
    )
    found = {name_of(p): unpickled.findall(p.read_text("utf-8")) for p in SOURCES}
    assert {name for name, seen in found.items() if seen} == set()


@pytest.mark.parametrize(
    "code",
    [
        "import pickle\npickle.loads(b)",
        "eval('1')",
        "exec('1')",
        "import yaml\nyaml.load(f)",
        "import subprocess\nsubprocess.run('ls', shell=True)",
    ],
)
def test_unsafe_code_is_found(code):
    assert len(unsafe("-", code=code)) == 1


def test_source_names_no_path_of_a_machine():
    found = {p: MACHINE_PATH.findall(p.read_text("utf-8")) for p in SOURCES}
    assert {name_of(p): paths for p, paths in found.items() if paths} == {}


def test_no_document_that_is_not_here_is_cited():
    told = [p for p in tracked_files() if p.suffix in (".md", ".py", ".toml")]
    texts = {str(p): p.read_text("utf-8") for p in told if p != HERE}
    found = {name: CITED.findall(text) for name, text in texts.items()}
    assert {name: words for name, words in found.items() if words} == {}
    code = {name: text for name, text in texts.items() if name.endswith(".py")}
    named = {(name, page) for name, text in code.items() for page in PAGE.findall(text)}
    assert [name for name, page in named if not (ROOT / page).exists()] == []


def test_no_tracked_file_is_large_or_names_this_checkout_or_is_ignored():
    """The wheel leaves out what git ignores: `runs/` once was without `pffl.runs`."""
    tracked = tracked_files()
    assert [str(p) for p in tracked if p.stat().st_size > LARGEST_FILE] == []
    if len(ROOT.parts) > 2:  # a shorter path is in other words, too
        here = str(ROOT).encode()
        assert [str(p) for p in tracked if here in p.read_bytes()] == []
    ignored = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    run = subprocess.run(ignored, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout == ""


def test_modules_import_unless_an_extra_is_absent():
    """And what their docstrings show comes out as shown."""
    failed = {}
    for path in SOURCES:
        if path.stem == "__main__":
            continue
        try:
            module = importlib.import_module(module_of(path))
        except ImportError as error:
            if not _misses_an_extra(error):
                failed[module_of(path)] = repr(error)
            continue
        found = doctest.testmod(module, optionflags=FLAGS)
        if found.failed:
            failed[module_of(path)] = f"{found.failed} examples fail"
    assert failed == {}


def _misses_an_extra(error: BaseException | None) -> bool:
    """Whether the error, or what caused it, is that an extra is not installed."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            return error.name.partition(".")[0] in EXTRAS
        error = error.__cause__ or error.__context__
    return False


def test_import_is_light_and_offline():
    code = """
import json, sys
def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise RuntimeError(f"import pffl opened a connection: {event} {args}")
sys.addaudithook(refuse)
import pffl
print(json.dumps(sorted(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert HEAVY.isdisjoint(json.loads(run.stdout))
