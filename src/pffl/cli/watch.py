"""`pffl watch`: how a deployed run stands, on the server's machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import console
from pffl.cli.interruption import how_to_go_on

if TYPE_CHECKING:
    from pffl.flower.overview import Overview

PAUSE = 0.5  # seconds between two looks


def watch(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    once: Annotated[
        bool, typer.Option("--once", help="Show how it stands, and end.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, and end.")
    ] = False,
) -> None:
    """Show a deployed run while it goes on: sites, round, gap, worst cell, time left.

    It ends with the run, and with its exit code.

    Example: pffl watch runs/first
    """
    from dataclasses import asdict

    from pffl.errors import FederationError, UsageError
    from pffl.flower.launch import follow
    from pffl.flower.overview import Overview
    from pffl.runs.directory import RECORD, abandoned

    if not directory.is_dir():
        raise UsageError(f"there is no run in '{directory}' yet")
    if not (directory / RECORD).exists() and (directory / "result.json").exists():
        raise UsageError(f"'{directory}' holds a run in process, which has no record")
    entries, overview = follow(directory, whole=True), Overview()
    _catch_up(entries, overview)
    if json:
        console.print_json(asdict(overview))
    elif once or overview.ended is not None:
        _print(overview)
    else:
        _go_on(directory, entries, overview)
    if overview.ended is not None:
        raise typer.Exit(int(overview.ended["code"]))
    if abandoned(directory):
        raise FederationError(
            "the server of this run is gone without a word; "
            f"{how_to_go_on(directory)} --app APP"
        )


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
    directory: Path, entries: Iterator[dict[str, Any] | None], overview: Overview
) -> None:
    """Show it until the run ends: a picture on a terminal, otherwise line by line."""
    from rich.live import Live
    from rich.text import Text

    from pffl.flower.live import told
    from pffl.runs.directory import abandoned

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
        return
    _print(overview)
    while not over():
        time.sleep(PAUSE)
        for entry in _catch_up(entries, overview):
            text = told(entry)
            if text:
                console.show(text)
