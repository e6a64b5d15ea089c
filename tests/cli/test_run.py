from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import pffl as library
from pffl import runs
from pffl.errors import FederationError
from pffl.files import json_text
from pffl.text import up
from tests.cli.helpers import SMALL, one_line

RUN = ("run", *SMALL)


def test_a_run_is_saved_numbered_and_shown(command):
    seen = command("run", *SMALL, "--bound", "0.8")
    assert seen.code == 0
    for name in ("model.safetensors", "report.html"):
        assert f"runs/synthetic-001/{name}" in seen.out
        assert Path("runs/synthetic-001", name).is_file()
    assert command(*RUN, "--bound", "0.8").code == 0
    assert sorted(os.listdir("runs")) == ["synthetic-001", "synthetic-002"]


def test_the_same_numbers_as_the_library(command):
    """And JSON is alone on stdout."""
    seen = command(*RUN, "--bound", "0.66", "--json", "--out", "here")
    federation = library.datasets.synthetic(900, silos=3, random_state=1)
    solution = library.solve(federation, library.BoundedGroupLoss(0.66), random_state=1)
    assert seen.code == 0
    found = seen.json
    assert found == json.loads(Path("here/result.json").read_text())
    expected = json.loads(json_text(solution.as_dict()))
    del found["seconds"], expected["seconds"]
    assert found == expected
    assert np.array_equal(runs.read_run("here").w, solution.w)
    assert "✓ training     met" in seen.err


def test_a_mistake_leaves_no_directory(command):
    seen = command(*RUN, "--bound", "nobody=0.8", "--out", "here")
    assert (seen.code, "nobody" in seen.err, Path("here").exists()) == (2, True, False)


def test_a_run_file_repeats_the_run(command):
    first = command(*RUN, "--bound", "0.66", "--json", "--out", "a")
    again = command("run", "a/run.toml", "--json", "--out", "b")
    assert first.json["cells"] == again.json["cells"]
    assert Path("a/run.toml").read_text() == Path("b/run.toml").read_text()
    third = command("run", "a", "--json")
    assert third.json["cells"] == again.json["cells"]


def test_exit_code_of_bounds_that_are_not_met(command):
    options = ("--method", "fedavg", "--set", "method.rounds=2", "--bound", "0.55")
    seen = command(*RUN, *options, "--json")
    assert seen.json["status"] in ("not met", "impossible")
    assert seen.code == 4


@pytest.mark.parametrize("width", ["40", "200"])
def test_numbers_are_never_cut(command, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    seen = command(*RUN, "--bound", "0.66", "--out", "here", "--verbose")
    for cell in runs.read_run("here").as_dict()["cells"]:
        row = next(r for r in seen.out.splitlines() if r.startswith(cell["cell"] + " "))
        assert f"{cell['train_loss']:.4f}" in row
        assert up(cell["test_upper"]) in row  # as on the page, and never too small


def test_a_federation_that_fails_says_where(command, monkeypatch):
    def down(*_):
        raise FederationError("[site-down] site b does not answer")

    monkeypatch.setattr("pffl.engines.local.Local.ask_many", down)
    seen = command(*RUN, "--bound", "0.8")
    assert (seen.code, seen.error) == (5, "site-down")
    assert "message 1: census" in one_line(seen.err)


@pytest.mark.parametrize("browser", [True, False])
def test_the_page_is_opened_in_the_browser(command, monkeypatch, browser):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or browser)
    seen = command(*RUN, "--bound", "0.8", "--out", "here", "--open")
    assert opened == [Path("here/report.html").resolve().as_uri()]
    assert ("no browser was found" in seen.err) != browser
