import json

import pytest

from pffl.errors import ArtefactError
from pffl.journal import Journal, key_of


def test_entries_survive(tmp_path):
    path = tmp_path / "a" / "rows.jsonl"
    journal = Journal(path)
    journal.put("x", {"value": 1.5, "name": "ζ"})
    journal.put("y", {"value": None})
    journal.put("x", {"value": 2.5})
    again = Journal(path)
    assert "x" in again
    assert again["x"] == {"value": 2.5}
    assert list(again) == [{"value": 2.5}, {"value": None}]
    assert len(again) == 2


def test_torn_last_line_is_dropped_and_the_next_line_starts_afresh(tmp_path):
    path = tmp_path / "rows.jsonl"
    journal = Journal(path)
    journal.put("x", {"value": 1})
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole + whole[:cut].replace(b"\n", b""))
        torn = Journal(path)
        assert list(torn) == [{"value": 1}]
        torn.put("z", {"value": 3})
        assert list(Journal(path)) == [{"value": 1}, {"value": 3}]


def test_damage_elsewhere_is_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"key": "a", "value": 1}\nnot json\n{"key": "b"}\n')
    with pytest.raises(ArtefactError, match="line 2"):
        Journal(path)
    path.write_text('{"value": 1}\n')
    with pytest.raises(ArtefactError, match="line 1"):
        Journal(path)


def test_no_number_that_json_cannot_hold(tmp_path):
    journal = Journal(tmp_path / "rows.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        journal.put("x", {"value": float("nan")})


def test_in_memory_only():
    journal = Journal(None)
    journal.put("x", {"value": 1})
    assert "x" in journal


def test_unwritable_place(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtefactError, match="file"):
        Journal(tmp_path / "file" / "rows.jsonl")


def test_key_is_stable():
    assert key_of({"b": 1, "a": 2}, 3) == key_of({"a": 2, "b": 1}, 3)
    assert json.loads(key_of("ζ")) == ["ζ"]
