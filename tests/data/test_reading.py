from __future__ import annotations

import csv
import io
from unittest import mock

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pffl.errors import DataError
from tests.inside import find_delimiter, first_uneven, read_table, reading
from tests.raising import raises


def read(tmp_path, data, name="people.csv"):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_table(path)


@pytest.mark.parametrize(
    "data",
    [
        "name,age\nJosé,3\nZoë,4\n".encode(),
        "name,age\r\nJosé,3\r\nZoë,4\r\n".encode(),
        "name;age\nJosé;3\nZoë;4\n".encode("utf-8-sig"),
        "name\tage\nJosé\t3\nZoë\t4".encode("latin-1"),
        "name|age\n\nJosé|3\nZoë|4\n\n".encode("utf-16"),
        '"name", age\n"José", 3\nZoë, 4\n'.encode(),
    ],
)
def test_dialects_give_the_same_table(tmp_path, data):
    frame, _ = read(tmp_path, data)
    assert frame.columns.tolist() == ["name", "age"]
    assert frame["name"].tolist() == ["José", "Zoë"]
    assert frame["age"].tolist() == [3, 4]


def test_line_breaks_and_separators_inside_quotes(tmp_path):
    frame, _ = read(tmp_path, 'a,b\n"one\ntwo, three",1\n"say ""hi""",2\n')
    assert frame["a"].tolist() == ["one\ntwo, three", 'say "hi"']


def test_what_was_decided_is_noted(tmp_path):
    _, notes = read(tmp_path, "name,age\nJosé,3\n".encode("latin-1"))
    assert "line 2, byte 13 is 0xe9" in notes[0]
    frame, notes = read(tmp_path, "x;name\n1,5;a\n-2;b\n;c,d\n")
    assert frame["x"].tolist()[:2] == [1.5, -2.0]
    assert frame["name"].tolist() == ["a", "b", "c,d"]
    assert any("'x'" in note for note in notes)
    frame, notes = read(tmp_path, ",a\n0,5\n1,6\n")  # a column without a name
    assert (frame.columns.tolist(), len(notes)) == (["a"], 1)
    frame, notes = read(tmp_path, "a,b,a\n1,2,1\n3,4,3\n")
    assert (frame.columns.tolist(), len(notes)) == (["a", "b"], 1)
    with raises(DataError, "repeated-column", "a"):
        read(tmp_path, "a,b,a\n1,2,9\n3,4,3\n")


def test_every_line_of_another_length_is_named(tmp_path):
    with raises(DataError, "bad-record", "line 3, byte 9: 1", "line 5, byte 16: 3"):
        read(tmp_path, "a,b\n1,2\n3\nä,5\n6,7,8\n")
    with raises(DataError, "bad-record", "15"):  # many are summed up
        read(tmp_path, "a,b\n1,2\n" + "3\n" * 20)


@pytest.mark.parametrize(
    ("data", "code", "place"),
    [
        (b"", "empty-file", "people.csv"),
        (b"a,b\n", "no-rows", "people.csv"),
        (b'a,b\n1,2\n"open,3\n4,5\n', "bad-record", "line 3, byte 9"),
        (b"a,b\n1,\x00\n", "not-text", "line 2, byte 7"),
        (b"a,b\n1,\x81\n", "not-text", "line 2, byte 7: 0x81"),
        (b"\xff\xfea", "not-text", "UTF-16"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(tmp_path, data, code, place):
    with raises(DataError, code, place):
        read(tmp_path, data)


def test_delimiter_inside_text_is_not_mistaken():
    assert find_delimiter("a,b\n1;2;3,4\n5;6;7,8\n") == ","
    assert find_delimiter("a;b;c\n1,5;2,5;3\n") == ";"
    assert find_delimiter("a\n1\n") == ","


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({" a ": [1, 2], "b": ["x", None]})
    frame.to_parquet(tmp_path / "t.parquet")
    back, _ = read_table(tmp_path / "t.parquet")
    assert back.columns.tolist() == ["a", "b"]
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with raises(DataError, "cannot-read"):
        read_table(tmp_path / "bad.parquet")
    with raises(DataError, "file-missing"):
        read_table("nowhere.csv")


def counted(text):
    """Fields of each record, as the csv module counts them; None if it refuses."""
    stream = io.StringIO(text, newline="")
    try:
        return [len(r) for r in csv.reader(stream, skipinitialspace=True, strict=True)]
    except csv.Error:
        return None


pieces = st.sampled_from(['"', ",", "\n", "\r\n", "\r", " ", "a", '""', '"b"', "é"])


@given(st.lists(pieces, max_size=20).map("".join), st.integers(1, 3))
def test_a_look_never_takes_uneven_records_for_even_ones(text, fields):
    even = counted(text) is not None and set(counted(text)) <= {0, fields}
    assert even or not reading.looks_even(text.encode(), ",", fields)


@given(st.lists(pieces, max_size=20).map("".join), st.integers(1, 3))
def test_blocks_change_nothing(text, fields):
    data = text.encode()
    whole = first_uneven(data, ",", fields), reading.looks_even(data, ",", fields)
    for block in (1, 2, 5):
        with mock.patch.object(reading, "BLOCK", block):
            assert first_uneven(data, ",", fields) == whole[0]
            assert reading.looks_even(data, ",", fields) == whole[1]


def test_a_look_is_enough_for_files_as_they_are_written(tmp_path, monkeypatch):
    frame = pd.DataFrame({"a": ["x, y", 'say "hi"', "two\nlines"], "b": [1, 2, 3]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    monkeypatch.setattr(reading, "check_records", None)
    pd.testing.assert_frame_equal(read_table(tmp_path / "a.csv")[0], frame)


def test_the_first_uneven_line_is_found_with_its_byte():
    assert first_uneven(b"a;b\r\n\r\n1;2\r\n", ";", 2) is None
    assert first_uneven(b"a;b\n1;2;3\n4\n", ";", 2) == (1, 4, 3)
    assert first_uneven(b"a;b\n1;2\n4", ";", 2) == (2, 8, 1)
