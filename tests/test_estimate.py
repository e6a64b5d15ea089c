"""What a run will take is said before it does, roughly and in time."""

from __future__ import annotations

import time
import warnings
from dataclasses import fields, replace

import numpy as np
import pytest

import pffl
from pffl import estimate as estimates
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.estimate import Estimate, estimate, foretell, free_memory
from pffl.preparation import Options
from pffl.problem import Access, Problem
from pffl.solving import prepared


def people(rows: int, inputs: int, groups: int) -> pffl.Federation:
    rng = np.random.default_rng(0)
    X, a = rng.normal(size=(rows, inputs)), rng.integers(0, groups, rows)
    w = rng.normal(size=(groups, inputs)) / np.sqrt(inputs)
    y = rng.random(rows) < 1 / (1 + np.exp(-(X * w[a]).sum(axis=1)))
    return pffl.Federation.from_arrays(X, y.astype(int), sensitive_features=a)


@pytest.fixture(scope="module")
def small() -> Problem:
    engine, bound = Local(people(300, 4, 2)), pffl.BoundedGroupLoss(0.6)
    return prepared(engine, bound, None, pffl.Exact(), Options(), 0)[0]


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "free_memory", lambda: 1e12)
    monkeypatch.setattr(estimates, "slowness", lambda: 1.0)
    monkeypatch.setattr(estimates, "processors", lambda: 1)


def of_size(problem: Problem, rows: int, parameters: int, cells: int) -> Problem:
    """A problem that says it is so large."""
    counts = np.zeros_like(problem.silo_counts)
    counts[0, 0] = rows

    class Large(Problem):
        n_parameters = property(lambda self: parameters)  # type: ignore[assignment]
        n_cells = property(lambda self: cells)  # type: ignore[assignment]

    given = {part.name: getattr(problem, part.name) for part in fields(problem)}
    return Large(**given | {"silo_counts": counts})


def test_short_runs_are_left_alone(small: Problem, roomy: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in (pffl.Exact(), pffl.FirstOrder(), pffl.PFFL(), pffl.FedAvg()):
            foretell(small, method)


def test_a_long_run_is_announced_with_what_is_shorter(
    small: Problem, roomy: None
) -> None:
    long = of_size(small, 5_000_000, 1_500, 20)
    text = r"5,000,000 training rows, 1,500 parameters and 20 cells will take about "
    with pytest.warns(UserWarning, match=text) as told:
        foretell(long, pffl.Exact())
    assert "hours with 'exact': `method=FirstOrder()` would take about 1/" in str(
        told[0].message
    )
    with pytest.warns(UserWarning, match="fewer rows, inputs or cells take less"):
        foretell(long, pffl.FirstOrder())


def test_many_rounds_are_counted(small: Problem, roomy: None) -> None:
    rows = of_size(small, 1_000_000, 50, 2)
    short, long = pffl.FedAvg(rounds=5), pffl.FedAvg(rounds=5000, local_steps=20)
    found = [estimate(rows, method, threads=1) for method in (short, long)]
    assert isinstance(found[0], Estimate)
    assert found[0].seconds < 60 < found[1].seconds
    with pytest.warns(UserWarning, match="hours with 'fedavg'"):
        foretell(rows, long)


def test_memory_that_is_not_there_is_refused(
    small: Problem, roomy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = of_size(small, 10_000, 2_000, 100)
    need = estimate(large, pffl.Exact(), threads=1)
    assert need is not None
    assert 15e9 < need.memory < 40e9  # about five times 100 × 2,000² numbers
    monkeypatch.setattr(estimates, "free_memory", lambda: need.memory / 3)
    with pytest.raises(
        UsageError, match=r"need about \d+ GB .* `method=FirstOrder\(\)"
    ):
        foretell(large, pffl.Exact())
    monkeypatch.setattr(estimates, "free_memory", lambda: need.memory)
    with pytest.warns(UserWarning, match="GB are free"):
        foretell(large, pffl.Exact())
    monkeypatch.setattr(estimates, "free_memory", lambda: None)
    with pytest.warns(UserWarning, match="will take"):
        foretell(large, pffl.Exact())


def test_other_machines_are_not_estimated(small: Problem, roomy: None) -> None:
    far = replace(of_size(small, 10**9, 500, 9), access=Access(elsewhere=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        foretell(far, pffl.Exact())


def test_free_memory_is_that_of_the_container(tmp_path) -> None:
    assert free_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(
        "MemTotal: 9000 kB\nMemAvailable: 5000 kB\nSwapFree: 1000 kB\n"
    )
    assert free_memory(tmp_path) == 6000 * 1024
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("1000\n")
    assert free_memory(tmp_path) == 6000 * 1024
    (group / "memory.max").write_text("5000\n")
    assert free_memory(tmp_path) == 4000
    (group / "memory.stat").write_text("anon 700\ninactive_file 300\n")
    assert free_memory(tmp_path) == 4300  # files that were read give way


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "inputs", "groups"),
    [(50_000, 50, 5), (20_000, 300, 5), (400_000, 30, 5), (20_000, 100, 60)],
)
@pytest.mark.parametrize(
    "method",
    [
        pffl.Exact(multiplier_bound=10),
        pffl.FirstOrder(multiplier_bound=10),
        pffl.FedAvg(rounds=100),
    ],
)
def test_it_is_right_to_a_factor_of_four(rows, inputs, groups, method) -> None:
    federation, bound = people(rows, inputs, groups), pffl.BoundedGroupLoss(0.66)
    problem, _ = prepared(Local(federation), bound, None, method, Options(), 0)
    begun = time.process_time()
    pffl.solve(federation, bound, method=method, seed=0)
    taken = time.process_time() - begun
    found = estimate(problem, method, threads=2)
    assert found is not None
    assert 0.25 < estimates.slowness() * found.seconds / taken < 4.0
