"""Faults 24 to 34: what a run file or a command line may get wrong."""

from __future__ import annotations

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


@pytest.mark.parametrize("key", ["dual_rounds", "local_steps", "confidence"])
def test_fault_29_33_counts_are_whole_and_confidences_between_0_and_1(key):
    section = "run" if key == "confidence" else "method"
    kind = {} if key == "confidence" else {"kind": "pffl"}
    wrong = [0.0, 1.0, -0.5, 95.0] if key == "confidence" else [0, -1, 2.5, "3", True]
    for value in wrong:
        refused("wrong-value", key, repr(value), **{section: {**kind, key: value}})


def test_fault_26_a_bound_of_zero_is_warned_of(command):
    seen = command("run", *SMALL, "--bound", "0", "--json")
    assert seen.err.startswith("note: a bound of 0")
    assert (seen.code, seen.json["status"]) == (4, "impossible")


def test_fault_31_a_seed_is_drawn_shown_and_recorded(command):
    data = ("synthetic", "--set", "data.rows=300", "--silos", "2")
    seeds = []
    for name in ("a", "b"):
        typed = ("run", *data, "--bound", "0.9", "--out", name, "-v")
        seen = command(*typed)
        seed = runs.read_run(name).as_dict()["seed"]
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
