"""Messages that travel whole: one request each way, in the place of a dozen.

Flower cuts a message into objects, three of ours, and each is pushed and pulled by a
request of its own, after one that announces it and before one that confirms it. Its
servers pass a message's content on, however, where it was left in; so that is done
here, between a ServerApp of ours and `pffl.flower.node`, and between the node and the
process that answers. Nothing of Flower's servers is changed.

The group of a message, which Flower passes on and otherwise ignores, says how it
travels. A ServerApp asks each node once in Flower's way; those that know this one say
so, and others (Flower's own) go on as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from flwr.app import Message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PushAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import no_object_id_recompute

from pffl.flower.held import HOLD, LONGEST, NUMBER, SEEN
from pffl.flower.pauses import RETRY

ASKED = "whole?"  # in Flower's way; a node may say that it knows this one
KNOWN = "whole!"  # in Flower's way, by a node that knows this one
WHOLE = "whole"  # a message with its content, and its reply


def is_whole(message: Any) -> bool:
    """Whether a message, or what it is on the wire, has its content with it."""
    return bool(message.metadata.group_id == WHOLE)


class WholeGrid:
    """Flower's Grid, for nodes that take messages whole.

    Parameters
    ----------
    grid
        What Flower gives to a ServerApp.
    """

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self._nodes: set[int] = set()  # who knows
        self._whole: dict[str, int] = {}  # to whom, by message
        self._others: dict[str, int] = {}  # likewise, in Flower's way

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are there now."""
        nodes: Iterable[int] = self._grid.get_node_ids()
        return nodes

    def hold(self, seconds: float) -> None:
        """Ask to be answered when there is something, within so many seconds."""
        self._grid._runtime_client._client.headers[HOLD] = f"{seconds:.1f}"

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Push messages; return the ids of those that were taken."""
        whole: list[Message] = []
        others: list[Message] = []
        for message in messages:
            knows = message.metadata.dst_node_id in self._nodes
            message.metadata.group_id = WHOLE if knows else ASKED
            (whole if knows else others).append(message)
        pushed = list(self._grid.push_messages(others)) if others else []
        self._others |= {m.metadata.message_id: m.metadata.dst_node_id for m in others}
        if whole:
            request = _pushed(whole)
            self._whole |= {
                m.metadata.message_id: m.metadata.dst_node_id for m in whole
            }
            taken = self._grid._runtime_client.PushMessages(request)
            pushed += list(taken.message_ids)
        return pushed

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        """Pull the replies that are there to some messages.

        Who knows is who was asked: what a reply says of its sender is the sender's.
        """
        whole = [i for i in ids if i in self._whole]
        others = [i for i in ids if i not in self._whole]
        found = list(self._grid.pull_messages(others)) if others else []
        for reply in found:
            node = self._others.pop(reply.metadata.reply_to_message_id, None)
            if node is not None and reply.metadata.group_id == KNOWN:
                self._nodes.add(node)
        if whole:
            request = PullAppMessagesRequest(message_ids=whole)
            came = self._grid._runtime_client.PullMessages(request).messages_list
            replies = list(map(message_from_proto, came))
            found += replies
            for reply in replies:
                node = self._whole.pop(reply.metadata.reply_to_message_id, None)
                if node is not None and not is_whole(reply):
                    self._nodes.discard(node)  # gone, or another program by now
        return found


def carry(node: Any, connection: Any) -> None:
    """Let Flower's node take and send messages whole.

    Parameters
    ----------
    node, connection
        Flower's modules of these names.
    """
    pull, push = node._pull_and_store_message, node._push_messages
    strip = connection.remove_content_from_message
    objects = partial(node.pull_objects, initial_backoff=RETRY)
    arrived: list[Message] = []

    def pulled(**given: Any) -> int | None:
        def received() -> tuple[Message, ObjectTree] | None:
            found: tuple[Message, ObjectTree] | None = given["receive"]()
            arrived[:] = [found[0]] if found and is_whole(found[0]) else []
            return found

        def confirmed(run: int, message: str) -> None:
            if not arrived:
                given["confirm_message_received"](run, message)

        own = {"receive": received, "confirm_message_received": confirmed}
        return pull(**given | own)

    def pushed(**given: Any) -> None:
        def sent(message: Message, *rest: Any) -> tuple[set[str], str]:
            missing, session = given["send"](message, *rest)
            if is_whole(message):
                given["object_store"].delete(message.metadata.reply_to_message_id)
                missing = set()
            return missing, session

        push(**given | {"send": sent})

    class Patient(connection.FleetHttpClient):  # type: ignore[misc]
        """Is answered when there is a message, and says whether the last one came."""

        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            self._client.headers[HOLD] = f"{LONGEST:g}"
            self._client.event_hooks["response"] = [self._note]
            self._number = ""

        def _note(self, response: Any) -> None:
            self._number = response.headers.get(NUMBER, self._number)

        def PullMessages(self, request: Any) -> Any:
            response = super().PullMessages(request)
            self._client.headers[SEEN] = self._number  # all of it is here
            return response

    connection.FleetHttpClient = Patient
    node._pull_and_store_message, node._push_messages = pulled, pushed
    node.pull_objects = lambda *a, **k: {} if arrived else objects(*a, **k)
    connection.remove_content_from_message = lambda message: (
        message if is_whole(message) else strip(message)
    )


def answer_whole(clientapp: Any, inflate: Any) -> None:
    """Let the process that answers a message take it whole, and answer so.

    Parameters
    ----------
    clientapp
        Flower's module for that process.
    inflate
        How a message is taken in Flower's way.
    """
    take, push = clientapp.pull_task_input, clientapp.push_message

    def taken(client: Any) -> Any:
        look, came = client.PullMessages, []

        def looked(request: Any) -> Any:
            response = look(request)
            came.extend(response.messages_list)
            return response

        def inflated(*given: Any, **more: Any) -> Any:
            if came and is_whole(came[0]):
                return message_from_proto(came[0])
            return inflate(*given, **more)

        client.PullMessages = looked
        clientapp.pull_and_inflate_object_from_tree = inflated
        return take(client)

    def pushed(client: Any, message: Message, context: Any) -> None:
        if is_whole(message):
            client.PushMessages(_pushed([message]))
            return
        if message.metadata.group_id == ASKED:
            message.metadata.group_id = KNOWN
        push(client, message, context)

    clientapp.pull_task_input, clientapp.push_message = taken, pushed


def _asked(messages: Sequence[Message]) -> dict[str, int]:
    """Return to whom messages are, by their ids."""
    return {m.metadata.message_id: m.metadata.dst_node_id for m in messages}


def _pushed(messages: Sequence[Message]) -> Any:
    """Return a request that pushes messages with their contents."""
    with no_object_id_recompute():
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
    return PushAppMessagesRequest(
        messages_list=list(map(message_to_proto, messages)),
        message_object_trees=[
            ObjectTree(object_id=m.metadata.message_id) for m in messages
        ],
    )
