"""Inputs of few values: sums over a cell are linear in how many people have each.

Answers yes and no have few possible rows, whatever the number of people is: how often
each is there is all that is unknown. Exact sums tell it; sums with noise do not.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

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


class Questionnaire:
    """Answers yes or no of people at a site, and all rows that are possible."""

    def __init__(self, X: np.ndarray, y: np.ndarray, group: np.ndarray, stratum: int):
        self.schema, rows = make_schema(features=X.shape[1]), Rows.of(X, y, group)
        self.silo = Silo("north", 0, {"train": rows, "test": rows})
        self.site = Site(self.silo, self.schema, Rules())
        self.task = problem_of(self.site).task
        (self.cell,) = np.flatnonzero(self.task.cells.membership[:, stratum])
        every = np.array(list(product([0.0, 1.0], repeat=X.shape[1])))
        inputs = self.task.model.inputs
        scaled = (every - inputs.mean) / inputs.scale
        self.patterns = np.column_stack([scaled, np.ones(len(every))])
        self.mine = X[self.schema.strata(group, y) == stratum]
        self.truth = (self.mine[:, None] == every).all(axis=2).sum(axis=0)

    def tables(
        self, folder: Path, asked: int, ask_all: Callable[[Any], Any], label: float
    ) -> list[np.ndarray]:
        """How often each row is there: by version 0.1.0, a real site, under noise."""
        noisy = Private(folder, self.silo, self.schema, asked)
        found = []
        for ask in (Former(self.silo, self.schema), Real(self.site), noisy):
            totals = ask_all(ask)
            told = [of_cell(w, t, self.cell) for w, t in totals if t is not None]
            none = np.zeros(len(self.patterns))
            found.append(table_of(told, self.patterns, label) if told else none)
        return found


def test_a_table_of_yes_and_no_is_not_read_from_sums_with_noise(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (200, 4)).astype(float)
    y = (rng.random(200) < expit(X @ [2.0, -1.0, 1.0, -2.0])).astype(float)
    people = Questionnaire(X, y, rng.integers(0, 2, 200), 1)

    def descent(ask: Any) -> Any:
        return Trained(people.task, np.zeros(4)).descent(ask, 6)

    tables, truth = people.tables(tmp_path, 6, descent, 1.0), people.truth
    read, n = [int(truth[t == truth].sum()) for t in tables], len(people.mine)
    tell(
        f"four yes-or-no inputs, {n} people, one run of 6 gradients",
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
    people = Questionnaire(X, y, group, 3)
    ws = 0.9 * np.random.default_rng(1).normal(size=(20, d + 1))

    def drawn(ask: Any) -> Any:
        return [(w, ask(Expand(people.task, w))) for w in ws]

    tables = people.tables(tmp_path, 20, drawn, 1.0)
    read = [int(np.minimum(t, people.truth).sum()) for t in tables]
    tell(
        f"ten yes-or-no inputs, {n} people, a fit over all 1,024 possible rows",
        f"{read[0]} of {n} people from 20 gradients",
        modes(*read[1:]),
    )
    assert read[:2] == [n, n]
    assert read[2] <= n * n / 1024 + 3 * np.sqrt(n * n / 1024)
