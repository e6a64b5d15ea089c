"""A monitor hides no large loss: nothing is capped, and false alarms stay rare."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import pffl

BOUND, LIMIT = 0.25, 20.0  # an e-value of 20 is seen with a probability of 5 % at most
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


class Echo(BaseEstimator):
    """A model from elsewhere: it predicts its only input."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(X)[:, 0]


def rows_of(losses: np.ndarray, seed: int) -> dict[str, object]:
    """Rows on which `Echo` has these losses; one group for each row of `losses`."""
    groups = np.repeat([f"g{i:02d}" for i in range(len(losses))], losses.shape[1])
    x = np.random.default_rng(seed).normal(size=losses.size)
    y = x + np.sqrt(losses.ravel())
    return {"X": x[:, None], "y": y, "sensitive_features": {"group": groups}}


def monitored(draw: Draw, cells: int, rows: int, batches: int, seed: int) -> np.ndarray:
    """Largest e-value that each of `cells` groups ever had, batch by batch."""
    rng = np.random.default_rng(seed)
    first = rows_of(draw(rng, (cells, 50)), seed)
    bound = pffl.BoundedGroupLoss(BOUND)
    audit = pffl.audit(Echo(), constraint=bound, **first)
    found = None
    for batch in range(batches):
        new = rows_of(draw(rng, (cells, rows // batches)), seed + batch + 1)
        table = pffl.data.Federation.from_arrays(
            new["X"],
            new["y"],
            sensitive_features=new["sensitive_features"],
            features=list(audit.predictor.schema.features),
            classification=False,
            test_fraction=0.0,
        )
        found = pffl.monitor(audit, table, state=found)
    assert found is not None
    values = [row["e_value"] for row in found.history]
    return np.reshape(values, (batches, cells)).max(axis=0)


def log_normal(mean: float) -> Draw:
    return lambda rng, shape: mean * rng.lognormal(-0.5, 1.0, shape)


def pareto(mean: float) -> Draw:
    return lambda rng, shape: mean / 3.0 * (1.0 + rng.pareto(1.5, shape))


def disasters(mean: float) -> Draw:
    """One loss in fifty is 1,000: the mean is 20."""
    return lambda rng, shape: np.where(rng.random(shape) < 0.02, 1000.0, 0.1)


def allowed(runs: int) -> float:
    return 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("draw", [log_normal, pareto])
def test_false_alarms_are_rare_for_losses_without_a_largest(draw: Callable) -> None:
    found = monitored(draw(BOUND), cells=100, rows=300, batches=3, seed=1)
    assert (found >= LIMIT).mean() <= allowed(100)


@pytest.mark.parametrize(("draw", "mean"), [(log_normal, 0.3), (disasters, 20.0)])
def test_alarms_are_raised_above_the_bound(draw: Callable, mean: float) -> None:
    found = monitored(draw(mean), cells=20, rows=3000, batches=3, seed=2)
    assert (found >= LIMIT).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "mean", "share"),
    [
        (log_normal, BOUND, None),
        (pareto, BOUND, None),
        (log_normal, 0.3, 1.0),
        (disasters, 20.0, 1.0),
    ],
)
def test_four_hundred_monitors_of_three_thousand_rows(
    draw: Callable, mean: float, share: float | None
) -> None:
    found = np.concatenate(
        [monitored(draw(mean), 100, 3000, 30, seed=100 * k) for k in range(4)]
    )
    rings = float((found >= LIMIT).mean())
    assert rings <= allowed(400) if share is None else rings == share


def probabilities(n: int, seed: int, never: float) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and probabilities of the last that are 0.9 right, or 0 for the truth."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return y, np.where(rng.random(n) < never, 1.0 - y, np.where(y == 1, 0.9, 0.1))


def watched(seed: int, never: float, **clip: float) -> pffl.Monitor:
    groups = np.repeat(["f", "m"], 1000)
    y, p = probabilities(2000, seed, 0.0)
    audit = pffl.audit(
        p,
        y=y,
        sensitive_features={"sex": groups},
        constraint=pffl.BoundedGroupLoss(BOUND),
        **clip,
    )
    y, p = probabilities(2000, seed + 1, never)
    rows = pffl.data.Federation.from_arrays(
        p[:, None],
        y,
        sensitive_features={"sex": groups},
        features=list(audit.predictor.schema.features),
        test_fraction=0.0,
    )
    return pffl.monitor(audit, rows)


def test_a_probability_of_0_for_what_happened_is_an_alarm_at_once() -> None:
    assert watched(0, 0.0).status == "no alarm"
    found = watched(0, 0.002)
    assert set(found.alarms) == {"f", "m"}
    assert all(row["mean_loss"] > 2 * BOUND for row in found.table)
    assert all(many > 0 for many in found.batches[-1].impossible)
    assert "probability of 0 for what happened" in found.message
