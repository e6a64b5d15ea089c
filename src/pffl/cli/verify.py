"""`pffl verify`: every number computed again, from rows and from evidence alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import console
from pffl.cli.models import Id, Probability
from pffl.cli.options import Json
from pffl.errors import UsageError

if TYPE_CHECKING:
    from pffl.evidence.verify import Check


def verify(
    path: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A run directory, or a certificate in it."),
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[ROWS]",
            help="Rows that --export wrote; or a file, a data set or a run file. "
            "Default: the data of the run file in DIR.",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write the rows, prepared, to a .csv or .npz; check nothing."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Of an audit: the predictions, to be joined to the rows."),
    ] = None,
    id: Id = None,
    probability: Probability = None,
    arithmetic: Annotated[
        bool,
        typer.Option("--arithmetic", help="Check by evidence alone; open no data."),
    ] = False,
    json: Json = False,
) -> None:
    """Compute every number again, from the rows and from evidence alone.

    The code that does it is one file, pffl/evidence/verify.py, which uses nothing else
    of pffl and runs without it: python verify.py DIR rows.csv. Ends with exit code 6
    if something does not agree.

    Example: pffl verify runs/compas-001
    """
    from tempfile import TemporaryDirectory

    from pffl.evidence.verify import SKIPPED
    from pffl.running import export_rows, recompute

    options: Any = {"data": data, "model": model, "id": id, "column": probability}
    if export:
        export_rows(path, export, **options)
        console.show(f"Rows written to {export}")
        return
    if arithmetic and any(options.values()):
        raise UsageError(
            "[options-conflict] --arithmetic opens no data: leave out ROWS and --model"
        )
    with TemporaryDirectory() as place:
        checks = recompute(path, None if arithmetic else Path(place), **options)
    wrong = [check for check in checks if not check.agrees]
    if json:
        console.print_json([vars(check) for check in checks])
    else:
        left_out = [check for check in checks if check.what.startswith(SKIPPED)]
        _tell(left_out + wrong, len(checks), len(wrong))
    raise typer.Exit(6 if wrong else 0)


def _tell(shown: Sequence[Check], every: int, wrong: int) -> None:
    from rich.text import Text

    from pffl.text import visible

    target = console.stdout()
    for check in shown:
        style = "" if check.agrees else "red"
        target.print(Text(visible(str(check)), style=style), soft_wrap=True)
    bad = Text(f"NOT VERIFIED: {wrong} of {every} do not agree", "bold red")
    good = Text(f"VERIFIED: all {every} numbers and texts agree", "bold green")
    target.print(bad if wrong else good)
