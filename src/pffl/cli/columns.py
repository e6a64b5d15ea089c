"""What a file holds, before anybody has said what is predicted: a line per column."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from pffl.cli.show import LONGEST_TITLE, name, plain_table, print_whole, remarks
from pffl.text import shorten, visible

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

EXAMPLES, LONGEST_EXAMPLE = 3, 16
MOST_COLUMNS = 200
FEW = 20  # values of a column that may be a label, a group or a silo


def show(console: Console, path: str, options: dict[str, object]) -> None:
    """Show the columns of a file, and what to say to learn more.

    Parameters
    ----------
    console
        Where to show them.
    path
        The file.
    options
        Of the section [data], as far as they are known.
    """
    from pffl.data.reading import read_table

    frame, notes = read_table(path)
    console.print()
    console.print(Text(shorten(visible(Path(path).name), LONGEST_TITLE), "bold"))
    size = f"{len(frame):,} rows, {len(frame.columns):,} columns"
    console.print(remarks([size, *notes]))
    console.print()
    print_whole(console, _table(frame, console.width))
    console.print()
    wanted = {
        "label": "--label COLUMN (what is predicted)",
        "group": "--group COLUMN (who is protected)",
    }
    missing = [text for key, text in wanted.items() if key not in options]
    console.print(
        Text(
            f"To see more, or to run: {' and '.join(missing)}; also --silo COLUMN "
            "where rows live in several places, and --id COLUMN where a person has "
            "several rows."
        )
    )


def _table(frame: pd.DataFrame, width: int) -> Table:
    table = plain_table(width)
    for title, side in (
        ("column", "left"),
        ("holds", "left"),
        ("values", "right"),
        ("missing", "right"),
        ("such as", "left"),
    ):
        table.add_column(title, justify="right" if side == "right" else "left")
    for column in list(frame.columns)[:MOST_COLUMNS]:
        series = frame[column]
        counts = series.value_counts()
        examples = [str(value) for value in counts.index[:EXAMPLES]]
        table.add_row(
            name(str(column)),
            _kind(series),
            f"{len(counts):,}",
            f"{int(series.isna().sum()):,}" if series.isna().any() else "",
            name(", ".join(shorten(e, LONGEST_EXAMPLE) for e in examples), 60),
        )
    left = len(frame.columns) - MOST_COLUMNS
    if left > 0:
        table.add_row(Text(f"{left:,} more"), "", "", "", Text(""))
    return table


def _kind(series: pd.Series) -> str:
    from pffl.data.column import as_numbers
    from pffl.data.numbers import decimal_of

    if not series.notna().any():
        return "nothing"
    if series.dtype.kind in "mM":
        return "dates"
    few = series.nunique() <= FEW
    if as_numbers(series) is not None:
        return "numbers, few values" if few else "numbers"
    if decimal_of({v for v in series.dropna() if isinstance(v, str)}) is not None:
        return "numbers as text"
    return "categories" if few else "text"
