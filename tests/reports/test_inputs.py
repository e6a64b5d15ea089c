from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.models import (
    Inputs,
    LeastSquares,
    LogisticRegression,
    SoftmaxRegression,
    Target,
)
from tests.inside import MAX_INPUTS, Predictor, input_effects

LONG = "income of the household, in thousands, before tax"


def predictor_of(model, label, **options):
    """Inputs 'small' and LONG with given weights, and a category of twenty values."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "small": rng.normal(scale=1e3, size=200),
            LONG: rng.normal(loc=50.0, scale=1e-3, size=200),
            "a\x1b  <b>": rng.normal(size=200),
            "town": [f"T{n % 20:02d}" for n in range(200)],
            "sex": np.repeat(["f", "m"], 100),
            "income over $50,000": label(rng),
        }
    )
    data = pffl.Federation.from_table(
        frame, label="income over $50,000", group="sex", test_fraction=0, **options
    )
    X = data.encoding.inputs(frame)
    bound = model.bind(data.schema, Inputs(X.mean(axis=0), X.std(axis=0)))
    bound = bound.with_target(Target(10.0, 3.0))
    w = np.zeros((bound.n_outputs, bound.n_columns))
    w[-1, :3], w[:, 3:] = (0.2, -0.9, 0.1), 0.001
    return Predictor(data.encoding, bound, w.reshape(-1), 3.0)


def two(rng):
    return rng.choice([0, 1], 200)


def three(rng):
    return rng.choice(["low", "middle", "top"], 200)


NUMBERS = {"classification": False}
MODELS = {
    "logistic": (LogisticRegression(), two, {}),
    "softmax": (SoftmaxRegression(), three, {}),
    "two outputs": (SoftmaxRegression(), two, {}),
    "numbers": (LeastSquares(), lambda rng: rng.normal(size=200), NUMBERS),
    "no intercept": (LogisticRegression(intercept=False), two, {}),
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_largest_come_first(kind):
    model, label, options = MODELS[kind]
    predictor = predictor_of(model, label, **options)
    found = input_effects(predictor)
    names = [row["input"] for row in found.rows]
    assert names[:3] == [LONG, "small", "a\\x1b  <b>"]  # whatever their unit
    assert (len(names), found.others) == (MAX_INPUTS, 23 - MAX_INPUTS)
    target = 3.0 if kind == "numbers" else 1.0
    assert float(list(found.rows[0].values())[-1]) == pytest.approx(
        -0.9 * target, abs=1e-3
    )
