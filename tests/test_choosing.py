"""bound = "auto": chosen on training rows set aside, and on nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

import pffl
from pffl import runs
from pffl._solve import prepared, setting_of
from pffl.config import parse
from pffl.data import Federation, Rows
from pffl.driver import drive
from pffl.engines import Local
from pffl.errors import NotMetError, UsageError
from pffl.prepare import Options
from pffl.select import BOUND_TRIALS as POINTS
from pffl.select import choose_bound, find_smallest, pick, set_aside
from tests.cli.helpers import SMALL
from tests.cli.helpers import pffl as command
from tests.helpers import make_federation
from tests.inside import Address, Choice, Training, deploy, tables
from tests.inside import evidence_evidence_Trial as Trial
from tests.raising import raises

AUTO = pffl.BoundedGroupLoss("auto")
FEW = Options(baseline=False, smallest_bound=False)


def unlike(seed: int = 5, rows: int = 300) -> Federation:
    """Two groups whose labels follow different inputs: one model cannot suit both."""
    rng = np.random.default_rng(seed)
    group = (rng.uniform(size=2 * rows) < 0.25).astype(int)
    X = rng.normal(size=(2 * rows, 3))
    score = np.where(group == 1, 1.5 * X[:, 1] + 0.5, 1.5 * X[:, 0])
    y = (rng.uniform(size=2 * rows) < expit(score)).astype(int)
    return Federation.from_arrays(
        X,
        y,
        sensitive_features=np.array(["a", "b"])[group],
        silo=np.arange(2 * rows) % 2,
        seed=seed,
    )


def choice_of(solution: pffl.Solution) -> Choice:
    assert isinstance(solution.evidence.training, Training)
    choice = solution.evidence.training.choice
    assert choice is not None
    return choice


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 2), max_size=8), st.integers(0, 4))
def test_the_rule(pairs, limit):
    trials = [Trial(1.0, worst, "z", error) for worst, error in pairs]
    place = pick(trials, limit)
    within = [worst for worst, error in pairs if error <= limit]
    assert (place is None) == (not within)
    if place is not None:
        assert pairs[place][1] <= limit
        assert pairs[place][0] == min(within)
        assert pairs[:place].count(pairs[place]) == 0  # of equal ones the first


def test_the_figures_are_those_of_models_trained_without_the_rows_set_aside():
    federation = unlike()
    solution = pffl.solve(federation, AUTO, options=FEW, seed=0)
    choice, apart = choice_of(solution), set_aside(federation, 0)
    free, *others = choice.trials
    assert (choice.aside, choice.rows) == (apart.rows("validation"), 480)
    assert len(others) == POINTS
    bounds = [trial.bound for trial in others]
    assert bounds == sorted(bounds, reverse=True)
    for trial in (free, others[0], others[4]):
        bound = None if trial.bound is None else pffl.BoundedGroupLoss(trial.bound)
        found = pffl.solve(apart, bound, options=FEW, seed=0)
        worst, error = measured(found, apart)
        assert trial.worst == pytest.approx(worst, abs=1e-4)
        assert trial.error == pytest.approx(error, abs=1e-9)
    assert choice.error_at_most == pytest.approx(free.error + 0.01)
    assert choice.bound == others[pick(others, choice.error_at_most)].bound
    assert choice.bound < others[0].bound  # it does something
    assert solution.evidence.bounds.tolist() == [choice.bound] * 2
    assert solution.status == "met"


def measured(solution: pffl.Solution, apart: Federation) -> tuple[float, float]:
    """Worst group's mean loss, and error, on validation rows, by plain NumPy."""
    rows, model = apart.pooled("validation"), solution.problem.task.model
    X = (rows.X - model.inputs.mean) / model.inputs.scale
    score = X @ solution.w[:-1] + solution.w[-1]
    low = np.exp(-float(solution.loss_bound or 0.0))
    right = np.clip(expit(np.where(rows.y == 1, score, -score)), low, 1 - low)
    losses = [-np.log(right[rows.group == a]).mean() for a in (0, 1)]
    return max(losses), float(np.mean((score > 0) != (rows.y == 1)))


def test_the_run_is_that_of_the_bound_and_held_out_rows_play_no_part():
    federation = unlike(4)
    chosen = pffl.solve(federation, AUTO, options=FEW, seed=3)
    bound = pffl.BoundedGroupLoss(choice_of(chosen).bound)
    again = pffl.solve(federation, bound, options=FEW, seed=3)
    np.testing.assert_array_equal(chosen.w, again.w)
    silos = tuple(
        replace(silo, splits={**silo.splits, "test": flipped(silo.rows("test"))})
        for silo in federation.silos
    )
    other = pffl.solve(replace(federation, silos=silos), AUTO, options=FEW, seed=3)
    assert choice_of(other) == choice_of(chosen)
    np.testing.assert_array_equal(chosen.w, other.w)
    assert other.test != chosen.test


def flipped(rows: Rows) -> Rows:
    return replace(rows, X=-5.0 * rows.X, y=1.0 - rows.y)


def test_an_error_may_be_asked_for_and_one_that_nothing_has_is_refused():
    federation = unlike()
    _, *others = choice_of(pffl.solve(federation, AUTO, options=FEW, seed=0)).trials
    least = min(trial.error for trial in others)
    with raises(NotMetError, "no-such-bound") as caught:
        solve_within(federation, least - 0.02)
    advised = float(str(caught.value).rpartition("error_at_most=")[2].partition("`")[0])
    choice = choice_of(solve_within(federation, advised))
    assert choice.declared
    best = min(t.worst for t in others if t.error <= advised)
    assert choice.bound == next(t.bound for t in others if t.worst == best)
    wide = choice_of(solve_within(federation, 0.9))
    assert wide.bound == min(others, key=lambda trial: trial.worst).bound
    with raises(UsageError, "options-conflict"):
        pffl.solve(federation, pffl.BoundedGroupLoss(0.7), options=within(0.3))


def within(error: float) -> Options:
    return replace(FEW, error_at_most=error)


def solve_within(federation: Federation, error: float) -> pffl.Solution:
    return pffl.solve(federation, AUTO, options=within(error), seed=0)


def test_bounds_that_are_numbers_are_kept():
    federation = unlike()
    some = pffl.BoundedGroupLoss({"a": 0.62, "b": "auto"})
    solution = pffl.solve(federation, some, options=FEW, seed=0)
    bound = choice_of(solution).bound
    assert solution.evidence.bounds.tolist() == [0.62, bound]
    assert solution.evidence.training.constraint["bound"] == {"a": 0.62, "b": bound}
    assert solution.status == "met"
    assert {trial.cell for trial in choice_of(solution).trials} == {"b"}
    # The smallest that 'b' can have while 'a' keeps its own, found by another search.
    plain = pffl.Exact(risk_weight=0.0)
    problem, _ = prepared(Local(federation), some.at(0.0), None, plain, Options(), 0)
    least = drive(Local(federation), find_smallest(problem, np.array([False, True])))
    kept = pffl.feasible(federation, some.at(0.9), cells=["b"]).cells[0].kept
    assert kept.upper < least < kept.upper * 1.0021
    tight = pffl.BoundedGroupLoss({"a": 0.3, "b": "auto"})
    with raises(UsageError, "auto-refused"):
        pffl.solve(federation, tight, options=FEW, seed=0)
    both = pffl.BoundedGroupLoss("auto") & pffl.PerSilo(0.9)
    assert both.at(0.5) == pffl.BoundedGroupLoss(0.5) & pffl.PerSilo(0.9)


def test_numeric_targets_count_their_mean_loss():
    federation = make_federation(0, sizes=(150, 100), test=0, labels=0)
    choice = choice_of(pffl.solve(federation, AUTO, options=FEW, seed=0))
    assert choice.error_at_most == pytest.approx(1.01 * choice.trials[0].error)


def test_l2_is_chosen_first_and_without_the_bound():
    federation = unlike(2, rows=60)
    auto = replace(FEW, l2="auto")
    both = pffl.solve(federation, AUTO, options=auto, seed=0)
    alone = pffl.solve(federation, None, options=auto, seed=0)
    l2, bound = both.evidence.notes[:2]
    assert l2 == next(n for n in alone.evidence.notes if n.startswith("l2 ="))
    assert bound.startswith("bound =")


@pytest.mark.parametrize("method", [pffl.FedAvg(), pffl.Exact(risk_weight=0.0)])
def test_it_is_refused_where_there_is_nothing_to_choose(method):
    with raises(UsageError, "auto-refused"):
        pffl.solve(make_federation(0), AUTO, method=method)


def test_what_is_no_single_run_refuses_it():
    federation = make_federation(0)
    spec = parse({"data": {"name": "synthetic"}, "constraint": {"bound": "auto"}})
    with raises(UsageError, "auto-refused"):
        deploy(spec, {}, {}, "nowhere", address=Address.parse("server.test:9092"))
    for wrong in (pffl.feasible, lambda f, c: pffl.solve_many(f, [(c, pffl.Exact())])):
        with raises(UsageError, "auto-refused"):
            wrong(federation, AUTO)


def test_a_comparison_without_a_bound_chooses_the_same():
    federation, engine = unlike(), Local(unlike())
    setting, model = setting_of(engine), pffl.LogisticRegression()
    choice = choose_bound(engine, setting, AUTO, model, pffl.Exact(), Options(), 0)
    some = {"methods": ["exact"], "seeds": [0]}
    asked = (AUTO, "bgl", pffl.BoundedGroupLoss(choice.bound))
    found = [pffl.compare(federation, one, **some).records[0] for one in asked]
    assert found[0].sums == found[1].sums == found[2].sums


def test_run_files_and_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    spec = parse({"data": {"name": "compas"}, "constraint": {"bound": "auto"}})
    assert spec.constraint == AUTO
    some = {"bound": {"Female": "auto", "Male": 0.5}}
    spec = parse({"data": {"name": "compas"}, "constraint": some})
    assert spec.constraint == pffl.BoundedGroupLoss({"Female": "auto", "Male": 0.5})
    out = tmp_path / "run"
    seen = command(capsys, "run", *SMALL, "--bound", "auto", "--out", out)
    assert seen.code == 0, seen.err
    assert 'bound = "auto"' in (out / "run.toml").read_text()
    record = runs.read_run(out)
    shown = tables.tried_bounds(record.evidence)
    assert shown[0]["bound tried"] == "none"
    assert sum("◀" in row["bound tried"] for row in shown) == 1
    none = command(capsys, "run", *SMALL, "--bound", "auto", "--error-at-most", "0.001")
    assert (none.code, none.error) == (4, "no-such-bound")
    for wrong in (("--bound", "0.6", "--error-at-most", "0.2"), ("--bound", "atuo")):
        assert command(capsys, "run", *SMALL, *wrong).code == 2


def test_a_run_with_a_chosen_bound_is_verified(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    place = tmp_path / "run"
    command(capsys, "run", *SMALL, "--bound", "auto", "--out", place)
    assert command(capsys, "verify", place).code == 0
