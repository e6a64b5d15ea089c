"""`pffl sweep`, `compare`, `report`: many runs, and one page of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pffl.cli import console
from pffl.cli.options import Draft, listed, takes
from pffl.errors import MissingExtraError, NotMetError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from pffl.constraints import Constraint
    from pffl.data import Federation
    from pffl.figures import Chart
    from pffl.spec import Job
    from pffl.study.compare import Comparison
    from pffl.study.experiment import Seeds
    from pffl.study.seeded import SeededSweep
    from pffl.study.sweep import Sweep

MULTIPLIER_BOUNDS = "1,10,100"
VALIDATION = 0.2
MOST_ROWS = 12
SHOWN = {
    "error": "error",
    "risk": "risk",
    "worst_cell_loss": "worst loss",
    "dp_gap": "ΔDP",
    "eo_gap": "ΔEO",
}
COSTS = {"rounds": "rounds", "passes": "passes", "bytes": "MB", "seconds": "s"}
ENDS = ("low", "high")
WIDE = 116  # columns that both halves of a comparison need

Out = Annotated[
    Path | None,
    typer.Option(help="Folder for results; an earlier run there is resumed."),
]
Vary = Annotated[
    str,
    typer.Option(
        help="Draws that differ between seeds: silos, split, training. Default: all.",
        metavar="LIST",
    ),
]
Budget = Annotated[
    int | None, typer.Option(min=1, help="Gradients per silo for each method.")
]


@takes(
    "data",
    "method",
    "model",
    "run",
    without="unseen engine error-at-most reach promise models",
)
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
    seeds: Annotated[
        int, typer.Option(min=1, help="How many splits; with more than one, bands.")
    ] = 1,
    vary: Vary = "",
    out: Out = None,
) -> None:
    """Train a grid of points and show which are worth choosing from.

    Example: pffl sweep compas --grid paper --notions bgl,cbgl-y1,cbgl-y0
    """
    from pffl.progress import counted
    from pffl.spec import merge
    from pffl.study.seeded import sweep_seeds
    from pffl.study.sweep import make_grid
    from pffl.study.sweep import sweep as run

    sections = merge({"data": {"validation_fraction": VALIDATION}}, draft.sections)
    job = replace(draft, sections=sections).build()
    folder = out or Path("runs") / f"sweep-{job.source.name}"
    chosen = make_grid(
        grid,
        job.federation,
        notions=listed(notions),
        bounds=None if bounds is None else _numbers(bounds),
        multiplier_bounds=_numbers(multiplier_bounds),
        number=points,
        model=job.model,
        seed=job.seed or 0,
    )
    trained = [job.method, *_methods(listed(methods))]
    shared: Any = {"model": job.model, "options": job.options, "out": folder}
    if seeds > 1:
        draws = Draws(replace(draft, sections=sections), listed(vary), validation=True)
        with counted("point") as report:
            several = sweep_seeds(
                draws.load,
                chosen,
                methods=trained,
                seeds=seeds,
                training=draws.training,
                report=report,
                **shared,
            )
        _tell_seeds(several, front_on, folder)
        return
    with counted("point") as report:
        seed = job.seed or 0
        found = run(
            job.federation, chosen, method=trained, seed=seed, report=report, **shared
        )
    if not (folder / "sweep.parquet").exists():
        console.note("sweep.parquet was left out: it needs the extra 'parquet'")
    _tell_sweep(found, front_on)
    console.show(f"Saved in {folder}")
    if found.trained.empty:
        raise NotMetError("[all-failed] every point failed; see points.jsonl")


def _tell_seeds(found: Sequence[SeededSweep], front_on: Any, folder: Path) -> None:
    """Show fronts over seeds, and draw them."""
    target = console.stdout()
    for one in found:
        front = one.front(chosen_on=front_on)
        rows = [
            {
                "method": str(p["curve"]),
                "error allowed": f"+{p['allowance']:.3f}",
                "error": f"{p['error']:.3f}",
                "worst loss": f"{p['worst_cell_loss']:.4f}",
                "95 %": " to ".join(f"{p[f'worst_cell_loss_{e}']:.4f}" for e in ENDS),
            }
            for p in front.to_dict("records")
        ]
        target.print(_table(rows, title=f"{one.notion}: front over seeds"))
        target.print(" ".join(one.study.terms))
        draw(folder / f"front-{one.notion}.svg", one.chart())
    target.print(f"The front is chosen on {front_on} rows; figures are of test rows.")
    console.show(f"Saved in {folder}")


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in listed(text)]
    except ValueError as error:
        raise UsageError(f"not a list of numbers: {text!r}") from error


def _methods(names: Sequence[str]) -> list[Any]:
    """Return methods by name, with their defaults."""
    from pffl.methods import METHODS

    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise UsageError(
            f"[unknown-method] no methods {unknown}: there are {sorted(METHODS)}"
        )
    return [METHODS[name]() for name in names]


def _tell_sweep(found: Sweep, front_on: str) -> None:
    target, table = console.stdout(), found.trained
    for notion in dict.fromkeys(map(str, table["notion"])):
        front = found.front(notion=notion, chosen_on=front_on)
        several = table["method"].nunique() > 1
        rows = [_point(row, several) for _, row in front.head(MOST_ROWS).iterrows()]
        shown = _table(rows, title=f"{notion}: Pareto front")
        if len(front) > MOST_ROWS:
            shown.caption = f"and {len(front) - MOST_ROWS} more in sweep.csv"
        target.print(shown)
    failed = len(found.rows) - len(table)
    counts = ", ".join(f"{n} {s}" for s, n in table["status"].value_counts().items())
    more = f", {failed} failed" if failed else ""
    target.print(f"{len(found.rows)} points: {counts}{more}")
    known = "test_worst_high" in table
    target.print(
        f"The front is chosen on {front_on} rows; figures are of test rows"
        f"{'; their intervals are in sweep.csv' if known else ''}."
    )


def _point(row: Any, several: bool) -> dict[str, str]:
    error = f"{row['test_error']:.3f}"
    if "test_error_low" in row and not several:
        error += f" ({row['test_error_low']:.3f}-{row['test_error_high']:.3f})"
    return {
        **({"method": str(row["method"])} if several else {}),
        "bound": f"{row['bound']:g}",
        "B": f"{row['multiplier_bound']:g}",
        "status": str(row["status"]),
        "error": error,
        "worst loss": f"{row['test_worst_cell_loss']:.3f}",
        "ΔDP": f"{row['test_dp_gap']:.3f}",
        "ΔEO": f"{row['test_eo_gap']:.3f}",
    }


@takes(
    "data",
    "constraint",
    "model",
    "run",
    without="unseen engine reach promise models",
)
def compare(
    draft: Draft,
    methods: Annotated[
        str | None,
        typer.Option(help="Names, separated by commas. Default: all.", metavar="LIST"),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="How many. Default: 10; 3 from 100,000 rows on."),
    ] = None,
    vary: Vary = "",
    tune: Annotated[
        bool, typer.Option("--tune", help="Tune each method on a validation part.")
    ] = False,
    trials: Annotated[
        int, typer.Option(min=8, help="With --tune: points that each method tries.")
    ] = 12,
    measure: Annotated[
        str, typer.Option(help="What trials are chosen by, and judged by.")
    ] = "worst_cell_loss",
    within: Annotated[
        float, typer.Option(min=0.0, help="Error above the smallest that is allowed.")
    ] = 0.01,
    least_people: Annotated[
        int, typer.Option(min=1, help="People that a cell needs to be the worst.")
    ] = 30,
    budget: Budget = None,
    out: Out = None,
    json: Annotated[bool, typer.Option("--json", help="Print rows as JSON.")] = False,
) -> None:
    """Train every method on the same splits, with the same model and budget.

    Without --bound, the bound is a little above the smallest that is possible.

    Example: pffl compare compas --seeds 3
    """
    from pffl import figures
    from pffl.progress import counted
    from pffl.study.compare import BUDGET, known_methods
    from pffl.study.compare import compare as run
    from pffl.study.trial import MEASURES

    # What is wrong is said before data are opened.
    names = known_methods(None if methods is None else listed(methods))
    if measure not in MEASURES:
        raise UsageError(
            f"[unknown-measure] no measure '{measure}': there are {', '.join(MEASURES)}"
        )
    draws = Draws(draft, listed(vary), validation=tune)
    job, constraint = _bounded(draft)
    folder = out or Path("runs") / f"compare-{job.source.name}"
    with counted("run") as report:
        found = run(
            draws.load,
            constraint,
            methods=names,
            model=job.model,
            options=job.options,
            budget=budget or BUDGET,
            seeds=seeds,
            training=draws.training,
            trials=trials if tune else 0,
            measure=measure,
            within=within,
            least_people=least_people,
            out=folder,
            report=report,
        )
    words = f"{measure} on test rows: difference to {found.reference}"
    table = found.differences(measure)
    draw(folder / "figure.png", figures.differences(table, words))
    if json:
        console.print_json(found.as_dict())
    else:
        _tell_comparison(found, constraint)
        console.show(f"Saved in {folder}")


def _bounded(draft: Draft) -> tuple[Job[Federation], Constraint]:
    """Open the job; where no bound is given, take one just above the smallest."""
    from pffl.study.compare import settled
    from pffl.study.sweep import smallest_bound

    given, bounded = draft.with_a_bound(minimax=True)
    job = given.build()
    constraint = job.constraint
    if constraint is not None and not bounded:
        least = smallest_bound(job.federation, constraint, model=job.model)
        section = {**given.sections["constraint"], "bound": least}
        sections = {**draft.sections, "constraint": section}
        constraint = replace(draft, sections=sections).check().constraint
    if constraint is None:
        raise UsageError("[needs-constraint] a comparison needs a constraint")
    seed = job.seed or 0
    known = settled(constraint, job.federation, job.model, job.options, seed)
    return replace(job, options=known[1]), known[0]


class Draws:
    """Opens the data of a replicate: other silos, another split, as asked."""

    def __init__(self, draft: Draft, vary: Sequence[str], *, validation: bool) -> None:
        from pffl.study.experiment import Seeds

        self._draft, self._vary, self._validation = draft, vary, validation
        Seeds.of(0, vary)  # which refuses what does not exist
        self.training = None if not vary or "training" in vary else 0

    def load(self, number: int) -> Federation:
        """Open the data of one replicate."""
        from pffl.study.experiment import Seeds

        section = dict(self._draft.sections.get("data", {}))
        if self._validation:
            section.setdefault("validation_fraction", VALIDATION)
        section |= drawn_from(Seeds.of(number, self._vary))
        return replace(self._draft, sections={"data": section}).check().data.open()


def drawn_from(seeds: Seeds) -> dict[str, int]:
    """The seeds of a [data] section."""
    if seeds.silos == seeds.split:
        return {"seed": seeds.silos}
    return {"seed": seeds.silos, "split_seed": seeds.split}


def _tell_comparison(found: Comparison, constraint: Constraint) -> None:
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
        f"Constraint: {_described(constraint)}. {' '.join(found.study.terms)}"
    )
    _tell_differences(found)
    failed = table["failed"]
    for method, reason in failed[failed != ""].items():
        target.print(f"{method} failed: {reason}", style="yellow")


def _tell_differences(found: Comparison) -> None:
    """Show paired differences, and what they show."""
    measure = found.study.measure
    rows = [
        {
            "method": str(line["method"]),
            "difference": _number(line["mean"]),
            "95 %": f"{_number(line['low'])} to {_number(line['high'])}",
            "p (Holm)": "-" if _absent(line["p"]) else f"{line['p']:.3f}",
            "": str(line["verdict"]),
        }
        for line in found.differences(measure).to_dict("records")
    ]
    if rows:
        title = f"{measure}: difference to {found.reference}, seed by seed"
        console.stdout().print(_table(rows, title=title))


def _absent(value: Any) -> bool:
    return value is None or math.isnan(value)


def _number(value: Any) -> str:
    return "-" if _absent(value) else f"{value:+.4f}"


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


def draw(path: Path, chart: Chart) -> None:
    """Write a figure where its extra is installed."""
    try:
        chart.save(path)
    except MissingExtraError as error:
        console.note(str(error))


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs, audits, sweeps, comparisons or reproductions; files "
            "of monitors."
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
