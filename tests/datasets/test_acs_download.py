"""The Census's archives from a server on the loopback interface: faults 19, 20, 22."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module

import pytest
from filelock import FileLock

from pffl.datasets import _acs_files, _fetch, acs
from pffl.datasets._acs_files import archive_name, member_name
from pffl.errors import DataError
from tests.datasets.acs_files import archive, persons
from tests.datasets.archives import zip_file
from tests.raising import raises

STATES = ("NY", "WY")
PEOPLE = {state: persons(state, 80) for state in STATES}


@dataclass
class Census:
    """A server of files, and how it misbehaves.

    `cut`: after how many bytes to break off, request by request.
    """

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut: list[int] = field(default_factory=list)
    tag: str = '"first"'
    ranges: bool = True
    length: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def serve(site: Census) -> Iterator[Census]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            site.requests.append((self.path, wanted))
            body = site.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            start = 0
            if wanted and site.ranges and self.headers.get("If-Range") == site.tag:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start > len(body):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}"
                )
            if site.length:
                self.send_header("Content-Length", str(len(body) - start))
            if site.tag:
                self.send_header("ETag", site.tag)
            self.end_headers()
            end = start + site.cut.pop(0) if site.cut else len(body)
            self.wfile.write(body[start:end])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        site.address = f"http://127.0.0.1:{server.server_port}/pums"
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


def path_of(state, year=2018):
    return f"/pums/{year}/1-Year/{archive_name(state)}"


@pytest.fixture
def census(tmp_path, monkeypatch):
    site = Census()
    for state in STATES:
        path = archive(tmp_path / "drawn", 2018, state, PEOPLE[state])
        site.files[path_of(state)] = path.read_bytes()
    with serve(site):
        monkeypatch.setattr(_acs_files, "ADDRESS", site.address)
        monkeypatch.setattr(_fetch, "STEP", 100)
        yield site


def load(cache, states=STATES, **keywords):
    return acs(states=states, cache_dir=cache, test_fraction=0.0, **keywords)


def cached(cache, year=2018):
    folder = cache / "acs" / str(year) / "1-Year"
    names = (path.name for path in folder.iterdir())
    return sorted(name for name in names if not name.endswith(".lock"))


def record(cache):
    return json.loads((cache / "acs/2018/1-Year/hashes.json").read_text())


def test_downloaded_once_then_from_the_cache(tmp_path, census):
    cache = tmp_path / "cache"
    seen = []
    first = load(cache, progress=lambda *now: seen.append(now))
    assert (
        first.fingerprint
        == acs(source=tmp_path / "drawn", test_fraction=0.0).fingerprint
    )
    assert load(cache).fingerprint == first.fingerprint
    assert len(census.requests) == 2
    assert cached(cache) == ["csv_pny.zip", "csv_pwy.zip", "hashes.json"]
    size = len(census.files[path_of("NY")])
    assert seen[0][0] == "csv_pny.zip"
    assert ("csv_pny.zip", size, size) in seen
    known = record(cache)["csv_pny.zip"]
    assert (known["bytes"], known["rows"], len(known["sha256"])) == (size, 80, 64)


def test_another_year_has_its_own_place(tmp_path, census):
    path = archive(tmp_path / "older", 2014, "WY", PEOPLE["WY"])
    census.files[path_of("WY", 2014)] = path.read_bytes()
    older = load(tmp_path / "cache", ["WY"], year=2014)
    assert older.fingerprint == load(tmp_path / "cache", ["WY"]).fingerprint
    assert "csv_pwy.zip" in cached(tmp_path / "cache", 2014)


def test_a_download_that_breaks_off_is_taken_up(tmp_path, census):
    census.cut = [1000]
    federation = load(tmp_path, ["WY"])
    assert census.requests == [(path_of("WY"), None), (path_of("WY"), "bytes=1000-")]
    assert federation.rows() == 80
    assert cached(tmp_path) == ["csv_pwy.zip", "hashes.json"]


def test_a_download_is_taken_up_in_a_later_call(tmp_path, census):
    census.cut = [1000, 500]
    with raises(DataError, "download-failed"):
        load(tmp_path, ["WY"])
    assert cached(tmp_path) == ["csv_pwy.zip.part", "csv_pwy.zip.stamp"]
    assert load(tmp_path, ["WY"]).rows() == 80
    assert [wanted for _, wanted in census.requests] == [
        None,
        "bytes=1000-",
        "bytes=1500-",
    ]
    assert cached(tmp_path) == ["csv_pwy.zip", "hashes.json"]


@pytest.mark.parametrize("flaw", ["changed", "no ranges", "no stamp"])
def test_a_part_that_no_longer_fits_is_fetched_anew(tmp_path, census, flaw):
    census.tag = "" if flaw == "no stamp" else '"first"'
    census.cut = [1000, 500]
    with raises(DataError, "download-failed"):
        load(tmp_path, ["WY"])
    census.ranges = flaw != "no ranges"
    census.tag = '"second"' if flaw == "changed" else census.tag
    assert load(tmp_path, ["WY"]).rows() == 80


def test_cut_off_without_an_announced_length(tmp_path, census):
    """Nothing says that bytes are missing but the archive itself."""
    census.length = False
    census.cut = [3000]
    assert load(tmp_path, ["WY"]).rows() == 80
    assert cached(tmp_path) == ["csv_pwy.zip", "hashes.json"]


def test_a_damaged_archive_is_never_kept_or_recorded(tmp_path, census):
    body = bytearray(census.files[path_of("WY")])
    body[2000] ^= 0xFF
    census.files[path_of("WY")] = bytes(body)
    with raises(DataError, "download-failed"):
        load(tmp_path, ["WY"])
    assert cached(tmp_path) == []
    assert len(census.requests) == 2


def test_an_archive_that_leads_outside_is_never_kept(tmp_path, census):
    path = zip_file(
        tmp_path / "evil.zip", {member_name(2018, "WY"): b"a\n", "../evil": b"x"}
    )
    census.files[path_of("WY")] = path.read_bytes()
    with raises(DataError, "download-failed"):
        load(tmp_path / "cache", ["WY"])
    assert cached(tmp_path / "cache") == []


def test_more_bytes_than_allowed_are_not_kept(tmp_path, census, monkeypatch):
    monkeypatch.setattr(_acs_files, "MAX_BYTES", 100)
    with raises(DataError, "download-failed", "100"):
        load(tmp_path, ["WY"])
    assert cached(tmp_path) == []


def test_a_damaged_cache_is_replaced(tmp_path, census):
    whole = load(tmp_path, ["WY"])
    path = tmp_path / "acs/2018/1-Year/csv_pwy.zip"
    path.write_bytes(path.read_bytes()[:-10])
    assert load(tmp_path, ["WY"]).fingerprint == whole.fingerprint
    assert len(census.requests) == 2


def test_a_file_that_was_replaced_is_refused_until_it_is_accepted(tmp_path, census):
    load(tmp_path, ["WY"])
    (tmp_path / "acs/2018/1-Year/csv_pwy.zip").unlink()
    other = archive(tmp_path / "other", 2018, "WY", persons("WY", 81, seed=1))
    census.files[path_of("WY")] = other.read_bytes()
    with raises(DataError, "download-failed") as caught:
        load(tmp_path, ["WY"])
    assert "entry is removed from 'hashes.json'" in str(caught.value)
    (tmp_path / "acs/2018/1-Year/hashes.json").write_text("{}")
    assert load(tmp_path, ["WY"]).rows() == 81


def test_recorded_row_counts_are_compared(tmp_path, census):
    load(tmp_path, ["WY"])
    place = tmp_path / "acs/2018/1-Year/hashes.json"
    changed = record(tmp_path)
    changed["csv_pwy.zip"]["rows"] = 79
    place.write_text(json.dumps(changed))
    with raises(DataError, "wrong-count", "80", "79"):
        load(tmp_path, ["WY"])
    place.write_text("[")
    with raises(DataError, "cannot-read"):
        load(tmp_path, ["WY"])
    place.write_text("[]")
    with raises(DataError, "bad-record-file"):
        load(tmp_path, ["WY"])


def test_published_row_counts_are_compared(tmp_path, census, monkeypatch):
    path = archive(tmp_path / "drawn", 2018, "CA", persons("CA", 30))
    census.files[path_of("CA")] = path.read_bytes()
    with raises(DataError, "wrong-count", "2018", "30", "378,817"):
        load(tmp_path / "cache", ["CA"])
    module = import_module("pffl.datasets.acs")
    monkeypatch.setattr(module, "FIFTY_STATES", ("NY", "WY"))
    with raises(DataError, "wrong-count", "160", "3,207,990"):
        load(tmp_path / "cache", None)
    monkeypatch.setattr(module, "KNOWN_TOTALS", {2018: 160})
    assert load(tmp_path / "cache", None).rows() == 160


def test_not_found_is_not_tried_again(tmp_path, census):
    with raises(DataError, "download-failed", "404"):
        load(tmp_path, ["AL"])
    assert len(census.requests) == 1


def test_offline_says_what_to_put_where(tmp_path, monkeypatch):
    monkeypatch.setattr(_acs_files, "ADDRESS", "http://127.0.0.1:9/pums")
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    message = str(caught.value)
    folder = tmp_path / "acs/2018/1-Year"
    assert f"put 'csv_pny.zip', 'csv_pwy.zip' of 2018 into '{folder}'" in message
    for state in STATES:
        archive(folder, 2018, state, PEOPLE[state])
    assert load(tmp_path).rows() == 160
    assert set(record(tmp_path)) == {"csv_pny.zip", "csv_pwy.zip"}


def test_several_processes_download_once(tmp_path, census):
    results = []
    work = [
        threading.Thread(target=lambda: results.append(load(tmp_path).fingerprint))
        for _ in range(4)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert len(set(results)) == 1
    assert len(results) == 4
    assert len(census.requests) == 2


def test_a_lock_held_too_long_and_a_folder_in_the_way(tmp_path, census, monkeypatch):
    monkeypatch.setattr(_fetch, "LOCK_SECONDS", 0.1)
    folder = tmp_path / "acs/2018/1-Year"
    folder.mkdir(parents=True)
    with (
        FileLock(folder / "csv_pwy.zip.lock"),
        raises(DataError, "lock-held"),
    ):
        load(tmp_path, ["WY"])
    (tmp_path / "taken").write_text("a file")
    with raises(DataError, "cannot-write"):
        load(tmp_path / "taken", ["WY"])
