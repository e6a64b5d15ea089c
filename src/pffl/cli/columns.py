"""What a file holds, before anybody has said what is predicted: a line per column.

Below the table: what is odd about it, what the columns may be, and the next command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from pffl.cli.options import in_options
from pffl.cli.show import LONGEST_TITLE, name, plain_table, print_whole, remarks
from pffl.text import few, shorten, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from pffl.data.inference import Distinct, Inference
    from pffl.data.roles import Roles

EXAMPLES, LONGEST_EXAMPLE = 3, 16
MOST_COLUMNS, MOST_SAID = 200, 10
FEW = 20  # values of a column that may be a label, a group or a silo
DATES, PROSE = "dates", "free text"
PLAIN = ("numbers", "numbers, few values", "categories", "text")
ROLES = {
    "label": "what is predicted (--label)",
    "group": "who is protected (--group)",
    "silo": "where a row lives (--silo)",
    "id": "whom it is about (--id)",
}


def show(console: Console, path: str, options: Mapping[str, object]) -> None:
    """Show the columns of a file, what they may be, and what to say to learn more.

    Parameters
    ----------
    console
        Where to show them.
    path
        The file.
    options
        Of the section [data], as far as they are known.
    """
    from pffl.data.inference import Distinct
    from pffl.data.reading import read_table
    from pffl.data.roles import Roles

    frame, notes = read_table(path)
    columns = {str(n): Distinct(frame[n]) for n in list(frame.columns)[:MOST_COLUMNS]}
    inferred = {n: _inferred(n, found, path) for n, found in columns.items()}
    kinds = {n: _kind(found, inferred[n]) for n, found in columns.items()}
    console.print()
    console.print(Text(shorten(visible(Path(path).name), LONGEST_TITLE), "bold"))
    size = f"{len(frame):,} rows, {len(frame.columns):,} columns"
    console.print(remarks([size, *notes]))
    console.print()
    table = _table(console.width)
    for title, found in columns.items():
        table.add_row(*_row(title, found, kinds[title]))
    left = len(frame.columns) - MOST_COLUMNS
    if left > 0:
        table.add_row(Text(f"{left:,} more"), "", "", "", Text(""))
    print_whole(console, table)
    console.print()
    said = [text for one in inferred.values() for text in _said(one)]
    more = [f"and {len(said) - MOST_SAID} more"] if len(said) > MOST_SAID else []
    roles = Roles.of({n: found for n, found in columns.items() if kinds[n] in PLAIN})
    console.print(remarks([*said[:MOST_SAID], *more, *_guesses(roles)]))
    console.print()
    words = [w for key, value in options.items() for w in _option(key, value)]
    words += roles.as_options(options)
    if DATES in kinds.values():
        words += ["--set", "data.dates=age"]
    for one in inferred.values():
        words += [word for text in one.warnings for word in _hashed(text)]
    if frame.isna().to_numpy().any():
        words += ["--missing", "indicator"]
    console.print(Text("Next, with what you mean:"))
    command = shlex.join(["pffl", "data", path, *words])
    console.print(Text(f"  {visible(command)}", "bold"), soft_wrap=True)


def _inferred(title: str, found: Distinct, path: str) -> Inference:
    from pffl.data.inference import Inference
    from pffl.data.reading import place_of
    from pffl.data.table import ColumnOptions
    from pffl.errors import DataError, Problems

    options = ColumnOptions(label="", group="", missing="indicator")
    problems = Problems("column", DataError)
    one = Inference(options, problems, lambda row: place_of(path, row))
    one.add(title, found)
    return one


def _table(width: int) -> Table:
    table = plain_table(width)
    table.add_column("column")
    table.add_column("holds")
    table.add_column("values", justify="right")
    table.add_column("missing", justify="right")
    table.add_column("such as")
    return table


def _row(title: str, found: Distinct, kind: str) -> tuple[Text | str, ...]:
    absent = int((found.codes < 0).sum())
    share = f"{absent:,} ({100 * absent / len(found.codes):.1f} %)" if absent else ""
    often = found.counts.argsort(kind="stable")[::-1][:EXAMPLES]
    examples = [shorten(str(found.values[k]), LONGEST_EXAMPLE) for k in often]
    return (
        name(title),
        kind,
        f"{len(found.values):,}",
        share,
        name(", ".join(examples), 60),
    )


def _kind(found: Distinct, one: Inference) -> str:
    if not found.values:
        return "nothing"
    few_values = len(found.values) <= FEW
    if one.columns and one.columns[0].kind == "number":
        if one.columns[0].decimal is not None:
            return "numbers as text"
        return "numbers, few values" if few_values else "numbers"
    if any("mixed with" in problem for problem in one.problems.found):
        return "mixed"
    if any("holds dates" in warning for warning in one.warnings):
        return DATES
    if any("holds free text" in warning for warning in one.warnings):
        return PROSE
    return "categories" if few_values else "text"


def _said(one: Inference) -> list[str]:
    return [*one.problems.found, *one.warnings]


def _hashed(warning: str) -> list[str]:
    """Return the option that a warning advises for a column of free text."""
    advised = re.search("`hash=[^`]*`", warning)
    return [] if advised is None else shlex.split(in_options(advised[0]))


def _guesses(roles: Roles) -> list[str]:
    found = {what: vars(roles)[role] for role, what in ROLES.items()}
    guesses = [f"{what} {few(columns)}" for what, columns in found.items() if columns]
    return [f"may be, by name and values: {'; '.join(guesses)}"] if guesses else []


def _option(key: str, value: object) -> list[str]:
    """An option as it was typed, as far as it can be said in words."""
    if key == "path":
        return []
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return in_options(f"`{key}={text}`").split(maxsplit=1)
