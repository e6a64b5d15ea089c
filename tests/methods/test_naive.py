"""Methods against loops over rows and silos in plain NumPy, round by round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import pffl
from pffl.engines import Local, Reference
from pffl.methods import PFFL, QFFL, FedAvg, GroupWeighted, LocalBGL, Pooled, Reductions
from pffl.problem import Problem
from tests.driving import iterate
from tests.helpers import group_masks, make_federation, make_problem, make_schema
from tests.inside import MIN_SCALE as FLOOR
from tests.inside import SECOND_MOMENT_DECAY as DECAY
from tests.methods.biased import states
from tests.oracles import MODELS, with_groups
from tests.saddle import Oracle

KINDS = pytest.mark.parametrize("kind", list(MODELS))
WEIGHTINGS = pytest.mark.parametrize("weighting", ["silos", "rows"])


def silo_masks(federation):
    silo = federation.pooled("train").silo
    return np.array([silo == k for k in range(silo.max() + 1)])


@dataclass(frozen=True, eq=False)
class Arena:
    """A problem twice: for `pffl`, and as plain arrays."""

    oracle: Oracle
    engine: Any
    problem: Problem
    silos: np.ndarray  # marks the rows of each

    @property
    def zeros(self):
        return np.zeros(self.oracle.classes * self.oracle.X.shape[1])

    @property
    def shares(self):
        return np.array([self.oracle.risk_weights[own].sum() for own in self.silos])

    def run(self, method):
        return iterate(self.engine, self.problem, method)

    def point(self, method):
        return self.run(method).point

    def states(self, method):
        return states(self.engine, self.problem, method)

    def descend(self, w, c, *, steps, eta, ridge=0.0, pull=0.0, drift=0.0):
        """Steps on Σ c_i ℓ_i and a ridge, held back and corrected."""
        v = w
        for _ in range(steps):
            slope = self.oracle.weighted_gradient(v, c) + ridge * v
            v = v - eta * (slope + pull * (v - w) - drift)
        return v


def arena(
    kind="logistic", constraint=None, *, bounds=None, masks=None, federation=None,
    engine=Local, weighting="silos", beta=1.0, budget=5.0, l2=0.02, seed=0, **shape,
):  # fmt: skip
    """One bound for each of two sexes; or a constraint, its cells and their bounds."""
    cls, labels = MODELS[kind]
    federation = federation or make_federation(seed, labels=labels, **shape)
    if bounds is not None and constraint is None:
        constraint = pffl.BoundedGroupLoss(dict(zip("fm", bounds, strict=True)))
    cells = (masks or group_masks)(federation) if constraint else []
    bounds = np.zeros(len(cells)) if bounds is None else bounds
    terms = {"beta": beta, "budget": budget}
    oracle = Oracle.of(
        federation, cells, bounds, kind=kind, l2=l2, weighting=weighting, **terms
    )
    asker = engine(federation)
    options = pffl.Options(weighting=weighting)
    problem = make_problem(
        asker, constraint, model=cls(l2=l2), options=options, **terms
    )
    return Arena(oracle, asker, problem, silo_masks(federation))


def close(found, expected, atol=1e-12):
    np.testing.assert_allclose(found, expected, atol=atol)


def softmax(theta, budget):
    return budget * np.exp(theta) / (1 + np.exp(theta).sum())


def minimum(value, slope, start):
    options = {"gtol": 1e-9}
    return minimize(value, start, jac=slope, method="BFGS", options=options).x


# ----------------------------------------------------------------------------- FedAvg


@WEIGHTINGS
@pytest.mark.parametrize("proximal", [0.0, 0.5])
@KINDS
def test_fedavg(kind, proximal, weighting):
    at = arena(kind, weighting=weighting, l2=0.03)
    w = at.zeros
    local = {"steps": 3, "eta": 0.05, "ridge": at.oracle.l2, "pull": proximal}
    for _ in range(6):
        rows = [at.oracle.risk_weights * own for own in at.silos]
        w = sum(c.sum() * at.descend(w, c / c.sum(), **local) for c in rows)
    method = FedAvg(rounds=6, local_steps=3, step_size=0.05, proximal=proximal)
    run = at.run(method)
    close(run.point.w, w)
    assert run.rounds == 6


def naive_server(updates, server, eta, beta):
    """Return the model after these mean updates (Reddi et al. 2021, algorithm 2)."""
    w, m, v = (np.zeros_like(updates[0]) for _ in range(3))
    for delta in updates:
        if server == "momentum":
            m = beta * m + delta
            w = w + eta * m
            continue
        m = beta * m + (1 - beta) * delta
        if server == "adam":
            v = DECAY * v + (1 - DECAY) * delta**2
        else:
            v = v - (1 - DECAY) * delta**2 * np.sign(v - delta**2)
        w = w + eta * m / (np.sqrt(v) + FLOOR)
    return w


@pytest.mark.parametrize("server", ["momentum", "adam", "yogi"])
def test_server_optimisers_are_their_formulas(server):
    at = arena(engine=Reference, seed=4)
    own = {"server": server, "server_step_size": 0.05, "server_momentum": 0.8}
    method = FedAvg(rounds=6, step_size=0.2, **own)
    asked, updates = [], []
    ask = at.engine.ask
    at.engine.ask = lambda query: asked.append(ask(query)) or asked[-1]
    for state in at.states(method):
        updates.append(asked[-1].update)
        close(state.w, naive_server(updates, server, 0.05, 0.8), 1e-13)
    assert len(updates) == 6


# ------------------------------------------------------------------------------- PFFL


def apart(labels, sizes=(40, 25, 60, 12)):
    """Silos of one sex only, but for the last."""
    federation = make_federation(0, sizes=sizes, labels=labels)
    for k, size in enumerate(sizes[:-1]):
        federation = with_groups(federation, k, np.full(size, k % 2))
    return federation


def naive_pffl(at, *, dual_rounds, rounds, steps, eta, dual_eta, corrected, by_mass):
    """Run Algorithm 1 of docs/methods.md on pooled arrays: all w, λ, upper values."""
    oracle, K = at.oracle, len(at.silos)
    sizes, past = oracle.cells.sum(axis=1), None
    w, theta, ws, lams, seen = at.zeros, np.zeros(len(sizes)), [], [], []
    for _ in range(dual_rounds):
        lam = softmax(theta, oracle.budget)
        for _ in range(rounds):
            seen.append((oracle.upper(w), w, lam))
            r, c = oracle.violation(w), oracle.row_weights(lam)
            moved, masses = np.zeros_like(w), 0.0
            for k, own in enumerate(at.silos):
                there = oracle.cells[:, own].sum(axis=1)
                mass = oracle.beta + K * lam @ (there / sizes) if by_mass else 1.0
                drift = past[k] - np.mean(past, axis=0) if past else 0.0
                local = {"ridge": oracle.beta * oracle.l2, "drift": drift}
                v = at.descend(w, K * c * own, steps=steps, eta=eta / mass, **local)
                moved, masses = moved + mass * (v - w), masses + mass
            if corrected:  # where this round began: the gradient of each silo
                past = [oracle.weighted_gradient(w, K * c * own) for own in at.silos]
            w = w + moved / masses
            ws.append(w)
            lams.append(lam)
        theta = theta + dual_eta * r
    best = min(seen, key=lambda item: item[0])
    return np.array(ws), np.array(lams), best


@pytest.mark.parametrize(
    ("steps", "corrected", "by_mass"),
    [
        (2, False, False),
        (2, True, False),
        (1, False, True),
        (3, False, True),
        (3, True, True),
    ],
)
@KINDS
def test_pffl(kind, steps, corrected, by_mass):
    labels = MODELS[kind][1]
    bounds = (0.55, 0.6) if labels else (1.0, 1.2)
    federation = apart(labels) if by_mass else make_federation(0, labels=labels)
    terms = {"beta": 0.8, "budget": 3.0, "l2": 0.01}
    at = arena(kind, bounds=bounds, federation=federation, **terms)
    numbers = {"dual_rounds": 5, "rounds": 3, "steps": steps, "dual_eta": 4.0}
    numbers |= {"eta": 0.3 if by_mass and labels else 0.05, "corrected": corrected}
    ws, lams, best = naive_pffl(at, **numbers, by_mass=by_mass)
    method = PFFL(
        multiplier_bound=3.0,
        risk_weight=0.8,
        dual_rounds=5,
        rounds_per_dual=3,
        local_steps=steps,
        step_size=numbers["eta"],
        dual_step_size=4.0,
        drift_correction=corrected,
        by_mass=by_mass,
        target_gap=1e-12,
        iterate="average",
    )
    run = at.run(method)
    assert run.rounds == method.planned_rounds == 16  # one of them measures the gap
    trained = [row for row in run.history if row.gap is None]
    for row, lam in zip(trained, lams, strict=True):
        close(row.multipliers, lam, 1e-11)
    for row, w in zip(trained[1:], ws[:-1], strict=True):
        close(row.violation, at.oracle.violation(w), 1e-11)
        assert row.risk == pytest.approx(at.oracle.risk(w), abs=1e-11)
        assert row.upper == pytest.approx(at.oracle.upper(w), abs=1e-11)
    counts = np.arange(1.0, 16) ** 7
    recent = (np.average(each, axis=0, weights=counts) for each in (ws, lams))
    for name, (w, lam) in {
        "average": (ws.mean(axis=0), lams.mean(axis=0)),
        "recent": recent,
        "last": (ws[-1], lams[-1]),
        "best": best[1:],
    }.items():
        point = at.point(replace(method, iterate=name))
        close(point.w, w, 1e-11)
        close(point.multipliers, lam, 1e-11)
    if by_mass:
        plain = naive_pffl(at, **numbers, by_mass=False)[0]
        assert np.abs(plain[-1] - ws[-1]).max() > 1e-3


# -------------------------------------------------------------------------- Local BGL


def lopsided(labels):
    """Silo 1 has nobody of group 1."""
    sizes = {"sizes": (60, 20, 90), "heterogeneity": 1.0}
    federation = make_federation(0, labels=labels, **sizes)
    return with_groups(federation, 1, np.zeros(20, int))


def naive_local_bgl(at, *, dual_rounds, rounds, steps, eta, dual_eta):
    """One dictionary of θ per silo: all w and mean prices."""
    oracle, silos, p = at.oracle, at.silos, at.shares
    cells = [
        (k, z, own & cell)
        for k, own in enumerate(silos)
        for z, cell in enumerate(oracle.cells)
        if (own & cell).any()
    ]
    thetas = [{z: 0.0 for j, z, _ in cells if j == k} for k in range(len(silos))]
    w, ws, prices = at.zeros, [], []
    for _ in range(dual_rounds):
        lams = []
        for theta in thetas:
            below = 1 + sum(np.exp(v) for v in theta.values())
            lams.append(
                {z: oracle.budget * np.exp(v) / below for z, v in theta.items()}
            )
        for _ in range(rounds):
            losses, mean = oracle.losses(w), np.zeros_like(w)
            for k, lam in enumerate(lams):
                c = oracle.beta * silos[k] / silos[k].sum()
                for j, z, rows in cells:
                    if j == k:
                        c = c + lam[z] * rows / rows.sum()
                ridge = oracle.beta * oracle.l2
                mean += p[k] * at.descend(w, c, steps=steps, eta=eta, ridge=ridge)
            w = mean
            ws.append(w)
            prices.append(
                [p @ [lam.get(z, 0.0) for lam in lams] for z in range(2)]  # of all
            )
        for k, z, rows in cells:
            thetas[k][z] += dual_eta * (losses[rows].mean() - oracle.bounds[z])
    return np.array(ws), np.array(prices)


@WEIGHTINGS
@KINDS
def test_local_bgl(kind, weighting):
    labels = MODELS[kind][1]
    bounds = (0.55, 0.6) if labels == 2 else (0.9, 1.0)
    terms = {"beta": 0.8, "budget": 3.0, "weighting": weighting}
    at = arena(kind, bounds=bounds, federation=lopsided(labels), **terms)
    numbers = {"dual_rounds": 4, "rounds": 3, "steps": 2, "eta": 0.03, "dual_eta": 4.0}
    ws, prices = naive_local_bgl(at, **numbers)
    method = LocalBGL(
        dual_rounds=4,
        rounds_per_dual=3,
        local_steps=2,
        step_size=0.03,
        dual_step_size=4.0,
        iterate="average",
    )
    point = at.point(method)
    close(point.w, ws.mean(axis=0))
    close(point.multipliers, prices.mean(axis=0))
    close(at.point(replace(method, iterate="last")).w, ws[-1])


# ------------------------------------------------------------- groups, silos weighed


@WEIGHTINGS
@pytest.mark.parametrize("steps", [1, 3])
@KINDS
def test_group_weighted(kind, steps, weighting):
    at = arena(kind, bounds=(0.1, 0.1), weighting=weighting, l2=0.03)
    sizes, w = at.oracle.cells.sum(axis=1), at.zeros
    c = (1 / (len(sizes) * sizes)) @ at.oracle.cells  # the mean of the groups' means
    ridge = at.oracle.l2
    local = {"steps": steps, "eta": 0.1, "ridge": ridge}
    for _ in range(8):
        own = zip(at.shares, at.silos, strict=True)
        w = sum(p * at.descend(w, c * silo / p, **local) for p, silo in own)
    method = GroupWeighted(rounds=8, local_steps=steps, step_size=0.1)
    close(at.point(method).w, w)
    if steps == 1:  # where it ends
        best = minimum(
            lambda v: c @ at.oracle.losses(v) + ridge / 2 * v @ v,
            lambda v: at.oracle.weighted_gradient(v, c) + ridge * v,
            at.zeros,
        )
        close(at.point(GroupWeighted(rounds=900, local_steps=1)).w, best, 2e-6)


@pytest.mark.parametrize("q", [0.1, 1.0, 4.0])
@WEIGHTINGS
def test_qffl_ends_at_its_minimum(q, weighting):
    shape = {"sizes": (60, 12, 90), "heterogeneity": 1.5}
    at = arena(bounds=(0.5, 0.5), weighting=weighting, l2=0.0, **shape)
    sizes, p = at.silos.sum(axis=1), at.shares

    def means(w):
        return at.silos @ at.oracle.losses(w) / sizes

    def slope(w):
        return at.oracle.weighted_gradient(w, (p * means(w) ** q / sizes) @ at.silos)

    best = minimum(lambda w: p @ means(w) ** (q + 1) / (q + 1), slope, at.zeros)
    close(at.point(QFFL(q=q, rounds=600, local_steps=1)).w, best, 2e-5)


# ------------------------------------------------------------------ Reductions, Pooled


@KINDS
def test_reductions(kind):
    """Rows with weights (1 + λ_a/p_a)/m, p_a = m_a/m, and scipy for the learner."""
    bounds = (0.55, 0.62) if kind == "logistic" else (0.9, 1.0)
    terms = {"budget": 4.0, "weighting": "rows", "sizes": (60, 15, 90)}
    at = arena(kind, bounds=bounds, **terms)
    oracle, m = at.oracle, len(at.oracle.X)
    shares, theta, hs, lams = oracle.cells.sum(axis=1) / m, np.zeros(2), [], []
    for _ in range(4):
        lam = softmax(theta, oracle.budget)
        rows = (1 + (lam / shares) @ oracle.cells) / m
        h = minimum(
            lambda w, rows=rows: rows @ oracle.losses(w) + oracle.l2 / 2 * w @ w,
            lambda w, rows=rows: oracle.weighted_gradient(w, rows) + oracle.l2 * w,
            at.zeros,
        )
        hs.append(h)
        lams.append(lam)
        theta = theta + 3.0 * oracle.violation(h)
    method = Reductions(iterations=4, dual_step_size=3.0, target_gap=1e-12)
    point = at.point(method)
    close(point.w, np.mean(hs, axis=0), 1e-6)
    close(point.multipliers, np.mean(lams, axis=0), 1e-6)


@pytest.mark.parametrize("method", [Reductions(), Pooled()])
@WEIGHTINGS
@KINDS
def test_without_bounds_it_is_the_minimum(kind, weighting, method):
    """Pooled weighs by rows, whatever is said."""
    at = arena(kind, weighting=weighting, sizes=(60, 10, 90))
    if method.name == "pooled":
        terms = {"kind": kind, "l2": 0.02, "weighting": "rows"}
        oracle = Oracle.of(at.engine.federation, [], [], **terms)
    else:
        oracle = at.oracle
    run = at.run(method)
    assert run.rounds < 12
    assert np.linalg.norm(oracle.gradient(run.point.w, np.zeros(0))) < 1e-8
    assert oracle.risk(run.point.w) <= oracle.saddle()[0] + 1e-9


def test_directions_without_curvature_are_left_alone():
    schema = make_schema(features=2)
    federation = make_federation(3, schema=schema, sizes=(50, 50))
    for silo in federation.silos:
        X = silo.rows("train").X
        X.flags.writeable = True
        X[:, 1] = X[:, 0]
    at = arena(federation=federation, l2=0.0, weighting="rows")
    w = at.point(Pooled()).w
    assert w[0] == pytest.approx(w[1], abs=1e-9)
    assert np.linalg.norm(at.oracle.gradient(w, np.zeros(0))) < 1e-10
