"""The site is built without a warning, and no link of it leads nowhere.

The command is the one of docs/conf.py; notebooks are not run here, but by
tests/docs/test_notebooks.py.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"""<a\b[^>]*?\bhref="([^"]*)\"""")
ANCHOR = re.compile(r"""\b(?:id|name)="([^"]+)\"""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One site for all processes: two at once would write the same pages of the API."""
    pytest.importorskip("myst_nb", reason="the extra 'docs' is not installed")
    alone, base = worker_id == "master", tmp_path_factory.getbasetemp()
    out = (base if alone else base.parent) / "site" / "html"
    with FileLock(base.parent / "site.lock"):
        if not (out / "index.html").is_file():
            make(out)
    return out


def make(out: Path) -> None:
    build = ["-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-c", "docs", "."]
    run = subprocess.run(
        [sys.executable, *build, "-d", str(out.parent / "trees"), str(out)],
        cwd=ROOT,
        env=os.environ | {"PFFL_NOTEBOOKS": "off"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_no_link_leads_nowhere(site):
    pages = {p: p.read_text("utf-8") for p in site.rglob("*.html")}
    anchors = {p: set(ANCHOR.findall(text)) for p, text in pages.items()}
    broken = set()
    for page, text in pages.items():
        for link in map(html.unescape, LINK.findall(text)):
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme in ("https", "http", "mailto"), (page, link)
                continue
            path = unquote(parts.path)
            target = (page.parent / path).resolve() if path else page
            wanted = unquote(parts.fragment)
            there = target.exists() and (
                not wanted or target not in anchors or wanted in anchors[target]
            )
            if not there:
                broken.add((page.relative_to(site).as_posix(), link))
    assert broken == set()


def test_nothing_is_loaded_from_elsewhere(site):
    """The site works without a network."""
    loads = re.compile(
        r"""<(?:script|link|img|iframe)\b[^>]*(?:src|href)="(https?:[^"]+)"""
    )
    found = {
        (p.relative_to(site).as_posix(), link)
        for p in site.rglob("*.html")
        for link in loads.findall(p.read_text("utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize("word", ["multiclass", "xgboost", "polar", "demograph"])
def test_the_search_finds_what_people_look_for(site, word):
    """Stems, as the search has them; results of measurements are not in it."""
    text = (site / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    found = {index["docnames"][n] for n in np.atleast_1d(index["terms"][word])}
    assert any(name.startswith("docs/") for name in found)
    assert not any(name.startswith(("benchmarks", "reproduction")) for name in found)
