"""A server that chooses w reads nobody: windows on an input, hyperplanes in a tail."""

from __future__ import annotations

import numpy as np
import pytest

from pffl.site import Rules, Site
from tests.attacks.askers import RADIUS, Former, Real, found, people, reason, tell
from tests.attacks.chosen import FAR, WIDE, Moved, counts_by_value, tail, window
from tests.site.sites import problem_of

AGES = np.arange(18.0, 81.0)


@pytest.mark.parametrize(
    "moved", [None, FAR, WIDE], ids=["ball", "mean moved", "mean and scale moved"]
)
def test_window_on_an_age(moved: Moved | None, request: pytest.FixtureRequest) -> None:
    silo, schema = people()
    site = Site(silo, schema, Rules())
    task, rows = problem_of(site).task, silo.rows("train")
    atoms = schema.atoms(rows.group, rows.y)
    truth = counts_by_value(task, rows.X[:, 0], atoms, AGES)
    alone = int((truth == 1).sum())

    former = Former(silo, schema)
    read = window(former, task, AGES, radius=RADIUS, moved=moved)
    right, small = read.exact(truth)
    before = found(rows.X, read.alone(), 1e-2)
    assert right == small > 100
    assert before == alone > 20

    # With few questions it looks at the oldest, who are alone; in balls of all sizes.
    best, records, refusals = 0, 0, []
    ball = site.rules.radius
    for radius in (RADIUS, ball, 0.95 * ball, 0.85 * ball):
        for ages in (AGES, AGES[::-1][:25], AGES[::-1][:12]):
            real = Real(Site(silo, schema, Rules()))
            read = window(real, task, ages, radius=radius, moved=moved)
            true = counts_by_value(task, rows.X[:, 0], atoms, ages)
            best = max(best, read.exact(true)[0])
            records = max(records, found(rows.X, read.alone(), 1e-2))
            refusals.append(reason(real))
    tell(
        f"window on age, one site ({request.node.callspec.id})",
        f"{right} of {small} small counts, {before} of {alone} people who are alone",
        f"{best} counts (by chance {chance(truth)}), {records} people: {refusals[0]}",
    )
    assert records == 0
    assert best <= chance(truth)


def chance(truth: np.ndarray) -> int:
    """How many small counts are right if all are guessed to be the commonest."""
    small = truth[(truth > 0) & (truth <= 9)]
    return int(np.bincount(small).max())


def test_hyperplane_in_the_tail() -> None:
    silo, schema = people(inputs=9)
    site = Site(silo, schema, Rules())
    task, rows = problem_of(site).task, silo.rows("train")
    former = Former(silo, schema)
    before = found(rows.X, tail(former, task, radius=RADIUS, questions=200), 2e-2)
    assert before >= 10
    now, asked = 0, 0
    for radius in (RADIUS, site.rules.radius):
        real = Real(Site(silo, schema, Rules()))
        guesses = tail(real, task, radius=radius, questions=200)
        now = max(now, found(rows.X, guesses, 2e-2))
        asked += real.number - len(real.refusals)
    tell(
        "hyperplanes in the tail, 200 questions, one site",
        f"{before} whole records",
        f"{now} ({asked} answered)",
    )
    assert now == 0
