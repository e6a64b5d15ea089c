"""Answers that declare themselves; a new query needs no line elsewhere."""

from __future__ import annotations

from dataclasses import field, replace
from typing import ClassVar

import numpy as np
import pytest

import pffl
from pffl.data import Silo
from pffl.deploy import Limits, Site
from pffl.engines import Local, Reference
from pffl.errors import FederationError, Malformed
from pffl.queries import (
    Census,
    Evaluate,
    Expand,
    ModelQuery,
    Total,
    View,
)
from tests.deploy.sites import Asker, remote
from tests.deploy.sites import alone as agreed_alone
from tests.deploy.spoiling import spoil
from tests.helpers import (
    make_federation,
    make_problem,
    train_query,
    witness_query,
)
from tests.inside import RowRange, array, vector
from tests.raising import raises

CAPPED = RowRange(0.0, lambda query: query.cap)


class SharesTotal(Total):
    """How many examples each cell has below a score, and who they belong to."""

    below: np.ndarray = array("z", row=RowRange(0.0, 1.0, whole=True))
    moments: np.ndarray = array("p", "p")
    own: np.ndarray = array("strata", row=CAPPED, per_silo=True)
    total: float = array(row=CAPPED)


class Shares(ModelQuery[SharesTotal]):
    """Ask how scores are spread."""

    total_type: ClassVar = SharesTotal
    levels: np.ndarray = vector("z")
    cap: float = 1.0
    split: str = field(default="train", init=False)

    def answer(self, view: View) -> SharesTotal:
        model, cells = self.task.model, self.task.cells
        z, n = model.scores(self.w, view.X), cells.membership.shape[1]
        member = cells.of_silo(view.index)[:, view.stratum]
        capped = np.clip(z, 0.0, self.cap)
        X = np.column_stack([view.X, np.ones(len(view))])
        return SharesTotal(
            (member * (z < self.levels[:, None])).sum(axis=1),
            X.T @ X,
            view.stratum_sums(capped, n)[None],
            float(capped.sum()),
        )


@pytest.fixture
def federation():
    return make_federation(0, sizes=(40, 60, 30), test=20)


@pytest.fixture
def query(federation):
    problem = make_problem(Reference(federation), pffl.BoundedGroupLoss(0.6))
    w = np.random.default_rng(1).normal(size=problem.n_parameters)
    return Shares(problem.task, w, np.array([0.2, -0.1]), 0.7)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("below", lambda a: (a + 1000).astype(np.int64), "'below'"),
        ("below", lambda a: a + 0.5, "float64"),
        ("total", lambda a: a + 1e3, "'total'"),
        ("total", lambda a: a * np.nan, "finite"),
        ("own", lambda a: -1.0 - a, "possible"),
        ("own", lambda a: a[:, 1:], "own"),
        ("moments", lambda a: a[1:], "moments"),
        ("moments", lambda a: a * 1e300, "larger"),
        ("more", lambda _: np.zeros(1), "'more'"),
    ],
)
def test_false_answers_to_a_query_of_ones_own_are_refused(
    federation, query, name, change, said
):
    def lie(arrays):
        old = np.asarray(arrays.get(name, np.zeros(1)), np.float64)
        return {**arrays, name: change(old)}

    lying = {"site 1": lambda site: spoil(site, ("shares",), change=lie)}
    with raises(FederationError, "sites-missing", "'site 1'", said):
        remote(federation, spoiled=lying).ask(query)


def test_small_cells_are_withheld_of_any_query(federation, query):
    silo, schema = federation.silos[1], federation.schema
    by_itself = agreed_alone(silo, schema)
    counts = Site(silo, by_itself, Limits(floor=1)).counts("train")
    site = Site(silo, by_itself, Limits(floor=int(np.sort(counts)[0]) + 1))
    hidden = site.hidden("train")
    assert hidden.any()
    assert not hidden.all()
    alone = replace(query, task=replace(query.task, shares=np.ones(1)))
    seen = Asker(site).ask(alone)
    rows = silo.rows("train")
    shown = rows.take(np.flatnonzero(~hidden[schema.strata(rows.group, rows.y)]))
    left = pffl.Federation(schema, (Silo("one", 0, {"train": shown}),), "one")
    whole = Reference(left).ask(alone)
    np.testing.assert_allclose(seen.own, whole.own)
    assert whole.own[:, ~hidden].any()
    assert seen.total == pytest.approx(whole.total)


def test_totals_are_kept_to_the_last_bit(federation, query):
    problem = make_problem(Reference(federation), pffl.BoundedGroupLoss(0.6))
    for asked in (
        query,
        Census(federation.schema),
        Evaluate(query.task, query.w, "train"),
        Expand(query.task, query.w, 2),
        Expand(query.task, query.w),
        witness_query(problem, query.w, np.ones(2)),
        train_query(problem, query.w, np.ones(2)),
    ):
        total = Local(federation).ask(asked)
        again = type(total).from_arrays(total.arrays())
        for name in total.declared:
            one, other = getattr(total, name), getattr(again, name)
            assert np.array_equal(one, other), name
            assert np.asarray(one).dtype == np.asarray(other).dtype, name
    with raises(Malformed, "wrong-keys"):
        type(total).from_arrays(Local(federation).ask(query).arrays())
