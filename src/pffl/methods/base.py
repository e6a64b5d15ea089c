"""What a method is: pure functions over a frozen state, fed with totals.

A method never talks to anyone. `question` says what to ask next, `step` takes the
total; so the same file runs in one process, as one of a stack, over machines, and can
be stopped and resumed between any two rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Protocol, TypeVar

from pffl.data.schema import Schema
from pffl.errors import Problems, UsageError
from pffl.problem import Point, Problem
from pffl.questions import Question

S = TypeVar("S")


class Method(Protocol[S]):
    """A way to train.

    Attributes
    ----------
    name
        What the command line calls it.
    multiplier_bound, risk_weight
        B and β of the problem that it solves.
    """

    name: ClassVar[str]

    @property
    def multiplier_bound(self) -> float:
        """B."""

    @property
    def risk_weight(self) -> float:
        """β."""

    def init(self, problem: Problem) -> S:
        """Return the first state."""

    def question(self, problem: Problem, state: S) -> Question[Any] | None:
        """Return what to ask next; None when finished."""

    def step(self, problem: Problem, state: S, total: Any) -> S:
        """Return the state after a total has come in."""

    def finish(self, problem: Problem, state: S) -> Point:
        """Return the pair (w, λ) that the method stands for so far."""


def describe(method: object) -> Mapping[str, object]:
    """Plain form of a method's parameters, for files and messages."""
    values = {f.name: getattr(method, f.name) for f in fields(method)}  # type: ignore[arg-type]
    plain = {
        k: v for k, v in values.items() if v is None or isinstance(v, int | float | str)
    }
    return {"kind": type(method).name, **plain}  # type: ignore[attr-defined]


def check_parameters(
    owner: object,
    *,
    positive: tuple[str, ...] = (),
    nonnegative: tuple[str, ...] = (),
    counts: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
) -> None:
    """Refuse bad numbers, all at once, in one form of message."""
    name = type(owner).__name__
    with Problems(name, UsageError) as problems:
        for parameter in (*positive, *nonnegative, *counts):
            value = getattr(owner, parameter)
            if value is None and parameter in optional:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if parameter in counts:
                good = number and isinstance(value, int) and value >= 1
                wanted = "a whole number ≥ 1"
            elif parameter in positive:
                good = number and math.isfinite(value) and value > 0
                wanted = "a finite number > 0"
            else:
                good = number and math.isfinite(value) and value >= 0
                wanted = "a finite number ≥ 0"
            if not good:
                problems.add(
                    f"The '{parameter}' parameter of {name} must be {wanted}. "
                    f"Got {value!r} instead."
                )


def check_two_classes(owner: object, schema: Schema) -> None:
    """Refuse data for which "predicted positive" has no meaning."""
    if len(schema.labels) != 2:
        raise UsageError(
            f"{type(owner).__name__} compares rates of positive predictions and needs "
            f"two classes; '{schema.target}' has "
            f"{len(schema.labels) or 'numeric values'}"
        )


def check_choice(owner: object, parameter: str, allowed: tuple[object, ...]) -> None:
    """Refuse a value that is none of those allowed."""
    value = getattr(owner, parameter)
    if value not in allowed:
        words = ", ".join(str(choice) for choice in allowed if choice is not None)
        raise UsageError(
            f"The '{parameter}' parameter of {type(owner).__name__} must be one of "
            f"{words}. Got {value!r} instead."
        )
