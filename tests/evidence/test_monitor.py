"""A monitor and its file: what a batch comes to, what is refused, what survives."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from pffl.errors import ArtefactError
from tests.inside import Batch, Monitor, Settings, alarm, held
from tests.inside import read_monitor as read
from tests.inside import write_monitor as write
from tests.raising import raises

M, BOUND = 3.0, 0.6


def settings(cells: int = 2, confidence: float = 0.95) -> Settings:
    bets = alarm.plan([BOUND] * cells)
    return Settings(
        "model",
        "schema",
        {f"cell {z}": BOUND for z in range(cells)},
        [],
        confidence,
        bets.gammas.tolist(),
        bets.weights.tolist(),
    )


def batch(losses: list[list[float]], name: str, of: Settings) -> Batch:
    """The sums of rows with these losses, per cell."""
    sums = [
        [
            math.fsum(math.log(1 + g * (loss / BOUND - 1)) for loss in cell)
            for g in of.bets[z]
        ]
        for z, cell in enumerate(losses)
    ]
    rows = sum(map(len, losses))
    total = [math.fsum(cell) for cell in losses]
    count = [len(cell) for cell in losses]
    return Batch(name, rows, name, None, count, total, sums, [0] * len(count))


def drawn(seed: int, means: list[float], many: int = 50) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    return [(M * rng.beta(2, 2 * M / m - 2, many)).tolist() for m in means]


def filled(path: Path, batches: int = 4, means: tuple[float, ...] = (0.5, 0.9)) -> None:
    own = settings()
    with held(path) as found:
        monitor = found or Monitor(own)
        begun = len(monitor.batches)
        for k in range(begun, begun + batches):
            one = batch(drawn(k, list(means)), f"batch {k}", own)
            monitor = after(monitor, one)
            write(path, monitor)


def after(monitor: Monitor, one: Batch) -> Monitor:
    return replace(monitor, batches=(*monitor.batches, one))


def test_an_alarm_says_where_it_was_crossed_and_stays():
    own, monitor, seen = settings(), Monitor(settings()), []
    for k in range(12):
        bad = 3 <= k < 6
        one = batch(drawn(k, [0.5, 1.2 if bad else 0.4]), str(k), own)
        monitor = after(monitor, one)
        seen.append(monitor.history[-1]["e_value"])
    first = next(k for k, value in enumerate(seen) if value >= 40)
    assert seen[-1] < 40  # and the alarm stays
    assert monitor.alarms == {"cell 1": 50 * (first + 1)}
    assert (monitor.status, monitor.exit_code) == ("alarm", 4)
    assert str(50 * (first + 1)) in monitor.message
    assert monitor.table[0]["crossed_at_row"] is None


def test_no_alarm_promises_nothing():
    own = settings(1, 0.9999999)
    monitor = after(Monitor(own), batch(drawn(0, [0.3]), "a", own))
    assert (monitor.status, monitor.exit_code, monitor.alarms) == ("no alarm", 0, {})
    assert "They do not show that it is within it, either." in monitor.message
    bad = after(Monitor(own), batch(drawn(0, [1.5], 400), "a", own))
    assert "at most 0.00001 %" in bad.message


def test_a_file_goes_on_where_it_was(tmp_path):
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    filled(one, 6)
    for _ in range(3):
        filled(two, 2)
    assert one.read_bytes() == two.read_bytes()
    assert read(one).history == read(two).history
    assert json.loads(one.read_text("utf-8"))["digest"] == read(one).digest


def test_whatever_is_edited_is_refused(tmp_path):
    path = tmp_path / "state.json"
    filled(path, 3)
    good, monitor = path.read_text("utf-8"), read(path)

    def refused(text: str, code: str = "changed-file") -> None:
        path.write_text(text, "utf-8")
        for reading in (read, lambda p: held(p).__enter__()):
            with raises(ArtefactError, code):
                reading(path)
        assert path.read_text("utf-8") == text  # nothing is mended or lost

    plain = json.loads(good)
    first, *others = plain["batches"]
    # A field alone; a batch out, doubled, or in another place; no JSON.
    for change in (
        {"settings": {**plain["settings"], "confidence": 0.5}},
        {"batches": [{**first, "loss": [0.0, 0.0]}, *others]},
        {"batches": [{**first, "more": 1}, *others]},
        {"batches": others},
        {"batches": [first, first, *others]},
        {"batches": [others[0], first, others[1]]},
        {"batches": []},
    ):
        refused(json.dumps(plain | change))
    refused(json.dumps(plain | {"format": "other"}), "bad-state")
    refused(json.dumps(plain | {"version": 3}), "other-format")
    refused(good[:-100], "not-json")
    # With the digest made anew, sums that no losses can have, or of other cells.
    for field, wrong in (
        ("above", [[-1e9] * 9] * 2),
        ("above", [[0.0] * 8] * 2),
        ("count", [50]),
        ("count", [-1, 50]),
        ("loss", [1.0]),
    ):
        edited = replace(monitor.batches[0], **{field: wrong})
        write(path, replace(monitor, batches=(edited, *monitor.batches[1:])))
        refused(path.read_text("utf-8"))
