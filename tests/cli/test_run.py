from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

import pffl as library
from pffl import runs
from pffl.errors import FederationError
from pffl.files import json_text
from pffl.text import up
from tests.cli.helpers import SMALL, one_line, pffl, program

COLUMNS = ("rows", "before", "after", "bound", "held-out", "promised", "at most")
TITLES = ("On the training rows", "On held-out rows", "Promised for people not seen")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_verdict_is_shown(capsys):
    seen = pffl(capsys, "run", *SMALL, "--bound", "0.8")
    assert seen.code == 0
    assert all(column in seen.out for column in COLUMNS)
    assert "✓ On the training rows: MET" in seen.out
    places = [seen.out.index(title) for title in TITLES]
    assert places == sorted(places)
    assert "synthetic data" in seen.out
    assert "Saved in runs/synthetic-001" in one_line(seen.out)
    for name in ("certificate.json", "report.html"):
        assert f"runs/synthetic-001/{name}" in seen.out
        assert Path("runs/synthetic-001", name).is_file()


def test_the_same_numbers_as_the_library(capsys):
    seen = pffl(capsys, "run", *SMALL, "--bound", "0.66", "--json", "--out", "here")
    federation = library.datasets.synthetic(900, silos=3, seed=1)
    solution = library.solve(federation, library.BoundedGroupLoss(0.66), seed=1)
    assert seen.code == 0
    found = seen.json
    assert found == json.loads(Path("here/result.json").read_text())
    expected = json.loads(json_text(solution.as_dict()))
    del found["seconds"], expected["seconds"]
    assert found == expected
    assert np.array_equal(runs.load("here").w, solution.w)


def test_runs_are_numbered(capsys):
    for _ in range(2):
        assert pffl(capsys, "run", *SMALL, "--bound", "0.8", "--quiet").out == ""
    assert sorted(os.listdir("runs")) == ["synthetic-001", "synthetic-002"]


def test_a_mistake_leaves_no_directory(capsys):
    seen = pffl(capsys, "run", *SMALL, "--bound", "nobody=0.8", "--out", "here")
    assert seen.code == 2
    assert "nobody" in seen.err
    assert not Path("here").exists()


def test_a_run_file_repeats_the_run(capsys):
    first = pffl(capsys, "run", *SMALL, "--bound", "0.66", "--json", "--out", "a")
    again = pffl(capsys, "run", "a/spec.toml", "--json", "--out", "b")
    assert first.json["cells"] == again.json["cells"]
    assert Path("a/spec.toml").read_text() == Path("b/spec.toml").read_text()
    assert pffl(capsys, "run", "a", "--json").json["cells"] == again.json["cells"]


def test_a_table_is_found_again_from_the_run_directory(capsys):
    rows = (f"{i % 7},{'ab'[i % 2]},{'nm'[i // 2 % 2]},{i % 3 % 2}" for i in range(80))
    Path("people.csv").write_text("\n".join(["x,g,site,y", *rows]) + "\n")
    columns = ("--label", "y", "--group", "g", "--silo", "site", "--seed", "0")
    out = ("--out", "deep/down/here")
    seen = pffl(capsys, "run", "people.csv", *columns, "--bound", "0.9", *out)
    assert seen.code == 0
    assert "label 'y': '0' → 0, '1' → 1 (positive)" in seen.out
    spec = tomllib.loads(Path("deep/down/here/spec.toml").read_text())
    assert spec["data"]["path"] == "../../../people.csv"
    assert pffl(capsys, "run", "deep/down/here", "--quiet").code == 0


def test_options_fall_back_to_the_defaults_of_the_method(capsys):
    options = ("--method", "pffl", "--dual-rounds", "2", "--bound", "0.8")
    seen = pffl(capsys, "run", *SMALL, *options, "--json", "--out", "here")
    expected = library.PFFL(dual_rounds=2)
    found = seen.json["method"]
    assert found == {"kind": "pffl", **vars(expected)}
    spec = tomllib.loads(Path("here/spec.toml").read_text())
    assert "step_size" not in spec["method"]
    assert spec["method"]["local_steps"] == expected.local_steps


def test_json_is_alone_on_stdout(capsys):
    seen = pffl(capsys, "run", *SMALL, "--bound", "0.8", "--json")
    assert seen.json["status"] == "met"
    assert "On the training rows: MET" in seen.err


def test_exit_code_of_bounds_that_are_not_met(capsys):
    options = ("--method", "fedavg", "--rounds", "2", "--bound", "0.55")
    seen = pffl(capsys, "run", *SMALL, *options, "--json", "--quiet")
    assert seen.json["status"] in ("not_met", "infeasible")
    assert seen.code == 4


def test_no_bound_at_all(capsys):
    seen = pffl(capsys, "run", *SMALL)
    assert seen.code == 0
    assert "no bound was asked for" in seen.out


@pytest.mark.parametrize("kind", ["bgl", "cbgl", "per-silo"])
def test_constraints(capsys, kind):
    options = ("--constraint", kind, "--bound", "0.9", "--json", "--quiet")
    seen = pffl(capsys, "run", *SMALL, *options)
    assert seen.json["constraint"]["kind"] == kind


def test_minmax(capsys):
    seen = pffl(capsys, "run", *SMALL, "--constraint", "minmax", "--out", "here")
    assert seen.code == 0
    assert runs.load("here").result["constraint"]["kind"] == "minmax"


def test_a_bound_for_each_cell(capsys):
    bounds = ("--bound", "A=0.7", "--bound", "B=0.8", "--bound", "C=0.9")
    seen = pffl(capsys, "run", *SMALL, *bounds, "--json", "--quiet")
    assert {c["cell"]: c["bound"] for c in seen.json["cells"]} == {
        "A": 0.7,
        "B": 0.8,
        "C": 0.9,
    }


@pytest.mark.parametrize("width", ["40", "60", "80", "200"])
def test_numbers_are_never_cut(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    seen = pffl(capsys, "run", *SMALL, "--bound", "0.66", "--out", "here")
    for cell in runs.load("here").result["cells"]:
        row = next(r for r in seen.out.splitlines() if r.startswith(cell["cell"] + " "))
        assert f"{cell['train_loss']:.4f}" in row
        assert up(cell["test_upper"]) in row  # as on the page, and never too small


def test_many_cells_show_the_tightest(capsys):
    options = ("--set", "data.groups=50", "--set", "data.rows=4000")
    many = ("--set", f"data.group_sizes={[1] * 50}", "--bound", "1.5", "--out", "here")
    seen = pffl(capsys, "run", "synthetic", "--silos", "2", *options, *many)
    assert "20 more in result.json" in one_line(seen.out)
    worst = max(runs.load("here").result["cells"], key=lambda c: c["violation"])
    assert f"{worst['train_loss']:.4f}" in seen.out


def test_a_federation_that_fails_says_where(capsys, monkeypatch):
    def down(*_):
        raise FederationError("site b does not answer")

    monkeypatch.setattr("pffl.engines.local.Local.ask_many", down)
    seen = pffl(capsys, "run", *SMALL, "--bound", "0.8")
    assert seen.code == 5
    assert "site b does not answer" in seen.err
    assert "while asking question 1: census of 'census'" in one_line(seen.err)


def test_the_last_lines_count_questions(capsys):
    seen = pffl(capsys, "run", *SMALL, "--bound", "0.66", "--out", "here")
    asked = json.loads(Path("here/result.json").read_text())["questions"]
    assert asked["asked"] == asked["distinct"]
    words = f"{asked['asked']} questions ({asked['asked']} distinct) in "
    assert f"{words}{asked['messages']} messages" in one_line(seen.out)
    assert "each cell by itself, 95 % sure" in one_line(seen.out)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_interrupted(tmp_path, number, code):
    endless = ("--method", "pffl", "--dual-rounds", "1000000", "--bound", "0.6")
    process = subprocess.Popen(
        program("run", *SMALL, *endless, "--out", "here"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("round ")
    time.sleep(0.2)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert "! On the training rows: INTERRUPTED" in out
    record = runs.load(tmp_path / "here", require_verified=True)
    assert record.result["status"] == "interrupted"
    assert record.result["rounds"] > 0
