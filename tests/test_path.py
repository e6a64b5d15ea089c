"""Bounds certified for new people: the path of models, its test, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.special import expit, logsumexp
from scipy.stats import binom

import pffl
from pffl.data import Federation, Rows
from pffl.engines import Local
from pffl.errors import DataError, UsageError
from pffl.methods import PFFL
from pffl.prepare import Options
from tests.helpers import make_federation
from tests.inside import (
    INSIDE,
    MAX_MARGIN,
    RECIPES,
    Evidence,
    Judged,
    ModelPath,
    conclude,
)
from tests.interrupting import Stopping, assert_same_bits
from tests.oracles import logsum, plan_bets
from tests.raising import raises

QUICK = Options(baseline=False, smallest_bound=False)


def unlike(seed: int = 5, rows: int = 1200, **options: Any) -> Federation:
    """Two groups whose labels follow different inputs: one model cannot suit both."""
    rng = np.random.default_rng(seed)
    group = (rng.uniform(size=rows) < 0.3).astype(int)
    X = rng.normal(size=(rows, 3))
    score = np.where(group == 1, 1.5 * X[:, 1] + 0.5, 1.5 * X[:, 0])
    y = (rng.uniform(size=rows) < expit(score)).astype(int)
    return Federation.from_arrays(
        X,
        y,
        sensitive_features=np.array(["a", "b"])[group],
        silo=np.arange(rows) % 2,
        random_state=seed,
        **{"test_fraction": 0.4, **options},
    )


def certified(
    federation: Any,
    bound: Any,
    models: int | None = None,
    options: Options = QUICK,
    **asked: Any,
) -> pffl.Solution:
    """Solve along a path of models, and certify one of them."""
    constraint = pffl.BoundedGroupLoss(bound) if isinstance(bound, float) else bound
    options = replace(options, certify=True, models=models)
    return pffl.solve(
        federation, constraint, options=options, **{"random_state": 0, **asked}
    )


def path_of(solution: pffl.Solution) -> ModelPath:
    path = solution.evidence.path
    assert isinstance(path, ModelPath)
    return path


def said(e: Evidence) -> str:
    return str(conclude(e).verdicts["new_people"].sentence)


# By rows, and by plain arithmetic


def losses_of(solution: pffl.Solution, rows: Rows, w: Any, M: float) -> Any:
    """−log of a clipped probability, by hand."""
    scaled = solution.problem.task.model.inputs.apply(rows.X)
    score = np.column_stack([scaled, np.ones(len(rows))]) @ np.array(w)
    least = np.exp(-M)
    return -np.log(np.clip(expit((2 * rows.y - 1) * score), least, 1 - least))


def upper_of(x: Any, bets: Any, weights: Any, delta: float) -> float:
    """Σ π exp(Σ log(1 − γx)) / (1 − γμ)ⁿ = 1/δ, solved for μ by another root finder."""
    sums = np.log1p(-np.outer(np.array(bets), x)).sum(axis=1)

    def above(mean: float) -> float:
        terms = np.log(weights) + sums - len(x) * np.log1p(-np.array(bets) * mean)
        return float(logsumexp(terms) + np.log(delta))

    return 1.0 if above(1.0 - 1e-15) < 0 else float(brentq(above, 0.0, 1.0, xtol=1e-14))


def test_what_is_shown_is_what_the_rows_show():
    """Every test of the sequence by rows, with its own arithmetic, and the rule."""
    federation = unlike()
    tight = certified(federation, 0.76, models=12)
    path, rows = path_of(tight), federation.pooled("test")
    shown = []
    for one in path.candidates:
        within = []
        for z, group in enumerate(federation.schema.groups):
            mine = rows.group == federation.schema.groups.index(group)
            part = Rows.of(rows.X[mine], rows.y[mine], rows.group[mine])
            w = np.array(one.model)
            x = losses_of(tight, part, w, one.loss_bound) / one.loss_bound
            args = one.calibration.bets[z], one.calibration.bet_weights[z]
            upper = one.loss_bound * upper_of(x, *args, 0.8 * 0.05)
            within.append(upper <= 0.76)
        shown.append(all(within))
    assert list(Judged(tight.evidence).tested) == shown[: shown.index(False) + 1]
    assert 0 < shown.index(False) < len(shown)  # the test had something to decide
    assert path.chosen == shown.index(False) - 1
    np.testing.assert_array_equal(tight.w, np.array(path.shipped.model))
    assert tight.exit_code == 0


def test_the_path_is_made_of_training_rows_alone():
    """Other labels on all calibration rows: the same models, order, M and bets."""
    federation = unlike()
    other = replace(
        federation,
        silos=tuple(
            replace(
                silo,
                splits={
                    "train": silo.rows("train"),
                    "test": replace(silo.rows("test"), y=1 - silo.rows("test").y),
                },
            )
            for silo in federation.silos
        ),
    )
    options = replace(QUICK, smallest_bound=True)
    found = [certified(f, 0.8, options=options) for f in (federation, other)]
    first, second = map(path_of, found)
    assert len(first.candidates) == len(second.candidates) == 20
    for one, two in zip(first.candidates, second.candidates, strict=True):
        assert_same_bits(one.model, two.model)
        assert_same_bits(one.training, two.training)
        assert (one.margin, one.loss_bound) == (two.margin, two.loss_bound)
        assert one.calibration.bets == two.calibration.bets
    assert [s.exit_code for s in found] == [0, 4]
    assert second.chosen == 0


def test_the_safest_is_first_and_nearly_as_safe_as_possible():
    """s* by cvxpy: the largest s with mean loss ≤ ζ − s·se in every cell."""
    federation = unlike(rows=400)
    found = certified(federation, 0.68, models=4)
    path = path_of(found)
    margins = [one.margin for one in path.candidates]
    assert margins == sorted(margins, reverse=True)
    rows, model = federation.pooled("train"), found.problem.task.model
    X = np.column_stack([model.inputs.apply(rows.X), np.ones(len(rows.y))])
    w, s = cp.Variable(X.shape[1]), cp.Variable()
    loss = cp.logistic(cp.multiply(1 - 2 * rows.y, X @ w))
    kept = [
        cp.sum(loss[np.flatnonzero(rows.group == a)]) / (rows.group == a).sum()
        <= 0.68 - s * path.spread[a]
        for a in (0, 1)
    ]
    cp.Problem(cp.Maximize(s), kept).solve()
    assert margins[0] == pytest.approx(min(INSIDE * s.value, MAX_MARGIN), rel=2e-3)
    for a in (0, 1):  # a standard error of the mean on so many calibration rows
        values = losses_of(found, rows_of(rows, a), first_of(path), 3.0)
        n = (federation.pooled("test").group == a).sum()
        assert path.spread[a] == pytest.approx(values.std() / np.sqrt(n), rel=0.02)


def rows_of(rows: Any, group: int) -> Rows:
    mine = rows.group == group
    return Rows.of(rows.X[mine], rows.y[mine], rows.group[mine])


def first_of(path: ModelPath) -> Any:
    """Return the model that was trained first: for the bounds as they are."""
    return np.array(path.candidates[-1].model)


def test_promises_are_broken_no_more_often_than_said():
    """A population that is known, a path of given models, the product's own test.

    Models predict one number p for everybody, so that mean losses are known from the
    rates of two cells, and whatever the calibration rows show depends on how many of
    them are positive: the probability of a broken promise is exact.
    """
    rates, M, delta, n = np.array([0.35, 0.6]), 3.0, 0.05, 400
    guesses = np.linspace(0.475, 0.30, 12)  # the safest first, for this bound
    losses = -np.stack([np.log1p(-guesses), np.log(guesses)], axis=1)
    means = np.stack([losses @ [1 - r, r] for r in rates], axis=1)
    bound = float(means[5:7].max(axis=1).mean())  # true for the first six alone
    true = (means <= bound).all(axis=1)
    assert true.tolist() == [True] * 6 + [False] * 6
    ones = np.arange(n + 1)[:, None] * np.ones(2)  # each number of positives, by cell
    shown = np.ones((n + 1, n + 1), dtype=bool)
    chosen = np.full((n + 1, n + 1), -1)
    for place, pair in enumerate(losses):
        bets = plan_bets(
            [n, n],
            delta=delta,
            mean=means[place],
            variance=(pair[1] - pair[0]) ** 2 * rates * (1 - rates),
            loss_bound=M,
        )
        logs = [np.log1p(-bets.gammas * value / M) for value in pair]
        below = (n - ones)[..., None] * logs[0] + ones[..., None] * logs[1]
        total = (n - ones) * pair[0] + ones * pair[1]
        upper = logsum.upper_bounds(bets, below, n, total, loss_bound=M, delta=delta)
        within = upper <= bound
        shown &= within[:, :1] & within[:, 1:].T
        chosen[shown] = place
    first, second = (binom.pmf(np.arange(n + 1), n, rate) for rate in rates)
    likely = np.outer(first, second)
    assert likely[chosen >= 0].sum() > 0.3
    assert 0 < likely[chosen >= 6].sum() <= delta


# What is said


def test_a_cell_without_calibration_rows():
    federation = unlike(rows=300)
    silos = []
    for silo in federation.silos:
        rows = silo.rows("test")
        held = rows.take(np.flatnonzero(rows.group == 0))
        silos.append(replace(silo, splits={**silo.splits, "test": held}))
    found = certified(replace(federation, silos=tuple(silos)), 0.9)
    assert found.exit_code == 4


def test_a_network_along_tightened_bounds():
    pytest.importorskip("torch")

    federation = unlike(rows=400)
    found = certified(
        federation,
        0.95,
        model=RECIPES["mlp"](hidden=(4,)).build(federation.schema),
        method=PFFL(dual_rounds=2, rounds_per_dual=3, local_steps=3, step_size=0.3),
        models=2,
    )
    path = path_of(found)
    assert len(path.candidates) == 2
    margins = [one.margin for one in path.candidates]
    assert margins == sorted(margins, reverse=True)
    np.testing.assert_array_equal(found.w, np.array(path.shipped.model))
    assert found.exit_code == (0 if Judged(found.evidence).by_path else 4)


# Set apart


def test_calibration_rows_are_training_rows_set_apart_with_their_people():
    rng = np.random.default_rng(0)
    people = rng.integers(120, size=400)
    table = pd.DataFrame(rng.normal(size=(400, 2)), columns=["x", "z"])
    table["y"], table["sex"] = rng.integers(2, size=(2, 400))
    table["site"], table["person"] = people % 3, people
    federation = Federation.from_table(
        table, label="y", group="sex", silo="site", id="person", random_state=1
    )
    apart = federation.with_calibration(0.3, random_state=1)
    assert apart.rows("train") + apart.rows("calibration") == federation.rows("train")
    assert apart.rows("calibration") > 0.15 * federation.rows("train")
    who = [
        {p for silo in apart.silos for p in silo.rows(split).person.tolist()}
        for split in ("train", "calibration", "test")
    ]
    assert sum(map(len, who)) == len(who[0] | who[1] | who[2])
    for old, new in zip(federation.silos, apart.silos, strict=True):
        assert_same_bits(old.rows("test"), new.rows("test"))
    with raises(UsageError, "repeated-calibration"):
        apart.with_calibration(0.3)


def test_stopped_at_any_query_it_ends_as_if_it_had_not_been(tmp_path):
    federation = unlike(rows=200)
    asked = {"models": 3}
    whole = certified(federation, 0.7, **asked)
    messages = whole.evidence.training.queries["messages"]
    for at in range(2, messages + 1, 5):
        engine = Stopping(Local(federation), at)
        place = tmp_path / str(at)
        try:
            stopped = certified(engine, 0.7, checkpoint=place, **asked)
        except KeyboardInterrupt:
            pass
        else:
            assert stopped.status == "interrupted"
        again = certified(federation, 0.7, checkpoint=place, **asked)
        assert_same_bits(again.w, whole.w)
        assert_same_bits(again.evidence.path, whole.evidence.path)


def test_under_secure_sums_the_same_path_is_walked():
    federation = make_federation(3, sizes=(400, 300, 350), test=300, heterogeneity=0.1)
    asked = {"models": 3, "options": Options()}
    plain = certified(federation, 0.75, **asked)
    masked = certified(federation, 0.75, secure_sum=True, **asked)
    assert len(path_of(plain).candidates) == len(path_of(masked).candidates) == 3
    assert path_of(plain).chosen == path_of(masked).chosen
    np.testing.assert_allclose(plain.w, masked.w, atol=1e-4)


# Refused


BGL = pffl.BoundedGroupLoss(0.7)
REFUSED: dict[str, tuple[Any, str]] = {
    "no bound": (lambda f: certified(f, None), "needs-bound"),
    "minimax": (lambda f: certified(f, pffl.MinMax()), "needs-bound"),
    "no rows": (
        lambda f: certified(unlike(rows=200, test_fraction=0.0), 0.7),
        "needs-calibration",
    ),
    "numbers": (
        lambda f: certified(make_federation(0, labels=0), 5.0),
        "unbounded-loss",
    ),
    "models alone": (lambda f: Options(models=3), "no-effect"),
    "confidence": (lambda f: pffl.solve(f, BGL, certify=1.5), "wrong-value"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_promised_is_refused(what):
    ask, code = REFUSED[what]
    with raises(UsageError, code):
        ask(unlike(rows=200))


def test_calibration_rows_of_people_in_training_are_refused():
    federation = unlike(rows=200)
    silos = []
    for silo in federation.silos:
        splits = {}
        for split, rows in silo.splits.items():
            splits[split] = replace(rows, person=np.arange(len(rows)))
        silos.append(replace(silo, splits=splits))
    with raises(DataError, "people-shared"):
        certified(replace(federation, silos=tuple(silos)), 0.7)
