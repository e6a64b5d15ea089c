"""certify, verify and feasible, as a user types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pffl.cli import main
from pffl.runs import load
from tests.cli.helpers import SMALL, argv, one_line


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run that meets its bounds and one whose bounds are impossible."""
    place = tmp_path_factory.mktemp("runs")
    for name, bound in (("met", "0.9"), ("infeasible", "0.2")):
        more = ("--radius", "100", "--out", str(place / name), "-q", "--no-extras")
        with pytest.raises(SystemExit):
            main(argv("run", *SMALL, "--bound", bound, *more))
    return place


@pytest.fixture
def met(runs, tmp_path):
    return Path(shutil.copytree(runs / "met", tmp_path / "met"))


def statements(plain, kind):
    return [s for s in plain["statements"] if s["kind"] == kind]


def test_certify_then_verify(command, met):
    seen = command("certify", met, "--require", "empirical")
    assert (seen.code, "\x1b" in seen.out) == (0, False)
    assert load(met).verified
    assert command("verify", met / "certificate.json").code == 0
    seen = command("certify", met, "--json", "--confidence", "0.9")
    written = json.loads((met / "certificate.json").read_text("utf-8"))
    assert seen.json == {key: written[key] for key in seen.json}
    assert seen.json["confidence"] == 0.9
    checks = command("verify", met / "certificate.json", "--json").json
    assert all(check["agrees"] for check in checks)
    assert any(check["what"].startswith("model, fingerprint") for check in checks)
    (held,) = statements(seen.json, "holdout")
    required = command("certify", met, "--require", "holdout", "--confidence", "0.9")
    assert required.code == (0 if held["holds"] else 4)


def test_infeasible_run(command, runs, tmp_path):
    place = shutil.copytree(runs / "infeasible", tmp_path / "infeasible")
    seen = command("certify", place, "--require", "empirical")
    assert (seen.code, "'empirical'" in seen.err) == (4, True)
    plain = json.loads((place / "certificate.json").read_text("utf-8"))
    assert [s["holds"] for s in statements(plain, "infeasible")] == [True]
    assert command("verify", place / "certificate.json").code == 0
    assert command("certify", place).code == 0


def test_cell_and_gap(command, met):
    options = ("--cell", "A", "--target-gap", "0.001", "--json")
    plain = command("certify", met, *options).json
    assert len([s for s in statements(plain, "attainable") if s["available"]]) == 2
    assert command("verify", met / "certificate.json").code == 0
    bad = command("certify", met, "--cell", "Z")
    assert (bad.code, bad.error, "'Z'" in bad.err) == (2, "unknown-cell", True)
    assert command("certify", met, "--confidence", "2").code == 2


def test_a_changed_certificate_is_noticed(command, met):
    path = met / "certificate.json"
    plain = json.loads(path.read_text("utf-8"))
    plain["statements"][0]["per_cell"][0]["test rows"] += 1
    path.write_text(json.dumps(plain), "utf-8")
    seen = command("verify", path)
    assert seen.code == 6
    assert "file certificate.json" in seen.out
    assert "measured, per_cell, A, test rows" in seen.out
    for text in ("{}", "nonsense"):
        path.write_text(text, "utf-8")
        assert command("verify", path).code == 6
    assert command("verify", met / "nothing.json").code == 6


def test_fault_74_an_edited_directory_is_not_verified(command, met):
    (met / "history.csv").write_text("round\n1\n", "utf-8")
    seen = command("certify", met)
    assert seen.code == 0
    for text in (seen.err, one_line(seen.out)):
        assert "not verified: history.csv" in text
    assert command("verify", met / "certificate.json").code == 6


def test_fault_73_other_data_get_a_file_of_their_own(command, met, tmp_path):
    other = tmp_path / "other.toml"
    spec = (met / "spec.toml").read_text("utf-8")
    other.write_text(spec.replace("seed = 1", "seed = 2"), "utf-8")
    own = (met / "certificate.json").read_bytes()
    assert command("certify", met, "--data", other).code == 0
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
    assert (over.code, "POSSIBLE" in over.out) == (0, True)
    assert command("feasible", *SMALL, "--cell", "Z").code == 2
