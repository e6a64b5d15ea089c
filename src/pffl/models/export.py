"""A trained model for others: a scikit-learn pipeline, and ONNX.

**ONNX.** A linear model, from raw columns to bounded predictions. Inputs are columns of
shape (rows, 1): numbers, NaN where missing; categories as texts, empty where missing.
All arithmetic is in 64 bits, as in training. ONNX cannot refuse a row. One that pffl
refuses (a number is infinite; a value is missing or unknown, and the column does not
provide for that) has NaN in every number, and the label 'refused_label' of the
metadata.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.pipeline import Pipeline

from pffl import __version__
from pffl.data.columns import OTHER
from pffl.data.schema import MISSING
from pffl.errors import UsageError
from pffl.models.predictor import Predictor, RawForm
from pffl.numerics import smallest_probability
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from onnx import ModelProto


OPSETS = {"": 15, "ai.onnx.ml": 2}  # of 2021 and before: every runtime in use has them
DOUBLE, INTEGER, STRING = 11, 7, 8  # types of ONNX
NOTHING = ("", "nan", "None", "<NA>")  # what programs make of a text that is missing


class TrainedModel(BaseEstimator):  # type: ignore[misc]
    """The last step of a pipeline: predicts from encoded inputs, and is not fitted.

    Parameters
    ----------
    predictor
        What was trained.
    """

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def fit(self, X: object, y: object = None) -> TrainedModel:
        """Return itself: the model is trained."""
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels in their own type, or numbers."""
        return self.predictor.predict(X)

    def __sklearn_is_fitted__(self) -> bool:
        return True


class TrainedClassifier(ClassifierMixin, TrainedModel):  # type: ignore[misc]
    """A trained classifier."""

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in the order of the probabilities."""
        return self.predictor.classes

    def predict_proba(self, X: Any) -> FloatArray:
        """Return class probabilities, bounded as certified."""
        return self.predictor.predict_proba(X)

    def decision_function(self, X: Any) -> FloatArray:
        """Return scores: of two classes one number a row, positive for the last."""
        return self.predictor.decision_function(X)


class TrainedRegressor(RegressorMixin, TrainedModel):  # type: ignore[misc]
    """A trained model of a numeric target."""


def pipeline_of(predictor: Predictor) -> Pipeline:
    """Return the fitted pipeline: raw tables in, the same predictions out."""
    columns = predictor.preparation.as_transformer()
    kind = TrainedClassifier if len(predictor.classes) else TrainedRegressor
    return Pipeline([("columns", columns), ("model", kind(predictor))])


class _Graph:
    """Operators and constants as they are written; each has a name no column has."""

    def __init__(self) -> None:
        from onnx import helper, numpy_helper

        self.make, self.tensor = helper.make_node, numpy_helper.from_array
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: object, called: str = "", **given: Any) -> str:
        """Add an operator; an input that is not a name becomes a constant."""
        names = [x if isinstance(x, str) else self._constant(x) for x in inputs]
        name = called or f"pffl/{kind.lower()}_{len(self.nodes)}"
        domain = "ai.onnx.ml" if kind == "LabelEncoder" else ""
        self.nodes.append(self.make(kind, names, [name], domain=domain, **given))
        return name

    def _constant(self, values: object) -> str:
        array, name = np.asarray(values), f"pffl/constant_{len(self.constants)}"
        array = array.astype(object) if array.dtype.kind == "U" else array
        self.constants.append(self.tensor(np.ascontiguousarray(array), name))
        return name

    def vector(self, column: str, called: str = "") -> str:
        return self.add("Squeeze", column, np.array([1]), called=called)

    def linear(self, x: str, form: RawForm, places: IntArray) -> str:
        """Add ``(x − mean) · coefficientsᵀ`` of some inputs."""
        centred = self.add("Sub", x, form.mean[places])
        return self.add("MatMul", centred, form.coefficients[:, places].T)


def onnx_model(predictor: Predictor) -> ModelProto:
    """Return the checked model; the same predictor gives the same bytes."""
    from onnx import checker, helper

    form = RawForm.of(predictor, "an export to ONNX")
    refused = [f"'{c.name}'" for c in form.columns if c.kind == "text"]
    if refused or math.isfinite(predictor.inputs.longest):
        what = f"hashed texts ({', '.join(refused)})"
        raise UsageError(
            "not-exportable", what=what if refused else "inputs that are shortened"
        )
    graph, taken = _Graph(), {column.name for column in form.columns}
    parts = [*_numbers(graph, form), *_categories(graph, form)]
    score = graph.add("Sum", *parts, form.intercept[None])
    names = ("label", "probabilities", "decision", "value")
    called = {name: f"pffl_{name}" if name in taken else name for name in names}
    if predictor.schema.labels:
        outputs = _add_classes(graph, predictor, score, called)
    else:
        value = graph.add("Clip", score, *form.limits)
        value = graph.add("Where", graph.add("IsNaN", score), np.nan, value)
        outputs = {graph.vector(value, called["value"]): (DOUBLE, ["rows"])}
    shape: list[Any] = ["rows", 1]
    inputs = {c.name: (STRING if c.values else DOUBLE, shape) for c in form.columns}
    info = helper.make_tensor_value_info
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "pffl",
            [info(name, *kind) for name, kind in inputs.items()],
            [info(name, *kind) for name, kind in outputs.items()],
            initializer=graph.constants,
        ),
        opset_imports=[helper.make_opsetid(*opset) for opset in OPSETS.items()],
        ir_version=8,
        producer_name="pffl",
        producer_version=__version__,
        doc_string=__doc__,
    )
    bounds = zip(predictor.cells, predictor.bounds.tolist(), strict=True)
    facts = {
        "model_fingerprint": predictor.model.fingerprint(predictor.w),
        "data_fingerprint": predictor.fingerprint or "",
        "refused_label": str(_labels(predictor)[-1]) if predictor.schema.labels else "",
        "bounds": json.dumps({cell: n for cell, n in bounds if np.isfinite(n)}),
        "loss_bound": json.dumps(predictor.loss_bound),
    }
    helper.set_model_props(model, facts)
    checker.check_model(model, full_check=True)
    return model


def _numbers(graph: _Graph, form: RawForm) -> Iterator[str]:
    """Add what columns of numbers contribute: those missing are filled, or stay NaN."""
    columns = [column for column in form.columns if column.kind == "number"]
    if not columns:
        return
    places = np.array([form.spans[column.name].start for column in columns])
    marked = np.array([column.indicator for column in columns])
    x = graph.add("Concat", *(column.name for column in columns), axis=1)
    missing = graph.add("IsNaN", x)
    fill = np.where(marked, form.fill[places], np.nan)
    x = graph.add("Where", graph.add("IsInf", x), np.nan, x)
    x = graph.add("Where", missing, fill[None], x)
    yield graph.linear(x, form, places)
    if marked.any():
        flags = graph.add("Cast", missing, to=DOUBLE)
        flags = graph.add("Gather", flags, np.flatnonzero(marked), axis=1)
        yield graph.linear(flags, form, places[marked] + 1)


def _categories(graph: _Graph, form: RawForm) -> Iterator[str]:
    """Add what categories contribute: each value has its row of a table.

    The last row is that of values which are refused.
    """
    for column in form.columns:
        if column.kind != "category":
            continue
        slopes = form.coefficients[:, (span := form.spans[column.name])].T
        none = -form.mean[span] @ slopes
        codes = {value: code for code, value in enumerate(column.values)}
        unknown = codes[OTHER] if column.other else len(codes)
        rows = [slopes + none, np.full_like(none, np.nan)]
        codes = dict.fromkeys(NOTHING, codes.get(MISSING, unknown)) | codes
        known: Any = {"keys_strings": [*codes], "values_int64s": [*codes.values()]}
        code = graph.add("LabelEncoder", column.name, **known, default_int64=unknown)
        yield graph.add("Gather", np.vstack(rows), graph.vector(code))


# Whether a NaN survives a minimum or a comparison, runtimes do not agree on: here it is
# put back.


def _add_classes(
    graph: _Graph, predictor: Predictor, score: str, names: dict[str, str]
) -> dict[str, tuple[int, list[Any]]]:
    """Add labels, bounded probabilities and scores."""
    labels, classes = _labels(predictor), len(predictor.classes)
    bad = graph.add("IsNaN", score)
    if classes == 2:
        least = getattr(predictor.model, "least_score", 0.0)
        positive = graph.add("Greater", score, least)
        code = graph.vector(graph.add("Cast", positive, to=INTEGER))
        decision = graph.vector(score, called=names["decision"])
        p = graph.add("Concat", graph.add("Neg", score), score, axis=1)
        p = graph.add("Sigmoid", p)
    else:
        code = graph.add("ArgMax", score, axis=1, keepdims=0)
        decision = graph.add("Identity", score, called=names["decision"])
        p = graph.add("Softmax", score, axis=1)
        bad = graph.add("Gather", bad, np.array([0]), axis=1)
    code = graph.add("Where", graph.vector(bad), classes, code)
    label = graph.add("Gather", labels, code, called=names["label"])
    if predictor.loss_bound is not None:  # as `bounded_probabilities` does
        least = smallest_probability(predictor.loss_bound)
        if classes == 2:
            p = graph.add("Clip", p, least, 1.0 - least)
        else:
            p = graph.add("Add", graph.add("Mul", p, 1.0 - classes * least), least)
            p = graph.add("Max", p, least)
    p = graph.add("Where", bad, np.nan, p, called=names["probabilities"])
    kind = {"U": STRING, "i": INTEGER, "f": DOUBLE}[labels.dtype.kind]
    wide: list[Any] = ["rows", classes]
    scores = wide[:1] if classes == 2 else wide
    return {label: (kind, wide[:1]), p: (DOUBLE, wide), decision: (DOUBLE, scores)}


def _labels(predictor: Predictor) -> NDArray[Any]:
    """Return the labels, and that of a row which is refused; truth values are 0, 1."""
    labels = predictor.classes
    if labels.dtype.kind in "Uf":
        return np.append(labels, "" if labels.dtype.kind == "U" else np.nan)
    numbers = labels.astype(np.int64)
    return np.append(numbers, min(0, int(numbers.min())) - 1)
