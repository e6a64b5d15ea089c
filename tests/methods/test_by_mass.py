"""Steps divided by a silo's mass: by hand, and what they are for."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.errors import Malformed, UsageError
from pffl.methods import METHODS, PFFL, FedAvg, FedMinMax, LocalBGL
from pffl.models import Network
from pffl.queries import Train
from tests.driving import iterate
from tests.helpers import make_problem, train_query
from tests.methods.test_naive import apart, arena
from tests.raising import raises

BETA, L2 = 0.8, 0.01


def set_up():
    federation = apart(2)
    terms = {"beta": BETA, "budget": 6.0, "l2": L2}
    at = arena(bounds=(0.4, 0.45), federation=federation, **terms)
    return federation, at.oracle, at.engine, at.problem


@pytest.mark.parametrize("dual", [0.0, 5.0, 50.0])
def test_no_price_makes_a_step_longer_than_that_of_the_steepest_row(dual):
    """Without it, one-sex silos go up to 1 + λ·K·m_kz/m_z times as far."""
    federation, oracle, _, problem = set_up()
    w, eta = np.full(4, 0.3), 0.2
    steepest = np.linalg.norm(oracle.X, axis=1).max() + L2 * np.linalg.norm(w)
    lam, longest = np.array([dual, dual]), {}
    for by_mass in (False, True):
        query = train_query(problem, w, lam, steps=[eta], by_mass=by_mass)
        views = Reference(federation).views(query)
        reached = [query.descend(view) for view in views]
        longest[by_mass] = max(np.linalg.norm(v - w) for v in reached)
    assert longest[True] <= eta * steepest
    if dual == 50.0:
        assert longest[False] > 3 * eta * steepest


def test_it_is_the_default_of_networks():
    _, _, _, problem = set_up()
    assert PFFL().normalizes(problem), "and of PFFL's, where the step size is ours"
    assert not PFFL(step_size=0.1).normalizes(problem)
    assert not PFFL(iterate="average").normalizes(problem), "the paper's"
    assert not LocalBGL().normalizes(problem)
    assert FedAvg(by_mass=True).normalizes(problem)
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 2)
    engine = Local(apart(2))
    model = Network(module)
    network = make_problem(engine, pffl.BoundedGroupLoss(0.5), model=model)
    for name in ("pffl", "fedavg", "local-bgl", "group-weighted", "fedminmax"):
        assert METHODS[name]().normalizes(network), name
        assert next(METHODS[name]().run(network)).by_mass
    assert not PFFL(by_mass=False).normalizes(network)
    assert PFFL(drift_correction=True).normalizes(network)
    assert not FedAvg(drift_correction=True).normalizes(network)
    for name in ("afl", "qffl", "fairfed"):
        assert not METHODS[name]().normalizes(network), name


def test_what_has_no_meaning_is_refused():
    _, _, engine, problem = set_up()
    both = FedMinMax(by_mass=True, drift_correction=True)
    with raises(UsageError, "parameters-conflict", "by_mass"):
        iterate(engine, problem, both)
    w, none = np.zeros(4), np.zeros(2)
    anchor = {"anchor": w, "anchor_weights": none, "anchor_gradient": w}
    steps = np.array([0.1])
    with raises(Malformed, "bad-message", "mass"):
        Train(problem.task, w, 0.0, none, steps, by_mass=True, **anchor)
