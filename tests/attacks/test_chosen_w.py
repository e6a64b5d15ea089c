"""A server that chooses w: windows on an input, hyperplanes in a tail.

Where it reads a site's own sums, without noise, the norm ball and the check of means
and scales stop the sharpest windows, and not all of them. What holds is noise with a
budget (test_window_with_noise.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.attacks.askers import RADIUS, Ask, Former, Real, found, people, reason, tell
from tests.attacks.chosen import (
    FAR,
    WIDE,
    Moved,
    counts_by_value,
    stepped,
    tail,
    window,
)
from tests.attacks.product import (
    Agreement,
    Cells,
    Federation,
    Rows,
    Rules,
    Silo,
    Site,
    Slopes,
    pffl,
)
from tests.deploy.sites import problem_of
from tests.helpers import make_schema

AGES = np.arange(18.0, 81.0)


@pytest.mark.parametrize(
    "moved", [None, FAR, WIDE], ids=["ball", "mean moved", "mean and scale moved"]
)
def test_window_on_an_age(moved: Moved | None, request: pytest.FixtureRequest) -> None:
    silo, schema = people()
    site = Site(silo, schema, Rules())
    task, rows = problem_of(site).task, silo.rows("train")
    strata = schema.strata(rows.group, rows.y)
    truth = counts_by_value(task, rows.X[:, 0], strata, AGES)
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
            true = counts_by_value(task, rows.X[:, 0], strata, ages)
            best = max(best, read.exact(true)[0])
            records = max(records, found(rows.X, read.alone(), 1e-2))
            refusals.append(reason(real))
    tell(
        f"window on age, one site ({request.node.callspec.id})",
        f"{right} of {small} small counts, {before} of {alone} people who are alone",
        f"{best} counts (by chance {chance(truth)}), {records} people: {refusals[0]}",
    )
    if moved is None:  # a window of the ball's own width is sharp enough for years
        assert (best, records) == (small, alone)
        return
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


def test_steps_that_lead_out_of_the_ball() -> None:
    """The w that is sent is in the ball; that of the second local step is not."""
    silo, schema = people()
    site = Site(silo, schema, Rules())
    task, rows = problem_of(site).task, silo.rows("train")
    _, many = np.unique(rows.X[:, 0], return_counts=True)
    former, asker = Former(silo, schema), Real(site)
    edges = AGES + 0.5
    before = found(rows.X, stepped(former, task, schema, edges), 1e-2)
    assert before == (many == 1).sum() > 3
    now = found(rows.X, stepped(asker, task, schema, edges), 1e-2)
    tell(
        "two local steps, the first out of the ball",
        f"{before} of {before} people who are alone with their age",
        f"{now}: {reason(asker)}",
    )
    assert now == 0
    assert "norm ball" in asker.refusals[0]


def test_another_model_than_was_agreed_on() -> None:
    """Huber's loss with a tiny δ has slopes of ±δ: steps of any sharpness, at any w."""
    rng, schema = np.random.default_rng(0), make_schema(labels=0)
    X, group = rng.normal(size=(400, 3)) * 3 + 5, rng.integers(2, size=400)
    rows = Rows.of(X, np.floor(20 + 30 * rng.gamma(2.0, 1.0, 400)), group)
    silo = Silo("north", 0, {"train": rows, "test": rows})
    agreed = Agreement.of(Federation(schema, (silo,), "one"))
    agreed = replace(agreed, run={"model": {"l2": 0.01}, "run": {"seed": 0}})
    site = Site(silo, schema, Rules(), agreement=agreed)
    own = problem_of(site, pffl.BoundedGroupLoss(1e6), pffl.LeastSquares()).task
    task = replace(own, cells=Cells.none(schema))
    inputs, target = task.model.inputs, task.model.target
    steep = pffl.HuberRegression(delta=1e-6).bind(schema, inputs).with_target(target)
    alone = replace(task, model=steep)

    def read(ask: Ask) -> list[np.ndarray]:
        guesses, before = [], None
        for value in np.arange(rows.y.max() + 0.5, 130.0, -1.0):
            w = np.append(np.zeros(3), (value - target.mean) / target.scale)
            total = ask(Slopes(alone, w))
            if total is None:
                return guesses
            if before is not None:
                one = before - total.risk_gradient  # of whoever is between both
                if one[-1] > 0 and abs(one[-1] - least) < 0.1 * least:
                    guesses.append(one[:-1] / one[-1] * inputs.scale + inputs.mean)
            before = total.risk_gradient
        return guesses

    least = 4 * 1e-6 * target.scale / len(rows)
    _, many = np.unique(rows.y[rows.y > 131], return_counts=True)
    before = found(X, read(Former(silo, schema)), 1e-2)
    assert before == (many == 1).sum() > 10
    asker = Real(site)
    now = found(X, read(asker), 1e-2)
    tell(
        "another loss than was agreed on, with steep slopes",
        f"{before} of {before} people who are alone with their target",
        f"{now}: {reason(asker)}",
    )
    assert now == 0
    assert "agreed" in asker.refusals[0]
    assert Real(Site(silo, schema, Rules(), agreement=agreed))(
        Slopes(task, np.zeros(4))
    )
