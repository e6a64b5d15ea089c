"""`pffl feasible`: the smallest bounds that can be met, before any training."""

from __future__ import annotations

from typing import Annotated

import typer

from pffl.cli import console
from pffl.cli.options import Draft, takes


@takes("data", "constraint", "model", "run")
def feasible(
    draft: Draft,
    cell: Annotated[
        list[str] | None,
        typer.Option(help="Only this cell; may be repeated.", metavar="CELL"),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, nothing else.")
    ] = False,
) -> None:
    """Find the smallest bounds that any model can meet; nothing is trained or saved.

    First the smallest bound for all cells together, then how low the bound of each
    cell could go with the others at that value, or at --bound. Ends with exit code 4
    if the bounds given cannot be met.

    Example: pffl feasible compas --bound 0.61
    """
    from rich.text import Text

    from pffl.cli import show
    from pffl.feasibility import feasible as search

    draft, bounded = draft.with_a_bound()
    job = draft.build()
    found = search(
        job.federation,
        job.constraint,
        promise=bounded,
        cells=cell or (),
        model=job.model,
        engine=job.engine,
        options=job.options,
    )
    if json:
        console.print_json(found.as_dict())
        raise typer.Exit(4 if found.impossible else 0)
    for note in found.notes:
        console.note(note)
    target = console.stdout()
    target.print()
    target.print(Text(console.clean(found.sentence)))
    if found.verdict:
        style = "bold red" if found.impossible else "bold green"
        target.print(Text(found.verdict, style=style))
    if found.cells:
        target.print(show.figures(found.table))
    elif found.left:
        target.print(f"{found.left:,} cells: name those to look at with --cell")
    raise typer.Exit(4 if found.impossible else 0)
