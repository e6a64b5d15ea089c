"""A Flower Grid in this process: real messages, and real ClientApps that answer them.

Messages are written to bytes and read again on both ways, as over a network.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from pffl.data import Federation
from pffl.flower import client_app
from pffl.site import Rules, Site

EASY = Rules(floor=0, queries=10_000, layouts=100, batches=True)


class MemoryGrid(Grid):
    """Nodes are ClientApps with their own configuration, called when asked for."""

    def __init__(self, nodes: Mapping[int, tuple[ClientApp, dict[str, str]]]) -> None:
        self.nodes = dict(nodes)
        self.replies: dict[str, Message] = {}
        self.kinds: list[str] = []
        self._count = itertools.count(1)
        # What the process of a ServerApp is told when it starts.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

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


def lasting_grid(federation: Federation) -> MemoryGrid:
    """A grid whose sites live as long as this process, and write nothing."""
    sites = [Site(silo, federation.schema, EASY) for silo in federation.silos]
    apps = [
        client_app(lambda _, site=site: site, schema=federation.schema)
        for site in sites
    ]
    return MemoryGrid({node: (app, {}) for node, app in enumerate(apps, start=2)})


def grid_of(
    federation: Federation, folder: Path, rules: Rules = EASY, grid=MemoryGrid
) -> MemoryGrid:
    """A grid with one node for each silo; node ids are in no order."""
    ids = np.random.default_rng(0).permutation(10_000)[: len(federation.silos)] + 2
    nodes = {}
    for node, silo in zip(ids.tolist(), federation.silos, strict=True):
        app = client_app(
            lambda _, silo=silo: silo, schema=federation.schema, rules=rules
        )
        state = folder / f"state-{silo.index}"
        state.mkdir(parents=True, exist_ok=True)
        nodes[int(node)] = (app, {"silo": silo.name, "state": str(state)})
    return grid(nodes)


class Killed(BaseException):
    """What a test uses in place of SIGKILL: nothing catches it."""


class Dying(MemoryGrid):
    """A grid whose server dies when the n-th message after the census is sent."""

    count = 0

    def deliver(self, message):
        if len(self.kinds) - self.kinds.count("query.census") == self.count:
            raise Killed
        return super().deliver(message)
