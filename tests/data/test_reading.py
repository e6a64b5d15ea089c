"""Files and frames become the same table, or are refused with a place and a remedy."""

from __future__ import annotations

import builtins
import bz2
import gzip
import io
import lzma
import zipfile

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pffl.data import Column
from pffl.errors import DataError
from tests.data.tables import people
from tests.inside import find_delimiter, read_chunks, read_table, reading
from tests.raising import raises

pytest.importorskip("openpyxl")
FRAME = people(30).assign(seen=pd.Timestamp("2021-04-03"))
CSV = FRAME.to_csv(index=False).encode()


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


def stored(write):
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def stata(**more):
    return stored(lambda s: FRAME.to_stata(s, write_index=False, **more))


def records(**more):
    return FRAME.to_json(orient="records", date_format="iso", **more).encode()


TABLES = {
    "people.xlsx": lambda: stored(lambda s: FRAME.to_excel(s, index=False)),
    "people.dta": stata,
    "old.dta": lambda: stata(version=114),
    "people.feather": lambda: stored(FRAME.to_feather),
    "people.parquet": lambda: stored(FRAME.to_parquet),
    "people.json": records,
    "people.jsonl": lambda: records(lines=True),
    "people.csv.gz": lambda: gzip.compress(CSV),
    "people.csv.bz2": lambda: bz2.compress(CSV),
    "people.csv.xz": lambda: lzma.compress(CSV),
    "people.csv.zip": lambda: zipped(**{"people.csv": CSV, "__MACOSX/x": b"?"}),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_the_same_in_every_form(tmp_path, name):
    found, _ = read(tmp_path, TABLES[name](), name)
    found["seen"] = pd.to_datetime(found["seen"]).dt.tz_localize(None)
    alike = {"check_dtype": False, "check_column_type": False}
    pd.testing.assert_frame_equal(found, FRAME, **alike)
    numbered, _ = read_table(tmp_path / name, numbered=True)
    assert numbered.index[3] == (5 if ".csv" in name else 3)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_other_libraries(library):
    made = pytest.importorskip(library)
    table = made.table if library == "pyarrow" else made.DataFrame
    found, _ = read_table(table(FRAME.drop(columns="seen").to_dict("list")))
    pd.testing.assert_frame_equal(found, FRAME.drop(columns="seen"), check_dtype=False)
    if library == "polars":
        with raises(DataError, "not-a-table", "collect"):
            read_table(made.LazyFrame({"a": [1]}))


def test_what_was_decided_is_noted(tmp_path):
    _, notes = read(tmp_path, "name,age\nJosé,3\n".encode("latin-1"))
    assert "Latin-1" in notes[0]
    frame, notes = read(tmp_path, "x;name\n1,5;a\n-2;b\n;c,d\n")
    assert frame["x"].tolist()[:2] == [1.5, -2.0]
    assert frame["name"].tolist() == ["a", "b", "c,d"]
    frame, notes = read(tmp_path, ",a\n0,5\n1,6\n")  # a column without a name
    assert (frame.columns.tolist(), len(notes)) == (["a"], 1)
    frame, notes = read(tmp_path, "a,b,a\n1,2,1\n3,4,3\n")
    assert (frame.columns.tolist(), len(notes)) == (["a", "b"], 1)
    book = io.BytesIO()
    with pd.ExcelWriter(book) as writer:
        FRAME.to_excel(writer, sheet_name="people", index=False)
        FRAME[:2].to_excel(writer, sheet_name="old", index=False)
    found, notes = read(tmp_path, book.getvalue(), "people.xlsx")
    assert (len(found), notes) == (len(FRAME), ["sheet 'people', the first of 2"])


def test_quotes_hold_line_breaks_and_separators(tmp_path):
    frame, _ = read(tmp_path, 'a,b\n"one\ntwo, three",1\n"say ""hi""",2\n')
    assert frame["a"].tolist() == ["one\ntwo, three", 'say "hi"']
    numbered, _ = read_table(tmp_path / "people.csv", numbered=True)
    assert numbered.index.tolist() == [2, 4]
    assert find_delimiter("a,b\n1;2;3,4\n5;6;7,8\n") == ","
    assert find_delimiter("a\n1\n") == ","


#: Bytes of a file, the code of the error, and what is said: a place, or a remedy.
WRONG = {
    "empty": (b"", "empty-file", "people.csv"),
    "header alone": (b"a,b\n", "no-rows", "people.csv"),
    "short and long": (b"a,b\n1,2\n3\n4,5\n6,7,8\n", "bad-record", "line 3: 1", "5: 3"),
    "many": (b"a,b\n1,2\n" + b"3\n" * 20, "bad-record", "15 more"),
    "open quote": (b'a,b\n1,2\n"open,3\n4,5\n', "bad-record", "line 3"),
    "zero byte": (b"a,b\n1,\x00\n", "not-text", "zero byte"),
    "no letters": (b"a,b\n1,\x81\n", "not-text", "UTF-8"),
    "half UTF-16": (b"\xff\xfea", "not-text", "utf-16"),
    "repeated": (b"a,b,a\n1,2,9\n3,4,3\n", "repeated-column", "'a'", "rename"),
    "Adult": (
        b"39, State-gov, 77516, Male\n50, Private, 83311, Male\n",
        "no-header", "39", "add a line",
    ),
    "census": (b"73,0,0,x\n58,4,34,y\n", "no-header", "add a line"),
    "German credit": (
        b"A11 6 A34 A43 1169\nA12 48 A32 A43 5951\nA14 12 A34 A46 2096\n",
        "blank-separated", "commas",
    ),
    "total": (b"name,n\na,1\nb,2\nTotal,3\n", "total-line", "Total", "remove"),
    "JSON": (b'[{"a": 1}]', "not-a-table", "JSON"),
    "pickle": (b"\x80\x04\x95" + b"a" * 99, "not-a-table", "pffl audit"),
    "web page": (b"<!DOCTYPE html><table></table>", "not-a-table", "HTML"),
}  # fmt: skip
WRONG_FORMS = {
    "several.zip": (zipped(a=b"x", b=b"y"), "several-files", "2 files"),
    "cut.zip": (zipped(a=b"a,b\n1,2\n")[:-9], "cannot-read", "cut.zip"),
    "cut.gz": (gzip.compress(b"a,b\n1,2\n")[:-9], "cannot-read", "cut.gz"),
    "twice.gz": (gzip.compress(gzip.compress(b"a,b\n1,2\n")), "not-text", "zero"),
    "packed.csv": (gzip.compress(b"a,b\n1,2\n"), "not-text", "packed.csv"),
    "a.json": (b'{"a": 1}', "cannot-read", "a.json"),
    "c.jsonl": (b'{"a": 1}\n{"a": 2', "cannot-read", "c.jsonl"),
    "d.xlsx": (zipped(**{"xl/workbook.xml": b"<w/>"}), "cannot-read", "d.xlsx"),
    "e.dta": (b"<stata_dta><header>", "cannot-read", "e.dta"),
    "f.parquet": (b"no parquet", "cannot-read", "f.parquet"),
}


@pytest.mark.parametrize("name", [*WRONG, *WRONG_FORMS])
def test_what_cannot_be_read_is_refused_with_its_place(tmp_path, name):
    data, code, *said = {**WRONG, **WRONG_FORMS}[name]
    with raises(DataError, code, *said):
        read(tmp_path, data, name if name in WRONG_FORMS else "people.csv")


def test_a_file_that_is_not_there():
    with raises(DataError, "file-missing"):
        read_table("nowhere.csv")


@pytest.mark.parametrize("header", ["x^2,b", "BZh9,b", "[a],b", "0,1", "2019,2020"])
def test_odd_headers_are_headers(tmp_path, header):
    found, _ = read(tmp_path, f"{header}\n1,2\n".encode())
    assert found.columns.tolist() == header.split(",")


def test_what_must_be_installed_is_said(tmp_path, monkeypatch):
    original, book = builtins.__import__, TABLES["people.xlsx"]()

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "openpyxl":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with raises(DataError, "missing-package", "openpyxl"):
        read(tmp_path, book, "people.xlsx")


pieces = st.sampled_from(['"', ",", "\n", "\r\n", " ", "a", '""', '"b"', "é", "1"])


@given(st.lists(pieces, max_size=20).map("".join))
def test_no_value_ever_moves(tmp_path_factory, text):
    """A file is read as the csv module reads it, record by record, or refused."""
    import csv

    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text(text, newline="")
    try:
        frame, _ = read_table(path)
    except DataError:
        return
    delimiter = find_delimiter(text)
    stream = io.StringIO(text, newline="")
    options = {"skipinitialspace": True, "strict": True, "delimiter": delimiter}
    records = [r for r in csv.reader(stream, **options) if r]
    assert len(frame) == len(records) - 1
    named = [j for j, name in enumerate(records[0]) if name.strip()]
    for row, record in zip(frame.to_dict("records"), records[1:], strict=True):
        for j in named:
            value = row[records[0][j].strip()]
            missing = record[j].strip() == ""
            assert missing == bool(pd.isna(value)) or str(value) == record[j]


def test_chunks_are_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "CHUNK_ROWS", 7)
    columns = [Column("age", "number"), Column("job", "category", ("clerk",))]
    for name in ("people.csv", "people.csv.gz", "people.parquet", "people.xlsx"):
        read(tmp_path, {**TABLES, "people.csv": lambda: CSV}[name](), name)
        found = list(read_chunks(tmp_path / name, columns, ["sex"]))
        assert len(found) == (1 if name.endswith("xlsx") else 5)
        whole = pd.concat(found)
        assert whole["age"].tolist() == FRAME["age"].tolist()
        assert whole["sex"].tolist() == FRAME["sex"].tolist()
        assert found[-1].index[1] == {"v": 31, "z": 31, "t": 29, "x": 1}[name[-1]]
