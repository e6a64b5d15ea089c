"""Faults 65 to 71: what is saved while a run is under way.

kill -9, full disks and torn files: `test_crashes.py`. Rows 68 to 70 for what a finished
run leaves behind: `test_artefact_faults.py`.
"""

# ruff: noqa: F401, F811 - fixtures are imported
from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pffl
from pffl import fit, runs
from pffl.driver import LOG, SPEC, VERSION, Log
from pffl.errors import ArtefactError
from pffl.methods import FedAvg
from pffl.models import LogisticRegression
from pffl.prepare import Options
from pffl.tensors import Parcel, pack, unpack
from tests.cli.helpers import SMALL
from tests.cli.helpers import pffl as command
from tests.faults.test_crashes import (
    BOUND,
    FEDERATION,
    METHOD,
    content,
    run,
    stopped,
    stopped_once,
    uninterrupted,
    whole,
)
from tests.interrupting import assert_same_outcome
from tests.oracles import LONG_RUN, end_command, finished_run, start_command
from tests.raising import raises


def wait_for_a_round(place: Path, process: subprocess.Popen[Any]) -> None:
    """Wait until the checkpoint of a run has a round in it, or for its end."""
    deadline = time.monotonic() + 120
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # half written
        while process.poll() is None:
            if (place / LOG).exists() and Log(place).messages >= 4:
                return
            assert time.monotonic() < deadline
            time.sleep(0.002)


def test_fault_66_no_bit_may_flip_unnoticed(stopped):
    content = (stopped / LOG).read_bytes()
    whole = Log(stopped).messages
    for place in range(0, len(content), 41):
        flipped = bytearray(content)
        flipped[place] ^= 0x04
        (stopped / LOG).write_bytes(flipped)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert Log(stopped).messages < whole


#: What is asked otherwise; where it differs, what is in the checkpoint, what is now.
OTHER_RUNS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"constraint": pffl.BoundedGroupLoss(0.7)}, ("constraint.bound", "0.6", "0.7")),
    ({"constraint": pffl.PerSilo(0.6)}, ("constraint.kind", "bgl", "per-silo")),
    ({"model": LogisticRegression(l2=0.5)}, ("model.l2", "0.001", "0.5")),
    ({"method": FedAvg()}, ("method.kind", "pffl", "fedavg")),
    ({"method": replace(METHOD, step_size=0.4)}, ("method.step_size", "0.5", "0.4")),
    ({"options": Options(weighting="rows")}, ("options.weighting", "silos", "rows")),
    ({"random_state": 1}, ("run.seed", "0", "1")),
    ({"data": pffl.datasets.synthetic(random_state=1)}, ("data.fingerprint",)),
]


@pytest.mark.parametrize(("changes", "named"), OTHER_RUNS)
def test_fault_67_a_checkpoint_of_another_run_is_refused_with_a_diff(
    stopped, changes, named
):
    before = content(stopped)
    given = {"data": FEDERATION, "constraint": BOUND, "method": METHOD}
    with raises(ArtefactError, "other-run", *named):
        pffl.solve(**{**given, "random_state": 0, **changes}, checkpoint=stopped)
    assert content(stopped) == before


def test_fault_67_another_format_version_is_refused(stopped, monkeypatch):
    monkeypatch.setattr("pffl.driver.VERSION", VERSION + 1)
    with raises(ArtefactError, "other-run", "version", VERSION, VERSION + 1):
        run(place=stopped)


def forge(change: Callable[..., object]) -> Callable[[bytes], bytes]:
    """Change a record, and state the checksum that goes with it."""

    def damage(content: bytes) -> bytes:
        bodies = []
        while content:
            size = int.from_bytes(content[:4], "little")
            bodies.append(content[8 : 8 + size])
            content = content[8 + size :]
        parcel = unpack(bodies[4])
        header, arrays = dict(parcel.header), dict(parcel.arrays)
        change(header, arrays)
        bodies[4] = pack(Parcel(header, arrays))
        sums = (zlib.crc32(body).to_bytes(4, "little") for body in bodies)
        parts = zip(bodies, sums, strict=True)
        return b"".join(len(b).to_bytes(4, "little") + c + b for b, c in parts)

    return damage


W = "0/update"
FOREIGN: dict[str, Callable[[bytes], bytes]] = {
    "another query": forge(lambda h, a: h.update(digest="00" * 8)),
    "wrong shape": forge(lambda h, a: a.update({W: a[W][None]})),
    "an array less": forge(lambda h, a: a.pop(W)),
    "an array more": forge(lambda h, a: a.update({"0/code": a[W]})),
    "another kind": forge(lambda h, a: h.update(kinds=["Path"])),
    "no digest": forge(lambda h, a: h.pop("digest")),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_fault_68_foreign_checkpoints_are_refused(stopped, what):
    path = stopped / LOG
    path.write_bytes(FOREIGN[what](path.read_bytes()))
    with pytest.raises(ArtefactError) as refused:
        run(place=stopped)
    assert refused.value.code in ("other-run", "bad-checkpoint")
    assert LOG in str(refused.value)


@pytest.mark.parametrize("content", [pickle.dumps({"w": 1}), b"", bytes(99)])
def test_fault_68_what_is_no_log_is_not_read(stopped, whole, content):
    (stopped / LOG).write_bytes(content)
    with pytest.warns(UserWarning, match="begins anew"):
        assert_same_outcome(run(place=stopped), whole)


def test_fault_69_a_write_that_really_fails(stopped, whole):
    """The system allows files no byte longer than the log: half a record is left."""
    before = (stopped / LOG).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with raises(ArtefactError, "cannot-write", LOG):
            run(place=stopped)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert (stopped / LOG).read_bytes() == before
    assert_same_outcome(run(place=stopped), whole)


def start(place: Path, rounds: int = 100_000) -> subprocess.Popen[str]:
    """Start a long run, and wait until its first round is saved."""
    process = start_command(
        *LONG_RUN, "--set", f"method.dual_rounds={rounds}", "--out", "run", cwd=place
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
    assert (tmp_path / "run" / LOG).exists()
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
    found = runs.read_run(place)
    assert found.verified
    assert found.as_dict()["status"] == "interrupted"
    assert Log(place).seed == 1
    ended, _, err = end_command(start_command("run", "--resume", "run", cwd=tmp_path))
    assert ended in (0, 4), err
    assert finished_run(place) == uninterrupted


HANGS = """
import signal, sys, time
import pffl._solve
from pffl.cli import main
def forever(*a, **k):
    print("concluding", file=sys.stderr, flush=True)
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            pass
pffl._solve.evidence_of = forever
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_fault_71_the_second_signal_ends_at_once(number, tmp_path):
    arguments = [*LONG_RUN, "--set", "method.dual_rounds=100000", "--out", "run"]
    words, known = [sys.executable, "-c", HANGS, *arguments], {"cwd": tmp_path}
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, **known)
    wait_for_a_round(tmp_path / "run", process)
    process.send_signal(number)
    while "concluding" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(number)
    began = time.monotonic()
    process.communicate(timeout=60)
    assert time.monotonic() - began < 5
    assert process.returncode == -number  # which a shell shows as 130 and 143
    assert Log(tmp_path / "run").messages > 0


def test_fault_71_interrupted_while_measuring(tmp_path, capsys, monkeypatch):
    measured = fit.measure

    def interrupt(*parts: Any, **more: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return measured(*parts, **more)

    options = ("run", *SMALL, "--bound", "0.7", "--out")
    monkeypatch.setattr(fit, "measure", interrupt)
    seen = command(capsys, *options, tmp_path / "run")
    monkeypatch.undo()
    assert seen.code == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = command(capsys, "run", "--resume", tmp_path / "run")
    assert command(capsys, *options, tmp_path / "whole").code == again.code == 0
    assert finished_run(tmp_path / "run") == finished_run(tmp_path / "whole")
    assert "run.toml" in finished_run(tmp_path / "run")["files"]


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
