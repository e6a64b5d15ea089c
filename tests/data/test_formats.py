from __future__ import annotations

import builtins
import bz2
import gzip
import io
import lzma
import zipfile
import zlib

import joblib
import numpy as np
import pandas as pd
import pytest

from pffl.errors import DataError
from tests.data.tables import people
from tests.inside import packed, place_of, read_table
from tests.raising import raises

onnx = pytest.importorskip("onnx")
pytest.importorskip("openpyxl")

FRAME = people(30).assign(seen=pd.Timestamp("2021-04-03"))


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


CSV = FRAME.to_csv(index=False).encode()


def stata(**more):
    return stored(lambda s: FRAME.to_stata(s, write_index=False, **more))


def records(**more):
    return FRAME.to_json(orient="records", date_format="iso", **more).encode()


TABLES = {
    "people.xlsx": lambda: stored(lambda s: FRAME.to_excel(s, index=False)),
    "people.dta": stata,
    "old.dta": lambda: stata(version=114),
    "people.feather": lambda: stored(FRAME.to_feather),
    "people.json": records,
    "people.jsonl": lambda: records(lines=True),
    "people.csv.gz": lambda: gzip.compress(CSV),
    "people.csv.bz2": lambda: bz2.compress(CSV),
    "people.csv.xz": lambda: lzma.compress(CSV),
    "people.csv.zip": lambda: zipped(**{"people.csv": CSV, "__MACOSX/x": b"?"}),
    "people.dta.gz": lambda: gzip.compress(stata()),
}


def read(tmp_path, data, name="people"):
    path = tmp_path / name
    path.write_bytes(data)
    return read_table(path)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_the_same_in_every_form(tmp_path, name):
    found, _ = read(tmp_path, TABLES[name](), name)
    found["seen"] = pd.to_datetime(found["seen"]).dt.tz_localize(None)
    alike = {"check_dtype": False, "check_column_type": False}
    pd.testing.assert_frame_equal(found, FRAME, **alike)
    text = ".csv" in name
    assert place_of(tmp_path / name, 3) == ("line 5" if text else "row 3")


def test_the_first_sheet_is_read_and_said(tmp_path):
    stream = io.BytesIO()
    with pd.ExcelWriter(stream) as book:
        FRAME.to_excel(book, sheet_name="people", index=False)
        FRAME[:2].to_excel(book, sheet_name="old", index=False)
    found, notes = read(tmp_path, stream.getvalue())
    assert len(found) == len(FRAME)
    assert notes == ["sheet 'people', the first of 2"]


def test_value_labels_of_stata_are_the_values(tmp_path):
    frame = FRAME.assign(sex=FRAME["sex"].astype("category"))
    found, _ = read(tmp_path, stored(lambda s: frame.to_stata(s, write_index=False)))
    assert found["sex"].tolist() == FRAME["sex"].tolist()


@pytest.mark.parametrize("package", ["openpyxl", "xlrd"])
def test_what_must_be_installed_is_said(tmp_path, monkeypatch, package):
    excel = stored(lambda s: FRAME.to_excel(s, index=False))
    content = {"openpyxl": excel, "xlrd": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 64}
    original = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with raises(DataError, "missing-package", package):
        read(tmp_path, content[package])


def onnx_model():
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 2])
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, 2])
    graph = onnx.helper.make_graph([node], "g", [value], [out])
    return onnx.helper.make_model(graph, producer_name="skl2onnx").SerializeToString()


def dumped(compress):
    return stored(
        lambda s: joblib.dump({"coef": np.ones(3), "b": "x" * 99}, s, compress)
    )


@pytest.mark.parametrize(
    "make", [onnx_model, lambda: dumped(0), lambda: dumped(3), lambda: dumped(9)]
)
def test_a_model_is_no_table(tmp_path, make):
    with raises(DataError, "not-a-table", "`pffl audit`"):
        read(tmp_path, make(), "model.bin")


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (b'{"a": 1}', "cannot-read", "JSON"),
        (b'[{"a": [1, 2]}]', "cannot-read", "lists inside"),
        (b'{"a": 1}\n{"a": 2', "cannot-read", "JSON"),
        (zipped(a=b"x", b=b"y"), "several-files", "2 files"),
        (zipped(a=b"a,b\n1,2\n")[:-9], "damaged-file", "ZIP"),
        (gzip.compress(b"a,b\n1,2\n")[:-9], "damaged-file", "gzip"),
        (gzip.compress(gzip.compress(b"a,b\n1,2\n")), "not-a-table", "twice"),
        (zipped(**{"word/document.xml": b"<w/>"}), "not-a-table", "Word"),
        (zipped(**{"xl/workbook.xml": b"<w/>"}), "cannot-read", ".xlsx"),
        (b"<stata_dta><header>", "cannot-read", "Stata"),
    ],
    ids=range(10),  # packed bytes hold the time, and would not be the same twice
)
def test_what_is_no_table_is_said(tmp_path, data, code, said):
    with raises(DataError, code, said):
        read(tmp_path, data)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_bomb_is_not_unpacked(tmp_path, pack):
    with raises(DataError, "too-large"):
        read(tmp_path, pack(b"a,b\n" + b"1,2\n" * 2_000_000))


def test_no_archive_grows_without_end(tmp_path, monkeypatch):
    bomb = zipped(**{"xl/workbook.xml": b"0" * 9_000_000})
    with raises(DataError, "too-large"):
        read(tmp_path, bomb, "people.xlsx")
    monkeypatch.setattr(packed, "LARGEST", 100)
    with raises(DataError, "too-large", "100"):
        read(tmp_path, gzip.compress(CSV))


def test_text_that_begins_like_another_form_is_text(tmp_path):
    for header in ("x^2,b", "BZh9,b", "[a],b", "{a},b"):
        found, _ = read(tmp_path, f"{header}\n1,2\n".encode())
        assert found.columns.tolist() == header.split(",")
    assert zlib.compress(b"a", 3)[:2] == b"x^"
