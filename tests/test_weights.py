"""Weighted rows: a row of weight 3 is three rows; the unit of weights is nothing."""

import inspect
from dataclasses import replace

import numpy as np
import pytest

from pffl import BoundedGroupLoss, Federation, Options, PerSilo, solve
from pffl.deploy import Agreement, Limits, Site
from pffl.engines import Local, Reference
from pffl.errors import DataError
from pffl.methods import METHODS, Exact
from pffl.models import (
    HuberRegression,
    Inputs,
    LeastSquares,
    LogisticRegression,
    SoftmaxRegression,
)
from pffl.queries import Census, Evaluate, Expand, Task, Train, Witness
from tests.deploy.sites import alone, remote
from tests.driving import iterate
from tests.helpers import make_problem
from tests.inside import conclude
from tests.inside import prepared_rows as store
from tests.raising import raises

MODELS = {
    "logistic": (LogisticRegression(l2=1e-3), "two", 0.42),
    "softmax": (SoftmaxRegression(l2=1e-3), "three", 0.9),
    "squares": (LeastSquares(l2=1e-3), "number", 1.1),
    "huber": (HuberRegression(l2=1e-3), "number", 0.9),
}


def arrays(target: str = "two", n: int = 160) -> dict[str, np.ndarray]:
    """Rows whose groups overlap, with whole weights from 0 to 3."""
    draw = np.random.default_rng(7)
    X = draw.normal(size=(n, 3)) * [1, 3, 0.2] + [0, 5, 0]
    a, silo = draw.integers(0, 3, n), draw.integers(0, 3, n)
    z = X @ [1, 0.3, -2] - 1.5 + 0.8 * (a == 1) + draw.normal(size=n)
    y = {"two": (z > 0) * 1, "three": np.digitize(z, [-0.5, 0.8]), "number": z}
    weight = draw.integers(0, 4, n).astype(float)
    b = np.arange(n) % 2
    return {"X": X, "y": y[target], "a": a, "b": b, "silo": silo, "s": weight}


def federation(
    rows: dict[str, np.ndarray], weight: np.ndarray | None, *, test: float = 0.0
) -> Federation:
    """Return them in silos, with weights if given."""
    return Federation.from_arrays(
        rows["X"],
        rows["y"],
        sensitive_features={"a": rows["a"], "b": rows["b"]},
        silo=rows["silo"],
        sample_weight=weight,
        classification=rows["y"].dtype.kind != "f",
        test_fraction=test,
    )


def pair(target: str = "two", *, unit: float = 1.0, silos: int = 3) -> list[Federation]:
    """Return weighted rows, and the same with as many copies of each."""
    rows = arrays(target)
    rows["silo"] = rows["silo"] % silos
    copies = np.repeat(np.arange(len(rows["y"])), rows["s"].astype(int))
    copied = {name: values[copies] for name, values in rows.items()}
    return [federation(rows, unit * rows["s"]), federation(copied, None)]


def overlapping(bound: float) -> BoundedGroupLoss:
    return BoundedGroupLoss(bound, by="a") & BoundedGroupLoss(1.1 * bound, by="b")


@pytest.mark.parametrize(
    ("kind", "silos", "weighting", "unit"),
    [
        ("logistic", 1, "silos", 1.0),
        ("logistic", 3, "silos", 1e6),
        ("softmax", 3, "silos", 1.0),
        ("squares", 3, "rows", 1e-3),
        ("huber", 3, "rows", 1.0),
    ],
)
def test_a_row_of_weight_three_is_three_rows(kind, silos, weighting, unit):
    model, target, bound = MODELS[kind]
    weighted, copied = (
        solve(
            one,
            overlapping(bound),
            model=model,
            method=Exact(multiplier_bound=5),
            options=Options(weighting=weighting, smallest_bound=True),
        )
        for one in pair(target, unit=unit, silos=silos)
    )
    e, f = weighted.evidence, copied.evidence
    assert weighted.status == copied.status
    assert weighted.loss_bound == copied.loss_bound
    assert e.proofs.least.upper == pytest.approx(f.proofs.least.upper, rel=1e-7)
    assert e.proofs.least.lower == pytest.approx(f.proofs.least.lower, rel=1e-7)
    np.testing.assert_allclose(weighted.w, copied.w, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(e.multipliers, f.multipliers, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(e.seen.means, f.seen.means, rtol=1e-10)
    assert weighted.gap == pytest.approx(copied.gap, rel=1e-3, abs=1e-12)
    assert weighted.gap < 1e-6
    weight = sum(e.seen.strata["weight"]) / unit
    assert e.seen.rows < f.seen.rows == pytest.approx(weight, rel=1e-14)


@pytest.mark.parametrize("kind", MODELS)
def test_engines_agree_on_weighted_rows_and_equal_copies(kind):
    model, target, _ = MODELS[kind]
    weighted, copied = pair(target)
    schema = weighted.schema
    model = model.bind(schema, _scaling(copied))
    cells = (overlapping(0.5) & PerSilo(0.5)).cells(schema, weighted.silo_names)
    task = Task(model, cells, np.array([0.2, 0.3, 0.5]))
    w = np.linspace(-0.3, 0.5, model.n_parameters)
    lam = np.linspace(0.01, 0.05, len(cells))
    M = 3.0 if schema.labels else np.inf
    sharp = 0.0 if model.n_outputs > 1 else 2.0
    queries = [
        Census(schema),
        Evaluate(task, w, "train", M),
        Expand(task, w, 2),
        Expand(task, w, directions=np.stack([w, -w[::-1]], axis=1), sharpness=sharp),
        Witness(task, w, 0.3, lam, 0.1 * w),
        Train(task, w, 0.7, lam, np.array([0.3])),
        Train(task, w, 0.7, lam, np.array([0.3, 0.2]), proximal=0.1, loss_power=1.0),
        Train(task, w, 0.7, lam, np.array([0.3]), silos=(0, 2)),
    ]
    engines = [Reference(weighted), Local(weighted, threads=1), Reference(copied)]
    for query in queries:
        totals = [engine.ask(query) for engine in engines]
        for name in query.total_type.declared:
            values = [_comparable(getattr(total, name), name) for total in totals]
            if name in ("rows", "counts"):
                assert (values[0] == values[1]).all()
                assert values[0].sum() < values[2].sum()
            elif name != "schema_hash":
                np.testing.assert_allclose(values[1], values[0], 1e-11, 1e-12, name)
                np.testing.assert_allclose(values[2], values[0], 1e-11, 1e-12, name)


def _scaling(federation: Federation):
    X = federation.pooled().X
    return Inputs(X.mean(axis=0), X.std(axis=0))


def _comparable(value, name):
    """Return a field without its counts of rows, which are those of other rows."""
    return value[:, 1:] if name in ("strata", "cells") else np.asarray(value)


def test_without_bounds_it_is_scikit_learns_sample_weight():
    from sklearn.linear_model import LogisticRegression as Theirs

    rows = arrays()
    rows["s"] = np.random.default_rng(1).exponential(size=len(rows["y"]))
    rows["silo"][:] = 0
    data = federation(rows, rows["s"])
    ours = solve(data, None, model=LogisticRegression(l2=0.1), method=Exact())
    mean = np.average(rows["X"], axis=0, weights=rows["s"])
    scale = np.sqrt(np.average((rows["X"] - mean) ** 2, axis=0, weights=rows["s"]))
    X = np.column_stack([(rows["X"] - mean) / scale, np.ones(len(rows["y"]))])
    share = rows["s"] / rows["s"].sum()
    theirs = Theirs(C=10.0, fit_intercept=False, tol=1e-12, max_iter=1000)
    theirs.fit(X, rows["y"], sample_weight=share)
    np.testing.assert_allclose(ours.w, theirs.coef_[0], atol=1e-6)


def test_a_row_of_weight_zero_is_not_there():
    rows = arrays()
    data = federation(rows, rows["s"])
    assert data.rows() == np.count_nonzero(rows["s"])
    kept = {name: values[rows["s"] > 0] for name, values in rows.items()}
    assert data.fingerprint == federation(kept, kept["s"]).fingerprint
    assert data.fingerprint != federation(kept, 2 * kept["s"]).fingerprint


@pytest.mark.parametrize(
    ("change", "code", "figures"),
    [
        (lambda s: place(s, -1.0), "bad-weights", ("1 of 160", "(-1)", "row 4")),
        (lambda s: place(s, np.nan), "bad-weights", ("1 of 160", "(nan)", "row 4")),
        (lambda s: place(s, np.inf), "bad-weights", ("1 of 160", "(inf)", "row 4")),
        (lambda s: place(s, 1e80), "bad-weights", ("1e+75",)),
        (lambda s: 0 * s, "bad-weights", ()),
        (lambda s: np.full(len(s), "heavy"), "not-numbers", ()),
        (lambda s: s[1:], "wrong-shape", ()),
    ],
)
def test_wrong_weights_are_refused(change, code, figures):
    rows = arrays()
    with raises(DataError, code, *figures):
        federation(rows, change(rows["s"]))


def place(weights: np.ndarray, value: float) -> np.ndarray:
    weights[3] = value
    return weights


SHORT = {"rounds": 3, "dual_rounds": 2, "rounds_per_dual": 2, "local_steps": 2}
SHORT |= {"stage_one_rounds": 4, "stage_two_rounds": 2, "iterations": 3}


@pytest.mark.parametrize("name", METHODS.own)
def test_every_method_takes_weights_in_any_unit(name):
    kind = METHODS[name]
    known = inspect.signature(kind).parameters
    method = kind(**{key: n for key, n in SHORT.items() if key in known})
    found = []
    for one in (*pair(unit=1e-3), *pair(unit=1e6)[:1]):
        engine = Local(one, threads=1)
        problem = make_problem(engine, BoundedGroupLoss(0.45, by="a"))
        run = iterate(engine, problem, method)
        found.append((run.point.w, run.point.multipliers))
    for w, multipliers in found:
        np.testing.assert_allclose(w, found[1][0], rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(multipliers, found[1][1], rtol=1e-6, atol=1e-7)


def test_sites_weigh_rows_where_the_federation_says_how_much():
    from pffl.errors import FederationError
    from pffl.queries import Policy

    weighted, _ = pair()
    here = solve(weighted, overlapping(0.42), method=Exact(multiplier_bound=5))
    policy = Policy(seconds=5.0, join_seconds=5.0, weight_bound=3.0)
    there = solve(
        remote(weighted, policy=policy),
        overlapping(0.42),
        method=Exact(multiplier_bound=5),
    )
    np.testing.assert_allclose(here.w, there.w, rtol=1e-9)
    assert here.status == there.status
    with raises(FederationError, "sites-missing", "weights"):
        solve(remote(weighted), overlapping(0.42), method=Exact())


def test_a_site_keeps_weights_and_counts_a_heavy_row_as_one(tmp_path):
    weighted, _ = pair()
    silo, schema = weighted.silos[0], weighted.schema
    store.write(tmp_path, silo, schema.hash)
    read = store.read(tmp_path, name=silo.name, schema_hash=schema.hash)
    np.testing.assert_array_equal(read.rows().weight, silo.rows().weight)
    alike = replace(silo.rows(), weight=None)
    heavy = replace(alike, weight=np.where(np.arange(len(alike)) == 0, 1e6, 1.0))
    hidden = [
        Site(
            replace(silo, splits={"train": rows}),
            alone(silo, schema),
            Limits(floor=2),
        ).hidden("train")
        for rows in (alike, heavy)
    ]
    stratum = schema.strata(alike.group, alike.y)[0]
    assert not hidden[0][stratum]
    assert hidden[1][stratum]


def test_rates_are_weighted_and_have_no_interval():
    rows = arrays()
    rows["s"] += 0.5
    data = federation(rows, rows["s"], test=0.3)
    solved = solve(data, BoundedGroupLoss(0.45, by="a"), method=Exact())
    test = data.pooled("test")
    weight = np.concatenate([silo.rows("test").weight for silo in data.silos])
    wrong = solved.predict(test.X).astype(float) != test.y
    mean = np.average(wrong, weights=weight)
    assert solved.as_dict()["test"]["error"] == pytest.approx(mean, abs=1e-12)
    assert solved.as_dict()["test"]["error"] != wrong.mean()
    assert solved.evidence.heldout.rows == len(test.y)
    for a, group in enumerate(conclude(solved.evidence).rates):
        own = test.group == a
        assert group.error.people == own.sum()
        assert group.error.value == pytest.approx(
            np.average(wrong[own], weights=weight[own]), abs=1e-12
        )
        assert group.error.lower is group.error.upper is None


def table(weight: object = None) -> str:
    """Return rows as CSV text, with a column of weights, one of them as given."""
    rows, lines = arrays(n=40), ["x,sex,hired,w"]
    for i in range(40):
        w = rows["s"][i] if weight is None or i != 5 else weight
        lines.append(f"{rows['X'][i, 0]:.3f},{'fm'[i % 2]},{rows['y'][i]},{w}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("weight", "code", "figures"),
    [
        ("-2", "bad-weights", ("(line 7)",)),
        ("inf", "bad-weights", ("(line 7)",)),
        ("heavy", "not-numbers", ("'heavy' (line 7)",)),
        ("", "missing-values", ("1",)),
    ],
)
def test_wrong_weights_of_a_table_are_named_with_their_place(
    tmp_path, weight, code, figures
):
    path = tmp_path / "people.csv"
    path.write_text(table(weight))
    with raises(DataError, code, "'w'", *figures):
        Federation.from_table(path, label="hired", group="sex", weight="w")


def test_a_tables_weights_are_no_input_and_stay_with_it(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(table())
    data = Federation.from_table(path, label="hired", group="sex", weight="w")
    assert data.schema.features == ("x",)
    assert data.weighted
    again = data.encoding.from_dict(data.encoding.as_dict()).rows(path)
    assert again.weight.tolist() == arrays(n=40)["s"].tolist()
    data.export(tmp_path / "rows.npz")
    assert "weight" in np.load(tmp_path / "rows.npz")
    for taken in ("hired", "sex"):
        with raises(DataError, "wrong-column", taken):
            Federation.from_table(path, label="hired", group="sex", weight=taken)


def test_a_site_prepares_weights_as_the_federation_agreed(tmp_path):
    (tmp_path / "rows.csv").write_text(table())
    data = Federation.from_table(
        tmp_path / "rows.csv", label="hired", group="sex", weight="w"
    )
    agreed = Agreement.of(data, ("north",))
    assert "w" in agreed.columns
    agreed = replace(agreed, shares={"test": 0.2})
    silo, _ = store.prepare(tmp_path / "rows.csv", agreed, "north", b"k" * 32)
    weights = np.concatenate([rows.weight for rows in silo.splits.values()])
    expected = arrays(n=40)["s"]
    assert sorted(weights) == sorted(expected[expected > 0])
