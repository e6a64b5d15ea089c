"""Faults 24 to 34: what a run file or a command line may get wrong."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from pffl import config, runs
from pffl.errors import UsageError
from tests.cli.helpers import SMALL
from tests.raising import raises

SYNTHETIC = {"name": "synthetic", "rows": 900, "silos": 3, "seed": 1}


def refused(code, *mentioned, **sections):
    with raises(UsageError, code, *mentioned) as found:
        config.parse({"data": SYNTHETIC, **sections})
    return found.value


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
        # Of another kind: whose it is.
        ({"method": {"kind": "exact", "dual_rounds": 3}}, "pffl, local-bgl"),
        ({"constraint": {"bound": 1, "labels": ["class 1"]}}, "cbgl"),
    ],
)
def test_fault_24_a_misspelt_key_is_refused_with_a_suggestion(sections, meant):
    with pytest.raises(UsageError) as found:
        config.parse({"data": SYNTHETIC, **sections})
    assert found.value.code.startswith("unknown-")
    assert meant in str(found.value)


def test_fault_25_bad_numbers_are_refused_all_at_once_in_one_form():
    method = {"multiplier_bound": 0.0, "risk_weight": -1.0, "step_size": float("nan")}
    method |= {"dual_step_size": float("inf"), "batch_size": "many"}
    names = [f"'{n}' parameter" for n in (*method, "bound", "l2", "radius")]
    found = refused(
        "wrong-value",
        *names,
        method={"kind": "pffl", **method},
        constraint={"bound": -0.1},
        model={"l2": "small"},
        run={"radius": -1.0},
    )
    assert found.codes == ("wrong-value",) * 8
    refused("wrong-value", "nan", constraint={"bound": {"A": -1.0, "B": float("nan")}})
    refused("wrong-value", "bound of A", constraint={"bound": {"A": -1.0, "B": 0.5}})


@pytest.mark.parametrize("key", ["dual_rounds", "rounds_per_dual", "local_steps"])
@pytest.mark.parametrize("value", [0, -1, 2.5, "3", True])
def test_fault_29_counts_are_whole_and_positive(key, value):
    refused("wrong-value", key, repr(value), method={"kind": "pffl", key: value})


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 95.0])
def test_fault_33_a_confidence_outside_0_1_is_refused(confidence):
    refused("wrong-value", "confidence", run={"confidence": confidence})


def test_on_the_command_line(command):
    seen = command("run", *SMALL, "--set", "method.multipler_bound=3")
    assert (seen.code, seen.error, seen.out) == (2, "unknown-key", "")
    assert "multiplier_bound" in seen.err
    assert "Traceback" not in seen.err
    bad = (
        "--bound",
        "-1",
        "--set",
        "method.multiplier_bound=nan",
        "--set",
        "method.risk_weight=-2",
    )
    seen = command("run", *SMALL, *bad)
    assert (seen.code, seen.error, seen.err.count(" must be ")) == (2, "wrong-value", 3)


def test_fault_26_a_bound_of_zero_is_warned_of(command):
    seen = command("run", *SMALL, "--bound", "0", "--json")
    assert seen.err.startswith("note: a bound of 0")
    assert (seen.code, seen.json["status"]) == (4, "impossible")


def test_fault_27_an_impossible_bound_says_what_is_possible(command):
    seen = command("run", *SMALL, "--bound", "0.5", "--out", "here")
    result = runs.read_run("here").result
    assert (seen.code, result["status"]) == (4, "impossible")
    assert sum(result["witness"].values()) == pytest.approx(1)
    (least,) = re.findall(r"a bound of ([\d.]+) can be met", " ".join(seen.out.split()))
    assert 0 <= float(least) - result["smallest_bound"] <= 1e-4
    again = command("run", "here", "--bound", least, "--json")
    assert (again.code, again.json["status"]) == (0, "met")


def test_fault_31_a_seed_is_drawn_shown_and_recorded(command):
    data = ("synthetic", "--set", "data.rows=300", "--silos", "2")
    seeds = []
    for name in ("a", "b"):
        typed = ("run", *data, "--bound", "0.9", "--out", name, "-v")
        seen = command(*typed)
        seed = runs.read_run(name).result["seed"]
        assert f"seed {seed}" in " ".join(seen.out.split())
        assert tomllib.loads(Path(name, "run.toml").read_text())["run"]["seed"] == seed
        seeds.append(seed)
    assert seeds[0] != seeds[1]


def test_fault_34_an_absent_extra_is_one_line(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    Path("people.parquet").write_bytes(b"PAR1")
    columns = ("--label", "y", "--group", "g", "--silos", "2")
    seen = command("run", "people.parquet", *columns, "--bound", "0.6")
    assert (seen.code, seen.error, seen.out) == (2, "missing-extra", "")
    assert seen.err.count("\n") == 1
    assert "pip install 'pffl[parquet]'" in seen.err
