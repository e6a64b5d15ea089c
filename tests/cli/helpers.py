"""Run the command line inside the test's process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from pffl.cli import main

SMALL = ("synthetic", "--set", "data.rows=900", "--silos", "3", "--seed", "1")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(self.out)
        return plain


Command: TypeAlias = Callable[..., Outcome]


def pffl(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Outcome:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ending:
        main([str(argument) for argument in arguments])
    seen = capsys.readouterr()
    code = ending.value.code
    return Outcome(code if isinstance(code, int) else 0, seen.out, seen.err)


def one_line(text: str) -> str:
    """Text without the line breaks that a terminal's width brings."""
    return " ".join(text.split())
