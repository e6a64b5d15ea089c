"""A predictor: how a table becomes inputs, a model and its weights, in one thing.

This is what a run makes, and what is saved, loaded and exported. It takes tables as
they are, and its answers are in the labels' own type.

Everything that its file announces is judged from its bytes before memory is given to
anything; no code is ever loaded from it (fault 68). The same run gives the same bytes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.data.columns import Column, TableEncoder
from pffl.data.read import is_number, is_table
from pffl.data.rows import Matrix, as_inputs, rows_not_finite
from pffl.data.schema import Schema
from pffl.errors import (
    ArtefactError,
    DataError,
    Malformed,
    MissingExtraError,
    PFFLError,
    UsageError,
)
from pffl.models.base import UNSCALED, Inputs, Model, Target
from pffl.models.external import Probabilities, Reported
from pffl.models.linear import LinearModel, NumericModel, rebuild
from pffl.models.scaled import Design
from pffl.records import Record, read
from pffl.tensors import MAX_BYTES, Parcel, judge, pack, unpack
from pffl.text import few, visible
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd
    from onnx import ModelProto
    from sklearn.pipeline import Pipeline

    Table: TypeAlias = pd.DataFrame | str | os.PathLike[str] | NDArray[Any]


INTERCEPT = "(intercept)"
PREDICTION, PROBABILITY = "prediction", "probability"  # columns of scores
MAX_NUMBERS = 1 << 22  # at once
FORMAT = "pffl model"
VERSION = 7
ARRAYS = ("w", "multipliers", "input_mean", "input_scale", "input_fill", "bounds")


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
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> predictor = pffl.solve(people, pffl.BoundedGroupLoss(0.65)).predictor
    >>> predictor.classes
    array(['class 0', 'class 1'], dtype='<U7')
    >>> predictor.predict(people.pooled("test").X[:3]).shape
    (3,)
    """

    preparation: TableEncoder
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

    def predict(self, table: Table) -> NDArray[Any]:
        """Return labels in their own type, or numbers.

        Parameters
        ----------
        table
            A DataFrame, a CSV or Parquet file; or an array of the encoded inputs.
            Columns that are not needed, such as label and groups, may be there or not.
            A category that is unknown is refused, unless its column has an ``other``.
        """
        return np.concatenate([self._predicted(X) for X in self._pieces(table)])

    def predict_proba(self, table: Table) -> FloatArray:
        """Return class probabilities, shape (rows, classes), bounded as certified."""
        return np.concatenate([self._probabilities(X) for X in self._pieces(table)])

    def decision_function(self, table: Table) -> FloatArray:
        """Return scores: of two classes one number a row, positive for the last one."""
        if not self.schema.labels:
            raise UsageError("predicts-numbers", target=self.schema.target)
        scores = [self.model.scores(self.w, X) for X in self._pieces(table)]
        z = np.concatenate(scores)
        two = z.ndim == 2 and z.shape[1] == 2
        return np.asarray(z[:, 1] - z[:, 0]) if two else z

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it into a new file, which `pffl.load` reads."""
        place = _new(path)
        files.write(place, write_model(self))
        return place

    def to_sklearn(self) -> Pipeline:
        """Return a fitted scikit-learn pipeline for raw tables."""
        from pffl.models.export import pipeline_of

        return pipeline_of(self)

    def to_onnx(self, path: str | os.PathLike[str] | None = None) -> ModelProto:
        """Return a linear model in ONNX, for raw columns; needs the extra `onnx`.

        Parameters
        ----------
        path
            A new file to write it to.
        """
        from pffl.models.export import onnx_model

        try:
            model = onnx_model(self)
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
        import pandas as pd

        found, intercepts = coefficients_of(self)
        table = pd.DataFrame(found)
        table.loc[len(table)] = {"input": INTERCEPT, **intercepts}
        return table

    def _predicted(self, X: Design) -> NDArray[Any]:
        codes, bound = self.model.classes(self.w, X), self._bound
        if codes is None:
            return self.model.bounded_values(self.w, X, bound)
        return self.classes[codes.astype(np.int64)]

    def _probabilities(self, X: Design) -> FloatArray:
        return self.model.bounded_proba(self.w, X, self._bound)

    @property
    def _bound(self) -> float:
        return np.inf if self.loss_bound is None else self.loss_bound

    def _pieces(self, table: Table) -> Iterator[Design]:
        """Yield the scaled inputs of all rows, piece by piece: they are large."""
        if not is_table(table):
            yield from self._batches(self._checked(table))
            return
        for _, X in self.preparation.pieces(table):
            yield from self._batches(X)

    def _batches(self, X: Matrix) -> Iterator[Design]:
        """Yield scaled inputs, a limited number at once."""
        (n, d), rows = X.shape, MAX_NUMBERS
        if isinstance(X, np.ndarray):
            rows = max(1, rows // max(1, d))
        for start in range(0, max(1, n), rows):
            yield self.inputs.apply(X[start : start + rows])

    def _checked(self, given: object) -> Matrix:
        expected = self.schema.n_features
        try:
            inputs = as_inputs(given)
        except (TypeError, ValueError) as error:
            raise DataError("wrong-input", error=error, expected=expected) from None
        if inputs.ndim != 2 or inputs.shape[1] != expected:
            raise DataError(
                "wrong-shape:checked",
                shape=inputs.shape,
                expected=expected,
                features=few(self.schema.features),
            )
        if bad := rows_not_finite(inputs):
            raise DataError("not-finite:checked", bad=bad)
        return inputs


def score_file(
    predictor: Predictor,
    rows: str | os.PathLike[str],
    out: str | os.PathLike[str] | BinaryIO,
    *,
    keep: Sequence[str] = (),
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
        Columns of the table to write with the scores.
    """
    import pandas as pd

    labels = predictor.schema.labels
    names = [f"{PROBABILITY}_{label}" for label in labels]
    taken = [n for n in keep if n in (PREDICTION, *names) or keep.count(n) > 1]
    if taken:
        raise UsageError("repeated-column:score-file", taken=taken[0])
    counts = [0]

    def parts() -> Iterator[pd.DataFrame]:
        for chunk, X in predictor.preparation.pieces(rows, keep):
            values = [predictor._predicted(part) for part in predictor._batches(X)]
            scores = {PREDICTION: np.concatenate(values)}
            if labels:
                p = [predictor._probabilities(part) for part in predictor._batches(X)]
                scores |= dict(zip(names, np.concatenate(p).T, strict=True))
            counts.append(len(scores[PREDICTION]))
            kept = chunk[list(keep)].reset_index(drop=True)
            yield pd.concat([kept, pd.DataFrame(scores)], axis=1)

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
                texts = part[name].astype(object)
                begins = texts.str.match(r"\s*[=+@-]")  # NaN where it is no text
                odd = texts[begins.eq(True)]
                odd = odd[[not is_number(text) for text in odd]]
                texts.loc[odd.index] = odd.map(files.disarm)
                part[name] = texts
        part = part.rename(columns=lambda name: files.disarm(str(name)))
        text = part.to_csv(index=False, header=number == 0, lineterminator="\n")
        stream.write(text.encode())


def _new(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that is not there yet."""
    if (place := Path(path)).exists():
        raise ArtefactError("file-exists:new", place=place)
    return place


# What a linear model says, in the units of its raw inputs


@dataclass(frozen=True, eq=False)
class RawForm:
    """Scores of inputs x, filled: ``intercept + coefficients · (x − mean)``.

    The shift stays apart. Folded into the intercept, it would cancel: a year around
    2000, or an account's number, would cost the digits by which people differ.

    Attributes
    ----------
    columns, spans
        Those of the table, and where the inputs of each are.
    coefficients
        Per unit of each input, shape (outputs, inputs).
    intercept
        Scores of the mean inputs.
    mean
        Of the inputs, over the training rows.
    deviation
        Their standard deviations; NaN where they are not known.
    fill
        What an input is where it is missing; 0 where it cannot be.
    limits
        Where numbers are kept.
    """

    columns: tuple[Column, ...]
    spans: dict[str, slice]
    coefficients: FloatArray
    intercept: FloatArray
    mean: FloatArray
    deviation: FloatArray
    fill: FloatArray
    limits: tuple[float, float]

    @classmethod
    def of(cls, predictor: Predictor, purpose: str) -> RawForm:
        """Unfold a linear model; refuse a network, which has no such form.

        Two classes have one score: the log-odds of the last.
        """
        model, columns = predictor.model, predictor.preparation.columns
        if not isinstance(model, LinearModel):
            raise UsageError("not-linear:of", purpose=purpose)
        target, inputs = model.target, model.inputs
        table = predictor.w.reshape(model.n_outputs, model.n_columns)
        if model.n_outputs == 2:
            table = table[1:] - table[:1]
        d, limits = len(inputs.mean), (-np.inf, np.inf)
        fill = np.zeros(d)
        own = table[:, d] if model.intercept else np.zeros(len(table))
        elsewhere = (inputs.mean == 0).all() and (inputs.scale == 1).all()
        known = model.standardize and not elsewhere
        fill[inputs.gaps[0]] = inputs.fill
        if isinstance(model, NumericModel) and predictor.loss_bound is not None:
            limits = model.limits(predictor.loss_bound)
        ends = np.cumsum([column.width for column in columns]).tolist()
        spans = map(slice, [0, *ends], ends)
        return cls(
            columns,
            dict(zip((column.name for column in columns), spans, strict=True)),
            target.scale * table[:, :d] / inputs.scale,
            target.mean + target.scale * own,
            inputs.mean,
            inputs.scale if known else np.full(d, np.nan),
            fill,
            limits,
        )


def coefficients_of(
    predictor: Predictor, places: IntArray | None = None
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the columns of `Predictor.coefficients`, and the intercepts.

    Of all inputs, or of those at `places` alone.
    """
    form = RawForm.of(predictor, "a table of coefficients")
    every = np.arange(len(form.mean)) if places is None else places
    ends = [span.stop for span in form.spans.values()]
    names = [predictor.schema.features[j] for j in every]
    owners = np.searchsorted(ends, every, side="right").tolist()
    columns = [form.columns[owner].name for owner in owners]
    # What follows the column's name in that of an input: a value, or a date's part.
    pairs = zip(names, columns, strict=True)
    values = [name[len(column) + 1 :] or None for name, column in pairs]
    found: dict[str, Any] = {"input": names, "column": columns, "value": values}
    last: dict[str, float] = {}
    labels = predictor.schema.labels if len(form.coefficients) > 1 else ("",)
    for label, slopes, start in zip(
        labels, form.coefficients, form.intercept, strict=True
    ):
        of = f": {label}" if label else ""
        found[f"coefficient{of}"] = slopes[every]
        found[f"per_sd{of}"] = slopes[every] * form.deviation[every]
        # Where all inputs are 0, added up without rounding in between.
        last[f"coefficient{of}"] = math.fsum([start, *(-slopes * form.mean).tolist()])
    found["mean"], found["sd"] = form.mean[every], form.deviation[every]
    return found, last


# Its file


@dataclass(frozen=True)
class _Header(Record):
    """What the header holds; `target_scaling` is None of classes."""

    format: str
    version: int
    model: dict[str, Any]
    schema: Schema
    cells: tuple[str, ...]
    preparation: TableEncoder
    target_scaling: Target | None = None
    loss_bound: float | None = None
    fingerprint: str | None = None


def write_model(predictor: Predictor) -> bytes:
    """Return the content of `model.safetensors`."""
    target, inputs = predictor.model.target, predictor.inputs
    header = {
        "format": FORMAT,
        "version": VERSION,
        "model": dict(predictor.model.describe()),
        "schema": asdict(predictor.schema),
        "cells": list(predictor.cells),
        "preparation": predictor.preparation.as_dict(),
        "target_scaling": None if target == UNSCALED else asdict(target),
        "loss_bound": predictor.loss_bound,
        "fingerprint": predictor.fingerprint,
    }
    arrays = (predictor.w, predictor.multipliers, inputs.mean, inputs.scale)
    named = zip(ARRAYS, (*arrays, inputs.fill, predictor.bounds), strict=True)
    numbers = {name: np.asarray(a, dtype=np.float64) for name, a in named}
    return pack(Parcel(header, numbers))


def read_model(path: str | os.PathLike[str], *, module: object = None) -> Predictor:
    """Read a predictor from a file; refuse whatever is not one, with the reason.

    Parameters
    ----------
    path
        A `model.safetensors`, or what `Predictor.save` wrote.
    module
        Of a network with a module of your own: one of that class, built as it was for
        training. Its weights are those of the file; no code is ever loaded from one.
    """
    place = Path(path)
    content = files.read(place, largest=MAX_BYTES)
    try:
        return _assemble(content, module)
    except PFFLError as error:
        code = "old-model-file" if error.code == "old-model-file" else "bad-model-file"
        told = f"[{code}] '{place}' cannot be read as a model: {error}"
        raise ArtefactError(told) from error


def _assemble(content: bytes, module: object) -> Predictor:
    """Bind the model to its schema; check every array and length against it."""
    metadata, arrays = judge(content)
    oldest = metadata.get("format") == FORMAT  # 0.1.0 wrote it elsewhere
    plain = {"format": FORMAT, "version": 1} if oldest else unpack(content).header
    found = plain.get("format"), plain.get("version")
    if found in [(FORMAT, version) for version in range(1, VERSION)]:
        raise Malformed("old-model-file", found=found[1], version=VERSION)
    if found != (FORMAT, VERSION):
        raise Malformed("other-format:assemble", found=found, format=(FORMAT, VERSION))
    header = read(_Header, plain, source="header", error=Malformed)
    bad = set(ARRAYS) ^ set(arrays)
    for name, array in arrays.items():
        numbers = array if array.dtype == np.float64 else np.full(1, np.nan)
        finite = numbers > -np.inf if name == "bounds" else np.isfinite(numbers)
        if array.ndim != 1 or not finite.all():
            bad.add(name)
    if bad:
        raise Malformed("wrong-arrays:assemble", arrays=ARRAYS, bad=sorted(bad))
    # Views of the file's bytes cannot be written to.
    w, multipliers, mean, scale, fill, bounds = (np.array(arrays[n]) for n in ARRAYS)
    schema, cells = header.schema, header.cells
    unbound: Model
    if header.model == Probabilities().describe():
        unbound = Probabilities()  # of an audit: no silo is ever asked to rebuild it
    elif header.model.get("kind") == Reported.name:
        unbound = Reported.rebuilt(header.model)  # of an app: likewise
    else:
        unbound = rebuild(header.model, parameters=len(w), module=module)
    target = header.target_scaling or UNSCALED
    gaps = schema.gaps[:, : len(fill)]  # none of a model from elsewhere
    inputs = Inputs(mean, scale, fill=fill, gaps=gaps)
    model = unbound.bind(schema, inputs).with_target(target)
    d, k = schema.n_features, len(cells)
    filled = gaps.shape[1] and len(schema.indicators)
    expected = [model.n_parameters, k, d, d, filled, k]
    if (lengths := [len(arrays[name]) for name in ARRAYS]) != expected:
        raise Malformed(
            "wrong-arrays:assemble-2", arrays=ARRAYS, lengths=lengths, expected=expected
        )
    if (scale <= 0).any() or target.scale <= 0 or (multipliers < 0).any():
        raise Malformed("bad-metadata")
    if header.preparation.schema != schema:
        raise Malformed("bad-preparation")
    bound, data = model.loss_bound(header.loss_bound), header.fingerprint
    known = header.preparation, model, w, bound, data, cells, bounds, multipliers
    return Predictor(*known)
