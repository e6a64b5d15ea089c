"""The commands of `pffl`, in the order in which the help lists them.

A command is a function of one of these files, entered here by one line.
"""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from pffl import cli
from pffl.cli import data, deploy, experiments, models, run
from pffl.cli.options import flag

app = typer.Typer(
    name="pffl",
    help="Federated learning that keeps the loss of every group under a bound.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
site = typer.Typer(no_args_is_help=True, help="A site of a deployed federation.")
COMMANDS = {
    app: (
        *(run.run, run.feasible, models.predict, models.audit, models.verify),
        *(models.monitor, experiments.compare, experiments.reproduce),
        *(experiments.report, data.data, deploy.deploy),
    ),
    site: (deploy.init, deploy.join, deploy.serve, deploy.show),
}


def flowing(text: str) -> str:
    r"""Return a docstring with its paragraphs in one line each; indented lines stay.

    >>> flowing("First.\n\n    One line,\n    and one more.\n\n        kept\n")
    'First.\n\nOne line, and one more.\n\n    kept'
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        one if "\n " in f"\n{one}" else one.replace("\n", " ") for one in paragraphs
    )


for group, commands in COMMANDS.items():
    for command in commands:
        group.command(help=flowing(command.__doc__ or ""))(command)
app.add_typer(site, name="site")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(cli.version())
        raise typer.Exit


@app.callback()
def pffl(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version."
        ),
    ] = False,
    debug: Annotated[bool, flag("--debug", "Show where an error came from.")] = False,
) -> None:
    """Federated learning that keeps the loss of every group under a bound."""
