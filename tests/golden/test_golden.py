"""Each golden run finds what is stored of it.

A change that means to change figures stores them anew, in a commit of its own:
`python -m tests.golden.record NAME`.
"""

from __future__ import annotations

import difflib
import json
from typing import Any

import pytest

from tests.golden import compare, runs
from tests.golden.runs import Golden


def check(name: str, golden: Golden) -> None:
    real = golden.data.real
    stored, found = compare.read(name, real=real), golden.figures(name)
    tolerances = runs.TOLERANCES.get(name, {})
    lines = list(compare.differences(stored, found, tolerances))
    assert not lines, "\n".join([f"{name}: {len(lines)} differ", *lines])


@pytest.mark.parametrize("name", runs.RUNS)
def test_figures(name: str, golden: Golden) -> None:
    if name == "13-network":
        pytest.importorskip("torch")
    check(name, golden)


@pytest.mark.parametrize("name", runs.TEXTS)
def test_texts(name: str, golden: Golden) -> None:
    pytest.importorskip("jinja2")
    stored = (compare.HERE / name).read_text("utf-8")
    lines = difflib.unified_diff(
        stored.splitlines(), golden.surfaces[name].splitlines(), "stored", "found",
        lineterm="", n=0,
    )  # fmt: skip
    told = "\n".join(lines)
    assert not told, f"{name}\n{told}"


def test_every_file_belongs_to_a_run() -> None:
    there = {path.name for path in compare.HERE.glob("*.json")}
    assert there == {f"{name}.json" for name in runs.RUNS}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """The same runs on COMPAS and Adult themselves."""
    golden = Golden(tmp_path_factory.mktemp("real"), real=True)
    try:
        golden.data.load()
    except runs.NotHere as error:
        pytest.skip(f"the real files cannot be fetched: {error}")
    return golden


@pytest.mark.slow
@pytest.mark.parametrize("name", runs.REAL)
def test_real_files(name: str, real: Golden) -> None:
    check(name, real)


STORED = {"a": {"b": 1.0, "c": [1000.0, 0.5], "n": 3, "word": "met", "no": None}}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"b": 1.0 + 1e-10}, []),
        ({"b": 1.0 + 1e-8}, ["a/b: stored 1.0, found 1.00000001"]),
        ({"c": [1000.0, 0.5 + 1e-7]}, []),  # the scale is that of the list
        ({"c": [1000.0, 0.5 + 1e-5]}, ["a/c[1]: stored 0.5, found 0.50001"]),
        ({"c": [1000.0]}, ["a/c: stored 2 entries, found 1"]),
        ({"n": 4}, ["a/n: stored 3, found 4"]),
        ({"word": "not met"}, ["a/word: stored 'met', found 'not met'"]),
        ({"no": 0.0}, ["a/no: stored None, found 0.0"]),
        ({"new": 1}, ["a/new: stored nothing, found 1"]),
        ({"b": "nan"}, ["a/b: stored 1.0, found 'nan'"]),
        ({"b": True}, ["a/b: stored 1.0, found True"]),
    ],
)
def test_differences_are_named(changed: dict[str, Any], told: list[str]) -> None:
    found = {"a": {**STORED["a"], **changed}}
    assert list(compare.differences(STORED, found)) == told


def test_a_key_may_have_a_tolerance_of_its_own() -> None:
    stored, found = {"a": {"b": 1.0}, "c": 1.0}, {"a": {"b": 1.001}, "c": 1.001}
    assert [*compare.differences(stored, found, {"a": 0.01})] == [
        "c: stored 1.0, found 1.001"
    ]
    assert not [*compare.differences(stored, found, {"": 0.01})]


def test_a_stored_interval_holds_a_number() -> None:
    stored = {"x": {"from": 1.0, "to": 2.0}}
    assert not [*compare.differences(stored, {"x": 1.5})]
    assert [*compare.differences(stored, {"x": 2.5})] == [
        "x: stored [1.0, 2.0], found 2.5"
    ]


def test_what_is_stored_is_read_as_it_was() -> None:
    figures = compare.plain({"b": [1 / 3, 2, None, "a, b"], "a": {"x": [[1.5], []]}})
    assert json.loads(compare.text_of(figures)) == figures
