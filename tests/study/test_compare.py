import json

import numpy as np
import pytest

import pffl
from pffl.driver import drive
from pffl.engines import Local
from pffl.errors import NotMetError, UsageError
from pffl.files import Journal
from pffl.methods import METHODS
from pffl.preparation import Options
from pffl.questions.smoothness import STEPS
from pffl.solving import setting_of
from pffl.study.compare import (
    MEASURES,
    Comparison,
    Footing,
    Row,
    best,
    compare,
    drawn,
    known_methods,
    standard_error,
)
from pffl.study.sweep import smallest_bound
from tests.helpers import make_federation

BUDGET = 60


def load(seed):
    return pffl.datasets.synthetic(
        400, silos=3, features=3, seed=seed, validation_fraction=0.25
    )


CONSTRAINT = pffl.BoundedGroupLoss(0.6)
SHARED = {"model": pffl.LogisticRegression(), "budget": BUDGET}


def footing(federation):
    shared = (CONSTRAINT, SHARED["model"], BUDGET, 0, Options())
    return Footing(federation, *shared, Journal(None))


def test_every_method_is_a_candidate_and_fedavg_the_first():
    names = known_methods(None)
    assert names == [name for name in METHODS if name != "auto"]  # names another
    assert names[0] == "fedavg"  # whose l2 is tuned for all


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_runs_within_the_budget(name):
    (chosen,) = drawn(METHODS[name].grid, 1, 0)
    (row,) = footing(load(0)).rows(name, chosen, "test")
    assert row.reason is None
    assert set(row.measures) == set(MEASURES)
    assert 0 <= row.measures["error"] <= 1
    alone = ("auto", "exact", "first-order", "pooled", "reductions")
    if name not in alone:  # these end by themselves
        found = 2 * STEPS  # what finding step sizes takes, once
        assert row.costs["gradients"] <= BUDGET + 2 + found


@pytest.mark.parametrize("batch_size", [None, 10])
def test_a_training_costs_its_rounds_and_local_steps(batch_size):
    engine = Local(make_federation(0, sizes=(40, 40, 40)))
    method = pffl.PFFL(
        dual_rounds=4,
        rounds_per_dual=3,
        local_steps=5,
        step_size=0.1,
        dual_step_size=1.0,
        batch_size=batch_size,
    )
    flow = footing(engine.federation).trying(setting_of(engine), method, ["test"])
    run, costs, measures = drive(engine, flow)
    assert costs["rounds"] == run.rounds == 12
    share = 1.0 if batch_size is None else 10 / 40
    assert costs["gradients"] == pytest.approx(12 * 5 * share)
    # Every round sends at least w and brings at least an update and the cells' losses.
    assert costs["bytes"] >= 3 * 8 * 12 * (4 + 4 + 2)
    assert 0 < costs["seconds"] < 60
    assert set(measures) == {"test"}


def test_trials_are_distinct_and_start_with_the_default():
    grid = {"a": (1, 2, 3), "b": ("x", "y")}
    trials = drawn(grid, 4, seed=0)
    assert trials[0] == {"a": 1, "b": "x"}
    assert len({json.dumps(t) for t in trials}) == 4
    assert len(drawn(grid, 100, seed=0)) == 6


def test_the_same_table_when_resumed(tmp_path):
    some = {"methods": ("fedavg", "exact"), "seeds": 2, **SHARED}
    whole = compare(load, CONSTRAINT, out=tmp_path, **some)
    assert len(whole.rows) == 4
    before = (tmp_path / "rows.jsonl").read_bytes()
    asked = []
    again = compare(
        load,
        CONSTRAINT,
        out=tmp_path,
        report=lambda *what: asked.append(what),
        **some,
    )
    assert (tmp_path / "rows.jsonl").read_bytes() == before
    assert again.rows == whole.rows
    assert [done for _, done, _ in asked] == [0, 1, 2, 3]
    table = whole.table
    errors = [r.measures["error"] for r in whole.rows if r.method == "exact"]
    assert table.loc["exact", "error"] == pytest.approx(np.mean(errors))
    assert table.loc["exact", "error_se"] == pytest.approx(
        np.std(errors, ddof=1) / np.sqrt(2)
    )


def test_tuning_looks_at_validation_only():
    some = ("fedavg", "pffl")
    found = compare(load, CONSTRAINT, methods=some, seeds=[0], trials=2, **SHARED)
    splits = [row.split for row in found.rows]
    assert splits.count("test") == 2
    assert splits.count("validation") == 4 + 2 * 2  # l2 by FedAvg, then two trials each
    tried = [r for r in found.rows if r.method == "pffl" and r.split == "validation"]
    chosen = next(r for r in found.rows if r.method == "pffl" and r.split == "test")
    assert dict(chosen.parameters) == dict(best(tried).parameters)


def test_one_failure_does_not_end_a_comparison(monkeypatch):
    def broken(self, problem):
        raise UsageError("broken on purpose")

    monkeypatch.setattr(pffl.PFFL, "init", broken)
    found = compare(load, CONSTRAINT, methods=("fedavg", "pffl"), seeds=1, **SHARED)
    assert found.table.loc["pffl", "failed"] == "broken on purpose"
    assert np.isnan(found.table.loc["pffl", "error"])
    assert found.table.loc["fedavg", "failed"] == ""
    with pytest.raises(NotMetError, match="every trial failed"):
        compare(load, CONSTRAINT, methods=["pffl"], seeds=1, **SHARED)


def test_a_notion_is_compared_at_a_bound_that_is_just_possible():
    some = {"methods": ["exact"], "seeds": 1, "budget": BUDGET}
    data = load(0)
    found = compare(data, "per-silo", **some)
    least = smallest_bound(data, pffl.PerSilo(0.0))
    same = compare(load, pffl.PerSilo(least), model=SHARED["model"], **some)
    assert found.rows[0].measures == same.rows[0].measures
    tight = pffl.solve(data, pffl.PerSilo(least), seed=0)
    assert tight.status in ("met", "within_slack")
    assert pffl.solve(data, pffl.PerSilo(0.99 * least), seed=0).status == "infeasible"
    with pytest.raises(UsageError, match="no notion 'other'"):
        compare(load, "other", seeds=1)


def test_a_comparison_shows_itself(tmp_path):
    some = {"methods": ["fedavg", "exact"], "seeds": 2, "budget": 5}
    found = compare(load, CONSTRAINT, out=tmp_path, **some)
    lines = repr(found).splitlines()
    assert lines[0] == "Comparison of 2 methods"
    assert [line.split()[0] for line in lines[-2:]] == ["fedavg", "exact"]
    assert found._repr_html_().startswith('<article class="pffl-comparison">')
    assert found._repr_html_().count("<tr>") == 3
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert rows == json.loads(json.dumps(found.as_dict()["rows"]))


def test_ctrl_c_ends_a_comparison_and_leaves_no_row(monkeypatch, tmp_path):
    def stopped(self, problem, state):
        raise KeyboardInterrupt

    monkeypatch.setattr(pffl.Exact, "question", stopped)
    some = {"methods": ["fedavg", "exact"], "seeds": 1, **SHARED}
    with pytest.raises(KeyboardInterrupt):
        compare(load, CONSTRAINT, out=tmp_path, **some)
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 1


def test_unknown_methods_are_refused():
    with pytest.raises(UsageError, match="no methods"):
        known_methods(("fedavg", "other"))


def test_small_things():
    assert np.isnan(standard_error([1.0]))
    assert best([Row("a", 0, "test", {}, reason="x"), row := _row(0.5)]) is row


def _row(loss):
    return Row("a", 0, "test", {}, {"worst_cell_loss": loss})


def test_command(command, tmp_path):
    done = command(
        *("compare", "synthetic", "--set", "data.rows=400", "--silos", "3"),
        *("--methods", "fedavg,exact", "--seeds", "2", "--budget", "20"),
        *("--out", tmp_path / "out"),
    )
    assert done.code == 0, done.err
    assert "fedavg" in done.out
    assert "±" in done.out
    for name in ("rows.jsonl", "table.csv", "rows.json", "figure.png"):
        assert (tmp_path / "out" / name).stat().st_size > 0


def row_of(method: str, seed: int, loss: float | None) -> Row:
    measures = {"worst_cell_loss": loss}
    reason = None if loss is not None else "failed"
    return Row(method, seed, "test", {}, measures, {}, reason)


def test_differences_are_paired_by_seed_and_their_interval_is_students() -> None:
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(0)
    base = rng.normal(size=6)  # the seeds differ far more than the methods
    other = base + 0.1 + 0.02 * rng.normal(size=6)
    rows = [row_of("fedavg", s, base[s]) for s in range(6)]
    rows += [row_of("exact", s, other[s]) for s in reversed(range(6))]
    rows += [row_of("afl", s, base[s] + 0.3) for s in range(6)]
    rows += [row_of("qffl", 0, base[0] + 1.0), row_of("qffl", 1, None)]
    found = Comparison(tuple(rows)).differences("worst_cell_loss").set_index("method")
    assert list(found.index) == ["exact", "afl", "qffl"]
    ends = ttest_rel(other, base).confidence_interval(0.95)
    assert found.loc["exact", ["low", "high"]].tolist() == pytest.approx(list(ends))
    assert found.loc["exact", "mean"] == pytest.approx((other - base).mean())
    assert found.loc["qffl", "seeds"] == 1
    # One seed, or one difference however often it was run, has no interval.
    assert found.loc[["qffl"], ["low", "high"]].isna().all(axis=None)
    same = [row_of("fedavg", s, 0.5) for s in range(3)]
    same += [row_of("exact", s, 0.75) for s in range(3)]
    alone = Comparison(tuple(same)).differences("worst_cell_loss")
    assert alone[["low", "high"]].isna().all(axis=None)
    to = Comparison(tuple(rows)).differences("worst_cell_loss", to="exact")
    assert to.set_index("method").loc["fedavg", "mean"] == pytest.approx(
        -found.loc["exact", "mean"]
    )
