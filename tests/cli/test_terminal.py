from __future__ import annotations

import io
import sys
import warnings

import pytest

import pffl
from tests.inside import terminal


def test_characters_that_a_terminal_lacks_are_escaped(monkeypatch):
    bytes_written = io.BytesIO()
    stream = io.TextIOWrapper(bytes_written, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    terminal.tolerate_any_encoding()
    print("loss ≤ 0.6")
    stream.flush()
    assert bytes_written.getvalue() == b"loss \\u2264 0.6\n"


def test_control_characters_do_not_reach_the_terminal():
    assert "\x1b" not in terminal.clean("\x1b[2Jgone\r")
    assert terminal.clean("\u202egnp.exe") == "\\u202egnp.exe"


def test_each_warning_is_one_note(capsys):
    with terminal.warnings_as_notes():
        for _ in range(3):
            warnings.warn("first line\nsecond line", stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert capsys.readouterr().err == "note: first line second line\n"


def test_markup_in_a_message_is_text(capsys):
    terminal.error("[bold]not bold[/bold] [method] :smile:")
    assert "[bold]not bold[/bold] [method] :smile:" in capsys.readouterr().err


@pytest.mark.parametrize("constraint", [None, pffl.MinMax()])
def test_a_screen_without_bounds_and_with_few_test_rows(constraint, capsys):
    people = pffl.datasets.synthetic(40, silos=2, groups=["f", "m"], random_state=0)
    solution = pffl.solve(people, constraint, random_state=0)
    terminal.print_screen(terminal.stdout(), solution.conclusions)
    assert "fewer than 10 rows of every group" in capsys.readouterr().out
