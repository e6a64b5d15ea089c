"""--certify, verify and feasible, as a user types them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pffl.cli import main
from pffl.runs import read_run
from tests.cli.helpers import SMALL


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run that meets its bounds and one whose bounds are impossible."""
    place = tmp_path_factory.mktemp("runs")
    for name, bound in (("met", "0.9"), ("infeasible", "0.2")):
        more = ("--set", "run.radius=100", "--out", str(place / name))
        with pytest.raises(SystemExit):
            main(["run", *SMALL, "--bound", bound, *more])
    return place


@pytest.fixture
def met(runs, tmp_path):
    return Path(shutil.copytree(runs / "met", tmp_path / "met"))


def statements(plain, kind):
    return [s for s in plain["statements"] if s["kind"] == kind]


def test_a_certificate_is_required(command, met, tmp_path):
    """By `run` when it is trained, by `audit` for any rows and confidence."""
    assert command("verify", met / "certificate.json").code == 0
    checks = command("verify", met, "--json").json
    assert all(check["agrees"] for check in checks)
    rows = (*SMALL[:-2], "--set", "data.seed=1")
    wide = (*rows, "--bound", "2")
    sure = command("audit", met, *wide, "--certify", "0.5", "--out", "a", "--json")
    assert (sure.code, sure.json["confidence"]) == (0, 0.5)
    (held,) = statements(sure.json, "holdout")
    assert held["holds"]
    unsure = command("audit", met, *rows, "--certify", "0.999999", "--json")
    assert (unsure.code, unsure.error) == (4, "not-certified")
    asked = ("run", *SMALL, "--bound", "0.62", "--certify")
    assert command(*asked).code == 4
    assert command("run", *SMALL, "--bound", "1.5", "--certify", "0.8").code == 0
    for wrong in ("2", "much"):
        assert command("run", *SMALL, f"--certify={wrong}").error == "wrong-value"


def test_certify_sets_rows_apart(command):
    rows = {}
    for name, more in (
        ("usual", []),
        ("told", ["--set", "data.calibration_fraction=0.5"]),
        ("none", ["--set", "data.calibration_fraction=0"]),
    ):
        asked = ("run", *SMALL, "--bound", "2", "--certify", *more, "--out", name)
        assert command(*asked).code == 0
        rows[name] = read_run(name).as_dict()["train"]["rows"]
    assert rows["none"] == 720
    assert rows["usual"] == pytest.approx(0.7 * 720, abs=3)
    assert rows["told"] == pytest.approx(0.5 * 720, abs=3)
    again = command("run", "usual", "--json")
    assert (again.code, again.json["train"]["rows"]) == (0, rows["usual"])


def test_feasible(command):
    low, high = command("feasible", *SMALL, "--json").json["common"]
    assert 0 <= low <= high < low + 1e-6
    for bound, code in ((high - 0.01, 4), (high + 0.01, 0)):
        seen = command("feasible", *SMALL, "--bound", str(bound))
        assert (seen.code, "IMPOSSIBLE" in seen.out) == (code, code == 4)
