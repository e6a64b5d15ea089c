"""FairFed by hand from raw rows: distances, weights of silos, rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.engines import Local, Reference
from pffl.errors import DataError, UsageError
from pffl.methods.fairfed import FairFed, distances, reweighing
from pffl.questions import Train
from tests.helpers import (
    assert_same_total,
    from_silos,
    make_federation,
    make_problem,
    make_schema,
    repartition,
)
from tests.methods.biased import (
    Raw,
    biased,
    copies,
    fit,
    gap,
    set_up,
    states,
    without,
)
from tests.raising import raises

L2 = 0.02


def away_by_hand(raw, w, metric):
    """|F − F_k|, or the distance of accuracies where F_k is undefined."""
    positive, right = raw.positive(w), 1 - raw.wrong(w)
    among = raw.y == 1 if metric == "eod" else np.ones(len(raw), bool)

    def rate(a, rows):
        own = positive[rows & among & (raw.group == a)]
        return own.mean() if len(own) else np.nan

    everyone = np.ones(len(raw), bool)
    rates = [rate(a, everyone) for a in range(raw.group.max() + 1)]
    high, low = int(np.argmax(rates)), int(np.argmin(rates))
    F = rates[high] - rates[low]
    out = []
    for k in range(raw.silo.max() + 1):
        rows = raw.silo == k
        F_k = rate(high, rows) - rate(low, rows)
        off = abs(right.mean() - right[rows].mean())
        out.append(off if np.isnan(F_k) else abs(F - F_k))
    return np.array(out)


def naive(raw, *, metric, variant, debiasing, beta, rounds, steps, eta):
    """docs/methods.md, 11: every ω and w."""
    K, N = raw.silo.max() + 1, len(raw)
    shares = np.bincount(raw.silo) / N
    omega, w, out = shares.copy(), np.zeros(raw.X.shape[1]), []
    for _ in range(rounds):
        away = away_by_hand(raw, w, metric)
        if variant == "2021":
            omega = shares * np.exp(-beta * away)
        else:
            omega = np.maximum(0, omega - beta * (away - away.mean()))
        omega = omega / omega.sum()
        c = np.empty(N)
        for i in range(N):
            own = raw.silo == raw.silo[i]
            same_a, same_y = raw.group == raw.group[i], raw.y == raw.y[i]
            times = 1.0
            if debiasing == "reweighing":
                expected = (own & same_a).sum() * (own & same_y).sum() / own.sum()
                times = expected / (own & same_a & same_y).sum()
            c[i] = omega[raw.silo[i]] * times / own.sum()
        w = raw.trained(w, c, steps=steps, eta=eta, ridge=L2, shares=omega)
        out.append((omega, w))
    assert len(out[0][0]) == K
    return out


CASES = {
    "2023": ({}, lambda: biased(0)),
    "2021": ({"variant": "2021"}, lambda: biased(0)),
    "parity": ({"metric": "spd"}, lambda: biased(1)),
    "three groups": ({"debiasing": "none"}, lambda: biased(2, groups=3)),
    "undefined": ({}, lambda: without(biased(3), 1, group=0, label=1)),
    "a silo loses all weight": ({"fairness_budget": 8.0}, lambda: biased(4)),
}


@pytest.mark.parametrize("engine", [Local, Reference])
@pytest.mark.parametrize("name", CASES)
def test_every_round_is_the_naive_loops(name, engine):
    changes, draw = CASES[name]
    federation = draw()
    parameters = {
        "metric": "eod",
        "variant": "2023",
        "debiasing": "reweighing",
        "fairness_budget": 0.5,
        **changes,
    }
    named = {k: v for k, v in parameters.items() if k != "fairness_budget"}
    expected = naive(
        Raw.of(federation),
        **named,
        beta=parameters["fairness_budget"],
        rounds=8,
        steps=3,
        eta=0.5,
    )
    asker, problem = set_up(federation, engine=engine, l2=L2)
    method = FairFed(**parameters, rounds=8, local_steps=3, step_size=0.5)
    seen = list(states(asker, problem, method))
    assert len(seen) == method.planned_rounds == 16
    for state, (omega, w) in zip(seen[1::2], expected, strict=True):
        np.testing.assert_allclose(state.silo_weights, omega, atol=1e-12)
        np.testing.assert_allclose(state.w, w, atol=1e-12)
    if name == "a silo loses all weight":
        assert any((omega == 0).any() for omega, _ in expected)
    moved = np.abs(expected[-1][0] - method.init(problem).silo_weights)
    assert moved.max() > 0.005, "the weights of silos have moved"


def test_weights_start_at_shares_and_a_budget_of_one_is_felt():
    # From raw counts (120, 50, 200) a step of about 0.1 would be invisible.
    federation = biased(5)
    _, problem = set_up(federation)
    method = FairFed(fairness_budget=1.0)
    start = method.init(problem).silo_weights
    np.testing.assert_allclose(start, np.array([120, 50, 200]) / 370)
    moved = method.moved(start, np.array([0.3, 0.1, 0.2]), start)
    np.testing.assert_allclose(moved, start + np.array([-0.1, 0.1, 0]), atol=1e-12)
    clamped = method.moved(start, np.array([0.0, 0.9, 0.0]), start)
    np.testing.assert_allclose(
        clamped, np.array([120 / 370 + 0.3, 0.0, 200 / 370 + 0.3]) / (320 / 370 + 0.6)
    )


def test_distances_of_signed_gaps():
    positive = np.array([[8.0, 1.0], [1.0, 8.0], [5.0, 0.0]])
    counts = np.array([[10.0, 10.0], [10.0, 10.0], [10.0, 0.0]])
    F = 14 / 30 - 9 / 20
    expected = [abs(F - 0.7), abs(F + 0.7), np.nan]  # opposite gaps are far apart
    np.testing.assert_allclose(distances(positive, counts), expected)
    even = np.array([[3.0, 1.0], [1.0, 3.0]])  # alike over all rows, not in a silo
    np.testing.assert_allclose(distances(even, np.full((2, 2), 4.0)), [0.5, 0.5])


def test_reweighing_makes_group_and_label_independent():
    counts = np.random.default_rng(0).integers(1, 30, size=(3, 2, 2)).astype(float)
    weighted = reweighing(counts) * counts
    for table, raw in zip(weighted, counts, strict=True):
        assert table.sum() == pytest.approx(raw.sum())
        np.testing.assert_allclose(table.sum(axis=0), raw.sum(axis=0))
        np.testing.assert_allclose(table.sum(axis=1), raw.sum(axis=1))
        assert np.linalg.det(table) == pytest.approx(0.0, abs=1e-9)
    counts[1, 0, 1] = 0.0
    assert reweighing(counts)[1, 0, 1] == 0.0


def test_without_budget_and_debiasing_it_is_fedavg_by_rows():
    federation = biased(6)
    for variant in ("2023", "2021"):
        ours = FairFed(
            fairness_budget=0.0, debiasing="none", variant=variant, rounds=30
        )
        np.testing.assert_allclose(
            fit(federation, replace(ours, step_size=0.5)),
            fit(federation, pffl.FedAvg(rounds=30, step_size=0.5), weighting="rows"),
            atol=1e-12,
        )


def test_a_silo_without_weight_still_tells_its_losses():
    federation = biased(7)
    local, problem = set_up(federation)
    task = replace(problem.task, shares=np.array([0.4, 0.0, 0.6]))
    for steps in (1, 3):
        question = Train(
            task, np.array([0.5, 0.1, 0.0, -0.2]), 1.0, np.zeros(2), np.full(steps, 0.3)
        )
        total = local.ask(question)
        assert_same_total(total, Reference(federation).ask(question), 1e-12)
        raw = Raw.of(federation)
        sums = np.bincount(raw.group, raw.losses(question.w))
        np.testing.assert_allclose(total.cell_losses, sums)


def test_alike_silos_keep_their_weights():
    federation = biased(8)
    four, problem = set_up(copies(federation, 4))
    method = FairFed(fairness_budget=5.0, rounds=10, step_size=0.5)
    for state in states(four, problem, method):
        np.testing.assert_allclose(state.silo_weights, 0.25, atol=1e-12)
    one = fit(copies(federation, 1), method)
    np.testing.assert_allclose(state.w, one, atol=1e-12)


def test_the_order_of_silos_plays_no_part():
    federation = biased(9)
    turned = repartition(federation, 2 - federation.pooled("train").silo)
    method = FairFed(rounds=15)
    a, b = fit(federation, method), fit(turned, method)
    np.testing.assert_allclose(a, b, atol=1e-9)
    np.testing.assert_allclose(fit(federation, method, engine=Reference), a, atol=1e-9)


@pytest.mark.parametrize(("metric", "label"), [("eod", 1), ("spd", None)])
def test_it_lowers_its_own_gap(metric, label):
    federation = biased(10, sizes=(250, 200, 300), pull=4.0)
    raw = Raw.of(federation)
    plain = fit(federation, pffl.FedAvg(rounds=100), weighting="rows")
    fair = fit(federation, FairFed(metric=metric, rounds=100))
    assert gap(raw, fair, label=label) < 0.6 * gap(raw, plain, label=label)


def test_a_silo_unlike_the_others_loses_weight():
    even, odd = biased(1, sizes=(300,) * 3, pull=0.0), biased(2, sizes=(250,), pull=6.0)
    apart = replace(odd.silos[0], name="apart")
    federation = from_silos(even, (*even.silos, apart))
    raw = Raw.of(federation)
    plain = fit(federation, pffl.FedAvg(rounds=60), weighting="rows")
    assert np.argmax(away_by_hand(raw, plain, "eod")) == 3
    asker, problem = set_up(federation)
    *_, last = states(asker, problem, FairFed(debiasing="none", rounds=60))
    assert last.silo_weights[3] == 0
    fair = away_by_hand(raw, last.w, "eod")
    assert fair.max() < 0.8 * away_by_hand(raw, plain, "eod").max()


def test_what_it_cannot_do_is_refused():
    for parameter in ("metric", "variant", "debiasing"):
        with raises(UsageError, "wrong-value", parameter):
            FairFed(**{parameter: "other"})
    with raises(UsageError, "wrong-value", "fairness_budget"):
        FairFed(fairness_budget=-1.0)
    three = make_federation(labels=3)
    problem = make_problem(Local(three), None, model=pffl.SoftmaxRegression())
    with raises(UsageError, "needs-two-classes"):
        FairFed().init(problem)
    alone = make_schema(attributes=(("sex", ("f",)),))
    problem = make_problem(Local(make_federation(schema=alone)), None)
    with raises(DataError, "too-few-groups"):
        FairFed().init(problem)
