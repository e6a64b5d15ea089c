"""`pffl compare` and `reproduce`: many trainings; `pffl report`: what they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pffl.cli import options, terminal
from pffl.cli.options import COLUMNS, Draft, argument, flag, listed, option, takes
from pffl.errors import UsageError

if TYPE_CHECKING:
    from pffl.data import Federation
    from pffl.experiments import Comparison

VALIDATION = 0.2
WORST = "worst_cell_loss"
MAX_POINTS = 20  # of a front that is printed
OUT = option("Folder; what is there is resumed.")
JOBS = option("Processes (1).", "N", default=1, min=1)


@takes(
    *COLUMNS,
    *("constraint", "bound", "model"),
    unused="data.seed method.* privacy.* policy.* about.* run.engine "
    "run.certify run.selection_rate run.models run.smallest_bound run.seed",
)
def compare(
    draft: Draft,
    methods: str | None = option("With commas. Default: all.", "LIST"),
    grid: list[str] | None = option("Values to try, in all combinations.", "KEY=LIST"),
    trials: int = option("Points of each search space (0).", "N", default=0, min=0),
    seeds: int = option("How many splits (30).", "N", default=30, min=1),
    measure: str = option(f"To judge by ({WORST}).", "NAME", default=WORST),
    budget: int = option("Gradients per silo (1500).", "N", default=1500, min=1),
    jobs: int = JOBS,
    out: Path | None = OUT,
    json: bool = options.JSON,
) -> None:
    """Train methods, or a grid of bounds, on the same splits and compare them.

    Without --bound, one is chosen. Words (better, worse, same) need 29 seeds.

    Example: pffl compare compas --methods fedavg,exact --grid bound=0.6,0.65,0.7
    """
    from pffl.experiments import compare as run
    from pffl.progress import Progress

    values = _grid(grid or [])
    given, bounded = draft.with_a_bound(minimax=True)
    if not bounded and "bound" not in values:
        given = given.where("constraint.bound", "auto")
    job = given.build()
    if (constraint := job.spec.constraint) is None:
        raise UsageError("needs-constraint:compare")
    folder = out or Path("runs") / f"compare-{job.spec.data.name}"
    validation = bool(values) or trials > 0
    with Progress("seed") as report:
        found = run(
            Seeded(draft.sections, draft.source, draft.base, validation),
            constraint,
            methods=None if methods is None else listed(methods),
            grid=values or None,
            trials=trials,
            seeds=seeds,
            model=job.model,
            options=job.spec.options,
            budget=budget,
            measure=measure,
            jobs=jobs,
            out=folder,
            report=report,
        )
    if json:
        terminal.print_json(found.as_dict())
        return
    _show_comparison(found)
    terminal.show(f"Saved in {folder}; its page: pffl report {folder}")


def reproduce(
    figure: str = argument("FIGURE", "A figure of the paper; or list."),
    data: str | None = option("Only panels on this data set.", "NAME"),
    source: str | None = option("File or folder that holds the data.", "PATH"),
    seeds: int | None = option("How many splits.", min=1),
    jobs: int = JOBS,
    out: Path | None = OUT,
) -> None:
    """Run a figure of the paper again, in short.

    The full study, with its figures and answers, is in reproduction/ of a checkout.

    Example: pffl reproduce tradeoff --data compas
    """
    from pffl.experiments import figures
    from pffl.experiments import reproduce as run
    from pffl.progress import Progress

    if figure == "list":
        terminal.show(*(f"{name}: {spec['paper']}" for name, spec in figures().items()))
        return

    def opened(section: Mapping[str, Any]) -> Seeded:
        extra = {} if source is None else {"source": source}
        return Seeded({"data": {**section, **extra}}, "spec", Path(), True)

    folder = out or Path("runs") / "reproduce" / figure
    with Progress("seed") as report:
        found = run(
            figure, opened, data=data, seeds=seeds, jobs=jobs, out=folder, report=report
        )
    terminal.show(figures()[figure]["paper"])
    for name, panel in found.items():
        terminal.show("", name)
        _show_comparison(panel)
    terminal.show(f"Saved in {folder}; its page: pffl report {folder}")


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
    """Read ``key=value,value``; values as in a run file."""
    from pffl.config import parse_setting

    out: dict[str, list[Any]] = {}
    for text in texts:
        key, _, values = text.partition("=")
        if not (key and values):
            raise UsageError("wrong-setting:grid", text=text)
        out[key.strip()] = [parse_setting(f"it={one}")["it"] for one in listed(values)]
    return out


def _show_comparison(found: Comparison) -> None:
    """Print means, costs, fronts and differences, as the page has them."""
    from pffl._report.page import ComparisonView
    from pffl.figures import measure_name

    view = ComparisonView("", found)
    terminal.print_rows(view.means.rows)
    terminal.show(
        "",
        "Test rows, mean ± standard error over seeds. Smaller is better everywhere. "
        f"{' '.join(found.terms)}",
    )
    if view.front is not None:
        terminal.show("", "Fronts: chosen on validation rows, means on test rows")
        own = dict.fromkeys(key for r in found.records for key in r.parameters)
        shown = ["method", *own, "test_error", f"test_{found.measure}"]
        points: Any = found.front()[shown].astype(object)
        points = points.where(points.notna(), "–")
        named = {f"test_{key}": measure_name(key) for key in ("error", found.measure)}
        rows = points.rename(columns=named).head(MAX_POINTS)
        terminal.print_rows(rows.to_dict("records"))
    for _, grid in view.differences if len(found.seeds) > 1 else ():
        terminal.show("", grid.about)
        terminal.print_rows(grid.rows)
    terminal.show(*found.failures)


def report(
    subject: Path = argument("RUN", "A run, audit, comparison; or monitor.json."),
    out: Path | None = option("Default: report.html, or card.md.", None, "--out", "-o"),
    card: bool = flag("The model card (Markdown).", "--card"),
    settings: list[str] | None = option(
        "With --card: about.owner, purpose, date, …", "KEY=VALUE", "--set"
    ),
) -> None:
    """Write one self-contained page that opens without a network; or a model card.

    What a card states beside the run's own facts does not change the run.

    Example: pffl report runs/compas-001 --card --set about.owner='Unit 7'
    """
    from pffl._report.card import card as write_card
    from pffl._report.page import report as write_page
    from pffl.config import stated

    if settings and not card:
        raise UsageError("no-effect:report")
    place = out or Path("card.md" if card else "report.html")
    if card:
        write_card(subject, out=place, **vars(stated(settings or [])))
    else:
        write_page(subject, out=place)
    terminal.show(f"{'Card' if card else 'Report'}: {place}")
