"""An interval that is known to hold a number."""

from __future__ import annotations

from dataclasses import dataclass

from pffl.certificates._checks import finite, refuse


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
