"""`pffl card`: the model card of a run or an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pffl.cli import console


def card(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of `pffl run` or `audit`.")
    ],
    purpose: Annotated[
        str | None, typer.Option(help="What the model is to be used for.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Who answers for it.")] = None,
    date: Annotated[
        str | None, typer.Option(help="Its date.", metavar="YEAR-MONTH-DAY")
    ] = None,
    contact: Annotated[str | None, typer.Option(help="How to reach the owner.")] = None,
    license: Annotated[
        str | None,
        typer.Option(help="Under which others may use it, such as apache-2.0."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Also write it here, as README.md, say."),
    ] = None,
) -> None:
    """Write the model card: Markdown, with the YAML header that model hubs read.

    What is stated here is kept in DIR, in its evidence, certificate, page and run
    file; nothing that was measured changes.

    Example: pffl card runs/compas-001 --owner 'Unit 7' --purpose 'Triage of …'
    """
    from pffl.evidence.record import About
    from pffl.files import read, write
    from pffl.reports.card import missing_of
    from pffl.running import describe
    from pffl.runs.directory import CARD

    evidence = describe(directory, About(purpose, owner, date, contact, license))
    if out is not None:
        write(out, read(directory / CARD))
    console.show(f"Card: {directory / CARD if out is None else out}")
    missing = missing_of(evidence)
    if missing:
        options = " ".join(f"--{key} …" for key in missing)
        console.note(
            f"the card says 'not stated' of {', '.join(missing)}: "
            f"pffl card '{directory}' {options}"
        )
