"""Two honest runs around one change of rows or of sites.

Between runs on changed rows exact sums differ by those that changed, and nothing but
noise hides them. Another set of sites needs everybody's consent.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.attacks.askers import (
    Former,
    Private,
    Real,
    counted,
    found,
    modes,
    opened,
    people,
    tell,
)
from tests.attacks.product import (
    Curvature,
    CurvatureTotal,
    Rows,
    Rules,
    Silo,
    Site,
    Slopes,
    Task,
    UsageError,
)
from tests.attacks.rebuilding import Told, by_fit, of_cell
from tests.deploy.sites import agree, problem_of, sites_of
from tests.helpers import make_federation, make_schema
from tests.raising import raises

RUNS = ("Monday", "Tuesday")


def without(silo: Silo, row: int) -> Silo:
    """The same silo before a row was added."""

    def others(rows: Rows) -> Rows:
        return rows.take(np.delete(np.arange(len(rows)), row))

    return replace(silo, splits={s: others(silo.rows(s)) for s in silo.splits})


def changed(
    task: Task, first: CurvatureTotal | None, second: CurvatureTotal | None
) -> list[np.ndarray]:
    """The row by which two answers at w = 0 differ: H = ¼ Σ xxᵀ."""
    if first is None or second is None:
        return []
    inputs = task.model.inputs
    differences = second.cell_hessians - first.cell_hessians
    largest = int(np.abs(differences[:, -1, -1]).argmax())
    column = differences[largest, -1]
    if not column[-1]:  # the same question again had the same answer
        return []
    return [column[:-1] / column[-1] * inputs.scale + inputs.mean]


def test_one_row_more(tmp_path: Path) -> None:
    silo, schema = people()
    fewer, row = without(silo, 7), silo.rows("train").X[7:8]
    task = problem_of(Site(silo, schema, Rules())).task
    question = Curvature(task, np.zeros(task.model.n_parameters))

    totals = [Former(rows, schema)(question) for rows in (fewer, silo)]
    spread = silo.rows("train").spread
    before = found(row, changed(task, *totals), 1e-9, spread)
    assert before == 1

    asked = [
        Real(Site(rows, schema, Rules(), tmp_path / "plain"), run)(question)
        for rows, run in zip((fewer, silo), RUNS, strict=True)
    ]
    plain = found(row, changed(task, *asked), 1e-9, spread)
    totals = [
        Private(tmp_path / "noisy", rows, schema, 2, run)(question)
        for rows, run in zip((fewer, silo), RUNS, strict=True)
    ]
    now = found(row, changed(task, *totals), 0.1, spread)
    tell("two runs around one added row", f"{before} of 1 record", modes(plain, now))
    assert (plain, now) == (1, 0)


MOVED = 1e-9  # of each parameter: another question, and the same answer


def test_rows_that_changed_and_a_w_that_hardly_did(tmp_path: Path) -> None:
    """Ten rows may come; what they are is told by gradients before and after."""
    rng, schema = np.random.default_rng(0), make_schema(features=6)
    group, y = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], [300, 300, 300, 310], axis=1)
    whole = Rows.of(rng.normal(size=(len(y), 6)), y, group)
    fewer = whole.take(np.arange(1200))
    silos = [Silo("north", 0, {"train": rows}) for rows in (fewer, whole)]
    task = problem_of(Site(silos[0], schema, Rules())).task
    (cell,) = np.flatnonzero(task.cells.membership[:, 3])
    new = np.asarray(task.model.inputs.apply(whole.X))[1200:]
    asked = 0.7 * rng.normal(size=(24, task.model.n_parameters))

    def rebuilt(first: list[object], second: list[object]) -> list[np.ndarray]:
        told = []
        for w, one, two in zip(asked, first, second, strict=True):
            if one is not None and two is not None:
                a, b = of_cell(w, one, cell), of_cell(w, two, cell)
                apart = (b.loss - a.loss, b.gradient - a.gradient)
                told.append(Told(w, *apart, None))
        return by_fit(told, len(new), 1.0, seed=0)

    def answers(ask: object, moved: float) -> list[object]:
        return [ask(Slopes(task, w + moved)) for w in asked]

    former = [answers(Former(silo, schema), MOVED * k) for k, silo in enumerate(silos)]
    before = found(new, rebuilt(*former), 1e-2)
    assert before == len(new)

    exact = [Real(Site(silo, schema, Rules())) for silo in silos]
    noisy = [
        Private(tmp_path, silo, schema, 2 * len(asked), run)
        for silo, run in zip(silos, RUNS, strict=True)
    ]
    plain, now = (
        found(new, rebuilt(*(answers(ask, MOVED * k) for k, ask in enumerate(asks))), t)
        for asks, t in ((exact, 1e-2), (noisy, 0.1))
    )
    tell(
        f"two runs around {len(new)} added rows, w moved by {MOVED:g}",
        f"{before} of {len(new)} rows",
        modes(plain, now),
    )
    assert (plain, now) == (len(new), 0)


def test_two_sets_of_sites(tmp_path: Path) -> None:
    """The total of four sites less that of three is the fourth's own sum."""
    four = make_federation(0, sizes=(60, 40, 50, 30))
    three = replace(four, silos=four.silos[:3])
    truth = four.silos[3].rows("train").X.sum(axis=0)
    schema, run = four.schema.hash, {"run": {"seed": 0}}
    sets = [(four, agree(four, run=run)), (three, agree(three, run=run))]

    totals = [counted(sites_of(*one), schema, "run") for one in sets]
    difference = totals[0].feature_sums - totals[1].feature_sums
    before = int(np.isclose(difference, truth, rtol=1e-9).sum())
    assert before == len(truth)

    sites = opened(tmp_path, *sets[0])
    assert counted(sites, schema, "Monday").rows.tolist() == [180]
    with raises(UsageError, "not-agreed"):
        opened(tmp_path, *sets[1])
    what = f"{before} of {len(truth)} sums of the fourth site"
    tell("totals over two sets of sites", what, "0: nobody agreed to another set")
