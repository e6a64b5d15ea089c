"""The report, as text and (where Debian's Chromium is installed) in a browser."""

import html
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl import runs
from pffl.errors import ArtefactError
from pffl.evidence import summary, unseen, verdict
from pffl.evidence.evidence import Evidence, Missing
from pffl.files import Journal
from pffl.reports import charts
from pffl.reports.page import SweepView, embedded, margin, number, render
from pffl.study.sweep import full_grid, sweep
from pffl.text import up

NASTY = "<script>alert(1)</script>"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="Debian's chromium and chromium-driver are absent"
)


LONG = "Female × Asian-Pac-Islander × never married"


def federation(groups=("<script>alert(1)</script>", LONG), rows=800):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 3))
    group = np.asarray(groups)[rng.integers(0, len(groups), rows)]
    y = np.where(X[:, 0] + rng.normal(size=rows) > 0, "yes", "no")
    return pffl.Federation.from_arrays(
        X,
        y,
        sensitive_features={"kind": group},
        silo=rng.integers(0, 3, rows),
        validation_fraction=0.2,
        synthetic=True,
        name="nasty & small",
    )


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
    points = json.loads(data.group(1))[0]["points"]
    assert any(NASTY in cell[0] for p in points for cell in p["c"])


def test_nothing_is_loaded_from_elsewhere(page):
    assert not re.search(r'(src|href)="(?!data:,")', page)
    assert "http" not in page.replace("http-equiv", "")
    assert "Content-Security-Policy" in page


def evidence_of(folder):
    return Evidence.from_dict(json.loads((folder / "evidence.json").read_text()))


def test_first_screen_says_it_in_words(folders, page):
    titles = [one.title for one in summary.verdicts(evidence_of(folders[0]))]
    assert titles == list(summary.TITLES.values())
    for title in titles:
        assert page.count(f"<h2>{title}</h2>") == 2
    assert "Every bound is met on the training rows" in page
    assert "Why it is impossible" in page
    assert "Synthetic data" in page


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
            assert f"unseen at most: {up(bound)}<" in page
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
    assert "<h2>Convergence" not in bare
    assert "<title>bare" in bare
    unknown = Missing("nothing is known of how the model was trained")
    audited = pffl.report(replace(solution.evidence, training=unknown))
    assert "method exact" in bare
    assert "method" not in audited
    assert "training rows ·" not in audited
    found = sweep(data, full_grid(["bgl"], [0.6], [1.0, 10.0]))
    methods = {"methods": ["fedavg", "exact"], "seeds": 1, "budget": 5}
    both = pffl.report(found, pffl.compare(data, **methods))
    assert "Trade-off: nasty &amp; small" in both
    assert "<td>fedavg</td>" in both
    with pytest.raises(ArtefactError, match="missing"):
        pffl.report(solution, out=tmp_path / "missing" / "page.html")


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


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(ArtefactError, match="neither"):
        render([tmp_path])
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(ArtefactError, match=r"no evidence\.json; .* pffl run"):
        render([tmp_path])
    for text in ("[1]", "{", '{"format": "other"}'):
        (tmp_path / "evidence.json").write_text(text)
        with pytest.raises(ArtefactError, match="evidence"):
            render([tmp_path])


@pytest.mark.parametrize("count", [1, 200])
def test_fault_78_any_number_of_cells_is_drawn(count):
    cells = [
        {
            "cell": f"group {i} " + "long " * 20,
            "bound": 0.6,
            "violation": i / 100,
            "train_loss": 0.5 + i / 1000,
            "test_loss": None if i % 3 else 0.5,
            "test_upper": 0.9,
        }
        for i in range(count)
    ]
    svg = charts.cell_chart(cells)
    assert svg.count('class="after"') == min(count, charts.MOST_CELLS)
    assert len(svg) < 60_000


def test_a_huge_upper_bound_does_not_press_the_rest_together():
    def cell(name, upper):
        return {
            "cell": name,
            "bound": 0.6,
            "violation": 0.0,
            "train_loss": 0.6,
            "before_train_loss": 0.62,
            "test_loss": 0.58,
            "test_upper": upper,
        }

    low, high = charts.cell_range([cell("a", 0.7), cell("b", 40.0)])
    assert 0.5 < low < 0.58
    assert 0.7 < high < 1.0
    svg = charts.cell_chart([cell("a", 0.7), cell("b", 40.0)])
    assert "b, unseen at most: 40<" in svg
    drawn = [float(n) for n in re.findall(r'x2?="([\d.]+)%"', svg)]
    assert max(drawn) <= 100
    assert max(drawn) - min(drawn) > 20
    _, plain = charts.cell_range([cell("a", 0.7)])
    assert plain < high
    _, nothing = charts.cell_range([cell("a", None)])
    assert nothing == pytest.approx(0.62, abs=0.01)


def test_fault_78_ten_thousand_points_stay_small(tmp_path):
    rng = np.random.default_rng(0)
    cells = [
        {"cell": f"g{i}", "train_loss": 0.6, "bound": 0.6, "test_loss": 0.6}
        for i in range(4)
    ]
    with (tmp_path / "points.jsonl").open("w") as file:
        for i in range(10_000):
            row = {
                "key": str(i),
                "notion": "bgl",
                "bound": 0.5,
                "multiplier_bound": 1.0,
                "status": "met",
                "reason": None,
                "cells": cells,
                "test_error": rng.random(),
                "test_worst_cell_loss": rng.random(),
            }
            file.write(json.dumps(row) + "\n")
    assert len(render([tmp_path])) < 5_000_000
    rows = Journal(tmp_path / "points.jsonl")
    assert len(SweepView.of(rows, "sweep").points) == 10_000


def test_lines_need_two_points():
    assert charts.line_chart({"a": [(1, 0.5)]}, "x") == ""
    assert "polyline" in charts.line_chart({"a": [(1, 0.5), (2, 0.1)]}, "x", log=True)
    assert charts.ticks(0, 1)[0] == 0
    assert charts.ticks(2, 2) == [2]
    assert charts.ticks(1, 3, whole=True) == [1, 2, 3]


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
    ):
        options.add_argument(flag)
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


#: What is cut, or beyond the screen, of verdicts, of names beside dots, of tables.
OUT_OF_SIGHT = """
return [...document.querySelectorAll('.verdicts li, .dot-row .name, .stack td')]
  .filter(e => { const r = e.getBoundingClientRect();
    return r.left < 0 || r.right > innerWidth || e.scrollWidth > e.clientWidth + 1; })
  .map(e => e.textContent)
"""
SMALL_PRINT = """
return [...document.querySelectorAll('svg text, td, p, li, dd')]
  .filter(e => parseFloat(getComputedStyle(e).fontSize) < 12).map(e => e.textContent)
"""


def narrow(browser, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_in_a_browser(browser, page, tmp_path, scheme, width):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    narrow(browser, width)
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    browser.get_log("performance")
    browser.get(path.as_uri())
    assert browser.get_log("browser") == []
    sent = [
        json.loads(entry["message"])["message"]["params"]["request"]["url"]
        for entry in browser.get_log("performance")
        if "Network.requestWillBeSent" in entry["message"]
        and "request" in json.loads(entry["message"])["message"]["params"]
    ]
    assert [url for url in sent if not url.startswith(("file:", "data:"))] == []
    assert browser.execute_script(
        "return document.documentElement.scrollWidth <= window.innerWidth"
    )
    assert browser.execute_script(OUT_OF_SIGHT) == []
    assert browser.execute_script(SMALL_PRINT) == []
    section = browser.find_element(By.ID, "sweep-0")
    live = section.find_element(By.CSS_SELECTOR, "[aria-live]")
    before, table = live.text, section.find_element(By.TAG_NAME, "tbody")
    assert before
    assert NASTY in table.text
    section.find_element(By.TAG_NAME, "canvas").send_keys(Keys.ARROW_RIGHT)
    section.find_element(By.TAG_NAME, "canvas").send_keys(Keys.ARROW_RIGHT)
    moved = live.text
    section.find_element(By.TAG_NAME, "canvas").send_keys(Keys.ARROW_LEFT)
    assert moved != live.text or moved != before
    browser.execute_script(
        "const s=arguments[0]; s.value='cbgl'; s.dispatchEvent(new Event('change'))",
        section.find_element(By.TAG_NAME, "select"),
    )
    assert len(table.find_elements(By.TAG_NAME, "tr")) == 4
    assert browser.get_log("browser") == []
