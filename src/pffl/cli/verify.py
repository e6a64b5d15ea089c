"""`pffl verify`: compute every number of a run again, and say which agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console

if TYPE_CHECKING:
    from pffl.verify import Check

PREPARED = "split,silo,group,label"  # how a CSV of prepared rows begins


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
    id: Annotated[
        str | None, typer.Option("--id", help="As for `pffl audit`.", metavar="COLUMN")
    ] = None,
    probability: Annotated[
        str | None, typer.Option(help="As for `pffl audit`.", metavar="COLUMN")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="List also what agrees.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the checks as JSON, nothing else.")
    ] = False,
) -> None:
    """Compute every number again, from the rows and from evidence alone.

    The code that does it is one file, pffl/verify.py, which uses nothing else of pffl
    and runs without it: python verify.py DIR rows.csv. Ends with exit code 6 if
    something does not agree.

    Example: pffl verify runs/compas-001
    """
    import pffl
    from pffl.cli.audit import opened
    from pffl.cli.certify import spec_of
    from pffl.errors import ArtefactError, PFFLError
    from pffl.evidence.measure import model_fingerprint

    directory = path if path.is_dir() else path.parent
    certified = None
    with TemporaryDirectory() as temporary:
        rows = None if data is None or not _prepared(Path(data)) else Path(data)
        try:
            if rows is None:
                spec = spec_of(directory, data)
                given = model or directory / "model.safetensors"
                audited, federation = opened(
                    given, spec, id=id, probability=probability
                )
                certified = model_fingerprint(audited.model, audited.w)
                rows = export or Path(temporary) / "rows.npz"
                federation.export(rows)
        except PFFLError as error:
            if export or data is not None:
                raise
            console.note(f"not checked by rows: {error}")
        if export:
            console.stdout().print(f"Rows written to {export}", soft_wrap=True)
            return
        try:
            checks = pffl.verify(path, rows)
        except ValueError as error:
            raise ArtefactError(str(error)) from error
    if model is not None and certified not in {check.found for check in checks}:
        what, stated = "fingerprint of the model", "that of the one certified"
        checks.append(type(checks[0])(what, stated, certified, False))
    wrong = [check for check in checks if not check.agrees]
    if json:
        console.print_json([vars(check) for check in checks])
    else:
        _tell(checks if every else wrong, len(checks), len(wrong))
    raise typer.Exit(6 if wrong else 0)


def _prepared(path: Path) -> bool:
    """Whether a file holds rows that were exported."""
    if path.suffix == ".npz" or not path.is_file():
        return path.suffix == ".npz"
    with path.open(encoding="utf-8", errors="replace") as text:
        return text.readline().startswith(PREPARED)


def _tell(shown: Sequence[Check], every: int, wrong: int) -> None:
    from rich.text import Text

    target = console.stdout()
    for check in shown:
        style = "" if check.agrees else "red"
        target.print(Text(console.clean(str(check)), style=style), soft_wrap=True)
    bad = Text(f"NOT VERIFIED: {wrong} of {every} do not agree", "bold red")
    good = Text(f"VERIFIED: all {every} numbers and texts agree", "bold green")
    target.print(bad if wrong else good)
