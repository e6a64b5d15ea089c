"""Figures of the paper: specs, panels, records, pages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import pffl
from pffl.errors import ArtefactError, UsageError
from pffl.methods import METHODS
from tests.inside import (
    FIGURES,
    LEAST_POINTS,
    MEASURES,
    PAPER_BOUNDS,
    PAPER_MULTIPLIER_BOUNDS,
    check_plans,
    load,
    parse,
    published,
    run_figure,
)
from tests.inside import study_sweep_NOTIONS as NOTIONS
from tests.raising import raises

FOLDER = Path(__file__).parents[2] / "reproduction"
CLAIM = {"text": "a beats b", "better": "a", "than": ["b"]}
PANEL = {
    "name": "tiny",
    "data": {"name": "synthetic"},
    "notion": "bgl",
    "fallback_bound": 0.6,
    "measure": "worst_cell_loss",
    "trials": 8,
    "within": 0.2,
    "least_people": 1,
    "curve": [
        {
            "label": "a",
            "method": "exact",
            "bounds": [0.5, 0.7],
            "grid": {"multiplier_bound": [0.1, 1.0, 10.0, 100.0]},
        },
        {
            "label": "b",
            "method": "fedavg",
            "grid": {"local_steps": [1, 5], "l2": [1e-3, 1e-2, 1e-1, 1.0]},
        },
    ],
    "claim": [CLAIM, {**CLAIM, "margin": 0.5}],
}
TINY = {
    "title": "Tiny",
    "paper": "a is better.",
    "fixed": "before.",
    "seeds": 3,
    "budget": 20,
    "panel": [PANEL],
}


def open_data(section, seeds):
    return pffl.datasets.synthetic(
        300,
        silos=2,
        features=2,
        seed=seeds.silos,
        split_seed=seeds.split,
        validation_fraction=0.2,
    )


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    out = tmp_path_factory.mktemp("tiny")
    (result,) = run_figure(parse("tiny", TINY), open_data, out=out)
    return result, out


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_is_fair_before_it_is_run(figure):
    """As many trials for every curve, at least eight; the paper's grid for its own."""
    spec = load(figure)
    assert spec.fixed
    assert spec.paper
    for panel in spec.panels:
        assert panel.measure in MEASURES
        assert panel.notion in NOTIONS
        plans = panel.plans()
        check_plans(plans, panel.reasons)
        assert not panel.reasons
        assert all(len(trials) >= LEAST_POINTS for trials in plans.values())
        labels = {curve.label for curve in panel.curves}
        for curve in panel.curves:
            assert curve.method in METHODS
            given = set(curve.grid) - {"l2"}
            assert given <= set(METHODS[curve.method].__dataclass_fields__)
        for claim in panel.claims:
            assert {claim.better, *claim.others} <= labels
        data = panel.data["name"]
        for curve in panel.curves:
            priced = curve.label.startswith(("PFFL", "global", "local"))
            if priced and data in ("compas", "acs"):
                notion = curve.notion or panel.notion
                bounds = PAPER_BOUNDS[data].get(notion, PAPER_BOUNDS[data]["bgl"])
                assert curve.bounds == bounds
                prices = tuple(curve.grid["multiplier_bound"])
                assert prices == PAPER_MULTIPLIER_BOUNDS


def test_other_figures_are_refused(tmp_path):
    with raises(UsageError, "unknown-figure"):
        load("figure-9")
    bad = tmp_path / "spec.toml"
    bad.write_text("seeds = 1\n")
    with raises(ArtefactError, "missing-key"):
        load("tradeoff", bad)


def test_a_small_figure_runs_and_resumes(tiny):
    result, out = tiny
    lines = (out / "rows.jsonl").read_bytes()
    (again,) = run_figure(parse("tiny", TINY), open_data, out=out)
    assert (out / "rows.jsonl").read_bytes() == lines
    assert again.as_dict() == result.as_dict()
    assert result.study.trials == {"a": 8, "b": 8}
    assert result.study.overlap == 0.0  # every seed has people of its own


def test_unequal_trials_are_refused_unless_the_spec_says_why():
    fewer = {**PANEL["curve"][1], "grid": {"l2": [1e-3, 1e-2]}}
    panel = {**PANEL, "curve": [PANEL["curve"][0], fewer]}
    with raises(UsageError, "unequal-trials"):
        run_figure(parse("tiny", {**TINY, "panel": [panel]}), open_data)
    told = {**fewer, "fewer": "it has no more"}
    panel = {**panel, "curve": [PANEL["curve"][0], told]}
    (result,) = run_figure(
        parse("tiny", {**TINY, "panel": [panel]}), open_data, seeds=2
    )
    assert any("it has no more" in text for text in result.study.terms)
    assert result.as_dict()["cut"] == "2 of 3 seeds were run."


def test_all_comparisons_of_a_panel_are_corrected_together_and_margins_shift(tiny):
    result, _ = tiny
    (_, plain, _), (_, shifted, _) = result.judged
    assert shifted["b"].mean == pytest.approx(plain["b"].mean - 0.5)
    assert plain["b"].adjusted >= plain["b"].p
    assert shifted["b"].adjusted == pytest.approx(
        min(1.0, 2 * shifted["b"].p), rel=1e-6
    )
    assert shifted["b"].word == "holds"  # no more than 0.5 worse


def test_records_and_pages_follow_from_the_points(tiny, tmp_path, monkeypatch):
    result, _ = tiny
    result = replace(result, figure=replace(result.figure, name="qffl"))
    monkeypatch.setattr(published, "load", lambda name: result.figure)
    published.publish([result], tmp_path)
    names = {path.name for path in (tmp_path / "qffl").iterdir()}
    assert names == {"README.md", "tiny.json", "tiny.svg"} | {
        "tiny-on-test.svg",
        "tiny-differences.svg",
    }
    place = tmp_path / "qffl" / "tiny.json"
    record = json.loads(place.read_text())

    def refused(changed, code, *named):
        place.write_text(json.dumps({**record, **changed}))
        with raises(ArtefactError, code, *named):
            published.write_pages(tmp_path)

    # Planted: fewer trials for one curve; a mean of trials that test rows chose.
    fewer = [p for p in record["points"] if p["curve"] != "b"] + [record["points"][-1]]
    refused({"points": fewer}, "unfair-study", "'b' had 1 trials, and others 8")
    means = [
        {**m, "worst_cell_loss": m["worst_cell_loss"] - 0.05} for m in record["means"]
    ]
    refused({"means": means}, "unfair-study", "validation")
    refused({"version": 1}, "other-format")


def test_of_trials_that_tie_on_validation_rows_the_first_is_taken():
    """By study and record alike: not the one with the smaller measure on test rows."""

    def point(curve, test):
        rows = {"0": [0.3, 0.5], "1": [0.3, 0.5]}
        return {
            "curve": curve,
            "validation": rows,
            "test": {s: [0.3, test] for s in rows},
        }

    record = {
        "name": "tied",
        "measure": "eo_gap",
        "within": 0.02,
        "terms": [],
        "points": [point("a", 0.7), point("a", 0.4)],
        "means": [{"curve": "a", "eo_gap": 0.7}],
    }
    published.check(record)
    with raises(ArtefactError, "unfair-study", "0.4000", "0.7000"):
        published.check({**record, "means": [{"curve": "a", "eo_gap": 0.4}]})


def test_words_at_other_allowances_follow_from_the_points(tiny):
    """At its own allowance a record's words come again; elsewhere, those of a study."""
    result, _ = tiny
    record = result.as_dict()
    for within in (0.0, record["within"], 0.5):
        panel = replace(result.panel, within=within)
        study = replace(result.study, within=within)
        found = replace(result, panel=panel, study=study).judged
        wanted = [
            one.word if one.pairs == one.seeds else "not compared"
            for _, by_curve, _ in found
            for one in by_curve.values()
        ]
        assert list(published.words_within(record, within).values()) == wanted


def test_the_records_of_the_repository_are_sound_and_the_pages_follow_from_them():
    found = {figure: published.records(FOLDER / figure) for figure in FIGURES}
    for figure, panels in found.items():
        names = {panel.name for panel in load(figure).panels}
        assert {panel["name"] for panel in panels} <= names
        for panel in panels:
            given = [
                one["word"] if one["pairs"] == one["seeds"] else "not compared"
                for claim in panel["claims"]
                for one in claim["against"]
            ]
            words = published.words_within(panel, panel["within"])
            assert list(words.values()) == given
        page = (FOLDER / figure / "README.md").read_text()
        assert page == published.figure_page(load(figure), panels)
    assert (FOLDER / "README.md").read_text() == published.overview(found)
