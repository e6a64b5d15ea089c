"""A trained linear model in ONNX, from raw columns to bounded predictions.

All arithmetic is in 64 bits, as in training. ONNX cannot refuse a row: one that pffl
would refuse has NaN in every number, and a label of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, ValueInfoProto, checker, helper

from pffl.data.column import MISSING, Column
from pffl.data.newcomers import Unseen
from pffl.errors import UsageError
from pffl.models.export.calendar import part_in_graph
from pffl.models.export.coefficients import RawForm
from pffl.models.export.graph import OPSETS, Graph
from pffl.numerics import smallest_probability

if TYPE_CHECKING:
    from pffl.models.predictor import Predictor

IR = 8
ROWS = "rows"
KINDS = {"U": TensorProto.STRING, "i": TensorProto.INT64, "f": TensorProto.DOUBLE}
MISSING_DAY = np.iinfo(np.int64).min  # what NumPy makes of a date that is none
NOTHING = ("", "nan", "None", "<NA>")  # what programs make of a text that is missing
ABOUT = (
    "Inputs are raw columns of shape (rows, 1): numbers, NaN where missing; categories "
    "as texts, empty where missing; dates as days since 1970-01-01, the least integer "
    "where missing (NumPy: datetime64[D] as int64). A row that pffl refuses (a number "
    "is infinite; a value is missing, or was not seen in training, and neither the "
    "column nor the metadata 'unseen' provides for that) has NaN in all numbers that "
    "are put out, and the label 'refused_label' of the metadata."
)


def onnx_model(predictor: Predictor, unseen: Unseen | None = None) -> ModelProto:
    """Return the checked model; the same predictor gives the same bytes."""
    form = RawForm.of(predictor, "an export to ONNX", unseen=unseen)
    _refuse_texts(form)
    graph, names = Graph(), _output_names(predictor)
    parts = [
        *_numbers(graph, form),
        *_categories(graph, form),
        *_dates(graph, form),
    ]
    score = graph.add("Sum", *parts, graph.constant(form.intercept[None]))
    if len(predictor.classes):
        outputs = _add_classes(graph, predictor, score, names)
    else:
        outputs = _add_value(graph, form, score, names["value"])
    made = helper.make_graph(
        graph.nodes,
        "pffl",
        [_input(column) for column in predictor.preparation.columns],
        list(outputs),
        initializer=graph.constants,
    )
    model = helper.make_model(
        made,
        opset_imports=[helper.make_opsetid(*opset) for opset in OPSETS.items()],
        ir_version=IR,
        producer_name="pffl",
        producer_version=version("pffl"),
        doc_string=ABOUT,
    )
    helper.set_model_props(model, _metadata(predictor, form))
    checker.check_model(model, full_check=True)
    return model


def _refuse_texts(form: RawForm) -> None:
    """Refuse hashed texts: ONNX cannot cut them into words, nor hash these."""
    texts = [f"'{column.name}'" for column in form.columns if column.kind == "text"]
    if texts:
        raise UsageError(
            f"[hashed-column] column {', '.join(texts)}: the words of a text are "
            "hashed, which ONNX cannot do; `to_sklearn()` exports the model whole"
        )


def _output_names(predictor: Predictor) -> dict[str, str]:
    """Return what outputs are called; where a column is called so, with our mark."""
    taken = {column.name for column in predictor.preparation.columns}
    kinds = ("label", "probabilities", "decision", "value")
    return {kind: f"pffl_{kind}" if kind in taken else kind for kind in kinds}


def _input(column: Column) -> ValueInfoProto:
    known = json.dumps(list(column.values), ensure_ascii=False)
    kind, about = {
        "number": (TensorProto.DOUBLE, "a number"),
        "category": (TensorProto.STRING, f"a text; known are {known}"),
        "date": (TensorProto.INT64, "days since 1970-01-01"),
    }[column.kind]
    return helper.make_tensor_value_info(column.name, kind, [ROWS, 1], about)


def _numbers(graph: Graph, form: RawForm) -> Iterator[str]:
    """Add what columns of numbers contribute to the scores."""
    numbers = [column for column in form.columns if column.kind == "number"]
    for indicator in (False, True):
        chosen = [c.name for c in numbers if c.indicator == indicator]
        if not chosen:
            continue
        x = graph.add("Concat", *chosen, axis=1)
        places = [form.spans[name].start for name in chosen]
        if indicator:
            missing = graph.add("IsNaN", x)
            x = graph.add("Where", missing, graph.constant(form.fill[None, places]), x)
            flags = graph.cast(missing, TensorProto.DOUBLE)
            yield _linear(graph, flags, form, [place + 1 for place in places])
        finite = graph.add("Where", graph.add("IsInf", x), np.nan, x)
        yield _linear(graph, finite, form, places)


def _linear(graph: Graph, x: str, form: RawForm, places: list[int]) -> str:
    """Add ``(x − mean) · coefficientsᵀ`` of some inputs."""
    centred = graph.add("Sub", x, graph.constant(form.mean[places]))
    return graph.add("MatMul", centred, graph.constant(form.coefficients[:, places].T))


def _categories(graph: Graph, form: RawForm) -> Iterator[str]:
    """Add what categories contribute: each value has its row of a table.

    The last rows are those of unseen values, and of one that may not be missing.
    """
    for column in form.columns:
        if column.kind != "category":
            continue
        known, absent = form.contributions(form.spans[column.name])
        codes = {value: code for code, value in enumerate(column.values)}
        unseen, instead = len(known), form.instead(column)
        if instead is not None:
            unseen = codes[instead]
        refused = np.full_like(absent, np.nan)
        rows = [known, absent if form.newcomers.rule == "ignore" else refused, refused]
        nothing = dict.fromkeys(NOTHING, codes.get(MISSING, len(known) + 1))
        codes = {**nothing, **codes}
        code = graph.add(
            "LabelEncoder",
            column.name,
            keys_strings=list(codes),
            values_int64s=list(codes.values()),
            default_int64=unseen,
        )
        yield graph.add("Gather", graph.constant(np.vstack(rows)), graph.vector(code))


def _dates(graph: Graph, form: RawForm) -> Iterator[str]:
    """Add what the parts of dates contribute; a missing one is filled."""
    for column in form.columns:
        if column.kind != "date":
            continue
        missing = graph.add("Equal", column.name, MISSING_DAY)
        days = graph.add("Where", missing, 0, column.name)
        start = form.spans[column.name].start
        for part, piece in zip(column.parts, column.pieces, strict=True):
            found = part_in_graph(graph, days, part, column.origin)
            stop = start + piece.width
            if piece.kind == "category":
                here = slice(start, stop)
                known, _ = form.contributions(here)
                absent = (form.fill - form.mean)[here] @ form.coefficients[:, here].T
                code = graph.add("Where", missing, len(known), found)
                table = graph.constant(np.vstack([known, absent]))
                yield graph.add("Gather", table, graph.vector(code))
            else:
                x = graph.add("Where", missing, float(form.fill[start]), found)
                yield _linear(graph, x, form, [start])
            start = stop
        if column.indicator:
            flag = graph.cast(missing, TensorProto.DOUBLE)
            yield _linear(graph, flag, form, [start])
        else:
            yield graph.add("Where", missing, np.nan, 0.0)


# Whether a NaN survives a minimum or a comparison, runtimes do not agree on: here it is
# put back.


def _add_value(
    graph: Graph, form: RawForm, score: str, name: str
) -> Iterator[ValueInfoProto]:
    """Add predicted numbers, kept within limits."""
    if form.limits is not None:
        kept = graph.add("Clip", score, *form.limits)
        score = graph.add("Where", graph.add("IsNaN", score), np.nan, kept)
    graph.vector(score, called=name)
    yield helper.make_tensor_value_info(name, TensorProto.DOUBLE, [ROWS])


def _add_classes(
    graph: Graph, predictor: Predictor, score: str, names: dict[str, str]
) -> Iterator[ValueInfoProto]:
    """Add labels, bounded probabilities and scores."""
    labels, classes = _labels(predictor), len(predictor.classes)
    bad = graph.add("IsNaN", score)
    if classes == 2:
        positive = graph.add("Greater", score, 0.0)
        code = graph.vector(graph.cast(positive, TensorProto.INT64))
        decision = graph.vector(score, called=names["decision"])
        pair = graph.add("Concat", graph.add("Neg", score), score, axis=1)
        own = graph.add("Sigmoid", pair)
    else:
        code = graph.add("ArgMax", score, axis=1, keepdims=0)
        decision = graph.add("Identity", score, called=names["decision"])
        own = graph.add("Softmax", score, axis=1)
        bad = graph.add("Gather", bad, graph.constant([0]), axis=1)
    refused = graph.add("Where", graph.vector(bad), classes, code)
    label = graph.add("Gather", graph.constant(labels), refused, called=names["label"])
    bounded = _bounded(graph, predictor, own)
    chances = graph.add("Where", bad, np.nan, bounded, called=names["probabilities"])
    kind = KINDS[labels.dtype.kind]
    wide: list[str | int | None] = [ROWS, classes]
    yield helper.make_tensor_value_info(label, kind, [ROWS])
    yield helper.make_tensor_value_info(chances, TensorProto.DOUBLE, wide)
    shape = wide[:1] if classes == 2 else wide
    yield helper.make_tensor_value_info(decision, TensorProto.DOUBLE, shape)


def _bounded(graph: Graph, predictor: Predictor, own: str) -> str:
    """Add probabilities of which no −log is above the loss bound."""
    if predictor.loss_bound is None:
        return own
    least = smallest_probability(predictor.loss_bound)
    if predictor.model.clips:
        return graph.add("Clip", own, least, 1.0 - least)
    kept = graph.add("Mul", own, 1.0 - len(predictor.classes) * least)
    return graph.add("Max", graph.add("Add", kept, least), least)


def _labels(predictor: Predictor) -> NDArray[Any]:
    """Return the labels, and that of a row which is refused.

    Truth values are 0 and 1: of two of them none is left.
    """
    classes = predictor.classes
    if classes.dtype.kind == "U":
        return np.append(classes, "")
    if classes.dtype.kind == "f":
        return np.append(classes, np.nan)
    numbers = classes.astype(np.int64)
    return np.append(numbers, min(0, int(numbers.min())) - 1)


def _metadata(predictor: Predictor, form: RawForm) -> dict[str, str]:
    """Return what is known of the model, for whoever opens the file."""
    pairs = zip(predictor.cells, predictor.bounds.tolist(), strict=True)
    found: dict[str, object] = {
        "pffl_version": version("pffl"),
        "model_fingerprint": predictor.model.fingerprint(predictor.w),
        "data_fingerprint": predictor.fingerprint,
        "target": predictor.schema.target,
        "model": dict(predictor.model.describe()),
        "groups": list(predictor.schema.groups),
        "bounds": {cell: number for cell, number in pairs if np.isfinite(number)},
        "loss_bound": predictor.loss_bound,
        "unseen": form.newcomers.rule,
    }
    if len(predictor.classes):
        found["classes"] = predictor.classes.tolist()
        refused = _labels(predictor)[-1]
        found["refused_label"] = str(refused)
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in found.items()
    }
