"""`pffl sweep`: a grid of bounds and multiplier bounds, and its trade-off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pffl.cli import console
from pffl.cli.batch import batch_progress
from pffl.cli.draft import Draft
from pffl.cli.loading import build
from pffl.cli.options import takes
from pffl.errors import NotMetError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from pffl.methods import Method
    from pffl.study.sweep import Sweep

MULTIPLIER_BOUNDS = "1,10,100"
VALIDATION = 0.2
MOST_ROWS = 12


@takes("data", "method", "model", "run")
def sweep(
    draft: Draft,
    grid: Annotated[
        Literal["full", "paper", "random"],
        typer.Option(help="All combinations, the paper's, or drawn ones."),
    ] = "full",
    notions: Annotated[
        str, typer.Option(help="bgl, cbgl, cbgl-y1, cbgl-y0, per-silo.", metavar="LIST")
    ] = "bgl",
    bounds: Annotated[
        str | None,
        typer.Option(help="Bounds. Default: eight around what is possible."),
    ] = None,
    multiplier_bounds: Annotated[
        str, typer.Option(help="Multiplier bounds.", metavar="LIST")
    ] = MULTIPLIER_BOUNDS,
    methods: Annotated[
        str,
        typer.Option(help="Further methods, with their defaults.", metavar="LIST"),
    ] = "",
    points: Annotated[int, typer.Option(min=1, help="Points of a random grid.")] = 40,
    front_on: Annotated[
        Literal["validation", "test"],
        typer.Option(help="Split that chooses the front; the paper's way is test."),
    ] = "validation",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for results; an earlier run there is resumed."),
    ] = None,
) -> None:
    """Train a grid of points and show which are worth choosing from.

    Example: pffl sweep compas --grid paper --notions bgl,cbgl-y1,cbgl-y0
    """
    from pffl.spec import merge
    from pffl.study.sweep import sweep as run

    sections = merge({"data": {"validation_fraction": VALIDATION}}, draft.sections)
    job = build(Draft(sections, draft.source, draft.base).check())
    folder = out or Path("runs") / f"sweep-{job.source.name}"
    with batch_progress() as report:
        found = run(
            job.federation,
            grid,
            notions=_words(notions),
            bounds=None if bounds is None else _numbers(bounds),
            multiplier_bounds=_numbers(multiplier_bounds),
            number=points,
            method=[job.method, *_methods(_words(methods))],
            model=job.model,
            options=job.options,
            seed=job.seed or 0,
            out=folder,
            report=report,
        )
    if not (folder / "sweep.parquet").exists():
        console.note("sweep.parquet was left out: it needs the extra 'parquet'")
    _tell(found, folder, front_on)
    if found.trained.empty:
        raise NotMetError("every point failed; see points.jsonl")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in _words(text)]
    except ValueError as error:
        raise UsageError(f"not a list of numbers: {text!r}") from error


def _methods(names: Sequence[str]) -> list[Method[Any]]:
    """Return methods by name, with their defaults."""
    from pffl.methods import METHODS

    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise UsageError(f"no methods {unknown}: there are {sorted(METHODS)}")
    return [METHODS[name]() for name in names]


def _tell(found: Sweep, folder: Path, front_on: str) -> None:
    target = console.stdout()
    table = found.trained
    for notion in dict.fromkeys(table["notion"]):
        target.print(_front(found, str(notion), front_on))
    failed = len(found.rows) - len(table)
    counts = ", ".join(f"{n} {s}" for s, n in table["status"].value_counts().items())
    target.print(
        f"{len(found.rows)} points: {counts}" + (f", {failed} failed" * (failed > 0))
    )
    target.print(
        f"The front is chosen on {front_on} rows; figures are of test rows; their "
        "intervals are in sweep.csv."
    )
    target.print(f"Saved in {folder}", soft_wrap=True)


def _front(found: Sweep, notion: str, front_on: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"{notion}: Pareto front")
    several = found.trained["method"].nunique() > 1
    if several:
        table.add_column("method", no_wrap=True)
    for title in ("bound", "B", "status", "error", "worst loss", "ΔDP", "ΔEO"):
        table.add_column(title, justify="right", no_wrap=True)
    front = found.front(notion=notion, chosen_on=front_on)
    for _, row in front.head(MOST_ROWS).iterrows():
        error = f"{row['test_error']:.3f}"
        if "test_error_low" in row and not several:
            error += f" ({row['test_error_low']:.3f}-{row['test_error_high']:.3f})"
        table.add_row(
            *([str(row["method"])] if several else []),
            f"{row['bound']:g}",
            f"{row['multiplier_bound']:g}",
            str(row["status"]),
            error,
            f"{row['test_worst_cell_loss']:.3f}",
            f"{row['test_dp_gap']:.3f}",
            f"{row['test_eo_gap']:.3f}",
        )
    if len(front) > MOST_ROWS:
        table.caption = f"and {len(front) - MOST_ROWS} more in sweep.csv"
    return table
