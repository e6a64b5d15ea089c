"""Arrays as a user has them: columns by name, and everything that is wrong at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pffl.data.codes import as_column
from pffl.data.silo import as_inputs
from pffl.data.sparse import Matrix
from pffl.errors import DataError, Problems

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def as_columns(sensitive_features: object) -> dict[str, NDArray[np.generic]]:
    """Protected attributes by name; a vector without one is called ``group``."""
    if isinstance(sensitive_features, Mapping):
        return {str(name): as_column(v) for name, v in sensitive_features.items()}
    columns = getattr(sensitive_features, "columns", None)  # a pandas DataFrame
    if columns is not None and isinstance(sensitive_features, Iterable):
        return {str(c): as_column(sensitive_features[c]) for c in columns}  # type: ignore[index]
    name = name_of(sensitive_features, "group")
    return {name: as_column(sensitive_features)}


def name_of(column: object, default: str) -> str:
    """Return what a pandas Series is called, if by a text."""
    name = getattr(column, "name", None)
    return name if isinstance(name, str) and name else default


def names_of(X: object) -> list[str] | None:
    """Return what the columns of a pandas DataFrame are called."""
    columns = getattr(X, "columns", None)
    return None if columns is None else [str(name) for name in columns]


@contextmanager
def noted(problems: Problems) -> Iterator[None]:
    """Note a `DataError` as one of several problems instead of raising it."""
    try:
        yield
    except DataError as error:
        problems.add(error)


def as_floats(values: NDArray[Any] | csr_array, what: str) -> Matrix:
    """Return numbers in a type of inputs, or say what is none."""
    try:
        return as_inputs(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"[not-numbers] {what}: not a number: {error}") from error


def check_shapes(
    inputs: NDArray[Any] | csr_array,
    vectors: Mapping[str, NDArray[np.generic]],
    features: Sequence[str] | None,
) -> None:
    """Refuse arrays whose shapes do not fit each other."""
    with Problems("arrays", DataError) as problems:
        if inputs.ndim != 2:
            problems.add(
                f"[wrong-shape] X must have rows and columns. Got shape {inputs.shape}."
            )
        elif features is not None and len(features) != inputs.shape[1]:
            problems.add(
                f"[wrong-shape] {len(features)} names for {inputs.shape[1]} columns"
            )
        problems.extend(
            f"[wrong-shape] '{name}' must be a vector. Got shape {v.shape}."
            for name, v in vectors.items()
            if v.ndim != 1
        )
        lengths = {name: len(v) for name, v in vectors.items() if v.ndim == 1}
        if inputs.ndim:
            lengths["X"] = inputs.shape[0]
        if len(set(lengths.values())) > 1:
            problems.add(f"[wrong-length] lengths differ: {lengths}")
