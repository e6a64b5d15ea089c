"""A predictor: how a table becomes inputs, a model and its weights, in one thing.

This is what a run makes, and what is saved, loaded and exported. It takes tables as
they are, and its answers are in the labels' own type.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.data.columns import TableEncoding, Unseen
from pffl.data.read import is_table, read_chunks
from pffl.data.rows import Matrix, as_inputs, rows_not_finite
from pffl.data.schema import Schema
from pffl.errors import ArtefactError, DataError, MissingExtraError, UsageError
from pffl.models.base import Inputs, Model
from pffl.models.scaled import Design
from pffl.text import few, visible
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd
    from onnx import ModelProto
    from sklearn.pipeline import Pipeline

    Table: TypeAlias = pd.DataFrame | str | os.PathLike[str] | NDArray[Any]


PREDICTION, PROBABILITY = "prediction", "probability"  # columns of scores
MAX_SCALED_NUMBERS = 1 << 22  # at once


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
        M: its probabilities are kept so far from 0 (its numbers so near the range of
        the target) that no loss is above it; None where they are not.
    fingerprint
        SHA-256 of the data that it was trained on, where known.
    cells, bounds, multipliers
        The cells that it was trained under, the bound on the loss of each (NaN where
        not known), and λ.

    Raises
    ------
    DataError
        By `predict` and `predict_proba`: a table that it cannot read, all that is wrong
        with it.
    UsageError
        `predict_proba` of a model for numbers.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> predictor = pffl.solve(people, pffl.BoundedGroupLoss(0.65), seed=0).predictor
    >>> predictor.classes
    array(['class 0', 'class 1'], dtype='<U7')
    >>> predictor.predict(people.pooled("test").X[:3]).shape
    (3,)
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
        """Return what it takes and what it predicts."""
        schema, columns = self.schema, [c.name for c in self.preparation.columns]
        return visible(
            f"Predictor of '{schema.target}': {few(schema.labels) or 'a number'}; from "
            f"{few(columns)}; trained under bounds for {few(self.cells) or 'no group'}"
        )

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
        return self._over(table, unseen, self._predicted)

    def predict_proba(
        self, table: Table, *, unseen: Unseen | None = None
    ) -> FloatArray:
        """Return class probabilities, shape (rows, classes), bounded as certified.

        Parameters
        ----------
        table, unseen
            As for `predict`.
        """
        return self._over(table, unseen, self._probabilities)

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
            raise UsageError(
                f"[predicts-numbers] '{self.schema.target}' is a number: use predict"
            )

        def scores(X: Design) -> FloatArray:
            z = self.model.scores(self.w, X)
            two = z.ndim == 2 and z.shape[1] == 2
            return np.asarray(z[:, 1] - z[:, 0]) if two else z

        return self._over(table, unseen, scores)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it into a new file, which `pffl.load` reads."""
        from pffl.models.model_file import write_model

        place = _new(path)
        files.write(place, write_model(self))
        return place

    def to_sklearn(self, *, unseen: Unseen | None = None) -> Pipeline:
        """Return a fitted scikit-learn pipeline for raw tables.

        Parameters
        ----------
        unseen
            As for `predict`.
        """
        from pffl.models.export import pipeline_of

        return pipeline_of(self, unseen)

    def to_onnx(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        unseen: Unseen | None = None,
    ) -> ModelProto:
        """Return a linear model in ONNX, for raw columns; needs the extra `onnx`.

        Parameters
        ----------
        path
            A new file to write it to.
        unseen
            As for `predict`; what is refused comes out as NaN.
        """
        from pffl.models.export import onnx_model

        try:
            model = onnx_model(self, unseen)
        except ModuleNotFoundError as error:
            raise MissingExtraError("onnx", "an export to ONNX") from error
        if path is not None:
            files.write(_new(path), model.SerializeToString(deterministic=True))
        return model

    def coefficients(self) -> pd.DataFrame:
        """Return what a linear model adds up, in the units of the raw inputs.

        One row per input, and the intercept: its column and value (of a category, or
        the part of a date), ``coefficient`` (what one unit more adds to the score: the
        log-odds of the last of two classes, or the predicted number), ``per_sd`` (what
        one standard deviation more adds), ``mean`` and ``sd`` of the training rows; the
        inputs of a text share one, that of the whole text. Of several classes there is
        a coefficient for each.
        """
        from pffl.models.coefficients import coefficients_of

        return coefficients_of(self)

    def _predicted(self, X: Design) -> NDArray[Any]:
        codes = self.model.classes(self.w, X)
        if codes is None:
            return self.model.bounded_values(self.w, X, self._bound)
        return self.classes[codes.astype(np.int64)]

    def _probabilities(self, X: Design) -> FloatArray:
        return self.model.bounded_proba(self.w, X, self._bound)

    @property
    def _bound(self) -> float:
        return np.inf if self.loss_bound is None else self.loss_bound

    def _over(
        self,
        table: Table,
        unseen: Unseen | None,
        function: Callable[[Design], NDArray[Any]],
    ) -> NDArray[Any]:
        """Return a function of all rows, piece by piece: encoded rows are large."""
        if not is_table(table):
            X = self._checked(table)
            return np.concatenate([function(part) for part in self._batches(X)])
        parts: list[NDArray[Any]] = []
        rule = _checked_rule(unseen)
        for chunk in read_chunks(table, self.preparation.columns):
            X = self.preparation.encode(chunk, rule)
            parts += [function(part) for part in self._batches(X)]
        return np.concatenate(parts)

    def _batches(self, X: Matrix) -> Iterator[Design]:
        """Yield scaled inputs, a limited number at once."""
        n, d = X.shape
        most = MAX_SCALED_NUMBERS
        rows = max(1, most // max(1, d)) if isinstance(X, np.ndarray) else most
        for start in range(0, max(1, n), rows):
            yield self.inputs.apply(X[start : start + rows])

    def _checked(self, given: object) -> Matrix:
        expected = self.schema.n_features
        try:
            inputs = as_inputs(given)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"[wrong-input] {error}: an array is taken as the {expected} encoded "
                "inputs; a table as it comes is a DataFrame, or a file"
            ) from None
        if inputs.ndim != 2 or inputs.shape[1] != expected:
            raise DataError(
                f"[wrong-shape] inputs have shape {inputs.shape}, expected (rows, "
                f"{expected}): {few(self.schema.features)}"
            )
        bad = rows_not_finite(inputs)
        if bad:
            raise DataError(f"[not-finite] {bad} rows have missing or infinite inputs")
        return inputs


def score_file(
    predictor: Predictor,
    rows: str | os.PathLike[str],
    out: str | os.PathLike[str] | BinaryIO,
    *,
    keep: Sequence[str] = (),
    unseen: Unseen | None = None,
) -> int:
    """Write a prediction for each row of a file, and the probability of each class.

    Return the number of rows.

    Both files are handled piece by piece, so that they may have any size.

    Parameters
    ----------
    predictor
        The model.
    rows
        A table: CSV, Parquet, or what else `pffl` reads.
    out
        A new CSV file, which appears when it is whole; or a stream.
    keep
        Columns of the table to write beside the scores.
    unseen
        As for `Predictor.predict`.
    """
    import pandas as pd

    labels, preparation = predictor.schema.labels, predictor.preparation
    names = [f"{PROBABILITY}_{label}" for label in labels]
    taken = [n for n in keep if n in (PREDICTION, *names) or keep.count(n) > 1]
    if taken:
        raise UsageError(
            f"[repeated-column] column '{taken[0]}' cannot be kept: it is one of the "
            "scores"
        )
    counts, rule = [0], _checked_rule(unseen)

    def parts() -> Iterator[pd.DataFrame]:
        for chunk in read_chunks(rows, preparation.columns, tuple(keep)):
            X = preparation.encode(chunk, rule)
            values = [predictor._predicted(part) for part in predictor._batches(X)]
            scores = {PREDICTION: np.concatenate(values)}
            if labels:
                p = [predictor._probabilities(part) for part in predictor._batches(X)]
                scores |= dict(zip(names, np.concatenate(p).T, strict=True))
            counts.append(len(scores[PREDICTION]))
            yield pd.concat([chunk.kept, pd.DataFrame(scores)], axis=1)

    if not isinstance(out, str | os.PathLike):
        _write_csv(out, parts())
    else:
        files.write(_new(out), lambda stream: _write_csv(stream, parts()))
    return sum(counts)


def _write_csv(stream: BinaryIO, parts: Iterator[pd.DataFrame]) -> None:
    """Write CSV; what a spreadsheet would run as a formula is disarmed."""
    for number, part in enumerate(parts):
        for name in part:
            if part[name].dtype.kind not in "iufb":
                texts = {value for value in part[name] if isinstance(value, str)}
                safe = {
                    text: files.disarm(text) for text in texts if not _numeric(text)
                }
                part[name] = part[name].replace(
                    {text: other for text, other in safe.items() if other != text}
                )
        part = part.rename(columns=lambda name: files.disarm(str(name)))
        text = part.to_csv(index=False, header=number == 0, lineterminator="\n")
        stream.write(text.encode())


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _new(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that is not there yet."""
    if (place := Path(path)).exists():
        raise ArtefactError(
            f"[file-exists] '{place}' is there already: choose another name"
        )
    return place


def _checked_rule(unseen: Unseen | None) -> Unseen | None:
    if unseen not in (None, *get_args(Unseen)):
        raise UsageError(f"'unseen' must be one of {get_args(Unseen)}. Got {unseen}.")
    return unseen
