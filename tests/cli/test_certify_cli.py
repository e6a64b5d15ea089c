"""certify, verify, feasible and audit, as a user types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pffl.runs import load
from tests.cli.helpers import SMALL, argv, one_line


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run that meets its bounds and one whose bounds are impossible."""
    from pffl.cli import main

    place = tmp_path_factory.mktemp("runs")
    for name, bound in (("met", "0.9"), ("infeasible", "0.2")):
        more = ("--radius", "100", "--out", str(place / name), "-q")
        with pytest.raises(SystemExit):
            main(argv("run", *SMALL, "--bound", bound, *more))
    return place


@pytest.fixture
def met(runs, tmp_path):
    return Path(shutil.copytree(runs / "met", tmp_path / "met"))


@pytest.fixture
def infeasible(runs, tmp_path):
    return Path(shutil.copytree(runs / "infeasible", tmp_path / "infeasible"))


def test_certify_then_verify(command, met):
    seen = command("certify", met, "--require", "empirical")
    assert seen.code == 0
    assert "✓ On the rows at hand: MET Every bound is met" in one_line(seen.out)
    assert "What this stands on" in seen.out
    assert "\x1b" not in seen.out
    assert load(met).verified
    again = command("verify", met / "certificate.json")
    assert again.code == 0
    assert "VERIFIED: all" in again.out


def test_json_is_the_file(command, met):
    seen = command("certify", met, "--json", "--confidence", "0.9")
    assert seen.json == json.loads((met / "certificate.json").read_text("utf-8"))
    assert seen.json["confidence"] == 0.9
    checks: Any = json.loads(command("verify", met / "certificate.json", "--json").out)
    assert all(check["agrees"] for check in checks)
    assert any(check["what"].startswith("model, fingerprint") for check in checks)


def test_infeasible_run(command, infeasible):
    seen = command("certify", infeasible, "--require", "empirical")
    assert seen.code == 4
    assert "'empirical' is required" in seen.err
    assert "Impossible bounds: proved" in seen.out
    assert "No common bound below" in one_line(seen.out)
    assert command("verify", infeasible / "certificate.json").code == 0
    assert command("certify", infeasible).code == 0


def test_holdout_may_be_required(command, met):
    plain = command("certify", met, "--require", "holdout", "--json").json
    holds = next(s for s in plain["statements"] if s["kind"] == "holdout")["holds"]
    code = command("certify", met, "--require", "holdout").code
    assert code == (0 if holds else 4)


def test_cell_and_gap(command, met):
    options = ("--cell", "A", "--target-gap", "0.001")
    plain = command("certify", met, *options, "--json").json
    kinds = [s["kind"] for s in plain["statements"] if s["available"]]
    assert kinds.count("attainable") == 2
    assert command("verify", met / "certificate.json").code == 0
    bad = command("certify", met, "--cell", "Z")
    assert (bad.code, "no cell 'Z'" in bad.err) == (2, True)
    assert command("certify", met, "--confidence", "2").code == 2


def test_a_changed_certificate_is_noticed(command, met):
    command("certify", met)
    path = met / "certificate.json"
    plain = json.loads(path.read_text("utf-8"))
    plain["statements"][0]["per_cell"][0]["test rows"] += 1
    path.write_text(json.dumps(plain), "utf-8")
    seen = command("verify", path)
    assert seen.code == 6
    assert "does not agree: file certificate.json" in seen.out
    assert "measured, per_cell, A, test rows: stated" in seen.out
    assert "NOT VERIFIED" in seen.out
    path.write_text("{}", "utf-8")
    assert command("verify", path).code == 6
    path.write_text("nonsense", "utf-8")
    assert command("verify", path).code == 6
    assert command("verify", met / "nothing.json").code == 6


def test_fault_74_an_edited_directory_is_not_verified(command, met):
    (met / "history.csv").write_text("round\n1\n", "utf-8")
    seen = command("certify", met)
    assert seen.code == 0
    assert "not verified: history.csv was changed after the run" in seen.err
    assert "not verified: history.csv was changed" in one_line(seen.out)
    assert command("verify", met / "certificate.json").code == 6


def test_fault_73_other_data_get_a_file_of_their_own(command, met, tmp_path):
    spec = (met / "spec.toml").read_text("utf-8")
    other = tmp_path / "other.toml"
    other.write_text(spec.replace("seed = 1", "seed = 2"), "utf-8")
    command("certify", met)
    own = (met / "certificate.json").read_bytes()
    seen = command("certify", met, "--data", other)
    assert seen.code == 0
    assert "other data" in one_line(seen.out)
    assert (met / "certificate.json").read_bytes() == own
    (path,) = met.glob("certificate-*.json")
    assert command("verify", path, other).code == 0
    assert command("verify", path).code == 6


def test_feasible(command):
    plain = command("feasible", *SMALL, "--json").json
    low, high = plain["common"]
    assert 0 <= low <= high < low + 1e-6
    assert plain["rise"] is None
    for cell in plain["cells"]:
        assert cell["alone"][0] <= cell["with_others"][1] <= plain["others_at"] + 1e-6
    one = (*SMALL, "--cell", "A")
    under = command("feasible", *one, "--bound", str(high - 0.01), "--json")
    assert under.code == 4
    assert under.json["rise"][0] == pytest.approx(0.01, abs=1e-6)
    over = command("feasible", *one, "--bound", str(high + 0.01))
    assert over.code == 0
    assert "lies between" in one_line(over.out)
    assert "POSSIBLE" in over.out
    assert command("feasible", *SMALL, "--cell", "Z").code == 2


def test_feasible_speaks_of_the_bounds_that_a_run_then_meets(command, tmp_path):
    found = command("feasible", *SMALL, "--cell", "C", "--json").json
    _, high = found["common"]
    strong = ("--multiplier-bound", "5000", "-q", "--json")
    for by, code in ((1e-3, 0), (-1e-3, 4)):
        out = ("--out", tmp_path / str(code))
        seen = command("run", *SMALL, "--bound", str(high + by), *strong, *out)
        assert seen.code == code


@pytest.fixture
def people(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, 300).round(2),
            "sex": rng.choice(["f", "m"], 300),
            "site": rng.choice(["A", "B"], 300),
            "pid": np.arange(300),
        }
    )
    odds = frame.age - 40 + rng.logistic(size=300) * 8
    frame["y"] = np.where(odds > 0, "yes", "no")
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False)
    return path


TABLE = ("--label", "y", "--group", "sex", "--silo", "site", "--drop", "pid")


def coefficients(tmp_path):
    path = tmp_path / "model.json"
    path.write_text('{"features": ["age"], "coef": [0.1], "intercept": -4}', "utf-8")
    return path


def test_audit_of_coefficients(command, people, tmp_path):
    model, out = coefficients(tmp_path), tmp_path / "audit"
    seen = command("audit", model, people, *TABLE, "--bound", "0.8", "--out", out)
    assert seen.code == 0
    assert "On the 300 rows used no cell is above" in one_line(seen.out)
    assert "On the training rows: NOT AVAILABLE" in seen.out
    assert command("verify", out / "certificate.json", "--model", model).code == 0
    model.write_text(model.read_text("utf-8").replace("0.1]", "0.1001]"), "utf-8")
    changed = command("verify", out / "certificate.json", "--model", model)
    assert changed.code == 6
    assert "fingerprint of the model" in changed.out
    beside = command("verify", out)  # the model was saved with its certificate
    assert (beside.code, "VERIFIED" in one_line(beside.out)) == (0, True)
    strict = ("--bound", "0.01", "--require", "empirical")
    assert command("audit", model, people, *TABLE, *strict).code == 4


def test_audit_of_probabilities(command, people, tmp_path):
    frame = pd.read_csv(people)
    score = 1 / (1 + np.exp(4 - 0.1 * frame.age))
    path = tmp_path / "p.csv"
    table = pd.DataFrame({"pid": frame.pid, "p": score}).sample(frac=1, random_state=0)
    table.to_csv(path, index=False)
    refused = command("audit", path, people, *TABLE)
    assert (refused.code, "--id pid" in one_line(refused.err)) == (3, True)
    joined = (path, people, *TABLE, "--id", "pid")
    out = tmp_path / "audit"
    plain = command("audit", *joined, "--json", "--out", out).json
    same = command("audit", coefficients(tmp_path), people, *TABLE, "--json").json
    for a, b in zip(plain["statements"], same["statements"], strict=True):
        assert a["value"] == b["value"] or a["value"] == pytest.approx(b["value"])
    verified = ("--model", path, "--id", "pid")
    assert command("verify", out / "certificate.json", *verified).code == 0
    named = command("audit", path, *SMALL)
    assert (named.code, "CSV or Parquet" in one_line(named.err)) == (2, True)


def test_audit_of_our_own_models(command, met, tmp_path):
    own = command("audit", met, *SMALL, "--json").json
    assert "rows (test)" in own["statements"][0]["text"]
    trained = command("audit", met, *SMALL, "--split", "train", "--json").json
    holdout = next(s for s in trained["statements"] if s["kind"] == "holdout")
    assert not holdout["available"]
    alone = tmp_path / "model.safetensors"
    shutil.copy(met / "model.safetensors", alone)
    both = command("audit", alone, *SMALL, "--constraint", "cbgl", "--json").json
    assert len(both["statements"][0]["per_cell"]) == 6
    assert command("audit", tmp_path / "none.json", *SMALL).code == 6
