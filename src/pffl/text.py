"""How numbers and names are shown: rounded to the true side, harmless, escaped.

Names come from data: nothing is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from html import escape

#: Joiners that emoji and several scripts need; they do nothing by themselves.
_JOINERS = "\u200c\u200d"
_LONGEST = 60
#: Columns whose numbers are upper bounds, and lower ones.
UPPER = ("upper", "joint", "test_upper")
LOWER = ("lower",)
_MOST_ROWS = 50


def words(number: float, *, digits: int = 4, rounding: str = ROUND_HALF_EVEN) -> str:
    """Write a number with a few significant digits.

    >>> words(0.123449), up(0.123401), down(0.123499)
    ('0.1234', '0.1235', '0.1234')
    """
    context = Context(prec=digits, rounding=rounding)
    return f"{float(context.create_decimal(repr(float(number)))):.{digits}g}"


def up(number: float, *, digits: int = 4) -> str:
    """Write an upper bound: rounded up, so that the words are still true."""
    return words(number, digits=digits, rounding=ROUND_CEILING)


def down(number: float, *, digits: int = 4) -> str:
    """Write a lower bound: rounded down, so that the words are still true."""
    return words(number, digits=digits, rounding=ROUND_FLOOR)


def decimals(number: float) -> str:
    """Write an entry of a table: four decimals, or four digits if they say nothing.

    >>> decimals(0.60654), decimals(2.25e-8), decimals(1.72e8), decimals(0)
    ('0.6065', '2.25e-08', '1.72e+08', '0.0000')
    """
    plain = number == 0 or 1e-3 <= abs(number) < 1e5
    return f"{number:.4f}" if plain else f"{number:.4g}"


def visible(text: str) -> str:
    r"""Return text without control or direction characters, which are spelt out.

    >>> print(visible("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    if text.isprintable():
        return text
    kept = (c if c.isprintable() or c in _JOINERS else _spelt(c) for c in text)
    return "".join(kept)


def _spelt(c: str) -> str:
    return " " if c.isspace() else c.encode("unicode_escape").decode("ascii")


def shorten(text: str, longest: int = _LONGEST) -> str:
    """Return text of at most `longest` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def few(names: Sequence[str], most: int = 8) -> str:
    """Return some names in a line, and how many more there are.

    >>> few(["a", "b", "c", "d"], most=2)
    'a, b, … (4)'
    """
    more = f", … ({len(names):,})" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def figure(name: str, value: object) -> str:
    """Return one entry of column `name`; bounds are rounded to their true side."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if name in LOWER:
            return down(value)
        return up(value) if name in UPPER else words(value, digits=6)
    return shorten(visible(str(value)))


def _columns(rows: Sequence[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def text_table(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return rows as aligned lines; nothing for none."""
    if not rows:
        return []
    names = _columns(rows)
    table = [list(map(visible, names))]
    table += [[figure(name, row.get(name)) for name in names] for row in rows]
    first, *others = (max(map(len, column)) for column in zip(*table, strict=True))
    return [
        "  ".join([name.ljust(first), *map(str.rjust, line, others)]).rstrip()
        for name, *line in table
    ]


def html_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as an HTML table, every text escaped; nothing for none."""
    if not rows:
        return ""
    names = _columns(rows)
    head = "".join(f"<th>{escape(visible(name))}</th>" for name in names)
    lines = [[figure(name, row.get(name)) for name in names] for row in rows]
    cells = ["".join(f"<td>{escape(text)}</td>" for text in line) for line in lines]
    body = "".join(f"<tr>{line}</tr>" for line in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def element(
    kind: str,
    title: str,
    texts: Sequence[str],
    *tables: Sequence[Mapping[str, object]],
    lead: str = "",
) -> str:
    """Return a title, paragraphs and tables as one HTML element, in the same look.

    Of a long table the first rows are shown. `lead` is HTML, and comes first.
    """
    out = [f'<article class="pffl-{escape(kind)}"><h3>{escape(visible(title))}</h3>']
    out.append(lead)
    out += [f"<p>{escape(visible(text))}</p>" for text in texts]
    for rows in tables:
        out.append(html_table(rows[:_MOST_ROWS]))
        if len(rows) > _MOST_ROWS:
            out.append(f"<p>and {len(rows) - _MOST_ROWS:,} more rows</p>")
    return "".join(out) + "</article>"
