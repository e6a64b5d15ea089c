"""`pffl report`, `run --open`: pages are written, opened."""

from __future__ import annotations

import pytest

from tests.cli.helpers import SMALL, pffl

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
