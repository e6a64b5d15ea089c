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
        Largest norm of a model's parameters; of a linear one also in units in which
        every input has spread 1 at the site, and times the sharpness of smooth scores.
    batches
        Whether steps on batches of the rows are answered. The server weighs the cells,
        and a cell may have one row in a batch: its gradient is that row.
    layouts
        Ways to cut the rows into cells that a run may use.
    largest_message
        Bytes.
    """

    floor: int = 10
    questions: int = 200
    runs: int = 100
    radius: float = 100.0
    batches: bool = False
    layouts: int = 4
    largest_message: int = 64 << 20

    def __post_init__(self) -> None:
        with Problems("limits", UsageError) as problems:
            if not isinstance(self.batches, bool):
                problems.add(
                    "The 'batches' parameter of [limits] must be true or false. Got "
                    f"{self.batches!r} instead."
                )
            for field in fields(self):
                value = getattr(self, field.name)
                if field.name == "batches":
                    continue
                whole = field.name != "radius"
                good = is_number(value) and value >= 0
                if not good or (whole and type(value) is not int):
                    problems.add(
                        f"The '{field.name}' parameter of [limits] must be a "
                        f"{'whole ' if whole else ''}number ≥ 0. Got {value!r} instead."
                    )
