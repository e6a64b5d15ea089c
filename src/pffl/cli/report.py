"""`pffl report`: one page of runs, audits, comparisons and monitors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pffl.cli import console


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs, audits or comparisons; files of monitors."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    show: Annotated[
        bool, typer.Option("--open", help="Open it in the browser.")
    ] = False,
) -> None:
    """Write one self-contained page that opens without a network.

    Example: pffl report runs/compas-001 -o report.html
    """
    from pffl.reports.page import report as write

    write(*directories, out=out, title=title)
    console.show(f"Report: {out}")
    if show:
        open_page(out)


def open_page(path: Path) -> None:
    """Open a page in the browser, or say that there is none."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        console.note(f"no browser is at hand: open {path} yourself")
