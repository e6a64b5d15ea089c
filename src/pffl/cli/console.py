"""Where text goes: results to stdout, all else to stderr, on any kind of terminal."""

from __future__ import annotations

import codecs
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from pffl.text import shorten, visible

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST = 60  # columns; on a narrower terminal lines are wrapped by the terminal
LONGEST_NOTE = 500
SPELT_OUT = {
    "≤": "<=",
    "≥": ">=",
    "×": "x",
    "→": "->",
    "−": "-",
    "–": "-",
    "…": "...",
    "·": "|",
    "‖": "||",
    "λ": "lambda",
    "ζ": "zeta",
    "β": "beta",
    "ν": "nu",
    "Σ": "sum",
    "≈": "~",
}


def stdout() -> Console:
    """Where results are shown."""
    return _console(stderr=False)


def stderr() -> Console:
    """Where progress, notes and errors are shown."""
    return _console(stderr=True)


def error(message: str, *, trace: bool = False) -> None:
    """Show an error."""
    if trace:
        traceback.print_exc()
    _labelled("error", "bold red", message)


def note(message: str) -> None:
    """Show a remark that does not stop anything."""
    _labelled("note", "yellow", shorten(message, LONGEST_NOTE))


def show(text: str) -> None:
    """Show one line of a result, however long."""
    stdout().print(visible(text), soft_wrap=True)


def print_json(plain: object) -> None:
    """Print JSON, and nothing else."""
    from pffl.files import json_text

    sys.stdout.write(json_text(plain, ascii_only=not speaks_unicode(sys.stdout)))


def clean(text: str) -> str:
    """Text of several lines that cannot steer a terminal."""
    return "\n".join(map(visible, text.split("\n")))


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Show each different warning once, as one line."""
    shown: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            shown.add(text)
            note(text)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for hidden in (DeprecationWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("ignore", hidden)
        warnings.showwarning = show
        yield


def tolerate_any_encoding() -> None:
    """Spell out what the terminal's encoding does not have, instead of failing."""
    codecs.register_error("pffl", _spell_out)
    for stream in (sys.stdout, sys.stderr):
        if not speaks_unicode(stream) and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="pffl")


def speaks_unicode(stream: TextIO) -> bool:
    """Whether a stream takes any character."""
    return (stream.encoding or "").lower().startswith("utf")


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unknown = error.object[error.start : error.end]
    return "".join(SPELT_OUT.get(c, "?") for c in unknown), error.end


def _labelled(label: str, style: str, message: str) -> None:
    from rich.text import Text

    from pffl.cli.options import in_options

    text = Text.assemble((f"{label}: ", style), clean(in_options(message)))
    stderr().print(text, soft_wrap=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    console.width = max(console.width, NARROWEST)
    return console
