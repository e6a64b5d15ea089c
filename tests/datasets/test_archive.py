from __future__ import annotations

import zipfile

import pytest

from pffl.datasets import _archive
from pffl.datasets._archive import extract_member
from pffl.errors import DataError
from tests.datasets.archives import zip_file, zip_with_link
from tests.raising import raises


def extract(archive, tmp_path, **limits):
    target = tmp_path / "out.csv"
    try:
        extract_member(archive, "data.csv", target, **limits)
    except DataError:
        assert not target.exists()
        raise
    return target.read_bytes()


def test_a_member_is_extracted(tmp_path):
    archive = zip_file(tmp_path / "a.zip", {"data.csv": b"a\n1\n", "b/c": b"x"})
    assert extract(archive, tmp_path) == b"a\n1\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../evil", "leaves the folder"),
        ("a/../../evil", "leaves the folder"),
        ("a\\..\\evil", "leaves the folder"),
        ("/etc/evil", "absolute path"),
        ("C:\\evil", "absolute path"),
    ],
)
def test_paths_that_lead_outside_are_refused(tmp_path, name, message):
    archive = zip_file(tmp_path / "a.zip", {name: b"x", "data.csv": b"a\n"})
    with pytest.raises(DataError, match=message):
        extract(archive, tmp_path)


def test_links_are_refused(tmp_path):
    archive = zip_with_link(tmp_path / "a.zip", "link", "/etc/passwd")
    with raises(DataError, "unsafe-path", "link"):
        extract(archive, tmp_path)


def test_bombs_are_refused_before_they_grow(tmp_path):
    bomb = zip_file(tmp_path / "a.zip", {"data.csv": bytes(20 << 20)})
    with raises(DataError, "too-large"):
        extract(bomb, tmp_path)


def test_sizes_and_numbers_are_limited(tmp_path, monkeypatch):
    archive = zip_file(tmp_path / "a.zip", {"data.csv": b"abc", "b": b"x"})
    with raises(DataError, "too-large", "3", "2"):
        extract(archive, tmp_path, max_bytes=2)
    monkeypatch.setattr(_archive, "MAX_MEMBERS", 1)
    with raises(DataError, "too-many-members", "2", "1"):
        extract(archive, tmp_path)


def test_absent_members_and_damaged_archives(tmp_path):
    with raises(DataError, "wrong-members", "0"):
        extract(zip_file(tmp_path / "a.zip", {"b": b"x"}), tmp_path)
    torn = zip_file(tmp_path / "b.zip", {"data.csv": b"abc" * 100})
    torn.write_bytes(torn.read_bytes()[:50])
    with raises(DataError, "damaged-file"):
        extract(torn, tmp_path)


# The second byte of the packed data is text; the first says how it is packed, and
# 0xFF is no way to.
@pytest.mark.parametrize(("place", "value"), [(1, 0xFF), (0, 0xFF)])
def test_a_member_with_wrong_bytes_is_refused(tmp_path, place, value):
    archive = zip_file(tmp_path / "a.zip", {"data.csv": b"abc"})
    data = bytearray(archive.read_bytes())
    data[30 + len("data.csv") + place] = value
    archive.write_bytes(bytes(data))
    with raises(DataError, "damaged-file"):
        extract(archive, tmp_path)


def test_a_member_packed_in_another_way_is_refused_when_damaged(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("data.csv", b"abc" * 1000)
    data = bytearray(path.read_bytes())
    data[30 + len("data.csv") + 9 : 30 + len("data.csv") + 29] = b"\xff" * 20
    path.write_bytes(bytes(data))
    with raises(DataError, "damaged-file"):
        extract(path, tmp_path)
