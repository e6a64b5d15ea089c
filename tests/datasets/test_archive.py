from __future__ import annotations

import zipfile

import pytest

from pffl.errors import DataError
from tests.datasets.archives import zip_file, zip_with_link
from tests.inside import archive as _archive
from tests.inside import extract_member
from tests.raising import raises


def extract(archive, tmp_path, **limits):
    target = tmp_path / "out.csv"
    try:
        extract_member(archive, "data.csv", target, **limits)
    except DataError:
        assert not target.exists()
        raise
    return target.read_bytes()


def with_bytes(path, place, content):
    """Overwrite packed bytes of the first member."""
    data = bytearray(path.read_bytes())
    start = 30 + len("data.csv") + place
    data[start : start + len(content)] = content
    path.write_bytes(bytes(data))
    return path


def lzma(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("data.csv", b"abc" * 1000)
    return path


def torn(path):
    path.write_bytes(zip_file(path, {"data.csv": b"abc" * 100}).read_bytes()[:50])
    return path


def test_a_member_is_extracted(tmp_path):
    archive = zip_file(tmp_path / "a.zip", {"data.csv": b"a\n1\n", "b/c": b"x"})
    assert extract(archive, tmp_path) == b"a\n1\n"


OUTSIDE = ("../evil", "a/../../evil", "a\\..\\evil", "/etc/evil", "C:\\evil")
SMALL = {"data.csv": b"abc"}
BAD = {
    **{
        name: (lambda p, name=name: zip_file(p, {name: b"x", **SMALL}), "unsafe-path")
        for name in OUTSIDE
    },
    "a link": (lambda p: zip_with_link(p, "link", "/etc/passwd"), "unsafe-path"),
    "a bomb": (lambda p: zip_file(p, {"data.csv": bytes(20 << 20)}), "too-large"),
    "absent": (lambda p: zip_file(p, {"b": b"x"}), "wrong-members"),
    "torn": (torn, "damaged-file"),
    # The first byte says how text is packed, and 0xFF is no way to.
    "other text": (
        lambda p: with_bytes(zip_file(p, SMALL), 1, b"\xff"),
        "damaged-file",
    ),
    "no text": (lambda p: with_bytes(zip_file(p, SMALL), 0, b"\xff"), "damaged-file"),
    "lzma": (lambda p: with_bytes(lzma(p), 9, b"\xff" * 20), "damaged-file"),
}


@pytest.mark.parametrize("name", BAD)
def test_dangerous_and_damaged_archives_are_refused(tmp_path, name):
    make, code = BAD[name]
    with raises(DataError, code):
        extract(make(tmp_path / "a.zip"), tmp_path)


def test_sizes_and_numbers_are_limited(tmp_path, monkeypatch):
    archive = zip_file(tmp_path / "a.zip", {**SMALL, "b": b"x"})
    with raises(DataError, "too-large", "3", "2"):
        extract(archive, tmp_path, max_bytes=2)
    monkeypatch.setattr(_archive, "MAX_MEMBERS", 1)
    with raises(DataError, "too-many-members", "2", "1"):
        extract(archive, tmp_path)
