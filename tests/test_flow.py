"""A run is a conversation: in lockstep, asked once, and stopped anywhere."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pffl
from pffl._solve import prepared
from pffl.driver import drive
from pffl.engines import Local, Reference
from pffl.errors import FederationError
from pffl.files import json_text
from pffl.flow import Flow, Start, ask, gather, rounds
from pffl.methods import PFFL, Exact, FedAvg, FirstOrder
from pffl.prepare import Options
from pffl.queries import Census, Expand
from tests.methods.biased import biased

FEDERATION = biased(0)


class Recording:
    """An engine that keeps what it is asked, message by message."""

    def __init__(self, engine: Any, fail_at: int = -1, error: Any = None) -> None:
        self.engine, self.fail_at, self.error = engine, fail_at, error
        self.messages: list[list[Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def ask(self, query: Any) -> Any:
        return self.ask_many([query])[0]

    def ask_many(self, queries: Any) -> Any:
        if len(self.messages) == self.fail_at:
            self.fail_at = -1
            raise self.error
        self.messages.append(list(queries))
        return self.engine.ask_many(list(queries))


def plain(solution: pffl.Solution) -> dict[str, Any]:
    """All that is known of a run, without its times."""
    evidence = solution.evidence
    run = replace(solution.training, seconds=0.0)
    found = json.loads(json_text(replace(evidence, training=run).as_dict()))
    rows = [{**row, "seconds": 0.0} for row in solution.history_rows()]
    return {"evidence": found, "w": solution.w.tobytes(), "rows": repr(rows)}


PROBLEMS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "met": (pffl.BoundedGroupLoss(0.66), Exact(), {}),
    "infeasible": (pffl.BoundedGroupLoss(0.3), Exact(), {}),
    "two infeasible bounds": (
        pffl.BoundedGroupLoss({"a": 0.3, "b": 0.4}),
        Exact(),
        {},
    ),
    "rounds": (
        pffl.BoundedGroupLoss(0.6),
        PFFL(dual_rounds=3, rounds_per_dual=2),
        {},
    ),
    "minimax": (pffl.MinMax(), Exact(), {}),
    "no bound": (None, Exact(), {}),
    "diverged": (
        pffl.BoundedGroupLoss(0.6),
        FedAvg(rounds=5, step_size=1e3),
        {},
    ),
}


def solve(name: str, engine: Any = None, **more: Any) -> pffl.Solution:
    constraint, method, options = PROBLEMS[name]
    return pffl.solve(
        Local(FEDERATION) if engine is None else engine,
        constraint,
        method=method,
        random_state=3,
        **options,
        **more,
    )


@pytest.mark.parametrize("method", [Exact(), FirstOrder()])
def test_what_is_at_hand_is_not_asked(method: Any) -> None:
    """A start spares the first round, and the optimum is the same."""
    engine = Recording(Local(FEDERATION))
    bound = pffl.BoundedGroupLoss(0.6)
    problem, _ = prepared(engine, bound, None, method, Options(), 0)
    start = Start.of(drive(engine, rounds(problem, method)), problem)
    other = problem.with_bounds(np.array([0.58, 0.63]))
    warm = drive(engine, rounds(other, method, start=Start(start.point)))
    engine.messages.clear()
    spared = drive(engine, rounds(other, method, start=start))
    assert spared.rounds == len(engine.messages) == warm.rounds - 1
    np.testing.assert_allclose(spared.point.w, warm.point.w, rtol=0, atol=1e-9)
    assert spared.bounds[:2] == pytest.approx(warm.bounds[:2], rel=1e-9)


def test_a_start_under_bounds_that_hide_its_losses_is_asked_about() -> None:
    engine, method, far = Local(FEDERATION), FirstOrder(), 1e9
    bound = pffl.BoundedGroupLoss(0.6)
    problem, _ = prepared(engine, bound, None, method, Options(), 0)
    near = Start.of(drive(engine, rounds(problem, method)), problem)
    assert near.under(problem) is not None
    hidden = problem.with_bounds(np.full(problem.n_cells, far))
    start = Start.of(drive(engine, rounds(hidden, method)), hidden)
    w = start.point.w
    losses = problem.expand(w, engine.ask(Expand(problem.task, w))).violation + 0.6
    assert np.abs(start.expansion.violation + far - losses).max() > 1e-10
    assert start.under(problem) is None
    paper = PFFL(dual_rounds=1, rounds_per_dual=1)  # starts where it does
    runs = [drive(engine, rounds(problem, paper, start=s)) for s in (None, start)]
    np.testing.assert_array_equal(runs[0].point.w, runs[1].point.w)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("error", [FederationError("down"), KeyboardInterrupt()])
def test_killed_at_every_message_and_resumed(
    name: str, error: BaseException, tmp_path: Path
) -> None:
    whole = Recording(Local(FEDERATION))
    expected = plain(solve(name, whole))
    pressed = isinstance(error, KeyboardInterrupt)  # the same journal, and concludes
    for at in range(0, len(whole.messages), 4 if pressed else 1):
        place = tmp_path / str(at)
        broken = Recording(Local(FEDERATION), at, error)
        try:
            stopped = solve(name, broken, checkpoint=place)
            assert stopped.status == "interrupted"
            assert pressed
        except type(error):
            pass
        resumed = Recording(Local(FEDERATION))
        assert plain(solve(name, resumed, checkpoint=place)) == expected, at
        # The census is asked again, to know the data; nothing else is, but what was
        # lost in the one message that failed.
        if at > 1:
            assert len(resumed.messages) <= len(whole.messages) - at + 1


def test_gather_goes_out_at_once_and_shares_equal_queries() -> None:
    engine = Recording(Reference(FEDERATION))
    query = Census(FEDERATION.schema, "train")
    other = Census(FEDERATION.schema, "test")

    def twice(first: Any, second: Any) -> Flow[list[Any]]:
        one = yield from ask(first)
        two = yield from ask(second)
        return [one, two]

    a, b = drive(engine, gather(twice(query, other), twice(query, query)))
    assert [len(message) for message in engine.messages] == [1, 2]
    assert a[0] is b[0]
    np.testing.assert_array_equal(a[0].counts, b[1].counts)


def test_an_error_in_one_flow_ends_all_and_closes_them() -> None:
    closed = []

    def failing() -> Flow[None]:
        yield from ask(Census(FEDERATION.schema))
        raise FederationError("no")

    def waiting() -> Flow[None]:
        try:
            yield from ask(Census(FEDERATION.schema))
            yield from ask(Census(FEDERATION.schema, "test"))
        finally:
            closed.append(True)

    with pytest.raises(FederationError):
        drive(Reference(FEDERATION), gather(failing(), waiting()))
    assert closed == [True]


def test_an_interruption_that_hits_another_part_ends_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C comes at any line: also while the model without bounds is fitted."""
    step, hit = Exact.step, []

    def interrupted(self: Any, problem: Any, state: Any, total: Any) -> Any:
        if not hit:
            hit.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, problem, state, total)

    monkeypatch.setattr(Exact, "step", interrupted)
    engine = Recording(Local(FEDERATION))
    engine.federation = None  # elsewhere, parts go side by side
    solution = pffl.solve(
        engine,
        pffl.BoundedGroupLoss(0.6),
        method=PFFL(dual_rounds=1000, rounds_per_dual=2),
        random_state=3,
    )
    assert hit
    assert solution.status == "interrupted"
    assert solution.rounds < 5
