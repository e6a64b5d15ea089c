from __future__ import annotations

from dataclasses import dataclass

import pytest

from pffl import records
from pffl.errors import ArtefactError, UsageError


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
    with pytest.raises(ArtefactError) as refused:
        read({**GOOD, "others": [{"name": 3, "extra": 1}], "share": "x", "version": 2})
    message = str(refused.value)
    assert message.startswith("here: 3 problems")
    for words in ("'others[0].name'", "'others[0].extra' is not known", "'share'"):
        assert words in message


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ({"part": {}, "format": "a", "version": 1}, "'part.name' is missing"),
        ({**GOOD, "version": True}, "'version'"),
        ({**GOOD, "version": "2"}, "'version'"),
        ({**GOOD, "version": 2.0}, "'version'"),
        ({**GOOD, "part": {"name": "a", "sizes": "12"}}, "'part.sizes'"),
        ({**GOOD, "share": None}, "'share'"),
        ({**GOOD, "share": 2.0}, "here: a share is at most 1"),
        ([], "here: "),
        (object(), "it is not JSON"),
        (b"{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (
            b'{"format": "a", "version": 1, "part": {"name": "a"}, "share": NaN}',
            "NaN is not a number",
        ),
    ],
)
def test_what_is_refused(plain, words):
    with pytest.raises(ArtefactError) as refused:
        read(plain)
    assert words in str(refused.value)


def test_a_long_value_is_cut():
    with pytest.raises(ArtefactError) as refused:
        read({**GOOD, "part": "x" * 10_000})
    assert len(str(refused.value)) < 300
