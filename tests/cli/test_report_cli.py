"""`pffl report`, `run --open`, `watch --page`: pages are written, opened."""

from __future__ import annotations

import pytest

from tests.cli.helpers import SMALL, pffl
from tests.runs.test_overview import BEGUN, ENDED, ROUND, at, record

pytest.importorskip("jinja2")


@pytest.fixture
def opened(monkeypatch):
    """What was opened in a browser that there is not."""
    found: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: found.append(url) or True)
    return found


def test_a_run_is_opened_and_so_is_its_report(capsys, tmp_path, opened, monkeypatch):
    run, page = tmp_path / "run", tmp_path / "page.html"
    pffl(capsys, "run", *SMALL, "--out", run, "--open")
    assert opened == [(run / "report.html").as_uri()]
    seen = pffl(capsys, "report", run, "-o", page, "--open", "--title", "Ours")
    assert seen.code == 0
    assert opened[1:] == [page.as_uri()]
    assert "<title>Ours</title>" in page.read_text("utf-8")
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    seen = pffl(capsys, "report", run, "-o", page, "--open")
    assert seen.code == 0


def test_a_page_follows_a_run_that_goes_on(capsys, tmp_path, opened, monkeypatch):
    out = tmp_path / "run"
    record(out, [at(BEGUN, 0), at(ROUND, 1)])
    pages: list[str] = []
    coming = [{**ROUND, "round": 4, "violation": 0.005}, ENDED]
    known = [at(BEGUN, 0), at(ROUND, 1)]

    def one_more(seconds):
        pages.append((out / "live.html").read_text("utf-8"))
        known.append(at(coming.pop(0), 2))
        record(out, known)

    monkeypatch.setattr("time.sleep", one_more)
    monkeypatch.setattr("pffl.cli.watch.REFRESH", 0)
    seen = pffl(capsys, "watch", out, "--page")
    assert seen.code == 4
    assert opened == [(out / "live.html").as_uri()]
    assert "round 3 of 10" in pages[0]
    assert "round 4 of 10" in pages[1]
    assert "polyline" not in pages[0]  # one point is no line
    assert "polyline" in pages[1]
    last = (out / "live.html").read_text("utf-8")
    assert 'id="again"' in pages[0]
    assert 'id="again"' not in last
