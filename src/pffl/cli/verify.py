"""`pffl verify`: compute again what a run claims."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from pffl.cli import console
from pffl.cli.models import Id, Probability
from pffl.cli.options import Json
from pffl.errors import PFFLError, UsageError


def verify(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN]", help="A run's folder, or its report.html."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[ROWS]",
            help="Rows that --export wrote; or a file, a data set or a run file. "
            "Default: the data of the run file in RUN.",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write the rows, prepared, to a .csv or .npz; check nothing."
        ),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(help="Write the verifier, one file that needs no pffl."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Of an audit: the predictions, to be joined to the rows."),
    ] = None,
    id: Id = None,
    probability: Probability = None,
    arithmetic: Annotated[
        bool,
        typer.Option("--arithmetic", help="Check by recorded sums; open no data."),
    ] = False,
    json: Json = False,
) -> None:
    """Compute again what a run claims, and say whether it follows from its rows.

    Without rows the word is *consistent*: the conclusions follow from the recorded
    sums, and the sums were not checked. With rows it is *verified against rows*. No
    file can show who wrote it, that bounds, seed and settings were fixed before test
    rows were seen, what was tried elsewhere, how a model was trained, or who the rows
    are about. Ends with exit code 6 if something does not agree.

    Example: pffl verify runs/compas-001
    """
    from pffl import _verify
    from pffl.verification import export_rows
    from pffl.verification import verify as checked

    if script is not None:
        script.write_text(Path(_verify.__file__).read_text("utf-8"), encoding="utf-8")
        console.show(f"Verifier written to {script}: python {script} RUN [ROWS]")
        return
    if path is None:
        raise UsageError("[nothing-to-verify] say which run: pffl verify RUN [ROWS]")
    joined: Any = {"model": model, "id": id, "column": probability}
    if export:
        export_rows(path, export, data=data, **joined)
        console.show(f"Rows written to {export}")
        return
    if arithmetic and (data or any(joined.values())):
        raise UsageError(
            "[options-conflict] --arithmetic opens no data: leave out ROWS and --model"
        )
    rows: str | Path | None = data
    with TemporaryDirectory() as place:
        if data is None and not arithmetic and path.suffix != ".html":
            try:
                export_rows(path, own := Path(place) / "rows.npz", **joined)
                rows = own
            except PFFLError as error:
                warnings.warn(f"not checked by rows: {error}", stacklevel=1)
        checks = checked(path, rows, **joined)
    wrong = [check for check in checks if not check.agrees]
    if json:
        console.print_json([vars(check) for check in checks])
    else:
        from rich.text import Text

        from pffl.text import visible

        target = console.stdout()
        for check in checks:
            if check.note or not check.agrees:
                line = Text(visible(str(check)), style="" if check.agrees else "red")
                target.print(line, soft_wrap=True)
        style = "bold red" if wrong else "bold green"
        target.print(Text(_verify.judged(checks), style), soft_wrap=True)
    raise typer.Exit(6 if wrong else 0)
