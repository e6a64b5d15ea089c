"""RegretBound: bounds that count from what each group alone could reach."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import pffl
from pffl import preparation, runs
from pffl.constraints.base import EVERY_SILO, Cells
from pffl.data import Federation
from pffl.engines import Local
from pffl.errors import FederationError, UsageError
from pffl.foreign import Audited
from pffl.preparation import Options
from pffl.testing import check_constraint
from tests.cli.helpers import SMALL, one_line
from tests.cli.helpers import pffl as command
from tests.engines.sites import remote
from tests.helpers import (
    make_federation,
    make_schema,
)
from tests.interrupting import Stopping, outcome
from tests.saddle import Oracle
from tests.verifying import not_verified

cp = pytest.importorskip("cvxpy")

SIZES = (90, 60)
FEW = Options(baseline=False, least=False)


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


@pytest.mark.parametrize("labels", [2, 0])
def test_it_is_the_best_model_with_that_excess_and_no_other(labels):
    federation, truth = people(labels), Truth(people(labels))
    alone = truth.alone()
    smallest = truth.smallest(alone)
    unit = float(truth.oracle.stretch) ** 2
    assert smallest > 1e-3 * unit  # one model does not suit both
    excess = 1.3 * smallest
    solution = pffl.solve(federation, pffl.RegretBound(excess), options=FEW, seed=0)
    assert solution.status == "met"
    for cell, low in zip(solution.evidence.cells, alone, strict=True):
        assert cell.floor is not None
        assert cell.floor[0] <= low + 1e-7 * unit
        assert cell.floor[1] >= low - 1e-7 * unit
        assert cell.floor[1] - cell.floor[0] < 1e-4 * unit
        assert cell.bound == pytest.approx(cell.floor[0] + excess)
    means = truth.oracle.violation(solution.w)  # of bounds 0
    assert (means - alone <= excess * (1 + 1e-6)).all()
    best = truth.best([low + excess for low in alone])
    assert truth.oracle.risk(solution.w) == pytest.approx(best, rel=1e-4)
    shown = solution.cells
    np.testing.assert_allclose(shown["excess"], shown["train_loss"] - alone, atol=1e-4)
    below = pffl.RegretBound(0.97 * smallest)
    assert pffl.solve(federation, below, options=FEW, seed=0).status == "infeasible"
    found = pffl.feasible(federation, pffl.RegretBound(0.0), promise=False)
    assert found.common.lower <= smallest + 1e-7 * unit
    assert found.common.upper == pytest.approx(smallest, abs=1e-4 * unit)
    assert "smallest excess over what each cell alone can reach" in found.sentence


def test_met_counts_from_the_lower_end_and_impossible_from_the_upper(monkeypatch):
    federation, truth = people(), Truth(people())
    alone = truth.alone()
    smallest = truth.smallest(alone)
    width = 0.02

    def wide(problem, cells):
        found = yield from search(problem, cells)
        return tuple(replace(one, lower=one.lower - width) for one in found)

    search = preparation.find_reach
    monkeypatch.setattr(preparation, "find_reach", wide)

    def solved(excess: float) -> pffl.Solution:
        return pffl.solve(federation, pffl.RegretBound(excess), options=FEW, seed=0)

    # Met only if the lower end says so: here the truth is met, and it is not claimed.
    between = solved(smallest + 0.5 * width)
    assert between.status not in ("met", "infeasible")
    # Impossible from the lower end, possible from the upper: not called impossible.
    assert not between.certificate.of_kind("infeasible")[0].available
    sure = solved(smallest + 1.05 * width)
    assert sure.status == "met"
    assert (truth.oracle.violation(sure.w) - alone <= smallest + 1.05 * width).all()
    assert solved(0.9 * smallest).status == "infeasible"
    feasible = pffl.feasible(federation, pffl.RegretBound(smallest + 0.5 * width))
    assert not feasible.impossible


def test_auto_chooses_the_excess():
    solution = pffl.solve(people(), pffl.RegretBound("auto"), options=FEW, seed=0)
    choice = solution.evidence.training.choice
    assert choice.excess
    floors = [cell.floor[0] for cell in solution.evidence.cells]
    np.testing.assert_allclose(solution.evidence.bounds - floors, choice.bound)
    note = next(n for n in solution.evidence.notes if n.startswith("bound ="))
    assert "smallest worst excess" in note


def test_what_is_said_of_it(tmp_path: Path):
    federation = people()
    solution = pffl.solve(federation, pffl.RegretBound(0.2), options=FEW, seed=0)
    note = next(n for n in solution.evidence.notes if "cell alone" in n)
    for cell in solution.evidence.cells:
        assert f"{cell.cell} {cell.bound:.4g} = {cell.floor[0]:.4g} + 0.2" in note
    told = solution.certificate.of_kind("holdout")[0].text
    assert "above what they alone could reach is not shown" in told
    plain = pffl.solve(federation, pffl.BoundedGroupLoss(0.7), options=FEW, seed=0)
    assert "alone could reach" not in plain.certificate.of_kind("holdout")[0].text
    assert not_verified(solution, federation, tmp_path, cell="f") == []
    for change in ({"floor": [0.1, 0.1]}, {"bound": 0.9}):
        cells = [{**vars(solution.evidence.cells[0]), **change}]
        place = runs.save(solution, tmp_path / next(iter(change)))
        file = place / "evidence.json"
        e = json.loads(file.read_text())
        e["cells"][0] |= {k: cells[0][k] for k in change}
        file.write_text(json.dumps(e))
        wrong = [c.what for c in pffl.verify(place) if not c.agrees]
        asked = {"floor": "what f alone can reach", "bound": "bound of f"}
        assert any(asked[next(iter(change))] in what for what in wrong)


def test_cells_keep_what_their_bounds_count_from():
    check_constraint(pffl.RegretBound(0.05))
    schema, silos = make_schema(), ("a", "b")
    regret = pffl.RegretBound({"m": 0.1})
    cells = regret.cells(schema, silos)
    assert (cells.names, cells.unbounded) == (("m",), ("f",))
    both = (pffl.BoundedGroupLoss(0.7) & regret & pffl.PerSilo(0.8)).cells(
        schema, silos
    )
    assert both.relative.tolist() == [False, False, True, False, False]
    assert np.isinf(both.unsure)  # nothing is known yet
    known = np.full((5, 2), np.nan)
    known[2] = 0.4, 0.45
    found = both.above(known)
    np.testing.assert_allclose(found.bounds, [0.7, 0.7, 0.5, 0.8, 0.8])
    assert found.unsure == pytest.approx(0.05)
    assert found.take([2]).relative.tolist() == [True]
    assert found.in_each_silo(silos).relative.sum() == 2
    plain = pffl.BoundedGroupLoss(0.7).cells(schema, silos)
    assert plain.unsure == 0
    assert not plain.relative.any()
    assert isinstance(plain, Cells)
    assert (plain.silo == EVERY_SILO).all()


def test_stacks_and_sweeps_count_from_the_same():
    federation, method = people(), pffl.Exact(multiplier_bound=20)
    points = [(pffl.RegretBound(z), method) for z in (0.1, 0.2)]
    many = pffl.solve_many(federation, points, options=FEW)
    for solution, (constraint, _) in zip(many, points, strict=True):
        one = pffl.solve(federation, constraint, method=method, options=FEW, seed=0)
        np.testing.assert_allclose(solution.evidence.bounds, one.evidence.bounds)
        np.testing.assert_allclose(solution.w, one.w, atol=1e-6)
    swept = pffl.sweep(
        federation, notions=["regret"], bounds=[0.2], multiplier_bounds=[20.0]
    )
    assert swept.rows[0]["status"] == many[1].status
    assert swept.rows[0]["cells"][0]["bound"] == many[1].evidence.bounds[0]


def test_it_resumes_in_the_search_and_after_it(tmp_path: Path):
    constraint, federation = pffl.RegretBound(0.2), people()
    whole = Stopping(Local(federation), at=-1)
    expected = outcome(pffl.solve(whole, constraint, options=FEW, seed=3))
    for at in (3, whole.asked - 1):
        place = tmp_path / str(at)
        with pytest.raises(FederationError):
            pffl.solve(
                Stopping(Local(federation), at, FederationError),
                constraint,
                options=FEW,
                seed=3,
                checkpoint=place,
            )
        again = Stopping(Local(federation), at=-1)
        resumed = pffl.solve(again, constraint, options=FEW, seed=3, checkpoint=place)
        assert again.asked <= whole.asked - at + 2
        assert outcome(resumed)["w"].tobytes() == expected["w"].tobytes()
        assert resumed.evidence.proofs.reach[0].lower > 0


class Elsewhere:
    """An engine that does not show its rows."""

    def __init__(self, engine: Local) -> None:
        self.engine, self.federation = engine, None

    def __getattr__(self, name: str) -> object:
        return getattr(self.engine, name)


def test_few_rows_are_said_and_refused_where_they_are_elsewhere():
    schema = make_schema(features=8)
    federation = make_federation(0, sizes=(9, 8), test=0, schema=schema)
    with pytest.warns(UserWarning, match="fewer than 10"):
        solution = pffl.solve(federation, pffl.RegretBound(0.9), options=FEW, seed=0)
    assert any("no more training rows" in note for note in solution.evidence.notes)
    with (
        pytest.warns(UserWarning, match="fewer than 10"),
        pytest.raises(UsageError, match="gives its rows away"),
    ):
        pffl.solve(Elsewhere(Local(federation)), pffl.RegretBound(0.9), options=FEW)
    enough = pffl.RegretBound(0.2)
    there, here = (
        pffl.solve(engine, enough, options=FEW, seed=0)
        for engine in (remote(people()), Local(people()))
    )
    assert there.status == here.status == "met"
    np.testing.assert_allclose(there.w, here.w, atol=1e-9)


def test_what_cannot_be_had_is_refused():
    groups = [("who", tuple(f"g{i}" for i in range(21)))]
    many = make_schema(labels=0, attributes=groups)
    federation = make_federation(0, sizes=(900, 900), test=0, schema=many)
    with pytest.raises(UsageError, match="at most 20 cells, and there are 21"):
        pffl.solve(federation, pffl.RegretBound(0.1), options=FEW)
    model = Audited(pffl.LogisticRegression(), np.zeros(4))
    with pytest.raises(UsageError, match="give an audit bounds on losses"):
        pffl.audit(model, people(), pffl.RegretBound(0.1))


def test_a_cell_of_one_label_reaches_nothing():
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(80, 2)), np.arange(80) % 2
    y = np.where(group == 1, 1, X[:, 0] + rng.normal(size=80) > 0).astype(int)
    rows = Federation.from_arrays(X, y, sensitive_features=group, test_fraction=0.0)
    solution = pffl.solve(rows, pffl.RegretBound(0.3), options=FEW, seed=0)
    mixed, sure = solution.evidence.cells
    assert sure.floor == (0.0, 0.0)
    assert sure.bound == 0.3
    assert [one.cell for one in solution.evidence.proofs.reach] == [mixed.cell]


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    out = tmp_path / "run"
    seen = command(
        capsys, "run", *SMALL, "--constraint", "regret", "--bound", "0.3", "--out", out
    )
    assert seen.code == 0, seen.err
    assert "excess" in seen.out
    assert "of the cell alone" in one_line(seen.out)
    assert "VERIFIED" in command(capsys, "verify", out).out
