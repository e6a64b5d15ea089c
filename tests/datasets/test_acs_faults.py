"""Files of persons that are cut off, mixed up or made to harm."""

from __future__ import annotations

import zipfile

import pytest

from pffl.datasets import acs
from pffl.errors import DataError
from tests.datasets.acs_files import archive, header, member_name, persons, text
from tests.datasets.archives import zip_file, zip_with_link
from tests.raising import raises

PEOPLE = persons("WY", 60)
NAME = member_name(2018, "WY")
DATA = text(2018, "WY", PEOPLE)
LINES = DATA.splitlines(keepends=True)


def load(path, **keywords):
    return acs(source=path, test_fraction=0.0, **keywords)


def plain(folder, data, name=NAME):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    return folder


def changed(column, value, line=3):
    """The file with one value replaced; lines are counted from 1."""
    lines = DATA.decode().splitlines()
    fields = lines[line - 1].split(",")
    fields[header(2018).index(column)] = value
    lines[line - 1] = ",".join(fields)
    return "\n".join(lines).encode()


START = sum(map(len, LINES[:20]))
RENAMED = DATA.replace(b"SCHL", b"EDUC", 1).replace(b",MAR,", b",MARITAL,", 1)
WRONG = {
    "cut off": (DATA[: START + 30], "bad-record", START + 1),
    "a short line": (
        b"".join([*LINES[:20], LINES[20][:40], b"\n", *LINES[21:]]),
        "bad-record",
        START + 1,
    ),
    "other columns": (RENAMED, "missing-column", "SCHL", "MAR"),
    "twice": (DATA.replace(b",SSP,", b",SEX,", 1), "repeated-column", "SEX"),
    "text": (changed("SCHL", "BA", line=9), "not-numbers", "9", "SCHL", "BA"),
    "no such code": (changed("SCHL", "77"), "unknown-category", "SCHL", "77", "1"),
    "no code": (changed("RAC1P", ""), "unknown-category", "RAC1P", "0", "1"),
    "below zero": (changed("AGEP", "-5"), "unknown-category", "AGEP", "5", "1"),
    "half": (changed("MAR", "1.5"), "unknown-category", "MAR", "1.5", "1"),
    "of another state": (text(2018, "AL", persons("AL", 5)), "other-states", "56"),
    "empty": (b"", "empty-file"),
    "empty lines": (b"\n\n", "empty-file"),
    "a header": (LINES[0], "no-rows"),
    "UTF-16": ("AGEP,SEX\n1,2\n".encode("utf-16"), "not-text"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused_with_the_place(tmp_path, name):
    data, code, *said = WRONG[name]
    with raises(DataError, code, *said):
        load(plain(tmp_path, data))


def test_files_of_other_years_and_states_are_refused(tmp_path):
    with raises(DataError, "other-year", "2018", "2017"):
        load(plain(tmp_path, DATA), year=2017)
    with raises(DataError, "other-states", "3"):
        load(plain(tmp_path / "us", changed("ST", "3"), "psam_pusa.csv"))
    with raises(DataError, "file-missing", "2018", "csv_pal.zip", "psam_p01.csv", "NY"):
        load(tmp_path, states=["NY", "WY", "AL"])
    with raises(DataError, "file-missing", "2014"):
        load(tmp_path, year=2014)
    with raises(DataError, "file-missing"):
        load(tmp_path / "none")


@pytest.mark.parametrize(
    "size", [pytest.param(1, marks=pytest.mark.slow), 7, 1000, 1 << 20]
)
def test_lines_are_counted_whatever_the_buffer(tmp_path, monkeypatch, size):
    monkeypatch.setattr("pffl.datasets._acs_files.BUFFER", size)
    whole = load(plain(tmp_path, DATA)).fingerprint
    blank = DATA.replace(b"\n", b"\r\n") + b"\r\n\n"
    assert load(plain(tmp_path, blank)).fingerprint == whole
    start = sum(map(len, LINES[:9]))
    longer = b"".join([*LINES[:9], b"1,", *LINES[9:]])
    with raises(DataError, "bad-record", start + 1):
        load(plain(tmp_path, longer))
    with raises(DataError, "bad-record", "62", "1"):
        load(plain(tmp_path, DATA + b"12"))


def test_text_in_other_encodings_elsewhere_does_no_harm(tmp_path):
    whole = load(plain(tmp_path, DATA)).fingerprint
    assert load(plain(tmp_path, changed("SOCP", "caf\xe9"))).fingerprint == whole
    latin = changed("SOCP", "caf\xe9").decode().encode("latin-1")
    assert load(plain(tmp_path, latin)).fingerprint == whole


def test_an_archive_by_itself(tmp_path):
    whole = load(plain(tmp_path / "plain", DATA)).fingerprint
    assert load(archive(tmp_path, 2018, "WY", PEOPLE)).fingerprint == whole


def flipped(path):
    archive(path.parent, 2018, "WY", PEOPLE)
    with zipfile.ZipFile(path) as opened:
        start = opened.getinfo(NAME).header_offset + 30 + len(NAME)
    data = bytearray(path.read_bytes())
    data[start + 2000] ^= 0xFF
    path.write_bytes(bytes(data))


ARCHIVES = {
    "cut": (lambda p: p.write_bytes(b"PK"), "damaged-file"),
    "flipped": (flipped, "damaged-file"),
    "outside": (lambda p: zip_file(p, {NAME: DATA, "../evil": b"x"}), "unsafe-path"),
    "a link": (lambda p: zip_with_link(p, NAME, "/etc/passwd"), "unsafe-path"),
    "a bomb": (lambda p: zip_file(p, {NAME: DATA + b"0," * (20 << 20)}), "too-large"),
    "nobody": (lambda p: zip_file(p, {"readme.txt": b"x"}), "wrong-members"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_bad_archives_are_refused(tmp_path, name):
    damage, code = ARCHIVES[name]
    damage(tmp_path / "csv_pwy.zip")
    with raises(DataError, code):
        load(tmp_path)
    if name in ("cut", "nobody"):  # by itself, too
        with raises(DataError, "missing-member" if name == "nobody" else code):
            load(tmp_path / "csv_pwy.zip")


def test_parquet_files_that_are_none(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    with raises(DataError, "cannot-read"):
        load(path)
    columns = {"ST": [1, 1], "AGEP": ["old", "young"], "RAC1P": [1, 2], "ESR1": [0, 1]}
    pandas.DataFrame(columns).to_parquet(path)
    with raises(DataError, "not-numbers", "1", "AGEP", "old"):
        load(path)


def test_nobody_passes_the_filter(tmp_path):
    archive(tmp_path, 2018, "WY", [{**p, "AGEP": "05"} for p in PEOPLE])
    with raises(DataError, "no-rows"):
        load(tmp_path, filter="filtered")
