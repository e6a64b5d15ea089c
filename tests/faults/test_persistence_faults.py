"""Faults 65 to 71: what is saved while a run is under way.

kill -9, full disks and torn files: `test_crashes.py`. Rows 68 to 70 for what a finished
run leaves behind: `test_artefact_faults.py`.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pffl
from pffl import checkpoint as file
from pffl import fitting, runs
from pffl.checkpoint import CURRENT, PREVIOUS, SPEC, Checkpoint
from pffl.engines import Local
from pffl.errors import ArtefactError
from pffl.parcel import Parcel, pack, unpack
from pffl.preparation import Options
from tests.cli.helpers import SMALL
from tests.cli.helpers import pffl as command
from tests.interrupting import Stopping, assert_same_outcome
from tests.oracles import LONG_RUN, end_command, finished_run, start_command
from tests.raising import raises

FEDERATION = pffl.datasets.synthetic(300, silos=3, seed=0)
METHOD = pffl.PFFL(dual_rounds=4, rounds_per_dual=3, step_size=0.5, dual_step_size=1.0)
BOUND = pffl.BoundedGroupLoss(0.6)


def run(engine: Any = FEDERATION, place: Path | None = None) -> pffl.Solution:
    return pffl.solve(engine, BOUND, method=METHOD, seed=0, checkpoint=place)


@pytest.fixture(scope="module")
def whole() -> pffl.Solution:
    return run()


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stop after 6 rounds; every one of them saved."""
    place = tmp_path_factory.mktemp("stopped") / "run"
    for at in (4, 6):  # census, setup, rounds
        solution = run(Stopping(Local(FEDERATION), at), place)
    assert (solution.status, solution.rounds) == ("interrupted", 6)
    return place


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Path:
    """A stopped run of the test's own."""
    return Path(shutil.copytree(stopped_once, tmp_path / "run"))


def wait_for(path: Path, process: subprocess.Popen[Any]) -> None:
    """Wait for a file, or for the end of the process."""
    deadline = time.monotonic() + 120
    while not path.exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def wait_for_a_round(place: Path, process: subprocess.Popen[Any]) -> None:
    """Wait until the checkpoint of a run has a round in it."""
    wait_for(place / CURRENT, process)
    while process.poll() is None:
        with suppress(ArtefactError):  # between the two renames of a save
            saved = Checkpoint(place).saved()
            if saved is not None and saved[1] > 1:  # the setup counts as one
                return
        time.sleep(0.002)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("uninterrupted")
    assert end_command(start_command(*LONG_RUN, "--out", "run", cwd=place))[0] in (0, 4)
    return finished_run(place / "run")


SAVE_FOREVER = """
import sys
import numpy as np
from pffl.checkpoint import Checkpoint
checkpoint = Checkpoint(sys.argv[1])
tree = checkpoint.load() or {"rounds": 0}
print("ready", flush=True)
while True:
    number = tree["rounds"] + 1
    w = np.full(50_000, float(number))
    tree = {"rounds": number, "seconds": 0.0, "w": w, "more": [w[:3] + 0.0]}
    checkpoint.offer(lambda: tree)
    checkpoint.flush()
"""


def test_fault_65_kill_during_a_save_leaves_a_whole_one(tmp_path):
    rng, last = np.random.default_rng(0), 0
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SAVE_FOREVER, str(tmp_path)],
            stdout=subprocess.PIPE,
        )
        process.stdout.readline()
        wait_for(tmp_path / CURRENT, process)
        time.sleep(rng.uniform(0.0, 0.1))
        process.kill()
        process.communicate()
        for name in (CURRENT, PREVIOUS):
            if (tmp_path / name).exists():
                file.read_file(tmp_path / name)  # whole, whatever was going on
        checkpoint = Checkpoint(tmp_path)
        if (tmp_path / CURRENT).exists():
            found = checkpoint.load()
        else:
            with pytest.warns(UserWarning, match="going on from the previous one"):
                found = checkpoint.load()
        assert found["rounds"] >= last
        assert (found["w"] == found["rounds"]).all()
        assert (found["more"][0] == found["rounds"]).all()
        last = found["rounds"]
    assert last > 6


@pytest.mark.parametrize("how", ["between the renames", "torn"])
def test_fault_66_a_damaged_checkpoint_gives_way_to_the_previous_one_aloud(
    stopped, whole, how
):
    path = stopped / CURRENT
    if how == "torn":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        os.replace(path, stopped / PREVIOUS)
    with pytest.warns(UserWarning, match="going on from the previous one"):
        assert_same_outcome(run(place=stopped), whole)


def test_fault_66_no_bit_may_flip_unnoticed(stopped):
    content = (stopped / CURRENT).read_bytes()
    path, good = stopped / "flipped", file.read_file(stopped / CURRENT)
    for place in range(0, len(content), 41):
        flipped = bytearray(content)
        flipped[place] ^= 0x04
        path.write_bytes(flipped)
        with pytest.raises(file.Damaged):
            file.read_file(path)
    assert good.header["tree"]["rounds"] == 6


def test_fault_66_the_good_one_is_not_lost_when_the_damaged_one_is_replaced(stopped):
    (stopped / CURRENT).write_bytes(b"damaged")
    engine = Stopping(Local(FEDERATION), at=2)
    with pytest.warns(UserWarning, match="going on from the previous one"):
        run(engine, stopped)
    for name in (CURRENT, PREVIOUS):
        file.read_file(stopped / name)


def test_fault_66_without_any_the_run_is_refused(stopped):
    for name in (CURRENT, PREVIOUS):
        (stopped / name).write_bytes((stopped / name).read_bytes()[:-1])
    with raises(ArtefactError, "no-checkpoint", CURRENT, PREVIOUS):
        run(place=stopped)


#: What is asked otherwise; where it differs, what is in the checkpoint, what is now.
OTHER_RUNS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"constraint": pffl.BoundedGroupLoss(0.7)}, ("constraint.bound", "0.6", "0.7")),
    ({"constraint": pffl.PerSilo(0.6)}, ("constraint.kind", "bgl", "per-silo")),
    ({"model": pffl.LogisticRegression(l2=0.5)}, ("model.l2", "0.001", "0.5")),
    ({"method": pffl.FedAvg()}, ("method.kind", "pffl", "fedavg")),
    ({"method": replace(METHOD, step_size=0.4)}, ("method.step_size", "0.5", "0.4")),
    ({"options": Options(weighting="rows")}, ("options.weighting", "silos", "rows")),
    ({"seed": 1}, ("run.seed", "0", "1")),
    (
        {"federation": pffl.datasets.synthetic(300, silos=3, seed=1)},
        ("data.fingerprint",),
    ),
]


@pytest.mark.parametrize(("changes", "named"), OTHER_RUNS)
def test_fault_67_a_checkpoint_of_another_run_is_refused_with_a_diff(
    stopped, changes, named
):
    before = {p.name: p.read_bytes() for p in stopped.iterdir()}
    given = {"federation": FEDERATION, "constraint": BOUND, "method": METHOD, "seed": 0}
    with raises(ArtefactError, "other-run", *named):
        pffl.solve(**{**given, **changes}, checkpoint=stopped)
    assert {p.name: p.read_bytes() for p in stopped.iterdir()} == before


def test_fault_67_another_format_version_is_refused(stopped, monkeypatch):
    monkeypatch.setattr(file, "VERSION", 4)
    with raises(ArtefactError, "other-run", "version", "3", "4"):
        run(place=stopped)


def forge(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> Any:
    """Change header or arrays, and state the hash that goes with it."""

    def damage(content: bytes) -> bytes:
        parcel = unpack(content)
        header, arrays = dict(parcel.header), dict(parcel.arrays)
        header.pop("sha256")
        change(header, arrays)
        header["sha256"] = file.digest_of(header, arrays)
        return pack(Parcel(header, arrays))

    return damage


def first(header: dict[str, Any]) -> str:
    name: str = state(header)["w"]["$array"]
    return name


def progress(header: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = header["tree"]["stages"]["training"]["progress"]
    return found


def state(header: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = progress(header)["state"]["fields"]
    return fields


def column(header: dict[str, Any]) -> str:
    name: str = progress(header)["history"]["risk"]["$array"]
    return name


FOREIGN: dict[str, Callable[[bytes], bytes]] = {
    "pickle": lambda _: pickle.dumps({"state": [1.0, 2.0]}),
    "header of 2^63 bytes": lambda content: (2**63).to_bytes(8, "little") + content[8:],
    "no hash": lambda c: pack(Parcel({"format": file.FORMAT}, unpack(c).arrays)),
    "NaN": forge(lambda h, a: a.update({first(h): a[first(h)] * np.nan})),
    "wrong shape": forge(lambda h, a: a.update({first(h): a[first(h)][:-1]})),
    "another type": forge(lambda h, a: a.update({first(h): a[first(h)].astype(int)})),
    "an array less": forge(lambda h, a: a.pop(first(h))),
    "a field more": forge(lambda h, a: state(h).update(code="import os")),
    "text as a number": forge(lambda h, a: state(h).update(round="6")),
    "another kind": forge(lambda h, a: progress(h)["state"].update(kind="Path")),
    "nothing": forge(lambda h, a: state(h).update(theta=None)),
    "no state": forge(lambda h, a: progress(h).pop("state")),
    "no name of an array": forge(lambda h, a: state(h)["theta"].update({"$array": {}})),
    "short history": forge(lambda h, a: a.update({column(h): np.zeros(2)})),
    "no history": forge(lambda h, a: progress(h)["history"].pop("gap")),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_fault_68_foreign_checkpoints_are_refused(stopped, what):
    path = stopped / CURRENT
    (stopped / PREVIOUS).unlink()
    path.write_bytes(FOREIGN[what](path.read_bytes()))
    with pytest.raises(ArtefactError) as refused:
        run(place=stopped)
    assert refused.value.code in ("no-checkpoint", "bad-checkpoint")
    assert CURRENT in str(refused.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_fault_69_a_disk_that_is_really_full(stopped):
    before = {p.name: p.read_bytes() for p in stopped.iterdir()}
    (stopped / f".{CURRENT}.tmp").symlink_to("/dev/full")
    with raises(ArtefactError, "cannot-write", "No space left"):
        run(place=stopped)
    assert {p.name: p.read_bytes() for p in stopped.iterdir()} == before


def test_fault_69_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    place = tmp_path / "file" / "run"
    engine = Stopping(Local(FEDERATION), at=-1)
    with raises(ArtefactError, "cannot-write", place):
        run(engine, place)
    assert engine.asked == 2


def start(place: Path, rounds: int = 100_000) -> subprocess.Popen[str]:
    """Start a long run, and wait until its first round is saved."""
    process = start_command(
        *LONG_RUN, "--dual-rounds", str(rounds), "--out", "run", cwd=place
    )
    wait_for_a_round(place / "run", process)
    return process


def test_fault_70_a_run_that_is_under_way_cannot_be_resumed(capsys, tmp_path):
    process = start(tmp_path)
    try:
        seen = command(capsys, "run", "--resume", tmp_path / "run")
        assert (seen.code, seen.error) == (6, "lock-held")
        assert str(process.pid) in seen.err
    finally:
        process.kill()
        end_command(process)


def test_fault_67_70_a_stopped_run_is_neither_overwritten_nor_edited(capsys, tmp_path):
    process = start(tmp_path)
    process.kill()
    end_command(process)
    seen = command(capsys, "run", *SMALL, "--bound", "0.7", "--out", tmp_path / "run")
    assert (seen.code, seen.error) == (6, "stopped-run")
    assert (tmp_path / "run" / CURRENT).exists()
    path = tmp_path / "run" / SPEC
    text = path.read_text("utf-8")
    path.write_text(text.replace("bound = 0.6\n", "bound = 0.7\n", 1), "utf-8")
    seen = command(capsys, "run", "--resume", tmp_path / "run")
    assert (seen.code, seen.error) == (6, "other-run")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_fault_71_a_signal_ends_cleanly_and_the_run_goes_on(
    number, code, tmp_path, uninterrupted
):
    process = start(tmp_path, 60)
    process.send_signal(number)
    ended, _, err = end_command(process)
    assert ended == code, err
    place = tmp_path / "run"
    found = runs.load(place, require_verified=True)
    assert found.result["status"] == "interrupted"
    saved = Checkpoint(place).saved()
    assert saved == (1, found.result["rounds"])
    ended, _, err = end_command(
        start_command("run", "--resume", "run", "--no-extras", cwd=tmp_path)
    )
    assert ended in (0, 4), err
    assert finished_run(place) == uninterrupted


HANGS = """
import signal, sys, time
import pffl.solving
from pffl.cli import main
def forever(*a, **k):
    print("concluding", file=sys.stderr, flush=True)
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            pass
pffl.solving.evidence_of = forever
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_fault_71_the_second_signal_ends_at_once(number, tmp_path):
    arguments = [*LONG_RUN, "--dual-rounds", "100000", "--out", "run", "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-c", HANGS, *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_a_round(tmp_path / "run", process)
    process.send_signal(number)
    while "concluding" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(number)
    began = time.monotonic()
    process.communicate(timeout=60)
    assert time.monotonic() - began < 5
    assert process.returncode == -number  # which a shell shows as 130 and 143
    assert Checkpoint(tmp_path / "run").saved() is not None


def test_fault_71_interrupted_while_measuring(tmp_path, capsys, monkeypatch):
    measured = fitting._measured

    def interrupt(*parts: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return measured(*parts)

    options = ("run", *SMALL, "--bound", "0.7", "--no-extras", "--out")
    monkeypatch.setattr(fitting, "_measured", interrupt)
    seen = command(capsys, *options, tmp_path / "run")
    monkeypatch.undo()
    assert seen.code == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = command(capsys, "run", "--resume", tmp_path / "run", "--no-extras")
    assert command(capsys, *options, tmp_path / "whole").code == again.code == 0
    assert finished_run(tmp_path / "run") == finished_run(tmp_path / "whole")
    assert "spec.toml" in finished_run(tmp_path / "run")["files"]


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("run",), 2, "missing-data"),
        (("run", "--resume", "nowhere"), 6, "no-stopped-run"),
        (("run", "compas", "--resume", "run"), 2, "options-conflict"),
        (("run", "--resume", "run", "--bound", "0.5"), 2, "options-conflict"),
        (("run", "--resume", "run", "--set", "run.seed=1"), 2, "options-conflict"),
        (("run", "--resume", "run", "--out", "other"), 2, "options-conflict"),
    ],
)
def test_resume_takes_a_stopped_run_and_nothing_else(command, arguments, code, error):
    Path("run").mkdir()
    Path("run", SPEC).write_text('[data]\nname = "synthetic"\n')
    seen = command(*arguments)
    assert (seen.code, seen.error) == (code, error)
