"""The commands of `pffl`, in the order in which the help lists them.

A command is a function of one of these files, entered here by one line.
"""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from pffl import cli
from pffl.cli import (
    data,
    deploy,
    experiments,
    models,
    report,
    run,
    site,
    verify,
)

app = typer.Typer(
    name="pffl",
    help="Federated learning that keeps the loss of every group under a bound.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (
    run.run,
    run.feasible,
    models.predict,
    models.audit,
    verify.verify,
    models.monitor,
    experiments.compare,
    experiments.reproduce,
    report.report,
    data.data,
    deploy.deploy,
):
    app.command()(command)
app.add_typer(site.app, name="site")


def flowing(text: str) -> str:
    r"""Return a docstring with its paragraphs in one line each; indented lines stay.

    >>> flowing("First.\n\n    One line,\n    and one more.\n\n        kept\n")
    'First.\n\nOne line, and one more.\n\n    kept'
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        one if "\n " in f"\n{one}" else one.replace("\n", " ") for one in paragraphs
    )


for one in (app, site.app):
    for info in one.registered_commands:
        info.help = flowing(getattr(info.callback, "__doc__", None) or "")


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
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error came from.")
    ] = False,
) -> None:
    """Federated learning that keeps the loss of every group under a bound."""
