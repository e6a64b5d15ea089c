"""The command line. Heavy modules are imported inside the commands that need them."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import typer

INTERRUPTED = 130
ABOUT = "Federated learning that keeps the loss of every group under a bound."


@cache
def app() -> typer.Typer:
    """Return the commands, in the order in which the help lists them."""
    import typer

    from pffl.cli import deploy, experiments, models, run

    more: dict[str, Any] = {"no_args_is_help": True, "pretty_exceptions_enable": False}
    more["context_settings"] = {"help_option_names": ["-h", "--help"]}
    whole = typer.Typer(name="pffl", help=ABOUT, add_completion=False, **more)
    site = typer.Typer(help="A site of a deployed federation.", **more)
    commands = {
        whole: (
            *(run.run, run.feasible, models.predict, models.audit, models.verify),
            *(models.monitor, experiments.compare, experiments.reproduce),
            *(experiments.report, run.data, deploy.deploy),
        ),
        site: (deploy.init, deploy.join, deploy.serve, deploy.show),
    }
    for group, own in commands.items():
        for command in own:
            told = inspect.cleandoc(command.__doc__ or "")  # a paragraph is a line
            group.command(help=re.sub(r"(?<!\n)\n(?!\n)", " ", told))(command)
    whole.add_typer(site, name="site")

    @whole.callback()
    def pffl(
        version: bool = typer.Option(False, "--version", help="Show the version."),
        debug: bool = typer.Option(
            False, "--debug", help="Show where an error came from."
        ),
    ) -> None:  # `main` sees to both
        pass

    pffl.__doc__ = ABOUT
    return whole


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run `pffl`; a user's mistake ends in one message and an exit code."""
    if argv is None:  # a locale without Unicode does not change what was typed
        argv = [os.fsencode(a).decode(errors="replace") for a in sys.argv[1:]]
    arguments = list(argv)
    if arguments[:1] == ["--version"]:
        from pffl import __version__

        print(f"pffl {__version__}")
        sys.exit(0)
    import typer

    from pffl.cli import terminal
    from pffl.cli.options import now_called
    from pffl.errors import FederationError, PFFLError

    if now := now_called(arguments):
        terminal.error(f"Now: {now}")
        sys.exit(2)
    debug = "--debug" in arguments  # wherever it stands
    arguments = _whole([a for a in arguments if a != "--debug"])
    terminal.tolerate_any_encoding()
    wrong: Any = typer.BadParameter.__base__  # whatever is wrong with what was typed
    try:
        with terminal.warnings_as_notes():
            code = app()(arguments, prog_name="pffl", standalone_mode=False)
    except wrong as error:
        _show_usage(error)
        raise SystemExit(2) from error
    except typer.Abort as error:
        raise SystemExit(INTERRUPTED) from error
    except PFFLError as error:
        # The driver has noted at which query a federation failed.
        known = isinstance(error, FederationError) and getattr(error, "__notes__", [])
        terminal.error("\n".join([str(error), *(known or [])]), trace=debug)
        raise SystemExit(error.exit_code) from error
    except Exception as error:
        terminal.error(
            f"{type(error).__name__}: {error}\nThis is a mistake of pffl, not yours. "
            "Please report it, with the output of the same command and --debug.",
            trace=debug,
        )
        raise SystemExit(1) from error
    sys.exit(code if isinstance(code, int) else 0)


def _show_usage(error: Any) -> None:
    """Say what is wrong with a command line, and what an old option is called now."""
    from pffl.cli import terminal
    from pffl.cli.options import now_typed

    message, option = error.format_message(), getattr(error, "option_name", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
    elif now := now_typed(option) if option else None:
        terminal.error(f"{message.partition('. ')[0].rstrip('.')}. Now: {now}")
    else:
        path = error.ctx.command_path if error.ctx else "pffl"
        terminal.error(f"{message}\n{path} --help")


def _whole(arguments: Sequence[str]) -> list[str]:
    """Say `--certify` in whole, which may stand without its confidence.

    >>> _whole(["run", "--certify", "adult"]), _whole(["--certify", "0.9"])
    (['run', '--certify=yes', 'adult'], ['--certify', '0.9'])
    """
    found = []
    for argument, following in pairwise([*arguments, ""]):
        number = re.fullmatch(r"[\d.]+(e-?\d+)?", following)
        alone = argument == "--certify" and not number
        found.append("--certify=yes" if alone else argument)
    return found
