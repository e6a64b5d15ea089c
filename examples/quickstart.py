"""Train one model over four silos, and keep every group's mean loss under a bound.

Run it with ``python examples/quickstart.py``. The data are generated: no download, and
no real person.
"""

from __future__ import annotations

import pffl


def main() -> None:
    """Compare the model without a promise with the model that keeps it."""
    federation = pffl.datasets.synthetic(
        4000, silos=4, groups=("A", "B"), group_conflict=0.8, features=6, random_state=0
    )
    print(f"{federation.name}: {federation.rows('train')} training rows\n")

    # Nobody is promised anything: the larger group decides.
    plain = pffl.solve(federation, pffl.BoundedGroupLoss(9.0), random_state=0)
    worst = plain.cells["train_loss"].max()
    print(f"Without a bound the worst group's loss is {worst:.3f}.")

    # Both groups' mean loss at most 0.68, at any price up to B = 100.
    solution = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(0.68),
        model=pffl.models.LogisticRegression(l2=1e-3),
        method=pffl.methods.Exact(multiplier_bound=100),
        random_state=0,
    )
    print(f"{solution.status}: {solution.message}\n")
    columns = ["bound", "count", "train_loss", "multiplier", "test_loss", "test_upper"]
    print(solution.cells[columns].to_string(float_format="{:.4f}".format))
    print(f"\nrounds {solution.rounds}, gap {solution.gap:.1e}")
    print(f"test error {solution.test.error:.3f} (without: {plain.test.error:.3f})")

    rows = federation.pooled("test").X[:3]
    print(f"three people: {solution.predict_proba(rows)[:, 1].round(3)}")


if __name__ == "__main__":
    main()
