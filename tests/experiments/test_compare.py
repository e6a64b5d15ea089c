"""Trials, grids of them, and comparisons."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.errors import NotMetError, UsageError
from pffl.experiments import (
    MEASURES,
    Comparison,
    Draw,
    Trial,
    TrialRecord,
    compare,
    few_people,
    figures,
    measures,
)
from pffl.methods import METHODS, PFFL, Exact, FedAvg
from pffl.models import LogisticRegression
from pffl.queries import Expand, Train
from tests.inside import L2_GRID, points_of
from tests.raising import raises

BUDGET = 60
CONSTRAINT = pffl.BoundedGroupLoss(0.6)
MODEL = LogisticRegression()
SHARED = {"model": MODEL, "budget": BUDGET, "least_people": 1}


def load(seed):
    return pffl.datasets.synthetic(
        400, silos=3, features=3, random_state=seed, validation_fraction=0.25
    )


# Trials


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_runs_within_the_budget(name, monkeypatch):
    draw, asked = Draw(load(0), MODEL, budget=BUDGET), []
    answer = draw.engine.ask_many
    monkeypatch.setattr(
        draw.engine, "ask_many", lambda many: asked.extend(many) or answer(many)
    )
    (record,) = draw.train([Trial("x", name, CONSTRAINT)])
    assert record.reason is None
    for split in ("train", "validation", "test"):
        found = measures(record, split)
        assert set(found) == set(MEASURES)
        assert 0 <= found["error"] <= 1
    alone = ("auto", "exact", "first-order", "pooled", "reductions")
    if name not in alone:  # these end by themselves
        gradients = [
            len(q.step_sizes) if isinstance(q, Train) else q.order > 0
            for q in asked
            if isinstance(q, Train | Expand)
        ]
        assert sum(gradients) <= BUDGET + 2


def test_measures_are_those_of_a_run():
    data = load(0)
    trial = Trial("exact", Exact(multiplier_bound=10.0), CONSTRAINT)
    (record,) = Draw(data, MODEL).train([trial])
    solution = pffl.solve(
        data, CONSTRAINT, model=MODEL, method=Exact(multiplier_bound=10.0)
    )
    told = solution.as_dict()
    for split in ("train", "test"):
        found = measures(record, split)
        for name in ("error", "risk", "worst_cell_loss", "dp_gap", "eo_gap"):
            expected = told[split][name]
            assert found[name] == pytest.approx(expected, abs=1e-6), (split, name)


def test_cells_with_few_people_are_left_out():
    (record,) = Draw(load(0), MODEL, budget=5).train([Trial("x", "fedavg", CONSTRAINT)])
    cells = record.sums["test"]["cells"]
    fewest = sorted(cells["count"])[-1]
    few = few_people(record.sums["test"], int(fewest))
    means = np.array(cells["loss"]) / np.array(cells["weight"])
    kept = [m for m, c in zip(means, cells["count"], strict=True) if c >= fewest]
    found = measures(record, "test", few)["worst_cell_loss"]
    assert found == pytest.approx(max(kept))
    assert len(kept) < len(means)
    whole = measures(record, "test")
    assert measures(record, "test", few)["error"] == whole["error"]


# Points


def test_methods_take_the_parameters_of_a_grid_that_they_have():
    grid = {"bound": [0.5, 0.6], "q": [1.0, 2.0, 3.0], "l2": [0.1]}
    assert len(points_of("exact", MODEL, grid, 0)) == 2
    assert points_of("qffl", MODEL, grid, 0)[-1] == {"q": 3.0, "l2": 0.1}
    assert points_of(FedAvg(), MODEL, grid, 0) == [{"l2": 0.1}]
    with raises(UsageError, "unknown-parameter"):
        points_of("exact", MODEL, {"quality": [1]}, 0)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_has_a_search_space_that_begins_with_its_defaults(name):
    points = points_of(name, MODEL, None, 8)
    assert len(points) == 8
    assert points[0]["l2"] == MODEL.l2
    assert MODEL.l2 in L2_GRID
    built = Trial(name, name, CONSTRAINT, points[0]).build(None)
    assert type(built) is METHODS[name]


# Comparisons


def test_a_table_has_means_and_standard_errors_and_is_resumed(tmp_path):
    some = {"methods": ("fedavg", "exact"), "seeds": 2, "out": tmp_path, **SHARED}
    whole = compare(load, CONSTRAINT, **some)
    before = (tmp_path / "records.jsonl").read_bytes()
    assert compare(load, CONSTRAINT, **some).records == whole.records
    assert (tmp_path / "records.jsonl").read_bytes() == before
    own = [r for r in whole.records if r.method == "exact"]
    errors = [measures(r, "test")["error"] for r in own]
    found = whole.table.loc["exact", ["error", "error_se"]].tolist()
    spread = np.std(errors, ddof=1) / np.sqrt(2)
    assert found == pytest.approx([np.mean(errors), spread])
    assert Comparison.load(tmp_path) == whole


def test_processes_find_the_same(tmp_path):
    some = {"methods": ("fedavg", "exact"), "seeds": 2, **SHARED}
    alone = compare(load, CONSTRAINT, **some)
    beside = compare(load, CONSTRAINT, **some, jobs=2, out=tmp_path)
    for one, other in zip(alone.records, beside.records, strict=True):
        assert (one.method, one.seed, one.sums) == (
            other.method,
            other.seed,
            other.sums,
        )
    assert alone.correlation == beside.correlation
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    assert len(lines) == 4
    assert len((tmp_path / "looks.jsonl").read_text().splitlines()) == 4


def with_test_rows_turned(found):
    """The same comparison, as if other trials had been good on test rows."""
    turned = []
    for record, other in zip(found.records, reversed(found.records), strict=True):
        sums = {**record.sums, "test": other.sums["test"]}
        turned.append(replace(record, sums=sums))
    return replace(found, records=tuple(turned))


def test_trials_are_chosen_on_validation_rows_only():
    some = {"methods": ("fedavg", "pffl"), "seeds": [0, 1], "allowance": 0.2}
    found = compare(load, CONSTRAINT, trials=8, **some, **SHARED)
    assert set(found.table["trials"]) == {8}
    for seed in (0, 1):
        tried = [r for r in found.records if (r.method, r.seed) == ("pffl", seed)]
        best = min(tried, key=lambda r: measures(r, "validation")["worst_cell_loss"])
        assert found.chosen["pffl"][seed] == best
    other = with_test_rows_turned(found)
    for method, by_seed in found.chosen.items():
        for seed, record in by_seed.items():
            assert other.chosen[method][seed].parameters == record.parameters


def test_a_method_without_a_trial_within_the_error_takes_its_most_accurate_one():
    records = [record("fedavg", 0, 0.7, error=0.1)]
    records += [record("exact", 0, 0.5, error=0.4, bound=0.5)]
    records += [record("exact", 0, 0.6, error=0.3, bound=0.6)]
    found = Comparison(tuple(records), "fedavg", least_people=1)
    assert found.chosen["exact"][0].parameters == {"bound": 0.6}
    wide = replace(found, allowance=0.5)
    assert wide.chosen["exact"][0].parameters == {"bound": 0.5}


def record(method, seed, loss, error=0.2, **parameters):
    """A record of one group of 100 people, the same on all splits."""
    counts = {"count": [50, 50], "weight": [50.0, 50.0], "loss": [50 * loss, 50 * loss]}
    right = {"correct": [50 * (1 - error)] * 2, "positive": [25, 25]}
    cells = {"names": ["a"], "count": [100], "weight": [100.0], "loss": [100 * loss]}
    sums = {"strata": {"names": [["a", "0"], ["a", "1"]], **counts, **right}}
    sums |= {"cells": cells, "silos": cells, "risk": loss, "share": 1.0}
    splits = dict.fromkeys(("train", "validation", "test"), sums)
    return TrialRecord(method, seed, parameters, splits, {"rounds": 1.0})


def test_differences_are_paired_by_seed_and_have_words():
    rng = np.random.default_rng(0)
    base = rng.normal(1.0, 0.5, size=30)  # seeds differ far more than methods
    lower = base - 0.1 + 0.02 * rng.normal(size=30)
    same = base + 0.002 * rng.normal(size=30)
    records = [record("fedavg", s, base[s]) for s in range(30)]
    records += [record("exact", s, lower[s]) for s in reversed(range(30))]
    records += [record("qffl", s, same[s]) for s in range(30)]
    records += [record("afl", s, base[s] - 0.1) for s in range(29)]
    records += [replace(record("afl", 29, 1.0), sums={}, reason="it failed")]
    found = Comparison(tuple(records), "fedavg", correlation=1 / 3)
    table = found.differences().set_index("method")
    assert dict(table["word"]) == {"exact": "better", "qffl": "same", "afl": "open"}
    assert table.loc["exact", "mean"] == pytest.approx((lower - base).mean())
    assert table.loc["exact", "population_high"] > table.loc["exact", "high"]
    assert "1 of 30 seeds" in table.loc["afl", "reason"]
    assert found.table.loc["afl", "failed"] == "it failed"


def test_a_front_is_chosen_on_validation_rows():
    records = []
    for bound, error, loss in ((0.5, 0.4, 0.5), (0.6, 0.3, 0.6), (0.7, 0.35, 0.7)):
        one = record("exact", 0, loss, error, bound=bound)
        other = record("exact", 0, 1.0 - loss, error)
        sums = {**one.sums, "test": other.sums["test"]}
        records.append(replace(one, sums=sums))
    found = Comparison(tuple(records), "exact", least_people=1)
    assert sorted(found.front()["bound"]) == [0.5, 0.6]
    (line,) = found.chart().lines
    np.testing.assert_allclose(sorted(line.points), [(0.3, 0.4), (0.4, 0.5)])


def test_one_failure_does_not_end_a_comparison(monkeypatch, tmp_path):
    def broken(self, problem, start=None):
        raise UsageError("broken on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(PFFL, "run", broken)
        some = {"seeds": 1, **SHARED}
        methods = ("fedavg", "pffl")
        found = compare(load, CONSTRAINT, methods=methods, out=tmp_path, **some)
        assert found.table.loc["pffl", "failed"] == "broken on purpose"
        assert np.isnan(found.table.loc["pffl", "error"])
        assert found.table.loc["fedavg", "failed"] == ""
        with raises(NotMetError, "all-failed"):
            compare(load, CONSTRAINT, methods=["pffl"], **some)
    mended = compare(load, CONSTRAINT, methods=methods, out=tmp_path, **some)
    assert mended.table.loc["pffl", "failed"] == ""  # what failed is tried again


@pytest.mark.parametrize(
    ("constraint", "more", "code"),
    [
        ("other", {}, "unknown-name"),
        (CONSTRAINT, {"methods": ("fedavg", "other")}, "unknown-method"),
        (CONSTRAINT, {"methods": ("fedavg",), "reference": "x"}, "unknown-method"),
        (CONSTRAINT, {"measure": "loss"}, "unknown-measure"),
        (CONSTRAINT, {"grid": {"other": [1]}}, "unknown-parameter"),
        ("minmax", {"grid": {"bound": [0.6]}}, "no-bound"),
        (CONSTRAINT, {"methods": ("fedavg", "exact"), "trials": 2}, "no-validation"),
    ],
)
def test_what_is_refused(constraint, more, code):
    data = pffl.datasets.synthetic(300, silos=3, random_state=0)
    with raises(UsageError, code):
        compare(data, constraint, seeds=1, **more)


# Commands


def test_compare_command(command, tmp_path):
    done = command(
        *("compare", "synthetic", "--set", "data.rows=400", "--silos", "3"),
        *("--methods", "fedavg,exact", "--seeds", "2", "--budget", "20"),
        *("--grid", "bound=0.6,0.65", "--out", tmp_path / "out"),
    )
    assert done.code == 0, done.err
    assert "a word needs at least 29 seeds, and there are 2" in done.out
    assert "Fronts" in done.out
    for name in ("records.jsonl", "comparison.json"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert command("compare", "synthetic", "--grid", "bound").code == 2


def test_specs_of_the_papers_figures_are_sound(command):
    found = figures()
    assert list(found) == ["local-vs-global", "tradeoff", "parity", "fedminmax", "qffl"]
    for spec in found.values():
        for panel in spec["panel"]:
            assert panel["measure"] in MEASURES
            assert panel["reference"] in panel["methods"]
            for method in panel["methods"].values():
                assert points_of(method, MODEL, panel["grid"], 0)
            assert panel["seeds"] >= 29
    done = command("reproduce", "list")
    assert done.code == 0
    assert all(name in done.out for name in found)
    assert command("reproduce", "figure-9").error == "unknown-figure"
    assert command("reproduce", "qffl", "--data", "acs").error == "unknown-panel"


def test_a_figure_is_a_comparison_for_each_panel(command, tmp_path, monkeypatch):
    spec = {
        "paper": "a claim",
        "panel": [
            {
                "name": "small",
                "data": {"name": "synthetic", "rows": 300, "silos": 3},
                "constraint": "bgl",
                "measure": "worst_cell_loss",
                "seeds": 2,
                "methods": {"FedAvg": "fedavg", "PFFL": "exact"},
                "reference": "FedAvg",
                "grid": {"bound": [0.6, 0.7]},
            }
        ],
    }
    monkeypatch.setattr("pffl.experiments.comparison.figures", lambda: {"f": spec})
    monkeypatch.setattr("pffl.experiments.figures", lambda: {"f": spec})
    done = command("reproduce", "f", "--out", tmp_path)
    assert done.code == 0, done.err
    assert "a claim" in done.out
    assert set(Comparison.load(tmp_path / "small").methods) == {"FedAvg", "PFFL"}
    assert "PFFL" in pffl.report(tmp_path)
