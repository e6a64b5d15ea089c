"""`pffl plan`: before training, whether a promise for people not seen can be made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console
from pffl.cli.options import Draft, takes
from pffl.errors import UsageError

if TYPE_CHECKING:
    from pffl.planning import PromisePlan


@takes(
    "data",
    "constraint",
    "method",
    "model",
    "run",
    "privacy",
    without="unseen engine error-at-most reach promise models",
)
def plan(
    draft: Draft,
    json: Annotated[
        bool, typer.Option("--json", help="Print the forecast as JSON, nothing else.")
    ] = False,
) -> None:
    """Forecast, before training, whether bounds can be promised for people not seen.

    Per cell: the rows that there are, and those that a promise needs; the best split
    into training and calibration rows; what a larger confidence costs. It looks at
    training rows that stay training rows, and at no held-out row. Nothing is saved.

    With --epsilon instead what a run with noise would release, and what the noise costs
    cells of any size; it looks at names and types of columns, and at no row.

    Example: pffl plan compas --constraint cbgl --bound 0.8 --confidence 0.95
    """
    from pffl.planning import plan as forecast
    from pffl.progress import counted

    if draft.check().privacy.terms is not None:
        _show_releases(draft, json=json)
        return
    given, bounded = draft.with_a_bound()
    if not bounded:
        raise UsageError(
            "[needs-bound] a promise is that people stay within bounds: --bound NUMBER"
        )
    job = given.build()
    seed = job.source.values.get("seed", 0)
    with counted("fold") as report:
        found = forecast(
            job.federation,
            job.constraint,
            confidence=job.options.confidence,
            model=job.model,
            method=job.method,
            options=job.options,
            seed=seed if isinstance(seed, int) else 0,
            report=report,
        )
    if json:
        console.print_json(found.as_dict())
        return
    _show(found, seed)


def _show_releases(draft: Draft, *, json: bool) -> None:
    """Show the plan of a run with noise, before anything is released."""
    from pffl.cli import show
    from pffl.cli.options import build
    from pffl.solving import noise_forecast

    spec = draft.check()
    job = build(spec)
    terms = spec.privacy.terms
    if terms is None:
        raise UsageError("[needs-epsilon] a plan of releases needs a budget: --epsilon")
    lines, rows = noise_forecast(
        job.federation,
        job.constraint,
        model=job.model,
        method=job.method,
        options=job.options,
        privacy=terms,
        secure_sum=bool(spec.privacy.secure_sum),
    )
    if json:
        console.print_json({"releases": lines, "margins": rows})
        return
    target = console.stdout()
    for line in lines:
        target.print(line, soft_wrap=True)
    target.print()
    show.print_whole(target, show.text_rows(rows, target.width))
    target.print(
        "margin: what noise adds to the mean training loss of a cell of so many "
        "people, all cells together, "
        f"{100 * job.options.confidence:.4g} % sure; ε for … of room: the smallest at "
        "which a cell so far below its bound is shown to be",
        soft_wrap=True,
    )


def _show(found: PromisePlan, seed: object) -> None:
    from rich.text import Text

    from pffl.cli import show
    from pffl.text import visible

    for note in found.notes:
        console.note(note)
    target = console.stdout()
    for rows in found.tables:
        target.print()
        show.print_whole(target, show.text_rows(rows, target.width))
    target.print()
    for text in found.sentences:
        target.print(Text(visible(text)))
    share = found.best.calibration
    if share is not None and not (found.unknown or found.hopeless):
        target.print(
            f"To take it: pffl run … --promise unseen --calibration-fraction {share:g} "
            f"--seed {seed}",
            soft_wrap=True,
        )
