"""`pffl compare` and `pffl reproduce`: many trainings, and what they show."""

from __future__ import annotations

import json as plain_json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import console
from pffl.cli.options import COLUMNS, Draft, Json, listed, takes
from pffl.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from pffl.config import Job
    from pffl.constraints import Constraint
    from pffl.data import Federation
    from pffl.experiments import Comparison

VALIDATION = 0.2
MAX_ROWS = 20  # of a front that is printed
SHOWN = {
    "error": "error",
    "risk": "risk",
    "worst_cell_loss": "worst loss",
    "dp_gap": "ΔDP",
    "eo_gap": "ΔEO",
}
COSTS = {"rounds": "rounds", "passes": "passes", "bytes": "MB", "seconds": "s"}
WIDE = 116  # columns that both halves of a comparison need

PLAIN: dict[str, Any] = {"metavar": "N", "show_default": False}
Out = Annotated[Path | None, typer.Option(help="Folder; what is there is resumed.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes (1).", **PLAIN)]


@takes(
    *COLUMNS,
    *("constraint", "bound", "model"),
    unused="data.unseen data.seed method.* privacy.* policy.* about.* run.engine "
    "run.certify run.models run.reach run.seed",
)
def compare(
    draft: Draft,
    methods: Annotated[
        str | None, typer.Option(help="With commas. Default: all.", metavar="LIST")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(help="Values to try, in all combinations.", metavar="KEY=LIST"),
    ] = None,
    trials: Annotated[
        int, typer.Option(min=0, help="Points of each search space (0).", **PLAIN)
    ] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="How many splits (30).", **PLAIN)
    ] = 30,
    measure: Annotated[
        str, typer.Option(help="To judge by (worst_cell_loss).", **PLAIN)
    ] = "worst_cell_loss",
    allowance: Annotated[
        float,
        typer.Option(min=0.0, help="Error above FedAvg's allowed (0.01).", **PLAIN),
    ] = 0.01,
    margin: Annotated[
        float | None,
        typer.Option(min=0.0, help="Differences that do not matter.", **PLAIN),
    ] = None,
    budget: Annotated[
        int, typer.Option(min=1, help="Gradients per silo (1500).", **PLAIN)
    ] = 1500,
    jobs: Jobs = 1,
    out: Out = None,
    json: Json = False,
) -> None:
    """Train methods, or a grid of bounds, on the same splits and compare them.

    Without --bound, one is chosen. Words (better, worse, same) need 29 seeds.

    Example: pffl compare compas --methods fedavg,exact --grid bound=0.6,0.65,0.7
    """
    from pffl.experiments import compare as run
    from pffl.progress import counted

    values = _grid(grid or [])
    several = bool(values or trials)
    job = _bounded(draft, values)
    if job.constraint is None:
        raise UsageError("[needs-constraint] a comparison needs a constraint")
    folder = out or Path("runs") / f"compare-{job.source.name}"
    with counted("trial") as report:
        found = run(
            Seeded(draft.sections, draft.source, draft.base, several),
            job.constraint,
            methods=None if methods is None else listed(methods),
            grid=values or None,
            trials=trials,
            seeds=seeds,
            model=job.model,
            options=job.options,
            budget=budget,
            measure=measure,
            allowance=allowance,
            margin=margin,
            jobs=jobs,
            out=folder,
            report=report,
        )
    _draw(found, folder)
    if json:
        console.print_json(found.as_dict())
    else:
        if "bound" not in values:
            console.stdout().print(f"Constraint: {_described(job.constraint)}.")
        _tell(found)
        console.show(f"Saved in {folder}")


def reproduce(
    figure: Annotated[str, typer.Argument(help="A figure of the paper; or list.")],
    data: Annotated[
        str | None, typer.Option(help="Only panels on this data set.", metavar="NAME")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="File or folder that holds the data.", metavar="PATH"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many splits.")] = None,
    jobs: Jobs = 1,
    out: Out = None,
) -> None:
    """Run a figure of the paper again, in short.

    The full study, with its figures and answers, is in reproduction/ of a checkout.

    Example: pffl reproduce tradeoff --data compas
    """
    from pffl.experiments import figures
    from pffl.experiments import reproduce as run
    from pffl.progress import counted

    if figure == "list":
        for name, spec in figures().items():
            console.stdout().print(f"{name}: {spec['paper']}", markup=False)
        return

    def opened(section: Mapping[str, Any]) -> Seeded:
        extra = {} if source is None else {"source": source}
        return Seeded({"data": {**section, **extra}}, "spec", Path(), True)

    folder = out or Path("runs") / "reproduce" / figure
    with counted("trial") as report:
        found = run(
            figure,
            opened,
            data=data,
            seeds=seeds,
            jobs=jobs,
            out=folder,
            report=report,
        )
    console.stdout().print(figures()[figure]["paper"], markup=False)
    for name, panel in found.items():
        _draw(panel, folder / name)
        console.stdout().print(f"\n{name}")
        _tell(panel)
    console.show(f"Saved in {folder}")


@dataclass(frozen=True)
class Seeded:
    """Opens the data of a seed: other silos where they are drawn, another split."""

    sections: Mapping[str, Any]
    source: str
    base: Path
    validation: bool

    def __call__(self, seed: int) -> Federation:
        """Open the data of one seed."""
        from pffl.config import parse

        section = {**self.sections.get("data", {}), "seed": seed}
        if self.validation:
            section.setdefault("validation_fraction", VALIDATION)
        sections = {"data": section}
        return parse(sections, source=self.source, base=self.base).data.open()


def _grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Read ``key=value,value``; numbers, true and false as in JSON, else text."""
    out: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not (key and equals and values):
            raise UsageError(
                f"[wrong-setting] --grid takes KEY=VALUE,VALUE. Got {text!r} instead."
            )
        out[key.strip()] = [_value(word) for word in listed(values)]
    return out


def _value(text: str) -> Any:
    try:
        return plain_json.loads(text)
    except ValueError:
        return text


def _bounded(draft: Draft, grid: Mapping[str, Any]) -> Job[Federation]:
    """Open the job; a bound that is neither given nor in the grid is chosen."""
    given, bounded = draft.with_a_bound(minimax=True)
    if not bounded and "bound" not in grid:
        section = {**given.sections["constraint"], "bound": "auto"}
        given = replace(given, sections={**given.sections, "constraint": section})
    return given.build()


def _draw(found: Comparison, folder: Path) -> None:
    """Write the differences and the front as figures, where the extra is installed."""
    from pffl import figures

    words = f"{found.measure} on test rows: difference to {found.reference}"
    charts: dict[str, Callable[[], Any]] = {}
    if len(found.methods) > 1 and len(found.seeds) > 1:
        charts["differences.png"] = lambda: figures.differences(
            found.differences(), words
        )
    if _several(found):
        charts["front.png"] = lambda: found.chart()
    try:
        for name, chart in charts.items():
            chart().save(folder / name)
    except MissingExtraError as error:
        console.note(str(error))


def _several(found: Comparison) -> bool:
    return bool(found.table["trials"].max() > 1)


def _tell(found: Comparison) -> None:
    """Print means, costs, fronts and differences."""
    target, table = console.stdout(), found.table
    parts = [{**SHOWN, **COSTS}] if target.width >= WIDE else [SHOWN, COSTS]
    for titles in parts:
        rows = [
            {"method": str(m), **{t: _mean(row, n) for n, t in titles.items()}}
            for m, row in table.iterrows()
        ]
        target.print(_table(rows))
    target.print(
        "Test rows, mean ± standard error over seeds. Smaller is better everywhere. "
        f"{' '.join(found.terms)}"
    )
    if _several(found):
        _tell_front(found)
    if len(found.methods) > 1 and len(found.seeds) > 1:
        _tell_differences(found)
    failed = table["failed"]
    for method, reason in failed[failed != ""].items():
        target.print(f"{method} failed: {reason}", style="yellow")


def _tell_front(found: Comparison) -> None:
    names = [n for n in found.points.columns if "_" not in n or n == "multiplier_bound"]
    own = [n for n in names if n not in ("method", "seeds", "failed")]
    rows = [
        {"method": str(line["method"])}
        | {name: "-" if _absent(line[name]) else f"{line[name]}" for name in own}
        | {
            "error": f"{line['test_error']:.4f}",
            found.measure.replace("_", " "): f"{line[f'test_{found.measure}']:.4f}",
        }
        for line in found.front().head(MAX_ROWS).to_dict("records")
    ]
    title = "Fronts: chosen on validation rows, means on test rows"
    console.stdout().print(_table(rows, title=title))


def _tell_differences(found: Comparison) -> None:
    """Show paired differences, and what they show."""
    lines = found.differences().to_dict("records")
    rows = [
        {
            "method": str(line["method"]),
            "difference": _number(line["mean"]),
            "interval": f"{_number(line['low'], 3)} to {_number(line['high'], 3)}",
            "these data": str(line["word"]),
            "other people": str(line["population_word"]),
        }
        for line in lines
    ]
    title = f"{found.measure}: difference to {found.reference}, seed by seed"
    console.stdout().print(_table(rows, title=title))
    reasons = dict.fromkeys(line["reason"] for line in lines if line["reason"])
    for reason in reasons:
        console.stdout().print(f"No word: {reason}.")


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _number(value: Any, digits: int = 4) -> str:
    return "-" if _absent(value) else f"{value:+.{digits}f}"


def _described(constraint: Constraint) -> str:
    """Name a constraint, with what was set of it."""
    plain = dict(constraint.describe())
    kind = plain.pop("kind", constraint.name)
    told = [f"{name} {value}" for name, value in plain.items() if value is not None]
    return ", ".join([str(kind), *told])


def _mean(row: Any, name: str) -> str:
    """Write a mean and, for measures, its standard error."""
    value, error = row[name], row[f"{name}_se"]
    if math.isnan(value):
        return "-"
    if name in COSTS:
        shown = {"bytes": f"{value / 1e6:.2f}", "seconds": f"{value:.2f}"}
        return shown.get(name, f"{value:,.0f}")
    spread = "" if math.isnan(error) else f"±{error:.3f}".replace("0.", ".", 1)
    return f"{value:.3f}{spread}"


def _table(rows: Iterable[Mapping[str, str]], *, title: str | None = None) -> Table:
    """Lay out rows of text; methods stand left."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title)
    for row in rows:
        if not table.columns:
            for name in row:
                justify: Any = "left" if name == "method" else "right"
                table.add_column(name, justify=justify, no_wrap=True)
        table.add_row(*row.values())
    return table
