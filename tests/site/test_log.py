"""What an administrator sees: a line for every message, pauses, sums by run."""

from __future__ import annotations

from pathlib import Path

import pytest

from pffl.errors import ArtefactError
from pffl.site import Rules
from pffl.wire import read_answer
from tests.inside import Log, log, pause, paused, resume
from tests.inside import site_pause_FILE as FILE
from tests.raising import raises
from tests.site.sites import OPEN, census, message, refusals_of, send, small_site

LIMITED = Rules(floor=1, queries=7, runs=3)


def test_every_answer_and_refusal_has_a_line(tmp_path: Path) -> None:
    site = small_site(LIMITED, tmp_path)
    sent = [site.answer(message(site, census(site), (0, n))) for n in (1, 2, 2)]
    sent.append(site.answer(b"nonsense"))
    entries = Log(tmp_path).read()
    assert [entry.size for entry in entries] == [len(content) for content in sent]
    refused = [read_answer(content).refusal for content in sent]
    assert [entry.refused for entry in entries] == refused
    assert [entry.number for entry in entries] == [(0, 1), (0, 2), (0, 2), None]
    assert entries[0].left == {"queries": 7, "runs": 2}


def test_what_cannot_be_logged_does_not_leave(tmp_path: Path) -> None:
    site = small_site(OPEN, tmp_path)
    (tmp_path / log.FILE).mkdir()
    assert send(site, census(site)).refusal == "ArtefactError at the site"


def test_a_line_cut_short_by_a_crash_is_none_and_damage_is_refused(
    tmp_path: Path,
) -> None:
    site = small_site(OPEN, tmp_path)
    send(site, census(site))
    path = tmp_path / log.FILE
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert len(Log(tmp_path).read()) == 1
    path.write_bytes(whole[:20] + b"\n" + whole)
    with raises(ArtefactError, "not-json", "1"):
        Log(tmp_path).read()


def test_a_long_log_is_put_aside_and_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LARGEST", 100)
    site = small_site(OPEN, tmp_path)
    for number in range(1, 4):
        send(site, census(site), (0, number))
    assert (tmp_path / f"{log.FILE}.1").exists()
    assert [entry.number for entry in Log(tmp_path).read()] == [(0, 2), (0, 3)]


def test_a_paused_site_answers_nobody_and_loses_no_number(tmp_path: Path) -> None:
    site = small_site(OPEN, tmp_path)
    begun = pause(tmp_path, "backup")
    assert pause(tmp_path, "another reason") == begun
    refusal = send(site, census(site)).refusal
    assert refusal == str(begun)
    assert refusal.endswith(": backup")
    assert not read_answer(site.preview(message(site, census(site)))).refusal
    assert [entry.refused for entry in refusals_of(tmp_path)] == [refusal]
    resume(tmp_path)
    resume(tmp_path)
    assert paused(tmp_path) is None
    assert not send(site, census(site)).refusal


def test_a_damaged_pause_is_a_pause(tmp_path: Path) -> None:
    site = small_site(OPEN, tmp_path)
    (tmp_path / FILE).write_text("{")
    assert send(site, census(site)).refusal
