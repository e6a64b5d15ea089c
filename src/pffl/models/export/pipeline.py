"""A trained linear model as a fitted scikit-learn pipeline.

Its parts are scikit-learn's own: a `ColumnTransformer` that picks the columns by name,
a `StandardScaler` that subtracts their means, and a linear model with coefficients in
the units of the raw inputs, fitted by hand. Where rows are kept without their zeros,
only numbers and dates are centred, and the other means are part of the intercept. What
scikit-learn does not have is small: reading numbers, names and texts as pffl does, and
bounded predictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from pffl.data.blocks import dense
from pffl.data.column import MISSING, Column, category_codes, numbers_of
from pffl.data.newcomers import Unseen
from pffl.data.numbers import Decimal
from pffl.data.words import counter, texts_of
from pffl.errors import DataError, Problems
from pffl.models.export.coefficients import RawForm
from pffl.numerics import bounded_probabilities, log_softmax, sigmoid
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

    from pffl.models.predictor import Predictor


class BoundedLogisticRegression(LogisticRegression):
    """Logistic regression whose loss is at most `loss_bound`, for everybody.

    Probabilities of two classes are clipped to [e⁻ᴹ, 1 − e⁻ᴹ]; those of several are
    mixed, p′ = (1 − C·e⁻ᴹ)p + e⁻ᴹ. Scores and predicted classes are as without.

    Parameters
    ----------
    loss_bound
        M; None: probabilities are left as they are.
    clip
        Whether those of two classes are clipped, and not mixed.
    C, max_iter
        As for scikit-learn's; of use only where a clone is fitted anew.
    """

    def __init__(
        self,
        *,
        loss_bound: float | None = None,
        clip: bool = True,
        C: float = 1.0,
        max_iter: int = 100,
    ) -> None:
        # Raw units differ by powers of ten: only a second-order solver does not mind.
        super().__init__(C=C, max_iter=max_iter, solver="newton-cholesky")
        self.loss_bound = loss_bound
        self.clip = clip

    def predict_proba(self, X: object) -> FloatArray:
        """Return class probabilities, in the order of `classes_`."""
        z = self.decision_function(X)
        if z.ndim == 1:
            own = np.stack([sigmoid(-z), sigmoid(z)], axis=1)
        else:
            own = np.exp(log_softmax(z))
        if self.loss_bound is None:
            return own
        return bounded_probabilities(
            own, self.loss_bound, clip=self.clip and z.ndim == 1
        )

    def predict_log_proba(self, X: object) -> FloatArray:
        """Return their logarithms."""
        return np.log(self.predict_proba(X))


class BoundedLinearRegression(LinearRegression):
    """Linear regression whose predictions are kept within `limits`.

    Parameters
    ----------
    limits
        Smallest and largest prediction; None: they are left as they are.
    fit_intercept
        As for scikit-learn's; of use only where a clone is fitted anew.
    """

    def __init__(
        self,
        *,
        limits: tuple[float, float] | None = None,
        fit_intercept: bool = True,
    ) -> None:
        super().__init__(fit_intercept=fit_intercept)
        self.limits = limits

    def predict(self, X: object) -> FloatArray:
        """Return numbers within the limits."""
        values: FloatArray = super().predict(X)
        return values if self.limits is None else values.clip(*self.limits)


def pipeline_of(predictor: Predictor, unseen: Unseen | None = None) -> Pipeline:
    """Return the fitted pipeline: raw tables in, the same predictions out."""
    form = RawForm.of(predictor, "an export to scikit-learn", unseen=unseen)
    sparse = predictor.preparation.keeps_sparse
    blocks = _blocks(form, sparse=sparse)
    if sparse:
        blocks = [_centred(block, form) for block in blocks]
    order = _joined([block.places for block in blocks])
    if [block.name for block in blocks] == ["numbers"] and not sparse:
        columns = _reader(form.columns)  # takes an array of them as well
    else:
        parts = [(part.name, part.transformer, list(part.columns)) for part in blocks]
        columns = ColumnTransformer(
            parts,
            sparse_threshold=1.0 if sparse else 0.0,
            verbose_feature_names_out=False,
        )
    steps = [("columns", columns.fit(_example(form)))]
    intercept = form.intercept
    if sparse:
        uncentred = [block.places for block in blocks if not block.dense]
        intercept = form.shifted(_joined(uncentred))
    else:
        steps.append(("centre", _centre(form.mean[order])))
    return Pipeline([*steps, ("model", _model(predictor, form, order, intercept))])


def _centre(mean: FloatArray) -> StandardScaler:
    centre = StandardScaler(with_std=False).fit(np.zeros((1, len(mean))))
    centre.mean_ = mean
    return centre


def _centred(block: _Block, form: RawForm) -> _Block:
    """Return numbers and dates with their means subtracted, and all else as it is."""
    if not block.dense:
        return block
    given = {"means": form.mean[block.places]}
    centre = FunctionTransformer(
        subtract, kw_args=given, feature_names_out="one-to-one"
    )
    return replace(block, transformer=make_pipeline(block.transformer, centre))


def _model(
    predictor: Predictor, form: RawForm, order: IntArray, intercept: FloatArray
) -> LogisticRegression | LinearRegression:
    """Return scikit-learn's linear model, its fitted attributes set by hand."""
    coefficients, classes = form.coefficients[:, order], predictor.classes
    model: LogisticRegression | LinearRegression
    if len(classes):
        model = BoundedLogisticRegression(
            loss_bound=predictor.loss_bound, clip=predictor.model.clips
        )
        model.classes_, model.n_iter_ = classes, np.zeros(1, dtype=np.int32)
        model.coef_, model.intercept_ = coefficients, intercept
    else:
        model = BoundedLinearRegression(limits=form.limits)
        model.coef_, model.intercept_ = coefficients[0], float(intercept[0])
    model.n_features_in_ = len(order)
    return model


@dataclass(frozen=True)
class _Block:
    """Columns that are prepared alike, and places of the inputs that they become.

    Dense ones are seldom 0.
    """

    name: str
    transformer: Any
    columns: tuple[str, ...]
    places: IntArray
    dense: bool = True


def _blocks(form: RawForm, *, sparse: bool) -> list[_Block]:
    """Return the parts of the `ColumnTransformer`."""
    every = form.columns
    numbers = [c for c in every if c.kind == "number" and not c.indicator]
    gaps = [c for c in every if c.kind == "number" and c.indicator]
    categories = [c for c in every if c.kind == "category"]
    dates = [c for c in every if c.kind == "date"]
    blocks = [
        _block(form, "numbers", numbers, _reader(numbers)),
        _block(
            form,
            "numbers_or_missing",
            gaps,
            make_pipeline(
                _reader(gaps),
                SimpleImputer(add_indicator=True),
            ),
        ),
        _block(
            form,
            "categories",
            categories,
            _coder(form, categories, sparse=sparse),
            dense=False,
        ),
        _block(
            form,
            "dates",
            dates,
            FunctionTransformer(
                encode_columns,
                kw_args={
                    "columns": tuple(dates),
                    "fill": [form.fill[form.spans[c.name]] for c in dates],
                },
                feature_names_out=encoded_names,
            ),
        ),
    ]
    blocks += [
        _block(form, f"words of {c.name}", [c], _counter(c), dense=False)
        for c in every
        if c.kind == "text"
    ]
    return [block for block in blocks if block.columns]


def _block(
    form: RawForm,
    name: str,
    columns: Sequence[Column],
    transformer: Any,
    *,
    dense: bool = True,
) -> _Block:
    spans = [form.spans[column.name] for column in columns]
    places = [np.arange(span.start, span.stop) for span in spans]
    if name == "numbers_or_missing":
        # SimpleImputer puts its indicators behind all numbers.
        places = [np.array(places).T.reshape(-1)]
    names = tuple(column.name for column in columns)
    return _Block(name, transformer, names, _joined(places), dense)


def _joined(places: Sequence[IntArray]) -> IntArray:
    return np.concatenate([np.empty(0, np.int64), *places])


def _counter(column: Column) -> Any:
    """Return what counts the words of a text, and marks a missing one."""
    counted = make_pipeline(FunctionTransformer(read_texts), counter(column.hash or 0))
    if not column.indicator:
        return counted
    marks = FunctionTransformer(mark_missing, feature_names_out="one-to-one")
    return make_union(counted, marks)


def _reader(columns: Sequence[Column]) -> FunctionTransformer:
    given = {"decimals": {column.name: column.decimal for column in columns}}
    return FunctionTransformer(
        read_numbers, kw_args=given, feature_names_out="one-to-one"
    )


def _coder(form: RawForm, columns: Sequence[Column], *, sparse: bool) -> Pipeline:
    instead = {column.name: form.instead(column) for column in columns}
    given = {
        "known": {column.name: column.values for column in columns},
        "instead": {
            name: value for name, value in instead.items() if value is not None
        },
    }
    return make_pipeline(
        FunctionTransformer(read_names, kw_args=given, feature_names_out="one-to-one"),
        OneHotEncoder(
            categories=[np.array(column.values, dtype=object) for column in columns],
            handle_unknown="ignore" if form.newcomers.rule == "ignore" else "error",
            sparse_output=sparse,
            feature_name_combiner=input_name,
        ),
    )


def read_numbers(table: Any, decimals: Mapping[str, Decimal | None]) -> FloatArray:
    """Return columns of numbers as pffl reads them, in 64 bits; missing as NaN.

    Parameters
    ----------
    table
        A DataFrame, where they are found by name, or an array of them alone.
    decimals
        Their names, each with the decimal mark of numbers that are written as text.
    """
    if not hasattr(table, "columns"):
        return np.asarray(table, dtype=np.float64)
    out = np.empty((len(table), len(decimals)))
    for j, (name, decimal) in enumerate(decimals.items()):
        numbers = numbers_of(table[name], decimal)
        if numbers is None:
            raise DataError(
                f"[not-numbers] column '{name}': not all values are numbers"
            )
        out[:, j] = numbers
    return out


def read_names(
    frame: pd.DataFrame, known: Mapping[str, Sequence[str]], instead: Mapping[str, str]
) -> NDArray[np.object_]:
    """Return categories by the names that pffl has for them.

    Parameters
    ----------
    frame
        The columns.
    known
        The vocabulary of each; with ``missing`` in it, a missing value is one.
    instead
        What unseen values of a column are taken for; else they stay as they are.
    """
    out = np.empty(frame.shape, dtype=object)
    for j, name in enumerate(frame.columns):
        absent = int(frame[name].isna().sum())
        if absent and MISSING not in known[name]:
            raise DataError(
                f"[missing-values] column '{name}': {absent} missing values"
            )
        found, codes = category_codes(frame[name])
        if name in instead:
            fitting = set(known[name])
            found = tuple(v if v in fitting else instead[name] for v in found)
        out[:, j] = np.array(found, dtype=object)[codes]
    return out


def read_texts(frame: pd.DataFrame) -> list[str]:
    """Return the texts of the one column of a table as pffl reads them."""
    return texts_of(frame.iloc[:, 0])


def mark_missing(frame: pd.DataFrame) -> FloatArray:
    """Return 1 where a value is missing, and else 0."""
    return frame.isna().to_numpy(dtype=np.float64)


def subtract(numbers: FloatArray, means: FloatArray) -> FloatArray:
    """Return numbers less their means: a scaler that is not fitted anew."""
    return np.asarray(numbers - means)


def encode_columns(
    frame: pd.DataFrame, columns: Sequence[Column], fill: Sequence[FloatArray]
) -> FloatArray:
    """Return the inputs that columns become, with `fill` where a value is missing."""
    with Problems("table", DataError) as problems:
        found = [c.encode(frame[c.name], problems) for c in columns]
    parts = [dense(blocks, len(frame)) for blocks in found]
    for column, part, values in zip(columns, parts, fill, strict=True):
        if column.indicator:
            part += part[:, -1:] * values
    return np.hstack(parts)


def encoded_names(transformer: FunctionTransformer, _: object) -> list[str]:
    """Return what the inputs of `encode_columns` are called."""
    columns = transformer.kw_args["columns"]
    return [name for column in columns for name in column.features]


def input_name(column: str, value: object) -> str:
    """Return what pffl calls the input that is 1 for a category's value."""
    return f"{column}={value}"


def _example(form: RawForm) -> pd.DataFrame:
    """Return two rows that the preparation accepts: all it learns is what is filled."""
    import pandas as pd

    found: dict[str, list[object]] = {}
    for column in form.columns:
        if column.kind == "category":
            found[column.name] = [column.values[0]] * 2
        elif column.kind == "date":
            found[column.name] = [np.datetime64("1970-01-01")] * 2
        elif column.kind == "text":
            found[column.name] = ["a word", None if column.indicator else ""]
        else:
            fill = form.fill[form.spans[column.name].start]
            found[column.name] = [fill, np.nan if column.indicator else fill]
    return pd.DataFrame(found)
