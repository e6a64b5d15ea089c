"""A certificate as text and as HTML. Names come from data: nothing is trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from pffl.certificates.words import up, words

if TYPE_CHECKING:
    from pffl.certificates._plain import Json
    from pffl.certificates.statement import Certificate, Statement

#: Joiners that emoji and several scripts need; they do nothing by themselves.
_JOINERS = "\u200c\u200d"
_LONGEST = 60
_MOST_ROWS = 50


def visible(text: str) -> str:
    r"""Return text without control or direction characters, which are spelt out.

    >>> print(visible("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return "".join(
        c
        if c.isprintable() or c in _JOINERS
        else " "
        if c.isspace()
        else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def shorten(text: str, longest: int = _LONGEST) -> str:
    """Return text of at most `longest` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def figure(name: str, value: Json) -> str:
    """Return one entry of column `name`; an upper bound is rounded up."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return (up if name == "upper" else words)(value, digits=6)
    if isinstance(value, str):
        return shorten(visible(value))
    return visible(str(value))


def mark(statement: Statement) -> str:
    """Return the word that stands before a statement."""
    if not statement.available:
        return "not available"
    return {None: "known", True: "holds", False: "does not hold"}[statement.holds]


def _columns(rows: Sequence[Mapping[str, Json]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _text_table(rows: Sequence[Mapping[str, Json]]) -> list[str]:
    if not rows:
        return []
    names = _columns(rows)
    table = [[visible(name) for name in names]]
    table += [[figure(name, row.get(name)) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            entry.ljust(width) if i == 0 else entry.rjust(width)
            for i, (entry, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]


def _text_statement(statement: Statement) -> list[str]:
    lines = [f"[{mark(statement)}] {visible(statement.kind)}"]
    lines.append(f"    {visible(statement.text)}")
    lines += [f"    {line}" for line in _text_table(statement.per_cell or ())]
    lines += [f"    - {a.state}: {visible(a.text)}" for a in statement.assumptions]
    return lines


def as_text(certificate: Certificate) -> str:
    """Return the certificate as plain lines."""
    lines = [f"Certificate: {certificate.verdict}", visible(certificate.sentence)]
    share = f"{100 * certificate.confidence:.6g}"
    lines.append(f"Statements on unseen people hold with confidence {share} %.")
    lines += [f"Note: {visible(note)}" for note in certificate.notes]
    for statement in certificate.statements:
        lines += ["", *_text_statement(statement)]
    if certificate.fingerprints:
        lines += ["", "Fingerprints"]
        lines += [
            f"    {visible(name)}: {visible(value)}"
            for name, value in certificate.fingerprints.items()
        ]
    return "\n".join(lines)


def html_table(rows: Sequence[Mapping[str, Json]]) -> str:
    """Return rows as an HTML table, every text escaped; nothing for none."""
    if not rows:
        return ""
    names = _columns(rows)
    head = "".join(f"<th>{escape(visible(name))}</th>" for name in names)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{escape(figure(name, row.get(name)))}</td>" for name in names)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_statement(statement: Statement) -> str:
    grounds = "".join(
        f"<li>{escape(a.state)}: {escape(visible(a.text))}</li>"
        for a in statement.assumptions
    )
    return (
        f"<section><h4>{escape(visible(statement.kind))}: {mark(statement)}</h4>"
        f"<p>{escape(visible(statement.text))}</p>"
        f"{html_table(statement.per_cell or ())}"
        f"{f'<ul>{grounds}</ul>' if grounds else ''}</section>"
    )


def as_html(certificate: Certificate) -> str:
    """Return the certificate as one HTML element, every text escaped."""
    notes = "".join(f"<p>{escape(visible(note))}</p>" for note in certificate.notes)
    prints = "".join(
        f"<li>{escape(visible(name))}: <code>{escape(visible(value))}</code></li>"
        for name, value in certificate.fingerprints.items()
    )
    return (
        '<article class="pffl-certificate">'
        f"<h3>Certificate: {escape(certificate.verdict)}</h3>"
        f"<p>{escape(visible(certificate.sentence))}</p>"
        f"<p>Confidence: {100 * certificate.confidence:.6g} %</p>{notes}"
        + "".join(map(_html_statement, certificate.statements))
        + (f"<ul>{prints}</ul>" if prints else "")
        + "</article>"
    )


def element(
    kind: str,
    title: str,
    texts: Sequence[str],
    *tables: Sequence[Mapping[str, Json]],
) -> str:
    """Return a title, paragraphs and tables as one HTML element, in the same look.

    Of a long table the first rows are shown.
    """
    out = [f'<article class="pffl-{escape(kind)}"><h3>{escape(visible(title))}</h3>']
    out += [f"<p>{escape(visible(text))}</p>" for text in texts]
    for rows in tables:
        out.append(html_table(rows[:_MOST_ROWS]))
        if len(rows) > _MOST_ROWS:
            out.append(f"<p>and {len(rows) - _MOST_ROWS:,} more rows</p>")
    return "".join(out) + "</article>"
