"""`pffl.monitor`: batches of every kind of rows, and what is refused."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl import runs
from pffl.data import Federation, Rows, Silo
from pffl.engines import Local, Reference
from pffl.errors import ArtefactError, DataError, UsageError
from tests.bounds.test_alarm import plain_values
from tests.deploy.sites import remote
from tests.helpers import make_federation, make_schema
from tests.inside import secured
from tests.raising import raises

BOUND = 0.55


@cache
def solved(labels=2, seed=0):
    federation = make_federation(seed, sizes=(300, 200, 250), labels=labels)
    return pffl.solve(federation, pffl.BoundedGroupLoss(5.0), random_state=0)


def fresh(seed, *, sizes=(30, 20, 25), labels=2):
    return make_federation(seed, sizes=sizes, test=5, labels=labels)


def weighing(rows):
    """The same rows, with weights."""
    silos = []
    for silo in rows.silos:
        weights = {s: np.full(len(r), 2.0) for s, r in silo.splits.items()}
        splits = {s: replace(r, weight=weights[s]) for s, r in silo.splits.items()}
        silos.append(replace(silo, splits=splits))
    return replace(rows, silos=tuple(silos))


def counts(found, batch=-1):
    """People of each group in a batch."""
    return dict(zip(found.settings.names, found.batches[batch].count, strict=True))


def logs(found):
    """Logarithms of the e-values after the last batch."""
    return np.log([row["e_value"] for row in found.table])


def losses(solution, rows, cell):
    """Losses of a group, row by row, from probabilities alone."""
    out = []
    for part in (silo.rows(split) for silo in rows.silos for split in rows.splits):
        p = solution.predictor.predict_proba(part.X)
        own = -np.log(p[np.arange(len(part)), part.y.astype(int)])
        out.append(own[part.group == rows.schema.groups.index(cell)])
    return np.concatenate(out)


@pytest.mark.parametrize("labels", [2, 3])
def test_batches_come_to_the_formula(labels):
    """By row and plain arithmetic."""
    solution, found = solved(labels), None
    batches = [fresh(k, sizes=(12, 9, 8), labels=labels) for k in (1, 2, 3)]
    for rows in batches:
        found = pffl.monitor(solution, rows, state=found, bound=BOUND)
    own, M = found.settings, solution.loss_bound
    assert own.confidence == 0.95
    for z, cell in enumerate(own.names):
        each = [losses(solution, rows, cell) for rows in batches]
        shares = [(one / M).tolist() for one in each]
        plain = plain_values(shares, BOUND / M, own.bets[z], own.bet_weights[z])
        mine = [row["e_value"] for row in found.history if row["cell"] == cell]
        np.testing.assert_allclose(mine, plain, rtol=1e-6)
        flat = np.concatenate(each)
        assert found.table[z]["rows"] == len(flat)
        assert found.table[z]["mean_loss"] == pytest.approx(flat.mean())
        assert found.table[z]["bound"] == BOUND


def test_every_engine_gives_the_same_sums():
    """In process, silo by silo, from sites that send bytes, and under masks."""
    rows = fresh(4, sizes=(60, 70, 80))
    engines = [rows, replace(rows, silos=(_joined(rows),)), Local(rows)]
    engines += [Reference(rows), remote(rows), secured(rows, floor=1)]
    found = [pffl.monitor(solved(), engine, bound=BOUND) for engine in engines]
    for one in found[1:]:
        assert counts(one) == counts(found[0])
        np.testing.assert_allclose(logs(one), logs(found[0]), rtol=1e-5, atol=1e-7)


def _joined(rows):
    splits = {s: Rows.joined([k.rows(s) for k in rows.silos]) for s in rows.splits}
    return Silo("all", 0, splits)


def test_what_a_state_holds_goes_on_and_binds(tmp_path):
    solution, state = solved(), tmp_path / "deep" / "state.json"
    first = pffl.monitor(solution, fresh(1), state=state, bound=BOUND, confidence=0.9)
    second = pffl.monitor(solution, fresh(2), state=state)
    assert (first.settings.confidence, second.settings.confidence) == (0.9, 0.9)
    assert [len(first.batches), len(second.batches)] == [1, 2]
    assert pffl.monitor(solution, fresh(2), state=first).table == second.table
    again = pffl.monitor(solution, fresh(2), state=state, bound=BOUND, confidence=0.9)
    assert (len(again.batches), again.digest) == (2, second.digest)
    assert "has the rows of batch 2" in again.notes[-1]
    # Of rows that are elsewhere, sums tell that they came before.
    far = pffl.monitor(solution, remote(fresh(1)), bound=BOUND)
    assert len(pffl.monitor(solution, remote(fresh(1)), state=far).batches) == 1
    for other in ({"confidence": 0.95}, {"bound": 0.6}, {"bound": {"f": BOUND}}):
        with raises(UsageError, "options-changed"):
            pffl.monitor(solution, fresh(3), state=state, **other)
    with raises(ArtefactError, "other-model"):
        pffl.monitor(solved(seed=1), fresh(3), state=state)
    assert len(pffl.monitor(solution, fresh(3), state=state).batches) == 3


def test_bounds_and_cells():
    solution, rows = solved(), fresh(1)
    own = pffl.monitor(solution, rows)  # the run's: 5.0, above any loss of M
    assert list(own.settings.bounds.values()) == [5.0, 5.0]
    assert all(row["e_value"] <= 1 for row in own.table)
    one = pffl.monitor(solution, rows, bound={"f": 0.4})
    assert (one.settings.names, one.settings.unwatched) == (["f"], ["m"])
    assert one.settings.threshold == 20


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"bound": {"x": 0.4}}, "unknown-cell"),
        ({"bound": -0.1}, "wrong-value"),
        ({"bound": math.nan}, "wrong-value"),
        ({"bound": "auto"}, "needs-bound"),
        ({"bound": {"f": "auto"}}, "needs-bound"),
        *(({"confidence": c}, "wrong-value") for c in (0.0, 1.0, -1.0, math.nan)),
        ({"splits": ["later"]}, "unknown-split"),
        ({"id": "who"}, "options-conflict"),
    ],
)
def test_what_cannot_be_asked_is_refused(asked, code):
    with raises(UsageError, code):
        pffl.monitor(solved(), fresh(1), **asked)


@pytest.mark.parametrize("constraint", [None, pffl.MinMax(), pffl.PerSilo(0.9), ...])
def test_what_bounds_no_group_is_watched_once_a_bound_is_given(constraint):
    """Nor is a weighted mean watched: people count equally."""
    federation, rows = make_federation(0, sizes=(80, 80, 80)), fresh(1)
    if constraint is ...:
        federation, constraint = weighing(federation), pffl.BoundedGroupLoss(0.9)
    solution = pffl.solve(federation, constraint, random_state=0)
    with raises(UsageError, "needs-bound"):
        pffl.monitor(solution, rows)
    assert pffl.monitor(solution, rows, bound=0.5).settings.names == ["f", "m"]


def test_a_model_is_known_by_its_run(tmp_path):
    constraint, rows = pffl.ConditionalBoundedGroupLoss(0.9), fresh(1)
    solution = pffl.solve(make_federation(0), constraint, random_state=0)
    known, folder = pffl.monitor(solution, rows), runs.save(solution, tmp_path / "run")
    for model in (folder, runs.read_run(folder), folder / "model.safetensors"):
        assert pffl.monitor(model, rows).settings == known.settings
    alone = solution.predictor.save(tmp_path / "alone.safetensors")
    with raises(UsageError, "needs-bound"):
        pffl.monitor(alone, rows)
    found = pffl.monitor(alone, rows, bound=0.6)
    assert found.settings.names == ["f", "m"]
    assert pffl.monitor(pffl.load(alone), rows, bound=0.6).digest == found.digest
    with raises(UsageError, "not-a-model"):
        pffl.monitor(3, rows)


def test_rows_of_training_are_refused():
    federation = make_federation(0)
    solution = pffl.solve(federation, pffl.BoundedGroupLoss(0.9), random_state=0)
    with raises(DataError, "training-rows"):
        pffl.monitor(solution, federation)
    with raises(DataError, "training-rows"):
        pffl.monitor(solution, federation, splits=["train"])
    # Whatever they are called, and in whatever silos and splits.
    for splits in (("train",), ("train", "test")):
        parts = {s: _joined(federation).rows(s) for s in splits}
        held = replace(federation, silos=(Silo("x", 0, parts),), name="new")
        with raises(DataError, "training-rows"):
            pffl.monitor(solution, held)
    assert pffl.monitor(solution, federation, splits=["test"]).rows == 45
    calibrated = federation.with_calibration(0.3, random_state=0)
    path = pffl.solve(
        calibrated, pffl.BoundedGroupLoss(5.0), certify=True, random_state=0
    )
    for splits in (("train", "calibration"), ("train", "calibration", "test")):
        rows = Rows.joined([_joined(calibrated).rows(s) for s in splits])
        other = replace(calibrated, silos=(Silo("x", 0, {"train": rows}),), name="new")
        with raises(DataError, "training-rows"):
            pffl.monitor(path, other)


def test_rows_of_other_kinds_are_refused():
    solution = solved()
    other = make_federation(1, schema=make_schema(features=4))
    with raises(DataError, "other-schema"):
        pffl.monitor(solution, other)
    with raises(DataError, "weights-refused"):
        pffl.monitor(solution, weighing(fresh(1)))


# Tables


def people(n, seed, wrong=0.0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n).round(3),
            "job": rng.choice(["a", "b", "c"], n),
            "sex": rng.choice(["f", "m"], n),
            "who": [f"{seed}-{i}" for i in range(n)],
        }
    )
    right = frame.age - 40 + rng.logistic(size=n) * 4 > 0
    turned = (rng.random(n) < wrong) & (frame.sex == "f")
    frame["y"] = np.where(right ^ turned, "yes", "no")
    return frame


@cache
def of_people():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        federation = Federation.from_table(
            people(900, 0), label="y", group="sex", drop=["who"], id="who"
        )
    return pffl.solve(federation, pffl.BoundedGroupLoss(0.55), random_state=0)


def test_a_batch_may_have_one_label_and_people_with_several_rows():
    solution, table = of_people(), people(60, 3)
    alone = table[table["y"] == "no"]
    assert pffl.monitor(solution, alone, id="who").rows == len(alone)
    twice = pd.concat([table, table.iloc[:20]])
    once = pffl.monitor(solution, table, id="who")
    same = pffl.monitor(solution, twice, id="who")
    assert (counts(same), same.rows) == (counts(once), 80)
    np.testing.assert_allclose(logs(same), logs(once), rtol=1e-9)
    assert sum(counts(pffl.monitor(solution, twice)).values()) == 80


def test_rows_that_were_counted_before_are_not_counted_with_new_ones():
    solution, table = of_people(), people(40, 3)
    first = pffl.monitor(solution, table)
    grown = pd.concat([table, people(40, 4)])
    with raises(DataError, "repeated-rows", "1"):
        pffl.monitor(solution, grown, state=first)
    few = pffl.monitor(solution, table.iloc[:5])  # too few to tell
    assert len(pffl.monitor(solution, table, state=few).batches) == 2


@pytest.mark.parametrize(
    ("change", "asked", "code"),
    [
        (lambda f: f.drop(columns="y"), {}, "missing-column"),
        (lambda f: f.assign(sex="x"), {}, "unknown-category"),
        (lambda f: f.assign(y=None), {}, "missing-values"),
        (lambda f: f.assign(job="zz"), {}, "unknown-category"),
        (lambda f: f, {"id": "whom"}, "missing-column"),
        (lambda f: f.iloc[:0], {}, "no-rows"),
    ],
)
def test_tables_that_cannot_be_read_are_refused(change, asked, code):
    with raises(DataError, code):
        pffl.monitor(of_people(), change(people(60, 3)), **asked)
