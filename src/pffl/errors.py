"""Every way to fail, each with the exit code of the command line.

A message says what was wrong, where, what was seen, and what to do. Errors of one
input are collected first and raised together (`Problems`).
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import ClassVar


class PFFLError(Exception):
    """Base of all errors that `pffl` raises on purpose.

    Attributes
    ----------
    exit_code
        What the command line ends with: 2 usage, 3 data, 4 a bound that is not met,
        5 federation, 6 artefact, 7 privacy budget; see docs/errors.md.

    Examples
    --------
    >>> import pffl
    >>> try:
    ...     pffl.BoundedGroupLoss(-1.0)
    ... except pffl.PFFLError as error:
    ...     print(type(error).__name__, error.exit_code)
    UsageError 2
    """

    exit_code: ClassVar[int] = 1


class UsageError(PFFLError, ValueError):
    """A parameter, option or run file is wrong."""

    exit_code = 2


class MissingExtraError(UsageError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the extra '{extra}': pip install 'pffl[{extra}]'"
        )


class DataError(PFFLError, ValueError):
    """The data cannot be used as it is."""

    exit_code = 3


class NotMetError(PFFLError):
    """A bound was not met, or is impossible, and the caller required it."""

    exit_code = 4


class FederationError(PFFLError):
    """A silo did not answer, or its answer was refused."""

    exit_code = 5


class Refused(FederationError):
    """A message that is not taken: the reason holds no figure of any rows."""


class Malformed(PFFLError, ValueError):
    """Bytes that are not a parcel, or not the one that was expected."""

    exit_code = 5


class ArtefactError(PFFLError):
    """A file that we wrote or read is damaged, foreign or cannot be written."""

    exit_code = 6


class PrivacyBudgetError(PFFLError):
    """The next release would exceed the privacy budget."""

    exit_code = 7
    said: ClassVar = "privacy budget: the next release"  # by a site that refuses it


class Problems:
    """Collect all problems of one input, then raise them as one error.

    >>> with Problems("silo table", DataError) as problems:
    ...     if True:
    ...         problems.add("column 'age': 3 missing values")
    Traceback (most recent call last):
    ...
    pffl.errors.DataError: silo table: column 'age': 3 missing values
    """

    def __init__(self, subject: str, error: type[PFFLError]) -> None:
        self.subject = subject
        self.error = error
        self.found: list[str] = []

    def add(self, problem: str) -> None:
        """Note one problem."""
        self.found.append(problem)

    def raise_if_any(self) -> None:
        """Raise everything found so far as one error."""
        if len(self.found) == 1:
            raise self.error(f"{self.subject}: {self.found[0]}")
        if self.found:
            listing = "\n".join(f"  - {problem}" for problem in self.found)
            raise self.error(f"{self.subject}: {len(self.found)} problems\n{listing}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __enter__(self) -> Problems:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.raise_if_any()


def wrong(key: str, owner: str, wanted: str, got: object) -> str:
    """The one form of a message about a value."""
    return f"The '{key}' parameter of {owner} must be {wanted}. Got {got!r} instead."
