from __future__ import annotations

from types import SimpleNamespace

import pytest

import pffl
from pffl import progress


def test_lines_tell_how_long_it_will_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 6.0, 60.0])
    fake = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr(progress, "time", fake)
    with progress.counted("run") as report:
        report("bgl", 4, 10)  # four were there already
        report("bgl", 5, 10)  # too soon for another line
        report("\x1bgl", 6, 10)
        report("bgl", 10, 10)
    assert capsys.readouterr().err.splitlines() == [
        "run 4 of 10: bgl",
        r"run 6 of 10: \x1bgl, 12 s left",
        "run 10 of 10: bgl",
    ]


def test_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    with progress.counted("run") as report:
        report("[bold]bgl", 3, 10)
        report("cbgl", 4, 10)
    seen = capsys.readouterr().err
    assert "run 4 of 10: cbgl" in seen


def test_rounds_name_the_worst_cell(capsys: pytest.CaptureFixture[str]) -> None:
    federation = pffl.datasets.synthetic(600, silos=2, seed=0)
    method = pffl.PFFL(dual_rounds=3, rounds_per_dual=2)
    bound = pffl.BoundedGroupLoss(0.6)
    shown = progress.Rounds()
    pffl.solve(federation, bound, method=method, seed=0, callbacks=[shown])
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("round ")
    assert "of 6: risk 0." in first
    assert "to its bound)" in first
