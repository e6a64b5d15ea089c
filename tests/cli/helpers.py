"""The command line in tests: the one place that knows how commands are spelt.

Tests say commands and options as they were when the tests were written. What is called
otherwise now stands in `RENAMED`, so that a new name is one line here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from pffl.cli import main
from pffl.errors import PFFLError

#: Commands and options of the tests that have another name by now.
RENAMED: dict[str, tuple[str, ...]] = {}

SMALL = ("synthetic", "--set", "data.rows=900", "--silos", "3", "--seed", "1")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str
    error: str | None = None  # the code of the error that ended the command

    @property
    def json(self):
        plain: dict[str, Any] = json.loads(self.out)
        return plain


Command: TypeAlias = Callable[..., Outcome]


def argv(*arguments):
    """Spell a command as it is called now."""
    found: list[str] = []
    for argument in map(str, arguments):
        name, given, value = argument.partition("=")
        *first, last = RENAMED.get(name, (name,))
        found += [*first, f"{last}{given}{value}"]
    return found


def program(*arguments):
    """Return the command as a process of its own."""
    return [sys.executable, "-m", "pffl", *argv(*arguments)]


def pffl(capsys, *arguments):
    """Run the command in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ending:
        main(argv(*arguments))
    seen = capsys.readouterr()
    code, cause = ending.value.code, ending.value.__cause__
    error = cause.code if isinstance(cause, PFFLError) else None
    return Outcome(code if isinstance(code, int) else 0, seen.out, seen.err, error)


def one_line(text):
    """Text without the line breaks that a terminal's width brings."""
    return " ".join(text.split())
