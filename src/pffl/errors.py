"""Every way to fail, each with a code and the exit code of the command line.

A message says what was wrong, where, what was seen, and what to do. It begins with its
code, two words or more in brackets, which programs compare and users do not see:
`DataError("[missing-column] no column 'age'")`. Errors of one input are collected first
and raised together (`Problems`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class PFFLError(Exception):
    """Base of all errors that `pffl` raises on purpose.

    Attributes
    ----------
    exit_code
        What the command line ends with: 2 usage, 3 data, 4 a bound that is not met,
        5 federation, 6 artefact, 7 privacy budget; see docs/commands.md.
    code
        What is wrong, in a word that stays the same when the sentence is reworded.
    codes, problems
        Code and sentence of each problem, if the error collects several.
    fields
        Which column, line, extra … it is about, where that is one thing.

    Examples
    --------
    >>> import pffl
    >>> try:
    ...     pffl.BoundedGroupLoss(-1.0)
    ... except pffl.PFFLError as error:
    ...     print(type(error).__name__, error.code, error.exit_code)
    UsageError wrong-value 2
    """

    exit_code: ClassVar[int] = 1
    code: str = "unknown"

    def __init__(self, message: object = "", **fields: object) -> None:
        code, text = split_code(message)
        super().__init__(text)
        self.code = code or type(self).code
        self.codes: tuple[str, ...] = (self.code,)
        self.problems: tuple[str, ...] = (text,)
        self.fields = fields


class UsageError(PFFLError, ValueError):
    """A parameter, option or run file is wrong."""

    exit_code = 2
    code = "wrong-value"


class MissingExtraError(UsageError, ImportError):
    """An optional dependency is not installed."""

    code = "missing-extra"

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the extra '{extra}': pip install 'pffl[{extra}]'",
            extra=extra,
        )


class DataError(PFFLError, ValueError):
    """The data cannot be used as it is."""

    exit_code = 3
    code = "bad-data"


class NotMetError(PFFLError):
    """A bound was not met, or is impossible, and the caller required it."""

    exit_code = 4
    code = "not-met"


class FederationError(PFFLError):
    """A silo did not answer, or its answer was refused."""

    exit_code = 5
    code = "no-answer"


class Refused(FederationError):
    """A message that is not taken: the reason holds no figure of any rows."""

    code = "message-refused"


class Malformed(PFFLError, ValueError):
    """Bytes that are not a parcel, or not the one that was expected."""

    exit_code = 5
    code = "bad-message"


class ArtefactError(PFFLError):
    """A file that we wrote or read is damaged, foreign or cannot be written."""

    exit_code = 6
    code = "bad-file"


class PrivacyBudgetError(PFFLError):
    """The next release would exceed the privacy budget."""

    exit_code = 7
    code = "budget-exceeded"
    said: ClassVar = "privacy budget: the next release"  # by a site that refuses it


_CODE = re.compile(r"\[([a-z0-9]+(?:-[a-z0-9]+)+)\] ")


def split_code(message: object) -> tuple[str, str]:
    """Return the code that a message begins with ("" if none), and the sentence."""
    if isinstance(message, PFFLError):
        return message.code, str(message)
    text = str(message)
    found = _CODE.match(text)
    return (found[1], text[found.end() :]) if found else ("", text)


class Problems:
    """Collect all problems of one input, then raise them as one error.

    >>> with Problems("silo table", DataError) as problems:
    ...     if True:
    ...         problems.add("[missing-values] column 'age': 3 missing values")
    Traceback (most recent call last):
    ...
    pffl.errors.DataError: silo table: column 'age': 3 missing values
    """

    def __init__(self, subject: str, error: type[PFFLError]) -> None:
        self.subject = subject
        self.error = error
        self.found: list[str] = []
        self.codes: list[str] = []
        self.fields: dict[str, object] = {}

    def add(self, problem: object, **fields: object) -> None:
        """Note one problem: a message, or an error with its code."""
        code, text = split_code(problem)
        self.found.append(text)
        self.codes.append(code or self.error.code)
        self.fields = self.fields or fields

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note what an error in this block says, and go on after the block."""
        try:
            yield
        except PFFLError as error:
            for code, text in zip(error.codes, error.problems, strict=True):
                self.add(f"[{code}] {text}")

    def raise_if_any(self) -> None:
        """Raise everything found so far as one error."""
        if not self.found:
            return
        text = self.found[0]
        if len(self.found) > 1:
            text = "\n  - ".join([f"{len(self.found)} problems", *self.found])
        error = self.error(f"{self.subject}: {text}", **self.fields)
        error.code, error.codes = self.codes[0], tuple(self.codes)
        error.problems = tuple(self.found)
        raise error

    def __enter__(self) -> Problems:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.raise_if_any()


def wrong(key: str, owner: str, wanted: str, got: object) -> str:
    """The one form of a message about a value."""
    return (
        f"[wrong-value] The '{key}' parameter of {owner} must be {wanted}. "
        f"Got {got!r} instead."
    )
