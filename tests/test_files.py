import hashlib
import os
import stat
import subprocess
import sys

import numpy as np

from pffl import files
from pffl.errors import ArtefactError
from pffl.files import Journal
from tests.raising import raises


def test_files_are_on_disk_before_they_take_their_names(tmp_path, monkeypatch):
    """And their names before it goes on: then a power cut leaves whole ones."""
    done, replace = [], os.replace

    def forced(number):
        seen = os.fstat(number)
        assert seen.st_size > 0
        done.append(seen.st_ino if stat.S_ISREG(seen.st_mode) else "folder")

    def renamed(old, new):
        assert os.stat(old).st_ino in done
        done.append(new.name)
        replace(old, new)

    monkeypatch.setattr(os, "fsync", forced)
    monkeypatch.setattr(os, "replace", renamed)
    files.write_all(tmp_path, {"a": b"1", "b": lambda stream: stream.write(b"2")})
    ids = [os.stat(tmp_path / name).st_ino for name in ("a", "b")]
    assert done == [*ids, "a", "b", "folder"]
    done.clear()
    files.append(tmp_path / "log", {"c": 3})
    assert done == [os.stat(tmp_path / "log").st_ino]


def test_private_files_are_for_their_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        place = files.folder(tmp_path / "site", private=True)
        files.write(place / "a", b"1", private=True)
        files.append(place / "log", {}, private=True)
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (place, *place.iterdir())}
    assert modes == {"site": 0o700, "a": 0o600, "log": 0o600}


def test_a_private_file_is_not_written_through_a_link(tmp_path):
    (tmp_path / ".a.tmp").symlink_to(tmp_path / "elsewhere")
    files.write(tmp_path / "a", b"1", private=True)
    assert not (tmp_path / "elsewhere").exists()


def test_a_long_file_is_not_read_to_its_end(tmp_path):
    (tmp_path / "a").write_bytes(bytes(100))
    assert len(files.read(tmp_path / "a", largest=9)) == 10
    with raises(ArtefactError, "cannot-read"):
        files.read(tmp_path / "b")


def test_a_lock_that_another_process_holds(tmp_path):
    path = tmp_path / ".lock"
    code = f"""
import pathlib
from pffl import files
try:
    with files.lock(pathlib.Path({str(path)!r})):
        print("held")
except files.Locked as error:
    print(error)
"""

    def other():
        call = [sys.executable, "-c", code]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout

    with files.lock(path):
        assert "is held by another process" in other()
    assert other() == "held\n"


def test_one_hash_of_arrays():
    a = np.arange(6.0).reshape(2, 3)
    assert files.digest("x", a.T) == hashlib.sha256(b"x" + a.T.tobytes()).hexdigest()
    same = files.digest_arrays(a)
    assert files.digest_arrays(np.asfortranarray(a)) == same
    others = (a.reshape(3, 2), a.astype(np.int64), a.T, a + 1e-16 * (a == 0))
    assert same not in {files.digest_arrays(other) for other in others}
    assert files.digest_arrays(np.zeros(0)) != files.digest_arrays(np.zeros((0, 1)))
    assert files.digest_arrays(np.array(1.0)) != files.digest_arrays(np.array([1.0]))


def test_torn_last_line_is_dropped_and_the_next_line_starts_afresh(tmp_path):
    path = tmp_path / "rows.jsonl"
    journal = Journal(path)
    journal.put("x", {"value": 1})
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole + whole[:cut].replace(b"\n", b""))
        torn = Journal(path)
        assert list(torn) == [{"value": 1}]
        torn.put("z", {"value": 3})
        assert list(Journal(path)) == [{"value": 1}, {"value": 3}]


def test_damage_elsewhere_is_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"key": "a", "value": 1}\nnot json\n{"key": "b"}\n')
    with raises(ArtefactError, "bad-line", "2"):
        Journal(path)
    path.write_text('{"value": 1}\n')
    with raises(ArtefactError, "bad-line", "1"):
        Journal(path)
