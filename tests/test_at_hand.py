"""Audits in Python: any estimator, or its probabilities, beside the rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import pffl
from pffl.errors import DataError, UsageError
from tests.raising import raises
from tests.test_foreign import X as INPUTS
from tests.test_foreign import expected, group_losses, people


def rows(classes=2):
    frame = people(classes)
    return {"X": frame[INPUTS], "y": frame.y, "sensitive_features": frame.sex}


class Backwards(DecisionTreeClassifier):
    """Has its classes in another order."""

    def fit(self, X, y):
        super().fit(X, y)
        self.order = np.argsort(self.classes_)[::-1]
        self.sorted, self.classes_ = self.classes_, self.classes_[self.order]
        return self

    def predict_proba(self, X):
        self.classes_, mine = self.sorted, self.classes_
        found = super().predict_proba(X)[:, self.order]
        self.classes_ = mine
        return found


@pytest.mark.parametrize("classes", [2, 3])
def test_any_estimator_has_scikit_learns_losses(classes, tmp_path):
    given = rows(classes)
    tree = DecisionTreeClassifier(min_samples_leaf=40, random_state=0)
    model = tree.fit(given["X"], given["y"])
    found = pffl.audit(model, None, pffl.BoundedGroupLoss(1.5), **given, name="trees")
    assert group_losses(found.certificate) == pytest.approx(expected(model, classes))
    assert found.evidence.data.name == "trees"
    back = Backwards(min_samples_leaf=40, random_state=0).fit(given["X"], given["y"])
    again = pffl.audit(back, **given)
    assert group_losses(again.certificate) == pytest.approx(expected(model, classes))
    without, p = (
        {key: given[key] for key in ("y", "sensitive_features")},
        model.predict_proba(given["X"]),
    )
    named = pffl.audit(pd.DataFrame(p, columns=model.classes_), **without)
    assert group_losses(named.certificate) == group_losses(found.certificate)
    plain = pffl.audit(p, **without)
    assert group_losses(plain.certificate) == group_losses(found.certificate)
    assert any("in the order" in note for note in plain.evidence.notes)
    pffl.save(found, tmp_path / "a")
    checks = pffl.verify(tmp_path / "a")
    assert [str(check) for check in checks if not check.agrees] == []
    assert "trees" in pffl.report(found)
    assert "trees" in pffl.card(found)


def test_probabilities_of_one_class_and_a_pipeline_of_text():
    given = rows()
    words = given["X"].round(-1).astype(str)
    model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(words, given["y"])
    by_model = pffl.audit(model, **{**given, "X": words})
    score, _ = model.predict_proba(words)[:, 1].tolist(), given.pop("X")
    by_score = pffl.audit(score, **given)
    assert group_losses(by_score.certificate) == group_losses(by_model.certificate)
    assert any("'yes'" in note for note in by_score.evidence.notes)


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
    model = LinearRegression().fit(frame[INPUTS], frame.amount)
    found = pffl.audit(
        model, X=frame[INPUTS], y=frame.amount, sensitive_features=frame.sex
    )
    errors = {
        str(sex): mean_squared_error(part.amount, model.predict(part[INPUTS]))
        for sex, part in frame.groupby("sex")
    }
    assert group_losses(found.certificate) == pytest.approx(errors)


def test_our_own_models_on_a_federation():
    frame = people()
    table = pffl.Federation.from_table(
        frame, label="y", group="sex", drop=("pid", "amount", "site")
    )
    solution = pffl.solve(table, pffl.BoundedGroupLoss(0.6), seed=0)
    by_solution = pffl.audit(solution, table)
    by_predictor = pffl.audit(solution.predictor, table)
    assert group_losses(by_solution.certificate) == pytest.approx(
        {cell.cell: cell.test_loss for cell in solution.cell_results}, abs=1e-3
    )
    assert group_losses(by_predictor.certificate) == group_losses(
        by_solution.certificate
    )


def test_what_does_not_go_is_said():
    given = rows()
    model = LogisticRegression().fit(given["X"], given["y"])
    half = {**given, "X": given["X"][:9]}
    without = {key: given[key] for key in ("y", "sensitive_features")}
    some = given["y"] == "yes"
    cases = [
        (model, {"X": given["X"]}, UsageError, "needs-rows"),
        (model, without, UsageError, "needs-rows"),
        (object(), given, UsageError, "no-predictions"),
        (model, half, DataError, "wrong-shape"),
        (LinearSVC().fit(given["X"], given["y"]), given, DataError, "no-predictions"),
        (
            model,
            {k: part[some] for k, part in given.items()},
            DataError,
            "other-labels",
        ),
        (np.full(400, 1.5), without, DataError, "bad-probabilities"),
        (np.full((400, 2), 0.6), without, DataError, "bad-probabilities"),
        (np.full((400, 3), 1 / 3), without, DataError, "wrong-shape"),
    ]
    for subject, keywords, error, code in cases:
        with raises(error, code):
            pffl.audit(subject, **keywords)
    kept = people()[[*INPUTS, "sex", "y"]]
    table = pffl.Federation.from_table(kept, label="y", group="sex")
    with raises(UsageError, "needs-rows"):
        pffl.audit(model, table)
