"""A missing number stands at the mean of those present; its indicator is the effect.

Truth is scikit-learn's: mean imputation with indicators, standardised, and a logistic
regression, on the rows of all silos together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import pffl
from pffl.methods import PFFL, Exact, FedAvg
from pffl.models import Network
from tests.declared import columns
from tests.deploy.sites import remote
from tests.helpers import without_zeros

ROWS = 900
NUMBERS, CITY = ["income", "year", "age"], ["city"]
BY_ROWS = pffl.Options(weighting="rows")
EFFECT = -0.8  # of a missing income, on the log-odds


def people(seed: int = 0) -> pd.DataFrame:
    """Two silos, at one of which most incomes are missing; means far from 0."""
    rng = np.random.default_rng(seed)
    silo = rng.choice(["north", "south"], ROWS, p=[0.3, 0.7])
    frame = pd.DataFrame(
        {
            "income": rng.normal(40_000, 9_000, ROWS),
            "year": rng.integers(1995, 2010, ROWS).astype(float),
            "age": rng.uniform(18, 80, ROWS),
            "city": rng.choice(["a", "b", "c"], ROWS),
            "group": rng.choice(["f", "m"], ROWS),
            "silo": silo,
        }
    )
    gone = rng.random(ROWS) < np.where(silo == "north", 0.6, 0.1)
    score = (frame["income"] - 40_000) / 9_000
    score = np.where(gone, EFFECT, score) + (frame["age"] - 50) / 40
    frame.loc[gone, "income"] = np.nan
    frame.loc[rng.random(ROWS) < 0.05, "year"] = np.nan
    return frame.assign(good=(score + rng.logistic(size=ROWS) > 0).astype(int))


def federation(frame: pd.DataFrame, **options: Any) -> pffl.Federation:
    return pffl.Federation.from_table(
        frame,
        label="good",
        group="group",
        silo="silo",
        **{"missing": "indicator", "test_fraction": 0.0, **options},
    )


def imputed(frame: pd.DataFrame, *, centred: bool = True) -> Any:
    numbers = make_pipeline(
        SimpleImputer(add_indicator=True), StandardScaler(with_mean=centred)
    )
    coded = make_pipeline(
        OneHotEncoder(sparse_output=False), StandardScaler(with_mean=centred)
    )
    return make_column_transformer((numbers, NUMBERS), (coded, CITY)).fit(frame)


def at(schema: Any, name: str) -> int:
    return list(schema.features).index(name)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sparse", [False, True])
def test_as_scikit_learns_mean_imputation(intercept: bool, sparse: bool) -> None:
    frame = people()
    model = pffl.models.LogisticRegression(l2=0.0, intercept=intercept)
    data = without_zeros(federation(frame)) if sparse else federation(frame)
    found = pffl.solve(data, None, model=model, options=BY_ROWS, random_state=0)
    prepared = imputed(frame, centred=intercept)
    theirs = LogisticRegression(
        C=np.inf,
        fit_intercept=intercept,
        tol=1e-12,
        max_iter=10_000,
        solver="newton-cg",
    ).fit(prepared.transform(frame), frame["good"])
    expected = theirs.predict_proba(prepared.transform(frame))
    least = np.exp(-found.predictor.loss_bound)
    np.testing.assert_allclose(
        found.predictor.predict_proba(frame),
        np.clip(expected, least, 1 - least),
        atol=1e-6,
    )


def test_the_coefficient_of_an_indicator_is_its_effect() -> None:
    frame = people()
    predictor = pffl.solve(
        federation(frame), None, options=BY_ROWS, random_state=0
    ).predictor
    average, missing = (frame.iloc[:1].copy() for _ in range(2))
    average["income"], missing["income"] = frame["income"].mean(), np.nan
    logits = [
        float(np.log(p / (1 - p)))
        for p in (predictor.predict_proba(one)[0, 1] for one in (average, missing))
    ]
    table = predictor.coefficients().set_index("input")["coefficient"]
    assert logits[1] - logits[0] == pytest.approx(table["income=missing"], abs=1e-9)
    assert table["income=missing"] == pytest.approx(EFFECT, abs=0.5)


@pytest.mark.parametrize("intercept", [True, False])
def test_exports_and_files_predict_alike(intercept: bool, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    frame = people()
    data = federation(frame)
    model = pffl.models.LogisticRegression(intercept=intercept)
    predictor = pffl.solve(data, None, model=model, random_state=0).predictor
    expected = predictor.predict_proba(frame)
    predictor.save(tmp_path / "model.safetensors")
    again = pffl.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_proba(frame), expected)
    found = predictor.to_sklearn().predict_proba(frame)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    session = onnxruntime.InferenceSession(predictor.to_onnx().SerializeToString())
    given = {name: frame[[name]].to_numpy(float) for name in NUMBERS}
    given |= {"city": frame[["city"]].to_numpy(object)}
    (found,) = session.run(["probabilities"], given)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_network_sees_them_at_the_mean() -> None:
    torch = pytest.importorskip("torch")
    frame = people()
    data = federation(frame)
    model = Network(torch.nn.Linear(data.schema.n_features, 2))
    method = FedAvg(rounds=1)
    found = pffl.solve(data, None, model=model, method=method, random_state=0)
    rows = found.model.tensor(found.model.inputs.apply(data.pooled("train").X))
    gone = data.pooled("train").X[:, at(data.schema, "income=missing")] == 1
    assert float(rows[gone, at(data.schema, "income")].abs().max()) < 1e-6


def test_under_noise_it_is_the_released_mean() -> None:
    frame = people()
    frame = pd.concat([frame] * 5, ignore_index=True)
    ranges = {"income": (10_000, 90_000), "year": (1990, 2015), "age": (0, 100)}
    gaps: Any = {name: {"indicator": True} for name in ("income", "year")}
    good = {"kind": "category", "values": [0, 1]}
    known = columns(frame, ranges=ranges, good=good, **gaps)
    data = federation(frame, columns=known, missing="refuse")
    privacy = pffl.Privacy(epsilon=50.0, delta=1e-5)
    found = pffl.solve(data, None, privacy=privacy, random_state=0)
    place = at(found.predictor.schema, "income")
    expected = frame["income"].mean()
    assert found.model.inputs.mean[place] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("method", [Exact(), PFFL(dual_rounds=2, rounds_per_dual=2)])
def test_sites_that_only_answer_fill_alike(method: Any) -> None:
    frame = people()
    frame.loc[::3, "silo"] = "west"
    data, bound = federation(frame), pffl.BoundedGroupLoss(0.75)
    here, there, masked = (
        pffl.solve(given, bound, method=method, options=BY_ROWS, random_state=0, **more)
        for given, more in (
            (data, {}),
            (remote(data), {}),
            (data, {"secure_sum": True}),
        )
    )
    np.testing.assert_allclose(there.w, here.w, rtol=0, atol=1e-9)
    np.testing.assert_allclose(masked.w, here.w, rtol=0, atol=1e-7)
