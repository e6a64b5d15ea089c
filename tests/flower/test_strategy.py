"""PFFLStrategy in Flower's own loop, over a Grid in this process."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import pffl
from pffl.errors import FederationError, UsageError
from pffl.wire import Policy
from tests.helpers import make_federation

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Context, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from pffl.flower import PFFLStrategy, client_app
from pffl.flower.transport import unwrap
from pffl.wire import read_request
from tests.flower.memory import EASY, MemoryGrid, grid_of

CONSTRAINTS = {
    "bgl": pffl.BoundedGroupLoss(0.62),
    "cbgl": pffl.ConditionalBoundedGroupLoss(0.7),
}
METHODS = {
    "exact": pffl.Exact(),
    "pffl": pffl.PFFL(dual_rounds=3, rounds_per_dual=2),
    "fairfed": pffl.methods.METHODS["fairfed"](rounds=3),
}
QUICK = Policy(seconds=2.0, join_seconds=2.0, release=math.inf)


@pytest.fixture
def federation():
    return make_federation(sizes=(200, 150, 250), test=60)


class Looped(MemoryGrid):
    """Notes what is asked, and what of it Flower's own loop sends."""

    def __init__(self, nodes):
        super().__init__(nodes)
        self.asked, self.looped = [], []

    def push_messages(self, messages):
        self.asked += kinds(messages)
        return super().push_messages(messages)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        self.looped += kinds(messages)
        return super().send_and_receive(messages, timeout=timeout)


def kinds(messages):
    """Kinds of the questions in messages."""
    requests = [read_request(unwrap(message)) for message in messages]
    return [body.header["question"] for sent in requests for body in sent.bodies]


def strategy(federation, constraint="bgl", method="exact", **given):
    return PFFLStrategy(
        federation.schema,
        federation.silo_names,
        CONSTRAINTS[constraint],
        method=METHODS[method],
        seed=3,
        **{"policy": QUICK, **given},
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_same_result_as_solve(tmp_path, federation, constraint, method):
    how = {"method": METHODS[method], "seed": 3}
    here = pffl.solve(federation, CONSTRAINTS[constraint], **how)
    tried = strategy(federation, constraint, method)
    tried.start(grid_of(federation, tmp_path))
    there = tried.solution
    np.testing.assert_allclose(there.w, here.w, rtol=0, atol=1e-10)
    np.testing.assert_allclose(there.multipliers, here.multipliers, atol=1e-10)
    assert (there.status, there.rounds) == (here.status, here.rounds)


def test_training_goes_through_flowers_own_loop(tmp_path, federation):
    grid = grid_of(federation, tmp_path, grid=Looped)
    result = strategy(federation, method="pffl").start(grid)
    assert grid.looped.count("train") == grid.asked.count("train") == 3 * 6
    assert "evaluate" in grid.looped
    # One round finds the step size, six train.
    assert list(result.train_metrics_clientapp) == list(range(1, 8))
    metrics = result.train_metrics_clientapp[7]
    assert metrics["silos"] == 3
    assert {"risk", "worst_violation"} <= set(metrics)


def test_arrays_are_the_last_iterate_that_was_sent(tmp_path, federation):
    sent = []

    class Spy(MemoryGrid):
        def deliver(self, message):
            if message.metadata.message_type == "train":
                sent.append(read_request(unwrap(message)).bodies[0].arrays["w"])
            return super().deliver(message)

    tried = strategy(federation, method="pffl")
    result = tried.start(grid_of(federation, tmp_path, grid=Spy))
    np.testing.assert_array_equal(result.arrays["w"].numpy(), sent[-1])
    assert not np.allclose(sent[-1], tried.solution.w)


def test_rounds_are_at_most_those_asked_for(tmp_path, federation):
    tried = strategy(federation, method="pffl")
    result = tried.start(grid_of(federation, tmp_path), num_rounds=3)
    assert max(result.train_metrics_clientapp) == 3
    assert tried.solution.rounds == 3
    assert tried.solution.gap is not None


def test_own_evaluation_sees_every_iterate(tmp_path, federation):
    seen = []

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append((number, arrays["w"].numpy().copy()))
        return MetricRecord({"norm": float(np.linalg.norm(seen[-1][1]))})

    tried = strategy(federation)
    result = tried.start(grid_of(federation, tmp_path), evaluate_fn=evaluate)
    assert [number for number, _ in seen] == list(range(tried.solution.rounds + 1))
    assert not seen[0][1].any()
    assert list(result.evaluate_metrics_serverapp) == [number for number, _ in seen]


def test_a_missing_site_is_named_and_no_thread_is_left(tmp_path, federation):
    import threading

    grid = grid_of(federation, tmp_path)
    gone = next(n for n, (_, c) in grid.nodes.items() if c["silo"] == "site 2")
    del grid.nodes[gone]
    before = threading.active_count()
    tried = strategy(federation, policy=Policy(seconds=1.0, join_seconds=0.2))
    with pytest.raises(FederationError, match="'site 2'"):
        tried.start(grid)
    assert tried.solution is None
    assert threading.active_count() == before


def test_when_flower_fails_the_solver_ends_too(tmp_path, federation):
    import threading

    class Broken(MemoryGrid):
        def send_and_receive(self, messages, *, timeout=None):
            list(messages)
            raise ConnectionError("no SuperLink")

    before = threading.active_count()
    with pytest.raises(ConnectionError):
        strategy(federation).start(grid_of(federation, tmp_path, grid=Broken))
    assert threading.active_count() == before


def test_a_node_that_fails_in_a_round_is_asked_again(tmp_path, federation):
    class FailsOnce(MemoryGrid):
        failed_once = False

        def deliver(self, message):
            curvature = message.metadata.message_type == "query.curvature"
            if curvature and not self.failed_once:
                self.failed_once = True
                return self.failed(message, 8, "ClientApp crashed")
            return super().deliver(message)

    here = pffl.solve(federation, CONSTRAINTS["bgl"], method=METHODS["exact"], seed=3)
    tried = strategy(federation)
    tried.start(grid_of(federation, tmp_path, grid=FailsOnce))
    np.testing.assert_allclose(tried.solution.w, here.w, rtol=0, atol=1e-10)


def test_it_can_be_started_again(tmp_path, federation):
    tried = strategy(federation)
    first = tried.start(grid_of(federation, tmp_path / "a"))
    w = tried.solution.w
    second = tried.start(grid_of(federation, tmp_path / "b"))
    np.testing.assert_array_equal(tried.solution.w, w)
    assert list(first.train_metrics_clientapp) == list(second.train_metrics_clientapp)


def test_it_is_a_strategy_and_refuses_what_it_cannot_honour(tmp_path, federation):
    tried = strategy(federation)
    assert isinstance(tried, Strategy)
    with pytest.raises(UsageError, match="leave initial_arrays"):
        tried.start(grid_of(federation, tmp_path), ArrayRecord())
    with pytest.raises(UsageError, match="by its method `start` only"):
        tried.configure_train(1, ArrayRecord(), None, None)


def test_the_example_of_the_documentation(tmp_path, capsys):
    text = (Path(__file__).parents[2] / "docs" / "flower.md").read_text("utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    example: dict = {}
    exec(compile(code, "docs/flower.md", "exec"), example)  # noqa: S102
    rng = np.random.default_rng(0)
    nodes = {}
    for node, name in enumerate(["north", "south"], start=5):
        group, age, income = rng.integers(2, size=3000), *rng.normal(size=(2, 3000))
        label = (age + 0.5 * group + rng.normal(size=3000) > 0).astype(int)
        table, state = tmp_path / f"{name}.csv", tmp_path / name
        np.savetxt(table, np.stack([age, income, label, group], 1), delimiter=",")
        state.mkdir()
        config = {"silo": name, "state": str(state), "table": str(table)}
        nodes[node] = (example["client"], config)
    context = Context(1, 1, {}, RecordDict(), {})
    example["server"](MemoryGrid(nodes), context)
    assert capsys.readouterr().out.splitlines()[-1] == "met 4 rounds"


def simulated(federation, rows=None):
    """Nodes as Flower's simulation has them: partitions, and nothing else."""

    def own(context):
        silo = federation.silos[context.node_config["partition-id"]]
        found = silo.rows("train")
        return found.X, found.y, found.group

    app = client_app(rows or own, schema=federation.schema, rules=EASY)
    many = len(federation.silos)
    return MemoryGrid({10 + k: (app, {"partition-id": k}) for k in range(many)})


def test_partitions_of_a_simulation_are_sites(tmp_path, federation, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = [f"partition {k}" for k in range(3)]
    constraint = CONSTRAINTS["bgl"]
    tried = PFFLStrategy(federation.schema, names, constraint, policy=QUICK, seed=3)
    tried.start(simulated(federation))
    assert tried.solution.gap < 1e-6
    assert [p.name for p in tmp_path.iterdir()] == ["pffl-simulation-1"]


def test_nodes_that_cannot_answer_are_named_with_what_they_lack(federation):
    from tests.flower.apps import AppGrid, client

    names = [f"partition {k}" for k in range(3)]
    quick = Policy(seconds=0.3, join_seconds=0.3)
    tried = PFFLStrategy(federation.schema, names, CONSTRAINTS["bgl"], policy=quick)
    with pytest.raises(FederationError) as told:
        tried.start(AppGrid(client()))
    assert "not there" not in str(told.value)
    assert "make it with pffl.flower.client_app" in str(told.value)
    assert "20 (its ClientApp does not answer questions" in str(told.value)

    def broken(context):
        raise KeyError("no such file")

    with pytest.raises(FederationError, match="its rows could not be opened: the log"):
        tried.start(simulated(federation, broken))
