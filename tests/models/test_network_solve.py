"""Networks from data to verdict: the same run as a linear model, and every notion."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.errors import ArtefactError
from pffl.methods import PFFL
from pffl.models import LeastSquares, LogisticRegression
from tests.helpers import make_federation
from tests.inside import read_model, write_model
from tests.raising import raises

FEW = {"dual_rounds": 4, "rounds_per_dual": 5, "local_steps": 2, "step_size": 0.1}


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global torch, nn, mlp, Network, Own
    pytest.importorskip("torch", reason="networks need the extra 'torch'")
    import torch
    from torch import nn

    from pffl.models import mlp
    from tests.inside import Network
    from tests.models.networks import Own


def zeros(features, outputs=1):
    """Return a dense layer of doubles that starts at 0, as linear models do."""
    layer = nn.Linear(features, outputs).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    return layer


PAIRS = {
    "logistic": (LogisticRegression, "binary", 2),
    "least squares": (LeastSquares, "squared", 0),
}


@pytest.mark.parametrize("engine", ["local", "reference"])
@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_torch_model_and_the_numpy_one_give_the_same_run(pair, batch_size, engine):
    linear, loss, labels = PAIRS[pair]
    federation = make_federation(2, sizes=(40, 25, 60, 12), labels=labels)
    method = PFFL(
        dual_rounds=5,
        rounds_per_dual=4,
        local_steps=3,
        step_size=0.02,
        dual_step_size=1.0,
        batch_size=batch_size,
        proximal=0.1,
        multiplier_bound=3.0,
        iterate="average",
        drift_correction=batch_size is not None,
        by_mass=batch_size is None,
        target_gap=1e-12,
    )
    constraint = pffl.BoundedGroupLoss(0.5) & pffl.PerSilo(0.7)
    models = (linear(l2=0.01), Network(zeros(3), loss, l2=0.01, initial="given"))
    numpy_run, torch_run = (
        pffl.solve(
            federation,
            constraint,
            model=m,
            method=method,
            random_state=4,
            engine=engine,
        )
        for m in models
    )
    np.testing.assert_allclose(torch_run.w, numpy_run.w, atol=1e-10)
    np.testing.assert_allclose(torch_run.multipliers, numpy_run.multipliers, atol=1e-10)
    left_out = ("round", "gap", "seconds", "worst_cell")
    columns = [c for c in numpy_run.history if c not in left_out]
    trained = numpy_run.history["gap"].isna()  # a network's gap is never looked at
    np.testing.assert_allclose(
        torch_run.history[columns], numpy_run.history[columns][trained], atol=1e-9
    )
    assert torch_run.test.error == numpy_run.test.error
    for a, b in zip(torch_run.cell_results, numpy_run.cell_results, strict=True):
        assert a.test_loss == pytest.approx(b.test_loss, abs=1e-9)
    assert torch_run.gap is None


def test_a_network_is_saved_and_read_back(tmp_path):
    federation = make_federation(1)
    solution = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(0.9),
        model=Network(mlp(3, (4,), 2, batch_norm=True)),
        method=PFFL(**FEW),
        random_state=0,
    )
    path = tmp_path / "model.safetensors"
    path.write_bytes(write_model(solution.predictor))
    saved = read_model(path)
    X = federation.silos[0].rows("test").X
    np.testing.assert_array_equal(saved.predict_proba(X), solution.predict_proba(X))
    own = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(0.9),
        model=Network(Own()),
        method=PFFL(**FEW),
        random_state=0,
    )
    path.write_bytes(write_model(own.predictor))
    with raises(ArtefactError, "bad-model-file"):
        read_model(path)
    saved = read_model(path, module=Own())
    np.testing.assert_array_equal(saved.predict_proba(X), own.predict_proba(X))
    for other in (mlp(3, (4,), 2), Own().double(), nn.Linear(3, 2)):
        with raises(ArtefactError, "bad-model-file"):
            read_model(path, module=other)
    with raises(ArtefactError, "bad-model-file", "w"):
        read_model(path, module=Own(outputs=2, hidden=9))
