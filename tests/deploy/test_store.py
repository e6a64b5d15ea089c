"""What a site remembers: append-only, chained, on disk before an answer leaves."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pffl.deploy import SiteKey
from pffl.errors import ArtefactError, PrivacyBudgetError, Refused
from tests.inside import SiteMemory
from tests.raising import raises


@pytest.fixture
def memory(tmp_path: Path) -> SiteMemory:
    found = SiteMemory(tmp_path)
    found.add("begin", {"site": "north"})
    for k in range(5):
        body = {"query": "expand", "task": {}}
        found.add("answer", body, run="r", mark=f"m{k}", queries=1, mu2=0.25)
    return found


def test_entries_are_counted(memory):
    assert (memory.queries, memory.spent) == (5, 1.25)
    assert memory.knows(mark="m3")
    assert memory.knows(run="r")
    assert not memory.knows(mark="m9")
    assert memory.path.stat().st_mode & 0o777 == 0o600


def rewritten(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as db:
        for trigger in ("no_delete", "no_update"):
            db.execute(f"DROP TRIGGER {trigger}")
        for text in statements:
            db.execute(text)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET mu2=0 WHERE id=3",
        "UPDATE entries SET time='2000' WHERE id=2",
        "UPDATE entries SET body='{}' WHERE id=6",
        "DELETE FROM entries WHERE id=4",
        "DELETE FROM entries WHERE id>3",
        "DELETE FROM entries",
        "UPDATE head SET count=3",
        "DELETE FROM head",
        "UPDATE entries SET hash='0' WHERE id=1",
    ],
)
def test_a_changed_memory_stops_the_site(memory, tmp_path, statement):
    memory.close()
    rewritten(tmp_path / "site.db", statement)
    other = SiteMemory(tmp_path)
    with raises(ArtefactError, "bad-memory"):
        other.add("answer", {})
    with raises(ArtefactError, "bad-memory"):
        _ = other.spent


def test_it_is_append_only_and_whole_or_refused(memory, tmp_path):
    for text in ("DELETE FROM entries", "UPDATE entries SET mu2=0"):
        with pytest.raises(sqlite3.DatabaseError, match="append only"):
            memory._db.execute(text)
    memory.close()
    path = tmp_path / "site.db"
    path.write_bytes(path.read_bytes()[:3000] + b"garbage" * 400)
    with raises(ArtefactError, "bad-memory"):
        SiteMemory(tmp_path).entries()
    path.unlink()
    with raises(ArtefactError, "no-memory"):
        SiteMemory(tmp_path, new=False)


def test_an_older_copy_is_noticed_by_what_it_signed(memory, tmp_path):
    key = SiteKey.generate()
    memory.close()
    old = (tmp_path / "site.db").read_bytes()
    memory = SiteMemory(tmp_path)
    memory.add("answer", {}, queries=1)
    head = memory.signed_head("north", key)
    memory.check_head("north", key, head)
    memory.add("answer", {}, queries=1)
    memory.check_head("north", key, head)  # it only grew
    memory.close()
    (tmp_path / "site.db").write_bytes(old)
    restored = SiteMemory(tmp_path)
    with raises(Refused, "older-copy"):
        restored.check_head("north", key, head)
    restored.add("answer", {}, run="another")  # as long, and not the same
    with raises(Refused, "older-copy"):
        restored.check_head("north", key, head)
    # What others say of it is nothing.
    restored.check_head("north", SiteKey.generate(), head)
    restored.check_head("south", key, head)
    restored.check_head("north", key, "9:x:zz")


def test_the_budget_ends_before_the_release():
    memory = SiteMemory(None)
    memory.allow([0.01], 1.0, 1e-6)
    with raises(PrivacyBudgetError, "budget-exceeded", "allowed"):
        memory.allow([9.0], 1.0, 1e-6)
    with raises(PrivacyBudgetError, "budget-exceeded"):
        memory.allow([1e-9], 0.0, 1e-6)


def test_a_turn_is_all_or_nothing_and_one_at_a_time(memory, tmp_path):
    def broken() -> None:
        with memory.turn():
            memory.add("answer", {}, queries=1)
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert memory.queries == 5
    wait, seen = threading.Event(), []

    def other() -> None:
        second = SiteMemory(tmp_path)
        wait.set()
        second.add("answer", {}, queries=1)
        seen.append(second.queries)
        second.close()

    thread = threading.Thread(target=other)
    with memory.turn():
        thread.start()
        wait.wait(10)
        memory.add("answer", {}, queries=1)
        assert not seen
    thread.join(30)
    assert seen == [7]
    assert memory.queries == 7


def test_killed_anywhere_it_loses_nothing_that_was_promised(tmp_path):
    """`kill -9` while entries are written: each that was said to be there is."""
    code = (
        "import sys; from pathlib import Path; from pffl.deploy.store import "
        "SiteMemory\nm = SiteMemory(Path(sys.argv[1]))\n"
        "while True: m.add('answer', {}, queries=1); print(m.queries, flush=True)"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    for _ in range(2):
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            said = [int(process.stdout.readline()) for _ in range(20)]
            os.kill(process.pid, signal.SIGKILL)
            said += [int(line) for line in process.stdout if line.strip()]
        memory = SiteMemory(tmp_path)
        assert said[-1] <= memory.queries <= said[-1] + 1
        memory.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_named_and_nothing_is_lost(tmp_path):
    words = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(tmp_path)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        memory = SiteMemory(tmp_path)
        with raises(ArtefactError, "disk-full", "no space left"):
            for _ in range(1000):
                memory.add("answer", {"filler": "x" * 2000}, queries=1)
        many = memory.queries
        assert 0 < many < 100
        assert len(memory.entries()) == many
        memory.close()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
