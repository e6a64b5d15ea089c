"""Boosting under bounds: ours, fairlearn's reduction, and our linear model, in one run.

    python benchmarks/estimators.py [--acs FILE]

Bounds are on the mean log loss of every group and label, 0.72 of the largest of plain
boosting on rows that it was not fitted on. fairlearn is given groups and labels crossed
as sensitive features, the same booster and the same bound; its predictor draws one of
several models, so its loss is the mean over draws; what is certified of it is the mean
of their probabilities, by `pffl.audit`. Figures are of test rows, and so is whether all
bounds are certified for new people at 95 %. One thread each.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from fairlearn.reductions import BoundedGroupLoss, ExponentiatedGradient
from peers import LARGEST_LOSS, LogLoss
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

import pffl
from pffl.typing import FloatArray

PART = 0.72  # of the largest group loss of plain boosting


class Booster(HistGradientBoostingClassifier):
    """A booster that predicts probabilities: the oracle for `LogLoss`."""

    def predict(self, X: Any) -> FloatArray:
        return self.predict_proba(X)[:, 1]


def parts(data: pffl.Federation) -> dict[str, tuple[FloatArray, FloatArray, Any]]:
    """Return inputs, labels and groups of the training and the test rows."""
    found = {}
    for split in ("train", "test"):
        rows = data.pooled(split)
        X = rows.X if isinstance(rows.X, np.ndarray) else rows.X.toarray()
        groups = np.array(data.schema.groups)[rows.group]
        found[split] = X, rows.y.astype(int), groups
    return found


def own_table() -> pffl.Federation:
    """Made up: a small group for which one input works the other way round."""
    rng = np.random.default_rng(7)
    n = 12_000
    X, group = (
        rng.normal(size=(n, 6)),
        rng.choice(["a", "b", "c"], n, p=[0.7, 0.2, 0.1]),
    )
    slope = np.select([group == "a", group == "b"], [1.5, 0.5], -1.0)
    score = slope * X[:, 0] + X[:, 1] * (X[:, 2] > 0) + 0.5 * X[:, 3]
    y = score + rng.logistic(size=n) > 0.5
    return pffl.Federation.from_arrays(X, y, sensitive_features=group)


def acs(path: str) -> pffl.Federation:
    """3,000 rows of each state: employed or not, by sex."""
    table = pd.read_parquet(path).groupby("ST").sample(3000, random_state=0)
    return pffl.Federation.from_table(
        table.drop(columns=["PUMA", "RAC1P"]).assign(SEX=table["SEX"].astype(str)),
        label="ESR1",
        group="SEX",
        silo="ST",
    )


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def compare(name: str, data: pffl.Federation) -> None:
    split = parts(data)
    (X, y, group), (X_test, y_test, group_test) = split["train"], split["test"]
    settings = {"max_depth": 4, "max_iter": 60, "random_state": 0}
    booster = HistGradientBoostingClassifier(**settings)

    def ours(bound: float, estimator: Any) -> pffl.FairClassifier:
        clf = pffl.FairClassifier(bound, constraint="cbgl", estimator=estimator)
        clf.set_params(infeasible="nearest")
        return clf.fit(X, y, sensitive_features=group)

    plain = ours(LARGEST_LOSS, booster)
    bound = round(PART * float(plain.group_loss_["loss"].max()), 3)
    crossed = np.char.add(np.char.add(group, ", "), y.astype(str))

    def theirs() -> ExponentiatedGradient:
        constraint = BoundedGroupLoss(LogLoss(), upper_bound=bound)
        reduction = ExponentiatedGradient(Booster(**settings), constraint)
        return reduction.fit(X, y, sensitive_features=crossed)

    def tell(
        who: str, seconds: float, loss: FloatArray, wrong: float, sure: str
    ) -> None:
        cells = pd.Series(loss).groupby([group_test, y_test]).mean()
        print(
            f"{name:8} {who:28} bound {bound:.3f}  worst group {cells.max():.3f}  "
            f"errors {100 * wrong:5.2f} %  {sure:20}  {seconds:6.1f} CPU s",
            flush=True,
        )

    for who, estimator, at in (
        ("boosting without bounds", booster, LARGEST_LOSS),
        ("boosting, pffl", booster, bound),
        ("linear, pffl", None, bound),
    ):
        seconds, clf = cpu(lambda e=estimator, b=at: ours(b, e))
        p = clf.predict_proba(X_test)[:, 1]
        sure = clf.certificate(X_test, y_test, sensitive_features=group_test)
        word = sure.verdicts["new_people"]["verdict"] if at == bound else ""
        wrong = float((clf.predict(X_test) != y_test).mean())
        tell(who, seconds, LogLoss().eval(y_test, p), wrong, str(word))
    seconds, found = cpu(theirs)
    loss, wrong, mean = np.zeros(len(y_test)), 0.0, np.zeros(len(y_test))
    for t, share in found.weights_.items():
        p = found.predictors_[t].predict(X_test)
        loss += share * LogLoss().eval(y_test, p)
        wrong += share * float(((p > 0.5) != y_test).mean())
        mean += share * p
    asked = pffl.ConditionalBoundedGroupLoss(bound)
    given = {"y": y_test, "sensitive_features": group_test}
    least = float(np.exp(-LARGEST_LOSS))
    sure = pffl.audit(mean, constraint=asked, clip=least, **given).certificate
    word = str(sure.verdicts["new_people"]["verdict"])
    tell("boosting, fairlearn (drawn)", seconds, loss, wrong, f"{word} (mean)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--acs", help="the ACS table: a Parquet file")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        compare("made up", own_table())
        compare("COMPAS", pffl.datasets.compas(random_state=0))
        compare("Adult", pffl.datasets.adult(random_state=0))
        if given.acs:
            compare("ACS", acs(given.acs))


if __name__ == "__main__":
    main()
