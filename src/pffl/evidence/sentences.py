"""All sentences on a model, by key: figures come in, words go out.

They stand in sentences.toml. A sentence is stored as its key and its figures, and
written from them: `Said`. In a template ``up`` and ``down`` round a figure to the side
on which the words stay true, with four digits, or as many as stand behind; ``%`` writes
a share, ``'`` a name.
"""

from __future__ import annotations

import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pffl.records import Record
from pffl.text import down, up, words

State: TypeAlias = Literal["checked", "assumed", "could not be checked", "failed"]

SENTENCES: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("sentences.toml").read_text("utf-8")
)


class _Formatter(string.Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        if isinstance(value, bool):  # a name that means something else, too
            raise TypeError("a sentence names a figure or a text")
        side, digits = spec.rstrip("0123456789"), spec.lstrip("updown")
        many = {"digits": int(digits)} if digits.isdecimal() else {}
        match side:
            case "up":
                return up(value, **many)
            case "down":
                return down(value, **many)
            case "%":
                return f"{100 * value:.6g} %"
            case "'":
                return f"'{value}'"
            case "" if isinstance(value, float):
                return words(value)
        return format(value, spec)


FORMATTER = _Formatter()


@cache
def names_in(key: str) -> tuple[str, ...]:
    """Return the names of the figures of a sentence.

    >>> names_in("limit")
    ('reach',)
    """
    return tuple(name for _, name, _, _ in FORMATTER.parse(SENTENCES[key]) if name)


class Said(str):
    """A sentence that knows its key, and the figures that it is made of.

    >>> Said("limit", {"reach": 2.5}).figures
    {'reach': 2.5}
    """

    key: str
    figures: dict[str, Any]

    def __new__(cls, key: str, figures: Mapping[str, Any]) -> Said:
        """Write the sentence of a key."""
        own = super().__new__(cls, FORMATTER.vformat(SENTENCES[key], (), figures))
        own.key, own.figures = key, dict(figures)
        return own

    @property
    def word(self) -> str:
        """The verdict that it is, in a word: the second part of its key."""
        return self.key.split(".")[1]

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Copy the words alone."""
        return str, (str(self),)


@dataclass(frozen=True)
class Assumption(Record):
    """One thing that must be true, in words, and what we know of it.

    ``checked``: verified on the data or the model. ``assumed``: no look at them can
    verify it. ``could not be checked``: one could, had more been known. ``failed``:
    verified, and false.
    """

    text: str
    state: State

    @classmethod
    def of(cls, key: str, state: State, **figures: Any) -> Assumption:
        """Build one from the key of its sentence."""
        return cls(Said(f"ground.{key}", figures), state)


HONEST = Assumption.of("honest", "assumed")
