"""`pffl reproduce`: the figures of the paper, and the page of its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import console
from pffl.cli.options import listed
from pffl.cli.study import VALIDATION, Budget, Out, Vary, draw, drawn_from
from pffl.errors import UsageError

if TYPE_CHECKING:
    from pffl.data import Federation
    from pffl.study.experiment import Seeds


def reproduce(
    figure: Annotated[
        str,
        typer.Argument(
            help="local-vs-global, tradeoff, parity, fedminmax, qffl; or all."
        ),
    ],
    panel: Annotated[
        list[str] | None,
        typer.Option("--panel", help="Only this panel; may be repeated."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Only panels on this data set.", metavar="NAME")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="File or folder that holds the data.", metavar="PATH"),
    ] = None,
    budget: Budget = None,
    seeds: Annotated[int | None, typer.Option(min=2, help="How many splits.")] = None,
    vary: Vary = "",
    publish: Annotated[
        Path | None,
        typer.Option(help="Write records, pictures and pages here.", metavar="DIR"),
    ] = None,
    out: Out = None,
) -> None:
    """Run figures of the paper again and say which of its claims hold here.

    Example: pffl reproduce all --data compas --publish reproduction
    """
    from pffl.progress import counted
    from pffl.study import published
    from pffl.study.reproduce import FIGURES, load, run_figure

    specs = [load(name) for name in (FIGURES if figure == "all" else [figure])]
    wanted = [(spec, _panels(spec, panel, data, figure == "all")) for spec in specs]
    if not any(names for _, names in wanted):
        raise UsageError("no figure has such a panel")
    folder = out or Path("runs") / "reproduce"
    for spec, names in wanted:
        for name in names:
            with counted("point") as report:
                results = run_figure(
                    spec,
                    lambda section, seeds: open_panel(section, seeds, source),
                    panels=[name],
                    budget=budget,
                    seeds=seeds,
                    vary=listed(vary),
                    out=folder,
                    report=report,
                )
            for result in results:
                result.save(folder)
                record = result.as_dict()
                for ending, chart in published.charts(record).items():
                    draw(folder / f"{result.panel.name}{ending}.svg", chart)
                lines = published.panel_part(record)
                console.stdout().print("\n".join(lines), markup=False)
            if publish is not None:
                published.publish(results, publish)
    console.show(f"Saved in {folder}")
    if publish is not None:
        console.show(f"Published in {publish}")


def _panels(
    spec: Any, panel: Sequence[str] | None, data: str | None, several: bool
) -> list[str]:
    """Names of the panels asked for; of several figures, some may have none."""
    try:
        names: list[str] = spec.names(panel, data)
    except UsageError:
        if not several:
            raise
        return []
    return names


def open_panel(
    section: Mapping[str, Any], seeds: Seeds, source: str | None
) -> Federation:
    """Open a panel's data with other seeds and a validation part."""
    from pffl.spec import parse

    extra: dict[str, Any] = {"validation_fraction": VALIDATION, **drawn_from(seeds)}
    if source is not None:
        extra["source"] = source
    return parse({"data": {**section, **extra}}, source="spec").data.open()
