"""Messages that travel whole: between whom, and what others get."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

OURS, FLOWERS = 5, 7  # node ids
ASKED, KNOWN, WHOLE = "whole?", "whole!", "whole"


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global Error, Message, message_from_proto, message_to_proto, TaskIdentity
    global unwrap, wrap, GridTransport, WholeGrid, answer_whole, carry
    pytest.importorskip("flwr")
    from flwr.app import Error, Message
    from flwr.common.serde import message_from_proto, message_to_proto
    from flwr.supercore.task_identity import TaskIdentity

    from pffl.flower.message import unwrap, wrap
    from pffl.flower.transport import GridTransport
    from pffl.flower.whole import WholeGrid, answer_whole, carry


class Link:
    """Flower's Grid and its client, with two nodes: one that knows whole messages."""

    def __init__(self) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self._runtime_client = self
        self._client = SimpleNamespace(headers={})
        self.inbox: dict[str, Message] = {}
        self.ways: list[tuple[int, str]] = []  # to whom, and how
        self.gone = False

    def get_node_ids(self) -> list[int]:
        return [OURS, FLOWERS]

    def push_messages(self, messages: list[Message]) -> list[str]:
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            self.ways.append((message.metadata.dst_node_id, "objects"))
            self._reply(message)
        return [m.metadata.message_id for m in messages]

    def pull_messages(self, ids: list[str]) -> list[Message]:
        return [self.inbox.pop(i) for i in ids if i in self.inbox]

    def PushMessages(self, request: Any) -> Any:
        for proto, tree in zip(
            request.messages_list, request.message_object_trees, strict=True
        ):
            assert proto.metadata.group_id == WHOLE
            assert tree.object_id == proto.metadata.message_id
            assert not tree.children
            message = message_from_proto(proto)
            self.ways.append((message.metadata.dst_node_id, "whole"))
            self._reply(message)
        ids = [m.metadata.message_id for m in request.messages_list]
        return SimpleNamespace(message_ids=ids)

    def PullMessages(self, request: Any) -> Any:
        found = self.pull_messages(list(request.message_ids))
        return SimpleNamespace(messages_list=[message_to_proto(m) for m in found])

    def _reply(self, message: Message) -> None:
        content = unwrap(message)
        assert content is not None
        reply = Message(wrap(content[::-1]), reply_to=message)
        if self.gone:
            reply = Message(Error(5, "Node Unavailable"), reply_to=message)
            reply.metadata.group_id = ""
        elif message.metadata.group_id == ASKED and reply.metadata.src_node_id == OURS:
            reply.metadata.group_id = KNOWN
        self.inbox[message.metadata.message_id] = reply


def asked(link: Link, transport: GridTransport, text: bytes) -> dict[str, bytes | None]:
    link.ways.clear()
    requests = {str(node): text for node in (OURS, FLOWERS)}
    return {r.address: r.content for r in transport.exchange(requests, 5.0, "census")}


def test_a_node_that_says_so_is_asked_whole_and_others_in_flowers_way() -> None:
    link = Link()
    transport = GridTransport(WholeGrid(link), pause=0.0)
    right = {str(OURS): b"cba", str(FLOWERS): b"cba"}
    assert asked(link, transport, b"abc") == right
    assert link.ways == [(OURS, "objects"), (FLOWERS, "objects")]
    assert asked(link, transport, b"abc") == right
    assert sorted(link.ways) == [(OURS, "whole"), (FLOWERS, "objects")]
    assert float(link._client.headers["pffl-hold"]) <= 5.0


def test_a_node_that_is_lost_is_asked_anew_in_flowers_way() -> None:
    """It may come back as another program."""
    link = Link()
    transport = GridTransport(WholeGrid(link), pause=0.0)
    asked(link, transport, b"abc")
    link.gone = True
    assert set(asked(link, transport, b"abc").values()) == {None}
    link.gone = False
    assert set(asked(link, transport, b"abc").values()) == {b"cba"}
    assert set(link.ways) == {(OURS, "objects"), (FLOWERS, "objects")}
    asked(link, transport, b"abc")
    assert (OURS, "whole") in link.ways


def test_a_node_does_not_speak_for_another() -> None:
    link = Link()
    reply = link._reply

    def lying(message: Message) -> None:
        reply(message)
        if message.metadata.dst_node_id == OURS:  # says that it is Flower's
            said = link.inbox[message.metadata.message_id]
            said.metadata.__dict__["_src_node_id"] = FLOWERS

    link._reply = lying  # type: ignore[method-assign]
    transport = GridTransport(WholeGrid(link), pause=0.0)
    asked(link, transport, b"abc")
    asked(link, transport, b"abc")
    assert sorted(link.ways) == [(OURS, "whole"), (FLOWERS, "objects")]


def message(group: str) -> Message:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    made = Message(wrap(b"abc"), OURS, "query.census", group_id=group)
    made.metadata.__dict__["_message_id"] = made.object_id
    return made


@pytest.mark.parametrize("group", [WHOLE, ASKED, "", "3"])
def test_the_process_that_answers_takes_and_gives_whole_what_came_so(group) -> None:
    came, pushed, objects = message(group), [], []

    def take(client: Any) -> Any:
        client.PullMessages(None)
        return clientapp.pull_and_inflate_object_from_tree("tree")

    clientapp = SimpleNamespace(
        pull_task_input=take,
        push_message=lambda _, reply, __: objects.append(reply),
        pull_and_inflate_object_from_tree=None,
    )
    answer_whole(clientapp, lambda tree: came)
    client = SimpleNamespace(
        PullMessages=lambda _: SimpleNamespace(messages_list=[message_to_proto(came)]),
        PushMessages=pushed.append,
    )
    found = clientapp.pull_task_input(client)
    assert unwrap(found) == b"abc"
    clientapp.push_message(client, Message(wrap(b"x"), reply_to=found), None)
    if group == WHOLE:
        assert not objects
        (request,) = pushed
        assert unwrap(message_from_proto(request.messages_list[0])) == b"x"
    else:
        assert not pushed
        assert objects[0].metadata.group_id == (KNOWN if group == ASKED else group)


@pytest.mark.parametrize("group", [WHOLE, ""])
def test_a_node_asks_for_no_parts_of_what_is_whole(group) -> None:
    came, said = message(group), []
    store = SimpleNamespace(delete=lambda i: said.append(("deleted", i)))

    def pull(*, receive, confirm_message_received, object_store):
        found, _ = receive()
        said.append(("pulled", node.pull_objects(["id"], pull_object_fn=None)))
        confirm_message_received(1, found.metadata.message_id)
        return 1

    def push(*, send, object_store):
        missing, _ = send(Message(wrap(b"x"), reply_to=came), None, 0.0)
        said.append(("missing", missing))

    node = SimpleNamespace(
        _pull_and_store_message=pull,
        _push_messages=push,
        pull_objects=lambda ids, pull_object_fn, initial_backoff: {"id": b"part"},
    )
    connection = SimpleNamespace(
        remove_content_from_message=lambda m: "stripped", FleetHttpClient=object
    )
    carry(node, connection)
    node._pull_and_store_message(
        receive=lambda: (came, None),
        confirm_message_received=lambda *_: said.append("confirmed"),
        object_store=store,
    )
    node._push_messages(send=lambda *_: ({"id"}, "session"), object_store=store)
    stripped = connection.remove_content_from_message(came)
    if group == WHOLE:
        gone = came.metadata.message_id
        assert said == [("pulled", {}), ("deleted", gone), ("missing", set())]
        assert stripped is came
    else:
        parts = {"id": b"part"}
        assert said == [("pulled", parts), "confirmed", ("missing", {"id"})]
        assert stripped == "stripped"
