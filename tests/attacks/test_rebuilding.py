"""A curious server that asks only what honest runs ask rebuilds no row, with noise.

Exact sums are not anonymous: where a server reads a site's own sums, and of totals over
few rows, all rows are computed. Masks leave it the totals, the floor small cells out of
them; only a budget holds whatever is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.attacks.askers import Ask, Former, Pooled, Private, Real, found, modes, tell
from tests.attacks.product import (
    EVERY_SILO,
    Cells,
    Curvature,
    Federation,
    Pool,
    Rows,
    Rules,
    Silo,
    Site,
    Task,
)
from tests.attacks.rebuilding import (
    Told,
    Trained,
    by_eigenvectors,
    by_fit,
    left_out,
    of_cell,
)
from tests.deploy.sites import problem_of
from tests.helpers import make_schema

SMALL = 3  # the (group, label) that is attacked


class Target:
    """Two groups with two labels, n people of the last; p parameters."""

    def __init__(
        self, n: int, p: int, others: Sequence[int] = (60, 60, 60), seed: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        self.n, self.schema = n, make_schema(features=p - 1)
        sizes = [*others, n]
        group, y = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], sizes, axis=1)
        shifts = rng.normal(size=(4, p - 1))[2 * group + y]
        rows = Rows.of(rng.normal(size=(len(y), p - 1)) + shifts, y, group)
        self.silo = Silo("north", 0, {"train": rows, "test": rows})
        self.task: Task = problem_of(self.site()).task
        (self.cell,) = np.flatnonzero(self.task.cells.membership[:, SMALL])
        inputs = self.task.model.inputs.apply(rows.X)
        self.strata = self.schema.strata(rows.group, rows.y)
        self.inputs = np.asarray(inputs)
        self.rows = self.inputs[self.strata == SMALL]

    def site(self, rules: Rules | None = None) -> Site:
        return Site(self.silo, self.schema, rules or Rules())

    def runs(self, asks: Sequence[Ask], rounds: int, *, curved: bool) -> list[Told]:
        """What runs with bounds of their own are told of the small cell."""
        rng = np.random.default_rng(1)
        told = []
        for place, ask in enumerate(asks):
            far = np.eye(4)[place] if place < 4 else rng.uniform(size=4)
            run = Trained(self.task, far / 6)
            path = run.newton(ask, rounds) if curved else run.descent(ask, rounds)
            told += [of_cell(w, total, self.cell) for w, total in path]
        return told


def former(target: Target, runs: int) -> list[Ask]:
    return [Former(target.silo, target.schema) for _ in range(runs)]


def real(target: Target, runs: int) -> list[Ask]:
    site = target.site()
    return [Real(site, f"run {k}") for k in range(runs)]


def private(folder: Path, target: Target, runs: int, asked: int) -> list[Ask]:
    """Runs of one site with a budget, which they share."""
    return [Private(folder, target.silo, target.schema, runs * asked)] * runs


@pytest.mark.parametrize("n", [10, 15, 20, 24])
def test_joint_diagonalisation(n: int, tmp_path: Path) -> None:
    """Two Hessians of at most p rows are these rows."""
    target = Target(n, 24)

    def rebuilt(asks: list[Ask], tolerance: float) -> int:
        told = target.runs(asks, 6, curved=True)
        return found(target.rows, by_eigenvectors(told, n), tolerance)

    before = rebuilt(former(target, 1), 1e-6)
    plain = rebuilt(real(target, 1), 1e-6)
    now = rebuilt(private(tmp_path, target, 1, 6), 0.1)
    tell(f"two Hessians of {n} rows, p = 24", f"{before} of {n}", modes(plain, now))
    assert (before, plain, now) == (n, n, 0)


def fitted(
    folder: Path, target: Target, runs: int, rounds: int, *, curved: bool
) -> None:
    """Rebuild the small cell from all that is told, before and now."""

    def rebuilt(asks: list[Ask], tolerance: float) -> int:
        told = target.runs(asks, rounds, curved=curved)
        return found(target.rows, by_fit(told, target.n, 1.0, seed=0), tolerance)

    before = rebuilt(former(target, runs), 1e-3)
    plain = rebuilt(real(target, runs), 1e-3)
    now = rebuilt(private(folder, target, runs, rounds), 0.1)
    kind = "Hessians" if curved else "gradients only"
    n, p = target.rows.shape
    tell(
        f"least squares, n = {n}, p = {p + 1}, {runs} runs of {rounds}, {kind}",
        f"{before} of {n} rows",
        modes(plain, now),
    )
    assert (before, plain, now) == (n, n, 0)


def test_gradients_of_several_runs(tmp_path: Path) -> None:
    fitted(tmp_path, Target(10, 10), 4, 10, curved=False)


def test_hessians_of_several_runs(tmp_path: Path) -> None:
    fitted(tmp_path, Target(15, 5), 8, 5, curved=True)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "seed"), [(5, 2), (10, 0)])
def test_five_times_p_rows_and_several_runs(p: int, seed: int, tmp_path: Path) -> None:
    fitted(tmp_path, Target(5 * p, p, seed=seed), 8, 10, curved=True)


def test_those_who_are_left_out_are_not_f_less_the_cells() -> None:
    """Few of one (group, label) are withheld with the next few, and all were in F."""
    target = Target(9, 24, (60, 60, 12))
    rows = target.inputs[np.isin(target.strata, (2, SMALL))]
    run = Trained(target.task, np.zeros(4))

    def rebuilt(ask: Ask) -> list[np.ndarray]:
        n = len(target.inputs)
        told = [left_out(w, total, n) for w, total in run.newton(ask, 4)]
        return by_eigenvectors(told, len(rows))

    before = found(rows, rebuilt(Former(target.silo, target.schema)), 1e-3)
    assert before == len(rows)
    now = found(rows, rebuilt(Real(target.site())), 0.1)
    tell(f"F less all cells, {len(rows)} rows withheld", f"{before} rows", f"{now}")
    assert now == 0


def with_cells(task: Task, *cells: Sequence[int]) -> Task:
    """The task with cells of these (group, label)s."""
    member = np.array([np.isin(range(4), cell) for cell in cells])
    names = tuple(str(k) for k in range(len(cells)))
    nothing = np.zeros(len(cells))
    every = np.full(len(cells), EVERY_SILO)
    return replace(task, cells=Cells(names, nothing, member, every))


def test_differences_between_layouts_of_cells(tmp_path: Path) -> None:
    """Two questions at one w, with cells that differ by the small (group, label)."""
    n = 20
    target = Target(n, 24, (600, 600, 600))
    first = with_cells(target.task, [0], [1, SMALL], [2])
    second = with_cells(target.task, [0], [1], [2, SMALL])
    w = 0.3 * np.random.default_rng(0).normal(size=24)

    def rebuilt(ask: Ask) -> list[np.ndarray]:
        told = []
        for at in (np.zeros(24), w):
            with_small, without = (ask(Curvature(t, at)) for t in (first, second))
            if with_small is None or without is None:
                return []
            a, b = (of_cell(at, total, 1) for total in (with_small, without))
            told.append(replace(a, hessian=a.hessian - b.hessian))
        return by_eigenvectors(told, n)

    askers: tuple[Ask, ...] = (
        Former(target.silo, target.schema),
        Real(target.site()),
        Private(tmp_path, target.silo, target.schema, 4),
    )
    before, plain, now = (found(target.rows, rebuilt(ask), 1e-3) for ask in askers)
    tell(f"cells that differ by {n} rows", f"{before} rows", modes(plain, now))
    assert (before, plain, now) == (n, n, 0)
    few = Real(Site(target.silo, target.schema, Rules(layouts=1)))
    assert rebuilt(few) == []  # a site that allows one layout answers one of the two
    assert "another layout" in few.refusals[0]


def test_two_hessians_of_a_secure_sum() -> None:
    """Few rows at each of three sites are few rows in all: masks do not change that."""
    targets = [Target(8, 24, seed=k) for k in range(3)]
    silos = [Silo(f"site {k}", k, t.silo.splits) for k, t in enumerate(targets)]
    federation = Federation(targets[0].schema, tuple(silos), "three")
    pool = Pool(3, False, float(sum(len(t.inputs) for t in targets)))
    task, few = replace(targets[0].task, pool=pool), []
    for target in targets:
        inputs = np.asarray(task.model.inputs.apply(target.silo.rows("train").X))
        few += list(inputs[target.strata == SMALL])
    read = []
    for floor in (5, Rules().floor):
        ask = Pooled(federation, Rules(floor=floor))
        told = Trained(task, np.zeros(4)).newton(ask, 4)
        cell = [of_cell(w, total, targets[0].cell) for w, total in told]
        read.append(found(np.array(few), by_eigenvectors(cell, len(few)), 1e-3))
    assert read == [len(few), 0]
    tell(
        "two Hessians of 3 × 8 rows, secure sum, p = 24",
        f"{read[0]} rows",
        "0: fewer than the floor at each site",
    )
