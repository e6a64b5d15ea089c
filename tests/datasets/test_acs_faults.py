"""Files of persons that are cut off, mixed up or made to harm: faults 18, 19, 21."""

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


def test_a_line_cut_off_is_refused_with_line_and_byte(tmp_path):
    lines = DATA.splitlines(keepends=True)
    start = sum(map(len, lines[:20]))
    cut = DATA[: start + 30]
    with raises(DataError, "bad-record", start + 1):
        load(plain(tmp_path, cut))
    joined = b"".join([*lines[:20], lines[20][:40], b"\n", *lines[21:]])
    with raises(DataError, "bad-record", start + 1):
        load(plain(tmp_path, joined))


@pytest.mark.parametrize(
    "size", [pytest.param(1, marks=pytest.mark.slow), 7, 1000, 1 << 20]
)
def test_lines_are_counted_whatever_the_buffer(tmp_path, monkeypatch, size):
    monkeypatch.setattr("pffl.datasets._acs_files.BUFFER", size)
    whole = load(plain(tmp_path, DATA)).fingerprint
    blank = DATA.replace(b"\n", b"\r\n") + b"\r\n\n"
    assert load(plain(tmp_path, blank)).fingerprint == whole
    lines = DATA.splitlines(keepends=True)
    start = sum(map(len, lines[:9]))
    longer = b"".join([*lines[:9], b"1,", *lines[9:]])
    with raises(DataError, "bad-record", start + 1):
        load(plain(tmp_path, longer))
    with raises(DataError, "bad-record", "62", "1"):
        load(plain(tmp_path, DATA + b"12"))


def test_other_columns_are_refused_all_at_once(tmp_path):
    names = header(2018)
    other = DATA.replace(b"SCHL", b"EDUC", 1).replace(b",MAR,", b",MARITAL,", 1)
    assert {"SCHL", "MAR"} <= set(names)
    with raises(DataError, "missing-column", "SCHL", "MAR"):
        load(plain(tmp_path, other))


def test_a_column_that_occurs_twice_is_refused(tmp_path):
    with raises(DataError, "repeated-column", "SEX"):
        load(plain(tmp_path, DATA.replace(b",SSP,", b",SEX,", 1)))


def test_text_in_a_number_is_named_with_its_line(tmp_path):
    with raises(DataError, "not-numbers", "9", "SCHL", "BA"):
        load(plain(tmp_path, changed("SCHL", "BA", line=9)))


def test_codes_outside_the_dictionary_are_listed_with_counts(tmp_path):
    plain(tmp_path, changed("SCHL", "77", line=5))
    with raises(DataError, "unknown-category", "SCHL", "77", "1"):
        load(tmp_path)
    plain(tmp_path, changed("RAC1P", "", line=5))
    with raises(DataError, "unknown-category", "RAC1P", "0", "1"):
        load(tmp_path)
    plain(tmp_path, changed("AGEP", "-5"))
    with raises(DataError, "unknown-category", "AGEP", "5", "1"):
        load(tmp_path)
    plain(tmp_path, changed("MAR", "1.5"))
    with raises(DataError, "unknown-category", "MAR", "1.5", "1"):
        load(tmp_path)


def test_a_file_of_another_state_or_year_is_refused(tmp_path):
    data = text(2018, "AL", persons("AL", 5))
    with raises(DataError, "other-states", "56", "1"):
        load(plain(tmp_path, data))
    with raises(DataError, "other-year", "2018", "2017"):
        load(plain(tmp_path, DATA), year=2017)
    with raises(DataError, "other-states", "3"):
        load(plain(tmp_path / "us", changed("ST", "3"), "psam_pusa.csv"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (DATA.splitlines(keepends=True)[0], "no rows after the header"),
        ("AGEP,SEX\n1,2\n".encode("utf-16"), "zero byte"),
    ],
)
def test_files_that_are_no_tables(tmp_path, data, message):
    with pytest.raises(DataError, match=message):
        load(plain(tmp_path, data))


def test_text_in_other_encodings_elsewhere_does_no_harm(tmp_path):
    whole = load(plain(tmp_path, DATA)).fingerprint
    assert load(plain(tmp_path, changed("SOCP", "caf\xe9"))).fingerprint == whole
    latin = changed("SOCP", "caf\xe9").decode().encode("latin-1")
    assert load(plain(tmp_path, latin)).fingerprint == whole


@pytest.mark.parametrize("name", ["../evil.csv", "/etc/evil", "C:\\evil"])
def test_archives_that_lead_outside_are_refused(tmp_path, name):
    zip_file(tmp_path / "csv_pwy.zip", {NAME: DATA, name: b"x"})
    with raises(DataError, "unsafe-path"):
        load(tmp_path)


def test_archives_with_links_and_bombs_are_refused(tmp_path):
    zip_with_link(tmp_path / "csv_pwy.zip", NAME, "/etc/passwd")
    with raises(DataError, "unsafe-path"):
        load(tmp_path)
    bomb = DATA + b"0," * (20 << 20)
    zip_file(tmp_path / "csv_pwy.zip", {NAME: bomb})
    with raises(DataError, "too-large"):
        load(tmp_path)


def test_archives_cut_off_or_changed_are_refused(tmp_path):
    path = archive(tmp_path, 2018, "WY", PEOPLE)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with raises(DataError, "damaged-file"):
        load(tmp_path)
    path.write_bytes(whole)
    with zipfile.ZipFile(path) as opened:
        start = opened.getinfo(NAME).header_offset + 30 + len(NAME)
    flipped = bytearray(whole)
    flipped[start + 2000] ^= 0xFF
    path.write_bytes(bytes(flipped))
    with raises(DataError, "damaged-file"):
        load(tmp_path)


def test_archives_without_persons(tmp_path):
    zip_file(tmp_path / "csv_pwy.zip", {"readme.txt": b"x"})
    with raises(DataError, "wrong-members", NAME):
        load(tmp_path)
    with raises(DataError, "missing-member"):
        load(tmp_path / "csv_pwy.zip")
    (tmp_path / "torn.zip").write_bytes(b"PK")
    with raises(DataError, "damaged-file"):
        load(tmp_path / "torn.zip")


def test_an_archive_by_itself(tmp_path):
    whole = load(plain(tmp_path / "plain", DATA)).fingerprint
    assert load(archive(tmp_path, 2018, "WY", PEOPLE)).fingerprint == whole


def test_missing_states_are_listed_all_at_once(tmp_path):
    plain(tmp_path, DATA)
    message = r"2018 for AL \('csv_pal.zip' or 'psam_p01.csv'\), NY "
    with pytest.raises(DataError, match=message):
        load(tmp_path, states=["NY", "WY", "AL"])
    with raises(DataError, "file-missing", "2014"):
        load(tmp_path, year=2014)
    with raises(DataError, "file-missing"):
        load(tmp_path / "none")


def test_parquet_files_that_are_none(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    with raises(DataError, "cannot-read"):
        load(path)
    frame = pandas.DataFrame(
        {"ST": [1, 1], "AGEP": ["old", "young"], "RAC1P": [1, 2], "ESR1": [0, 1]}
    )
    frame.to_parquet(path)
    with raises(DataError, "not-numbers", "1", "AGEP", "old"):
        load(path)


def test_nobody_passes_the_filter(tmp_path):
    children = [{**p, "AGEP": "05"} for p in PEOPLE]
    archive(tmp_path, 2018, "WY", children)
    with raises(DataError, "no-rows"):
        load(tmp_path, filter="filtered")
