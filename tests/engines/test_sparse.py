"""Sparse rows: every answer is that of the same rows, dense."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import pffl
from pffl.data import Rows
from pffl.engines import Local, Reference
from pffl.models import HuberRegression, Inputs
from pffl.queries import Census, Evaluate, Expand
from tests.deploy.sites import counted, remote
from tests.helpers import (
    assert_same_total,
    draw_multipliers,
    evaluate_query,
    from_silos,
    make_federation,
    make_problem,
    make_schema,
    train_query,
    witness_query,
)
from tests.oracles import MODELS
from tests.raising import raises

BY_STRATUM = pffl.BoundedGroupLoss(0.5)


def matrix(rng, n, far, d=6):
    """Draw columns of every kind: rare, common, full, constant, far from 0, absent."""
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.3)
    X[:, 1] = rng.random(n) < 0.9  # filled up: its mean is above its spread
    X[:, 2] = rng.normal(size=n) + 1.0  # stored everywhere
    X[:, 3] = 0.5
    X[:, 4] = far + rng.normal(size=n)  # 0 − mean would cancel
    X[:, 5] = 0.0
    return X


def make_pair(seed, *, labels=2, weighted=False, dense_silo=None, far=1e6):
    """Draw a federation, and the same with sparse rows in all silos but one."""
    rng, schema = np.random.default_rng(seed), make_schema(features=6, labels=labels)
    federation = make_federation(seed, test=12, schema=schema)

    def drawn(rows, silo):
        weight = rng.uniform(0.2, 3.0, len(rows)) if weighted else None
        return replace(rows, X=matrix(rng, len(rows), far), weight=weight)

    def sparse(rows, silo):
        if silo == dense_silo:
            return rows
        return replace(rows, X=Rows.of(sp.coo_array(rows.X), rows.y, rows.group).X)

    def with_rows(known, change):
        return from_silos(
            known,
            [
                replace(k, splits={s: change(r, k.index) for s, r in k.splits.items()})
                for k in known.silos
            ],
        )

    dense = with_rows(federation, drawn)
    return dense, with_rows(dense, sparse)


def everything(problem, w, lam):
    """Ask all that can be asked."""
    centre = np.append(0.1, problem.task.model.inputs.mean + 0.1)
    anchor = {
        "anchor": w / 2,
        "anchor_weights": problem.cell_weights(lam),
        "anchor_gradient": w / 3,
    }
    found = [
        Census(problem.schema),
        Census(problem.schema, "test"),
        Census(problem.schema, "train", centre),
        Evaluate(problem.task, w, "train"),
        evaluate_query(problem.task, w),
        Expand(problem.task, w, 2),
        Expand(problem.task, w, directions=np.stack([w, np.ones_like(w)], axis=1)),
        Expand(problem.task, w, diagonal=True),
        witness_query(problem, w, lam),
        train_query(problem, w, lam),
        train_query(problem, w, lam, steps=[0.01] * 3, proximal=0.5),
        train_query(problem, w, lam, steps=[0.01] * 3, batch_size=7, seed=3),
        train_query(problem, w, lam, steps=[0.01] * 2, loss_power=0.5),
        train_query(problem, w, lam, silos=(1,)),
        train_query(problem, w, lam, steps=[0.01] * 2, slope=True, **anchor),
    ]
    if problem.task.model.n_outputs == 1:
        found.append(Expand(problem.task, w, sharpness=3.0))
        found.append(train_query(problem, -w, lam, steps=[0.01] * 3, proximal=0.5))
    return found


def same(total, expected):
    """Compare totals; sizes bound rounding, which is that of other sums."""
    if hasattr(total, "stored"):
        expected = replace(expected, stored=total.stored)
    if hasattr(total, "residual"):
        assert (total.sizes[1:] >= expected.sizes[1:] * (1 - 1e-12)).all()
        expected = replace(expected, sizes=np.append(expected.sizes[0], total.sizes[1]))
    assert_same_total(total, expected, 1e-12)


@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from([*MODELS, "huber"]),
    weighted=st.booleans(),
    dense_silo=st.sampled_from([None, 1]),
    constraint=st.sampled_from([BY_STRATUM, BY_STRATUM & pffl.PerSilo(0.7)]),
    options=st.sampled_from([{}, {"intercept": False}, {"standardize": False}]),
)
def test_all_answers_are_those_of_dense_rows(
    seed, kind, weighted, dense_silo, constraint, options
):
    model, labels = {**MODELS, "huber": (HuberRegression, 0)}[kind]
    dense, sparse = make_pair(
        seed,
        labels=labels,
        weighted=weighted,
        dense_silo=dense_silo,
        far=1e6 if options.get("standardize", True) else 3.0,
    )
    plain = Reference(dense)
    problem = make_problem(
        plain,
        constraint,
        model=model(l2=0.01, **options),
    )
    rng = np.random.default_rng(seed)
    w = 0.3 * rng.normal(size=problem.n_parameters)
    lam = draw_multipliers(rng, problem)
    queries = everything(problem, w, lam)
    expected = plain.ask_many(queries)
    for engine in (Reference(sparse), Local(sparse, threads=1)):
        for total, other in zip(engine.ask_many(queries), expected, strict=True):
            same(total, other)


def test_sites_answer_alike_over_the_wire():
    dense, sparse = make_pair(3)
    problem = make_problem(Reference(dense), pffl.BoundedGroupLoss(0.5))
    w = np.full(problem.n_parameters, 0.1)
    here, there = Reference(dense), remote(sparse)
    same(counted(there), counted(here))
    for query in everything(problem, w, np.full(2, 0.5))[3:11]:
        same(there.ask(query), here.ask(query))


def test_models_that_scale_their_own_batches_refuse_sparse_rows():
    _, sparse = make_pair(5)
    inputs = replace(Inputs.identity(6), deferred=True)  # as a network has them
    with raises(pffl.errors.DataError, "needs-dense"):
        inputs.apply(sparse.silos[0].rows("train").X)
