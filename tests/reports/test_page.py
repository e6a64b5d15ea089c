"""The report as text: what it says, of every kind of folder, and what it never does."""

import hashlib
import html
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pffl
from pffl import figures, runs
from pffl.errors import ArtefactError
from pffl.evidence import noise as told
from pffl.evidence import promise, summary, unseen, verdict, verify
from pffl.evidence.evidence import Evidence, Missing
from pffl.figures.html import as_html
from pffl.files import Journal
from pffl.reports.explorer import path_of
from pffl.reports.grid import GLOSSARY, Grid, margin, number
from pffl.reports.page import embedded, render
from pffl.reports.study_view import MOST_SENTENCES, SweepView
from pffl.study.compare import Comparison
from pffl.study.sweep import full_grid, sweep
from pffl.text import down, up
from tests.cli.test_readme import README
from tests.raising import raises
from tests.reports.folders import NASTY, federation, panel_of, sweep_of
from tests.test_path import unlike


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("report")
    data = federation()
    made = []
    for name, bound in (("met", 0.69), ("impossible", 0.3)):
        solution = pffl.solve(data, pffl.BoundedGroupLoss(bound), seed=0)
        runs.save(solution, base / name, "[data]\n")
        made.append(base / name)
    sweep(data, full_grid(["bgl", "cbgl"], [0.5, 0.6], [1.0, 10.0]), out=base / "sweep")
    return [*made, base / "sweep"]


@pytest.fixture(scope="module")
def page(folders):
    return render(folders)


def test_names_stay_text(page):
    assert NASTY not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    found = json.loads(data.group(1))
    assert any(NASTY in name for one in found for name in one["names"])


def test_nothing_is_loaded_from_elsewhere(page):
    assert not re.search(r'(src|href)="(?!data:,"|#r0-|#r1-)', page)
    outside = page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "http" not in outside
    assert "Content-Security-Policy" in page
    assert "unsafe-eval" not in page


def evidence_of(folder):
    return Evidence.from_dict(json.loads((folder / "evidence.json").read_text()))


def test_first_screen_says_it_in_words(folders, page):
    e = evidence_of(folders[0])
    titles = [one.title for one in summary.verdicts(e)]
    assert titles == list(summary.TITLES.values())
    for title in titles:
        assert page.count(f"<h2>{title}</h2>") == 2
    assert "Every bound is met on the training rows" in page
    assert "Why this bound is impossible" in page
    assert "Synthetic data" in page
    first = render(folders[:1]).replace("&#39;", "'")
    start = first.index(html.escape(summary.asked(e), quote=False))
    order = [
        first.index(f'id="r0-{key}"') for key in ("cells", "wrong", "cost", "from")
    ]
    assert start < first.index('class="verdicts"') < first.index('class="dots"')
    assert first.index("is a coin") < order[0]
    assert order == sorted(order)


def test_one_figure_per_promise(folders, page):
    """Table, chart, certificate and result.json show the same bound (fault 86)."""
    for folder in folders[:2]:
        evidence = evidence_of(folder)
        result = json.loads((folder / "result.json").read_text())
        bounds = unseen.upper(evidence)
        certificate = verdict.certificate(evidence)
        (statement,) = certificate.of_kind("holdout")
        assert [cell["test_upper"] for cell in result["cells"]] == list(bounds)
        assert [row["upper"] for row in statement.per_cell] == list(bounds)
        for bound in bounds:
            entry = r'<td data-title="promised at most"[^>]*>▲?'
            assert re.search(entry + re.escape(up(bound)) + "</td>", page)
            assert f"promised at most: {up(bound)}<" in page
        assert f"at most {up(max(bounds))}" in statement.text
        assert html.escape(statement.text, quote=False) in page.replace("&#39;", "'")
    assert "each cell by itself, 95 % sure" in page
    assert "all cells at once with confidence" not in page


def test_a_page_of_objects_is_that_of_their_folder(tmp_path):
    data = federation()
    solution = pffl.solve(data, pffl.BoundedGroupLoss(0.69), seed=0)
    runs.save(solution, tmp_path / solution.data.name)
    page = pffl.report(solution, out=tmp_path / "page.html")
    assert page == render([tmp_path / solution.data.name])
    assert (tmp_path / "page.html").read_text("utf-8") == page
    bare = pffl.report(solution.evidence, title="bare")
    assert "Convergence" not in bare
    assert "<title>bare" in bare
    unknown = Missing("nothing is known of how the model was trained")
    audited = pffl.report(replace(solution.evidence, training=unknown))
    assert "<dt>method</dt>" in bare
    assert "<dt>method</dt>" not in audited
    assert "training rows" not in audited.partition('class="verdicts"')[0]
    found = sweep(data, full_grid(["bgl"], [0.6], [1.0, 10.0]))
    methods = {"methods": ["fedavg", "exact"], "seeds": 2, "budget": 5}
    compared = pffl.compare(data, **methods, out=tmp_path / "compared")
    both = pffl.report(found, compared)
    assert "nasty &amp; small: sweep" in both
    assert '<th scope="row"><bdi>fedavg</bdi></th>' in both
    assert "difference to fedavg" in both
    again = render([tmp_path / "compared"])
    assert Comparison.load(tmp_path / "compared") == compared
    assert "compared: comparison" in again
    with raises(ArtefactError, "cannot-write"):
        pffl.report(solution, out=tmp_path / "missing" / "page.html")


def test_several_runs_are_side_by_side(folders):
    page = render(folders[:2])
    assert "2 runs side by side" in page
    glance = page.partition('id="glance"')[2].partition("</section>")[0]
    for name in ("met", "impossible"):
        assert f"<bdi>{name}</bdi></th>" in glance
        assert f'<bdi class="name">{name}</bdi>' in glance
    assert "✓ met" in glance
    assert "✗ impossible" in glance
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert 'id="glance"' not in render(folders[:1])


def test_what_a_slider_shows_was_said_when_the_model_was_trained(folders):
    rows = list(Journal(folders[2] / "points.jsonl"))
    view = SweepView.of(rows, "sweep")
    assert view.explorers[0].names != view.explorers[1].names
    said = {text for row in rows for text in row["verdicts"].values()}
    for one in view.explorers:
        models = one.data["models"]
        assert len(models) == 4
        for model in models:
            assert len(model["s"]) == 3
            assert set(model["s"]) <= said
        bounds = [model["c"][0] for model in models]
        assert bounds == sorted(bounds)
    assert "8 models were trained" in view.sentence
    assert "All 8 models were measured on the same test rows" in view.note


def test_embedded_json_cannot_close_its_element():
    text = embedded({"a": "</script><!-- & \u2028"})
    assert "<" not in text
    assert json.loads(text) == {"a": "</script><!-- & \u2028"}


def test_numbers():
    assert number(None) == "–"
    assert number(1234) == "1,234"
    assert number(0.123456) == "0.1235"
    assert number(1e-9) == "1e-09"
    assert number("x") == "x"
    assert margin(-1e-16) == "0"


def test_a_name_in_a_table_is_whole_and_visible():
    grid = Grid.of("x", [{"cell": "a" * 99 + "\x1b", "loss": 0.5}])
    assert [str(entry) for entry in grid.rows[0]] == ["a" * 99 + "\\x1b", "0.5000"]
    assert grid.heads == [("cell", GLOSSARY["cell"]), ("loss", GLOSSARY["loss"])]
    assert grid.look == "stack"
    assert Grid.of("x", [{"cell": "a"}] * 41).look == "stack long"


def test_only_words_that_are_there_are_explained(folders):
    page = render([folders[2]])
    words = page.partition('id="words"')[2]
    assert "<dt>Pareto front</dt>" in words
    assert "<dt>duality gap</dt>" not in words


def test_other_folders_are_refused(tmp_path):
    with raises(ArtefactError, "unknown-folder"):
        render([tmp_path])
    (tmp_path / "other.json").write_text('{"format": "x"}')
    (tmp_path / "broken.json").write_text("{")
    with raises(ArtefactError, "unknown-folder"):
        render([tmp_path])
    (tmp_path / "result.json").write_text("{}")
    with raises(ArtefactError, "file-missing"):
        render([tmp_path])
    for text in ("[1]", "{", '{"format": "other"}'):
        (tmp_path / "evidence.json").write_text(text)
        with pytest.raises(ArtefactError, match="evidence"):
            render([tmp_path])


def test_fault_78_ten_thousand_points_stay_small(tmp_path):
    rows = sweep_of(10_000)
    with (tmp_path / "points.jsonl").open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    assert len(render([tmp_path]).encode()) < 5_000_000
    (one,) = SweepView.of(rows, "sweep").explorers
    assert len(one.data["models"]) == 10_000 > MOST_SENTENCES
    assert all(len(model["c"]) == 16 for model in one.data["models"])
    few = SweepView.of(sweep_of(MOST_SENTENCES), "sweep").explorers[0]
    assert few.data["models"][0]["s"]


def test_a_run_stays_small(tmp_path):
    groups = tuple(
        f"group {i} " + "of people with a long name " * 2 for i in range(200)
    )
    data = federation(groups, rows=8_000)
    solution = pffl.solve(data, pffl.BoundedGroupLoss(0.69), seed=0)
    page = pffl.report(solution)
    assert len(page.encode()) < 2_000_000
    assert all(page.count(name.strip()) > 3 for name in groups)


def test_a_deployed_run_shows_its_sites(folders, tmp_path):
    e = evidence_of(folders[0])
    place = tmp_path / "run"
    place.mkdir()
    (place / "evidence.json").write_text(json.dumps(deployed(e).as_dict()))
    entries = [
        {"event": "begun", "run": "a", "data": "d", "sites": ["north", NASTY]},
        {"asked": ["north", NASTY], "answered": ["north", NASTY], "refused": []},
        {
            "asked": ["north", NASTY],
            "answered": ["north"],
            "refused": [[NASTY, "paused"]],
        },
    ]
    with (place / "record.jsonl").open("w") as file:
        for i, entry in enumerate(entries):
            time = f"2026-01-02T03:04:0{i}+00:00"
            file.write(json.dumps({"time": time, **entry}) + "\n")
    page = render([place])
    assert "deployed run" in page
    assert "Whatever one of the 2 sites has told instead of the truth" in page
    rows = page.partition("Answers and refusals")[2]
    assert re.search(r'north</bdi></th><td data-title="answers">2</td>', rows)
    assert "paused</td>" in rows
    assert NASTY not in page
    (place / "evidence.json").unlink()
    live = render([place], refresh=3)
    assert "run: a run that goes on" in live
    assert 'id="again" data-seconds="3" checked>' in live
    assert 'id="again"' not in render([place])
    assert "paused</td>" in live


def deployed(e):
    """The same evidence, as if two sites had answered."""
    from pffl.evidence.evidence import Sites

    cells = len(e.cells)
    told = {
        "count": [2.0] * cells,
        "unknown": [1.0] * cells,
        "lowest": [None] * cells,
        "highest": [None] * cells,
    }
    seen = replace(e.seen, sites=told)
    return replace(e, seen=seen, sites=Sites(["north", NASTY]))


def test_a_panel_of_the_paper_has_a_page(tmp_path):
    panel = panel_of(NASTY)
    (tmp_path / "compas-bgl.json").write_text(json.dumps(panel))
    (tmp_path / "older.json").write_text(json.dumps({**panel, "version": 1}))
    page = render([tmp_path])
    assert NASTY not in page
    assert page.count("Claim: it is better") == 1
    assert "no difference shown" in page
    assert "(-0.2000 to +0.1000)" in page
    assert "the paper&#39;s way" in page


def test_numbers_are_nowhere_infinite():
    rows = sweep_of(3)
    rows[1]["cells"][0]["test_loss"] = None
    rows[2]["test_error"] = None
    (one,) = SweepView.of(rows, "x").explorers
    text = embedded(one.data)
    assert "NaN" not in text
    assert [model["p"] is None for model in one.data["models"]].count(True) == 1
    assert np.isfinite(one.plot.x.high)


@pytest.fixture(scope="module")
def promised():
    """A promise by which some models were shown, one was not, and some not tested."""
    solution = pffl.solve(
        unlike(),
        pffl.BoundedGroupLoss(0.75),
        seed=0,
        promise=pffl.Promise(),
        options=pffl.Options(least=False),
    )
    path = solution.evidence.path
    states = promise.tested(solution.evidence, path)
    assert states.count(True) > 0
    assert states[-1] is False
    assert len(states) < len(path.candidates)
    return solution.evidence, path, len(states)


def test_a_slider_over_a_path_promises_no_more_than_was_tested(promised):
    e, path, tried = promised
    one = path_of(e)
    assert one.first == path.chosen == tried - 2
    assert len(one.data["models"]) == len(path.candidates)
    bounds = list(e.bounds)
    for place, (model, candidate) in enumerate(
        zip(one.data["models"], path.candidates, strict=True)
    ):
        cells = np.array(model["c"], dtype=object).reshape(-1, 4)
        assert list(cells[:, 0]) == bounds
        np.testing.assert_allclose(
            cells[:, 1].astype(float), candidate.training.means, atol=1e-5
        )
        seen = cells[:, 2] if place < tried else []
        if place < tried:
            held = candidate.calibration.means
            np.testing.assert_allclose(seen.astype(float), held, atol=1e-5)
        else:
            assert set(cells[:, 2]) == {None}
        shown = place <= path.chosen
        assert list(cells[:, 3]) == (bounds if shown else [None] * len(bounds))
        text = model["t"]
        assert text.startswith(f"Model {place + 1} of {len(path.candidates)}")
        assert ("was not tested" in text) == (place >= tried)
        assert ("every bound was shown" in text) == shown
        assert ("the model that is shipped" in text) == (place == path.chosen)
    states = [(line.name, len(line.points)) for line in one.plot.lines]
    assert states == [
        ("every bound shown", tried - 1),
        ("not every bound shown", 1),
        ("not tested", len(path.candidates) - tried),
    ]
    page = pffl.report(e)
    assert "also for people not seen, 95 % sure" in page
    assert 'id="s0"' in page


def test_verify_notices_what_a_slider_should_not_show(promised):
    e, path, tried = promised
    plain, page = json.loads(json.dumps(e.as_dict())), pffl.report(e)
    honest = list(verify.check_slider(page, plain))
    assert len(honest) > 3 * len(path.candidates)
    assert [check.what for check in honest if not check.agrees] == []
    found = re.search(verify.DATA, page)
    places = [
        (0, 0, 0.1),  # a bound
        (0, 1, 0.1),  # a training loss
        (0, 2, 0.1),  # a calibration loss
        (0, 3, 0.1),  # a smaller figure than was promised
        (tried - 1, 3, float(e.bounds[0])),  # one that could not be shown
        (len(path.candidates) - 1, 2, 0.1),  # of a model that was not tested
    ]
    for model, column, value in places:
        data = json.loads(found[1])
        data[0]["models"][model]["c"][column] = value
        edited = page.replace(found[1], embedded(data))
        wrong = [c.what for c in verify.check_slider(edited, plain) if not c.agrees]
        assert any(f"model {model + 1}" in what for what in wrong), (model, column)
    data = json.loads(found[1])
    del data[0]["models"][-1]
    edited = page.replace(found[1], embedded(data))
    assert not all(check.agrees for check in verify.check_slider(edited, plain))
    assert list(verify.check_slider(page, {**plain, "path": {"missing": "x"}})) == []


def test_a_monitor_has_a_page(promised):
    history = [
        {"batch": b, "cell": c, "e_value": 2.0**b, "threshold": 40.0}
        for b in range(1, 7)
        for c in ("a", NASTY)
    ]
    chart = figures.e_values(history)
    assert chart.rule == (40.0, "alarm at 40")
    assert chart.y.low < 2 < 64 < chart.y.high
    assert [line.name for line in chart.lines] == ["a", NASTY]
    assert NASTY not in as_html(chart)
    assert "alarm at 40" in as_html(chart)
    labels = [text.get_text() for text in chart.axes().get_legend().get_texts()]
    assert labels == ["a", NASTY, "alarm at 40"]
    assert figures.e_values([]) is None


def test_the_six_questions_of_a_policy_person_are_answered(tmp_path):
    """What they would ask and not find; docs/report.md says where each is answered."""
    data, place = federation(), tmp_path / "run"
    about = pffl.About("to lend", "the credit board", "2026-11-17", "board@example.org")
    bounds = pffl.ConditionalBoundedGroupLoss(0.8)
    solution = pffl.solve(data, bounds, seed=0, about=about)
    runs.save(solution, place)
    page = html.unescape(render([place])).replace("\n", " ")
    titles = re.findall(r'<h2 id="r0-(\w+)">', page)
    assert re.findall(r'<a href="#r0-(\w+)">', page) == titles
    first, *others = re.split(r'<h2 id="r0-\w+">', page)
    part = dict(zip(titles, others, strict=True))

    # 1. What does the number mean for a person? Before everything else.
    worst = summary.by_urgency(verdict.cell_results(solution.evidence))[0]
    assert "A loss of 0.6931 is a coin, 0 is sure and right" in first
    chance = np.exp(-worst.train_loss)
    assert f"was given a probability of {chance:.2f}" in first
    # 2. How often is it wrong for each group, and in which direction?
    for group in solution.as_dict()["groups"]:
        for kind in ("error", "false_positive", "false_negative"):
            rate = group[kind]
            low, high = (100 * rate[end] for end in ("lower", "upper"))
            text = f"{100 * rate['value']:.1f} % ({int(low)}–{int(np.ceil(high))})"
            assert text in part["wrong"]
    assert "'yes' predicted where 'no' is true" in part["wrong"]
    # 3. Who made it, when, for what use, who is responsible?
    for text in ("to lend", "the credit board", "2026-11-17", "board@example.org"):
        assert text in first
    bare = pffl.report(replace(solution.evidence, about=pffl.About()))
    assert "Purpose: not stated · Owner: not stated · Date: not stated" in bare
    assert "pffl card DIR --purpose … --owner … --date …" in bare
    # 4. Is this page the one that belongs to the certificate?
    sealed = hashlib.sha256((place / "certificate.json").read_bytes()).hexdigest()
    model = solution.evidence.model.fingerprint
    for text in (sealed, model, data.fingerprint):
        assert text in part["from"]
    # 5. Can I check without the data? The page says how, and so it can be.
    assert "pffl verify DIR --arithmetic" in part["from"]
    (place / "report.html").write_text(render([place]))
    checks = [c for c in pffl.verify(place) if c.what.startswith("report")]
    assert len(checks) > 100
    assert [check.what for check in checks if not check.agrees] == []
    # 6. Which inputs matter?
    effects = solution.predictor.coefficients()
    largest = effects.loc[effects["per_sd"].abs().idxmax()]
    shown = part["inputs"].partition("<tbody>")[2]
    assert re.search(r"<bdi>(.*?)</bdi>", shown)[1] == largest["input"]
    assert f"{largest['per_sd']:.4f}" in shown


def test_a_privacy_budget_has_its_place(folders, monkeypatch):
    """What result.json has of it is drawn and told; without noise nothing is."""
    release = {"sensitivity": 1.0, "sigma": 3.5, "deviation": 4.2}
    found = {
        "epsilon": 2.0,
        "delta": 1e-6,
        "heldout_epsilon": 1.5,
        "spent": 1.98761,
        "repeatable": False,
        "sites": 5,
        "shared": True,
        "colluding": 2,
        "releases": [
            {"name": "gradients", "split": "train", "times": 12, "mu": 0.3, **release},
            {"name": NASTY, "split": "train", "times": 1, "mu": 0.4, **release},
            {"name": "final losses", "split": "test", "times": 1, "mu": 0.2, **release},
        ],
        "cells": [{"cell": NASTY, "lower": 0.51239, "upper": 0.61234}],
    }
    plain = render(folders[:1])
    assert "Privacy budget" not in plain
    honest = verdict.result
    monkeypatch.setattr(verdict, "result", lambda e: {**honest(e), "privacy": found})
    page = html.unescape(render(folders[:1]))
    assert page.index('id="r0-privacy"') < page.index('id="r0-certificate"')
    part = page.partition('id="r0-privacy"')[2].partition("<h2")[0]
    assert "ε = 2, δ = 1e-06 for each person of the training rows" in part
    assert "of which 1.988 was spent" in part  # rounded up
    assert "ε = 1.5 for each person of the held-out rows" in part
    assert "no more than 2 of them" in part
    for share in ("36.0 %", "64.0 %", "100.0 %"):  # squares of μ add up
        assert f'class="note">{share}<' in part
    first = page.partition('id="r0-cells"')[0]
    assert "with noise: 0.5123 to 0.6124" in first  # rounded outwards
    found["repeatable"] = True
    assert "nothing of this run is private" in render(folders[:1])


def test_pictures_of_readme_are_there_and_small():
    root = Path(__file__).parents[2]
    shown = re.findall(r"!\[[^\]]+\]\((docs/figures/page-[^)]+)\)", README.read_text())
    assert len(shown) == 2
    assert all((root / name).stat().st_size < 300_000 for name in shown)


def test_what_noise_may_explain_is_not_called_above(tmp_path):
    """Ends of training losses are those of the certificate; red is what is decided."""
    data = pffl.datasets.synthetic(2_000, silos=3, features=3, groups=2, seed=0)
    ranges = dict.fromkeys(data.schema.features, (-200.0, 200.0))
    budget = pffl.Privacy(epsilon=4.0, delta=1e-6, ranges=ranges, noise_seed=0)
    solution = pffl.solve(data, pffl.BoundedGroupLoss(0.6), seed=0, privacy=budget)
    e = solution.evidence
    ends = {one["cell"]: one for one in verdict.result(e)["privacy"]["cells"]}
    for bound in (0.3, 0.6, 0.69):
        cells = [replace(c, bound=bound) for c in e.cells]
        moved = replace(e, cells=cells)
        found = verdict.cell_results(moved)
        table = {c.title: c.figures for c in summary.columns(moved, found)}
        for z, cell in enumerate(found):
            low, high = (ends[cell.cell][end] for end in ("lower", "upper"))
            assert table["at least"][z].text == down(low)
            assert table["at most"][z].text == up(high)
            tone = "bad" if low > bound else "plain"
            assert table["loss"][z].tone == tone
            held = told.ends(moved, moved.privacy, moved.privacy.heldout)[0][z]
            over = held > bound
            assert table["held-out"][z].tone == ("bad" if over else "plain")
            assert str(table["held-out"][z]).startswith("▲") == over
    runs.save(solution, tmp_path / "run")
    page = html.unescape(render([tmp_path / "run"]))
    first = page.partition('id="r0-cells"')[0]
    for name, one in ends.items():
        said = f"{name}, with noise: {down(one['lower'])} to {up(one['upper'])}"
        assert said in first
    assert [c.what for c in pffl.verify(tmp_path / "run") if not c.agrees] == []
