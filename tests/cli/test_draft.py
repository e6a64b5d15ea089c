from __future__ import annotations

import pytest

from pffl.errors import UsageError
from tests.inside import Draft, bound
from tests.raising import raises


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["0.6"], 0.6),
        (["Female=0.6", "Male = 0.7"], {"Female": 0.6, "Male": 0.7}),
        (["age>=65=0.5"], {"age>=65": 0.5}),
        (["f=0.6,m=auto"], {"f": 0.6, "m": "auto"}),
        (["f, yes=0.6"], {"f, yes": 0.6}),
    ],
)
def test_bound(given, expected):
    assert bound(given) == expected


@pytest.mark.parametrize("given", [["x"], ["0,6"], ["0.6", "Male=0.7"], ["Male="]])
def test_bound_that_is_none(given):
    with raises(UsageError, "bounds-mixed" if given[1:] else "wrong-value", "NUMBER"):
        bound(given)


@pytest.mark.parametrize(
    ("options", "settings", "sections"),
    [
        ({"method": None, "group": []}, [], {}),
        (
            {"l2": "0.1", "epsilon": "2"},
            [],
            {"model": {"l2": 0.1}, "privacy": {"epsilon": 2}},
        ),
        ({"l2": "0.1"}, ["model.l2=0.2"], {"model": {"l2": 0.2}}),
        ({"certify": "yes"}, [], {"run": {"certify": True}}),
        ({"certify": "0.9"}, [], {"run": {"certify": True, "confidence": 0.9}}),
    ],
    ids=["not given", "several keys", "settings win", "plain", "confidence"],
)
def test_options_become_sections(options, settings, sections):
    draft = Draft.of("synthetic", options, settings)
    seed = {"seed": 2} if "seed" in options else {}
    assert draft.sections == {"data": {"name": "synthetic", **seed}, **sections}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        '[data]\nname = "synthetic"\n[method]\nkind = "pffl"\ndual_rounds = 3\n'
    )
    return path


def test_options_lie_over_the_file(file):
    draft = Draft.of(str(file), {}, ["method.local_steps=2"])
    known = {"kind": "pffl", "dual_rounds": 3, "local_steps": 2}
    assert draft.sections["method"] == known
    assert (draft.source, draft.base) == (str(file), file.parent)
    other = Draft.of(str(file), {"method": "fedavg"})
    assert other.sections["method"] == {"kind": "fedavg"}
    assert Draft.of(str(file.parent), {}).source == str(file)  # of a run directory


def test_one_option_cannot_change_several_constraints(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text("[[constraint]]\nbound = 0.6\n[[constraint]]\nbound = 0.7\n")
    with raises(UsageError, "wrong-setting"):
        Draft.of(str(path), {"bound": ["0.5"]})
    other = Draft.of(str(path), {"constraint": "minmax"})
    assert other.sections["constraint"] == {"kind": "minmax"}
