"""Inputs of few values: sums over a cell are linear in how many people have each.

Answers yes and no have few possible rows, whatever the number of people is: how often
each is there is all that is unknown. Exact sums tell it; sums with noise do not.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
from scipy.optimize import nnls
from scipy.special import expit

from pffl.data import Rows, Silo
from pffl.queries import Expand
from tests.attacks.askers import Former, Private, Real, modes, tell
from tests.attacks.product import Rules, Site
from tests.attacks.rebuilding import Told, Trained, of_cell
from tests.deploy.sites import problem_of
from tests.helpers import make_schema


def table_of(told: list[Told], patterns: np.ndarray, label: float) -> np.ndarray:
    """How many people of a cell have each pattern, from sums of losses and slopes."""
    sides, sums = [], []
    for t in told:
        z = patterns @ t.w
        losses = np.logaddexp(0, z) - label * z
        sides += [losses[None], ((expit(z) - label)[:, None] * patterns).T]
        sums += [[t.loss], t.gradient]
    return np.rint(nnls(np.concatenate(sides), np.concatenate(sums))[0])


def test_a_table_of_yes_and_no_is_not_read_from_sums_with_noise(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    schema = make_schema(features=4)
    X = rng.integers(0, 2, (200, 4)).astype(float)
    y = (rng.random(200) < expit(X @ [2.0, -1.0, 1.0, -2.0])).astype(float)
    rows = Rows.of(X, y, rng.integers(0, 2, 200))
    silo = Silo("north", 0, {"train": rows, "test": rows})
    site = Site(silo, schema, Rules())
    task = problem_of(site).task
    every = np.array(list(product([0.0, 1.0], repeat=4)))
    scaled = (every - task.model.inputs.mean) / task.model.inputs.scale
    patterns = np.column_stack([scaled, np.ones(16)])

    cell = 1
    (stratum,) = np.flatnonzero(task.cells.membership[cell])
    mine = X[schema.strata(rows.group, rows.y) == stratum]
    truth = np.array([(mine == pattern).all(axis=1).sum() for pattern in every])
    label = float(y[schema.strata(rows.group, rows.y) == stratum][0])

    read = []
    noisy = Private(tmp_path, silo, schema, 6)
    for ask in (Former(silo, schema), Real(site), noisy):
        told = Trained(task, np.zeros(4)).descent(ask, 6)
        shown = [of_cell(w, total, cell) for w, total in told]
        counts = table_of(shown, patterns, label) if shown else np.zeros(16)
        read.append(int(truth[counts == truth].sum()))
    n = len(mine)
    tell(
        f"four yes-or-no inputs, {n} people, one run of {len(told)} gradients",
        f"{read[0]} of {n} people",
        modes(*read[1:]),
    )
    assert read[:2] == [n, n]
    assert read[2] < n / 2


def test_a_fit_over_all_possible_rows_finds_nobody(tmp_path: Path) -> None:
    """Of ten answers yes or no, 1,024 rows are possible, and few of them are there.

    A fit that takes away from nobody finds n people with 2n numbers, not with n·d.
    """
    rng = np.random.default_rng(0)
    n, d, sizes = 60, 10, [1000, 1000, 1000, 60]
    group, y = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], sizes, axis=1)
    X = rng.integers(0, 2, (len(y), d)).astype(float)
    rows, schema = Rows.of(X, y, group), make_schema(features=d)
    silo = Silo("north", 0, {"train": rows, "test": rows})
    site = Site(silo, schema, Rules())
    task = problem_of(site).task
    every = np.array(list(product([0.0, 1.0], repeat=d)))
    scaled = (every - task.model.inputs.mean) / task.model.inputs.scale
    patterns = np.column_stack([scaled, np.ones(len(every))])
    (cell,) = np.flatnonzero(task.cells.membership[:, 3])
    truth = np.bincount(
        (X[-n:] @ 2.0 ** np.arange(d)[::-1]).astype(int), minlength=1024
    )

    read = []
    noisy = Private(tmp_path, silo, schema, 20)
    for ask in (Former(silo, schema), Real(site), noisy):
        asked = 0.9 * np.random.default_rng(1).normal(size=(20, d + 1))
        totals = [(w, ask(Expand(task, w))) for w in asked]
        told = [of_cell(w, total, cell) for w, total in totals if total is not None]
        counts = table_of(told, patterns, 1.0) if told else np.zeros(1024)
        read.append(int(np.minimum(counts, truth).sum()))
    tell(
        f"ten yes-or-no inputs, {n} people, a fit over all 1,024 possible rows",
        f"{read[0]} of {n} people from 20 gradients",
        modes(*read[1:]),
    )
    assert read[:2] == [n, n]
    assert read[2] <= n * n / 1024 + 3 * np.sqrt(n * n / 1024)
