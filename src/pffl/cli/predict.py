"""`pffl predict`: a saved model on new rows."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from pffl.cli import console


def predict(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A run directory, or a file of `Solution.save`."
        ),
    ],
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="ROWS",
            help="A table with the columns that the model was trained on (CSV, "
            "Parquet, …); label and groups may be there or not.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="A new file, CSV or Parquet by its ending. Default: CSV on stdout.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of ROWS to write beside the scores; may be repeated.",
        ),
    ] = None,
    unseen: Annotated[
        Literal["refuse", "ignore", "most_frequent"] | None,
        typer.Option(
            help="What to do with categories that were not there in training: refuse; "
            "ignore (as none of the known ones); most_frequent (as that one). Default: "
            "as the model was trained with.",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say nothing but what is wrong.")
    ] = False,
) -> None:
    """Score new rows with a saved model: prediction, and probability of each class.

    Rows are read and written in pieces, so that a file may have any size. A row that
    cannot be read ends it with exit code 3, and no file is written.

    Example: pffl predict runs/people-001 new.csv -o scores.csv --keep id
    """
    from pffl import load
    from pffl.models.scoring import score_file

    target = sys.stdout.buffer if out is None else out
    try:
        found = score_file(load(model), rows, target, keep=keep or (), unseen=unseen)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the scores has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    for remark in found.remarks:
        console.note(remark)
    if out is not None and not quiet:
        console.note(f"{found.rows:,} rows scored: {out}")
