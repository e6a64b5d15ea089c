"""Numbers as people write them: ``1,234.50``, ``3,5``, ``1 000``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from pffl.typing import FloatArray

Decimal: TypeAlias = Literal[".", ","]

AROUND = " \u00a0\u202f"
GROUPS: dict[Decimal, str] = {".": f",'{AROUND}", ",": f".'{AROUND}"}


def _body(mark: Decimal) -> str:
    """Digits, in threes or not, with decimals or not."""
    threes = rf"\d{{1,3}}(?P<gap>[{re.escape(GROUPS[mark])}])\d{{3}}"
    return rf"(?:{threes}(?:(?P=gap)\d{{3}})*|\d+)(?:{re.escape(mark)}\d+)?"


def _line(mark: Decimal) -> str:
    """A number on a line of its own."""
    return f"^[{AROUND}]*[-+−]?{_body(mark)}[{AROUND}]*$"


MARKS: tuple[Decimal, ...] = (".", ",")
BODY = {mark: re.compile(f"[-+]?{_body(mark)}") for mark in MARKS}
LINES = {mark: re.compile(_line(mark), re.MULTILINE) for mark in MARKS}
PLAIN = {
    mark: str.maketrans(
        {
            **dict.fromkeys(GROUPS[mark]),
            "−": "-",
            **({",": "."} if mark == "," else {}),
        }
    )
    for mark in MARKS
}


def written_number(text: str, decimal: Decimal) -> float | None:
    """The number that a text says; None if it says none.

    >>> written_number("1,234.50", "."), written_number("12 %", ".")
    (1234.5, None)
    >>> written_number("3,5", ","), written_number("3,5", ".")
    (3.5, None)
    """
    plain = text.strip(AROUND).replace("−", "-")
    found = BODY[decimal].fullmatch(plain)
    if found is None:
        return None
    if found["gap"]:
        plain = plain.replace(found["gap"], "")
    return float(plain.replace(",", "."))


def written_numbers(texts: Sequence[str], decimal: Decimal) -> FloatArray | None:
    """The numbers that texts say, all at once; None if any says none.

    >>> written_numbers(["1,234.50", "2"], ".")
    array([1234.5,    2. ])
    """
    if not texts:
        return np.empty(0)
    if written_number(texts[0], decimal) is None:
        return None
    joined = "\n".join(texts)
    found = LINES[decimal].findall(joined)
    if len(found) != len(texts) or joined.count("\n") != len(texts) - 1:
        return None
    plain = joined.translate(PLAIN[decimal]).split("\n")
    return np.array(plain, dtype=object).astype(np.float64)


def decimal_of(texts: Sequence[str]) -> Decimal | None:
    """The decimal mark with which all texts are numbers; None if there is none.

    ``1,234`` alone is read as thousands, as long as every comma has three digits after
    it.

    >>> decimal_of(["1,234", "950"]), decimal_of(["1,5", "1,234"]), decimal_of(["a"])
    ('.', ',', None)
    """
    fitting = (mark for mark in MARKS if written_numbers(texts, mark) is not None)
    return next(fitting, None) if texts else None
