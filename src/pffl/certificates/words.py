"""Numbers in sentences: few digits, rounded so that the sentence is still true."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context


def words(number: float, *, digits: int = 4, rounding: str = ROUND_HALF_EVEN) -> str:
    """Write a number with a few significant digits.

    >>> words(0.123449), up(0.123401), down(0.123499)
    ('0.1234', '0.1235', '0.1234')
    """
    rounded = Context(prec=digits, rounding=rounding).create_decimal(
        repr(float(number))
    )
    return f"{float(rounded):.{digits}g}"


def up(number: float, *, digits: int = 4) -> str:
    """Write an upper bound: rounded up, so that the words are still true."""
    return words(number, digits=digits, rounding=ROUND_CEILING)


def down(number: float, *, digits: int = 4) -> str:
    """Write a lower bound: rounded down, so that the words are still true."""
    return words(number, digits=digits, rounding=ROUND_FLOOR)
