"""What data sets of people share: their records, protected attributes, and frames."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    cast,
    overload,
)

import numpy as np

from pffl.data import Federation, Rows
from pffl.data.checks import listing
from pffl.errors import DataError, Problems

if TYPE_CHECKING:
    import pandas as pd

P = ParamSpec("P")


class Frames(NamedTuple):
    """A data set as frames with one index: silo by silo, split by split.

    Attributes
    ----------
    X
        Inputs, before scaling.
    y
        Codes of the labels, or numbers; its name is the target's.
    sensitive_features
        The protected attributes, in words.
    about
        The ``silo`` and ``split`` of each row; also whom it is about (``person``) and
        its ``weight``, where they are known.
    """

    X: pd.DataFrame
    y: pd.Series[Any]
    sensitive_features: pd.DataFrame
    about: pd.DataFrame


class Loader(Protocol[P]):
    """A function that returns a federation, or frames."""

    __name__: str

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Federation: ...

    @overload
    def __call__(
        self, *args: Any, as_frame: Literal[True], **kwargs: Any
    ) -> Frames: ...


def framed(load: Callable[P, Federation]) -> Loader[P]:
    """Let a function that loads a federation take ``as_frame=True``."""

    @wraps(load)
    def loaded(*args: Any, as_frame: bool = False, **kwargs: Any) -> Any:
        federation = load(*args, **kwargs)
        return as_frames(federation) if as_frame else federation

    return cast("Loader[P]", loaded)


def as_frames(federation: Federation) -> Frames:
    """Return all rows of a federation as frames."""
    import pandas as pd

    schema = federation.schema
    parts = [
        (k.name, s, rows) for k in federation.silos for s, rows in k.splits.items()
    ]
    sizes = [len(rows) for *_, rows in parts]
    rows = Rows.joined([rows for *_, rows in parts])
    known = {"person": rows.person, "weight": rows.weight}
    about = {
        "silo": np.repeat([silo for silo, *_ in parts], sizes),
        "split": np.repeat([split for _, split, _ in parts], sizes),
        **{name: values for name, values in known.items() if values is not None},
    }
    protected = {
        attribute.name: np.array(attribute.values)[
            schema.attribute_codes(attribute.name)[rows.group]
        ]
        for attribute in schema.attributes
    }
    y = rows.y.astype(np.int64) if schema.labels else rows.y
    return Frames(
        pd.DataFrame(np.asarray(rows.X), columns=list(schema.features)),
        pd.Series(y, name=schema.target),
        pd.DataFrame(protected),
        pd.DataFrame(about),
    )


def protected_names(
    group: str | Sequence[str], known: Sequence[str], problems: Problems
) -> tuple[str, ...]:
    """Names of the protected attributes; what is wrong with them is noted."""
    names = (group,) if isinstance(group, str) else tuple(group)
    if not names or len(set(names)) < len(names) or not set(names) <= set(known):
        problems.add(
            f"[unknown-group] 'group' must be of {', '.join(known)}, each once. Got "
            f"{group!r} instead."
        )
    return names


def check_lengths(
    lines: Iterable[bytes], what: object, delimiter: str, fields: int
) -> None:
    """Refuse records of the wrong length, all at once, by their lines.

    pandas fills a short record up with missing values, and cuts a long one.
    """
    comma, wrong = delimiter.encode(), []
    for number, line in enumerate(lines, start=1):
        found = line.count(comma) + 1
        if b'"' in line:
            text = line.decode("utf-8", errors="replace")
            found = len(next(csv.reader([text], delimiter=delimiter)))
        if found != fields and line.strip():
            wrong.append(f"{number} ({found})")
    if wrong:
        raise DataError(
            f"[bad-record] {what}: expected {fields} fields; lines with another "
            f"number: {listing(wrong)}. The file was cut off, or is not this table."
        )
