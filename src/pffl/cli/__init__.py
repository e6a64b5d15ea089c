"""The command line. Heavy modules are imported inside the commands that need them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NoReturn

PLAIN = "yes"  # what `--certify` says where no confidence follows
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run `pffl`; a user's mistake ends in one message and an exit code."""
    arguments = [_as_typed(a) for a in (sys.argv[1:] if argv is None else argv)]
    if arguments == ["--version"]:  # asked by scripts, and often
        print(version())
        sys.exit(0)
    import typer

    from pffl.cli import console
    from pffl.cli.app import app
    from pffl.cli.options import COMMANDS_GONE, now_called
    from pffl.errors import PFFLError

    if " ".join(arguments[:2]) in COMMANDS_GONE:
        console.error(f"Now: {now_called(arguments)}")
        sys.exit(2)
    debug = "--debug" in arguments  # wherever it stands
    arguments = _whole([a for a in arguments if a != "--debug"])
    console.tolerate_any_encoding()
    wrong: Any = typer.BadParameter.__base__  # whatever is wrong with what was typed
    try:
        with console.warnings_as_notes():
            code = app(arguments, prog_name="pffl", standalone_mode=False)
    except wrong as error:
        _show_usage(error, arguments)
        raise SystemExit(2) from error
    except typer.Abort as error:
        raise SystemExit(INTERRUPTED) from error
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
    sys.exit(code if isinstance(code, int) else 0)


def version() -> str:
    """Return the name and the version of this package."""
    from importlib.metadata import version

    return f"pffl {version('pffl')}"


def _show_usage(error: Any, arguments: Sequence[str]) -> None:
    """Say what is wrong with a command line, and what an old name is called now."""
    from pffl.cli import console
    from pffl.cli.options import now_called, now_typed

    message, now = error.format_message(), now_called(arguments)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
        return
    if option := getattr(error, "option_name", None):
        now = now_typed(option)
    help = f"{error.ctx.command_path} --help" if error.ctx else "pffl --help"
    known = f"{message.partition('. ')[0].rstrip('.')}. Now: {now}"
    console.error(known if now else f"{message}\n{help}")


def _whole(arguments: Sequence[str]) -> list[str]:
    """Say `--certify` in whole, which may stand without its confidence.

    >>> _whole(["run", "--certify", "adult"]), _whole(["--certify", "0.9"])
    (['run', '--certify=yes', 'adult'], ['--certify', '0.9'])
    """
    found = []
    for argument, following in pairwise([*arguments, ""]):
        alone = argument == "--certify" and not _is_number(following)
        found.append(f"{argument}={PLAIN}" if alone else argument)
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
