"""Sparse inputs from array to certificate: as dense ones, and never made dense."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import pffl
from pffl.engines import Local
from pffl.methods import FirstOrder
from pffl.models import Inputs
from pffl.queries import Evaluate, Expand
from tests.helpers import make_problem, train_query, witness_query
from tests.inside import ScaledRows, as_csr
from tests.verifying import not_verified


def drawn(rows, features, *, seed=0):
    """Draw ten ones a row, labels that depend on them, three groups and two silos."""
    rng = np.random.default_rng(seed)
    places = np.sort(rng.integers(features, size=(rows, 10)), axis=1).ravel()
    ends = np.arange(0, 10 * rows + 1, 10)
    X = sp.csr_array((np.ones(10 * rows), places, ends), shape=(rows, features))
    group, silo = rng.integers(3, size=rows), rng.integers(2, size=rows)
    noise = rng.logistic(size=rows)
    y = (X @ rng.normal(size=features) + group + noise > 1).astype(int)
    return X, y, group, silo


@pytest.fixture
def poisoned(monkeypatch):
    """Let nothing become dense."""

    def densified(*args, **options):
        raise AssertionError("sparse rows were made dense")

    for kind in (sp.csr_array, sp.csc_array, sp.coo_array, ScaledRows):
        monkeypatch.setattr(kind, "toarray", densified)
        monkeypatch.setattr(kind, "todense", densified, raising=False)


def test_no_step_makes_the_rows_dense(poisoned):
    X, y, group, silo = drawn(400, 4_000)
    federation = pffl.Federation.from_arrays(
        X, y, sensitive_features=group, silo=silo, sample_weight=np.ones(400)
    )
    tracemalloc.start()
    engine = Local(federation, threads=1)
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.6))
    w, lam = np.zeros(problem.n_parameters), np.ones(3)
    for query in (
        Evaluate(problem.task, w),
        Expand(problem.task, w),
        Expand(problem.task, w, 0),
        witness_query(problem, w, lam),
        train_query(problem, w, lam, steps=[0.1] * 2, batch_size=50),
    ):
        engine.ask(query)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 400 * 4_000 / 4
    method = FirstOrder(target_gap=0.1)
    solution = pffl.solve(federation, pffl.BoundedGroupLoss(0.6), method=method)
    pffl.certify(solution)
    predictor = solution.predictor
    assert predictor.predict_proba(X).shape == (400, 2)
    assert federation.repeated("test") == 0
    assert len(federation.held_out["test"]) == 64


def test_a_sparse_run_is_the_dense_one(tmp_path):
    X, y, group, silo = drawn(300, 40)
    federations = [
        pffl.Federation.from_arrays(inputs, y, sensitive_features=group, silo=silo)
        for inputs in (X, X.toarray())
    ]
    sparse, dense = (
        pffl.solve(federation, pffl.BoundedGroupLoss(0.5)) for federation in federations
    )
    np.testing.assert_allclose(sparse.w, dense.w, atol=1e-6)
    assert sparse.status == dense.status
    p, q = sparse.predictor, dense.predictor
    np.testing.assert_allclose(
        p.predict_proba(X), q.predict_proba(X.toarray()), atol=1e-6
    )
    assert not_verified(sparse, federations[0], tmp_path) == []


def test_an_operand_is_its_matrix():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 8)) * (rng.random((30, 8)) < 0.4)
    X[:, 3], X[1:, 4] = 2.0, 7.0
    scaled = Inputs(rng.normal(size=8), rng.uniform(0.1, 2, 8)).apply(
        as_csr(sp.csr_array(X))
    )
    dense = scaled.toarray()
    W, A, s = rng.normal(size=(8, 3)), rng.normal(size=(2, 30)), rng.normal(size=30)
    close = {"rtol": 0, "atol": 1e-12}
    np.testing.assert_allclose(scaled @ W, dense @ W, **close)
    np.testing.assert_allclose(scaled @ W[:, 0], dense @ W[:, 0], **close)
    np.testing.assert_allclose(A @ scaled, A @ dense, **close)
    np.testing.assert_allclose(s @ scaled, s @ dense, **close)
    np.testing.assert_allclose(scaled.pairwise(A), A @ dense, **close)
    np.testing.assert_allclose(scaled.gram(s), (dense.T * s) @ dense, **close)
    squares = (dense**2).sum(axis=1)
    assert (scaled.lengths() ** 2 >= squares * (1 - 1e-12)).all()
    index = np.array([5, 2, 2, 29])
    for part in (slice(4, 9), slice(0, 30), slice(7, 7), slice(None, None, 3), index):
        np.testing.assert_allclose(scaled[part].toarray(), dense[part], **close)
        np.testing.assert_allclose(scaled[part] @ W, dense[part] @ W, **close)
