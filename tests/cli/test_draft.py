from __future__ import annotations

import pytest

from pffl.cli.options import Draft, bound
from pffl.errors import DataError, UsageError
from tests.raising import raises


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["0.6"], 0.6),
        (["Female=0.6", "Male = 0.7"], {"Female": 0.6, "Male": 0.7}),
        (["age>=65=0.5"], {"age>=65": 0.5}),
    ],
)
def test_bound(given, expected):
    assert bound(given) == expected


@pytest.mark.parametrize("given", [["x"], ["0,6"], ["0.6", "Male=0.7"], ["Male="]])
def test_bound_that_is_none(given):
    with pytest.raises(UsageError, match=r"NUMBER"):
        bound(given)


def test_options_that_are_not_given_leave_no_trace():
    draft = Draft.of("synthetic", {("method.rounds",): None, ("data.group",): []})
    assert draft.sections == {"data": {"name": "synthetic"}}


def test_an_option_may_set_several_keys():
    draft = Draft.of("synthetic", {("data.seed", "run.seed"): 3})
    assert draft.sections["data"]["seed"] == draft.sections["run"]["seed"] == 3


def test_settings_win_over_options():
    draft = Draft.of("synthetic", {("model.l2",): 0.1}, ["model.l2=0.2"])
    assert draft.sections["model"] == {"l2": 0.2}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(
        '[data]\nname = "synthetic"\n[method]\nkind = "pffl"\ndual_rounds = 3\n'
    )
    return path


def test_options_lie_over_the_file(file):
    draft = Draft.of(str(file), {("method.local_steps",): 2})
    assert draft.sections["method"] == {
        "kind": "pffl",
        "dual_rounds": 3,
        "local_steps": 2,
    }
    assert (draft.source, draft.base) == (str(file), file.parent)


def test_another_kind_starts_its_section_anew(file):
    draft = Draft.of(str(file), {("method.kind",): "fedavg"})
    assert draft.sections["method"] == {"kind": "fedavg"}


def test_a_run_directory_stands_for_its_run_file(file):
    assert Draft.of(str(file.parent), {}).source == str(file)


def test_one_option_cannot_change_several_constraints(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text("[[constraint]]\nbound = 0.6\n[[constraint]]\nbound = 0.7\n")
    with raises(UsageError, "wrong-setting"):
        Draft.of(str(path), {("constraint.bound",): ["0.5"]})
    other = Draft.of(str(path), {("constraint.kind",): "minmax"})
    assert other.sections["constraint"] == {"kind": "minmax"}


def test_absent_file():
    with raises(DataError, "file-missing"):
        Draft.of("absent.csv", {})
