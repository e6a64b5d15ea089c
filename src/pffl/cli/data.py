"""`pffl data`: which data there are, and what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console
from pffl.cli.options import Draft, open_data, takes

if TYPE_CHECKING:
    from pffl.data import Federation

app = typer.Typer(no_args_is_help=True, help="List, fetch and look into data.")

FETCH_HELP = "Which part of it, such as data.year=2018."
Name = Annotated[str, typer.Argument(help="A data set, as in `pffl data list`.")]


@app.command("list")
def list_data() -> None:
    """List the data sets that `pffl` knows."""
    from pffl.cli import counts
    from pffl.datasets import DATASETS

    described = {name: text for name, (_, text) in DATASETS.items()}
    console.stdout().print(counts.described(described))


@app.command()
def fetch(
    name: Name,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help=FETCH_HELP, metavar="KEY=VALUE"),
    ] = None,
) -> None:
    """Download a data set, check it, and keep it in the cache.

    Example: pffl data fetch acs --set data.year=2018 --set 'data.states=["CA"]'
    """
    federation = open_data(Draft.of(name, {}, settings or ()).check().data)
    console.show(_ready(federation))


@app.command()
@takes("data", "constraint", without="unseen")
def info(draft: Draft) -> None:
    """Say what data hold: columns of a file; rows per silo and group, empty cells.

    With label and group also how much each column by itself tells of them.

    Example: pffl data info people.csv --label income --group sex --silo state
    """
    from pffl.cli import columns, counts

    given = draft.sections.get("data", {})
    path = given.get("path") if isinstance(given, Mapping) else None
    if isinstance(path, str) and not {"label", "group"} <= set(given):
        columns.show(console.stdout(), str(draft.base / path), given)
        return
    spec = draft.check()
    federation = open_data(spec.data)
    counts.show(console.stdout(), federation, spec.constraint)


def _ready(federation: Federation) -> str:
    rows = sum(federation.rows(split) for split in federation.splits)
    kind = "generated, nothing to download" if federation.synthetic else "ready"
    return f"{federation.name}: {rows:,} rows, {kind}"
