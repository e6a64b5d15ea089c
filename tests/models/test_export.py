"""One model, four ways to ask it: pffl, a table of coefficients, scikit-learn, ONNX."""

from __future__ import annotations

import json
import pickle
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.pipeline import Pipeline

import pffl
from pffl.data import DataWarning
from pffl.errors import DataError, MissingExtraError
from pffl.models import (
    HuberRegression,
    Inputs,
    LeastSquares,
    LinearModel,
    LogisticRegression,
    SoftmaxRegression,
    Target,
)
from tests.inside import Predictor, verifier
from tests.raising import raises

COUNT = 300
LOSS_BOUND = 3.0


def adult(rng):
    """Columns and values as in Adult: labels are texts, '?' is a category."""
    return {
        "age": rng.integers(17, 91, COUNT),
        "fnlwgt": rng.integers(10_000, 1_500_000, COUNT),
        "workclass": rng.choice(["Private", "State-gov", "?"], COUNT),
        "region": rng.choice(["United-States", "?", "Côte d'Ivoire"], COUNT),
        "capital-gain": rng.choice([0, 2174, 99_999], COUNT),
        "income": rng.choice(["<=50K", ">50K"], COUNT),
    }


def credit(rng):
    """Gaps in numbers and categories, coded categories, whole-number labels."""
    savings = rng.choice(["low", "high", None], COUNT)
    return {
        "amount": np.where(
            rng.random(COUNT) < 0.2, np.nan, rng.normal(3e3, 1e3, COUNT)
        ),
        "months": rng.integers(6, 72, COUNT).astype(np.float32),
        "account": rng.choice([11, 12, 13], COUNT),
        "savings": pd.Series(savings, dtype=object),
        "owner": rng.choice([False, True], COUNT),
        "rate": np.where(rng.random(COUNT) < 0.1, np.nan, rng.random(COUNT)),
        "income": rng.choice([1, 2], COUNT),
    }


def far(rng):
    """An input far from 0 against its spread: a shift that is folded in cancels."""
    start = 1e9 + rng.normal(size=COUNT)
    return {"start": start, "x": rng.normal(size=COUNT), "income": start > 1e9}


def seasons(rng):
    """Three classes; columns that are called like outputs."""
    return {
        "label": rng.normal(size=COUNT),
        "decision": rng.choice(["a", "b", "c", "d"], COUNT),
        "value": rng.normal(size=COUNT),
        "income": rng.choice(["low", "middle", "top"], COUNT),
    }


def price(rng):
    """A numeric target."""
    return {
        "rooms": rng.integers(1, 9, COUNT),
        "town": rng.choice(["A", "B"], COUNT),
        "income": rng.normal(2e5, 1e4, COUNT),
    }


def table(build, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({**build(rng), "sex": rng.choice(["f", "m"], COUNT)})


def predictor_of(frame, model, *, loss_bound=LOSS_BOUND, seed=0, **options):
    """A model with weights that are drawn: exports do not ask where they come from."""
    numeric = isinstance(model, LeastSquares | HuberRegression)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # '?' stays a category, as wanted
        data = pffl.Federation.from_table(
            frame,
            label="income",
            group="sex",
            classification=not numeric,
            test_fraction=0.0,
            **options,
        )
    X = data.encoding.inputs(frame)
    inputs = Inputs(X.mean(axis=0), X.std(axis=0))
    bound = model.bind(data.schema, inputs)
    if numeric:
        y = frame["income"]
        bound = bound.with_target(Target(float(y.mean()), float(y.std())))
    w = 4.0 * np.random.default_rng(seed).normal(size=bound.n_parameters)
    if isinstance(model, LinearModel) and not model.standardize:
        w /= X.std(axis=0)
    return Predictor(
        data.encoding,
        bound,
        w,
        None if numeric else loss_bound,
        "0" * 64,
        ("f", "m"),
        np.array([0.5, np.inf]),
        np.zeros(2),
    )


CASES = {
    "adult": (adult, LogisticRegression(), {}),
    "credit": (
        credit,
        LogisticRegression(),
        {"missing": "indicator", "columns": {"account": {"kind": "category"}}},
    ),
    "far": (far, LogisticRegression(l2=1e-2), {}),
    "raw": (adult, LogisticRegression(standardize=False, intercept=False), {}),
    "three": (seasons, SoftmaxRegression(), {}),
    "two": (adult, SoftmaxRegression(), {}),
    "price": (price, LeastSquares(target_range=(1.95e5, 2.05e5)), {}),
    "huber": (price, HuberRegression(), {}),
}


@pytest.fixture(params=CASES, scope="module")
def case(request):
    build, model, options = CASES[request.param]
    frame = table(build)
    return predictor_of(frame, model, **options), frame


def feed(predictor, frame):
    """The raw columns as ONNX takes them."""
    found = {}
    for column in predictor.preparation.columns:
        values = frame[[column.name]]
        if column.kind == "category":
            texts = [["" if pd.isna(v) else str(v)] for v in values[column.name]]
            found[column.name] = np.array(texts, dtype=object)
        else:
            found[column.name] = values.to_numpy(dtype=np.float64)
    return found


def run(model, given):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, given), strict=True))
    return {name.removeprefix("pffl_"): values for name, values in found.items()}


def test_scikit_learn_says_the_same(case):
    predictor, frame = case
    pipeline = predictor.to_sklearn()
    assert type(pipeline) is Pipeline
    shuffled = frame[frame.columns[::-1]].assign(more="x")
    expected = predictor.predict(frame)
    found = pipeline.predict(shuffled)
    if not predictor.schema.labels:
        assert is_regressor(pipeline)
        np.testing.assert_array_equal(found, expected)
        return
    assert is_classifier(pipeline)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(pipeline.classes_, predictor.classes)
    np.testing.assert_array_equal(
        pipeline.decision_function(shuffled), predictor.decision_function(frame)
    )
    chances = pipeline.predict_proba(shuffled)
    np.testing.assert_array_equal(chances, predictor.predict_proba(frame))
    # The bound holds for everybody, and is reached: a clip that is left out is seen.
    assert -np.log(chances.min()) <= LOSS_BOUND
    assert -np.log(chances.min()) > LOSS_BOUND - 0.3


def test_onnx_says_the_same(case):
    predictor, frame = case
    model = predictor.to_onnx()
    found = run(model, feed(predictor, frame))
    if not predictor.schema.labels:
        np.testing.assert_allclose(found["value"], predictor.predict(frame), rtol=1e-12)
        return
    np.testing.assert_array_equal(found["label"], predictor.predict(frame))
    scores = predictor.decision_function(frame)
    np.testing.assert_allclose(found["decision"], scores, rtol=0, atol=1e-12)
    chances = predictor.predict_proba(frame)
    np.testing.assert_allclose(found["probabilities"], chances, rtol=0, atol=1e-12)


def test_coefficients_add_up(case):
    """In the raw inputs' units, from the table alone."""
    predictor, frame = case
    found = predictor.coefficients()
    X = np.column_stack([predictor.preparation.inputs(frame), np.ones(COUNT)])
    slopes = found.filter(regex="^coefficient").to_numpy()
    scores, sizes = X @ slopes, np.abs(X) @ np.abs(slopes)
    if predictor.schema.labels:
        expected = predictor.decision_function(frame)
    else:
        expected = predictor.model.predict_values(
            predictor.w, predictor.inputs.apply(X[:, :-1])
        )
    wrong = np.abs(scores - expected.reshape(scores.shape)) / sizes
    assert wrong.max() < 1e-14  # of the terms: of 'far' they are a billion
    assert list(found["input"]) == [*predictor.schema.features, "(intercept)"]
    if predictor.model.standardize:
        effects = found.filter(regex="^per_sd").to_numpy()[:-1]
        np.testing.assert_allclose(
            effects, slopes[:-1] * X[:, :-1].std(axis=0)[:, None], rtol=1e-9
        )
    else:
        assert found.filter(regex="^per_sd").isna().all(axis=None)


def test_a_pipeline_is_cloned_and_pickled():
    frame = table(credit)
    predictor = predictor_of(
        frame,
        LogisticRegression(),
        missing="indicator",
        columns={"account": {"kind": "category"}},
    )
    pipeline = predictor.to_sklearn()
    again = pickle.loads(pickle.dumps(pipeline))  # noqa: S301
    expected = pipeline.decision_function(frame)
    np.testing.assert_array_equal(again.decision_function(frame), expected)
    fitted = clone(pipeline).fit(frame, frame["income"])  # it stays what it is
    np.testing.assert_array_equal(fitted.decision_function(frame), expected)
    assert pipeline[0].func.__self__ == predictor.preparation  # what trained


def test_the_same_predictor_gives_the_same_bytes(tmp_path):
    predictor = predictor_of(table(adult), LogisticRegression())
    place = tmp_path / "model.onnx"
    model = predictor.to_onnx(place)
    again = predictor_of(table(adult), LogisticRegression()).to_onnx()
    assert place.read_bytes() == again.SerializeToString(deterministic=True)
    assert onnx.load(place) == model
    with raises(pffl.PFFLError, "file-exists"):
        predictor.to_onnx(place)


def test_a_graph_says_what_it_is(tmp_path):
    predictor = predictor_of(table(adult), LogisticRegression())
    model = predictor.to_onnx()
    said = {entry.key: entry.value for entry in model.metadata_props}
    assert model.producer_version == pffl.__version__
    assert said["data_fingerprint"] == "0" * 64
    saved = verifier.SavedModel(predictor.save(tmp_path / "model.pffl"))
    assert said["model_fingerprint"] == saved.hash()  # that of page and card
    assert json.loads(said["loss_bound"]) == LOSS_BOUND
    assert json.loads(said["bounds"]) == {"f": 0.5}
    inputs = "age fnlwgt workclass region capital-gain"
    assert [one.name for one in model.graph.input] == inputs.split()
    outputs = "label probabilities decision"
    assert [one.name for one in model.graph.output] == outputs.split()


@pytest.mark.parametrize(
    "gap", [{"workclass": None}, {"workclass": "new"}, {"age": np.nan}, {"age": np.inf}]
)
def test_what_is_refused_here_is_nan_there(gap):
    frame = table(adult)
    predictor = predictor_of(frame, LogisticRegression())
    given = frame.iloc[:2].assign(**gap)
    with pytest.raises(DataError):
        predictor.predict(given)
    with pytest.raises(ValueError, match=r"missing|infinite|unknown"):
        predictor.to_sklearn().predict(given)
    found = run(predictor.to_onnx(), feed(predictor, given))
    assert np.isnan(found["decision"]).all()
    assert np.isnan(found["probabilities"]).all()
    assert list(found["label"]) == ["", ""]


def test_unknown_values_are_other_where_that_is_declared():
    frame = table(adult)
    declared = {"workclass": {"values": ["Private", "?"]}}
    predictor = predictor_of(frame, LogisticRegression(), columns=declared)
    expected = predictor.decision_function(frame.assign(workclass="State-gov"))
    for job in ("new", None):
        new = frame.assign(workclass=job)
        np.testing.assert_array_equal(predictor.decision_function(new), expected)
        found = run(predictor.to_onnx(), feed(predictor, new))["decision"]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("labels", "refused"),
    [([False, True], -1), ([-1, 1], -2), ([0.5, 1.5], np.nan), (["no", "yes"], "")],
)
def test_labels_of_any_type(labels, refused):
    frame = table(adult)
    frame["income"] = np.random.default_rng(0).choice(np.array(labels), COUNT)
    predictor = predictor_of(frame, LogisticRegression())
    expected = predictor.predict(frame)
    np.testing.assert_array_equal(predictor.to_sklearn().predict(frame), expected)
    given = feed(predictor, frame)
    given["workclass"][0] = "never seen"
    found = run(predictor.to_onnx(), given)["label"]
    np.testing.assert_array_equal(found[1:], expected[1:])
    np.testing.assert_equal(found[0], refused)


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    predictor = predictor_of(table(adult), LogisticRegression())
    with raises(MissingExtraError, "missing-extra", "pffl[onnx]"):
        predictor.to_onnx()
