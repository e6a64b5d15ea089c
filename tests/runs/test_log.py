from __future__ import annotations

import warnings
from dataclasses import fields, replace
from typing import Any

import pytest

import pffl
from pffl.callbacks import Callback
from pffl.driver import LOG, Log
from pffl.engines import Local
from pffl.errors import ArtefactError, FederationError
from pffl.methods import METHODS, PFFL, FedAvg
from tests.interrupting import Stopping, assert_same_outcome
from tests.methods.biased import biased
from tests.raising import raises

FEDERATION = biased(0)
CONSTRAINT = pffl.BoundedGroupLoss(0.6)
SHORT: dict[str, dict[str, Any]] = {
    "auto": {},
    "exact": {},
    "first-order": {},
    "pffl": {"dual_rounds": 4, "rounds_per_dual": 3},
    "local-bgl": {"dual_rounds": 4, "rounds_per_dual": 3},
    "fcfl": {"stage_one_rounds": 6, "stage_two_rounds": 6},
    "reductions": {"iterations": 5},
    "pooled": {},
}
VARIANTS: dict[str, Any] = {
    **{
        name: method(**SHORT.get(name, {"rounds": 10}))
        for name, method in METHODS.items()
    },
    "pffl, batches and momentum": PFFL(
        dual_rounds=4,
        rounds_per_dual=3,
        batch_size=7,
        server="momentum",
        participation=0.5,
        iterate="best",
    ),
    "fedavg, adam": FedAvg(rounds=10, server="adam"),
}


def solve(method: Any, engine: Any = FEDERATION, **more: Any) -> pffl.Solution:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "cells with fewer than 10")
        return pffl.solve(engine, CONSTRAINT, method=method, random_state=3, **more)


class Seen(Callback):
    """The rounds that were run, by number."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def after_round(self, row: Any) -> bool:
        self.numbers.append(row.number)
        return False


@pytest.mark.parametrize(
    "few", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["few", "more"]
)
@pytest.mark.parametrize("name", VARIANTS)
def test_interrupted_and_resumed_is_uninterrupted(name, few, tmp_path):
    method, counted = VARIANTS[name], Stopping(Local(FEDERATION), at=-1)
    whole = solve(method, counted)
    last = counted.asked
    stops = {2, last // 2, last}  # at every message: tests/test_flow.py
    if not few:
        stops = {1, 3, whole.rounds, whole.rounds + 1}
    for at in sorted(stops):
        place, seen = tmp_path / str(at), Seen()
        stopping = Stopping(Local(FEDERATION), at, FederationError)
        with pytest.raises(FederationError):
            solve(method, stopping, checkpoint=place)
        again = Stopping(Local(FEDERATION), -1)
        resumed = solve(method, again, checkpoint=place, callbacks=[seen])
        assert_same_outcome(resumed, whole)
        assert again.asked == last - max(at - 2, 0), "none but the census asked twice"
        assert seen.numbers == [row.number for row in whole.rows], "all are shown"
        assert not any(place.iterdir())


def test_the_seed_may_be_left_out_of_a_resumed_run(tmp_path):
    method = VARIANTS["pffl, batches and momentum"]
    first = pffl.solve(
        Stopping(Local(FEDERATION), at=5),
        CONSTRAINT,
        method=method,
        checkpoint=tmp_path,
    )
    second = pffl.solve(FEDERATION, CONSTRAINT, method=method, checkpoint=tmp_path)
    assert second.seed == first.seed
    whole = pffl.solve(FEDERATION, CONSTRAINT, method=method, random_state=first.seed)
    assert_same_outcome(second, whole)


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_of_a_method_is_in_its_identity(name, tmp_path):
    method = METHODS[name](**SHORT.get(name, {"rounds": 10}))
    with pytest.raises(FederationError):
        solve(
            method,
            Stopping(Local(FEDERATION), 3, FederationError),
            checkpoint=tmp_path,
        )
    for field in fields(method):
        other = replace(method)
        object.__setattr__(other, field.name, "another")
        with raises(ArtefactError, "other-run", f"method.{field.name}"):
            Log(tmp_path).begin(**known(other))


def known(method: Any) -> dict[str, Any]:
    return {"method": {"kind": method.name, **vars(method)}}


def test_a_thousand_rounds_take_less_than_a_megabyte(tmp_path):
    method = PFFL(dual_rounds=500, rounds_per_dual=2)
    people = pffl.datasets.synthetic(400, silos=4, random_state=0)
    counted = Stopping(Local(people), at=-1)
    pffl.solve(counted, CONSTRAINT, method=method, random_state=0)
    assert counted.asked > 1000
    last = Stopping(Local(people), counted.asked, FederationError)
    with pytest.raises(FederationError):
        pffl.solve(last, CONSTRAINT, method=method, random_state=0, checkpoint=tmp_path)
    path = tmp_path / LOG
    assert path.stat().st_size < 1_000_000
    assert path.stat().st_mode & 0o777 == 0o600
    again = Stopping(Local(people), at=-1)
    pffl.solve(again, CONSTRAINT, method=method, random_state=0, checkpoint=tmp_path)
    assert again.asked == 2  # the census, and what was lost


def test_a_log_that_is_full_says_so_and_the_run_goes_on(tmp_path, monkeypatch):
    whole = solve(VARIANTS["pffl"])
    monkeypatch.setattr("pffl.driver.MAX_LOG_BYTES", 8_000)
    engine = Stopping(Local(FEDERATION), 14, FederationError)
    with pytest.warns(UserWarning, match="is full"), pytest.raises(FederationError):
        solve(VARIANTS["pffl"], engine, checkpoint=tmp_path)
    assert (tmp_path / LOG).stat().st_size <= 8_000
    with pytest.warns(UserWarning, match="is full"):
        assert_same_outcome(solve(VARIANTS["pffl"], checkpoint=tmp_path), whole)


def test_rows_that_changed_elsewhere_end_a_resumed_run(tmp_path):
    """Where rows cannot be read, the census tells."""
    others = biased(1)

    def engine(federation: Any, at: int = -1) -> Any:
        found = Stopping(Local(federation), at, FederationError)
        found.federation = None
        return found

    with pytest.raises(FederationError):
        solve(VARIANTS["pffl"], engine(FEDERATION, 5), checkpoint=tmp_path)
    with raises(ArtefactError, "other-run", LOG):
        solve(VARIANTS["pffl"], engine(others), checkpoint=tmp_path)
