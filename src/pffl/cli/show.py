"""Results as tables that fit a terminal of 60 columns: verdicts and certificates.

All of it is read off `Evidence`: what a run has just measured, or has left in a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pffl.cli.options import in_options
from pffl.evidence import choice, promise, summary, unseen, verdict
from pffl.evidence.advice import asks_most
from pffl.evidence.certificate import grounds_of, mark, numbered
from pffl.evidence.evidence import Evidence, Missing, Training
from pffl.text import LOWER, UPPER, down, shorten, up, visible

if TYPE_CHECKING:
    from rich.console import Console

    from pffl.evidence.certificate import Certificate, Statement
    from pffl.evidence.summary import Tone, Verdict

MOST_CELLS = 30
LONGEST_NAME = 40
LONGEST_CELL = 120  # where names wrap
LONGEST_TITLE = 80
NARROWEST = 12  # column of names
ROOMY = 76  # columns
STYLES: dict[Tone, str] = {
    "good": "bold green",
    "caution": "bold yellow",
    "bad": "bold red",
    "plain": "bold",
}
MARKS = {
    "holds": "bold green",
    "met": "bold green",
    "certified": "bold green",
    "does not hold": "bold red",
    "not met": "bold red",
    "not certified": "bold yellow",
    "not available": "yellow",
}


def name(text: str, longest: int = LONGEST_NAME) -> Text:
    """A name from the data: harmless and short."""
    return Text(shorten(visible(text), longest))


# The verdict of a run


def result(console: Console, e: Evidence, *, file: bool = False) -> None:
    """Show what a run reached: a row per cell, a row per split, remarks.

    Parameters
    ----------
    console
        Where to show it.
    e
        What was measured.
    file
        Whether the data came from a file: then say what was inferred.
    """
    console.print()
    console.print(Text(headline(e), style="bold"), soft_wrap=True)
    if file:
        console.print(remarks(e.data.notes))
    console.print()
    for tried in (choice.table(e), promise.around(e)):
        if tried:
            print_whole(console, text_rows(tried, console.width))
            console.print()
    print_whole(console, cell_table(e, console.width))
    console.print()
    for rows in (summary.rate_table(e), summary.measures(e)):
        if rows:
            print_whole(console, text_rows(rows, console.width))
            console.print()
    console.print(remarks(footnotes(e)))
    console.print()
    told = asks_most(e)
    if told is not None:
        console.print(Text(visible(told)))
        console.print()


def verdicts(console: Console, found: Iterable[Verdict]) -> None:
    """Say how it ended: on training rows, on held-out rows, for people not seen."""
    for one in found:
        style = STYLES[one.tone]
        parts = (one.sign, style), f" {one.title}: ", (one.word.upper(), style)
        console.print(Text.assemble(*parts))
        for line in Text(visible(one.sentence)).wrap(console, console.width - 2):
            line.rstrip()
            console.print(Text("  ").append(line), soft_wrap=True)


def headline(e: Evidence) -> str:
    """What was run on what."""
    rows = verdict.split_metrics(e, "train")
    parts = [
        shorten(visible(e.data.name), LONGEST_TITLE),
        f"{e.data.silos:,} silo{'' if e.data.silos == 1 else 's'}",
        f"{0 if rows is None else rows.rows:,} {'training ' if e.trained else ''}rows",
    ]
    if isinstance(e.training, Training):
        kinds = (e.training.method.get("kind"), e.training.constraint.get("kind"))
        parts += [str(kind) for kind in kinds if kind]
    return " · ".join(parts)


def cell_table(e: Evidence, width: int) -> Table:
    """A row per cell, the tightest first where not all can be shown."""
    cells = verdict.cell_results(e)
    rows = list(cells)
    if len(rows) > MOST_CELLS:
        rows = summary.by_urgency(rows)[:MOST_CELLS]
    columns = summary.columns(e, rows)
    titles = [column.title.replace(" ", "\n", 1) for column in columns]
    table = _table(width, "cell", *titles)
    for z, row in enumerate(rows):
        figures = [column.figures[z] for column in columns]
        styles = [STYLES[figure.tone] if figure.marked else "" for figure in figures]
        table.add_row(
            name(row.cell, LONGEST_CELL), *map(Text, map(str, figures), styles)
        )
    if len(cells) > len(rows):
        left = f"… {len(cells) - len(rows):,} more in result.json"
        table.add_row(Text(left, style="dim"))
    return table


def text_rows(rows: Sequence[Mapping[str, str]], width: int) -> Table:
    """A row per mapping, all with the same keys; the first ones of many."""
    first, *titles = rows[0]
    table = _table(width, first, *(title.replace(" ", "\n") for title in titles))
    for row in rows[:MOST_CELLS]:
        figures = (row[title] for title in titles)
        table.add_row(name(row[first], LONGEST_CELL), *figures)
    if len(rows) > MOST_CELLS:
        left = f"… {len(rows) - MOST_CELLS:,} more in result.json"
        table.add_row(Text(left, style="dim"))
    return table


def footnotes(e: Evidence) -> list[str]:
    """What the numbers stand for, and how they were reached."""
    notes = []
    if e.data.synthetic:
        notes.append("synthetic data: no real person is described")
    columns = summary.columns(e, verdict.cell_results(e))
    notes += [summary.meanings(columns), *summary.risk_note(e), *e.notes]
    if e.labels:
        notes.append(summary.rates_in_words(e))
    if unseen.noticed(e) and (limits := unseen.kept_within(e)):
        notes.append(limits)
    if not (e.promise or e.minimax):
        notes.append("no bound was asked for: --bound 0.6 sets one for every group")
    if isinstance(e.training, Missing):
        return notes
    gap = verdict.gap(e)
    known = "not available" if gap is None else f"{gap:.2g}"
    run, asked = e.training, e.training.questions
    notes.append(
        f"duality gap {known} after {run.rounds:,} rounds, {run.seconds:.1f} s"
    )
    notes.append(
        f"{asked['asked']:,} questions ({asked['distinct']:,} distinct) in "
        f"{asked['messages']:,} messages to every silo"
    )
    if run.chosen is not None:
        notes.append(run.chosen)
    return [*notes, f"seed {run.seed}"]


# A certificate


def certificate(target: Console, certified: Certificate) -> None:
    """Show statements with their tables, then what they stand on, each once."""
    grounds = numbered(certified)
    target.print()
    for statement in certified.statements:
        numbers = sorted(grounds[ground] for ground in grounds_of(statement))
        _statement(target, statement, numbers)
    if grounds:
        target.print(Text("What this stands on", style="bold"))
        for text, number in grounds.items():
            target.print(_hanging(f"[{number}]", visible(text)))
        target.print()
    target.print(remarks(certified.notes))
    target.print()
    verdicts(target, summary.of_certificate(certified))


def _statement(target: Console, statement: Statement, numbers: list[int]) -> None:
    word = mark(statement).replace("known", "")
    head = Text(visible(statement.title), style="bold")
    if word:
        head.append(f": {word}", style=MARKS.get(word, "bold"))
    target.print(head)
    text = statement.reason if not statement.available else statement.text
    marks = f" [{', '.join(map(str, numbers))}]" if numbers else ""
    body = Text(visible(text)).append(marks, style="dim")
    target.print(Padding(body, (0, 0, 0, 2), expand=False))
    if statement.per_cell and statement.kind != "measured":
        target.print(Padding(figures(statement.per_cell), (0, 0, 0, 2), expand=False))
    else:
        target.print()


def _hanging(number: str, text: str) -> Table:
    grid = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, min_width=4)
    grid.add_column(overflow="fold")
    grid.add_row(Text(number, style="dim"), Text(text))
    return grid


# Tables


def figures(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row per mapping; the first ones where not all can be shown."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    out = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for title in names:
        words = max(map(len, title.split()))
        justify: Any = "left" if title == "cell" else "right"
        out.add_column(title, justify=justify, min_width=min(words, 12))
    for row in rows[:MOST_CELLS]:
        out.add_row(*(_figure(title, row.get(title)) for title in names))
    if len(rows) > MOST_CELLS:
        out.add_row(Text(f"… {len(rows) - MOST_CELLS:,} more", style="dim"))
    return out


def _figure(title: str, value: object) -> Text:
    if value is None:
        return Text("–")
    if isinstance(value, bool):
        return Text("yes", style="") if value else Text("no", style="red")
    if isinstance(value, float) and title in UPPER:
        return Text(up(value))
    if isinstance(value, float) and title in LOWER:
        return Text(down(value))
    if isinstance(value, float):
        return Text(f"{value:.4f}" if abs(value) < 1e4 else f"{value:.4g}")
    if isinstance(value, int):
        return Text(f"{value:,}")
    return name(str(value))


def remarks(notes: Sequence[str]) -> Text:
    """Remarks, one a line, in words of the command line, that do not shout."""
    return Text("\n".join(visible(in_options(n)) for n in notes), style="dim")


def print_whole(console: Console, table: Table) -> None:
    """Print a table that never cuts a number.

    Where the terminal is too narrow, names take more lines, then all lines wrap.
    """
    wide = console.options.update(max_width=10_000)
    names, needed = table.columns[0], Measurement.get(console, wide, table).maximum
    if needed > console.width and names.max_width is not None:
        longest = max((cell_len(str(cell)) for cell in names.cells), default=0)
        used = min(names.max_width, longest)
        names.max_width = max(NARROWEST, used - (needed - console.width))
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
    for title in names:
        table.add_column(title, justify="right", no_wrap=True)
