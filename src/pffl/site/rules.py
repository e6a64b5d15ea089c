"""What a site allows, whatever a server asks."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pffl.errors import FederationError, Problems, UsageError
from pffl.numerics import is_number


class Refused(FederationError):
    """A question that the site does not answer; the text holds nothing of its rows."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Limits that only the site can change.

    Parameters
    ----------
    floor
        Smallest number of rows that a (group, label) of a split must have to be
        reported; below 2 everything is.
    questions
        Questions that a run may ask, the census not counted. `Exact` asks about ten,
        `PFFL` asks E·T, and with the defaults that is in the thousands.
    runs
        Runs that are answered in all: names of runs are the server's to choose.
    radius
        Largest norm of a linear model's parameters, for inputs of spread about 1.
    layouts
        Ways to cut the rows into cells that a run may use.
    largest_message
        Bytes.
    """

    floor: int = 10
    questions: int = 200
    runs: int = 100
    radius: float = 100.0
    layouts: int = 4
    largest_message: int = 64 << 20

    def __post_init__(self) -> None:
        with Problems("limits", UsageError) as problems:
            for field in fields(self):
                value = getattr(self, field.name)
                whole = field.name != "radius"
                good = is_number(value) and value >= 0
                if not good or (whole and type(value) is not int):
                    problems.add(
                        f"The '{field.name}' parameter of [limits] must be a "
                        f"{'whole ' if whole else ''}number ≥ 0. Got {value!r} instead."
                    )
