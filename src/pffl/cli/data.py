"""`pffl data`: which data there are, and what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console
from pffl.cli.options import COLUMNS, Draft, open_data, takes

if TYPE_CHECKING:
    from pffl.data import Federation

COLUMNS_HELP = "Write [columns] for private runs, from a public or made-up table."


@takes(
    *COLUMNS,
    "constraint",
    optional=True,
    unused="data.unseen model.* method.* run.* privacy.* policy.* about.*",
)
def data(
    draft: Draft | None,
    declare: Annotated[bool, typer.Option("--columns", help=COLUMNS_HELP)] = False,
) -> None:
    """List data sets; or fetch one, or look into a table: columns, groups, silos.

    Without DATA, the data sets there are. Of a table without --label and --group, what
    its columns hold; with them, rows by silo and group, and what gives the label away.

    Example: pffl data people.csv --label income --group sex --silo state
    """
    from pffl.cli import columns, counts

    if draft is None:
        from pffl.datasets import DATASETS

        described = {name: text for name, (_, text) in DATASETS.items()}
        console.stdout().print(counts.described(described))
        return
    given = draft.sections.get("data", {})
    path = given.get("path") if isinstance(given, Mapping) else None
    if isinstance(path, str) and not {"label", "group"} <= set(given):
        columns.show(console.stdout(), str(draft.base / path), given)
        return
    if "constraint" in draft.sections:  # it names groups here
        draft, _ = draft.with_a_bound()
    spec = draft.check()
    federation = open_data(spec.data)
    if declare:
        typer.echo(_declared(federation, spec.data.values))
        return
    counts.show(console.stdout(), federation, spec.constraint)


def _declared(federation: Federation, values: Mapping[str, object]) -> str:
    """Return [columns] as a run file has it."""
    from pffl.config import dumps
    from pffl.data.reading import read_table
    from pffl.data.table import declare
    from pffl.errors import UsageError

    if not isinstance(path := values.get("path"), str):
        raise UsageError("[needs-rows] --columns declares the columns of a table")
    silo = [str(values["silo"])] if "silo" in values else []
    columns = declare(read_table(path)[0], federation.encoding, *silo)
    text = "# declared from a public or made-up table: never from the private one"
    return f"{text}\n{dumps({'columns': columns})}"
