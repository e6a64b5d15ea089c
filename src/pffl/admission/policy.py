"""What a federation asks of its sites: how many must answer, how fast, how large."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pffl.errors import FederationError, Problems, UsageError
from pffl.numerics import is_number
from pffl.parcel import LARGEST


class Refused(FederationError):
    """A report that cannot be true, or is not the one that was asked for.

    The reason names what is wrong and holds no figure: it goes into the run record.
    """


@dataclass(frozen=True)
class Policy:
    """Rules for a federation's answers.

    Parameters
    ----------
    quorum
        How many silos must answer a round of training: a number, a fraction, or None
        for all that are asked. Every other question needs all of them.
    seconds
        How long one message may take until its answer counts as missing.
    join_seconds
        How long to wait for sites that are not there.
    retries
        How often those who did not answer are asked again, under new numbers.
    patience
        How many rounds in a row a silo may be missing.
    loss_bound
        M: no loss is larger. None: what the model and the census imply, if anything.
    update_clip
        Largest norm of a silo's update Δ_k. None: what step sizes and the census imply
        for models with bounded slopes, and no limit for others.
    largest_message
        Bytes of an answer.
    largest_rows
        Rows of a silo.
    """

    quorum: int | float | None = None
    seconds: float = 300.0
    join_seconds: float = 600.0
    retries: int = 2
    patience: int = 3
    loss_bound: float | None = None
    update_clip: float | None = None
    largest_message: int = LARGEST
    largest_rows: int = 10**9

    def __post_init__(self) -> None:
        with Problems("policy", UsageError) as problems:
            for name in ("seconds", "join_seconds", "loss_bound", "update_clip"):
                value = getattr(self, name)
                optional = value is None and name in ("loss_bound", "update_clip")
                if not (optional or (is_number(value) and value > 0)):
                    problems.add(_wrong(name, "a finite number > 0", value))
            for name in ("retries", "patience", "largest_message", "largest_rows"):
                value = getattr(self, name)
                least = 0 if name in ("retries", "patience") else 1
                if type(value) is not int or value < least:
                    problems.add(_wrong(name, f"a whole number ≥ {least}", value))
            if not _is_quorum(self.quorum):
                wanted = "a whole number ≥ 1 or a fraction in (0, 1]"
                problems.add(_wrong("quorum", wanted, self.quorum))

    def needed(self, asked: int) -> int:
        """Return how many of those asked for training must answer.

        >>> [Policy(quorum=q).needed(10) for q in (None, 0.75, 3, 20)]
        [10, 8, 3, 10]
        """
        if self.quorum is None:
            return asked
        if isinstance(self.quorum, int):
            return min(self.quorum, asked)
        return math.ceil(self.quorum * asked - 1e-9)


def _is_quorum(value: object) -> bool:
    if value is None:
        return True
    if type(value) is int:
        return value >= 1
    return type(value) is float and 0 < value <= 1


def _wrong(name: str, wanted: str, value: object) -> str:
    return f"The '{name}' parameter must be {wanted}. Got {value!r} instead."
