"""Models from elsewhere: the same losses as scikit-learn's own, per group."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import pffl
from pffl.data import Federation
from pffl.engines import Reference
from pffl.errors import DataError, UsageError
from pffl.files import json_text
from pffl.prepare import Options
from pffl.queries import Census, Evaluate
from tests.inside import (
    Evidence,
    Missing,
    Probabilities,
    join_probabilities,
    read_coefficients,
)
from tests.raising import raises

X = ["age", "income"]
TABLE = {"label": "y", "group": "sex", "silo": "site", "drop": ("pid", "amount")}


@cache
def people(classes=2):
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n),
            "income": rng.normal(3, 1, n),
            "sex": rng.choice(["f", "m"], n, p=[0.3, 0.7]),
            "site": rng.choice(["A", "B", "C"], n),
            "pid": [f"p{i}" for i in range(n)],
        }
    )
    score = 0.08 * (frame.age - 40) + frame.income - 3 + 0.5 * (frame.sex == "m")
    noisy = score + rng.logistic(size=n)
    names = np.array(["no", "yes"] if classes == 2 else ["low", "mid", "top"])
    cut = [0.0] if classes == 2 else [-0.7, 0.7]
    frame["y"] = names[np.digitize(noisy, cut)]
    frame["amount"] = noisy
    return frame


@cache
def federation(classes=2):
    return Federation.from_table(people(classes), **TABLE)


@cache
def fitted(classes=2):
    frame = people(classes)
    return LogisticRegression(C=10.0).fit(frame[X], frame.y)


def group_losses(certificate):
    return {row["cell"]: row["loss"] for row in certificate.statements[0].per_cell}


def expected(model, classes=2):
    return {
        str(sex): log_loss(part.y, model.predict_proba(part[X]), labels=model.classes_)
        for sex, part in people(classes).groupby("sex")
    }


def coefficients(model):
    """A table of coefficients: of two classes, those of the second."""
    names = model.classes_ if len(model.coef_) > 1 else ["coef"]
    table = pd.DataFrame(model.coef_.T, columns=names)
    table.loc[len(table), names] = model.intercept_
    table.insert(0, "feature", [*X, "(intercept)"])
    return table


def not_verified(found, rows, folder):
    """Save an audit with its rows; return what `verify` does not agree with."""
    found.save(folder / "audit")
    rows.export(folder / "rows.npz")
    checks = pffl.verify(folder / "audit", folder / "rows.npz")
    assert any(check.what.startswith("sums, seen, cells") for check in checks)
    return [str(check) for check in checks if not check.agrees]


@pytest.mark.parametrize("classes", [2, 3])
def test_coefficients_give_scikit_learns_losses(tmp_path, classes):
    rows, model = federation(classes), fitted(classes)
    audited = read_coefficients(coefficients(model), rows)
    found = pffl.audit(audited, rows, pffl.BoundedGroupLoss(1.5))
    certificate = found.certificate
    assert group_losses(certificate) == pytest.approx(expected(model, classes))
    assert certificate.verdicts["test"]["verdict"] == "within"
    assert certificate.holds("empirical")
    assert not_verified(found, rows, tmp_path) == []


def within(own, ends):
    """The model with a declared range of its target."""
    model = replace(own.predictor.model, target_range=ends)
    return replace(own, predictor=replace(own.predictor, model=model))


def test_least_squares(tmp_path):
    frame = people()
    columns = {**TABLE, "label": "amount", "drop": ("pid", "y")}
    rows = Federation.from_table(frame, **columns, classification=False)
    model = LinearRegression().fit(frame[X], frame.amount)
    plain = {"feature": [*X, "(intercept)"], "coef": [*model.coef_, model.intercept_]}
    own = read_coefficients(pd.DataFrame(plain), rows)
    ends = (float(frame.amount.min()) - 1, float(frame.amount.max()) + 1)
    known = within(own, ends)
    found = pffl.audit(known, rows, options=Options(confidence=0.9))
    certificate = found.certificate
    assert not_verified(found, rows, tmp_path) == []
    for sex, part in frame.groupby("sex"):
        true = mean_squared_error(part.amount, model.predict(part[X]))
        assert group_losses(certificate)[str(sex)] == pytest.approx(true)
    statement = certificate.of_kind("holdout")[0]
    assert statement.available
    assert statement.figures["loss_bound"] == (ends[1] - ends[0]) ** 2
    assert not certificate.of_kind("holdout_error")
    # Without a range there is no bound of a loss, and predictions must keep to it.
    bare = pffl.audit(own, rows).certificate
    assert "needs a range" in bare.of_kind("holdout")[0].text
    with raises(DataError, "outside-range"):
        pffl.audit(within(own, (-0.1, 0.1)), rows)


def joined(folder, frame, table, **options):
    """Predictions in a file beside the people in another."""
    data, predictions = folder / "people.csv", folder / "p.csv"
    frame.to_csv(data, index=False)
    pd.DataFrame(table).to_csv(predictions, index=False)
    return join_probabilities(data, pd.read_csv(predictions), {**TABLE, **options})


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("id", [None, "pid"])
def test_probabilities_by_row_or_by_id(tmp_path, classes, id):
    frame, model = people(classes), fitted(classes)
    table = pd.DataFrame(model.predict_proba(frame[X]), columns=model.classes_)
    if id:
        table = table.assign(pid=frame.pid).sample(frac=1, random_state=0)
    audited, rows = joined(tmp_path, frame, table, id=id)
    found = pffl.audit(audited, rows, pffl.BoundedGroupLoss(2.0))
    assert group_losses(found.certificate) == pytest.approx(expected(model, classes))
    assert not_verified(found, rows, tmp_path) == []


def test_probabilities_on_a_threshold_are_counted_alike(tmp_path):
    """Rounded ones lie exactly on the cuts that the page shows."""
    frame, model = people(), fitted()
    p = np.round(model.predict_proba(frame[X])[:, 1], 2)
    audited, rows = joined(tmp_path, frame, {"probability": p})
    found = pffl.audit(audited, rows, pffl.BoundedGroupLoss(2.0))
    assert not_verified(found, rows, tmp_path) == []


def test_inputs_that_are_missing_and_the_column_that_predict_writes(tmp_path):
    frame, model = people().copy(), fitted()
    p = model.predict_proba(frame[X])[:, 1]
    frame.loc[3, X[0]] = np.nan
    no, yes = model.classes_
    table = {f"probability_{no}": 1 - p, f"probability_{yes}": p}
    found = pffl.audit(*joined(tmp_path, frame, table))
    assert group_losses(found.certificate) == pytest.approx(expected(model, 2))


def test_probabilities_cannot_be_trained():
    one = np.ones(1)
    with raises(UsageError, "not-available"):
        Probabilities().losses_and_gradient(np.zeros(0), np.ones((1, 1)), one, one)


def test_certain_and_wrong_probabilities_stay_finite(tmp_path):
    certain = {"probability": (people().y == "no").astype(float)}
    certificate = pffl.audit(*joined(tmp_path, people(), certain)).certificate
    assert group_losses(certificate)["f"] == pytest.approx(-np.log(5e-324))
    assert "NaN" not in json.dumps(certificate.as_dict(), allow_nan=False)


HALF = [0.5] * 400


@pytest.mark.parametrize(
    ("table", "options", "code", "words"),
    [
        ({"p": HALF[1:]}, {}, "wrong-length", "399"),
        ({"probability": [1.5] * 400}, {}, "bad-probabilities", "400"),
        ({"probability": ["x"] * 400}, {}, "bad-probabilities", "400"),
        ({"a": HALF, "b": HALF}, {}, "missing-column", "'probability'"),
        ({"p": HALF[:2], "pid": ["p1", "p1"]}, {"id": "pid"}, "repeated-id", "1"),
        ({"probability": [0.5], "pid": ["p1"]}, {"id": "pid"}, "bad-probabilities", ""),
        ({"p": HALF, "pid": [f"p{-i}" for i in range(400)]}, {}, "other-order", "pid"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(tmp_path, table, options, code, words):
    with raises(DataError, code, words):
        joined(tmp_path, people(), table, **options)


@pytest.mark.parametrize(
    ("plain", "code", "said"),
    [
        ({"feature": ["age", "shoe"], "coef": [1, 2]}, "other-inputs", "shoe"),
        ({"feature": ["age", "age"], "coef": [1, 2]}, "repeated-name", "twice"),
        ({"feature": X, "coef": [1, "x"]}, "not-numbers", "finite"),
        ({"feature": X, "slope": [1, 2]}, "other-labels", "slope"),
    ],
)
def test_coefficients_that_do_not_fit_are_refused(plain, code, said):
    with raises(DataError, code, said):
        read_coefficients(pd.DataFrame(plain), federation())
    with raises(DataError, "other-labels", "m.csv"):
        read_coefficients(pd.DataFrame(plain), federation(3), "m.csv")
    age = pd.DataFrame({"feature": ["age"], "coef": [1]})
    notes = read_coefficients(age, federation()).notes
    assert any("income" in note for note in notes)


class Counting(Reference):
    """Remembers what was asked."""

    asked: list[type]

    def ask(self, query):
        self.asked = [*getattr(self, "asked", []), type(query)]
        return super().ask(query)


def test_an_audit_only_asks_for_evaluations_and_proves_nothing():
    rows = federation()
    engine = Counting(rows)
    audited = read_coefficients(coefficients(fitted()), rows)
    missed = pffl.audit(audited, engine, pffl.BoundedGroupLoss(0.3))
    assert set(engine.asked) == {Census, Evaluate}
    assert missed.certificate.verdicts["test"]["verdict"] == "exceeded"
    assert not missed.certificate.of_kind("gap")
    e = missed.evidence
    parts = (e.training, e.before, e.proofs.gap, e.proofs.least)
    assert all(isinstance(part, Missing) for part in parts)
    assert Evidence.from_dict(json.loads(json_text(e.as_dict()))) == e
    cells = pffl.ConditionalBoundedGroupLoss(0.0)
    reported = pffl.audit(audited, rows, cells, promise=False).certificate
    assert reported.verdicts["test"]["verdict"] == "no bounds"
    assert len(group_losses(reported)) == 4
    assert reported.of_kind("holdout")[0].holds is None


def test_own_training_rows_are_not_held_out(tmp_path):
    rows = federation()
    solution = pffl.solve(rows, None, random_state=0)
    audited = solution.predictor
    kept = pffl.audit(audited, rows)
    assert kept.certificate.of_kind("holdout")[0].available
    assert kept.evidence.seen.splits == ["test"]
    everything = pffl.audit(audited, rows, splits=("train", "test"))
    assert not everything.certificate.of_kind("holdout")[0].available
    for found in (kept, everything):
        folder = tmp_path / str(len(found.evidence.seen.splits))
        folder.mkdir()
        assert not_verified(found, rows, folder) == []
    with raises(UsageError, "unknown-split", "future"):
        pffl.audit(audited, rows, splits=("future",))


# In Python: any estimator, or its probabilities, beside the rows


def rows(classes=2):
    frame = people(classes)
    return {"X": frame[X], "y": frame.y, "sensitive_features": frame.sex}


class Backwards:
    """Has its classes in another order."""

    def __init__(self, model):
        self.model, self.classes_ = model, model.classes_[::-1]

    def predict_proba(self, X):
        return self.model.predict_proba(X)[:, ::-1]


@pytest.mark.parametrize("classes", [2, 3])
def test_any_estimator_has_scikit_learns_losses(classes, tmp_path):
    given = rows(classes)
    tree = DecisionTreeClassifier(min_samples_leaf=40, random_state=0)
    model = tree.fit(given["X"], given["y"])
    found = pffl.audit(model, None, pffl.BoundedGroupLoss(1.5), **given, name="trees")
    assert group_losses(found.certificate) == pytest.approx(expected(model, classes))
    assert found.evidence.data.name == "trees"
    again = pffl.audit(Backwards(model), **given)
    assert group_losses(again.certificate) == pytest.approx(expected(model, classes))
    without, p = {**given}, model.predict_proba(given["X"])
    del without["X"]
    named = pffl.audit(pd.DataFrame(p, columns=model.classes_), **without)
    assert group_losses(named.certificate) == group_losses(found.certificate)
    plain = pffl.audit(p, **without)
    assert group_losses(plain.certificate) == group_losses(found.certificate)
    assert any("in the order" in note for note in plain.evidence.notes)
    if classes == 2:
        score = pffl.audit(p[:, 1].tolist(), **without)
        assert group_losses(score.certificate) == group_losses(found.certificate)
        assert any("'yes'" in note for note in score.evidence.notes)
    found.save(tmp_path / "a")
    checks = pffl.verify(tmp_path / "a")
    assert [str(check) for check in checks if not check.agrees] == []
    assert "trees" in pffl.report(found)
    assert "trees" in found.card()


def test_integer_labels_and_weights():
    given = rows()
    y = (given["y"] == "yes").astype(int)
    model = LogisticRegression().fit(given["X"], y)
    weight = np.where(np.arange(len(y)) % 2, 2.0, 1.0)
    found = pffl.audit(model, **{**given, "y": y}, sample_weight=weight)
    losses = -np.log(model.predict_proba(given["X"])[np.arange(len(y)), y])
    mine = (given["sensitive_features"] == "f").to_numpy()
    mean = np.average(losses[mine], weights=weight[mine])
    assert group_losses(found.certificate)["f"] == pytest.approx(mean)


def test_numbers_by_a_regressor():
    frame = people()
    model = LinearRegression().fit(frame[X], frame.amount)
    found = pffl.audit(model, X=frame[X], y=frame.amount, sensitive_features=frame.sex)
    errors = {
        str(sex): mean_squared_error(part.amount, model.predict(part[X]))
        for sex, part in frame.groupby("sex")
    }
    assert group_losses(found.certificate) == pytest.approx(errors)


def test_what_does_not_go_is_said():
    given = rows()
    model = LogisticRegression().fit(given["X"], given["y"])
    half = {**given, "X": given["X"][:9]}
    without = {key: given[key] for key in ("y", "sensitive_features")}
    some = given["y"] == "yes"
    cases = [
        (model, {"X": given["X"]}, UsageError, "needs-rows"),
        (model, without, UsageError, "needs-rows"),
        (object(), given, UsageError, "needs-rows"),
        (model, half, DataError, "wrong-shape"),
        (LinearSVC().fit(given["X"], given["y"]), given, DataError, "no-predictions"),
        (model, {k: p[some] for k, p in given.items()}, DataError, "other-labels"),
        (np.full(400, 1.5), without, DataError, "bad-probabilities"),
        (np.full((400, 2), 0.6), without, DataError, "bad-probabilities"),
        (np.full((400, 3), 1 / 3), without, DataError, "wrong-shape"),
    ]
    for subject, keywords, error, code in cases:
        with raises(error, code):
            pffl.audit(subject, **keywords)
    kept = people()[[*X, "sex", "y"]]
    table = pffl.Federation.from_table(kept, label="y", group="sex")
    with raises(UsageError, "needs-rows"):
        pffl.audit(model, table)
