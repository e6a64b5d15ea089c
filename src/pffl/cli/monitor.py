"""`pffl monitor`: new rows with labels, and an alarm where a bound is crossed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pffl.cli import console
from pffl.errors import UsageError

if TYPE_CHECKING:
    from pffl.evidence.monitor import Monitor
    from pffl.monitoring import Deployed, SiteSums


def monitor(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A run directory, or a file of `Solution.save`."
        ),
    ],
    rows: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="ROWS...",
            help="Tables (CSV, Parquet, …) with inputs, groups and labels of people "
            "who came after training: each is a batch, in this order. With --add: "
            "files of sums.",
        ),
    ] = None,
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
    settle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Count nothing: write what is settled before the first row, for "
            "sites that keep their rows.",
            rich_help_panel="Sites",
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What was settled; with --sums, and with the first --add.",
            rich_help_panel="Sites",
        ),
    ] = None,
    sums: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="At a site: count ROWS, one table, to a file of sums, which may be "
            "sent; cells with few people are left out.",
            rich_help_panel="Sites",
        ),
    ] = None,
    site: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What to call the site, with --sums. Default: the name of the file.",
            rich_help_panel="Sites",
        ),
    ] = None,
    floor: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --sums: a cell with fewer people is left out. Default: 20.",
            rich_help_panel="Sites",
        ),
    ] = None,
    add: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="ROWS are files of sums, one per site: together they are one batch, "
            "of this name.",
            rich_help_panel="Sites",
        ),
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
    from pffl.monitoring import Deployed, add_sites, count_site, default_state
    from pffl.monitoring import monitor as count
    from pffl.monitoring.federated import FLOOR

    deployed, path = Deployed.of(model), state or default_state(model)
    run, limits = _columns_of(model), read_bound(bound) if bound else None
    places = _places(rows, settle, sums, add)
    _check_sites(sums, add, settings=settings, site=site, floor=floor)
    if settle is not None:
        _settle(deployed, settle, path, limits, confidence, weight_bound)
        return
    if add is not None:
        others = (bound, confidence, id, silo, weight, weight_bound, unseen)
        if any(one is not None for one in others):
            raise UsageError("with --add all is settled: leave out what sites counted")
        _tell(
            add_sites(deployed, places, name=add, state=path, settings=settings),
            path,
            json=json,
        )
    found: Monitor | None = None
    for place in places:
        frame, notes = read_table(place)
        there = list(map(str, frame.columns))
        known = {key: name for key, name in run.items() if name in there}
        if sums is not None and settings is not None:
            sent, more = count_site(
                deployed,
                frame,
                settings,
                site=site or sums.stem,
                floor=floor or FLOOR,
                silo=silo or known.get("silo"),
                id=id or known.get("id"),
                weight=weight,
                unseen=unseen,
                name=place.name,
            )
            sent.save(sums)
            for note in (*notes, *more):
                console.note(note)
            _show_sums(sent, sums)
            return
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
        for note in notes if place == places[-1] else (*notes, *found.notes):
            console.note(note)
    if found is not None:
        _tell(found, path, json=json)


def _tell(found: Monitor, path: Path, *, json: bool) -> None:
    """Say how it stands, and end with its exit code."""
    for note in found.notes:
        console.note(note)
    if json:
        console.print_json(found.as_dict())
    else:
        _show(found, path)
    raise typer.Exit(found.exit_code)


def _places(
    rows: list[Path] | None, settle: Path | None, sums: Path | None, add: str | None
) -> list[Path]:
    """Return the files that were given; refuse what does not go together."""
    asked = [one for one in (settle, sums, add) if one is not None]
    if len(asked) > 1:
        raise UsageError("--settle, --sums and --add are three steps: one at a time")
    if settle is not None and rows:
        raise UsageError("--settle comes before the first row: leave out ROWS")
    if settle is None and not rows:
        raise UsageError("ROWS are missing: new rows with labels, or files of sums")
    if sums is not None and len(rows or ()) > 1:
        raise UsageError("--sums counts one table: a batch of one site")
    return rows or []


def _check_sites(
    sums: Path | None,
    add: str | None,
    *,
    settings: Path | None,
    site: str | None,
    floor: int | None,
) -> None:
    if sums is not None and settings is None:
        raise UsageError("--sums needs what was settled: --settings FILE")
    if sums is None and (site is not None or floor is not None):
        raise UsageError("--site and --floor go with --sums")
    if settings is not None and sums is None and add is None:
        raise UsageError("--settings goes with --sums and --add")


def _settle(
    deployed: Deployed,
    place: Path,
    state: Path,
    bound: Any,
    confidence: float | None,
    weight_bound: float | None,
) -> None:
    """Write what is settled, for the sites."""
    from pffl.monitoring import settle

    found = settle(
        deployed,
        place,
        bound=bound,
        confidence=confidence,
        weight_bound=weight_bound,
        state=state,
    )
    cells = ", ".join(f"{cell.cell} {cell.bound:g}" for cell in found.cells)
    console.show(f"Settled: {cells}; confidence {100 * found.confidence:.6g} %")
    console.show(f"For the sites, with the model: {place}")


def _show_sums(sent: SiteSums, place: Path) -> None:
    from pffl.text import visible

    numbers = sum(map(len, sent.above)) + 2 * len(sent.count)
    numbers += 0 if sent.weight is None else len(sent.weight)
    console.show(
        visible(
            f"Sums of {sent.rows:,} rows of '{sent.batch}', site '{sent.site}': "
            f"{numbers:,} numbers leave with {place}"
        )
    )


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
