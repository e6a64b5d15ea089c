"""One loss: training rows are judged by the model's own, others by what is shipped.

Own losses are computed here from coefficients, shipped ones from `predict_proba`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.errors import NotMetError
from tests.golden.people import adult_files, sha256
from tests.raising import raises

LIST = (3.0, 5.0, 8.0, 12.0, 20.0, 35.0)


class Rows:
    """Inputs, labels and groups, with all rows for training."""

    def __init__(self, X: Any, y: Any, group: Any, weight: Any = None) -> None:
        self.X, self.y, self.group, self.weight = X, y, group, weight

    def federation(self, **options: Any) -> pffl.Federation:
        given = {"test_fraction": 0.0, "sample_weight": self.weight, **options}
        return pffl.Federation.from_arrays(
            self.X, self.y, sensitive_features=self.group, **given
        )

    def mean(self, losses: Any, group: Any = None) -> float:
        here = np.full(len(losses), True) if group is None else self.group == group
        weight = None if self.weight is None else self.weight[here]
        return float(np.average(losses[here], weights=weight))

    def groups(self) -> list[Any]:
        return list(np.unique(self.group))


def credit(n: int = 1500, seed: int = 0) -> Rows:
    """Amounts of money with heavy tails, as credit files have them."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n, p=[0.6, 0.4])
    limit, late = rng.lognormal(11.5, 1.0, n), rng.choice([-1.0, 0, 1, 2, 3], n)
    bills, paid = rng.lognormal(10, 1.6, (n, 2)), rng.lognormal(8, 2.0, (n, 2))
    z = 0.6 * late - 1.6 - 0.3 * np.log(limit / 1e5) + 0.25 * (sex == "m")
    y = (rng.logistic(size=n) + z > 0).astype(int)
    return Rows(np.column_stack([limit, bills, paid, late]), y, sex)


def outliers(n: int = 3000, seed: int = 0) -> Rows:
    """Log-normal inputs and labels that are wrong now and then, also far out."""
    rng = np.random.default_rng(seed)
    X = rng.lognormal(0.0, 1.5, (n, 2))
    high = X[:, 0] > np.median(X[:, 0])
    y = (rng.random(n) < np.where(high, 0.9, 0.1)).astype(int)
    return Rows(X, y, rng.choice(["f", "m"], n))


def log_losses(y: Any, proba: Any, classes: Any) -> Any:
    return -np.log(proba[np.arange(len(y)), np.searchsorted(classes, y)])


def own_losses(model: Any, rows: Rows) -> Any:
    """Return the losses of a fitted classifier, from its coefficients alone."""
    z = rows.X @ model.coef_.T + model.intercept_
    if z.shape[1] == 1:
        sign = np.where(rows.y == model.classes_[1], 1.0, -1.0)
        return np.logaddexp(0.0, -sign * z[:, 0])
    z = z - z.max(axis=1, keepdims=True)
    own = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return -own[np.arange(len(z)), np.searchsorted(model.classes_, rows.y)]


def shipped_losses(model: Any, rows: Rows) -> Any:
    return log_losses(rows.y, model.predict_proba(rows.X), model.classes_)


def check_model(model: Any, rows: Rows, bound: float | None) -> None:
    """Compare a fitted classifier's figures, limits and verdict with the rows."""
    own, shipped = own_losses(model, rows), shipped_losses(model, rows)
    M = model.loss_bound_
    if M is not None:
        assert M in LIST
        assert shipped.max() <= M * (1 + 1e-12)
    for group in [None, *rows.groups()]:
        a, b = rows.mean(own, group), rows.mean(shipped, group)
        if M is not None:
            assert abs(b - a) <= max(1e-3 * a, 1e-6) * (1 + 1e-6)
        if group is None:
            continue
        stated = model.group_loss_.loc[str(group), "loss"]
        assert stated == pytest.approx(a, rel=1e-6, abs=1e-9)
        if bound is not None and model.status_ == "met":
            assert a <= bound * (1 + 2e-6)
            assert b <= bound * (1 + 1.01e-4)


def near_the_smallest(rows: Rows, make: Any, **fit: Any) -> tuple[float, float]:
    """Compare what `feasible`, runs, estimators and certificates say of one bound."""
    people = rows.federation(**fit)
    model = make()._model(len(np.unique(rows.y)) if fit.get("classification", 1) else 0)
    found = pffl.feasible(people, model=model)
    low, high = found.common.lower, found.common.upper
    above, below = high * (1 + 1e-3), low * (1 - 1e-3)
    always, bound = pffl.Options(smallest_bound=True), pffl.BoundedGroupLoss(above)
    run = pffl.solve(people, bound, model=model, options=always, random_state=0)
    assert run.status == "met", run.message
    (said,) = run.certificate.of_kind("attainable")
    assert said.figures["lower"] <= above
    assert said.figures["upper"] <= high * (1 + 1e-4)
    if below > 0 and found.everywhere:
        bad = pffl.solve(
            people, pffl.BoundedGroupLoss(below), model=model, random_state=0
        )
        assert bad.status == "impossible", bad.message
        assert bad.smallest_bound == pytest.approx(high, rel=1e-4)
        assert max(row.train_loss for row in bad.cell_results) >= low * (1 - 1e-9)
    return low, high


# -------------------------------------------------- the smallest bound, on credit data


def test_the_smallest_bound_is_one_number_wherever_it_is_asked_for():
    rows = credit()
    low, high = near_the_smallest(rows, pffl.FairClassifier)
    assert high - low <= 1e-4 * high
    given = {"sensitive_features": rows.group}
    least = pffl.FairClassifier("smallest").fit(rows.X, rows.y, **given)
    asked = least.group_loss_["loss"].max()
    assert low * (1 - 1e-9) <= asked <= high * (1 + 1e-4)
    model = pffl.FairClassifier(high * (1 + 1e-3)).fit(rows.X, rows.y, **given)
    assert model.status_ == "met"
    check_model(model, rows, high * (1 + 1e-3))
    with raises(NotMetError, "not-met"):
        pffl.FairClassifier(low * (1 - 1e-3)).fit(rows.X, rows.y, **given)


# ------------------------------------------------------- what is shipped keeps verdicts


@pytest.fixture(scope="module")
def adult(tmp_path_factory: pytest.TempPathFactory) -> pffl.Federation:
    folder = tmp_path_factory.mktemp("adult")
    texts = adult_files()
    for name, text in zip(("adult.data", "adult.test"), texts, strict=True):
        (folder / name).write_bytes(text)
    hashes = [sha256(text) for text in texts]
    return pffl.datasets.adult(source=folder, sha256=hashes, silos=10, random_state=0)


@pytest.mark.parametrize("bound", [0.52, 0.6, 0.7, 0.9])
def test_what_is_shipped_is_not_carried_across_a_bound(
    adult: pffl.Federation, bound: float
):
    people = adult
    run = pffl.solve(people, pffl.ConditionalBoundedGroupLoss(bound), random_state=0)
    assert run.status == "met"
    assert run.loss_bound in LIST
    table = people.pooled("train")
    proba = run.predict_proba(table.X)
    shipped = -np.log(proba[np.arange(len(proba)), table.y.astype(int)])
    for group in np.unique(table.group):
        for label in (0, 1):
            here = (table.group == group) & (table.y == label)
            assert shipped[here].mean() <= bound * (1 + 1.01e-4)


def test_a_loss_without_a_bound_is_not_measured_for_new_people():
    rows = outliers()
    people = rows.federation(test_fraction=0.3)
    run = pffl.solve(people, pffl.BoundedGroupLoss(1.5), random_state=0)
    assert run.status == "met"
    assert run.loss_bound is None
    (found,) = run.certificate.of_kind("holdout")
    assert not found.available
    assert "largest training loss" in found.text
    (errors,) = run.certificate.of_kind("holdout_error")
    assert errors.available
    table = people.pooled("train")
    proba = run.predict_proba(table.X)
    losses = -np.log(proba[np.arange(len(proba)), table.y.astype(int)])
    assert losses.max() > max(LIST)
    for name, loss in zip(
        ("f", "m"), run.cells.sort_index()["train_loss"], strict=True
    ):
        here = table.group == people.schema.groups.index(name)
        assert loss == pytest.approx(losses[here].mean(), rel=1e-9)


def test_three_classes_are_mixed_not_clipped():
    rng = np.random.default_rng(1)
    X, group = rng.lognormal(0, 1.5, (900, 3)), rng.choice(["f", "m"], 900)
    y = (np.log(X[:, :3]) + rng.gumbel(size=(900, 3))).argmax(axis=1)
    rows = Rows(X, y, group)
    least = pffl.FairClassifier("smallest").fit(X, y, sensitive_features=group)
    least = least.group_loss_["loss"].max()
    model = pffl.FairClassifier(1.01 * least).fit(X, y, sensitive_features=group)
    assert model.status_ == "met"
    check_model(model, rows, 1.01 * least)
    if model.loss_bound_ is not None:
        e = np.exp(-model.loss_bound_)
        own = np.exp(-own_losses(model, rows))
        mixed = (1 - 3 * e) * own + e
        np.testing.assert_allclose(np.exp(-shipped_losses(model, rows)), mixed, 1e-6)


# -------------------------------------------------------------------------- regression


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_numbers_are_kept_near_their_declared_range(loss: str):
    rng = np.random.default_rng(2)
    X, group = rng.normal(size=(800, 2)), rng.choice(["f", "m"], 800)
    y = (X[:, 0] + 0.3 * rng.normal(size=800)).clip(-1.0, 1.0)
    model = pffl.FairRegressor(0.5, loss=loss, target_range=(-1.0, 1.0))
    model.fit(X, y, sensitive_features=group)
    assert model.status_ == "met"
    far = model.predict(1e6 * X)
    margins = 2.0 * np.array([0.0, 0.25, 0.5, 1.0, 2.0])
    margin = margins[np.argmin(np.abs(1.0 + margins - far.max()))]
    assert far.max() == pytest.approx(1.0 + margin)
    assert far.min() == pytest.approx(-1.0 - margin)
    own = X @ model.coef_ + model.intercept_

    def losses(values: Any) -> Any:
        size = np.abs(values - y)
        cut = size if loss == "squared" else np.minimum(size, model.delta)
        return cut * (2 * size - cut)

    for sex in ("f", "m"):
        here = group == sex
        mean, kept = losses(own)[here].mean(), losses(model.predict(X))[here].mean()
        assert model.group_loss_.loc[sex, "loss"] == pytest.approx(mean, rel=1e-9)
        assert abs(kept - mean) <= 1e-3 * mean
    # A smaller margin would have changed a group's loss by more.
    for less in margins[margins < margin]:
        kept = losses(own.clip(-1 - less, 1 + less))
        means = [(kept[here].mean(), losses(own)[here].mean()) for here in sets(group)]
        assert any(abs(a - b) > 1e-3 * b for a, b in means)


def sets(group: Any) -> list[Any]:
    return [group == name for name in np.unique(group)] + [np.full(len(group), True)]


# -------------------------------------------------------------------------------- files


# ---------------------------------------------------------------- too few rows to judge


def test_a_group_with_few_test_rows_is_not_measured(tmp_path):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 2))
    group = np.where(np.arange(600) % 40 == 0, "few", "many")
    y = (X[:, 0] + rng.logistic(size=600) > 0).astype(int)
    people = pffl.Federation.from_arrays(X, y, sensitive_features=group)
    run = pffl.solve(people, pffl.BoundedGroupLoss(3.0), random_state=0)
    said = summary_of(run, tmp_path / "first")
    assert {row.cell: row.test_count < 10 for row in run.cell_results}["few"]
    assert said["verdict"] == "not measured"
    assert "few" in said["sentence"]
    tight = pffl.solve(
        people, pffl.BoundedGroupLoss({"many": 0.3, "few": 3.0}), random_state=0
    )
    assert summary_of(tight, tmp_path / "second")["verdict"] == "exceeded"


def summary_of(run: pffl.Solution, place: Path) -> dict[str, Any]:
    """Return what result.json says of held-out rows."""
    run.save(place)
    verdicts = json.loads((place / "result.json").read_text())["verdicts"]
    return dict(verdicts["test"])


# ---------------------------------------------------------------------- random problems


def random_problem(seed: int) -> tuple[Rows, Any, dict[str, Any]]:
    """Return rows, a way to make an estimator, and how its federation is built."""
    rng = np.random.default_rng([seed, 30])
    n, d = int(rng.integers(40, 500)), int(rng.integers(1, 5))
    draw = rng.choice(["normal", "log-normal", "cauchy", "whole", "scaled"])
    X = rng.normal(size=(n, d))
    if draw == "log-normal":
        X = np.exp(1.5 * X)
    if draw == "cauchy":
        X = rng.standard_cauchy((n, d))
    if draw == "whole":
        X = np.round(2 * X)
    if draw == "scaled":
        X = 10.0 ** rng.integers(-6, 7, d) * (X + rng.integers(0, 3))
    groups = ["a", "b", "c"][: rng.integers(2, 4)]
    group = rng.choice(groups, n)
    group[: 8 * len(groups)] = np.repeat(groups, 8)
    weight = rng.integers(1, 6, n).astype(float) if rng.random() < 0.2 else None
    l2 = float(rng.choice([0.0, 1e-5, 1e-3, 1e-2]))
    signal = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(size=d)
    noise = float(rng.choice([0.02, 0.5, 1.0]))
    silo = rng.choice(["s", "t"], n) if rng.random() < 0.3 else None
    fit: dict[str, Any] = {"silo": silo}
    kind = rng.choice(["two", "three", "number"], p=[0.6, 0.2, 0.2])
    if kind == "number":
        y = signal + noise * rng.normal(size=n)
        ends = (float(y.min()), float(y.max())) if rng.random() < 0.5 else None
        loss = str(rng.choice(["squared", "huber"]))
        fit["classification"] = False

        def number() -> Any:
            return pffl.FairRegressor(l2=max(l2, 1e-5), loss=loss, target_range=ends)

        return Rows(X, y, group, weight), number, fit
    y = (signal + noise * rng.logistic(size=n) > 0).astype(int)
    if kind == "three":
        y += (signal + noise * rng.logistic(size=n) > 1).astype(int)
    flip = rng.random(n) < rng.choice([0.0, 0.03])
    y[flip] = 0
    y[: 8 * len(groups)] = np.tile([0, 1, 0, 1, 1, 0, 1, 0], len(groups))
    y[:2] = y.max()

    def classes() -> Any:
        return pffl.FairClassifier(l2=l2)

    return Rows(X, y, group, weight), classes, fit


def compare(seed: int) -> None:
    """Ask every interface about one random problem; none may contradict another."""
    rows, make, fit = random_problem(seed)
    given = {"sensitive_features": rows.group, "sample_weight": rows.weight}
    given["silos"] = fit["silo"]
    low, high = near_the_smallest(rows, make, **fit)
    own = make().set_params(bound="smallest").fit(rows.X, rows.y, **given)
    least = own.group_loss_["loss"].max()
    assert low * (1 - 1e-9) <= least <= max(high * (1 + 2e-3), 1e-7)
    bound = max(high * 1.002, 1e-6)
    model = make().set_params(bound=bound).fit(rows.X, rows.y, **given)
    assert model.status_ == "met", model.message_
    if isinstance(model, pffl.FairClassifier):
        check_model(model, rows, bound)


@pytest.mark.parametrize("seed", range(20))
def test_no_interface_contradicts_another(seed: int):
    compare(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 320))
def test_no_interface_contradicts_another_on_300_problems(seed: int):
    compare(seed)
