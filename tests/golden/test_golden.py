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
    lines = compare.differences(stored, found, tolerances)
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


STORED = {"b": 1.0, "c": [1000.0, 0.5], "n": 3, "word": "met", "no": None}
STORED["x"] = {"from": 1.0, "to": 2.0}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"b": 1.0 + 1e-10}, []),
        ({"b": 1.0 + 1e-8}, ["b: stored 1.0, found 1.00000001"]),
        ({"c": [1000.0, 0.5 + 1e-7]}, []),  # the scale is that of the list
        ({"c": [1000.0, 0.5 + 1e-5]}, ["c[1]: stored 0.5, found 0.50001"]),
        (
            {"c": [1000.0]},
            ["c.length: stored 2, found 1", "c[1]: stored 0.5, found nothing"],
        ),
        ({"n": 4}, ["n: stored 3, found 4"]),
        ({"word": "not met"}, ["word: stored 'met', found 'not met'"]),
        ({"no": 0.0}, ["no: stored None, found 0.0"]),
        ({"new": 1}, ["new: stored nothing, found 1"]),
        ({"new": {}}, ["new: stored nothing, found {}"]),
        ({"b": "nan"}, ["b: stored 1.0, found 'nan'"]),
        ({"b": True}, ["b: stored 1.0, found True"]),
        ({"x": 2.5}, ["x: stored {'from': 1.0, 'to': 2.0}, found 2.5"]),
    ],
)
def test_differences_are_named(changed: dict[str, Any], told: list[str]) -> None:
    found = {**STORED, "x": 1.5, **changed}
    assert compare.differences(STORED, found) == told
    known = [] if changed == {"b": 1.0 + 1e-8} else told  # by its own tolerance
    assert compare.differences(STORED, found, {"b": 0.01, "w": 9.0}) == known


def test_what_is_stored_is_read_as_it_was() -> None:
    figures = compare.plain({"b": [1 / 3, 2, None, "a, b"], "a": {"x": [[1.5], []]}})
    assert json.loads(compare.text_of(figures)) == figures
