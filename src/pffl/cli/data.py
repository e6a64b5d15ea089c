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
COLUMNS_HELP = (
    "Write [columns] for private runs on tables like this one, which is public or made "
    "up."
)
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
@takes("data", "constraint", without="unseen columns")
def info(
    draft: Draft,
    declare: Annotated[bool, typer.Option("--columns", help=COLUMNS_HELP)] = False,
) -> None:
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
    if declare:
        typer.echo(_declared(federation, spec.data.values))
        return
    counts.show(console.stdout(), federation, spec.constraint)


def _declared(federation: Federation, values: Mapping[str, object]) -> str:
    """Return [columns] as a run file has it."""
    from pffl.data.declared import declare
    from pffl.data.reading import read_table
    from pffl.errors import UsageError
    from pffl.spec import dumps

    if not isinstance(path := values.get("path"), str):
        raise UsageError("[needs-rows] --columns declares the columns of a table")
    silo = [str(values["silo"])] if "silo" in values else []
    columns = declare(read_table(path)[0], federation.encoding, *silo)
    text = "# declared from a public or made-up table: never from the private one"
    return f"{text}\n{dumps({'columns': columns})}"


def _ready(federation: Federation) -> str:
    rows = sum(federation.rows(split) for split in federation.splits)
    kind = "generated, nothing to download" if federation.synthetic else "ready"
    return f"{federation.name}: {rows:,} rows, {kind}"
