"""kill -9, a full disk and a torn file: nothing is lost, and nothing is made up."""

from __future__ import annotations

import os
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.interrupting import Stopping, assert_same_outcome
from tests.oracles import (
    LONG_RUN,
    ArtefactError,
    Local,
    damage_checkpoint,
    end_command,
    fill_disk,
    finished_run,
    has_checkpoint,
    is_unfinished,
    pffl,
    resuming,
    run_is_whole,
    save_run,
    start_command,
)
from tests.raising import raises

FEDERATION = pffl.datasets.synthetic(300, silos=3, random_state=0)
METHOD = pffl.PFFL(dual_rounds=4, rounds_per_dual=3, step_size=0.5, dual_step_size=1.0)
BOUND = pffl.BoundedGroupLoss(0.6)


def run(engine: Any = FEDERATION, place: Path | None = None) -> Any:
    return pffl.solve(engine, BOUND, method=METHOD, random_state=0, checkpoint=place)


@pytest.fixture(scope="module")
def whole() -> Any:
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


def content(place: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in place.iterdir() if p.name[0] != "."}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("uninterrupted")
    process = start_command(*LONG_RUN, "--out", "run", cwd=place)
    assert end_command(process)[0] in (0, 4)
    return finished_run(place / "run")


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_a_run_killed_anywhere_ends_with_the_same_model(
    seed: int, tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    place, rng = tmp_path / "cut", np.random.default_rng(seed)
    process, kills = start_command(*LONG_RUN, "--out", "cut", cwd=tmp_path), 0
    while kills < 4:
        deadline = time.monotonic() + 120
        while not has_checkpoint(place) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.25))
        process.kill()
        end_command(process)
        if not is_unfinished(place):
            break  # it was finished before
        kills += 1
        process = start_command(*resuming("cut"), cwd=tmp_path)
    code, _, err = end_command(process)
    assert kills > 0
    assert code in (0, 4, -signal.SIGKILL), err
    assert finished_run(place) == uninterrupted


def flip(place: int) -> Callable[[bytes], bytes]:
    def damage(content: bytes) -> bytes:
        flipped = bytearray(content)
        flipped[place % len(content)] ^= 0x04
        return bytes(flipped)

    return damage


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "one byte less": lambda content: content[:-1],
    "one byte more": lambda content: content + b"\0",
    "zeros": lambda content: bytes(len(content)),
    **{f"bit {place}": flip(place) for place in (0, 9, 200, 1000, -1, -5000)},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_torn_checkpoint_changes_no_result(
    stopped: Path, whole: Any, damage: str
) -> None:
    damage_checkpoint(stopped, DAMAGE[damage])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same_outcome(run(place=stopped), whole)


@pytest.mark.parametrize("when", ["write", "rename"])
def test_a_full_disk_stops_the_run_and_keeps_what_there_was(
    stopped: Path, whole: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    before = content(stopped)
    engine = Stopping(Local(FEDERATION), at=-1)
    fill_disk(monkeypatch, when)
    with raises(ArtefactError, "cannot-write", os.strerror(28)) as refused:
        run(engine, stopped)
    monkeypatch.undo()
    assert refused.value.exit_code == 6
    assert str(stopped) in str(refused.value)
    assert engine.asked == 2, "it stops at once after the census"
    assert content(stopped) == before
    assert_same_outcome(run(place=stopped), whole)


@pytest.mark.parametrize("when", ["write", "rename"])
def test_a_full_disk_keeps_the_run_that_was_saved_before(
    whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    place = tmp_path / "run"
    save_run(whole, place, "")
    before = content(place)
    fill_disk(monkeypatch, when)
    with raises(ArtefactError, "cannot-write", os.strerror(28)) as refused:
        save_run(whole, place, "other = true\n")
    monkeypatch.undo()
    assert str(place) in str(refused.value)
    assert content(place) == before
    assert not list(place.glob(".*.tmp"))
    assert run_is_whole(place)
