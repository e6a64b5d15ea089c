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


def weighing(rows, low, high, seed=0):
    """The same rows, with weights."""
    rng = np.random.default_rng(seed)
    silos = []
    for silo in rows.silos:
        splits = {
            s: replace(r, weight=rng.uniform(low, high, len(r)))
            for s, r in silo.splits.items()
        }
        silos.append(replace(silo, splits=splits))
    return replace(rows, silos=tuple(silos))


def counts(found, batch=-1):
    """People of each group in a batch."""
    return dict(zip(found.settings.names, found.batches[batch].count, strict=True))


def logs(found):
    """Logarithms of the e-values after the last batch."""
    return np.log([row["e_value"] for row in found.table])


def losses(solution, rows, cell):
    """Losses and weights of a group, row by row, from probabilities alone."""
    out = []
    for part in (silo.rows(split) for silo in rows.silos for split in rows.splits):
        p = solution.predictor.predict_proba(part.X)
        own = -np.log(p[np.arange(len(part)), part.y.astype(int)])
        here = part.group == rows.schema.groups.index(cell)
        weight = np.ones(len(part)) if part.weight is None else part.weight
        out.append(np.array([own[here], weight[here]]))
    return np.concatenate(out, axis=1)


@pytest.mark.parametrize("s_max", [None, 4.0])
def test_batches_come_to_the_formula(s_max):
    """By row and plain arithmetic; weights dilute losses, and means are weighted."""
    solution, found, M = solved(), None, solved().loss_bound
    batches = [fresh(k, sizes=(12, 9, 8)) for k in (1, 2, 3)]
    if s_max:
        batches = [weighing(rows, 0.5, 3.5, k) for k, rows in enumerate(batches)]
    asked = {"bound": BOUND} | ({"weight_bound": s_max} if s_max else {})
    for rows in batches:
        found = pffl.monitor(solution, rows, state=found, **asked)
    own, u = found.settings, BOUND / M
    assert own.confidence == 0.95
    for z, cell in enumerate(own.names):
        each = [losses(solution, rows, cell) for rows in batches]
        shares = [(one / M, s / (s_max or 1.0)) for one, s in each]
        x = [(t * one + (1 - t) * u).tolist() for one, t in shares]
        plain = plain_values(x, u, own.bets[z], own.bet_weights[z])
        mine = [row["e_value"] for row in found.history if row["cell"] == cell]
        np.testing.assert_allclose(mine, plain, rtol=1e-6)
        flat, s = np.concatenate(each, axis=1)
        assert found.table[z]["rows"] == len(flat)
        assert found.table[z]["mean_loss"] == pytest.approx(flat @ s / s.sum())
        assert found.table[z]["bound"] == BOUND


@pytest.mark.parametrize("weighted", [False, True])
def test_every_engine_gives_the_same_sums(weighted):
    """In process, silo by silo, from sites that send bytes, and under masks."""
    solution, rows, asked = solved(), fresh(4, sizes=(60, 70, 80)), {"bound": BOUND}
    if weighted:
        rows, asked["weight_bound"] = weighing(rows, 0.5, 3.5), 4.0
    engines = [
        rows,
        replace(rows, silos=(_joined(rows),)),
        Local(rows),
        Reference(rows),
    ]
    if not weighted:
        engines += [remote(rows), secured(rows, floor=1)]
    found = [pffl.monitor(solution, engine, **asked) for engine in engines]
    for one in found[1:]:
        assert counts(one) == counts(found[0])
        np.testing.assert_allclose(logs(one), logs(found[0]), rtol=1e-5, atol=1e-7)


def test_sums_alone_tell_that_a_batch_of_sites_came_twice():
    rows = fresh(4, sizes=(60, 70, 80))
    once = pffl.monitor(solved(), remote(rows), bound=BOUND)
    twice = pffl.monitor(solved(), remote(rows), state=once)
    assert len(twice.batches) == 1


def _joined(rows):
    splits = {s: Rows.joined([k.rows(s) for k in rows.silos]) for s in rows.splits}
    return Silo("all", 0, splits)


def test_what_a_state_holds_goes_on_and_binds(tmp_path):
    solution, state = solved(), tmp_path / "deep" / "state.jsonl"
    first = pffl.monitor(solution, fresh(1), state=state, bound=BOUND, confidence=0.9)
    second = pffl.monitor(solution, fresh(2), state=state)
    assert (first.settings.confidence, second.settings.confidence) == (0.9, 0.9)
    assert [len(first.batches), len(second.batches)] == [1, 2]
    in_memory = pffl.monitor(solution, fresh(2), state=first)
    assert in_memory.table == second.table
    again = pffl.monitor(solution, fresh(2), state=state, bound=BOUND, confidence=0.9)
    assert (len(again.batches), again.digest) == (2, second.digest)
    assert "has the rows of batch 2" in again.notes[-1]
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
        *(({"weight_bound": s}, "wrong-value") for s in (0.0, -1.0, math.inf)),
        ({"splits": ["later"]}, "unknown-split"),
        ({"id": "who"}, "options-conflict"),
    ],
)
def test_what_cannot_be_asked_is_refused(asked, code):
    with raises(UsageError, code):
        pffl.monitor(solved(), fresh(1), **asked)


def test_a_model_without_a_bound_is_refused_until_one_is_given():
    federation, rows = make_federation(0), fresh(1)
    for constraint in (None, pffl.MinMax()):
        solution = pffl.solve(federation, constraint, random_state=0)
        with raises(UsageError, "needs-bound"):
            pffl.monitor(solution, rows)
        found = pffl.monitor(solution, rows, bound=0.5)
        assert found.settings.names == ["f", "m"]


def test_cells_of_silos_wait_for_their_rows():
    federation = make_federation(0, sizes=(80, 80, 80))
    solution = pffl.solve(federation, pffl.PerSilo(0.9), random_state=0)
    rows = fresh(1)
    first = pffl.monitor(solution, replace(rows, silos=rows.silos[:1]))
    assert counts(first) == {"site 0": 35, "site 1": 0, "site 2": 0}
    later = pffl.monitor(solution, fresh(2), state=first)
    assert [row["rows"] for row in later.table] == [70, 25, 30]
    other = replace(rows.silos[0], name="elsewhere")
    with raises(DataError, "other-silos"):
        pffl.monitor(solution, replace(rows, silos=(other,)))
    with raises(UsageError, "no-single-silo"):
        pffl.monitor(solution, secured(rows))


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
    heavy = fresh(1)
    first = heavy.silos[0]
    part = replace(first.rows("train"), weight=np.full(30, 2.0))
    silo = replace(first, splits={**first.splits, "train": part})
    weighted = replace(heavy, silos=(silo, *heavy.silos[1:]))
    with raises(DataError, "needs-weight-bound", "weight_bound=NUMBER"):
        pffl.monitor(solution, weighted)


def test_alike_weights_change_nothing():
    """All weigh s_max: the e-values of rows without weights, and the same mean."""
    alone, rows = solved().predictor, fresh(3)  # nothing is known, so bets are spread
    plain = pffl.monitor(alone, rows, bound=BOUND)
    heavy = weighing(rows, 2.5, 2.5)
    found = pffl.monitor(alone, heavy, bound=BOUND, weight_bound=2.5)
    assert found.settings.bets == plain.settings.bets
    np.testing.assert_allclose(logs(found), logs(plain), rtol=1e-9, atol=1e-12)
    for one, other in zip(found.table, plain.table, strict=True):
        assert one["mean_loss"] == pytest.approx(other["mean_loss"])


def test_a_model_with_weights_brings_its_bound_and_heavier_rows_are_refused(tmp_path):
    federation = weighing(make_federation(0, sizes=(300, 200, 250)), 0.5, 2.0)
    s_max = 3.0
    options = pffl.Options(weight_bound=s_max)
    bound = pffl.BoundedGroupLoss(5.0)
    trained = pffl.solve(federation, bound, options=options, random_state=0)
    state = tmp_path / "monitor.jsonl"
    first = pffl.monitor(trained, weighing(fresh(1), 0.5, 2.0), state=state)
    assert first.settings.weight_bound == s_max
    with raises(DataError, "bad-weights"):
        pffl.monitor(trained, weighing(fresh(2), 0.5, 2 * s_max), state=state)
    with raises(UsageError, "options-changed", "9"):
        pffl.monitor(trained, weighing(fresh(2), 0.5, 2.0), state=state, weight_bound=9)
    second = pffl.monitor(trained, weighing(fresh(2), 0.5, 2.0), state=state)
    assert len(second.batches) == 2
    alone = trained.predictor
    with raises(UsageError, "needs-weight-bound"):
        pffl.monitor(replace_weight(alone), weighing(fresh(1), 0.5, 2.0), bound=BOUND)


def replace_weight(predictor):
    """The predictor of a file alone, made from a table with a column of weights."""
    return replace(
        predictor, preparation=replace(predictor.preparation, weight="weight")
    )


def test_numbers_need_no_range():
    federation, rows = make_federation(0, labels=0), fresh(1, labels=0)
    bound = pffl.BoundedGroupLoss(9.0)
    for ends in (None, (-50.0, 50.0)):
        model = pffl.LeastSquares(target_range=ends)
        solution = pffl.solve(federation, bound, model=model, random_state=0)
        assert pffl.monitor(solution, rows).rows == 90


def test_several_classes():
    solution, rows = solved(labels=3), fresh(5, labels=3)
    for row in pffl.monitor(solution, rows, bound=1.0).table:
        mean = losses(solution, rows, row["cell"])[0].mean()
        assert row["mean_loss"] == pytest.approx(mean)


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


def test_a_batch_may_have_one_label_and_a_column_of_weights():
    solution, table = of_people(), people(60, 3)
    alone = table[table["y"] == "no"]
    found = pffl.monitor(solution, alone, id="who")
    assert found.rows == len(alone)
    weighed = table.assign(s=np.linspace(0.5, 2.0, 60))
    asked = {"id": "who", "weight": "s", "weight_bound": 3.0}
    heavy = pffl.monitor(solution, weighed, **asked)
    assert sum(heavy.batches[0].weight) == pytest.approx(weighed["s"].sum())
    with raises(DataError, "needs-weight-bound"):
        pffl.monitor(solution, weighed, id="who", weight="s")
    with raises(DataError, "missing-column", "t"):
        pffl.monitor(solution, weighed, weight="t", weight_bound=3.0)


def test_people_with_several_rows_count_once():
    solution, table = of_people(), people(60, 3)
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
        (lambda f: f, {"silo": "branch"}, "missing-column"),
        (lambda f: f.iloc[:0], {}, "no-rows"),
    ],
)
def test_tables_that_cannot_be_read_are_refused(change, asked, code):
    with raises(DataError, code):
        pffl.monitor(of_people(), change(people(60, 3)), **asked)


def test_a_file_of_rows_is_named_by_itself(tmp_path):
    table, path = people(60, 3), tmp_path / "week.csv"
    table.to_csv(path, index=False)
    read = pffl.monitor(of_people(), path, id="who")
    assert read.batches[0].name == "week.csv"
    assert counts(read) == counts(pffl.monitor(of_people(), table, id="who"))


def test_an_audit_is_monitored_too():
    table = people(300, 1)
    p = 1 / (1 + np.exp(-(table.age - 40) / 4))
    audit = pffl.audit(
        p,
        y=table.y,
        sensitive_features={"sex": table.sex},
        constraint=pffl.BoundedGroupLoss(0.6),
    )
    rows = Federation.from_arrays(
        p.to_numpy()[:100, None],
        table.y[:100],
        sensitive_features={"sex": table.sex[:100]},
        features=list(audit.predictor.schema.features),
        test_fraction=0.0,
    )
    found = pffl.monitor(audit, replace(rows, schema=audit.predictor.schema))
    assert sum(counts(found).values()) == 100
