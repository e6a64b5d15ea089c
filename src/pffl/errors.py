"""Every way to fail, each with a code and the exit code of the command line.

A message says what was wrong, where, what was seen, and what to do. The sentences lie
in `errors.toml`, by code, and an error is raised by its code and its fields:
`ArtefactError("no-memory", path=path)`. Where a code has several sentences, a word
after a colon tells them apart. A text made elsewhere begins with its code in brackets.
Programs compare codes and fields. Errors of one input are collected first and raised
together (`Problems`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import resources
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

    def __init__(self, message: object = "", /, **fields: object) -> None:
        code, text = split_code(message, fields)
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
_KEY = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+(?::[a-z0-9-]+)?")


@cache
def sentences() -> dict[str, str]:
    """Return the sentences of all codes."""
    return tomllib.loads(
        resources.files("pffl").joinpath("errors.toml").read_text("utf-8")
    )


def split_code(
    message: object, fields: Mapping[str, object] | None = None
) -> tuple[str, str]:
    """Return the code of a message ("" if it has none), and its sentence."""
    if isinstance(message, PFFLError):
        return message.code, str(message)
    text = str(message)
    if (found := _CODE.match(text)) is not None:
        return found[1], text[found.end() :]
    if _KEY.fullmatch(text) and (known := sentences().get(text)) is not None:
        return text.partition(":")[0], known.format(**(fields or {}))
    return "", text


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

    def add(self, problem: object, /, **fields: object) -> None:
        """Note one problem: a code with its fields, a message, or an error."""
        code, text = split_code(problem, fields)
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
