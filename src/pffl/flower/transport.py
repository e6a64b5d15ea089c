"""A transport over Flower's Grid: push, then pull with a short pause between.

One of our messages lies in one of Flower's as bytes under one key, both ways. Flower's
type of it is `train` or `evaluate` where all its questions are of that kind, and
`query.…` otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import httpx
from flwr.app import ConfigRecord, Message, RecordDict

from pffl.engines.remote import Reply
from pffl.errors import FederationError

if TYPE_CHECKING:  # a site needs none of it
    from flwr.serverapp import Grid

PAUSE = 0.2  # seconds between two looks for replies
GRACE = 3600.0  # seconds by which a site's clock may be wrong
LONGEST = 300  # characters of Flower's own error that are kept
RECORD, KEY = "pffl", "parcel"
OWN_TYPES = ("train", "evaluate")  # those that Flower has a type for


class GridTransport:
    """Reach the nodes of a Flower federation; an address is a node id as text.

    Replies are matched by the message that they answer: the sender of an error is the
    SuperLink, not the node that is gone. Deadlines run on the monotonic clock; Flower's
    own expiry of messages compares clocks of two machines, so it is set an hour later.

    Parameters
    ----------
    grid
        What Flower gives to a ServerApp.
    pause
        Seconds between two looks for replies.
    """

    def __init__(self, grid: Grid, *, pause: float = PAUSE) -> None:
        self._grid = grid
        self._pause = pause

    def addresses(self) -> Collection[str]:
        """Return the nodes that are there now."""
        try:
            return [str(node) for node in self._grid.get_node_ids()]
        except httpx.HTTPError as error:
            raise _unreachable(error) from error

    def exchange(
        self, requests: Mapping[str, bytes], seconds: float, kind: str
    ) -> Iterator[Reply]:
        """Send all at once, and yield replies as they come, until the deadline."""
        deadline = time.monotonic() + seconds
        messages = messages_of(requests, seconds, kind)
        try:
            pushed = set(self._grid.push_messages(list(messages.values())))
            waiting: dict[str, str] = {}
            for address, message in messages.items():
                if message.metadata.message_id in pushed:
                    waiting[message.metadata.message_id] = address
                else:
                    yield Reply(address, None, "Flower did not take the message")
            while waiting:
                for message in self._grid.pull_messages(list(waiting)):
                    found = waiting.pop(message.metadata.reply_to_message_id, None)
                    if found is not None:
                        yield reply_of(found, message)
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                if waiting:
                    time.sleep(min(self._pause, left))
        except httpx.HTTPError as error:
            raise _unreachable(error) from error


def messages_of(
    requests: Mapping[str, bytes], seconds: float, kind: str
) -> dict[str, Message]:
    """Return one Flower message for each address."""
    type_, ttl = type_of(kind), seconds + GRACE
    return {
        address: Message(wrap(content), int(address), type_, ttl=ttl)
        for address, content in requests.items()
    }


def reply_of(address: str, message: Message) -> Reply:
    """Read a Flower message that answers one of ours."""
    if message.has_error():
        reason = " ".join((message.error.reason or "").split())[:LONGEST]
        return Reply(address, None, f"Flower error {message.error.code}: {reason}")
    content = unwrap(message)
    return Reply(address, content, "" if content is not None else "not our message")


def _unreachable(error: httpx.HTTPError) -> FederationError:
    return FederationError(f"the SuperLink does not answer: {type(error).__name__}")


def type_of(kind: str) -> str:
    """Return Flower's type of a message with questions of this kind."""
    return kind if kind in OWN_TYPES else f"query.{kind}"


def wrap(content: bytes) -> RecordDict:
    """Return what a Flower message holds."""
    return RecordDict({RECORD: ConfigRecord({KEY: content})})


def unwrap(message: Message) -> bytes | None:
    """Return our bytes; None if there is anything else in the message."""
    if not message.has_content() or list(message.content) != [RECORD]:
        return None
    record = message.content[RECORD]
    if not isinstance(record, ConfigRecord) or list(record) != [KEY]:
        return None
    content = record[KEY]
    return content if isinstance(content, bytes) else None
