"""The report as text: what it says, of every kind of folder, and what it never does."""

import html
import json
import re
from dataclasses import replace

import pytest

import pffl
from pffl import runs
from pffl.errors import ArtefactError
from pffl.experiments import Comparison
from pffl.text import down, up
from tests.inside import (
    Evidence,
    Judged,
    Missing,
    conclude,
    embedded,
    render,
    tables,
)
from tests.raising import raises
from tests.reports.folders import NASTY, federation
from tests.test_path import unlike


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("report")
    data = federation()
    made = []
    for name, bound in (("met", 0.69), ("impossible", 0.3)):
        solution = pffl.solve(data, pffl.BoundedGroupLoss(bound), random_state=0)
        runs.save(solution, base / name, "[data]\n")
        made.append(base / name)
    return made


@pytest.fixture(scope="module")
def page(folders):
    return "".join(map(render, folders))


def test_names_stay_text(page):
    assert NASTY not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_nothing_is_loaded_from_elsewhere(page):
    assert not re.search(r'(src|href)="(?!data:,"|#r0-|#r1-)', page)
    outside = page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "http" not in outside
    assert "Content-Security-Policy" in page
    assert "unsafe-eval" not in page


def evidence_of(folder):
    return Evidence.from_dict(
        json.loads((folder / "certificate.json").read_text())["evidence"]
    )


def test_one_figure_per_promise(folders, page):
    """Table, chart, certificate and result.json show the same bound (fault 86)."""
    for folder in folders[:2]:
        evidence = evidence_of(folder)
        result = json.loads((folder / "result.json").read_text())
        bounds = Judged(evidence).heldout.upper
        certificate = conclude(evidence).certificate
        (statement,) = certificate.of_kind("holdout")
        assert [cell["test_upper"] for cell in result["cells"]] == list(bounds)
        assert [row["upper"] for row in statement.per_cell] == list(bounds)
        for bound in bounds:
            entry = r'<td data-title="certified at most"[^>]*>▲?'
            assert re.search(entry + re.escape(up(bound)) + "</td>", page)
            assert f"certified at most: {up(bound)}<" in page
        assert f"at most {up(max(bounds))}" in statement.text
        assert html.escape(statement.text, quote=False) in page.replace("&#39;", "'")


def test_a_page_of_objects_is_that_of_their_folder(tmp_path):
    data = federation()
    solution = pffl.solve(data, pffl.BoundedGroupLoss(0.69), random_state=0)
    runs.save(solution, tmp_path / solution.data.name)
    page = pffl.report(solution, out=tmp_path / "page.html")
    assert page == render(tmp_path / solution.data.name)
    assert (tmp_path / "page.html").read_text("utf-8") == page
    bare = pffl.report(solution.evidence)
    unknown = Missing("nothing is known of how the model was trained")
    audited = pffl.report(replace(solution.evidence, training=unknown))
    assert ("<dt>method</dt>" in bare, "<dt>method</dt>" in audited) == (True, False)
    methods = {"methods": ["fedavg", "exact"], "seeds": 2, "budget": 5}
    compared = pffl.compare(data, **methods, out=tmp_path / "compared")
    assert '<th scope="row"><bdi>fedavg</bdi></th>' in pffl.report(compared)
    assert Comparison.load(tmp_path / "compared") == compared
    assert "fedavg" in render(tmp_path / "compared")
    with raises(ArtefactError, "cannot-write"):
        pffl.report(solution, out=tmp_path / "missing" / "page.html")


def test_embedded_json_cannot_close_its_element():
    text = embedded({"a": "</script><!-- & \u2028"})
    assert "<" not in text
    assert json.loads(text) == {"a": "</script><!-- & \u2028"}


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({}, "unknown-folder"),
        ({"other.json": '{"format": "x"}', "broken.json": "{"}, "unknown-folder"),
        ({"result.json": "{}"}, "file-missing"),
        ({"result.json": "{}", "certificate.json": "[1]"}, "wrong-value"),
        ({"result.json": "{}", "certificate.json": "{"}, "not-json"),
        ({"result.json": "{}", "certificate.json": '{"format": "x"}'}, "other-format"),
    ],
)
def test_other_folders_are_refused(tmp_path, files, code):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with raises(ArtefactError, code):
        render(tmp_path)


@pytest.fixture(scope="module")
def promised():
    """A promise by which some models were shown, one was not, and some not tested."""
    solution = pffl.solve(
        unlike(),
        pffl.BoundedGroupLoss(0.75),
        random_state=0,
        certify=True,
        options=pffl.Options(smallest_bound=False),
    )
    path = solution.evidence.path
    states = Judged(solution.evidence).tested
    assert states.count(True) > 0
    assert states[-1] is False
    assert len(states) < len(path.candidates)
    return solution.evidence, path, len(states)


def test_the_models_of_a_path_are_drawn_by_what_came_of_them(promised):
    e, path, tried = promised
    page = pffl.report(e)
    (chart,) = re.findall(r'aria-label="Models that were tested.*?</ul>', page)
    key = re.findall(r"</svg></svg>([^<]+)</li>", chart)
    assert key == ["certified", "not certified", "not tested"]
    assert chart.count('<svg class="mark"') == len(path.candidates) + len(key)
    table = page.partition('aria-label="Models tested"')[2].partition("</table>")[0]
    states = re.findall(r'data-title="every bound">([^<]+)<', table)
    many = (tried - 1, 1, len(path.candidates) - tried)
    assert [states.count(word) for word in key] == list(many)


def test_what_noise_may_explain_is_not_called_above(tmp_path):
    """Ends of training losses are those of the certificate; red is what is decided."""
    data = pffl.datasets.synthetic(2_000, silos=3, features=3, groups=2, random_state=0)
    ranges = dict.fromkeys(data.schema.features, (-200.0, 200.0))
    budget = pffl.Privacy(epsilon=4.0, delta=1e-6, ranges=ranges, noise_seed=0)
    solution = pffl.solve(
        data, pffl.BoundedGroupLoss(0.6), random_state=0, privacy=budget
    )
    e = solution.evidence
    ends = {one["cell"]: one for one in conclude(e).result()["privacy"]["cells"]}
    for bound in (0.3, 0.6, 0.69):
        cells = [replace(c, bound=bound) for c in e.cells]
        moved = replace(e, cells=cells)
        told_of = conclude(moved)
        found = told_of.cells
        table = {c.title: c.figures for c in tables.columns(told_of, found)}
        for z, cell in enumerate(found):
            low, high = (ends[cell.cell][end] for end in ("lower", "upper"))
            ends_of = f"({down(low, digits=3)}–{up(high, digits=3)})"
            assert table["loss"][z].text.endswith(f" {ends_of}")
            tone = "bad" if low > bound else "plain"
            assert table["loss"][z].tone == tone
            held = Judged(moved).ends(moved.privacy.heldout)[0][z]
            over = held > bound
            assert table["test"][z].tone == ("bad" if over else "plain")
            assert str(table["test"][z]).startswith("▲") == over
    runs.save(solution, tmp_path / "run")
    page = html.unescape(render(tmp_path / "run"))
    first = page.partition('id="r0-groups"')[0]
    for name, one in ends.items():
        said = (
            f"{name}, interval from noise: {down(one['lower'])} to {up(one['upper'])}"
        )
        assert said in first
    assert [c.what for c in pffl.verify(tmp_path / "run") if not c.agrees] == []
