"""`pffl reproduce`: a figure of the paper, run again, with its claims checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import console
from pffl.cli.batch import batch_progress

if TYPE_CHECKING:
    from pffl.data import Federation
    from pffl.study.reproduce import PanelResult

VALIDATION = 0.2


def reproduce(
    figure: Annotated[
        str,
        typer.Argument(help="local-vs-global, tradeoff, parity, fedminmax or qffl."),
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
    budget: Annotated[
        int | None, typer.Option(min=1, help="Gradients per silo for each method.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=2, help="How many splits.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for results; an earlier run there is resumed."),
    ] = None,
) -> None:
    """Run a figure of the paper again and say which of its claims hold here.

    Example: pffl reproduce tradeoff --data compas
    """
    from pffl.errors import UsageError
    from pffl.study.reproduce import load, run_figure

    spec = load(figure)
    chosen = [
        p.name
        for p in spec.panels
        if (panel is None or p.name in panel)
        and (data is None or p.data.get("name") == data)
    ]
    if not chosen:
        names = [p.name for p in spec.panels]
        raise UsageError(f"'{figure}' has no such panel: there are {', '.join(names)}")
    folder = out or Path("runs") / f"reproduce-{figure}"
    with batch_progress() as report:
        results = run_figure(
            spec,
            partial(open_data, source=source),
            panels=chosen,
            budget=budget,
            seeds=seeds,
            out=folder,
            report=report,
        )
    for result in results:
        save(result, folder)
        console.stdout().print(markdown(result), markup=False, highlight=False)
    console.stdout().print(f"Saved in {folder}", soft_wrap=True)


def open_data(
    section: Mapping[str, Any], seed: int, source: str | None = None
) -> Federation:
    """Open a panel's data with another seed and a validation part."""
    from pffl.spec import parse

    extra: dict[str, Any] = {"seed": seed, "validation_fraction": VALIDATION}
    if source is not None:
        extra["source"] = source
    return parse({"data": {**section, **extra}}, source="spec").data.open()


def save(result: PanelResult, folder: Path) -> None:
    """Write a panel's table and figure."""
    from pffl.errors import MissingExtraError
    from pffl.reports import figures

    name = result.panel.name
    result.table.to_csv(folder / f"{name}.csv", index=False)
    (folder / f"{name}.md").write_text(markdown(result) + "\n", encoding="utf-8")
    try:
        axes = figures.curves(result.table, y=result.panel.measures[0])
        figures.save(axes, str(folder / f"{name}.png"))
    except MissingExtraError as error:
        console.note(str(error))


def markdown(result: PanelResult) -> str:
    """What was measured, claim by claim, as a Markdown table."""
    lines = [f"### {result.panel.name}", ""]
    for checked in result.checked:
        claim = checked.claim
        lines += [
            f"Claim: {claim.text}",
            "",
            f"| curve | {claim.measure} (test) | error (test) | the claim |",
            "|---|---|---|---|",
        ]
        lines += [
            _line(label, checked.chosen, checked.outcomes) for label in checked.chosen
        ]
        lines.append("")
    return "\n".join(lines)


def _line(
    label: str,
    chosen: Mapping[str, Sequence[float]],
    outcomes: Mapping[str, str],
) -> str:
    mean, spread, error = chosen[label]
    return (
        f"| {label} | {mean:.4f} ± {spread:.4f} | {error:.4f} | "
        f"{outcomes.get(label, '')} |"
    )
