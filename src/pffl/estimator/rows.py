"""Rows as scikit-learn has them, for the solver: training rows and held-out ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pffl.constraints.base import EVERY_SILO
from pffl.data.encoding import as_column, encode_values
from pffl.data.federation import Federation, as_weights
from pffl.data.schema import Attribute, Schema
from pffl.data.silo import Rows, Silo
from pffl.data.sparse import Matrix
from pffl.errors import DataError, Problems, UsageError
from pffl.metrics import EVERYONE, attributes_of, named_columns
from pffl.problem import Problem
from pffl.typing import FloatArray, IntArray

ONLY = "all"  # the silo of rows that are in none


def federation_of(
    X: Matrix,
    y: NDArray[Any],
    names: Sequence[str] | None,
    *,
    classification: bool,
    target: str | None = None,
    sensitive_features: object = None,
    silos: object = None,
    sample_weight: object = None,
) -> Federation:
    """Return the training rows, in their silos."""
    import pandas as pd

    if sensitive_features is None:
        sensitive_features = {EVERYONE.name: np.full(len(y), EVERYONE.values[0])}
    return Federation.from_arrays(
        X,
        y if target is None else pd.Series(y, name=target),
        sensitive_features=named_columns(sensitive_features),
        silo=np.full(len(y), ONLY) if silos is None else silos,
        sample_weight=sample_weight,
        features=names,
        classification=classification,
        test_fraction=0.0,
    )


def weights(sample_weight: object, rows: int) -> FloatArray | None:
    """Return the weight of each row; None where rows count alike."""
    if sample_weight is None:
        return None
    values = as_column(sample_weight)
    if values.shape != (rows,):
        raise DataError(
            f"[wrong-shape] sample_weight has the shape {values.shape}, expected one "
            f"number for each of the {rows:,} rows"
        )
    with Problems("rows", DataError) as problems:
        found = as_weights(values, problems)
    return found


def known_groups(schema: Schema, sensitive_features: object, rows: int) -> IntArray:
    """Return the group of each row; refuse values that were not trained on."""
    if sensitive_features is None and schema.groups != EVERYONE.names:
        raise UsageError(
            "[needs-groups] sensitive_features are needed: the model was trained with "
            f"the groups of {', '.join(a.name for a in schema.attributes)}"
        )
    attributes, codes = attributes_of(sensitive_features, rows)
    if [a.name for a in attributes] != [a.name for a in schema.attributes]:
        known = [a.name for a in schema.attributes]
        raise DataError(
            "[other-groups] sensitive_features has the columns "
            f"{[a.name for a in attributes]}, the model was trained with {known}"
        )
    columns = []
    with Problems("sensitive_features", DataError) as problems:
        for own, known_as, column in zip(
            attributes, schema.attributes, codes.T, strict=True
        ):
            place = {value: code for code, value in enumerate(known_as.values)}
            new = [value for value in own.values if value not in place]
            if new:
                problems.add(
                    f"[unknown-group] '{own.name}' has the values {new[:5]}, which no "
                    f"training row had: {_listed(known_as)}"
                )
            table = np.array([place.get(value, 0) for value in own.values])
            columns.append(table[column])
    return schema.combine(np.stack(columns, axis=1))


def _listed(attribute: Attribute) -> str:
    shown = ", ".join(attribute.values[:10])
    return f"there are {shown}{', …' if len(attribute.values) > 10 else ''}"


def held_out(schema: Schema, rows: Rows, silos: object, shown: Problem) -> Federation:
    """Return held-out rows in their silos, as the only rows that there are."""
    confined = (shown.cells.silo != EVERY_SILO).any()
    names: tuple[str, ...] = (ONLY,)
    codes = np.zeros(len(rows), dtype=np.int64)
    if silos is not None:
        names, codes = encode_values(as_column(silos), "silos")
    if confined and names != shown.silo_names:
        raise DataError(
            "[other-silos] the bounds are of silos: rows of "
            f"{list(shown.silo_names)[:5]} are needed, got {list(names)[:5]} "
            "(`silos=`)"
        )
    counted = rows.weights > 0
    parts = [
        rows.take(np.flatnonzero((codes == k) & counted)) for k in range(len(names))
    ]
    made = [
        Silo(name, k, {"train": part})
        for k, (name, part) in enumerate(zip(names, parts, strict=True))
    ]
    return Federation(schema, tuple(made))
