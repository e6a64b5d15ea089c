"""Faults 65 to 77: damaged, foreign and hostile files and names."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import tomllib

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl import runs
from pffl.errors import ArtefactError, UsageError
from pffl.files import disarm
from pffl.tensors import Parcel, pack, unpack
from tests.cli.helpers import SMALL, program
from tests.cli.helpers import pffl as command
from tests.inside import directory
from tests.raising import raises

NASTY = (
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    '"quoted", with; comma',
    "שלום \u202eevil",
    "👩🏽‍🚀",
    "[red]loud[/red]",
    "\x1b[31mred",
    "x" * 10_000,
)


@pytest.fixture(scope="module")
def solution():
    federation = pffl.datasets.synthetic(400, silos=2, random_state=0)
    return pffl.solve(federation, pffl.BoundedGroupLoss(0.7), random_state=0)


@pytest.fixture
def saved(solution, tmp_path):
    return runs.save(solution, tmp_path / "run", "")


def with_header(change):
    """Change the header of a safetensors file and leave the numbers."""

    def damage(content):
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        change(header)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + content[end:]

    return damage


def with_parcel(change):
    """Change what our own header says (h), or the numbers (t)."""

    def damage(content):
        parcel = unpack(content)
        header, tensors = dict(parcel.header), dict(parcel.arrays)
        change(header, tensors)
        return pack(Parcel(header, tensors))

    return damage


DAMAGE = {
    "pickle": lambda _: pickle.dumps({"w": [1.0, 2.0]}),
    "empty": lambda _: b"",
    "cut in the numbers": lambda content: content[:-8],
    "header of 2^63 bytes": lambda content: (2**63).to_bytes(8, "little") + content[8:],
    "header is no JSON": lambda content: content[:8] + b"x" + content[9:],
    "header is deep": lambda _: (10**6).to_bytes(8, "little") + b"[" * 10**6,
    "no metadata": with_header(lambda header: header.pop("__metadata__")),
    "a tensor of 2^60": with_header(
        lambda h: h["w"].update(shape=[2**60], data_offsets=[0, 2**63])
    ),
    "another dtype": with_header(lambda header: header["w"].update(dtype="I64")),
    "overlapping": with_header(
        lambda h: h["w"].update(data_offsets=h["multipliers"]["data_offsets"])
    ),
    "unknown model": with_parcel(lambda h, t: h.update(model={"kind": "oracle"})),
    "schema is no table": with_parcel(lambda h, t: h.update(schema=[])),
    "a number as a name": with_parcel(lambda h, t: h["schema"].update(features=[3])),
    "a later version": with_parcel(lambda h, t: h.update(version=h["version"] + 1)),
    "no preparation": with_parcel(lambda h, t: h.update(preparation=None)),
    "another vocabulary": with_parcel(
        lambda h, t: h["preparation"]["columns"][0].update(
            kind="category", values=["a"]
        )
    ),
    "a column less": with_parcel(lambda h, t: h["preparation"]["columns"].pop()),
    "labels that are no numbers": with_parcel(
        lambda h, t: h["preparation"].update(typed=[True])
    ),
    "something unknown": with_parcel(lambda h, t: h.update(code="import os")),
    "no bound": with_parcel(lambda h, t: t.update(bounds=t["bounds"] * np.nan)),
    "NaN": with_parcel(lambda h, t: t.update(w=t["w"] * np.nan)),
    "wrong shape": with_parcel(lambda h, t: t.update(w=t["w"][:-1])),
    "scale of 0": with_parcel(lambda h, t: t.update(input_scale=0 * t["input_scale"])),
    "below 0": with_parcel(lambda h, t: t.update(multipliers=-1 - t["multipliers"])),
    "a tensor more": with_parcel(lambda h, t: t.update(extra=np.ones(1))),
    "a tensor less": with_parcel(lambda h, t: t.pop("multipliers")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_fault_68_a_damaged_model_is_refused(saved, damage):
    path = saved / "model.safetensors"
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with raises(ArtefactError, "bad-model-file"):
        runs.read_run(saved)


def visible(place):
    return {p.name: p.read_bytes() for p in place.iterdir() if p.name[0] != "."}


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_fault_69_a_place_that_cannot_be_written_stops_before_training(
    capsys, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("pffl.runs.solve", full_disk)
    place = tmp_path / "file" / "run"
    seen = command(capsys, "run", *SMALL, "--bound", "0.7", "--out", place)
    assert (seen.code, seen.out) == (6, "")
    assert str(place) in seen.err


@pytest.mark.parametrize("name", ["run", "run-009"])
def test_fault_88_a_finished_run_is_never_replaced(
    solution, capsys, tmp_path, monkeypatch, name
):
    place = runs.save(solution, tmp_path / name)
    before = visible(place)
    monkeypatch.setattr("pffl.runs.solve", full_disk)  # nothing is trained
    free = {"run": "run-003", "run-009": "run-010"}[name]
    (tmp_path / "run-002").mkdir()
    seen = command(capsys, "run", *SMALL, "--bound", "0.7", "--out", place)
    assert (seen.code, seen.out) == (2, "")
    assert str(tmp_path / free) in " ".join(seen.err.split())
    with raises(UsageError, "finished-run"):
        runs.save(solution, place)
    assert visible(place) == before


def test_fault_70_a_second_run_in_one_directory_is_refused(solution, capsys, tmp_path):
    place = tmp_path / "run"
    with runs.lock(place) as held:
        run = ["run", *SMALL, "--bound", "0.7", "--out", str(place)]
        other = subprocess.run(
            program(*run), capture_output=True, text=True, timeout=120, check=False
        )
        held.save(solution, "")
    assert other.returncode == 6
    assert f"process {os.getpid()}" in other.stderr
    assert command(capsys, *run).code == 2  # finished now, and never replaced


def test_fault_74_an_edited_directory_is_not_verified(saved):
    assert runs.read_run(saved).verified
    path = saved / "result.json"
    path.write_text(path.read_text("utf-8").replace('"met"', '"met "'), "utf-8")
    record = runs.read_run(saved)
    assert not record.verified
    assert record.mismatches == ("result.json was changed after the run",)


def test_fault_74_missing_and_unlisted_files_are_named(saved):
    (saved / "run.toml").unlink()
    hashes = directory.read_manifest(saved)
    del hashes["history.csv"]
    (saved / "manifest.json").write_bytes(directory.manifest_text(hashes))
    assert runs.read_run(saved).mismatches == (
        "history.csv is not in the manifest",
        "run.toml is missing",
    )


@pytest.mark.parametrize("width", ["60", "120"])
def test_fault_75_odd_names_go_through_everything(capsys, monkeypatch, tmp_path, width):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", width)
    x, y = np.random.default_rng(0).integers([[9], [2]], size=(2, 80 * len(NASTY)))
    table = pd.DataFrame({"x": x, "group": NASTY * 80, "y": y})
    table.to_csv("people.csv", index=False)
    columns = ("--label", "y", "--group", "group", "--silos", "2", "--seed", "0")
    bounds = [f"--bound={name.strip()}=0.9" for name in NASTY]
    info = command(capsys, "data", "people.csv", *columns[:-2])
    seen = command(capsys, "run", "people.csv", *columns, *bounds, "--out", "here")
    assert (info.code, seen.code) == (0, 0), seen.err
    for text in (info.out, info.err, seen.out, seen.err):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "x" * 600 not in text
    assert "[red]loud" in "".join(seen.out.split())
    record = runs.read_run("here")
    assert record.verified
    assert {cell["cell"] for cell in record.as_dict()["cells"]} == set(NASTY)
    assert set(record.predictor.schema.groups) == set(NASTY)
    bound = tomllib.loads(record.spec_text)["constraint"]["bound"]
    assert set(bound) == set(NASTY)
    assert command(capsys, "run", "here").code == 0


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", " @"])
def test_fault_76_text_is_disarmed_for_spreadsheets(start):
    assert disarm(f"{start}SUM(A1)") == f"'{start}SUM(A1)"
    assert disarm("A1=2") == "A1=2"


TERMINALS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "no colour": {"NO_COLOR": "1", "TERM": "dumb"},
    "narrow": {"TERM": "xterm-256color", "COLUMNS": "40"},
    "decimal comma": {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"},
    "C locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.parametrize("name", TERMINALS)
def test_fault_77_any_terminal_will_do(name, tmp_path):
    groups = ("--set", 'data.groups=["Größe ≥ 2", "漢字", "a × b"]')
    known = {"cwd": tmp_path, "env": {**os.environ, **TERMINALS[name]}}
    known |= {"capture_output": True, "timeout": 120, "check": False}

    def call(*more):
        run = ["run", *SMALL, *groups, "--bound", "0.5", *more]
        return subprocess.run(program(*run), **known)

    shown = call()
    assert shown.returncode == 4, shown.stderr
    assert b"\x1b" not in shown.stdout + shown.stderr
    assert b"Traceback" not in shown.stderr
    assert b"impossible" in shown.stdout
    assert b"0.500" in shown.stdout
    if name not in ("ascii", "C locale"):
        return
    # A page is another file, written where text is not UTF-8 by itself.
    result = json.loads(call("--json", "--out", "here").stdout)
    assert {cell["cell"] for cell in result["cells"]} == {"Größe ≥ 2", "漢字", "a × b"}
    written = json.loads((tmp_path / "here" / "result.json").read_text("utf-8"))
    assert result == written
    assert (tmp_path / "here" / "report.html").exists()
