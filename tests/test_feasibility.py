"""How low bounds can go, before anything is trained."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.data import Federation, Rows, Silo
from pffl.engines import Local
from pffl.errors import UsageError
from tests.helpers import make_schema
from tests.inside import Least
from tests.interrupting import Stopping
from tests.raising import raises


@pytest.fixture(scope="module")
def people() -> pffl.Federation:
    return pffl.datasets.synthetic(900, silos=3, seed=1)


def test_the_same_enclosure_as_in_the_evidence_of_a_run(people) -> None:
    found = pffl.feasible(people)
    run = pffl.solve(people, pffl.BoundedGroupLoss(0.8), seed=0)
    least = run.evidence.proofs.least
    assert isinstance(least, Least)
    assert found.common.lower == pytest.approx(least.lower, rel=1e-6)
    assert found.common.upper == pytest.approx(least.upper, rel=1e-8)
    assert found.excess is None
    assert found.verdict == ""
    assert not found.impossible
    assert found.left == 0


def test_a_cell_alone_reaches_what_training_on_it_alone_reaches(people) -> None:
    found = pffl.feasible(people, cells=["C"])
    (row,) = found.cells
    bounds = {"A": 50.0, "B": 50.0, "C": row.alone.upper + 1e-4}
    met = pffl.solve(
        people,
        pffl.BoundedGroupLoss(bounds),
        method=pffl.Exact(multiplier_bound=1e5),
        seed=0,
    )
    assert met.status == "met"
    bounds["C"] = row.alone.lower - 1e-4
    other = pffl.solve(people, pffl.BoundedGroupLoss(bounds), seed=0)
    assert other.status == "impossible"
    assert row.rows == met.cells.loc["C", "count"]


def test_bounds_that_differ_are_judged_together(people) -> None:
    common = pffl.feasible(people, cells=["A"]).common
    low = {"A": common.upper, "B": common.upper - 0.01, "C": common.upper - 0.02}
    under = pffl.feasible(people, pffl.BoundedGroupLoss(low))
    assert under.impossible
    assert under.verdict
    assert under.others is None
    high = {name: bound + 0.1 for name, bound in low.items()}
    over = pffl.feasible(people, pffl.BoundedGroupLoss(high))
    assert not over.impossible
    assert over.verdict
    named = pffl.feasible(people, pffl.BoundedGroupLoss(low), promise=False)
    assert named.excess is None
    assert named.common == common


def test_minimax_has_no_bounds_to_judge(people) -> None:
    found = pffl.feasible(people, pffl.MinMax(), cells=["B"])
    assert found.excess is None
    assert [row.cell for row in found.cells] == ["B"]
    assert found.left == 2


def test_it_prints_and_shows_itself_in_a_notebook(people) -> None:
    found = pffl.feasible(people, pffl.BoundedGroupLoss(0.4))
    assert len(repr(found)) < 1500
    assert found._repr_html_().startswith("<article")
    plain = found.as_dict()
    assert plain["impossible"]
    assert np.isfinite(plain["rise"]).all()


def test_an_unknown_cell_is_refused(people) -> None:
    with raises(UsageError, "unknown-cell", "Z"):
        pffl.feasible(people, cells=["Z"])


@pytest.mark.parametrize("at", [3, 9])
def test_an_interruption_gives_no_half_answer(people, at: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        pffl.feasible(Stopping(Local(people), at))  # type: ignore[arg-type]


def federation_of(X, y, group, *, labels: int = 2, silos: int = 3) -> pffl.Federation:
    schema = make_schema(features=X.shape[1], labels=labels)
    owner = np.arange(len(y)) % silos
    parts = [
        {"train": Rows.of(X[owner == k], y[owner == k], group[owner == k])}
        for k in range(silos)
    ]
    sites = tuple(Silo(f"site {k}", k, part) for k, part in enumerate(parts))
    return Federation(schema, sites, name="people")


def test_two_outliers_make_it_impossible_for_the_own_loss_only() -> None:
    # Two rows at ±60 with wrong labels: the own loss of every linear model is 0.689
    # or more; clipped at M = 3, w = (3, 0) has 0.110.
    X = np.array([[2.0, 0.0]] * 49 + [[-2.0, 0.0]] * 49 + [[60.0, 0.0], [-60.0, 0.0]])
    y = np.array([1.0] * 49 + [0.0] * 49 + [0.0, 1.0])
    people = federation_of(X, y, np.arange(100) % 2, silos=1)
    model = pffl.LogisticRegression(standardize=False, intercept=False)
    found = pffl.feasible(people, cells=["f"], model=model)
    assert found.common.lower == pytest.approx(0.68909, abs=1e-4)
    run = pffl.solve(people, pffl.BoundedGroupLoss(0.6), model=model, seed=0)
    assert run.status == "impossible"


def test_the_smallest_bounds_of_compas() -> None:
    people = pffl.datasets.compas(seed=0)
    found = pffl.feasible(people, cells=["Female"])
    assert found.everywhere
    assert found.common.lower == pytest.approx(0.605465, abs=2e-6)
    run = pffl.solve(people, pffl.BoundedGroupLoss(0.55), seed=0)
    proof = run.certificate.of_kind("infeasible")[0]
    assert proof.value == pytest.approx(0.055465, abs=2e-6)


def test_separable_rows_have_no_smallest_bound_above_zero() -> None:
    rng = np.random.default_rng(3)
    X, group = rng.normal(size=(90, 2)), rng.integers(2, size=90)
    people = federation_of(X, (X[:, 0] > 0).astype(float), group)
    found = pffl.feasible(people, cells=["f"])
    assert found.common.lower == 0
    assert 0 < found.common.upper < 1e-3
    assert found.everywhere
