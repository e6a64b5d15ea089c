"""The gallery: every cell of every notebook runs, as a reader would run it."""

from __future__ import annotations

import importlib.util
import re
import warnings
from pathlib import Path

import pytest

from tests.datasets.server import is_cached

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
NOTEBOOKS = sorted(p.stem for p in GALLERY.glob("*.md") if p.stem != "index")
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OPTION = re.compile(r"^:[\w-]+:.*\n", re.MULTILINE)
#: More than a few seconds, or processes of its own: `pytest -m slow`.
SLOW = {"the_paper", "torch_under_flower"}
MODULES = {"fairlearn", "torch", "flwr"}


def cells(name: str) -> list[str]:
    """The code of a notebook, cell by cell."""
    text = (GALLERY / f"{name}.md").read_text("utf-8")
    return [OPTION.sub("", cell) for cell in CELL.findall(text)]


def marked(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name


@pytest.mark.parametrize("name", [marked(name) for name in NOTEBOOKS])
def test_notebook_runs(name, tmp_path, monkeypatch):
    code = cells(name)
    whole = "\n".join(code)
    assert code, "a notebook without cells"
    if "datasets.compas" in whole and not is_cached():
        pytest.skip("COMPAS is not cached")
    for module in MODULES:
        used = re.search(rf"^\s*(import|from) {module}\b", whole, re.MULTILINE)
        if used and importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are shown to readers, not to tests
        for number, cell in enumerate(code, start=1):
            exec(compile(cell, f"{name}, cell {number}", "exec"), scope)  # noqa: S102
