from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.driver import drive
from pffl.errors import NotMetError, UsageError
from pffl.files import Journal
from pffl.methods import METHODS
from pffl.preparation import Options
from tests.helpers import make_federation
from tests.inside import (
    L2_GRID,
    LEAST_POINTS,
    MEASURES,
    STEPS,
    Comparison,
    Footing,
    Study,
    combinations,
    compare,
    default_model,
    known_methods,
    measures,
    plan,
    space,
)
from tests.inside import study_trial_Trial as Trial
from tests.raising import raises
from tests.study.test_experiment import row as row_with

BUDGET = 60


def load(seed):
    return pffl.datasets.synthetic(
        400, silos=3, features=3, seed=seed, validation_fraction=0.25
    )


CONSTRAINT = pffl.BoundedGroupLoss(0.6)
SHARED = {"model": pffl.LogisticRegression(), "budget": BUDGET, "least_people": 1}


def footing(federation, budget=BUDGET):
    shared = (SHARED["model"], budget, 0, 0, Options(), Journal(None))
    return Footing(federation, *shared)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_runs_within_the_budget(name):
    chosen = combinations(space(name, SHARED["model"]))[0]
    trial = Trial(name, name, chosen, CONSTRAINT)
    ((row,),) = footing(load(0)).rows([trial], "test")
    assert row.reason is None
    found = measures(row)
    assert set(found) == set(MEASURES)
    assert 0 <= found["error"] <= 1
    alone = ("auto", "exact", "first-order", "pooled", "reductions")
    if name not in alone:  # these end by themselves
        evaluations = row.costs["rounds"] / 2  # of those that look before each round
        setup = 2 * STEPS  # what finding step sizes takes, once
        assert row.costs["passes"] <= BUDGET + 2 + setup + evaluations


@pytest.mark.parametrize("batch_size", [None, 10])
def test_a_training_costs_its_rounds_and_local_steps(batch_size):
    values = {"dual_rounds": 4, "rounds_per_dual": 3, "local_steps": 5}
    values |= {"step_size": 0.1, "dual_step_size": 1.0, "batch_size": batch_size}
    at = footing(make_federation(0, sizes=(40, 40, 40)), budget=None)
    flow = at.trying(Trial("pffl", "pffl", values, CONSTRAINT), ["test"])
    tried = drive(at.engine, flow)
    assert tried.costs["rounds"] == tried.run.rounds == 12
    share = 1.0 if batch_size is None else 10 / 40
    assert tried.costs["passes"] == pytest.approx(12 * 5 * share)
    # Every round sends at least w and brings at least an update and the cells' losses.
    assert tried.costs["bytes"] >= 3 * 8 * 12 * (4 + 4 + 2)
    assert 0 < tried.costs["seconds"] < 60
    assert len(tried.sums) == 1


def test_every_method_has_a_search_of_at_least_eight_points():
    """Of a linear model; where there are fewer than asked for, it says why."""
    model = SHARED["model"]
    names = known_methods(None)
    for name in names:
        points = combinations(space(name, model))
        assert len(points) >= LEAST_POINTS
        assert points[0]["l2"] == model.l2
    plans, reasons = plan(names, CONSTRAINT, model, 12)
    fewer = {name for name, trials in plans.items() if len(trials) < 12}
    assert set(reasons) == fewer
    assert all("points" in text for text in reasons.values())
    assert default_model(load(0).schema).l2 in L2_GRID


def test_a_table_has_means_and_standard_errors_and_is_resumed(tmp_path):
    some = {"methods": ("fedavg", "exact"), "seeds": 2, "out": tmp_path, **SHARED}
    whole = compare(load, CONSTRAINT, **some)
    before = (tmp_path / "rows.jsonl").read_bytes()
    assert compare(load, CONSTRAINT, **some).rows == whole.rows
    assert (tmp_path / "rows.jsonl").read_bytes() == before
    errors = [measures(r)["error"] for r in whole.rows if r.method == "exact"]
    found = whole.table.loc["exact", ["error", "error_se"]].tolist()
    spread = np.std(errors, ddof=1) / np.sqrt(2)
    assert found == pytest.approx([np.mean(errors), spread])


def test_tuning_looks_at_validation_only():
    some = {"methods": ("fedavg", "pffl"), "seeds": [0], "within": 0.2}
    found = compare(load, CONSTRAINT, trials=8, **some, **SHARED)
    splits = [row.split for row in found.rows]
    assert splits.count("test") == 2
    assert splits.count("validation") == 2 * 8
    study = found.study
    tried = [r for r in found.rows if r.method == "pffl" and r.split == "validation"]
    chosen = next(r for r in found.rows if r.method == "pffl" and r.split == "test")
    best = min(tried, key=lambda r: study.values(r)["worst_cell_loss"])
    assert dict(chosen.parameters) == dict(best.parameters)
    assert study.trials == {"fedavg": 8, "pffl": 8}


def test_one_failure_does_not_end_a_comparison(monkeypatch):
    def broken(self, problem):
        raise UsageError("broken on purpose")

    monkeypatch.setattr(pffl.PFFL, "init", broken)
    found = compare(load, CONSTRAINT, methods=("fedavg", "pffl"), seeds=1, **SHARED)
    assert found.table.loc["pffl", "failed"] == "broken on purpose"
    assert np.isnan(found.table.loc["pffl", "error"])
    assert found.table.loc["fedavg", "failed"] == ""
    with raises(NotMetError, "all-failed"):
        compare(load, CONSTRAINT, methods=["pffl"], seeds=1, **SHARED)


@pytest.mark.parametrize(
    ("constraint", "more", "code"),
    [
        ("other", {}, "unknown-name"),
        (CONSTRAINT, {"methods": ("fedavg", "other")}, "unknown-method"),
        (CONSTRAINT, {"measure": "loss"}, "unknown-measure"),
    ],
)
def test_what_is_refused(constraint, more, code):
    with raises(UsageError, code):
        compare(load, constraint, seeds=1, **more)


def test_command(command, tmp_path):
    done = command(
        *("compare", "synthetic", "--set", "data.rows=400", "--silos", "3"),
        *("--methods", "fedavg,exact", "--seeds", "2", "--budget", "20"),
        *("--out", tmp_path / "out"),
    )
    assert done.code == 0, done.err
    assert "no difference shown" in done.out
    for name in ("rows.jsonl", "table.csv", "rows.json", "figure.png"):
        assert (tmp_path / "out" / name).stat().st_size > 0


def row_of(method, seed, loss):
    if loss is None:
        return replace(row_with(method, {"a": 1.0}, seed=seed), sums={}, reason="no")
    return row_with(method, {"a": loss, "b": loss - 9.0}, seed=seed)


def test_differences_are_paired_by_seed_and_their_interval_is_students():
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(0)
    base = rng.normal(size=6)  # the seeds differ far more than the methods
    other = base + 0.1 + 0.02 * rng.normal(size=6)
    rows = [row_of("fedavg", s, base[s]) for s in range(6)]
    rows += [row_of("exact", s, other[s]) for s in reversed(range(6))]
    rows += [row_of("afl", s, base[s] + 0.3) for s in range(6)]
    rows += [row_of("qffl", 0, base[0] + 1.0)]
    rows += [row_of("qffl", s, None) for s in range(1, 6)]
    compared = Comparison(Study(tuple(rows), "worst_cell_loss"))
    found = compared.differences("worst_cell_loss").set_index("method")
    assert list(found.index) == ["exact", "afl", "qffl"]
    ends = ttest_rel(other, base).confidence_interval(0.95)
    assert found.loc["exact", ["low", "high"]].tolist() == pytest.approx(list(ends))
    assert found.loc["exact", "mean"] == pytest.approx((other - base).mean())
    assert found.loc["exact", "verdict"] == "higher"
    assert found.loc["qffl", "seeds"] == 1
    # One seed has no interval, and a method without all seeds no word.
    assert found.loc[["qffl"], ["low", "high"]].isna().all(axis=None)
    assert found.loc["qffl", "verdict"] == "no difference shown"
    to = compared.differences("worst_cell_loss", to="exact")
    assert to.set_index("method").loc["fedavg", "mean"] == pytest.approx(
        -found.loc["exact", "mean"]
    )
