"""Tables of the page: titles that explain themselves, and numbers with few digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pffl.evidence.tables import Shown
from pffl.text import LOWER, UPPER, decimals, figure, visible

LONG = 40  # rows
NONE = ("–", "—")
WHOLE = ("people", "rows")  # counts, also where noise was added to them
GLOSSARY = {
    "cell": "the people that one bound speaks of: a group, or those of a group with "
    "one label",
    "bound": "what the mean loss of a cell was asked to stay at, or under",
    "silo": "a place where rows live and stay: a hospital, a bank, a state",
    "site": "a silo on a machine of its own, which answers queries about its rows",
    "loss": "how wrong a model's probabilities are; its mean over a cell is what a "
    "bound limits",
    "risk": "the mean loss of all, each silo weighed alike or by its rows",
    "test": "rows that were kept apart, and not trained on",
    "certified at most": "what the mean loss of new people is at most, by the "
    "held-out rows; it is wrong as rarely as its confidence says",
    "confidence": "how sure a statement is: over many draws of the rows it is wrong no "
    "more often than what is missing to certainty",
    "upper": "what it is at most, for people not seen",
    "joint": "what it is at most for all cells at once, together with all else that is "
    "said",
    "margin": "how far below its bound",
    "vacuous": "says nothing: no smaller than the largest loss that there can be",
    "constant guess": "the loss of guessing a cell's own rates for everyone in it",
    "multiplier": "the price of a bound: 0 where it costs nothing to keep",
    "duality gap": "how far the model can be from the best trade-off between risk and "
    "bounds, at most",
    "wrong": "share of wrong predictions",
    "false positive": "predicted positive, among those who are not",
    "false negative": "predicted negative, among those who are positive",
    "DP gap": "demographic parity: how much more often one group is predicted positive "
    "than another",
    "EO gap": "equal opportunity: the same among those who are truly positive",
    "e-value": "how strongly the rows so far speak against a bound: 1 is not at all",
    "Pareto front": "the models that no other beats in both measures",
    "standard error": "how far a mean over seeds is off by chance, roughly",
    "ε": "how much more likely any outcome can become by one person being in the rows: "
    "at most e to the power of ε times, but for a chance of δ",
    "fingerprint": "a hash: the same bytes have the same one, others have not",
}


@dataclass(frozen=True)
class Grid:
    """A table: titles with what they mean, and rows.

    On a narrow screen each row is a card (``stack``), or one with an entry a line
    (``stack list``), or the table scrolls (``scroll``).
    """

    about: str
    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Shown]]
    narrow: str = "stack"

    @property
    def look(self) -> str:
        """Its classes; a long one scrolls in its own place."""
        return f"{self.narrow} long" if len(self.rows) > LONG else self.narrow

    @classmethod
    def of(
        cls, about: str, rows: Sequence[Mapping[str, Any]], narrow: str = "stack"
    ) -> Grid:
        """Lay out mappings, all with the same keys; a column without entry is none."""
        names = list(rows[0]) if rows else []
        told = {n: [_figure(n, row[n]) for row in rows] for n in names}
        names = [n for n in names if any(one.text not in NONE for one in told[n])]
        entries = [[told[name][i] for name in names] for i in range(len(rows))]
        heads = [(name, GLOSSARY.get(name, "")) for name in names]
        return cls(about, heads, entries, narrow)


def _figure(name: str, value: object) -> Shown:
    return value if isinstance(value, Shown) else Shown(entry(name, value))


def entry(name: str, value: object) -> str:
    """Write an entry of column `name`, with the digits of the other tables."""
    if isinstance(value, str):
        return visible(value)
    if name in ("margin", "multiplier") and isinstance(value, float):
        return margin(value)
    if name in WHOLE and isinstance(value, float):
        return number(round(value))
    end = name in (*UPPER, *LOWER) and isinstance(value, float)
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return number(value) if plain and not end else figure(name, value)


def number(value: object, digits: int = 4) -> str:
    """Write a number for the page; a dash where there is none."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return str(value)
    try:
        plain = float(value)
    except ValueError:
        return str(value)
    if plain != plain:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return decimals(plain) if digits == 4 else f"{plain:,.{digits}f}"


def margin(value: float) -> str:
    """Write a margin or a multiplier; rounding of a solver is none."""
    return "0" if abs(value) < 1e-6 else number(value)
