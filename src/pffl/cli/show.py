"""Results as tables that fit a terminal of 60 columns; data as counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from pffl.cli.console import clean

if TYPE_CHECKING:
    from rich.console import Console

    from pffl.constraints.metrics import Metrics
    from pffl.solution import CellResult, Solution

MOST_CELLS = 30
LONGEST_NAME = 40
LONGEST_TITLE = 80
ROOMY = 76  # columns
LARGE = 1e5  # a number from here on is written with an exponent
INACTIVE = 1e-6  # a multiplier below this part of its bound is none
STYLES = {"met": "bold green", "within_slack": "bold yellow"}


def verdict(console: Console, solution: Solution, *, file: bool = False) -> None:
    """Show what a run reached: a row per cell, a row per split, remarks.

    Parameters
    ----------
    console
        Where to show it.
    solution
        The result.
    file
        Whether the data came from a file: then say what was inferred.
    """
    console.print()
    console.print(Text(headline(solution), style="bold"), soft_wrap=True)
    if file:
        console.print(remarks(data_notes(solution)))
    console.print()
    if solution.cell_results:
        print_whole(console, cell_table(solution, console.width))
        console.print()
    print_whole(console, split_table(solution, console.width))
    console.print()
    console.print(remarks(footnotes(solution)))
    console.print()


def sentence(solution: Solution) -> Text:
    """The verdict, in a word and in a sentence."""
    word = solution.status.replace("_", " ")
    style = STYLES.get(solution.status, "bold red")
    return Text.assemble((f"{word.upper()}: ", style), clean(solution.message))


def headline(solution: Solution) -> str:
    """What was run on what."""
    data = solution.data
    parts = [
        clean(str(data.get("name", "data")), LONGEST_TITLE),
        f"{data['silos']:,} silos",
        f"{solution.train.rows:,} training rows",
        str(solution.method["kind"]),
    ]
    kind = solution.constraint.get("kind")
    return " · ".join([*parts, str(kind)] if kind else parts)


def cell_table(solution: Solution, width: int) -> Table:
    """A row per cell, the tightest first where not all can be shown."""
    table = _table(
        width, "cell", "rows", "train\nloss", "bound", "margin", "multi-\nplier"
    )
    _numbers(table, "test\nloss", "unseen\nat most")
    rows = list(solution.cell_results)
    if len(rows) > MOST_CELLS:
        rows = sorted(rows, key=lambda row: -row.violation)[:MOST_CELLS]
    from pffl.constraints import is_minimax

    minimax = is_minimax(solution.constraint)
    for row in rows:
        table.add_row(*_cell(row, minimax=minimax))
    left = len(solution.cell_results) - len(rows)
    if left:
        table.add_row(Text(f"… {left:,} more in result.json", style="dim"))
    return table


def _cell(row: CellResult, *, minimax: bool) -> list[Text]:
    margin = Text(_signed(-row.violation), style="red" if row.violation > 1e-6 else "")
    return [
        Text(clean(row.cell, LONGEST_NAME)),
        Text(f"{row.count:,}"),
        Text(_number(row.train_loss)),
        Text("–") if minimax else Text(_number(row.bound)),
        Text("–") if minimax else margin,
        Text(f"{row.multiplier:.4g}" if row.multiplier > 5e-7 else "0"),
        Text(_number(row.test_loss)),
        Text(_number(row.test_upper)),
    ]


def split_table(solution: Solution, width: int) -> Table:
    """Risk, error and gaps on training and test rows."""
    table = _table(
        width, "", "rows", "risk", "error", "worst\ncell", "DP\ngap", "EO\ngap"
    )
    for name, split in (("train", solution.train), ("test", solution.test)):
        if split is not None:
            table.add_row(name, *_split(split))
    return table


def _split(split: Metrics) -> list[str]:
    values = (
        split.risk,
        split.error,
        split.worst_cell_loss,
        split.dp_gap,
        split.eo_gap,
    )
    return [f"{split.rows:,}", *map(_number, values)]


def footnotes(solution: Solution) -> list[str]:
    """What the numbers stand for, and how they were reached."""
    notes = []
    if solution.data.get("synthetic"):
        notes.append("synthetic data: no real person is described")
    notes += [clean(note) for note in solution.notes]
    if solution.cell_results:
        notes.append(_unseen(solution))
        bound = solution.problem.multiplier_bound
        largest = max(row.multiplier for row in solution.cell_results)
        if bound > 0 and largest <= INACTIVE * bound:
            notes.append("no bound is active: the same model as without any")
    else:
        notes.append("no bound was asked for: --bound 0.6 sets one for every group")
    if solution.smallest_bound is not None:
        notes.append(_smallest(solution))
    gap = "not available" if solution.gap is None else f"{solution.gap:.2g}"
    rounds = f"{solution.rounds:,} rounds (and {solution.measuring_rounds} to measure)"
    notes.append(f"duality gap {gap} after {rounds}, {solution.seconds:.1f} s")
    notes.append(f"seed {solution.seed}")
    return notes


def _unseen(solution: Solution) -> str:
    if solution.test is None:
        return "unseen people: not available: there are no test rows"
    if solution.loss_bound is None:
        return "unseen people: not available: needs a loss bound (--loss-bound)"
    return (
        "unseen at most: bound on the mean loss of people not seen, for all cells at "
        f"once with confidence {solution.confidence:.4g}; a loss counts up to "
        f"{solution.loss_bound:g}"
    )


def _smallest(solution: Solution) -> str:
    bounds = {row.bound for row in solution.cell_results}
    if len(bounds) == 1:
        return f"the smallest bound that this run meets: {solution.smallest_bound:.6g}"
    return f"to be met, all bounds must rise by {solution.smallest_bound:.6g}"


def data_notes(solution: Solution) -> list[str]:
    """What was inferred about a file."""
    notes = solution.data.get("notes")
    return [clean(str(note)) for note in notes] if isinstance(notes, list) else []


def remarks(notes: Sequence[str]) -> Text:
    """Remarks, one a line, that do not shout."""
    return Text("\n".join(notes), style="dim")


def print_whole(console: Console, table: Table) -> None:
    """Print a table that never cuts a number: too narrow a terminal wraps its lines."""
    wide = console.options.update(max_width=10_000)
    needed = Measurement.get(console, wide, table).maximum
    width, console.width = console.width, max(console.width, needed)
    console.print(table)
    console.width = width


def plain_table(width: int) -> Table:
    """A table with a rule under its head and no frame, dense on narrow terminals."""
    padding = (0, 0) if width < ROOMY else (0, 1, 0, 0)
    return Table(box=box.SIMPLE_HEAD, padding=padding, pad_edge=False, show_edge=False)


def name_width(width: int) -> int:
    """Room for names where numbers take the rest."""
    return min(LONGEST_NAME, max(8, width - 52))


def _table(width: int, first: str, *numbers: str) -> Table:
    table = plain_table(width)
    table.add_column(first, overflow="fold", max_width=name_width(width))
    _numbers(table, *numbers)
    return table


def _numbers(table: Table, *names: str) -> None:
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if abs(value) < LARGE else f"{value:.3e}"


def _signed(value: float) -> str:
    text = f"{value:+.4f}" if abs(value) < LARGE else f"{value:+.3e}"
    return "0.0000" if float(text) == 0 else text
