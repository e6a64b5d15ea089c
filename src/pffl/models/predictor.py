"""A predictor: how a table becomes inputs, a model and its weights, in one thing.

This is what a run makes, and what is saved, loaded and exported. It takes tables as
they are, and its answers are in the labels' own type.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.data.encoding import TableEncoding, Unseen
from pffl.data.reading import is_table
from pffl.data.schema import Schema
from pffl.data.silo import as_inputs
from pffl.errors import ArtefactError, DataError, MissingExtraError, UsageError
from pffl.models.base import Inputs, Model
from pffl.text import few, visible
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd
    from onnx import ModelProto
    from sklearn.pipeline import Pipeline

    Table: TypeAlias = pd.DataFrame | str | os.PathLike[str] | NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Predictor:
    """A model that takes tables; see `pffl.load`.

    Attributes
    ----------
    preparation
        How the columns of a table become inputs.
    model, w
        The model, bound to its names and scaling, and its parameters.
    loss_bound
        M: its probabilities are kept so far from 0 that no loss is above it; None for
        numbers.
    fingerprint
        SHA-256 of the data that it was trained on, where known.
    cells, bounds, multipliers
        The cells that it was trained under, the bound on the loss of each (NaN where
        not known), and λ.
    """

    preparation: TableEncoding
    model: Model
    w: FloatArray
    loss_bound: float | None = None
    fingerprint: str | None = None
    cells: tuple[str, ...] = ()
    bounds: FloatArray = field(default_factory=lambda: np.zeros(0))
    multipliers: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def schema(self) -> Schema:
        """Names of inputs, groups and labels."""
        return self.preparation.schema

    @property
    def inputs(self) -> Inputs:
        """How encoded inputs are scaled."""
        return self.model.inputs

    @property
    def classes(self) -> NDArray[Any]:
        """The labels in their own type, in the order of the probabilities."""
        return self.preparation.classes

    def __repr__(self) -> str:
        """Return what it takes and what it predicts, in a few lines."""
        schema, columns = self.schema, self.preparation.columns
        lines = [
            f"Predictor of '{schema.target}': {few(schema.labels) or 'a number'}",
            f"columns: {few([column.name for column in columns])}",
            f"trained under bounds for: {few(self.cells) or 'nobody'}",
        ]
        return "\n".join(map(visible, lines))

    def predict(self, table: Table, *, unseen: Unseen | None = None) -> NDArray[Any]:
        """Return labels in their own type, or numbers.

        Parameters
        ----------
        table
            A DataFrame, a CSV or Parquet file; or an array of the encoded inputs.
            Columns that are not needed, such as label and groups, may be there or not.
        unseen
            What to do with categories that are new to it, other than `preparation`
            says.
        """
        X = self._scaled(table, unseen)
        codes = self.model.classes(self.w, X)
        if codes is None:
            return self.model.bounded_values(self.w, X)
        return self.classes[codes.astype(np.int64)]

    def predict_proba(
        self, table: Table, *, unseen: Unseen | None = None
    ) -> FloatArray:
        """Return class probabilities, shape (rows, classes), bounded as certified.

        Parameters
        ----------
        table, unseen
            As for `predict`.
        """
        bound = np.inf if self.loss_bound is None else self.loss_bound
        return self.model.bounded_proba(self.w, self._scaled(table, unseen), bound)

    def decision_function(
        self, table: Table, *, unseen: Unseen | None = None
    ) -> FloatArray:
        """Return scores: of two classes one number a row, positive for the last one.

        Parameters
        ----------
        table, unseen
            As for `predict`.
        """
        if not self.schema.labels:
            raise UsageError(f"'{self.schema.target}' is a number: use predict")
        scores = self.model.scores(self.w, self._scaled(table, unseen))
        if scores.ndim == 2 and scores.shape[1] == 2:
            return np.asarray(scores[:, 1] - scores[:, 0])
        return scores

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it into a new file, which `pffl.load` reads."""
        from pffl.models.model_file import write_model

        return _written(path, write_model(self))

    def to_sklearn(self) -> Pipeline:
        """Return a fitted scikit-learn pipeline that takes raw tables; see `Export`.

        Of a linear model; its coefficients are in the units of the raw inputs.
        """
        from pffl.models.export.pipeline import pipeline_of

        return pipeline_of(self)

    def to_onnx(self, path: str | os.PathLike[str] | None = None) -> ModelProto:
        """Return an ONNX model that takes raw columns, and write it into a new file.

        Of a linear model. Needs the extra `onnx`.

        Parameters
        ----------
        path
            The file; None writes none.
        """
        try:
            from pffl.models.export.onnx_model import onnx_model
        except ModuleNotFoundError as error:
            raise MissingExtraError("onnx", "an export to ONNX") from error
        model = onnx_model(self)
        if path is not None:
            _written(path, model.SerializeToString(deterministic=True))
        return model

    def coefficients(self) -> pd.DataFrame:
        """Return what a linear model adds up, in the units of the raw inputs.

        One row per input, and the intercept: its column and value (of a category, or
        the part of a date), ``coefficient`` (what one unit more adds to the score: the
        log-odds of the last of two classes, or the predicted number), ``per_sd`` (what
        one standard deviation more adds), ``mean`` and ``sd`` of the training rows. Of
        several classes there is a coefficient for each.
        """
        from pffl.models.export.coefficients import coefficients_of

        return coefficients_of(self)

    def encode(self, table: Table, *, unseen: Unseen | None = None) -> FloatArray:
        """Return the inputs of a table, before scaling, shape (rows, inputs)."""
        if is_table(table):
            return self.preparation.inputs(table)
        inputs, expected = as_inputs(table), self.schema.n_features
        if inputs.ndim != 2 or inputs.shape[1] != expected:
            raise DataError(
                f"inputs have shape {inputs.shape}, expected (rows, {expected}): "
                f"{few(self.schema.features)}"
            )
        bad = int((~np.isfinite(inputs)).any(axis=1).sum())
        if bad:
            raise DataError(f"{bad} rows have missing or infinite inputs")
        return inputs

    def _scaled(self, table: Table, unseen: Unseen | None) -> FloatArray:
        return self.inputs.apply(self.encode(table, unseen=unseen))


def _written(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a new file; one that is there stays."""
    place = Path(path)
    if place.exists():
        raise ArtefactError(f"'{place}' is there already: choose another name")
    files.write(place, content)
    return place
