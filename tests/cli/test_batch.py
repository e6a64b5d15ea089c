from __future__ import annotations

from types import SimpleNamespace

import pytest

from pffl.cli import batch


def test_lines_tell_how_long_it_will_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 0.0, 1.0, 6.0, 60.0])
    fake = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr(batch, "time", fake)
    with batch.batch_progress() as report:
        report("bgl", 4, 10)  # four were there already
        report("bgl", 5, 10)  # too soon for another line
        report("\x1bgl", 6, 10)
        report("bgl", 10, 10)
    assert capsys.readouterr().err.splitlines() == [
        "4/10 bgl",
        "6/10 �gl, 12 s left",
        "10/10 bgl",
    ]


def test_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    with batch.batch_progress() as report:
        report("bgl", 3, 10)
    assert "3/10 bgl" in capsys.readouterr().err
