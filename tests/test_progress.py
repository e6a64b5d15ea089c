from __future__ import annotations

from types import SimpleNamespace

import pytest

import pffl
from pffl import progress
from pffl.callbacks import Callback


def test_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 6.0, 60.0])
    fake = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr(progress, "time", fake)
    with progress.Progress("run") as report:
        report("bgl", 4, 10)  # four were there already
        report("bgl", 5, 10)  # too soon for another line
        report("\x1bgl", 6, 10)
        report("bgl", 10, 10)
    assert capsys.readouterr().err.splitlines() == [
        "run 4 of 10: bgl",
        r"run 6 of 10: \x1bgl",
        "run 10 of 10: bgl",
    ]


@pytest.fixture
def people() -> pffl.Federation:
    return pffl.datasets.synthetic(600, silos=2, random_state=0)


def test_what_is_measured_after_training_is_shown(
    people: pffl.Federation,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "150")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("rich.progress.Progress.refresh", lambda self: None)
    told = []
    monkeypatch.setattr(
        "rich.progress.Progress.update",
        lambda self, task, **given: told.append(given["description"]),
    )
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    shown = progress.Rounds()
    pffl.solve(people, pffl.BoundedGroupLoss(0.6), random_state=0, callbacks=[shown])
    rounds = [text.startswith("round ") for text in told]
    last = len(rounds) - rounds[::-1].index(True)
    assert told[0] == "message 1: counting rows"
    assert told[-1].endswith("evaluating the model")
    assert all(text.startswith("message ") for text in told[last:])
    assert not capsys.readouterr().out


def test_a_bar_ends_with_the_run_that_fails(people: pffl.Federation) -> None:
    class Failing(Callback):
        def asking(self, parts: object) -> None:
            if shown.queries == 2:
                raise ZeroDivisionError

    shown = progress.Rounds()
    with pytest.raises(ZeroDivisionError):
        pffl.solve(people, None, random_state=0, callbacks=[shown, Failing()])
    assert shown.queries == 2
    assert shown.shown is None
