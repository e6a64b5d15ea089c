"""Sums over weighted rows: against plain loops, in both engines, and refused if odd."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.data import Federation
from pffl.engines import Local, Reference
from pffl.errors import UsageError
from pffl.queries import Evaluate
from tests.helpers import (
    assert_same_total,
    from_silos,
    make_federation,
    make_problem,
)
from tests.inside import STAKES
from tests.raising import raises

M, S_MAX = 1.5, 5.0


def with_weights(people: int | None = None) -> Federation:
    """Rows with weights, some above `S_MAX`; of people who have several, if asked."""
    rng, silos = np.random.default_rng(0), []
    federation = make_federation(0, sizes=(20, 30, 40), test=25)
    for silo in federation.silos:
        splits = {}
        for name, rows in silo.splits.items():
            weight = np.minimum(rng.lognormal(0.5, 0.6, len(rows)), 6.0)
            who = None if people is None else rng.integers(people, size=len(rows))
            splits[name] = replace(rows, weight=weight, person=who)
        silos.append(replace(silo, splits=splits))
    return from_silos(federation, silos)


def query_of(engine: Reference) -> Evaluate:
    problem = make_problem(engine, pffl.BoundedGroupLoss(0.5))
    w = np.random.default_rng(1).normal(size=problem.n_parameters)
    bets = np.array([[0.1, 0.5, 0.99], [0.2, 0.3, 0.7]])
    levels = np.array([[0.0, 0.4, 0.4, M], [0.0, 0.6, 1.0, M]])
    more = {"bets": bets, "levels": levels, "weight_bound": S_MAX}
    return Evaluate(problem.task, w, "test", M, **more)


def plain(federation: Federation, query: Evaluate, cell: int):
    """Person by person: `STAKES`, and log-sums by bet and level."""
    model, rows = query.task.model, [s.rows("test") for s in federation.silos]
    people: dict[object, list[tuple[float, float]]] = {}
    above = 0
    for k, part in enumerate(rows):
        X = model.inputs.apply(part.X)
        losses = model.bounded_losses(query.w, X, part.y, M)
        for i in np.flatnonzero(part.group == cell):
            who = (k, i) if part.person is None else int(part.person[i])
            t = min(part.weight[i] / S_MAX, 1.0)
            above += part.weight[i] > S_MAX
            people.setdefault(who, []).append((t, t * losses[i] / M))
    pairs = [np.mean(values, axis=0) for values in people.values()]
    sums = np.array([(t, u, t * t, t * u, u * u) for t, u in pairs]).sum(axis=0)
    logs = [
        [
            sum(np.log(1 - g * (u + (1 - t) * zeta / M)) for t, u in pairs)
            for zeta in query.levels[cell]
        ]
        for g in query.bets[cell]
    ]
    return [len(pairs), above, *sums], logs


@pytest.mark.parametrize("people", [None, 12])
@pytest.mark.parametrize("engine", [Reference, Local])
def test_the_sums_are_those_of_plain_loops(engine, people) -> None:
    federation = with_weights(people)
    asker = engine(federation)
    query = query_of(asker)
    total = asker.ask(query)
    for cell in range(2):
        stakes, logs = plain(federation, query, cell)
        np.testing.assert_allclose(total.people[cell], stakes, rtol=1e-12)
        np.testing.assert_allclose(total.logs[cell], logs, rtol=1e-12)
    assert total.people[:, STAKES.index("above")].any()


def test_engines_agree_and_only_moments_come_without_bets() -> None:
    federation = with_weights()
    fast, slow = Local(federation), Reference(federation)
    query = query_of(slow)
    assert_same_total(fast.ask(query), slow.ask(query), 1e-12)
    task, w = query.task, query.w
    moments = Evaluate(task, w, "train", M, weight_bound=S_MAX)
    assert_same_total(fast.ask(moments), slow.ask(moments), 1e-12)
    assert fast.ask(moments).people.any()
    assert not fast.ask(Evaluate(task, w, "train", M)).people.any()


def test_levels_need_bets_a_bound_on_weights_and_one_on_losses() -> None:
    query = query_of(Local(with_weights()))
    nothing = np.zeros(0)
    for wrong in (
        {"levels": query.levels[:, ::-1]},
        {"levels": query.levels + 1},
        {"levels": nothing},
        {"bets": nothing},
        {"weight_bound": np.inf},
        {"weight_bound": 0.0},
        {"bets": nothing, "levels": nothing, "loss_bound": np.inf},
    ):
        with raises(UsageError, "wrong-levels"):
            replace(query, **wrong)
