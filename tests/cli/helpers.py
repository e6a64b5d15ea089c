"""The command line in tests: in this process, or as one of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from pffl.cli import main
from pffl.errors import PFFLError

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


def program(*arguments):
    """Return the command as a process of its own."""
    return [sys.executable, "-m", "pffl", *map(str, arguments)]


def pffl(capsys, *arguments):
    """Run the command in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ending:
        main([*map(str, arguments)])
    seen = capsys.readouterr()
    code, cause = ending.value.code, ending.value.__cause__
    error = cause.code if isinstance(cause, PFFLError) else None
    return Outcome(code if isinstance(code, int) else 0, seen.out, seen.err, error)


def one_line(text):
    """Text without the line breaks that a terminal's width brings."""
    return " ".join(text.split())
