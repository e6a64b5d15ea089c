"""Models from elsewhere: the same losses as scikit-learn's own, per group."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.preprocessing import StandardScaler

import pffl
from pffl import runs
from pffl.data import Federation
from pffl.engines import Reference
from pffl.errors import ArtefactError, DataError, UsageError
from pffl.files import json_text
from pffl.foreign import (
    Audited,
    Probabilities,
    audit,
    read_coefficients,
    with_probabilities,
)
from pffl.prepare import Options
from pffl.queries import Census, Evaluate
from tests.inside import Evidence, Missing
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


def write(path, model):
    plain = {
        "features": X,
        "coef": model.coef_,
        "intercept": model.intercept_,
        "classes": np.asarray(model.classes_, dtype=str),
    }
    if path.suffix == ".npz":
        np.savez(path, **plain)
    elif path.suffix == ".json":
        lists = {key: np.asarray(value).tolist() for key, value in plain.items()}
        path.write_text(json.dumps(lists))
    else:
        names = ["coef"] if len(model.coef_) == 1 else list(model.classes_)
        table = pd.DataFrame(model.coef_.T, columns=names)
        table.loc[len(table)] = model.intercept_
        table.insert(0, "feature", [*X, "(intercept)"])
        table.to_csv(path, index=False)
    return path


def not_verified(found, rows, folder):
    """Save an audit with its rows; return what `verify` does not agree with."""
    with runs.lock(folder / "audit") as place:
        place.save_audit(found, "")
    rows.export(folder / "rows.csv")
    checks = pffl.verify(folder / "audit", folder / "rows.csv")
    assert any(check.what.startswith("sums, seen, cells") for check in checks)
    return [str(check) for check in checks if not check.agrees]


def opened(path, rows):
    model, w, notes = read_coefficients(path).bind(rows.schema)
    return Audited(model, w, notes=notes)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["m.json", "m.npz", "m.csv"])
def test_coefficients_give_scikit_learns_losses(tmp_path, name, classes):
    rows, model = federation(classes), fitted(classes)
    audited = opened(write(tmp_path / name, model), rows)
    found = audit(audited, rows, pffl.BoundedGroupLoss(1.5))
    certificate = found.certificate
    assert group_losses(certificate) == pytest.approx(expected(model, classes))
    assert certificate.verdicts["test"]["verdict"] == "within"
    assert certificate.holds("empirical")
    assert not_verified(found, rows, tmp_path) == []


def test_a_scaler_and_reversed_classes(tmp_path):
    rows, frame = federation(), people()
    scaler = StandardScaler().fit(frame[X])
    model = LogisticRegression().fit(scaler.transform(frame[X]), frame.y == "no")
    plain = {name: getattr(model, name).tolist() for name in ("coef_", "intercept_")}
    plain |= {name: getattr(scaler, name).tolist() for name in ("mean_", "scale_")}
    plain |= {"feature_names_in_": X, "classes_": ["yes", "no"]}
    path = tmp_path / "m.json"
    path.write_text(json.dumps(plain))
    found = group_losses(audit(opened(path, rows), rows).certificate)
    for sex, part in frame.groupby("sex"):
        probability = model.predict_proba(scaler.transform(part[X]))[:, 1]
        true = log_loss(part.y == "no", probability)
        assert found[str(sex)] == pytest.approx(true)


def test_least_squares(tmp_path):
    frame = people()
    columns = {**TABLE, "label": "amount", "drop": ("pid", "y")}
    rows = Federation.from_table(frame, **columns, classification=False)
    model = LinearRegression().fit(frame[X], frame.amount)
    path = tmp_path / "m.json"
    plain = {"features": X, "coef": model.coef_.tolist(), "intercept": model.intercept_}
    path.write_text(json.dumps(plain))
    own = opened(path, rows)
    ends = (float(frame.amount.min()) - 1, float(frame.amount.max()) + 1)
    known = replace(own, model=replace(own.model, target_range=ends))
    found = audit(known, rows, options=Options(confidence=0.9))
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
    bare = audit(own, rows).certificate
    assert "needs a range" in bare.of_kind("holdout")[0].text
    narrow = replace(own, model=replace(own.model, target_range=(-0.1, 0.1)))
    with raises(DataError, "outside-range"):
        audit(narrow, rows)


def joined(folder, frame, table, **options):
    """Predictions in a file beside the people in another."""
    data, predictions = folder / "people.csv", folder / "p.csv"
    frame.to_csv(data, index=False)
    pd.DataFrame(table).to_csv(predictions, index=False)
    rows = with_probabilities(data, predictions, TABLE, **options)
    blank = Probabilities()
    return Audited(blank.bind(rows.schema, blank.inputs), np.zeros(0)), rows


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("id", [None, "pid"])
def test_probabilities_by_row_or_by_id(tmp_path, classes, id):
    frame, model = people(classes), fitted(classes)
    table = pd.DataFrame(model.predict_proba(frame[X]), columns=model.classes_)
    if id:
        table = table.assign(pid=frame.pid).sample(frac=1, random_state=0)
    audited, rows = joined(tmp_path, frame, table, id=id)
    found = audit(audited, rows, pffl.BoundedGroupLoss(2.0))
    assert group_losses(found.certificate) == pytest.approx(expected(model, classes))
    assert not_verified(found, rows, tmp_path) == []


def test_probabilities_cannot_be_trained():
    model, one = Probabilities(), np.ones(1)
    with raises(UsageError, "not-available"):
        model.losses_and_gradient(np.zeros(0), np.ones((1, 1)), one, one)
    with raises(UsageError, "not-available"):
        model.predict_values(np.zeros(0), np.ones((1, 1)))


def test_certain_and_wrong_probabilities_stay_finite(tmp_path):
    certain = {"probability": (people().y == "no").astype(float)}
    certificate = audit(*joined(tmp_path, people(), certain)).certificate
    assert group_losses(certificate)["f"] == pytest.approx(-np.log(5e-324))
    assert "NaN" not in json.dumps(certificate.as_dict(), allow_nan=False)


HALF = [0.5] * 400


@pytest.mark.parametrize(
    ("table", "options", "code", "words"),
    [
        ({"p": HALF[1:]}, {}, "wrong-length", "399"),
        ({"p": [1.5] * 400}, {}, "bad-probabilities", "400"),
        ({"p": ["x"] * 400}, {}, "bad-probabilities", "400"),
        ({"a": HALF, "b": HALF}, {}, "missing-column", "'probability'"),
        ({"p": HALF}, {"column": "q"}, "missing-column", "'q'"),
        ({"p": HALF}, {"id": "pid"}, "missing-column", "'pid'"),
        ({"p": HALF[:2], "pid": ["p1", "p1"]}, {"id": "pid"}, "repeated-id", "1"),
        ({"p": [0.5], "pid": ["p1"]}, {"id": "pid"}, "missing-predictions", "399"),
        (
            {"p": HALF, "pid": [f"p{399 - i}" for i in range(400)]},
            {},
            "other-order",
            "pid",
        ),
    ],
)
def test_predictions_that_do_not_fit_are_refused(tmp_path, table, options, code, words):
    with raises(DataError, code, words):
        joined(tmp_path, people(), table, **options)


@pytest.mark.parametrize(
    ("plain", "code"),
    [
        ({"coef": [1, 2]}, "missing-key"),
        ({"features": X, "coef": [1, 2, 3]}, "wrong-shape"),
        ({"features": X, "coef": [1, "x"]}, "not-numbers"),
        ({"features": X, "coef": [1, 2], "scale": [1, 0]}, "bad-scale"),
        ({"features": X, "coef": [1, 2], "slope": 1}, "unknown-key"),
        ({"features": ["a", "a"], "coef": [1, 2]}, "repeated-name"),
        ([1, 2], "not-coefficients"),
    ],
)
def test_coefficients_that_are_none_are_refused(tmp_path, plain, code):
    path = tmp_path / "m.json"
    path.write_text(json.dumps(plain))
    with raises(ArtefactError, code, "m.json"):
        read_coefficients(path)


@pytest.mark.parametrize(
    ("plain", "code", "said"),
    [
        ({"features": ["age", "shoe"], "coef": [1, 2]}, "other-inputs", "shoe"),
        (
            {"features": ["age"], "coef": [1], "classes": ["a", "b"]},
            "other-labels",
            "a",
        ),
        ({"features": ["age"], "coef": [[1], [2], [3]]}, "wrong-shape", "3"),
    ],
)
def test_coefficients_of_other_data_are_refused(tmp_path, plain, code, said):
    path = tmp_path / "m.json"
    path.write_text(json.dumps(plain))
    with raises(DataError, code, said):
        read_coefficients(path).bind(federation().schema)
    path.write_text(json.dumps({"features": ["age"], "coef": [1]}))
    notes = read_coefficients(path).bind(federation().schema)[2]
    assert any("income" in note for note in notes)


def test_no_code_is_loaded_from_a_file(tmp_path):
    names = np.array(X, dtype=object)  # NumPy would need to unpack objects
    path = tmp_path / "m.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez(path, features=names, coef=np.ones(2))
    with raises(ArtefactError, "not-coefficients"):
        read_coefficients(path)
    (tmp_path / "x.npz").write_bytes(b"\x80\x04nonsense")
    with raises(ArtefactError, "not-coefficients"):
        read_coefficients(tmp_path / "x.npz")


class Counting(Reference):
    """Remembers what was asked."""

    asked: list[type]

    def ask(self, query):
        self.asked = [*getattr(self, "asked", []), type(query)]
        return super().ask(query)


def test_an_audit_only_asks_for_evaluations_and_proves_nothing(tmp_path):
    rows = federation()
    engine = Counting(rows)
    audited = opened(write(tmp_path / "m.json", fitted()), rows)
    missed = audit(audited, engine, pffl.BoundedGroupLoss(0.3))
    assert set(engine.asked) == {Census, Evaluate}
    assert missed.certificate.verdicts["test"]["verdict"] == "exceeded"
    assert not missed.certificate.of_kind("gap")
    e = missed.evidence
    parts = (e.training, e.before, e.proofs.gap, e.proofs.least, e.proofs.excess)
    assert all(isinstance(part, Missing) for part in parts)
    assert Evidence.from_dict(json.loads(json_text(e.as_dict()))) == e
    cells = pffl.ConditionalBoundedGroupLoss(0.0)
    reported = audit(audited, rows, cells, promise=False).certificate
    assert reported.verdicts["test"]["verdict"] == "no bounds"
    assert len(group_losses(reported)) == 4
    assert reported.of_kind("holdout")[0].holds is None


def test_own_training_rows_are_not_held_out(tmp_path):
    rows = federation()
    solution = pffl.solve(rows, None, seed=0)
    audited = Audited.of(solution.predictor)
    kept = audit(audited, rows)
    assert kept.certificate.of_kind("holdout")[0].available
    assert kept.evidence.seen.splits == ["test"]
    everything = audit(audited, rows, splits=("train", "test"))
    assert not everything.certificate.of_kind("holdout")[0].available
    for found in (kept, everything):
        folder = tmp_path / str(len(found.evidence.seen.splits))
        folder.mkdir()
        assert not_verified(found, rows, folder) == []
    with raises(UsageError, "unknown-split", "future"):
        audit(audited, rows, splits=("future",))
