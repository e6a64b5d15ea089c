"""How low bounds can go, and how many rows a certificate will need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression as SklearnLogistic
from sklearn.metrics import log_loss

import pffl
from pffl.data import Federation, Rows, Silo
from pffl.engines import Local
from pffl.errors import DataError, UsageError
from pffl.methods import Exact
from pffl.models import LogisticRegression
from tests.deploy.sites import remote
from tests.helpers import make_federation, make_schema
from tests.inside import Judged, Least
from tests.interrupting import Stopping
from tests.raising import raises


@pytest.fixture(scope="module")
def people() -> pffl.Federation:
    return pffl.datasets.synthetic(900, silos=3, random_state=1)


def test_the_same_enclosure_as_in_the_evidence_of_a_run(people) -> None:
    found = pffl.feasible(people)
    always = pffl.Options(smallest_bound=True)
    run = pffl.solve(people, pffl.BoundedGroupLoss(0.8), options=always, random_state=0)
    least = run.evidence.proofs.least
    assert isinstance(least, Least)
    assert found.common.lower == pytest.approx(least.lower, rel=1e-6)
    assert found.common.upper == pytest.approx(least.upper, rel=1e-8)
    assert found.excess is None
    assert found.verdict == ""
    assert not found.impossible


def test_a_cell_alone_reaches_what_training_on_it_alone_reaches(people) -> None:
    row, train = pffl.feasible(people).cells[2], people.pooled("train")
    X, y = train.X[train.group == 2], train.y[train.group == 2]
    theirs = SklearnLogistic(C=np.inf, tol=1e-12, max_iter=1000).fit(X, y)
    least = log_loss(y, theirs.predict_proba(X))
    assert row.lower <= least + 1e-9
    assert least == pytest.approx(row.upper, rel=1e-4)
    bounds = {"A": 50.0, "B": 50.0, "C": row.upper + 1e-4}
    met = pffl.solve(
        people,
        pffl.BoundedGroupLoss(bounds),
        method=Exact(multiplier_bound=1e5),
        random_state=0,
    )
    assert met.status == "met"
    bounds["C"] = row.lower - 1e-4
    other = pffl.solve(people, pffl.BoundedGroupLoss(bounds), random_state=0)
    assert other.status == "impossible"
    assert row.rows == met.cells.loc["C", "count"]


def test_bounds_that_differ_are_judged_together(people) -> None:
    common = pffl.feasible(people).common
    low = {"A": common.upper, "B": common.upper - 0.01, "C": common.upper - 0.02}
    under = pffl.feasible(people, pffl.BoundedGroupLoss(low))
    assert under.impossible
    assert under.verdict
    high = {name: bound + 0.1 for name, bound in low.items()}
    over = pffl.feasible(people, pffl.BoundedGroupLoss(high))
    assert not over.impossible
    assert over.verdict
    named = pffl.feasible(people, pffl.BoundedGroupLoss(low), bounded=False)
    assert named.excess is None
    assert named.common == common


@pytest.mark.parametrize("at", [3, 9])
def test_an_interruption_gives_no_half_answer(people, at: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        pffl.feasible(Stopping(Local(people), at))  # type: ignore[arg-type]


def test_small_cells_are_not_fitted_alone_where_rows_are_elsewhere():
    schema = make_schema(features=8)
    federation = make_federation(0, sizes=(9, 8), test=0, schema=schema)
    with pytest.warns(UserWarning, match="fewer than 10"):
        assert set(pffl.feasible(federation).alone) == {"f", "m"}
    with pytest.warns(UserWarning, match="fewer than 10"):
        assert pffl.feasible(remote(federation)).alone == {}


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
    model = LogisticRegression(standardize=False, intercept=False)
    found = pffl.feasible(people, model=model)
    assert found.common.lower == pytest.approx(0.68909, abs=1e-4)
    run = pffl.solve(people, pffl.BoundedGroupLoss(0.6), model=model, random_state=0)
    assert run.status == "impossible"


def test_the_smallest_bounds_of_compas() -> None:
    people = pffl.datasets.compas(random_state=0)
    found = pffl.feasible(people)
    assert found.everywhere
    assert found.common.lower == pytest.approx(0.605465, abs=2e-6)
    run = pffl.solve(people, pffl.BoundedGroupLoss(0.55), random_state=0)
    proof = run.certificate.of_kind("infeasible")[0]
    assert proof.value == pytest.approx(0.055465, abs=2e-6)


def test_separable_rows_have_no_smallest_bound_above_zero() -> None:
    rng = np.random.default_rng(3)
    X, group = rng.normal(size=(90, 2)), rng.integers(2, size=90)
    people = federation_of(X, (X[:, 0] > 0).astype(float), group)
    found = pffl.feasible(people)
    assert found.common.lower == 0
    assert 0 < found.common.upper < 1e-3
    assert found.everywhere


# How many rows a certificate needs


def two_groups(rows: int, seed: int, **options: Any) -> Federation:
    """Two groups, of which one model suits neither; more inputs than are of use."""
    rng = np.random.default_rng(seed)
    group = (rng.uniform(size=rows) < 0.3).astype(int)
    X = rng.normal(size=(rows, 8))
    score = np.where(group == 1, 1.5 * X[:, 1] + 0.5, 1.5 * X[:, 0])
    y = (rng.uniform(size=rows) < expit(score)).astype(int)
    return Federation.from_arrays(
        X,
        y,
        sensitive_features=np.array(["a", "b"])[group],
        silo=np.arange(rows) % 2,
        random_state=seed,
        **{"test_fraction": 0.0, **options},
    ).with_calibration(0.4, random_state=seed)


def forecast(federation: Any, bound: Any, confidence: float = 0.95, **more: Any) -> Any:
    constraint = bound
    if bound is not None and not hasattr(bound, "cells"):
        constraint = pffl.BoundedGroupLoss(bound)
    return pffl.feasible(federation, constraint, certify=confidence, **more).forecast


def certified(federation: Federation, bound: float) -> bool:
    """Whether a run with this bound was certified."""
    found = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(bound),
        options=pffl.Options(
            baseline=False, smallest_bound=False, certify=True, models=2
        ),
        random_state=0,
    )
    return Judged(found.evidence).by_path


def test_nothing_but_the_number_of_other_rows_is_looked_at() -> None:
    """Test and calibration rows with other inputs and labels: no change."""
    federation = two_groups(1200, 3, test_fraction=0.25)

    def other(rows: Rows) -> Rows:
        return replace(rows, X=rows.X[::-1] * 3 + 1, y=1 - rows.y)

    silos = tuple(
        replace(
            silo,
            splits={s: r if s == "train" else other(r) for s, r in silo.splits.items()},
        )
        for silo in federation.silos
    )
    assert forecast(federation, 0.7) == forecast(replace(federation, silos=silos), 0.7)


def test_the_rows_that_it_names_are_enough_in_most_cases() -> None:
    """Twice the rows: certified in most draws; a fifth of them: in few."""
    bound, size = 0.72, 900
    cells = forecast(two_groups(size, 7), bound).cells
    factor = max(cell.rows_needed / cell.rows for cell in cells)

    def made(times: float) -> float:
        draws = [two_groups(int(times * factor * size), 900 + i) for i in range(8)]
        return float(np.mean([certified(draw, bound) for draw in draws]))

    assert made(2.0) >= 0.75
    assert made(0.2) <= 0.5


def test_a_larger_confidence_needs_more_rows() -> None:
    people = two_groups(900, 7)
    found = [forecast(people, 0.72, sure) for sure in (0.9, 0.95, 0.99)]
    needed = [[cell.rows_needed for cell in one.cells] for one in found]
    assert needed == sorted(needed)
    chances = [one.chance for one in found]
    assert chances == sorted(chances, reverse=True)


@pytest.mark.parametrize(("bound", "hopeless"), [(0.4, True), (2.5, False)])
def test_bounds_that_no_number_of_rows_certifies(bound: float, hopeless: bool) -> None:
    found = forecast(two_groups(900, 7), bound)
    assert (found.chance < 0.01) is hopeless
    assert (found.chance > 0.99) is not hopeless
    assert all((cell.rows_needed is None) is hopeless for cell in found.cells)


def test_of_groups_with_few_rows_nothing_is_forecast() -> None:
    rng = np.random.default_rng(0)
    group = np.array(["a"] * 500 + ["b"] * 400 + ["c"] * 12)
    X = rng.normal(size=(len(group), 2))
    y = (rng.uniform(size=len(group)) < expit(X[:, 0])).astype(int)
    made = Federation.from_arrays(X, y, sensitive_features=group, random_state=1)
    found = forecast(made, 0.8)
    assert [cell.mean_loss is None for cell in found.cells] == [False, False, True]
    assert found.chance == 0
    assert "'c'" in found.sentence or "c have" in found.sentence


def test_people_with_several_rows_count_once_and_weights_need_a_bound() -> None:
    import pandas as pd

    rng, rows = np.random.default_rng(1), 900
    table = pd.DataFrame(
        {
            "x": rng.normal(size=rows),
            "g": rng.choice(["a", "b"], size=rows),
            "s": rng.uniform(0.5, 2.0, size=rows),
            "who": np.arange(rows) // 3,
        }
    )
    table["y"] = (rng.uniform(size=rows) < expit(table["x"])).astype(int)

    def made(*drop: str, **more: Any) -> Federation:
        return Federation.from_table(table, label="y", group="g", drop=drop, **more)

    plain, weighted = made("s", "who"), made("who", weight="s")
    with raises(UsageError, "needs-weight-bound"):
        forecast(weighted, 0.72)
    options = pffl.Options(weight_bound=3.0)
    one, two = (forecast(f, 0.72, options=options) for f in (plain, weighted))
    assert two.chance < one.chance or one.chance > 0.97
    few = forecast(made("s", id="who"), 0.72)
    assert sum(c.rows for c in few.cells) < 0.7 * sum(c.rows for c in one.cells)


@pytest.mark.parametrize(
    ("bound", "confidence", "code"),
    [
        (None, 0.95, "needs-bound"),
        (pffl.MinMax(), 0.95, "needs-bound"),
        (pffl.BoundedGroupLoss("auto"), 0.95, "auto-refused"),
        (0.7, 0.0, "wrong-value"),
        (0.7, 1.5, "wrong-value"),
        ({"c": 0.7}, 0.95, "unknown-cell"),
    ],
)
def test_forecasts_that_are_refused(bound: Any, confidence: float, code: str) -> None:
    with raises((UsageError, DataError), code):
        forecast(two_groups(400, 7), bound, confidence)


def test_rows_that_are_elsewhere_are_not_set_aside() -> None:
    with raises(UsageError, "needs-rows"):
        forecast(remote(make_federation(0)), 0.7)
