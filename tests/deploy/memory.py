"""A Flower Grid in this process: real messages, and real ClientApps that answer them.

Messages are written to bytes and read again on both ways, as over a network.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

# What the process of a ServerApp is told when it starts.
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class MemoryGrid(Grid):
    """Nodes are ClientApps with their own configuration, called when asked for."""

    def __init__(self, nodes: Mapping[int, tuple[ClientApp, dict[str, str]]]) -> None:
        self.nodes = dict(nodes)
        self.replies: dict[str, Message] = {}
        self.kinds: list[str] = []
        self._count = itertools.count(1)

    def set_run(self, run) -> None:
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            number = f"message-{next(self._count)}"
            message.metadata.__dict__["_message_id"] = number
            ids.append(number)
            self.kinds.append(message.metadata.message_type)
            self.replies[number] = self.deliver(travelled(message))
        return ids

    def deliver(self, message: Message) -> Message:
        """Let the node answer."""
        node = message.metadata.dst_node_id
        if node not in self.nodes:
            return self.failed(message, 5, "Node Unavailable")
        app, config = self.nodes[node]
        context = Context(1, node, dict(config), RecordDict(), {})
        try:
            reply = app(message, context)
        except Exception as error:
            return self.failed(message, 2, f"{type(error)}:<'{error}'>")
        return travelled(reply)

    @staticmethod
    def failed(message: Message, code: int, reason: str) -> Message:
        """Answer for a node as the SuperLink does: as node 1."""
        reply = Message(Error(code, reason), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1
        return reply

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(i) for i in message_ids if i in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        return list(self.pull_messages(list(self.push_messages(list(messages)))))


def travelled(message: Message) -> Message:
    """A message that was bytes in between."""
    return message_from_proto(message_to_proto(message))
