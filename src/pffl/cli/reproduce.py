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
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes that train, some seeds each.")
    ] = 1,
    share: Annotated[str, typer.Option(hidden=True, metavar="K/N")] = "",
) -> None:
    """Run figures of the paper again and say which of its claims hold here.

    Example: pffl reproduce all --data compas --jobs 2 --publish reproduction
    """
    from pffl.progress import counted
    from pffl.study import published, shares
    from pffl.study.reproduce import FIGURES, load, run_figure

    specs = [load(name) for name in (FIGURES if figure == "all" else [figure])]
    wanted = [(spec, _panels(spec, panel, data, figure == "all")) for spec in specs]
    if not any(names for _, names in wanted):
        raise UsageError("[unknown-panel] no figure has such a panel")
    folder = out or Path("runs") / "reproduce"
    if jobs > 1:
        given: dict[str, Sequence[object]] = {
            "--data": [data],
            "--source": [source],
            "--budget": [budget],
            "--seeds": [seeds],
            "--vary": [vary or None],
            "--panel": panel or [],
        }
        asked = [
            word
            for key, values in given.items()
            for value in values
            if value is not None
            for word in (key, str(value))
        ]
        shares.train(["reproduce", figure, *asked], jobs, folder)
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
                    share=_share(share),
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
    if share:
        return
    console.show(f"Saved in {folder}")
    if publish is not None:
        console.show(f"Published in {publish}")


def _share(text: str) -> tuple[int, int] | None:
    """Read ``2/3``, the second of three shares of the seeds."""
    if not text:
        return None
    k, n = (int(part) for part in text.split("/"))
    return k, n


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
