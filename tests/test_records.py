from __future__ import annotations

from dataclasses import dataclass

import pytest

from pffl import records
from pffl.errors import ArtefactError, UsageError
from tests.raising import raises


@dataclass(frozen=True)
class Part(records.Record):
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Whole(records.Record):
    format: str
    version: int
    part: Part
    share: float = 0.5
    others: tuple[Part, ...] = ()

    def __post_init__(self):
        if self.share > 1:
            raise UsageError("a share is at most 1")


GOOD = {"format": "pffl test", "version": 2, "part": {"name": "a", "sizes": [1, 2]}}


def read(plain):
    return records.read(Whole, plain, source="here")


def test_nested_records_are_read():
    found = read({**GOOD, "others": [{"name": "b"}], "share": 1})
    assert found.part == Part("a", (1, 2))
    assert found.others == (Part("b"),)
    assert found.share == 1.0


def test_all_problems_are_told_with_their_places():
    wrong = {**GOOD, "others": [{"name": 3, "extra": 1}], "share": "x", "version": 2}
    told = ("'others[0].name'", "'others[0].extra'", "'share'")
    with raises(ArtefactError, "unknown-key", *told) as refused:
        read(wrong)
    assert len(refused.value.codes) == 3


@pytest.mark.parametrize(
    ("plain", "code", "words"),
    [
        ({"part": {}, "format": "a", "version": 1}, "missing-key", "'part.name'"),
        ({**GOOD, "version": True}, "wrong-value", "'version'"),
        ({**GOOD, "version": "2"}, "wrong-value", "'version'"),
        ({**GOOD, "version": 2.0}, "wrong-value", "'version'"),
        ({**GOOD, "part": {"name": "a", "sizes": "12"}}, "wrong-value", "'part.sizes'"),
        ({**GOOD, "share": None}, "wrong-value", "'share'"),
        ({**GOOD, "share": 2.0}, "wrong-value", "at most 1"),
        ([], "wrong-value", "here: "),
        (object(), "not-json", "here"),
        (b"{", "not-json", "here"),
        ("[" * 100_000, "not-json", "here"),
        (b"\xff", "not-json", "here"),
        (
            b'{"format": "a", "version": 1, "part": {"name": "a"}, "share": NaN}',
            "not-json",
            "here",
        ),
    ],
)
def test_what_is_refused(plain, code, words):
    with raises(ArtefactError, code, words):
        read(plain)


def test_a_long_value_is_cut():
    with pytest.raises(ArtefactError) as refused:
        read({**GOOD, "part": "x" * 10_000})
    assert len(str(refused.value)) < 300
