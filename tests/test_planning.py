"""`pffl.plan`: forecasts against what comes, and rows that are never looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import pffl
from pffl.data import Federation, Rows
from pffl.errors import DataError, UsageError
from pffl.prepare import Options
from tests.cli.helpers import SMALL
from tests.cli.helpers import pffl as command
from tests.deploy.sites import remote
from tests.helpers import make_federation
from tests.inside import FOLDS, SHARES, Judged, ModelPath, folds, upper_ends
from tests.raising import raises

QUICK = Options(baseline=False, least=False)


def people(rows: int, seed: int, **options: Any) -> Federation:
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
        seed=seed,
        **{"test_fraction": 0.0, **options},
    )


def forecast(federation: Any, bound: Any, **more: Any) -> pffl.PromisePlan:
    return pffl.plan(federation, pffl.BoundedGroupLoss(bound), **more)


def came(federation: Federation, bound: float) -> tuple[bool, float]:
    """Whether the promise was made, and what bounds would have had to rise by."""
    found = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(bound),
        options=QUICK,
        promise=pffl.Promise(models=2),
        seed=0,
    )
    path = found.evidence.path
    assert isinstance(path, ModelPath)
    first = path.candidates[0]
    ends = upper_ends(first.calibration, first.loss_bound, 0.05, weighs=False)
    assert ends is not None
    return Judged(found.evidence).by_path, float((ends - bound).max())


def changed(federation: Federation, seed: int = 0) -> Federation:
    """Other inputs and labels wherever a plan must not look; groups stay."""
    cut = federation.with_calibration(max(SHARES), seed=seed)

    def other(rows: Rows) -> Rows:
        return replace(rows, X=rows.X[::-1] * 3 + 1, y=1 - rows.y)

    silos = tuple(
        replace(
            silo,
            splits={s: r if s == "train" else other(r) for s, r in silo.splits.items()},
        )
        for silo in cut.silos
    )
    return replace(cut, silos=silos)


def test_nothing_but_the_number_of_other_rows_is_looked_at():
    """Held-out and later calibration rows with other inputs and labels: no change."""
    federation = people(1200, 3, test_fraction=0.25)
    cut = federation.with_calibration(max(SHARES), seed=0)
    same, other = (forecast(f, 0.7) for f in (cut, changed(federation)))
    assert same.as_dict() == other.as_dict()
    # The rows of that cut are those that a plan of the whole looks at.
    whole = forecast(federation, 0.7)
    assert whole.looked_at == cut.rows("train") == same.looked_at
    last = next(one for one in whole.splits if one.calibration == max(SHARES))
    assert last.chance == pytest.approx(same.best.chance, abs=0.02)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("ids", [False, True])
def test_rows_that_were_looked_at_stay_training_rows(share, ids):
    rows = 400
    rng = np.random.default_rng(0)
    table = {
        "x": rng.normal(size=rows),
        "y": rng.integers(2, size=rows),
        "g": rng.choice(["a", "b"], size=rows),
        "who": np.arange(rows) // 2,
    }
    import pandas as pd

    made = Federation.from_table(
        pd.DataFrame(table),
        label="y",
        group="g",
        silos=1 if ids else 3,
        drop=() if ids else ("who",),
        id="who" if ids else None,
    )
    looked = made.with_calibration(max(SHARES), seed=7)
    trained = made.with_calibration(share, seed=7)
    there = set(trained.pooled().X[:, 0])
    assert set(looked.pooled().X[:, 0]) <= there
    assert there.isdisjoint(trained.pooled("calibration").X[:, 0])


def test_folds_leave_out_every_row_once_and_keep_people_together():
    federation = make_federation(1, sizes=(40, 1, 61))
    left = [fold.pooled("validation") for fold in folds(federation)]
    assert len(left) == FOLDS
    whole, parts = federation.pooled(), np.concatenate([p.X for p in left])
    alone = whole.silo == 1  # its one row is trained on always
    assert sorted(parts[:, 0]) == sorted(whole.X[~alone, 0])
    for fold in folds(federation):
        assert fold.rows("train") + fold.rows("validation") == len(whole.y)
    who = np.random.default_rng(0).integers(20, size=len(whole.y))
    parts = np.split(who, np.cumsum([40, 1]))
    silos = tuple(
        replace(s, splits={"train": replace(s.rows(), person=own)})
        for s, own in zip(federation.silos, parts, strict=True)
    )
    for fold in folds(replace(federation, silos=silos)):
        large = [s for s in fold.silos if len(s.rows("train")) > 1]
        assert len(large) == 2
        inside, outside = (
            {person for s in large for person in s.rows(split).person.tolist()}
            for split in ("train", "validation")
        )
        assert inside.isdisjoint(outside)


def test_what_is_forecast_is_about_what_comes():
    """Many draws: the smallest bound, and how often the promise is made."""
    size, bound, share = 900, 0.74, 0.4
    plans, real = [], []
    for seed in range(12):
        made = people(size, 100 + seed)
        found = forecast(made, bound)
        at = next(one for one in found.splits if one.calibration == share)
        plans.append((at.chance, at.rise))
        fresh = people(size, 500 + seed).with_calibration(share)
        real.append(came(fresh, bound))
    chances, rises = np.array(plans).T
    made_it, risen = np.array(real).T
    assert abs(chances.mean() - made_it.mean()) < 0.3
    assert abs(np.median(rises) - np.median(risen)) < 0.02
    assert 0.1 < made_it.mean() < 1.0  # the bound was one that decides


def test_the_rows_that_it_names_make_the_promise_in_most_cases():
    """At 1.5 times the rows in most of them, and at a third in few."""
    bound, size = 0.72, 900
    found = forecast(people(size, 7), bound)
    own = next(c for c in found.confidences if c.confidence == 0.95)

    def made(factor: float) -> float:
        rows = int(factor * own.times * size)
        draws = [
            people(rows, 900 + i).with_calibration(found.best.calibration)
            for i in range(8)
        ]
        return float(np.mean([came(one, bound)[0] for one in draws]))

    assert made(1.5) >= 0.75
    assert made(1 / 3) <= 0.5


def test_a_larger_confidence_costs_more():
    found = forecast(people(900, 7), 0.72, confidence=0.9)
    by = {one.confidence: one for one in found.confidences}
    assert sorted(by) == [0.9, 0.95, 0.99, 0.999]
    chances = [by[c].chance for c in sorted(by)]
    assert chances == sorted(chances, reverse=True)
    rises = [by[c].rise for c in sorted(by)]
    assert rises == sorted(rises)
    assert found.best.chance == by[0.9].chance


@pytest.mark.parametrize(("bound", "hopeless"), [(0.4, True), (2.5, False)])
def test_what_nobody_meets_and_what_asks_for_nothing(bound, hopeless):
    found = forecast(people(900, 7), bound)
    assert bool(found.hopeless) is hopeless
    assert (found.best.chance < 0.01) is hopeless
    assert (found.best.chance > 0.99) is not hopeless
    if hopeless:
        assert all(cell.rows_needed is None for cell in found.cells)
    else:  # rows are kept for training
        assert found.best.calibration == min(SHARES)


def test_cells_with_few_rows_are_guessed_and_named():
    """Three small groups beside two large ones, one of them not looked at at all."""
    rng = np.random.default_rng(0)
    group = np.array(["a"] * 500 + ["b"] * 400 + ["c"] * 20 + ["d"] * 9 + ["e"] * 2)
    X = rng.normal(size=(len(group), 2))
    y = (rng.uniform(size=len(group)) < expit(X[:, 0])).astype(int)
    made = Federation.from_arrays(
        X, y, sensitive_features=group, test_fraction=0.0, seed=1
    )
    found = forecast(made, 0.8)
    assert found.few == ("c", "d", "e")
    assert [cell.cell for cell in found.cells] == ["a", "b", "c", "d", "e"]
    assert found.best.chance < 0.05  # two people show nothing
    needed = {cell.cell: cell.rows_needed for cell in found.cells}
    assert needed["e"] > 50
    alone = made.with_calibration(max(SHARES)).pooled().group
    assert (alone == made.schema.groups.index("e")).sum() < 2


def test_where_all_cells_have_few_rows_nothing_is_forecast():
    rng = np.random.default_rng(0)
    made = Federation.from_arrays(
        rng.normal(size=(40, 2)),
        np.arange(40) % 2,
        sensitive_features=np.array(["a", "b"])[np.arange(40) // 2 % 2],
    )
    found = forecast(made, 0.8)
    assert found.unknown
    assert found.as_dict()["chance"] is None


def notions() -> dict[str, Any]:
    both = pffl.ConditionalBoundedGroupLoss(0.9)
    return {
        "per cell": pffl.BoundedGroupLoss({"a": 0.7, "b": 0.8}),
        "one cell": pffl.BoundedGroupLoss({"b": 0.8}),
        "by label": both,
        "joined": pffl.BoundedGroupLoss(0.75) & both,
        "per silo": pffl.PerSilo(0.8),
    }


@pytest.mark.parametrize("notion", list(notions()))
def test_every_notion_has_a_plan(notion):
    constraint = notions()[notion]
    found = pffl.plan(people(900, 7, test_fraction=0.2), constraint)
    names = constraint.cells(people(90, 7).schema, ("0", "1")).names
    assert [cell.cell for cell in found.cells] == list(names)
    assert 0 <= found.best.chance <= 1
    assert (found.common is None) == (len({c.bound for c in found.cells}) > 1)


def test_weights_ids_and_numbers():
    rng = np.random.default_rng(1)
    import pandas as pd

    rows = 900
    table = pd.DataFrame(
        {
            "x": rng.normal(size=rows),
            "g": rng.choice(["a", "b"], size=rows),
            "s": rng.uniform(0.5, 2.0, size=rows),
            "who": np.arange(rows) // 3,
        }
    )
    table["y"] = (rng.uniform(size=rows) < expit(table["x"])).astype(int)
    table["n"] = np.clip(table["x"] + rng.normal(size=rows), -4, 4)
    args = {"group": "g", "test_fraction": 0.0}

    def made(*drop, label="y", **more):
        return Federation.from_table(table, label=label, drop=drop, **args, **more)

    kinds = (made("n", "s", "who"), made("n", "who", weight="s"))
    with raises(UsageError, "needs-weight-bound"):
        forecast(kinds[1], 0.72)
    options = pffl.Options(weight_bound=1.5 * table["s"].max())
    one, two = (forecast(federation, 0.72, options=options) for federation in kinds)
    three = forecast(made("n", "s", id="who"), 0.72)
    assert two.best.chance < one.best.chance or one.best.chance > 0.97
    assert sum(c.rows for c in three.cells) < 0.7 * sum(c.rows for c in one.cells)
    numbers = made("y", "s", "who", label="n", classification=False)
    with raises(UsageError, "unbounded-loss"):
        forecast(numbers, 1.5)
    model = pffl.LeastSquares(target_range=(-4.0, 4.0))
    assert forecast(numbers, 2.5, model=model).best.chance > 0.5


@pytest.mark.parametrize(
    ("constraint", "more", "code"),
    [
        (None, {}, "needs-bound"),
        (pffl.MinMax(), {}, "needs-bound"),
        (pffl.BoundedGroupLoss("auto"), {}, "auto-refused"),
        (pffl.BoundedGroupLoss(0.7), {"confidence": 0.0}, "wrong-value"),
        (pffl.BoundedGroupLoss(0.7), {"confidence": 1.5}, "wrong-value"),
        (pffl.BoundedGroupLoss({"c": 0.7}), {}, "unknown-cell"),
    ],
)
def test_what_is_refused(constraint, more, code):
    with raises((UsageError, DataError), code):
        pffl.plan(people(400, 7), constraint, **more)


def test_rows_that_are_elsewhere_are_refused():
    with raises(UsageError, "needs-rows"):
        forecast(remote(make_federation(0)), 0.7)


def test_a_cell_without_rows_is_refused_or_left_out():
    rng = np.random.default_rng(0)
    rows = 400
    made = Federation.from_arrays(
        rng.normal(size=(rows, 2)),
        np.arange(rows) % 2,
        sensitive_features=np.where(np.arange(rows) % 4 == 1, "a", "b"),
    )  # group a has one label only
    both = pffl.ConditionalBoundedGroupLoss(0.9)
    with raises(DataError, "empty-cells"):
        pffl.plan(made, both)
    found = pffl.plan(made, both, options=Options(empty_cells="remove"))
    names = {cell.cell for cell in found.cells}
    assert names == {"a, label = 1", "b, label = 0", "b, label = 1"}


# On the command line


def test_the_command_has_json_and_takes_what_run_takes(capsys):
    args = ("plan", *SMALL, "--bound", "0.6", "--json")
    found = command(capsys, *args, "--certify", "0.9").json
    assert found["confidence"] == 0.9
    assert found["forecast"] is True
    assert {cell["cell"] for cell in found["cells"]}
    assert len(found["splits"]) == len(SHARES) + 1
    apart = command(capsys, *args, "--calibration-fraction", "0.3").json
    assert [one["rows"] for one in apart["splits"]] == ["calibration"]
    none = command(capsys, "plan", *SMALL)
    assert (none.code, none.error) == (2, "needs-bound")
