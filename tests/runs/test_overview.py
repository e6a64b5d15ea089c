"""`pffl watch`: what a record tells of a run, at every point of it."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pffl.runs.overview import Overview
from tests.cli.helpers import one_line, pffl

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
ENDED = {"event": "ended", "code": 4, "status": "infeasible", "message": "not met"}


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


def test_from_the_first_entry_to_the_last() -> None:
    assert "has not begun" in told([], 0)
    entries = [at(BEGUN, 0)]
    text = told(entries, 9)
    assert "run ab of 'people', begun 9 s ago" in text
    assert "waiting until every site has answered once" in text
    assert text.count("no answer yet") == 2
    entries += [at(asking("counting rows"), 10), at(exchange(["north", "south"]), 11)]
    entries += [at(asking("the next round", training=True), 12)]
    text = told(entries, 20)
    assert "now: the next round, asked 8 s ago" in text
    assert "  north: 1 answer, the last 9 s ago" in text
    refused = exchange(["south"], [["north", "the site is paused since noon"]])
    entries += [at(refused, 30), at(ROUND, 31)]
    text = told(entries, 41)
    assert "north: 1 answer, the last 30 s ago; the site is paused since noon" in text
    assert "south: 2 answers, the last 11 s ago" in text
    assert "round 3 of 10 · 2 of 2 silos · worst f 0.6300" in text
    assert "gap 1.0e-03 · 35 s left" in text  # ten seconds later than the 45
    entries += [at(asking("held-out rows"), 50)]
    assert "now: held-out rows, asked 5 s ago" in told(entries, 55)
    entries += [at(exchange([]), 60)]
    assert told(entries, 61).count("did not answer") == 2
    text = told([*entries, at(ENDED, 70)], 4000)
    assert "ended: not met" in text
    assert "s left" not in text
    assert "now:" not in text


def test_of_many_sites_those_who_are_waited_for_are_shown() -> None:
    names = [f"site {n}" for n in range(50)]
    late = {"asked": names, "answered": names[:-1], "refused": []}
    lines = told([at({**BEGUN, "sites": names}, 0), at(late, 1)], 2).splitlines()
    assert "  site 49: no answer yet; did not answer" in lines
    assert lines[-1] == "  … and 30 more sites"
    assert len(lines) == 23


def test_a_server_that_starts_again_has_not_ended() -> None:
    entries = [at(BEGUN, 0), at(ENDED, 5), at(BEGUN, 20)]
    assert "ended" not in told(entries, 21)


def test_a_sites_text_cannot_steer_the_terminal() -> None:
    entries = [at(BEGUN, 0), at(exchange([], [["north", "\x1b[2J" + "x" * 999]]), 1)]
    text = told(entries, 2)
    assert "\x1b" not in text
    assert len(text) < 600


def record(folder: Path, entries: list[dict[str, Any]], torn: str = "") -> None:
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "record.jsonl").write_text(lines + torn)


def test_watch_ends_with_the_run_and_its_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
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


def test_watch_says_that_the_server_is_gone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
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
    assert "is gone without a word" in one_line(seen.err)
    assert "pffl run --resume" in one_line(seen.err)


def test_watch_follows_line_by_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    entries = [at(BEGUN, 0)]
    record(out, entries)
    coming = [
        asking("the next round", training=True),
        ROUND,
        asking("held-out rows"),
        exchange(["north"], [["south", "paused"]]),
        ENDED,
    ]

    def one_more(seconds: float) -> None:
        entries.append(at(coming.pop(0), 1))
        record(out, entries)

    monkeypatch.setattr("time.sleep", one_more)
    seen = pffl(capsys, "watch", out)
    assert seen.code == 4
    assert seen.out.splitlines()[-4:] == [
        "round 3 of 10 · 2 of 2 silos · worst f 0.6300 (+0.0100 to its bound) · "
        "gap 1.0e-03 · 45 s left",
        "asking: held-out rows",
        "south: paused",
        "ended: not met",
    ]


def test_watch_names_what_is_no_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert pffl(capsys, "watch", tmp_path / "nothing").code == 2
    (tmp_path / "result.json").write_text("{}")
    seen = pffl(capsys, "watch", tmp_path)
    assert seen.code == 2
    assert "in process" in one_line(seen.err)
