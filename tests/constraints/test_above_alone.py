"""Bounds above what each group alone can reach: `feasible`, and one number more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

import pffl
from pffl.data import Federation
from pffl.engines import Local
from pffl.prepare import Options
from tests.deploy.sites import remote
from tests.helpers import make_federation, make_schema
from tests.saddle import Oracle

cp = pytest.importorskip("cvxpy")

SIZES = (90, 60)
FEW = Options(baseline=False, smallest_bound=False)


@cache
def people(labels: int = 2) -> Federation:
    return make_federation(1, sizes=SIZES, test=30, labels=labels)


def oracle(federation: Federation, bounds: Sequence[float]) -> Oracle:
    group = federation.pooled("train").group
    kind = "logistic" if federation.schema.labels else "least-squares"
    return Oracle.of(federation, [group == 0, group == 1], bounds, kind=kind)


class Truth:
    """The same numbers by cvxpy, which knows nothing of `pffl`."""

    def __init__(self, federation: Federation) -> None:
        self.oracle = oracle(federation, [0.0, 0.0])
        o, numeric = self.oracle, not federation.schema.labels
        self.w = cp.Variable(o.X.shape[1])
        score = o.X @ self.w
        self.losses = cp.logistic(cp.multiply(1 - 2 * o.y, score))
        if numeric:
            self.losses = cp.square(o.shift + o.stretch * score - o.y)
        self.means = [cp.sum(self.losses[np.flatnonzero(c)]) / c.sum() for c in o.cells]
        self.risk = o.risk_weights @ self.losses + o.l2 / 2 * cp.sum_squares(self.w)

    @staticmethod
    def least(value: cp.Expression, *constraints: cp.Constraint) -> float:
        problem = cp.Problem(cp.Minimize(value), list(constraints))
        return float(problem.solve(solver=cp.CLARABEL))

    def alone(self) -> list[float]:
        return [self.least(mean) for mean in self.means]

    def smallest(self, alone: Sequence[float]) -> float:
        """The smallest excess that all cells can have together."""
        pairs = zip(self.means, alone, strict=True)
        return self.least(cp.maximum(*(mean - low for mean, low in pairs)))

    def best(self, bounds: Sequence[float]) -> float:
        pairs = zip(self.means, bounds, strict=True)
        return self.least(self.risk, *(mean <= bound for mean, bound in pairs))


def above(alone: dict[str, float], excess: float) -> pffl.BoundedGroupLoss:
    return pffl.BoundedGroupLoss({name: low + excess for name, low in alone.items()})


@pytest.mark.parametrize("labels", [2, 0])
def test_it_is_the_best_model_with_that_excess_and_no_other(labels):
    federation, truth = people(labels), Truth(people(labels))
    alone = truth.alone()
    smallest = truth.smallest(alone)
    unit = float(truth.oracle.stretch) ** 2
    assert smallest > 1e-3 * unit  # one model does not suit both
    excess = 1.3 * smallest
    found = pffl.feasible(federation)
    for low, row in zip(alone, found.cells, strict=True):
        assert found.alone[row.cell] == row.lower <= low + 1e-7 * unit
        assert low - 1e-7 * unit <= row.upper < row.lower + 1e-4 * unit
    asked = above(found.alone, excess)
    solution = pffl.solve(federation, asked, options=FEW, random_state=0)
    assert solution.status == "met"
    means = truth.oracle.violation(solution.w)  # of bounds 0
    assert (means - alone <= excess * (1 + 1e-6)).all()
    best = truth.best([low + excess for low in alone])
    assert truth.oracle.risk(solution.w) == pytest.approx(best, rel=1e-4)
    below = above(found.alone, 0.97 * smallest)
    assert (
        pffl.solve(federation, below, options=FEW, random_state=0).status
        == "impossible"
    )


def test_small_cells_are_not_fitted_alone_where_rows_are_elsewhere():
    schema = make_schema(features=8)
    federation = make_federation(0, sizes=(9, 8), test=0, schema=schema)
    away = Elsewhere(Local(federation))
    with pytest.warns(UserWarning, match="fewer than 10"):
        assert set(pffl.feasible(federation).alone) == {"f", "m"}
    with pytest.warns(UserWarning, match="fewer than 10"):
        found = pffl.feasible(away)
    assert found.alone == {}
    there = pffl.feasible(remote(people())).alone
    assert there == pytest.approx(pffl.feasible(people()).alone, abs=1e-7)


class Elsewhere:
    """An engine that does not show its rows."""

    def __init__(self, engine: Local) -> None:
        self.engine, self.federation = engine, None

    def __getattr__(self, name: str) -> object:
        return getattr(self.engine, name)
