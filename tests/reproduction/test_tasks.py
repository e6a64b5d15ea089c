"""The benchmark over tasks: a toy method of a few lines, results, and its table."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from reproduction.tasks import data, methods, run

pytest.importorskip("pandas")


def mean_rate(draw, budget):
    """A toy: everybody is told the training rows' rate."""
    labels = np.concatenate([silo.y for silo in draw.silos])
    w = np.zeros(draw.inputs + 1)
    w[-1] = np.log(labels.mean() / (1 - labels.mean()))
    return [w]


def descent(draw, budget):
    """The one of the documentation: FedSGD."""
    w = np.zeros(draw.inputs + 1)
    for _ in range(budget or 2000):
        gradients = [
            silo.X.T @ (1 / (1 + np.exp(-silo.X @ w)) - silo.y) / len(silo.y)
            for silo in draw.silos
        ]
        w = w - 0.5 * (np.mean(gradients, axis=0) + methods.L2 * w)
    return [w]


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """A drawn task, two toy methods, and an empty file of results."""

    def load(seed):
        return pffl.datasets.synthetic(
            900, silos=3, groups=["f", "m"], random_state=seed, **data.SHARES
        )

    monkeypatch.setitem(data.TASKS, "toy", data.Task("toy", "drawn", load))
    monkeypatch.setitem(methods.METHODS, "mean rate", mean_rate)
    monkeypatch.setitem(methods.METHODS, "descent", descent)
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results.jsonl")
    return tmp_path / "results.jsonl"


def test_a_method_of_a_few_lines_is_run_and_compared(toy):
    run.run(["toy"], ["fedavg", "weighted", "mean rate"], seeds=30)
    found = run.read(toy)
    assert set(found) == {
        (track, "toy", name)
        for track in run.TRACKS
        for name in ("fedavg", "weighted", "mean rate")
    }
    rates = found["converged", "toy", "mean rate"]
    assert rates.shape == (30, len(run.MEASURES), 2)
    assert (rates[:, 1, 1] == 0).all()  # the same is said to every group
    table = run.table(toy)
    assert "| matched | worst group | DP gap | EO gap | worst silo |" in table
    rows = [line.split(" | ") for line in table if line.startswith("| mean rate")]
    assert [row[2].startswith("1/0/0/0, -0.") for row in rows] == [True, True]


def test_every_method_of_the_benchmark_trains_on_a_task(toy):
    draw = methods.Draw(data.TASKS["toy"].load(0))
    for name in set(methods.METHODS) - {"mean rate", "descent"}:
        for weights in methods.METHODS[name](draw, 10):
            assert weights.shape == (draw.inputs + 1,)
            assert np.isfinite(weights).all()


def test_published_results_are_of_known_tasks_and_methods():
    found = run.read(run.HERE / "results.jsonl")
    assert {task for _, task, _ in found} <= set(data.TASKS)
    assert {method for *_, method in found} <= set(methods.METHODS)
    assert {len(rows) for rows in found.values()} == {30}
