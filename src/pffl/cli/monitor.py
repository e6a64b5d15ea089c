"""`pffl monitor`: new rows with labels, and an alarm where a bound is crossed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pffl.cli import console

if TYPE_CHECKING:
    from pffl.evidence.monitor import Monitor


def monitor(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A run directory, or a file of `Solution.save`."
        ),
    ],
    rows: Annotated[
        list[Path],
        typer.Argument(
            metavar="ROWS...",
            help="Tables (CSV, Parquet, …) with inputs, groups and labels of people "
            "who came after training: each is a batch, in this order.",
        ),
    ],
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What was counted before, and where a line per batch is added. "
            "Default: monitor.jsonl in the run directory; of a file, beside it.",
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="1 less the probability that an alarm ever comes while all cells are "
            "within their bounds; settled with the first batch. Default: 0.95."
        ),
    ] = None,
    bound: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBER",
            help="Another bound than the model's: a number, or CELL=NUMBER for each "
            "cell (others are not watched); settled with the first batch.",
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="COLUMN",
            help="Column that says whom a row is about. Default: the run's, if it is "
            "there.",
        ),
    ] = None,
    silo: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column that says where a row lives. Default: the run's, if there.",
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column that says how much a row counts. Default: the run's.",
        ),
    ] = None,
    weight_bound: Annotated[
        float | None,
        typer.Option(
            help="What no row's weight is above; settled with the first batch. "
            "Default: the run's."
        ),
    ] = None,
    unseen: Annotated[
        Literal["refuse", "ignore", "most_frequent"] | None,
        typer.Option(help="Categories new to the model; as for `pffl predict`."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print how it stands as JSON, nothing else.")
    ] = False,
) -> None:
    """Watch a model in use: raise an alarm where a cell's mean loss is above its bound.

    Every call adds a batch of new rows, with labels, to what was counted before, and
    one may look after each: an e-value per cell grows while its losses are above its
    bound. Ends with exit code 4 once a cell has an alarm, else with 0. No alarm is no
    proof that bounds are kept (docs/monitor.md).

    Example: pffl monitor runs/people-001 march.csv
    """
    from pffl.cli.options import bound as read_bound
    from pffl.data.reading import read_table
    from pffl.monitoring import Deployed, default_state
    from pffl.monitoring import monitor as count

    deployed, path = Deployed.of(model), state or default_state(model)
    run, limits = _columns_of(model), read_bound(bound) if bound else None
    for place in rows:
        frame, notes = read_table(place)
        there = list(map(str, frame.columns))
        known = {key: name for key, name in run.items() if name in there}
        found = count(
            deployed,
            frame,
            state=path,
            bound=limits,
            confidence=confidence,
            silo=silo or known.get("silo"),
            id=id or known.get("id"),
            weight=weight,
            weight_bound=weight_bound,
            unseen=unseen,
            name=place.name,
        )
        for note in (*notes, *found.notes):
            console.note(note)
    if json:
        console.print_json(found.as_dict())
    else:
        _show(found, path)
    raise typer.Exit(found.exit_code)


def _columns_of(model: Path) -> dict[str, Any]:
    """Return the columns of silos and ids that the run of a directory had."""
    from pffl.monitoring import run_of
    from pffl.records import read_toml
    from pffl.runs.directory import SPEC

    folder = run_of(model)
    if folder is None or not (folder / SPEC).is_file():
        return {}
    data = read_toml(folder / SPEC).get("data", {})
    return {key: data[key] for key in ("silo", "id") if key in data}


def _show(found: Monitor, path: Path) -> None:
    from rich.text import Text

    from pffl.cli import show
    from pffl.evidence.monitor import assumptions, shown
    from pffl.text import few, visible

    target = console.stdout()
    target.print()
    show.print_whole(target, show.text_rows(shown(found), target.width))
    target.print()
    notes = [f"assumed: {text}" for text in assumptions(found.settings)]
    if found.settings.unwatched:
        notes.insert(0, f"not watched: {few(found.settings.unwatched)}")
    target.print(show.remarks(notes))
    target.print()
    head = Text("▲ ALARM", "bold red") if found.alarms else Text("NO ALARM", "bold")
    target.print(head)
    target.print(Text(visible(found.message)))
    target.print(f"State: {path} (digest {found.digest[:12]})", soft_wrap=True)
