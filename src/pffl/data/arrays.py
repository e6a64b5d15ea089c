"""Pooled arrays → encoded rows: names and codes for labels, groups and silos."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pffl.data.encode import as_column, encode_labels, encode_values
from pffl.data.schema import Attribute, Schema
from pffl.data.silo import INPUT_TYPES, Rows
from pffl.errors import DataError, Problems
from pffl.typing import IntArray


@dataclass(frozen=True)
class EncodedArrays:
    """Rows of a federation that is still to be split."""

    schema: Schema
    rows: Rows
    silo: IntArray
    silo_names: tuple[str, ...]
    notes: tuple[str, ...]


def encode_arrays(
    X: object,
    y: object,
    sensitive_features: object,
    silo: object,
    features: Sequence[str] | None,
    *,
    classification: bool,
) -> EncodedArrays:
    """Check shapes, then encode; see `Federation.from_arrays`."""
    inputs, target, silo_values = np.asarray(X), as_column(y), as_column(silo)
    protected = as_columns(sensitive_features)
    _check_shapes(inputs, target, silo_values, protected, features)
    encoded: dict[str, tuple[tuple[str, ...], IntArray]] = {}
    with Problems("arrays", DataError) as problems:
        with noted(problems):
            y_codes, labels = encode_labels(target, classification=classification)
        for name, values in protected.items():
            with noted(problems):
                encoded[name] = encode_values(values, f"protected attribute '{name}'")
        with noted(problems):
            silo_names, silo_codes = encode_values(silo_values, "silo")
        with noted(problems):
            inputs = _as_floats(inputs)
    schema = Schema(
        _names(features, inputs),
        tuple(Attribute(name, values) for name, (values, _) in encoded.items()),
        labels,
    )
    group = schema.combine(np.stack([codes for _, codes in encoded.values()], axis=1))
    mapping = ", ".join(f"'{name}' → {code}" for code, name in enumerate(labels))
    notes = (f"label: {mapping}",) if labels else ()
    rows = Rows.of(inputs, y_codes, group)
    return EncodedArrays(schema, rows, silo_codes, silo_names, notes)


def as_columns(sensitive_features: object) -> dict[str, NDArray[np.generic]]:
    """Protected attributes by name; a vector alone is called ``group``."""
    if isinstance(sensitive_features, Mapping):
        return {str(name): as_column(v) for name, v in sensitive_features.items()}
    columns = getattr(sensitive_features, "columns", None)  # a pandas DataFrame
    if columns is not None and isinstance(sensitive_features, Iterable):
        return {str(c): as_column(sensitive_features[c]) for c in columns}  # type: ignore[index]
    return {"group": as_column(sensitive_features)}


@contextmanager
def noted(problems: Problems) -> Iterator[None]:
    """Note a `DataError` as one of several problems instead of raising it."""
    try:
        yield
    except DataError as error:
        problems.add(str(error))


def _as_floats(inputs: NDArray[np.generic]) -> NDArray[np.floating]:
    if inputs.dtype in INPUT_TYPES:
        return inputs  # type: ignore[return-value]
    try:
        return inputs.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"X: not a number: {error}") from error


def _names(
    features: Sequence[str] | None, inputs: NDArray[np.generic]
) -> tuple[str, ...]:
    if features is None:
        return tuple(f"x{j}" for j in range(inputs.shape[1]))
    return tuple(map(str, features))


def _check_shapes(
    inputs: NDArray[np.generic],
    target: NDArray[np.generic],
    silo: NDArray[np.generic],
    protected: Mapping[str, NDArray[np.generic]],
    features: Sequence[str] | None,
) -> None:
    with Problems("arrays", DataError) as problems:
        if inputs.ndim != 2:
            problems.add(f"X must have rows and columns. Got shape {inputs.shape}.")
        elif features is not None and len(features) != inputs.shape[1]:
            problems.add(f"{len(features)} names for {inputs.shape[1]} columns")
        vectors = {"y": target, "silo": silo, **protected}
        flat = {name: v for name, v in vectors.items() if v.ndim == 1}
        problems.found.extend(
            f"'{name}' must be a vector. Got shape {v.shape}."
            for name, v in vectors.items()
            if v.ndim != 1
        )
        lengths = {name: len(v) for name, v in flat.items()}
        if inputs.ndim:
            lengths["X"] = len(inputs)
        if len(set(lengths.values())) > 1:
            problems.add(f"lengths differ: {lengths}")
