"""What a file holds, before anybody has said what is predicted: a line per column.

Below the table: what is odd about it, what the columns may be, and the next command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from pffl.cli.options import in_options
from pffl.cli.show import LONGEST_TITLE, name, plain_table, print_whole, remarks
from pffl.text import few, shorten, visible

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

    from pffl.data.inference import Distinct, Finding
    from pffl.errors import Problems

EXAMPLES, LONGEST_EXAMPLE = 3, 16
MOST_COLUMNS, MOST_SAID = 200, 10
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
    from pffl.data.inference import Distinct, guess_roles
    from pffl.data.reading import read_table
    from pffl.errors import DataError, Problems

    frame, notes = read_table(path)
    columns = {str(n): Distinct(frame[n]) for n in list(frame.columns)[:MOST_COLUMNS]}
    problems = Problems("table", DataError)
    inferred = {n: _inferred(n, found, path, problems) for n, found in columns.items()}
    console.print()
    console.print(Text(shorten(visible(Path(path).name), LONGEST_TITLE), "bold"))
    size = f"{len(frame):,} rows, {len(frame.columns):,} columns"
    console.print(remarks([size, *notes]))
    console.print()
    table = _table(console.width)
    for title, found in columns.items():
        table.add_row(*_row(title, found, inferred[title].kind))
    left = len(frame.columns) - MOST_COLUMNS
    if left > 0:
        table.add_row(Text(f"{left:,} more"), "", "", "", Text(""))
    print_whole(console, table)
    console.print()
    warnings = [text for one in inferred.values() for text in one.warnings]
    said = [*problems.found, *warnings]
    more = [f"and {len(said) - MOST_SAID} more"] if len(said) > MOST_SAID else []
    plain = {n: columns[n] for n, one in inferred.items() if one.kind in PLAIN}
    roles = guess_roles(plain)
    console.print(remarks([*said[:MOST_SAID], *more, *_guesses(roles)]))
    console.print()
    words = [w for key, value in options.items() for w in _option(key, value)]
    for role, names in roles.items():
        if role not in options and (names or role in ("label", "group")):
            words += [f"--{role}", names[0] if names else "COLUMN"]
    for text in warnings:
        words += _hashed(text)
    words += _for_gaps(frame, roles)
    console.print(Text("Next, with what you mean:"))
    command = shlex.join(["pffl", "data", path, *words])
    console.print(Text(f"  {visible(command)}", "bold"), soft_wrap=True)


def _inferred(title: str, found: Distinct, path: str, problems: Problems) -> Finding:
    from pffl.data.inference import infer
    from pffl.data.reading import place_of
    from pffl.data.table import ColumnOptions

    options = ColumnOptions(label="", group="", missing="indicator")
    return infer(found, title, options, problems, lambda row: place_of(path, row))


def _for_gaps(frame: pd.DataFrame, roles: Mapping[str, Sequence[str]]) -> list[str]:
    """Return options for what is missing: labels, groups, inputs."""
    missing = {str(name) for name in frame.columns[frame.isna().any()]}
    named = {role: set(names[:1]) & missing for role, names in roles.items()}
    words = ["--set", "data.missing_label=drop"] if named["label"] else []
    words += ["--set", "data.missing_group=missing"] if named["group"] else []
    rest = missing - named["label"] - named["group"]
    return words + (["--missing", "indicator"] if rest else [])


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


def _hashed(warning: str) -> list[str]:
    """Return the option that a warning advises for a column of free text."""
    advised = re.search("`hash=[^`]*`", warning)
    return [] if advised is None else shlex.split(in_options(advised[0]))


def _guesses(roles: Mapping[str, Sequence[str]]) -> list[str]:
    guesses = [f"{ROLES[role]} {few(names)}" for role, names in roles.items() if names]
    return [f"may be, by name and values: {'; '.join(guesses)}"] if guesses else []


def _option(key: str, value: object) -> list[str]:
    """An option as it was typed, as far as it can be said in words."""
    if key == "path":
        return []
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return in_options(f"`{key}={text}`").split(maxsplit=1)
