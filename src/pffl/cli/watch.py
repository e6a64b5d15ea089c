"""`pffl watch`: how a deployed run stands, on the server's machine."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import console
from pffl.cli.interruption import how_to_go_on

if TYPE_CHECKING:
    from pffl.runs.overview import Overview

PAUSE = 0.5  # seconds between two looks
REFRESH = 3  # seconds between two pages


def watch(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    once: Annotated[
        bool, typer.Option("--once", help="Show how it stands, and end.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, and end.")
    ] = False,
    page: Annotated[
        bool,
        typer.Option("--page", help="Keep DIR/live.html up to date, and open it."),
    ] = False,
) -> None:
    """Show a deployed run while it goes on: sites, round, gap, worst cell, time left.

    It ends with the run, and with its exit code. The page of --page loads itself again
    every few seconds, from DIR alone; in the end it is the report of the run.

    Example: pffl watch runs/first
    """
    from pffl.errors import FederationError, UsageError
    from pffl.runs.directory import RECORD, abandoned
    from pffl.runs.overview import Overview, follow

    if not directory.is_dir():
        raise UsageError(f"[no-run] there is no run in '{directory}' yet")
    if not (directory / RECORD).exists() and (directory / "result.json").exists():
        raise UsageError(
            f"[no-record] '{directory}' holds a run in process, which has no record"
        )
    entries, overview = follow(directory, whole=True), Overview()
    _catch_up(entries, overview)
    shown = Page(directory) if page else None
    if shown is not None:
        shown.write(over=overview.ended is not None)
        shown.open()
    if json:
        console.print_json(asdict(overview))
    elif once or overview.ended is not None:
        _print(overview)
    else:
        _go_on(directory, entries, overview, shown)
    if shown is not None:
        shown.write(over=True)
    if overview.ended is not None:
        raise typer.Exit(int(overview.ended["code"]))
    if abandoned(directory):
        raise FederationError(
            "[server-gone] the server of this run is gone without a word; "
            f"{how_to_go_on(directory)} --app APP"
        )


@dataclass
class Page:
    """The page of a run that goes on: written anew now and then, from its files."""

    directory: Path
    written: float = -math.inf

    def write(self, *, over: bool = False) -> None:
        """Write it, unless that was just done; the last one no longer loads itself."""
        from pffl.files import write
        from pffl.reports.page import render
        from pffl.runs.directory import LIVE

        now = time.monotonic()
        if over or now - self.written >= REFRESH:
            text = render([self.directory], refresh=None if over else REFRESH)
            write(self.directory / LIVE, text.encode())
            self.written = now

    def open(self) -> None:
        """Show it in the browser, and say where it is."""
        from pffl.cli.report import open_page
        from pffl.runs.directory import LIVE

        console.note(f"Page: {self.directory / LIVE}")
        open_page(self.directory / LIVE)


def _catch_up(
    entries: Iterator[dict[str, Any] | None], overview: Overview
) -> list[dict[str, Any]]:
    """Take in what the record has got since the last look, and return it."""
    new = []
    for entry in entries:
        if entry is None:
            break
        overview.take(entry)
        new.append(entry)
    return new


def _print(overview: Overview) -> None:
    for text in overview.lines(datetime.now(UTC)):
        console.show(text)


def _go_on(
    directory: Path,
    entries: Iterator[dict[str, Any] | None],
    overview: Overview,
    page: Page | None,
) -> None:
    """Show it until the run ends: a picture on a terminal, otherwise line by line."""
    from rich.live import Live
    from rich.text import Text

    from pffl.runs.directory import abandoned
    from pffl.runs.overview import told

    def picture() -> Text:
        return Text("\n".join(overview.lines(datetime.now(UTC))))

    def over() -> bool:
        return overview.ended is not None or abandoned(directory)

    target = console.stdout()
    if target.is_terminal and not target.is_dumb_terminal:
        with Live(picture(), console=target, auto_refresh=False) as shown:
            while not over():
                time.sleep(PAUSE)
                _catch_up(entries, overview)
                shown.update(picture(), refresh=True)
                if page is not None:
                    page.write()
        return
    _print(overview)
    while not over():
        time.sleep(PAUSE)
        for entry in _catch_up(entries, overview):
            text = told(entry)
            if text:
                console.show(text)
        if page is not None:
            page.write()
