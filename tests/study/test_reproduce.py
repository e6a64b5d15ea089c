import json
from pathlib import Path

import numpy as np
import pytest

import pffl
from pffl.errors import ArtefactError, UsageError
from pffl.methods import METHODS
from pffl.questions.smoothness import STEPS
from pffl.study.compare import Row
from pffl.study.reproduce import (
    FIGURES,
    Claim,
    Point,
    build_model,
    check,
    choose,
    load,
    outcome,
    parse,
    run_figure,
)
from pffl.study.sweep import NOTIONS

FOLDER = Path(__file__).parents[2] / "reproduction"
ACS = FOLDER.parents[1] / "shared/data/acs_employment_2024_48st_dc.parquet"
CLAIM = Claim("a beats b", "a", ("b",), "worst_cell_loss", 0.01)
TINY = {
    "seeds": 2,
    "budget": 10,
    "panel": [
        {
            "name": "tiny",
            "data": {"name": "synthetic"},
            "notion": "bgl",
            "fallback_bound": 0.6,
            "measures": ["worst_cell_loss"],
            "curve": [
                {"label": "a", "method": "exact", "bounds": [0.5, 0.7]},
                {"label": "b", "method": "fedavg"},
            ],
            "claim": [
                {
                    "text": "a beats b",
                    "better": "a",
                    "than": ["b"],
                    "measure": "worst_cell_loss",
                    "within_error": 0.05,
                }
            ],
        }
    ],
}


def point(curve, error, loss, test_loss=None):
    measures = {"error": error, "worst_cell_loss": loss}
    test = {"error": error, "worst_cell_loss": loss if test_loss is None else test_loss}
    return Point(
        curve,
        0.5,
        Row("m", 0, "validation", {}, measures),
        Row("m", 0, "test", {}, test),
    )


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_has_its_folder(figure):
    spec = load(figure)
    assert (FOLDER / figure / "README.md").is_file()
    assert (FOLDER / figure / "expected.json").is_file()
    for panel in spec.panels:
        assert panel.notion in NOTIONS
        labels = {curve.label for curve in panel.curves}
        assert all(curve.method in METHODS for curve in panel.curves)
        for claim in panel.claims:
            assert {claim.better, *claim.others} <= labels
    expected = json.loads((FOLDER / figure / "expected.json").read_text())
    assert set(expected) <= {panel.name for panel in spec.panels}


def test_other_figures_are_refused(tmp_path):
    with pytest.raises(UsageError, match="no figure"):
        load("figure-9")
    bad = tmp_path / "spec.toml"
    bad.write_text("seeds = 1\n")
    with pytest.raises(ArtefactError, match="spec"):
        load("tradeoff", bad)


def test_points_are_chosen_on_validation_within_the_error_allowed():
    points = [
        point("a", 0.30, 0.70),
        point("a", 0.305, 0.60, test_loss=0.9),
        point("a", 0.40, 0.10),
        point("b", 0.30, 0.65),
    ]
    assert choose(points, "a", CLAIM) is points[1]
    assert choose(points[2:], "a", CLAIM) is points[2]
    assert choose(points, "c", CLAIM) is None


def test_a_claim_is_judged_by_paired_differences():
    def seeds(values):
        return [[point("a", 0.3, 0.6 + d), point("b", 0.3, 0.6)] for d in values]

    for values, said in (
        ([-0.10, -0.11, -0.09], "holds"),
        ([0.10, 0.11, 0.09], "does not hold"),
        ([-0.10, 0.12, 0.01], "no difference measured"),
        ([-0.1], "no difference measured"),
    ):
        checked = check(CLAIM, seeds(values))
        assert checked.outcomes == {"b": said}
        assert checked.chosen["a"][0] == pytest.approx(0.6 + np.mean(values))
    assert outcome(np.array([np.nan, 1.0])) == "no difference measured"


def test_a_small_figure_runs_and_resumes(tmp_path):
    figure = parse("tiny", TINY)

    def open_data(section, seed):
        return pffl.datasets.synthetic(
            300, silos=2, features=2, seed=seed, validation_fraction=0.2
        )

    (result,) = run_figure(figure, open_data, out=tmp_path)
    table = result.table
    assert set(table["curve"]) == {"a", "b"}
    assert len(table) == 3
    assert table["error"].between(0, 1).all()
    lines = (tmp_path / "rows.jsonl").read_bytes()
    (again,) = run_figure(figure, open_data, out=tmp_path)
    assert (tmp_path / "rows.jsonl").read_bytes() == lines
    assert again.table.equals(table)
    assert "| a |" in result.markdown
    result.save(tmp_path)
    assert (tmp_path / f"{result.panel.name}.md").read_text().startswith("### ")


def test_a_panel_may_have_its_own_budget_and_model():
    tiny = TINY["panel"][0]
    other = {**tiny, "budget": 7, "model": {"kind": "tree"}}
    figure = parse("tiny", {**TINY, "panel": [other]})
    assert figure.panels[0].budget == 7

    def open_data(section, seed):
        return pffl.datasets.synthetic(
            200, silos=2, features=2, seed=seed, validation_fraction=0.2
        )

    with pytest.raises(UsageError, match="no model 'tree'"):
        run_figure(figure, open_data)
    figure = parse("tiny", {**TINY, "panel": [{**tiny, "budget": 7}]})
    spent = {
        budget: {
            p.test.costs["gradients"]
            for points in run_figure(figure, open_data, budget=budget)[0].points
            for p in points
            if p.curve == "b"
        }
        for budget in (None, 30)
    }
    found = 2 * STEPS  # what finding step sizes takes, once
    assert max(spent[None]) < 10 + found < max(spent[30])


def test_a_panel_of_pictures_trains_the_network_of_the_paper():
    pytest.importorskip("torch", reason="networks need the extra 'torch'")
    from pffl.models import Network

    section = {"kind": "celeba_cnn", "width": 8}
    model = build_model(section, pffl.datasets.faces(3, images=4, size=16))
    assert isinstance(model, Network)
    assert model.module.description["size"] == 16


def opener(section, seed):
    """Open a panel's data; ACS from the extract beside the project."""
    from pffl.cli.study import open_panel

    source = str(ACS) if section["name"] == "acs" else None
    return open_panel(section, seed, source)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("figure", "panel"),
    [
        (figure, panel)
        for figure in FIGURES
        for panel in json.loads((FOLDER / figure / "expected.json").read_text())
    ],
)
def test_the_figures_come_out_as_written(figure, panel, tmp_path):
    expected = json.loads((FOLDER / figure / "expected.json").read_text())
    if panel.startswith("acs"):
        if not ACS.is_file():
            pytest.skip(f"no {ACS.name} beside the project")
        pytest.importorskip("pyarrow")
    if panel.startswith("faces"):
        pytest.importorskip("torch", reason="networks need the extra 'torch'")
    results = run_figure(load(figure), opener, panels=[panel], out=tmp_path)
    for result in results:
        for checked, wanted in zip(
            result.checked, expected[result.panel.name], strict=True
        ):
            for label, (mean, tolerance) in wanted["chosen"].items():
                assert checked.chosen[label][0] == pytest.approx(mean, abs=tolerance)
            assert checked.outcomes == wanted["outcomes"]
