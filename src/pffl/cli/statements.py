"""A certificate as it is shown on a terminal, or written down a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pffl.cli import console
from pffl.cli.console import clean

if TYPE_CHECKING:
    from rich.console import Console

    from pffl.certificates import Certificate, Statement

TITLES = {
    "measured": "Measured",
    "gap": "Best trade-off",
    "empirical": "Bounds, on the rows at hand",
    "infeasible": "Impossible bounds",
    "attainable": "Smallest bound",
    "holdout": "Unseen people: loss",
    "holdout_error": "Unseen people: errors",
    "dp_gap": "Unseen people: demographic parity",
    "eo_gap": "Unseen people: equal opportunity",
    "equalised_odds": "Unseen people: equalised odds",
    "uniform": "Unseen people, from the training rows alone",
    "plan": "Rounds to plan for",
}
STYLES = {
    "holds": "bold green",
    "does not hold": "bold red",
    "not shown": "bold yellow",
    "not available": "yellow",
}
UNSEEN = ("holdout", "uniform")
MOST_CELLS = 30
LONGEST_NAME = 40


def show(target: Console, certificate: Certificate) -> None:
    """Show statements with their tables, then what they stand on, each once."""
    grounds: dict[str, int] = {}
    target.print()
    for statement in certificate.statements:
        _statement(target, statement, _numbered(statement, grounds))
    if grounds:
        target.print(Text("What this stands on", style="bold"))
        for text, number in grounds.items():
            target.print(_hanging(f"[{number}]", clean(text)))
        target.print()
    for note in certificate.notes:
        target.print(Text(clean(note), style="dim"))
    target.print()
    target.print(headline(certificate))


def headline(certificate: Certificate) -> Text:
    """The verdict, in a word and in a sentence."""
    word = certificate.verdict.replace("_", " ").upper()
    good = certificate.verdict in ("met", "within_slack")
    style = "bold green" if good else "bold red"
    return Text.assemble((f"{word}: ", style), clean(certificate.sentence))


def as_json(certificate: Certificate) -> str:
    """The certificate as it is written to a file."""
    text = json.dumps(
        certificate.as_dict(), indent=2, allow_nan=False, ensure_ascii=False
    )
    return text + "\n"


def print_json(plain: object) -> None:
    """Print JSON, and nothing else."""
    ascii_only = not console.speaks_unicode(sys.stdout)
    text = json.dumps(plain, indent=2, allow_nan=False, ensure_ascii=ascii_only)
    sys.stdout.write(text + "\n")


def mark(statement: Statement) -> str:
    """A word for how a statement stands; nothing if nothing was asked."""
    if not statement.available:
        return "not available"
    if statement.kind == "infeasible":
        return "proved"
    if statement.holds is False and statement.kind in UNSEEN:
        return "not shown"  # a bound on a bound: it may hold all the same
    return {None: "", True: "holds", False: "does not hold"}[statement.holds]


def _numbered(statement: Statement, grounds: dict[str, int]) -> list[int]:
    """Numbers of a statement's assumptions in the list below all of them."""
    if not statement.available:
        return []
    texts = [f"{a.text} ({a.state})" for a in statement.assumptions]
    return sorted(grounds.setdefault(text, len(grounds) + 1) for text in texts)


def _statement(target: Console, statement: Statement, numbers: list[int]) -> None:
    word = mark(statement)
    title = TITLES.get(statement.kind, statement.kind)
    head = Text(title, style="bold")
    if word:
        head.append(f": {word}", style=STYLES.get(word, "bold"))
    target.print(head)
    text = statement.reason if not statement.available else statement.text
    marks = f" [{', '.join(map(str, numbers))}]" if numbers else ""
    body = Text(clean(text)).append(marks, style="dim")
    target.print(Padding(body, (0, 0, 0, 2), expand=False))
    if statement.per_cell and statement.kind != "measured":
        target.print(Padding(table(statement.per_cell), (0, 0, 0, 2), expand=False))
    else:
        target.print()


def _hanging(number: str, text: str) -> Table:
    grid = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, min_width=4)
    grid.add_column(overflow="fold")
    grid.add_row(Text(number, style="dim"), Text(text))
    return grid


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row per cell; the first ones where not all can be shown."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    out = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in names:
        words = max(map(len, name.split()))
        justify: Any = "left" if name == "cell" else "right"
        out.add_column(name, justify=justify, min_width=min(words, 12))
    for row in rows[:MOST_CELLS]:
        out.add_row(*(_figure(row.get(name)) for name in names))
    if len(rows) > MOST_CELLS:
        out.add_row(Text(f"… {len(rows) - MOST_CELLS:,} more", style="dim"))
    return out


def _figure(value: object) -> Text:
    if value is None:
        return Text("–")
    if isinstance(value, bool):
        return Text("yes", style="") if value else Text("no", style="red")
    if isinstance(value, float):
        return Text(f"{value:.4f}" if abs(value) < 1e4 else f"{value:.4g}")
    if isinstance(value, int):
        return Text(f"{value:,}")
    return Text(clean(str(value), LONGEST_NAME))
