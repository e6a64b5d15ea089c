"""Every guarantee of `tests/guarantees.toml` is held by tests that exist and run."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "guarantees.toml"
#: TOML refuses a table that is there twice, so no id is.
GUARANTEES: dict[str, dict[str, Any]] = tomllib.loads(FILE.read_text("utf-8"))
ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
NEVER = re.compile(r"mark\.(skip|xfail)\b")


@cache
def module(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text("utf-8"))


def problem(node: str) -> str | None:
    """What is wrong with a test of this name; found without an import."""
    path, _, name = node.partition("::")
    if not (ROOT / path).is_file():
        return "no such file"
    parts = module(path).body
    found = [p for p in parts if isinstance(p, ast.FunctionDef) and p.name == name]
    if not (found and name.startswith("test_")):
        return f"no {name} in {path}"
    marks = [ast.unparse(p) for p in parts if isinstance(p, ast.Assign)]
    marks = [mark for mark in marks if mark.startswith("pytestmark")]
    if any(map(NEVER.search, [*marks, *map(ast.unparse, found[-1].decorator_list)])):
        return "never run, or expected to fail"
    return None


@pytest.mark.parametrize("name", GUARANTEES)
def test_a_guarantee_is_held(name: str) -> None:
    guarantee = GUARANTEES[name]
    assert set(guarantee) == {"promise", "tests"}
    assert ID.fullmatch(name)
    assert guarantee["promise"].endswith(".")
    assert guarantee["tests"], "no test holds it"
    assert len(set(guarantee["tests"])) == len(guarantee["tests"])
    wrong = {node: problem(node) for node in guarantee["tests"]}
    assert {node: why for node, why in wrong.items() if why} == {}


def test_no_sentence_is_there_twice() -> None:
    promises = [guarantee["promise"] for guarantee in GUARANTEES.values()]
    assert len(set(promises)) == len(promises) >= 80


def test_what_is_wrong_is_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tests.hygiene.test_guarantees.ROOT", tmp_path)
    (tmp_path / "some.py").write_text(
        "def test_b(): ...\n@pytest.mark.skip\ndef test_c(): ...\n"
        "@pytest.mark.skipif(True, reason='')\ndef test_d(): ...\n"
        "@pytest.mark.xfail(reason='')\ndef test_e(): ...\ndef f(): ...\n"
    )
    module.cache_clear()
    assert [problem(f"some.py::test_{one}") for one in "bd"] == [None, None]
    bad = [f"some.py::{one}" for one in ("test_c", "test_e", "test_x", "f", "")]
    assert all(problem(node) for node in [*bad, "some.py", "other.py::test_b"])
    module.cache_clear()
