import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import pffl
from pffl.errors import DataError, FederationError, UsageError
from tests.inside import GridPoint, full_grid, paper_grid, random_grid, sweep, unseen
from tests.inside import row as row_of
from tests.raising import raises

pytestmark = pytest.mark.filterwarnings("ignore:a bound of 0")


@pytest.fixture(scope="module")
def federation():
    return pffl.datasets.synthetic(
        1500, silos=4, features=4, seed=1, validation_fraction=0.2
    )


@pytest.fixture(scope="module")
def points():
    return full_grid(["bgl", "cbgl-y1"], [0.0, 0.5, 0.6, 0.7], [0.5, 10.0])


@pytest.fixture(scope="module")
def found(federation, points):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sweep(federation, points)


def same(a, b, tolerance=1e-6):
    skip = {"seconds", "rounds", "gap", "looks"}
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert set(x) == set(y)
        for key in set(x) - skip:
            if isinstance(x[key], float):
                assert x[key] == pytest.approx(y[key], abs=tolerance), key
            elif key == "cells":
                for c, d in zip(x[key], y[key], strict=True):
                    assert c["train_loss"] == pytest.approx(d["train_loss"], abs=1e-6)
            else:
                assert x[key] == y[key], key


def test_points_equal_a_cold_solve(federation, points, found):
    for point, row in list(zip(points, found.rows, strict=True))[::3]:
        cold = pffl.solve(
            federation,
            point.constraint,
            method=pffl.Exact(multiplier_bound=point.multiplier_bound),
            seed=0,
        )
        assert row["status"] == cold.status
        assert row["gap"] <= 1e-7
        for cell, expected in zip(row["cells"], cold.cell_results, strict=True):
            assert cell["train_loss"] == pytest.approx(expected.train_loss, abs=1e-5)
        assert row["test_error"] == pytest.approx(cold.test.error, abs=2e-3)


def test_resumed_sweep_runs_only_what_is_missing(federation, points, found, tmp_path):
    sweep(federation, points[:5], out=tmp_path)
    lines = (tmp_path / "points.jsonl").read_text().splitlines()
    assert len(lines) == 5
    again = sweep(federation, points, out=tmp_path)
    assert (tmp_path / "points.jsonl").read_text().splitlines()[:5] == lines
    same(again.rows, found.rows)


SCRIPT = """
import sys, warnings
from pathlib import Path
import pffl
from pffl.study.sweep import full_grid, sweep
warnings.simplefilter("ignore")
options = dict(silos=4, features=4, seed=1, validation_fraction=0.2)
data = pffl.datasets.synthetic(1500, **options)
points = full_grid(["bgl", "cbgl-y1"], [0.0, 0.5, 0.6, 0.7], [0.5, 10.0])
print("ready", flush=True)
sweep(data, points, out=Path(sys.argv[1]))
"""


def test_fault_72_killed_sweep_resumes_to_the_same_table(
    federation, points, found, tmp_path
):
    delay = np.random.default_rng(int.from_bytes(os.urandom(4))).uniform(0.0, 0.4)
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE
    )
    child.stdout.readline()
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    same(sweep(federation, points, out=tmp_path).rows, found.rows)


def test_front_and_best(found):
    with raises(UsageError, "wrong-cells"):
        found.front()
    front = found.front(notion="bgl")
    errors = front["validation_error"].to_numpy()
    assert (np.diff(errors) >= 0).all()
    assert (np.diff(front["validation_worst_cell_loss"].to_numpy()) < 0).all()
    limit = float(np.median(found.trained["validation_error"]))
    best = found.best(error_at_most=limit, notion="bgl")
    inside = found.trained[
        (found.trained["notion"] == "bgl")
        & (found.trained["validation_error"] <= limit)
    ]
    assert best["validation_worst_cell_loss"] == (
        inside["validation_worst_cell_loss"].min()
    )
    with raises(DataError, "no-such-point"):
        found.best(worst_loss_at_most=0.0, notion="bgl")
    with raises(UsageError, "options-conflict"):
        found.best(notion="bgl")


def test_a_row_is_a_function_of_evidence(federation):
    solution = pffl.solve(federation, pffl.BoundedGroupLoss(0.6), seed=0)
    one = row_of(solution.evidence)
    (swept,) = sweep(federation, [GridPoint("bgl", 0.6, 10.0)]).rows
    assert one["status"] == swept["status"] == solution.status
    assert one["test_error"] == pytest.approx(swept["test_error"], abs=2e-3)
    # one number per promise: that of the verdict table, each cell by itself
    uppers = [cell.test_upper for cell in solution.cell_results]
    assert one["test_worst_high"] == max(uppers)
    assert uppers == list(unseen.upper(solution.evidence))
    assert not any(name.startswith("validation") for name in one)


def test_ctrl_c_ends_a_sweep_and_leaves_no_row(federation, monkeypatch, tmp_path):
    whole = pffl.Exact.question

    def stopped(self, problem, state):
        if problem.cells.bounds[0] == 0.6:
            raise KeyboardInterrupt
        return whole(self, problem, state)

    monkeypatch.setattr(pffl.Exact, "question", stopped)
    with pytest.raises(KeyboardInterrupt):
        sweep(federation, full_grid(["bgl"], [0.5, 0.6], [1.0]), out=tmp_path)
    assert len((tmp_path / "points.jsonl").read_text().splitlines()) == 1


def test_a_point_that_fails_is_a_row_and_the_others_go_on(
    federation, points, monkeypatch
):
    whole = pffl.Exact.question

    def failing(self, problem, state):
        if problem.cells.bounds[0] == 0.6:
            raise FederationError("silo 'b' failed to answer")
        return whole(self, problem, state)

    monkeypatch.setattr(pffl.Exact, "question", failing)
    few = [point for point in points if point.notion == "bgl"]
    rows = sweep(federation, few).rows
    assert [row["reason"] for row in rows if row["bound"] == 0.6] == [
        "silo 'b' failed to answer"
    ] * 2
    assert all(row["status"] for row in rows if row["bound"] != 0.6)


def test_grids():
    assert len(paper_grid("compas")) == 112
    assert len(paper_grid("acs", ["bgl"])) == 48
    assert len(random_grid(["bgl"], (0.1, 0.9), (0.1, 100), number=7, seed=0)) == 7
    with raises(UsageError, "no-paper-grid"):
        paper_grid("other")
    for bad in (("x", 0.1, 1.0), ("bgl", -1.0, 1.0), ("bgl", 0.1, 0.0)):
        with pytest.raises(UsageError):
            GridPoint(*bad)
