"""FairGrad by hand from raw rows: levels, weights, rounds, and what it reaches."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.errors import DataError, UsageError
from pffl.methods.fairgrad import NOTIONS, FairGrad, constants
from tests.driving import iterate
from tests.helpers import make_federation, make_problem, make_schema, repartition
from tests.methods.biased import Raw, biased, copies, fit, set_up, states, without
from tests.raising import raises

L2 = 0.02


def table(raw, values=None):
    """Sums per (label, group)."""
    out = np.zeros((2, raw.group.max() + 1))
    np.add.at(out, (raw.y.astype(int), raw.group), 1.0 if values is None else values)
    return out


def levels(raw, predicted, notion):
    """F from predictions, straight from the definitions."""
    groups = range(raw.group.max() + 1)
    right = predicted == raw.y
    everyone = np.ones(len(raw), bool)

    def against(values, among):
        return [values[among & (raw.group == a)].mean() - values[among].mean()
                for a in groups]  # fmt: skip

    if notion == "accuracy":
        return np.array(against(right, everyone))
    if notion == "dp":
        return np.array(against(predicted, everyone))
    kept = [against(right, raw.y == y) for y in (0, 1)]
    if notion == "eo":
        kept[0] = [0.0 for _ in groups]
    return np.concatenate(kept)


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("notion", NOTIONS)
def test_levels_are_their_definitions(notion, groups):
    raw = Raw.of(biased(0, groups=groups))
    offsets, slopes = constants(notion, table(raw))
    for seed in range(5):
        predicted = np.random.default_rng(seed).integers(2, size=len(raw)).astype(float)
        errors = table(raw, predicted != raw.y) / table(raw)
        np.testing.assert_allclose(
            offsets + slopes @ errors.ravel(),
            levels(raw, predicted, notion),
            atol=1e-12,
        )


def naive(raw, *, notion, rounds, steps, eta, dual, eps):
    """docs/methods.md, 12, row by row: every w, up and lo."""
    m, N = table(raw), len(raw)
    offsets, slopes = constants(notion, m)
    up, lo, w = np.zeros(len(offsets)), np.zeros(len(offsets)), np.zeros(raw.X.shape[1])
    out = []
    for _ in range(rounds):
        F = levels(raw, raw.positive(w), notion)
        up = np.maximum(0, up + dual * (F - eps))
        lo = np.maximum(0, lo - dual * (F + eps))
        c = np.empty(N)
        for i in range(N):
            g = int(raw.y[i]) * m.shape[1] + raw.group[i]
            price = sum((up[l] - lo[l]) * slopes[l, g] for l in range(len(up)))  # noqa: E741
            c[i] = (m.ravel()[g] / N + price) / m.ravel()[g]
        w = raw.trained(w, c, steps=steps, eta=eta, ridge=L2)
        out.append((w, up, lo, c))
    return out


@pytest.mark.parametrize("engine", [Local, Reference])
@pytest.mark.parametrize("notion", NOTIONS)
def test_every_round_is_the_naive_loops(notion, engine):
    federation = biased(1, sizes=(60, 25, 90), groups=3)
    expected = naive(
        Raw.of(federation),
        notion=notion,
        rounds=8,
        steps=2,
        eta=0.2,
        dual=2.0,
        eps=0.02,
    )
    asker, problem = set_up(federation, engine=engine, l2=L2)
    method = FairGrad(
        notion=notion,
        rounds=8,
        local_steps=2,
        step_size=0.2,
        dual_step_size=2.0,
        gap_bound=0.02,
    )
    seen = list(states(asker, problem, method))
    assert len(seen) == method.planned_rounds == 16
    for state, (w, up, lo, _) in zip(seen[1::2], expected, strict=True):
        np.testing.assert_allclose(state.w, w, atol=1e-12)
        np.testing.assert_allclose(state.up, up, atol=1e-12)
        np.testing.assert_allclose(state.lo, lo, atol=1e-12)
    assert any((c < 0).any() for *_, c in expected), "negative weights are part of it"


@pytest.mark.parametrize(
    "parameters", [{"dual_step_size": 0.0}, {"dual_step_size": 5.0, "gap_bound": 1.0}]
)
def test_without_movement_it_is_fedavg_by_rows(parameters):
    federation = biased(2)
    ours = FairGrad(rounds=30, step_size=0.5, **parameters)
    theirs = pffl.FedAvg(rounds=30, step_size=0.5)
    np.testing.assert_allclose(
        fit(federation, ours, weighting="rows"),
        fit(federation, theirs, weighting="rows"),
        atol=1e-12,
    )


def test_those_worse_off_come_to_weigh_more():
    federation = biased(3)
    raw = Raw.of(federation)
    asker, problem = set_up(federation)
    method = FairGrad(notion="accuracy", rounds=2, dual_step_size=1.0, gap_bound=0.0)
    state = next(s for s in states(asker, problem, method) if s.measured)
    F = levels(raw, raw.positive(state.w), "accuracy")
    weights = method.weights(problem, state).reshape(2, 2).sum(axis=0)
    before = table(raw).sum(axis=0) / len(raw)
    assert weights[np.argmin(F)] > before[np.argmin(F)]
    assert weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("notion", NOTIONS)
def test_it_lowers_its_own_levels(notion):
    federation = biased(4, sizes=(200, 120, 260), pull=2.5)
    raw = Raw.of(federation)
    before, after = (
        np.abs(levels(raw, raw.positive(fit(federation, method)), notion)).max()
        for method in (
            FairGrad(notion=notion, rounds=100, dual_step_size=0.0),
            FairGrad(notion=notion, rounds=150, gap_bound=0.005),
        )
    )
    assert before > 0.02
    assert after < 0.4 * before


def test_silos_share_rows_as_they_like():
    federation = biased(5)
    N = len(Raw.of(federation))
    others = (
        repartition(federation, np.arange(N) % 5),
        repartition(federation, 2 - federation.pooled("train").silo),
    )
    method = FairGrad(notion="eodds", rounds=10, local_steps=1, step_size=0.5)
    w = fit(federation, method)
    for other in others:
        np.testing.assert_allclose(fit(other, method), w, atol=1e-12)
    many = FairGrad(rounds=10, step_size=0.5)
    one, four = (fit(copies(federation, k), many) for k in (1, 4))
    np.testing.assert_allclose(one, four, atol=1e-12)


def test_automatic_steps_are_the_same_on_every_engine():
    federation = biased(6)
    method = FairGrad(rounds=15)
    a, b = (fit(federation, method, engine=engine) for engine in (Local, Reference))
    np.testing.assert_allclose(a, b, atol=1e-9)
    run = iterate(*set_up(federation), method)
    assert run.stopped is None
    assert run.rounds == 31, "one round more for the step size"


def test_cells_without_rows_have_no_level():
    federation = biased(7, groups=3)
    for k in range(3):
        federation = without(federation, k, group=2)
        federation = without(federation, k, group=1, label=1)
    asker = Local(federation)
    problem = make_problem(asker, None, model=pffl.LogisticRegression())
    for notion in NOTIONS:
        *_, last = states(asker, problem, FairGrad(notion=notion, rounds=5))
        assert np.isfinite(last.w).all()
        empty = last.up.reshape(-1, 3)[:, 2]
        np.testing.assert_array_equal(empty, 0.0)


def test_many_classes():
    federation = make_federation(8, labels=3)
    asker = Local(federation)
    problem = make_problem(asker, None, model=pffl.SoftmaxRegression())
    for notion in ("accuracy", "eo", "eodds"):
        *_, last = states(asker, problem, FairGrad(notion=notion, rounds=5))
        assert np.isfinite(last.w).all()
    with raises(UsageError, "needs-two-classes"):
        FairGrad(notion="dp").init(problem)


def test_what_it_cannot_do_is_refused():
    with pytest.raises(UsageError, match="one of accuracy, dp, eo, eodds"):
        FairGrad(notion="fair")
    with raises(UsageError, "wrong-value", "gap_bound"):
        FairGrad(gap_bound=-0.1)
    alone = make_schema(attributes=(("sex", ("f",)),))
    problem = make_problem(Local(make_federation(schema=alone)), None)
    with raises(DataError, "too-few-groups"):
        FairGrad().init(problem)
