"""Several rows per person: people are what bounds on unseen people count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.data import Federation
from pffl.engines import Local, Reference
from tests.helpers import evaluate_query, from_silos, make_federation, make_problem


def with_people(federation: Federation, seed: int = 0, people: int = 9) -> Federation:
    """Give rows to people, some of whom have rows in several silos and cells."""
    rng, silos = np.random.default_rng(seed), []
    for silo in federation.silos:
        splits = {
            name: replace(rows, person=rng.integers(people, size=len(rows)))
            for name, rows in silo.splits.items()
        }
        silos.append(replace(silo, splits=splits))
    return from_silos(federation, silos)


def expected(federation, problem, query):
    """People of each cell, person by person: count, sums and log-sums."""
    model, M = problem.task.model, query.loss_bound
    parts = [silo.rows("test") for silo in federation.silos]
    losses = np.concatenate(
        [model.bounded_losses(query.w, model.inputs.apply(r.X), r.y, M) for r in parts]
    )
    group = np.concatenate([rows.group for rows in parts])
    person = np.concatenate([rows.person for rows in parts])
    for z in range(2):
        own = [
            losses[(group == z) & (person == p)].mean()
            for p in sorted(set(person[group == z].tolist()))
        ]
        x = np.array(own) / M
        g = query.bets[z][:, None]
        n, first, second = len(x), x.sum(), (x**2).sum()
        yield [n, 0, n, first, n, first, second], np.log(1 - g * x).sum(axis=1)


@pytest.mark.parametrize("engine", [Reference, Local])
def test_each_person_counts_once_in_a_cell(engine) -> None:
    federation = with_people(make_federation(0, sizes=(20, 30, 40), test=25))
    asker = engine(federation)
    problem = make_problem(asker, pffl.BoundedGroupLoss(0.5))
    w = np.random.default_rng(0).normal(size=problem.n_parameters)
    query = evaluate_query(problem.task, w)
    total = asker.ask(query)
    found = list(expected(federation, problem, query))
    for z, (people, logs) in enumerate(found):
        np.testing.assert_allclose(total.people[z], people, rtol=1e-12)
        np.testing.assert_allclose(total.logs[z].T, [logs, logs], rtol=1e-12)
    # All else is about rows, as ever.
    bare = engine(make_federation(0, sizes=(20, 30, 40), test=25)).ask(query)
    np.testing.assert_allclose(total.cells, bare.cells, rtol=1e-12)
    assert (total.people[:, 0] < total.cells[:, 0]).all()
    sums = bare.cells[:, [0, 3, 4]] / [1, query.loss_bound, query.loss_bound**2]
    np.testing.assert_allclose(bare.people[:, [0, 3, 6]], sums, rtol=1e-12)
