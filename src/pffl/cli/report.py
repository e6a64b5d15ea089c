"""`pffl report`: one page of runs, audits, comparisons and monitors; and the card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pffl.cli import console
from pffl.errors import UsageError


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Runs, audits, comparisons; files of monitors."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write. Default: report.html."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    card: Annotated[
        bool, typer.Option("--card", help="The model card (Markdown) of one run.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="With --card: about.purpose, owner, date, contact, license.",
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--open", help="Open it in the browser.")
    ] = False,
) -> None:
    """Write one self-contained page that opens without a network; or a model card.

    What --card states is kept in the run: nothing that was measured changes.

    Example: pffl report runs/compas-001 --card --set about.owner='Unit 7'
    """
    if card:
        if len(directories) != 1 or title or show:
            raise UsageError(
                "[options-conflict] --card is of one run, without --title and --open"
            )
        _card(directories[0], settings or [], out)
        return
    if settings:
        raise UsageError("[no-effect] --set has an effect with --card alone")
    from pffl._report.page import report as write

    place = out or Path("report.html")
    write(*directories, out=place, title=title)
    console.show(f"Report: {place}")
    if show:
        open_page(place)


def _card(directory: Path, settings: list[str], out: Path | None) -> None:
    """State what a card needs, and write it."""
    from pffl._report.card import missing_of
    from pffl.config import stated
    from pffl.files import read, write
    from pffl.running import describe
    from pffl.runs.directory import CARD

    evidence = describe(directory, stated(settings))
    if out is not None:
        write(out, read(directory / CARD))
    console.show(f"Card: {directory / CARD if out is None else out}")
    if missing := missing_of(evidence):
        keys = " ".join(f"--set about.{key}=…" for key in missing)
        console.note(f"the card says 'not stated' of {', '.join(missing)}: {keys}")


def open_page(path: Path) -> None:
    """Open a page in the browser, or say that there is none."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        console.note(f"no browser is at hand: open {path} yourself")
