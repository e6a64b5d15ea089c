"""Numbers as people write them: ``1,234.50``, ``3,5``, ``12 %``, ``€ 1 000``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Literal, TypeAlias

Decimal: TypeAlias = Literal[".", ","]

AROUND = " \u00a0\u202f"
SIGNS = re.compile(r"[$€£¥%]")
BODY = {
    mark: re.compile(
        rf"[-+]?(?:\d{{1,3}}(?:([{re.escape(groups)}])\d{{3}}(?:\1\d{{3}})*)|\d+)"
        rf"(?:{re.escape(mark)}\d+)?"
    )
    for mark, groups in ((".", ",' \u00a0\u202f"), (",", ".' \u00a0\u202f"))
}


def written_number(text: str, decimal: Decimal) -> float | None:
    """The number that a text says; None if it says none.

    A per cent sign is left out, as is that of a currency.

    >>> written_number("1,234.50", "."), written_number("12 %", ".")
    (1234.5, 12.0)
    >>> written_number("3,5", ","), written_number("3,5", ".")
    (3.5, None)
    """
    plain = text.strip(AROUND).replace("−", "-")
    if SIGNS.match(plain[:1]) or SIGNS.match(plain[-1:]):
        plain = SIGNS.sub("", plain, count=1).strip(AROUND)
    found = BODY[decimal].fullmatch(plain)
    if found is None:
        return None
    if found[1]:
        plain = plain.replace(found[1], "")
    return float(plain.replace(",", "."))


def decimal_of(texts: Collection[str]) -> Decimal | None:
    """The decimal mark with which all texts are numbers; None if there is none.

    ``1,234`` alone is read as thousands, as long as every comma has three digits after
    it.

    >>> decimal_of({"1,234", "950"}), decimal_of({"1,5", "1,234"}), decimal_of({"a"})
    ('.', ',', None)
    """
    marks: Iterable[Decimal] = (".", ",")
    fitting = [m for m in marks if all(written_number(t, m) is not None for t in texts)]
    return fitting[0] if fitting and texts else None
