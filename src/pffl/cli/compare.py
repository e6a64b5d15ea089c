"""`pffl compare`: every method on the same footing, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import console
from pffl.cli.batch import batch_progress
from pffl.cli.draft import Draft
from pffl.cli.loading import build
from pffl.cli.options import takes
from pffl.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from pffl.constraints import Constraint
    from pffl.data import Federation
    from pffl.spec import Job
    from pffl.study.compare import Comparison

VALIDATION = 0.2
SHOWN = {
    "error": "error",
    "risk": "risk",
    "worst_cell_loss": "worst loss",
    "dp_gap": "ΔDP",
    "eo_gap": "ΔEO",
}
COSTS = {"rounds": "rounds", "gradients": "gradients", "bytes": "MB", "seconds": "s"}
WIDE = 116  # columns that both halves of the table need


@takes("data", "constraint", "model", "run")
def compare(
    draft: Draft,
    methods: Annotated[
        str | None,
        typer.Option(help="Names, separated by commas. Default: all.", metavar="LIST"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many splits.")] = 5,
    tune: Annotated[
        bool, typer.Option("--tune", help="Tune each method on a validation part.")
    ] = False,
    trials: Annotated[
        int, typer.Option(min=1, help="With --tune: points each method may try.")
    ] = 4,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Gradients per silo for each method.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for results; an earlier run there is resumed."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print rows as JSON.")] = False,
) -> None:
    """Train every method on the same splits, with the same model and budget.

    Without --bound, the bound is a little above the smallest that is possible.

    Example: pffl compare compas --seeds 3
    """
    from pffl.study.compare import BUDGET, known_methods
    from pffl.study.compare import compare as run

    asked = None if methods is None else [m.strip() for m in methods.split(",")]
    names = known_methods(asked)  # what is wrong is said before data are opened
    job, constraint = bounded(draft)
    folder = out or Path("runs") / f"compare-{job.source.name}"
    with batch_progress() as report:
        found = run(
            _loader(draft, validation=tune),
            constraint,
            methods=names,
            model=job.model,
            options=job.options,
            budget=budget or BUDGET,
            seeds=seeds,
            trials=trials if tune else 0,
            out=folder,
            report=report,
        )
    _draw(found, folder)
    _tell(found, constraint, folder, as_json=json)


def with_bound(draft: Draft, bound: float) -> Draft:
    """Return the draft with this bound for all cells."""
    constraint = {"kind": "bgl", **draft.sections.get("constraint", {}), "bound": bound}
    return replace(draft, sections={**draft.sections, "constraint": constraint})


def bounded(draft: Draft) -> tuple[Job, Constraint]:
    """Open the job; where no bound is given, take one just above the smallest."""
    from pffl.constraints import is_minimax
    from pffl.study.sweep import smallest_bound

    section = draft.sections.get("constraint", {})
    if isinstance(section, list) or "bound" in section or is_minimax(section):
        job = build(draft.check())
        if job.constraint is not None:
            return job, job.constraint
    job = build(with_bound(draft, 0.0).check())
    constraint = job.constraint
    if constraint is not None:
        least = smallest_bound(job.federation, constraint, model=job.model)
        constraint = with_bound(draft, least).check().constraint
    if constraint is None:
        raise UsageError("a comparison needs a constraint")
    return job, constraint


def _loader(draft: Draft, *, validation: bool) -> Callable[[int], Federation]:
    """Open the data with another seed, and a validation part where it is needed."""
    from pffl.spec import parse

    def load(seed: int) -> Federation:
        extra: dict[str, Any] = {"seed": seed}
        if validation:
            extra["validation_fraction"] = VALIDATION
        sections = {"data": {**draft.sections.get("data", {}), **extra}}
        return parse(sections, source=draft.source, base=draft.base).data.open()

    return load


def _draw(found: Comparison, folder: Path) -> None:
    """Write a figure where possible."""
    from pffl.errors import MissingExtraError
    from pffl.reports import figures

    try:
        figures.save(figures.comparison(found.table), folder / "figure.png")
    except MissingExtraError as error:
        console.note(str(error))


def _tell(
    found: Comparison, constraint: Constraint, folder: Path, *, as_json: bool
) -> None:
    if as_json:
        import json

        typer.echo(json.dumps(found.as_dict(), allow_nan=False))
        return
    target = console.stdout()
    if target.width >= WIDE:
        target.print(_table(found, {**SHOWN, **COSTS}))
    else:
        target.print(_table(found, SHOWN))
        target.print(_table(found, COSTS))
    target.print(
        "Test rows, mean ± standard error over seeds. Smaller is better everywhere. "
        f"Constraint: {dict(constraint.describe())}."
    )
    failed = found.table["failed"]
    for method, reason in failed[failed != ""].items():
        target.print(f"{method} failed: {reason}", style="yellow")
    target.print(f"Saved in {folder}", soft_wrap=True)


def _table(found: Comparison, titles: Mapping[str, str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method", no_wrap=True)
    for title in titles.values():
        table.add_column(title, justify="right", no_wrap=True)
    for method, row in found.table.iterrows():
        table.add_row(str(method), *(_number(row, name) for name in titles))
    return table


def _number(row: Any, name: str) -> str:
    """Write a mean and, for measures, its standard error."""
    import math

    value, error = row[name], row[f"{name}_se"]
    if math.isnan(value):
        return "-"
    if name in COSTS:
        shown = {"bytes": f"{value / 1e6:.2f}", "seconds": f"{value:.2f}"}
        return shown.get(name, f"{value:,.0f}")
    spread = "" if math.isnan(error) else f"±{error:.3f}".replace("0.", ".", 1)
    return f"{value:.3f}{spread}"
