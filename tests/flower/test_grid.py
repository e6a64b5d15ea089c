"""Runs over a Flower Grid in this process: real messages, real ClientApps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pffl
from pffl.errors import FederationError
from pffl.site import Rules
from pffl.wire import Policy
from tests.engines.sites import counted
from tests.helpers import make_federation
from tests.inside import Remote
from tests.raising import raises

CONSTRAINTS = {
    "bgl": pffl.BoundedGroupLoss(0.62),
    "cbgl": pffl.ConditionalBoundedGroupLoss(0.7),
}
METHODS = {
    "exact": pffl.Exact(),
    "pffl": pffl.PFFL(dual_rounds=4, rounds_per_dual=3),
}
QUICK = Policy(seconds=2.0, join_seconds=2.0)


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global ConfigRecord, Context, Message, RecordDict, GridTransport, client_app
    global AppGrid, client, EASY, MemoryGrid, grid_of
    pytest.importorskip("flwr")
    from flwr.app import ConfigRecord, Context, Message, RecordDict

    from pffl.flower import GridTransport, client_app
    from tests.flower.apps import AppGrid, client
    from tests.flower.memory import EASY, MemoryGrid, grid_of


def drawn(silos):
    return make_federation(sizes=(200,) * silos, test=60)


def transport(grid):
    return GridTransport(grid, pause=0.001)


def remote(grid, federation, policy=QUICK):
    schema, names = federation.schema, federation.silo_names
    return Remote(transport(grid), schema, names, policy=policy)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_same_result_as_in_one_process(tmp_path, constraint, method):
    federation = drawn(4)
    how = {"method": METHODS[method], "seed": 3}
    here = pffl.solve(federation, CONSTRAINTS[constraint], **how)
    engine = remote(grid_of(federation, tmp_path), federation)
    there = pffl.solve(engine, CONSTRAINTS[constraint], **how)
    np.testing.assert_allclose(there.w, here.w, rtol=0, atol=1e-10)
    np.testing.assert_allclose(there.multipliers, here.multipliers, atol=1e-10)
    assert (there.status, there.rounds) == (here.status, here.rounds)
    assert there.gap == pytest.approx(here.gap, abs=1e-10)


@pytest.mark.parametrize("bound", [0.7, 0.6, 0.3])
def test_an_exact_run_takes_at_most_ten_messages(tmp_path, bound):
    federation = drawn(3)
    grid = grid_of(federation, tmp_path)
    found = pffl.solve(
        remote(grid, federation), pffl.BoundedGroupLoss(bound), method=pffl.Exact()
    )
    assert len(grid.kinds) <= 3 * 10
    assert found.evidence.training.queries["asked"] >= 14


def test_nothing_but_one_byte_string_travels(tmp_path):
    seen = []

    class Spy(MemoryGrid):
        def deliver(self, message):
            reply = super().deliver(message)
            seen.extend([message.content, reply.content])
            return reply

    federation = drawn(2)
    pffl.solve(
        remote(grid_of(federation, tmp_path, grid=Spy), federation),
        CONSTRAINTS["bgl"],
        seed=0,
    )
    assert len(seen) > 10
    for content in seen:
        assert list(content) == ["pffl"]
        assert [(k, type(v)) for k, v in content["pffl"].items()] == [("parcel", bytes)]


def test_an_error_of_the_superlink_is_matched_to_the_node_that_was_asked(tmp_path):
    class OneIsGone(MemoryGrid):
        def deliver(self, message):
            if message.metadata.dst_node_id == min(self.nodes):
                return self.failed(message, 5, "Node Unavailable")
            return super().deliver(message)

    federation = drawn(3)
    grid = grid_of(federation, tmp_path, grid=OneIsGone)
    requests = {str(node): b"" for node in grid.nodes}
    replies = {r.address: r for r in transport(grid).exchange(requests, 5.0, "census")}
    gone = replies.pop(str(min(grid.nodes)))
    assert gone.content is None
    assert gone.error == "Flower error 5: Node Unavailable"
    assert len(replies) == 2
    assert all(reply.content for reply in replies.values())


def test_a_message_that_flower_does_not_take_is_an_error_at_once(tmp_path):
    class Full(MemoryGrid):
        def push_messages(self, messages):
            return super().push_messages(messages[:1])

    grid = grid_of(drawn(2), tmp_path, grid=Full)
    requests = {str(node): b"" for node in grid.nodes}
    errors = [r.error for r in transport(grid).exchange(requests, 5.0, "census")]
    assert sorted(errors) == ["", "Flower did not take the message"]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"other": {"parcel": b"x"}},
        {"pffl": {"parcel": "text"}},
        {"pffl": {"parcel": b"x", "more": 1}},
        {"pffl": {"parcel": b"x"}, "more": {}},
    ],
)
def test_other_content_is_no_message_of_ours(tmp_path, content):
    federation = drawn(1)
    grid = grid_of(federation, tmp_path)
    (node,) = grid.nodes
    records = {name: ConfigRecord(values) for name, values in content.items()}
    message = Message(RecordDict(records), node, "query.census")
    grid.push_messages([message])
    reply = grid.replies.popitem()[1]
    assert b"pffl refusal" in reply.content["pffl"]["parcel"]


def test_a_site_that_cannot_be_opened_says_only_that(tmp_path, capsys):
    private = "patient 4711 has no label"

    def rows(context):
        raise ValueError(private)

    federation = drawn(1)
    app = client_app(rows, schema=federation.schema)
    grid = MemoryGrid({7: (app, {"silo": "site 0", "state": str(tmp_path)})})
    (reply,) = transport(grid).exchange({"7": b"x"}, 5.0, "census")
    assert reply.content is None
    assert "ValueError" in reply.error
    assert "4711" not in reply.error + capsys.readouterr().out


def test_arrays_of_the_users_own_are_split_alike_in_every_process(tmp_path):
    federation = drawn(3)
    nodes = {}
    for silo in federation.silos:
        rows = silo.rows("train")
        app = client_app(
            lambda _, rows=rows: (rows.X, rows.y, rows.group),
            schema=federation.schema,
            rules=Rules(floor=0),
        )
        state = tmp_path / silo.name
        state.mkdir()
        nodes[10 + silo.index] = (app, {"silo": silo.name, "state": str(state)})
    engine = remote(MemoryGrid(nodes), federation)
    assert engine.splits == ("train", "test")
    total = sum(len(silo.rows("train")) for silo in federation.silos)
    train, test = (
        counted(engine, "train").rows.sum(),
        counted(engine, "test").rows.sum(),
    )
    assert (train + test, test) == (total, round(0.2 * total))
    assert pffl.solve(engine, CONSTRAINTS["bgl"], seed=0).gap < 1e-6


def test_rows_of_the_users_own_need_a_schema():
    with raises(pffl.PFFLError, "needs-schema"):
        client_app(lambda context: None)


@pytest.mark.parametrize("absent", [0, 5], ids=["at once", "after a while"])
def test_fault_54_a_node_that_comes_back_is_the_same_site(tmp_path, absent):
    class Restarting(MemoryGrid):
        """The node that is asked fifth dies, and comes back under another id."""

        gone, looks = None, 0

        def deliver(self, message):
            node = message.metadata.dst_node_id
            if self.kinds.count("query.curvature") == 5 and self.gone is None:
                self.gone = self.nodes.pop(node)
                return self.failed(message, 5, "Node Unavailable")
            return super().deliver(message)

        def get_node_ids(self):
            if self.gone is not None:
                self.looks += 1
                if self.looks > absent:
                    self.nodes[20_000] = self.gone
            return super().get_node_ids()

    federation = drawn(3)
    here = pffl.solve(federation, CONSTRAINTS["bgl"], seed=0)
    grid = grid_of(federation, tmp_path, grid=Restarting)
    there = pffl.solve(remote(grid, federation), CONSTRAINTS["bgl"], seed=0)
    assert 20_000 in grid.nodes
    np.testing.assert_allclose(there.w, here.w, rtol=0, atol=1e-12)


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
    example["server"](MemoryGrid(nodes), Context(1, 1, {}, RecordDict(), {}))
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


def partitions(grid, federation, policy=QUICK):
    names = [f"partition {k}" for k in range(len(federation.silos))]
    return Remote(transport(grid), federation.schema, names, policy=policy)


def test_partitions_of_a_simulation_are_sites(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    federation = drawn(3)
    engine = partitions(simulated(federation), federation)
    solution = pffl.solve(engine, CONSTRAINTS["bgl"], method="exact", seed=3)
    assert solution.gap < 1e-6
    assert [p.name for p in tmp_path.iterdir()] == ["pffl-simulation-1"]


def test_nodes_that_cannot_answer_are_named_with_what_they_lack():
    federation, quick = drawn(3), Policy(seconds=0.3, join_seconds=0.3)
    with raises(FederationError, "sites-missing", "pffl.flower.client_app", "20"):
        counted(partitions(AppGrid(client()), federation, quick))

    def broken(context):
        raise KeyError("no such file")

    with raises(FederationError, "sites-missing", "partition 0"):
        counted(partitions(simulated(federation, broken), federation, quick))
