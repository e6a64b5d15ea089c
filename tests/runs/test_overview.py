"""`pffl watch`: what a record tells of a run, at every point of it."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.cli.helpers import pffl
from tests.inside import Overview

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BEGUN = {"event": "begun", "run": "ab", "data": "people", "sites": ["north", "south"]}
ROUND = {
    "event": "round",
    "round": 3,
    "planned": 10,
    "silos": 2,
    "answered": 2,
    "worst": "f",
    "loss": 0.63,
    "violation": 0.01,
    "gap": 1e-3,
    "left": 45.0,
}
ENDED = {"event": "ended", "code": 4, "status": "impossible", "message": "not met"}


def asking(what: str, *, training: bool = False) -> dict[str, Any]:
    return {"event": "asking", "what": what, "training": training}


def exchange(answered: list[str], refused: list[list[str]] | None = None) -> Any:
    asked = BEGUN["sites"]
    return {"asked": asked, "answered": answered, "refused": refused or []}


def at(entry: dict[str, Any], seconds: float) -> dict[str, Any]:
    return {"time": (START + timedelta(seconds=seconds)).isoformat(), **entry}


def told(entries: list[dict[str, Any]], now: float) -> str:
    overview = Overview()
    for entry in entries:
        overview.take(entry)
    return "\n".join(overview.lines(START + timedelta(seconds=now)))


def test_from_the_first_entry_to_the_last():
    entries = [at(BEGUN, 0)]
    assert "9 s ago" in told(entries, 9)
    entries += [at(asking("counting rows"), 10), at(exchange(["north", "south"]), 11)]
    entries += [at(asking("the next round", training=True), 12)]
    text = told(entries, 20)
    assert "now: the next round, asked 8 s ago" in text
    assert "north: 1 answer, the last 9 s ago" in text
    refused = exchange(["south"], [["north", "the site is paused since noon"]])
    entries += [at(refused, 30), at(ROUND, 31)]
    text = told(entries, 41)
    assert "north: 1 answer, the last 30 s ago; the site is paused since noon" in text
    assert "south: 2 answers, the last 11 s ago" in text
    assert "35 s left" in text  # ten seconds later than the 45
    ended = [*entries, at(ENDED, 70)]
    assert "ended: not met" in told(ended, 4000)
    assert "s left" not in told(ended, 4000)
    assert "ended" not in told([*ended, at(BEGUN, 80)], 81)  # it starts again


def test_a_sites_text_cannot_steer_the_terminal():
    entries = [at(BEGUN, 0), at(exchange([], [["north", "\x1b[2J" + "x" * 999]]), 1)]
    text = told(entries, 2)
    assert "\x1b" not in text
    assert len(text) < 600


def record(folder: Path, entries: list[dict[str, Any]], torn: str = "") -> None:
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "record.jsonl").write_text(lines + torn)


def test_watch_ends_with_the_run_and_its_code(capsys, tmp_path):
    out = tmp_path / "run"
    record(out, [at(BEGUN, 0), at(ROUND, 1)], torn='{"event": "ro')
    seen = pffl(capsys, "watch", out, "--once")
    assert seen.code == 0
    assert "round 3 of 10" in seen.out
    record(out, [at(BEGUN, 0), at(ROUND, 1), at(ENDED, 2)])
    seen = pffl(capsys, "watch", out)
    assert seen.code == 4
    assert "ended: not met" in seen.out
    seen = pffl(capsys, "watch", out, "--json")
    assert seen.code == 4
    assert seen.json["sites"]["north"]["answers"] == 0


def test_watch_says_that_the_server_is_gone(capsys, tmp_path):
    out = tmp_path / "run"
    record(out, [at(BEGUN, 0)])
    gone = os.fork()
    if not gone:
        os._exit(0)
    os.waitpid(gone, 0)
    owner = {"process": gone, "machine": platform.node(), "since": "noon"}
    (out / ".owner.json").write_text(json.dumps(owner))
    seen = pffl(capsys, "watch", out)
    assert seen.code == 5


def test_watch_names_what_is_no_run(capsys, tmp_path):
    assert pffl(capsys, "watch", tmp_path / "nothing").code == 2
    (tmp_path / "result.json").write_text("{}")
    seen = pffl(capsys, "watch", tmp_path)
    assert seen.code == 2
