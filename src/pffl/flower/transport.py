"""A transport over Flower's Grid: push, then pull until all have answered."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

from pffl.engines.remote import Reply
from pffl.errors import FederationError
from pffl.flower.message import type_of, unwrap, wrap
from pffl.flower.pauses import known, shorten
from pffl.flower.whole import WholeGrid

PAUSE, LONGEST_PAUSE = 0.1, 1.0  # seconds between two looks for replies
HELD = 1.0  # seconds of a look that the server has held: the next may begin at once
SHARE = 10  # a pause is at least that part of the time waited so far
GRACE = 3600.0  # seconds by which a site's clock may be wrong
LONGEST = 300  # characters of Flower's own error that are kept


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
        Seconds between two looks for replies, at first.
    """

    def __init__(self, grid: Grid | WholeGrid, *, pause: float = PAUSE) -> None:
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
        begun = time.monotonic()
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
                looked = time.monotonic()
                if isinstance(self._grid, WholeGrid):
                    self._grid.hold(max(begun + seconds - looked, 0.0))
                replies = list(self._grid.pull_messages(list(waiting)))
                for message in replies:
                    found = waiting.pop(message.metadata.reply_to_message_id, None)
                    if found is not None:
                        yield reply_of(found, message)
                now = time.monotonic()
                left = begun + seconds - now
                if left <= 0:
                    return
                if not replies and now - looked < HELD:  # nobody waited for one there
                    pause = max(self._pause, min((now - begun) / SHARE, LONGEST_PAUSE))
                    time.sleep(min(pause, left))
        except httpx.HTTPError as error:
            raise _unreachable(error) from error


class Prompt:
    """A Grid that looks for replies again and again; Flower's own waits 3 seconds.

    Parameters
    ----------
    grid
        What Flower gives to a ServerApp.
    pause
        Seconds between two looks for replies, at first.
    """

    def __init__(self, grid: Grid, *, pause: float = PAUSE) -> None:
        self._grid = grid
        self._pause = pause

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)  # all else is Flower's

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Push messages, and pull replies until all are there, or time is over."""
        begun, found = time.monotonic(), list[Message]()
        waiting = set(self._grid.push_messages(messages))
        while waiting:
            replies = list(self._grid.pull_messages(list(waiting)))
            waiting -= {reply.metadata.reply_to_message_id for reply in replies}
            found += replies
            waited = time.monotonic() - begun
            if timeout is not None and waited >= timeout:
                break
            if waiting:
                time.sleep(max(self._pause, min(waited / SHARE, LONGEST_PAUSE)))
        return found


def prompt(grid: Grid) -> Grid:
    """Return a Grid that is prompt, where it is one of Flower's that is not."""
    if not known():
        return grid
    from flwr.superlink.grid.http_grid import HttpGrid

    if not isinstance(grid, HttpGrid):
        return grid
    shorten(HttpGrid.__module__)
    return cast(Grid, Prompt(grid))


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
    return FederationError(
        f"[no-answer] the SuperLink does not answer: {type(error).__name__}"
    )
