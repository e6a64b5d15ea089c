"""Types of parameters: what a value may be, and that in words.

A class declares its parameters as fields of these types, and refuses all that is wrong
with them in one message:

    step_size: Positive | None = None          a number > 0, or None
    batch: Literal["all", "one"] = "all"       one of two words

Types that say nothing here, such as arrays, are not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pffl.errors import Problems, UsageError, wrong
from pffl.numerics import is_number


@dataclass(frozen=True)
class Allowed:
    """What a parameter may be, in the words of an error, and a test of it."""

    words: str
    test: Callable[[Any], bool]


def above(low: float, *, below: float) -> Allowed:
    """Allow what is between two numbers."""
    words = f"a number between {low:.4g} and {below:.4g}"
    return Allowed(words, lambda value: low < value < below)


def whole(least: int, most: int) -> Allowed:
    """Allow whole numbers within limits."""
    words = f"a whole number from {least} to {most:,}"
    return Allowed(words, lambda value: least <= value <= most)


def is_range(ends: Any) -> bool:
    """Whether these are two numbers, the smaller first."""
    pair = isinstance(ends, list | tuple) and len(ends) == 2
    return pair and all(map(is_number, ends)) and ends[0] < ends[1]


Positive = Annotated[float, Allowed("a finite number > 0", lambda value: value > 0)]
NonNegative = Annotated[float, Allowed("a finite number ≥ 0", lambda value: value >= 0)]
Share = Annotated[float, Allowed("a number in (0, 1]", lambda value: 0 < value <= 1)]
Count = Annotated[int, Allowed("a whole number ≥ 1", lambda value: value >= 1)]
Interval = Annotated[
    tuple[float, float], Allowed("two finite numbers, the smaller first", is_range)
]


def check_parameters(owner: Any, problems: Problems | None = None) -> None:
    """Refuse the fields of a dataclass that are not of their types, all at once.

    Those found are added to `problems`, where they are given.
    """
    name = type(owner).__name__
    found = problems or Problems(name, UsageError)
    own: Any = type(owner)
    for parameter, kinds in _kinds(own).items():
        value = getattr(owner, parameter)
        if not any(_fits(value, kind) for kind in kinds):
            wanted = " or ".join(_words(kind) for kind in kinds if kind is not NoneType)
            found.add(wrong(parameter, name, wanted, value))
    if problems is None:
        found.raise_if_any()


@cache
def _kinds(owner: Any) -> dict[str, tuple[Any, ...]]:
    """Types that each parameter may have."""
    hints = get_type_hints(owner, include_extras=True)
    found = {f.name: hints[f.name] for f in fields(owner)}
    several = (Union, UnionType)
    return {
        n: get_args(h) if get_origin(h) in several else (h,) for n, h in found.items()
    }


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind in (bool, NoneType):
        return isinstance(value, kind)
    base, allowed, *_ = (*get_args(kind), None, None)
    if not isinstance(allowed, Allowed):
        return True  # of other types nothing is known here
    if base is float and not is_number(value):
        return False
    return bool((base is not int or type(value) is int) and allowed.test(value))


def _words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return "true or false" if kind is bool else str(get_args(kind)[1].words)
