"""Faults 24 to 34: what a run file or a command line may get wrong."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pffl
from pffl import runs, spec
from pffl.errors import UsageError
from tests.cli.helpers import SMALL, one_line
from tests.cli.helpers import pffl as command

SYNTHETIC = {"name": "synthetic", "rows": 900, "silos": 3, "seed": 1}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def federation() -> pffl.Federation:
    return pffl.datasets.synthetic(900, silos=3, seed=1)


def refusal(**sections: Any) -> str:
    with pytest.raises(UsageError) as refused:
        spec.parse({"data": SYNTHETIC, **sections})
    return str(refused.value)


@pytest.mark.parametrize(
    ("sections", "meant"),
    [
        ({"metod": {}}, "method"),
        ({"data": {"name": "synthetic", "row": 9}}, "rows"),
        ({"data": {"name": "sinthetic"}}, "synthetic"),
        ({"data": {"path": "a.csv", "label": "y", "grop": "g"}}, "group"),
        ({"model": {"kind": "logistc"}}, "logistic"),
        ({"model": {"standardise": True}}, "standardize"),
        ({"constraint": {"bund": 1}}, "bound"),
        ({"constraint": {"kind": "bgll", "bound": 1}}, "bgl"),
        ({"method": {"kind": "pfl"}}, "pffl"),
        ({"method": {"multipler_bound": 1}}, "multiplier_bound"),
        ({"run": {"sede": 1}}, "seed"),
        ({"run": {"engine": "locl"}}, "local"),
    ],
)
def test_fault_24_a_misspelt_key_is_refused_with_a_suggestion(
    sections: dict[str, Any], meant: str
) -> None:
    assert f"did you mean '{meant}'?" in refusal(**sections)


def test_fault_24_a_key_of_another_kind_says_whose_it_is() -> None:
    assert "(pffl, local-bgl have it)" in refusal(
        method={"kind": "exact", "dual_rounds": 3}
    )
    assert "(cbgl has it)" in refusal(constraint={"bound": 1, "labels": ["class 1"]})


def test_fault_24_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    seen = command(capsys, "run", *SMALL, "--set", "method.multipler_bound=3")
    assert (seen.code, seen.out) == (2, "")
    assert "did you mean 'multiplier_bound'?" in seen.err
    assert "Traceback" not in seen.err


def test_fault_25_bad_numbers_are_refused_all_at_once_in_one_form() -> None:
    message = refusal(
        method={
            "kind": "pffl",
            "multiplier_bound": 0.0,
            "risk_weight": -1.0,
            "step_size": float("nan"),
            "dual_step_size": float("inf"),
            "batch_size": "many",
        },
        constraint={"bound": -0.1},
        model={"l2": "small"},
        run={"radius": -1.0},
    )
    problems = [line for line in message.splitlines() if line.startswith("  - ")]
    wrong = ("multiplier_bound", "risk_weight", "step_size", "dual_step_size")
    for name in (*wrong, "batch_size", "bound", "l2", "radius"):
        about = [problem for problem in problems if f"'{name}' parameter" in problem]
        assert len(about) == 1
        assert " must be " in about[0]
        assert about[0].endswith(" instead.")
    assert len(problems) == 8


def test_fault_25_a_bound_per_cell() -> None:
    message = refusal(constraint={"bound": {"A": -1.0, "B": float("nan")}})
    assert "nan" in message
    message = refusal(constraint={"bound": {"A": -1.0, "B": 0.5}})
    assert "'bound of A' parameter" in message


def test_fault_25_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    bad = ("--bound", "-1", "--multiplier-bound", "nan", "--risk-weight", "-2")
    seen = command(capsys, "run", *SMALL, *bad)
    assert seen.code == 2
    assert "3 problems" in seen.err


def test_fault_26_a_bound_of_zero_is_warned_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = command(capsys, "run", *SMALL, "--bound", "0", "--json", "--quiet")
    assert seen.err.startswith("note: a bound of 0")
    assert (seen.code, seen.json["status"]) == (4, "infeasible")


def test_fault_27_an_impossible_bound_says_what_is_possible(
    capsys: pytest.CaptureFixture[str], federation: pffl.Federation
) -> None:
    seen = command(capsys, "run", *SMALL, "--bound", "0.5", "--out", "here")
    result = runs.load("here").result
    assert (seen.code, result["status"]) == (4, "infeasible")
    worst = max(result["cells"], key=lambda cell: cell["violation"])
    assert worst["violation"] > 0
    assert worst["cell"] in result["message"]
    assert sum(result["witness"].values()) == pytest.approx(1)
    least = result["smallest_bound"]
    assert f"{least:.6g}" in seen.out
    best = pffl.solve(federation, pffl.MinMax(), seed=0).train.worst_cell_loss
    assert best is not None
    # The ridge term is part of the run, and not of the least possible loss.
    assert best - 1e-6 <= least <= best + 0.02
    again = command(capsys, "run", "here", "--bound", str(least), "--json")
    assert (again.code, again.json["status"]) == (0, "met")


def test_fault_28_a_bound_far_above_changes_nothing(
    capsys: pytest.CaptureFixture[str], federation: pffl.Federation
) -> None:
    seen = command(capsys, "run", *SMALL, "--bound", "50", "--out", "here")
    assert "asks nothing of anyone" in one_line(seen.out)
    record = runs.load("here")
    assert np.abs(record.multipliers).max() < 1e-6
    free = pffl.solve(federation, None, seed=0)
    assert np.allclose(record.w, free.w, atol=1e-5)


@pytest.mark.parametrize("key", ["dual_rounds", "rounds_per_dual", "local_steps"])
@pytest.mark.parametrize("value", [0, -1, 2.5, "3", True])
def test_fault_29_counts_are_whole_and_positive(key: str, value: object) -> None:
    message = refusal(method={"kind": "pffl", key: value})
    assert f"The '{key}' parameter of" in message
    assert "must be a whole number" in message
    assert f"Got {value!r} instead." in message


def test_fault_30_a_step_that_is_too_large_ends_as_diverged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("--method", "pffl", "--step-size", "1e6", "--bound", "0.7")
    seen = command(capsys, "run", *SMALL, *options, "--out", "here")
    assert seen.code == 4
    assert "On the training rows: DIVERGED" in seen.out
    record = runs.load("here")
    assert record.result["status"] == "diverged"
    assert np.isfinite(record.w).all()
    assert np.isfinite(record.multipliers).all()


def test_fault_31_a_seed_is_drawn_shown_and_recorded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = ("synthetic", "--set", "data.rows=300", "--silos", "2")
    seeds = []
    for name in ("a", "b"):
        seen = command(capsys, "run", *data, "--bound", "0.9", "--out", name)
        seed = runs.load(name).result["seed"]
        assert f"seed {seed}" in one_line(seen.out)
        assert tomllib.loads(Path(name, "spec.toml").read_text())["run"]["seed"] == seed
        seeds.append(seed)
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 95.0])
def test_fault_33_a_confidence_outside_0_1_is_refused(confidence: float) -> None:
    assert "'confidence' parameter" in refusal(run={"confidence": confidence})


def test_fault_33_without_a_loss_bound_there_is_no_statement(
    capsys: pytest.CaptureFixture[str],
) -> None:
    numeric = (*SMALL, "--set", "data.task=regression", "--bound", "10")
    seen = command(capsys, "run", *numeric, "--out", "here")
    assert "--target-range LOW,HIGH" in one_line(seen.out)
    cells = runs.load("here").result["cells"]
    assert [cell["test_upper"] for cell in cells] == [None] * 3
    known = command(capsys, "run", *numeric, "--target-range=-100,100", "--json")
    assert all(cell["test_upper"] > 0 for cell in known.json["cells"])
    useless = command(capsys, "run", *numeric, "--loss-bound", "100")
    assert useless.code == 2
    assert "--target-range" in useless.err


def test_fault_34_an_absent_extra_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    Path("people.parquet").write_bytes(b"PAR1")
    columns = ("--label", "y", "--group", "g", "--silos", "2")
    seen = command(capsys, "run", "people.parquet", *columns, "--bound", "0.6")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.count("\n") == 1
    assert "pip install 'pffl[parquet]'" in seen.err
