"""The Census's archives from a server on the loopback interface."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
from filelock import FileLock

from pffl.datasets import acs
from pffl.errors import DataError
from tests.datasets.acs_files import archive, persons
from tests.datasets.archives import zip_file
from tests.datasets.server import serve
from tests.inside import acs_files as _acs_files
from tests.inside import archive_name, member_name
from tests.inside import datasets_fetch as _fetch
from tests.raising import raises

STATES = ("NY", "WY")
PEOPLE = {state: persons(state, 80) for state in STATES}
FOLDER = "acs/2018/1-Year"


def path_of(state):
    return f"/2018/1-Year/{archive_name(state)}"


def body(folder, state, people):
    return archive(folder, 2018, state, people).read_bytes()


@pytest.fixture
def census(tmp_path, monkeypatch):
    drawn = {path_of(s): body(tmp_path / "drawn", s, PEOPLE[s]) for s in STATES}
    with serve(drawn) as web:
        monkeypatch.setattr(_acs_files, "ADDRESS", web.address)
        monkeypatch.setattr(_fetch, "STEP", 100)
        yield web


def load(cache, states=STATES, **keywords):
    return acs(states=states, cache_dir=cache, test_fraction=0.0, **keywords)


def cached(cache):
    names = (path.name for path in (cache / FOLDER).iterdir())
    return sorted(name for name in names if not name.endswith(".lock"))


def record(cache):
    return json.loads((cache / FOLDER / "hashes.json").read_text())


def test_downloaded_once_then_from_the_cache(tmp_path, census):
    cache, seen = tmp_path / "cache", []
    first = load(cache, progress=lambda *now: seen.append(now))
    drawn = acs(source=tmp_path / "drawn", test_fraction=0.0)
    assert first.fingerprint == drawn.fingerprint == load(cache).fingerprint
    assert len(census.requests) == 2
    assert cached(cache) == ["csv_pny.zip", "csv_pwy.zip", "hashes.json"]
    size = len(census.files[path_of("NY")])
    assert seen[0][0] == "csv_pny.zip"
    assert ("csv_pny.zip", size, size) in seen
    known = record(cache)["csv_pny.zip"]
    assert (known["bytes"], known["rows"], len(known["sha256"])) == (size, 80, 64)
    path = cache / FOLDER / "csv_pwy.zip"
    path.write_bytes(path.read_bytes()[:-10])  # a damaged cache is replaced
    assert load(cache).fingerprint == first.fingerprint
    assert len(census.requests) == 3


@pytest.mark.parametrize("flaw", ["none", "changed", "no ranges", "no stamp"])
def test_a_download_is_taken_up_or_fetched_anew(tmp_path, census, flaw):
    census.tag = "" if flaw == "no stamp" else '"first"'
    census.cut = [1000, 500]
    with raises(DataError, "download-failed"):
        load(tmp_path, ["WY"])
    census.ranges = flaw != "no ranges"
    census.tag = '"second"' if flaw == "changed" else census.tag
    assert load(tmp_path, ["WY"]).rows() == 80
    assert cached(tmp_path) == ["csv_pwy.zip", "hashes.json"]
    if flaw == "none":
        asked = [wanted for _, wanted in census.requests]
        assert asked == [None, "bytes=1000-", "bytes=1500-"]


def test_cut_off_without_an_announced_length(tmp_path, census):
    """Nothing says that bytes are missing but the archive itself."""
    census.length = False
    census.cut = [3000]
    assert load(tmp_path, ["WY"]).rows() == 80
    assert cached(tmp_path) == ["csv_pwy.zip", "hashes.json"]


def test_a_damaged_or_large_archive_is_never_kept(tmp_path, census, monkeypatch):
    data = bytearray(census.files[path_of("WY")])
    data[2000] ^= 0xFF
    census.files[path_of("WY")] = bytes(data)
    with raises(DataError, "download-failed"):
        load(tmp_path, ["WY"])
    assert cached(tmp_path) == []
    assert len(census.requests) == 2
    outside = {member_name(2018, "WY"): b"a\n", "../evil": b"x"}
    evil = zip_file(tmp_path / "evil.zip", outside)
    census.files[path_of("WY")] = evil.read_bytes()
    with raises(DataError, "download-failed"):
        load(tmp_path, ["WY"])
    assert cached(tmp_path) == []
    monkeypatch.setattr(_acs_files, "MAX_BYTES", 100)
    with raises(DataError, "download-failed", "100"):
        load(tmp_path, ["NY"])
    assert cached(tmp_path) == []


def test_a_file_that_was_replaced_is_refused_until_it_is_accepted(tmp_path, census):
    load(tmp_path, ["WY"])
    (tmp_path / FOLDER / "csv_pwy.zip").unlink()
    other = body(tmp_path / "other", "WY", persons("WY", 81, seed=1))
    census.files[path_of("WY")] = other
    with raises(DataError, "download-failed", "hashes.json"):
        load(tmp_path, ["WY"])
    (tmp_path / FOLDER / "hashes.json").write_text("{}")
    assert load(tmp_path, ["WY"]).rows() == 81


def test_recorded_row_counts_are_compared(tmp_path, census):
    load(tmp_path, ["WY"])
    place, changed = tmp_path / FOLDER / "hashes.json", record(tmp_path)
    changed["csv_pwy.zip"]["rows"] = 79
    place.write_text(json.dumps(changed))
    with raises(DataError, "wrong-count", "80", "79"):
        load(tmp_path, ["WY"])
    for text, code in (("[", "cannot-read"), ("[]", "bad-record-file")):
        place.write_text(text)
        with raises(DataError, code):
            load(tmp_path, ["WY"])


def test_published_row_counts_are_compared(tmp_path, census, monkeypatch):
    census.files[path_of("CA")] = body(tmp_path / "drawn", "CA", persons("CA", 30))
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
    folder = tmp_path / FOLDER
    with raises(DataError, "download-failed", "csv_pny.zip", "csv_pwy.zip", folder):
        load(tmp_path)
    for state in STATES:
        archive(folder, 2018, state, PEOPLE[state])
    assert load(tmp_path).rows() == 160
    assert set(record(tmp_path)) == {"csv_pny.zip", "csv_pwy.zip"}


def test_a_lock_held_too_long_and_a_folder_in_the_way(tmp_path, census, monkeypatch):
    monkeypatch.setattr(_fetch, "LOCK_SECONDS", 0.1)
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    with FileLock(folder / "csv_pwy.zip.lock"), raises(DataError, "lock-held"):
        load(tmp_path, ["WY"])
    (tmp_path / "taken").write_text("a file")
    with raises(DataError, "cannot-write"):
        load(tmp_path / "taken", ["WY"])
