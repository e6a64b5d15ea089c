"""`pffl report`: one page to open, from run, sweep and comparison folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pffl.cli import console


def report(
    directories: Annotated[
        list[Path], typer.Argument(help="Run, sweep or comparison folders.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
) -> None:
    """Write one self-contained page that opens without a network.

    Example: pffl report runs/compas-001 -o report.html
    """
    from pffl.reports.page import report as write

    write(*directories, out=out, title=title)
    console.stdout().print(f"Report: {out}", soft_wrap=True)
