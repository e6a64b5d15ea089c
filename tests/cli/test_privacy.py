"""`pffl run … --epsilon`: from the command line and from a run file."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from tests.cli.helpers import one_line, pffl
from tests.declared import columns_file

RANGES = {"age": (18, 90), "income": (0, 100)}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    random, n = np.random.default_rng(0), 6000
    age, income = random.integers(18, 90, n), random.gamma(2, 15, n)
    score = 0.03 * (age - 50) + 0.02 * (income - 30) + random.normal(size=n)
    frame = pd.DataFrame(
        {
            "age": age,
            "income": income.round(2),
            "town": random.choice(["a", "b", "c"], n),
            "sex": random.choice(["f", "m"], n),
            "site": random.choice(["north", "south", "west"], n),
            "hired": np.where(score > 0, "yes", "no"),
        }
    )
    path = tmp_path_factory.mktemp("data") / "people.csv"
    frame.to_csv(path, index=False)
    columns_file(path.with_suffix(".toml"), frame, ranges=RANGES)
    return path


def command(table, *more):
    columns = ["--label", "hired", "--group", "sex", "--silo", "site"]
    columns += ["--set", f"columns={table.with_suffix('.toml')}"]
    return ["run", str(table), *columns, "--bound", "0.69", "--method", "exact", *more]


def test_a_run_with_a_budget(table, tmp_path, capsys):
    out = tmp_path / "run"
    budget = ["--epsilon", "4", "--set", "privacy.secure_sum=true"]
    found = pffl(capsys, *command(table, *budget, "--out", str(out)))
    assert found.code in (0, 4), found.err
    result = json.loads((out / "result.json").read_text())
    assert result["privacy"]["epsilon"] == 4.0
    assert result["privacy"]["spent"] == pytest.approx(4.0, rel=1e-6)
    assert result["privacy"]["shared"] is True
    assert len(result["privacy"]["releases"]) == 11
    assert pffl(capsys, "verify", str(out)).code == 0
    spec = (out / "run.toml").read_text()
    assert "epsilon = 4.0" in spec
    assert "[columns.age]" in spec
    rows = pd.read_csv(table)
    text = (out / "certificate.json").read_text() + (out / "report.html").read_text()
    assert f"{len(rows):,}" not in text  # no exact count of rows anywhere


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (["--epsilon", "1", "--set", "columns=no.toml"], "cannot-read"),
        (["--set", "privacy.delta=1e-6"], "missing-key"),
        (["--epsilon", "1", "--set", "privacy.ranges.age=1"], "wrong-value"),
        (["--epsilon", "1", "--set", "privacy.delta=2"], "wrong-value"),
    ],
    ids=["no file", "no budget", "no ends", "delta"],
)
def test_what_is_missing_or_wrong_is_said(table, tmp_path, capsys, more, error):
    found = pffl(capsys, *command(table, *more, "--out", str(tmp_path / "no")))
    assert (found.code, found.error) == (2, error), found.err


def test_the_plan_is_shown_before_anything_is_released(table, capsys):
    found = pffl(capsys, "feasible", *command(table, "--epsilon", "2")[1:])
    assert found.code == 0, found.err
    assert "ε = 2, δ = 1e-06" in one_line(found.out)
    plain = pffl(capsys, "feasible", *command(table, "--epsilon", "2", "--json")[1:])
    assert len(json.loads(plain.out)["releases"]) > 5
