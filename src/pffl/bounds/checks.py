"""What the pure functions demand of their arguments, and intervals of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pffl.errors import UsageError
from pffl.typing import FloatArray

#: What a caller may pass for a vector of numbers.
Numbers: TypeAlias = float | Sequence[float] | FloatArray


def refuse(name: str, demand: str, seen: object) -> UsageError:
    """Build the one message form for a bad argument."""
    return UsageError(f"The '{name}' parameter must be {demand}. Got {seen!r} instead.")


def finite(name: str, value: Numbers) -> FloatArray:
    """Return `value` as float64; a non-finite number never enters a certificate."""
    array = np.asarray(value, dtype=np.float64)
    if not np.isfinite(array).all():
        raise refuse(name, "finite", value)
    return array


def nonnegative(name: str, value: Numbers) -> FloatArray:
    """Return `value` as a finite array without negative entries."""
    array = finite(name, value)
    if (array < 0).any():
        raise refuse(name, "≥ 0", value)
    return array


def positive(name: str, value: float) -> float:
    """Return one finite number > 0."""
    number = float(finite(name, value))
    if number <= 0:
        raise refuse(name, "> 0", value)
    return number


def whole(name: str, value: Numbers, least: int = 0) -> FloatArray:
    """Return counts: whole numbers of at least `least`, kept as float64."""
    array = finite(name, value)
    if (array < least).any() or (array != np.floor(array)).any():
        raise refuse(name, f"a whole number ≥ {least}", value)
    return array


def probability(name: str, value: float) -> float:
    """Return one number strictly between 0 and 1."""
    number = float(value)
    if not 0.0 < number < 1.0:
        raise refuse(name, "strictly between 0 and 1", value)
    return number


@dataclass(frozen=True)
class Interval:
    """All that is known of a number: ``lower ≤ number ≤ upper``.

    >>> Interval(0.25, 0.75).width
    0.5
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", float(finite("lower", self.lower)))
        object.__setattr__(self, "upper", float(finite("upper", self.upper)))
        if self.lower > self.upper:
            raise refuse("lower", "at most 'upper'", (self.lower, self.upper))

    @property
    def width(self) -> float:
        """Return upper − lower."""
        return self.upper - self.lower

    def __contains__(self, number: float) -> bool:
        return self.lower <= number <= self.upper
