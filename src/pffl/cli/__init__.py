"""The command line. Heavy modules are imported inside the commands that need them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run `pffl`; a user's mistake ends in one message and an exit code."""
    arguments = [_as_typed(a) for a in (sys.argv[1:] if argv is None else argv)]
    if arguments == ["--version"]:  # asked by scripts, and often
        print(version())
        sys.exit(0)
    from pffl.cli import console
    from pffl.cli.app import app
    from pffl.errors import PFFLError

    debug = "--debug" in arguments  # wherever it stands
    console.tolerate_any_encoding()
    try:
        with console.warnings_as_notes():
            app([a for a in arguments if a != "--debug"], prog_name="pffl")
    except PFFLError as error:
        console.error("\n".join([str(error), *_where(error)]), trace=debug)
        raise SystemExit(error.exit_code) from error
    except Exception as error:
        console.error(
            f"{type(error).__name__}: {error}\nThis is a mistake of pffl, not yours. "
            "Please report it, with the output of the same command and --debug.",
            trace=debug,
        )
        raise SystemExit(1) from error
    sys.exit(0)


def version() -> str:
    """Return the name and the version of this package."""
    from importlib.metadata import version

    return f"pffl {version('pffl')}"


def _where(error: BaseException) -> list[str]:
    """Say at which query a federation failed: its driver has noted that."""
    from pffl.errors import FederationError

    return getattr(error, "__notes__", []) if isinstance(error, FederationError) else []


def _as_typed(argument: str) -> str:
    """Undo what a locale without Unicode does to an argument."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return os.fsencode(argument).decode(errors="replace")
    return argument
