"""A classifier whose groups' losses stay under a bound, the scikit-learn way.

Run it with ``python examples/fair_classifier.py``. The data are generated.
"""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import train_test_split

from pffl import FairClassifier


def main() -> None:
    """Fit without a bound, find the smallest, fit with one, certify."""
    rng = np.random.default_rng(0)
    X, group = (
        rng.normal(size=(8000, 3)),
        rng.choice(["few", "many"], 8000, p=[0.2, 0.8]),
    )
    slope = np.where(
        group == "few", -0.5, 1.5
    )  # what speaks for one speaks against others
    y = slope * X[:, 0] + X[:, 1] + rng.logistic(size=8000) > 0
    X, X_test, y, y_test, group, group_test = train_test_split(
        X, y, group, random_state=0
    )
    plain = FairClassifier().fit(X, y, sensitive_features=group)
    print(plain.group_loss_, "\n")
    smallest = FairClassifier(bound="smallest").fit(X, y, sensitive_features=group)
    least = smallest.group_loss_["loss"].max()
    print(f"No bound below {least:.4f} can be kept.\n")
    fair = FairClassifier(bound=1.1 * least).fit(X, y, sensitive_features=group)
    print(fair.group_loss_, f"\n{fair.status_}: {fair.message_}\n")
    print(f"accuracy {fair.score(X_test, y_test):.3f}", end=" ")
    print(f"(without a bound: {plain.score(X_test, y_test):.3f})")
    told = fair.certificate(X_test, y_test, sensitive_features=group_test)
    print(told.of_kind("holdout")[0].text)


if __name__ == "__main__":
    main()
