"""Looks for messages that are answered when there is something to see.

Nodes and ServerApps ask the SuperLink for messages again and again, and a message waits
for the next time. One who says in a header how long it would wait is answered when
there is a message, or when that time is over: nobody waits for a message that is there,
and an idle federation is quiet.

A look that waits may be cut off just when it is answered, and Flower gives a message
out once. So the last one that was given to a node is kept until the node's next look,
which says whether it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Scope], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HOLD = "pffl-hold"  # header of a look: seconds
NUMBER = "pffl-number"  # of a message, in the answer to a look
SEEN = "pffl-seen"  # of the last that came, in the next look
NODE = b"flwr-public-key"  # Flower's header, which it has checked where it answers 200
LONGEST = 20.0  # seconds; Flower's clients give up after 30
LARGEST = 2**20  # bytes of a query for messages
COMMANDS = "/v1/control/"
WAKES = {  # a look, and what may have brought a message
    "/v1/fleet/pull-messages": "/v1/runtime/push-messages",
    "/v1/runtime/pull-messages": "/v1/fleet/push-messages",
}


class Held:
    """Hold looks for messages until there is one.

    Parameters
    ----------
    app
        The ASGI app that answers.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self.bells = {path: asyncio.Event() for path in WAKES.values()}
        self.given: dict[bytes, tuple[bytes, list[Scope]]] = {}  # last, by node
        self.count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on: once, or a second time when there may be an answer."""
        path = scope.get("path", "")
        seconds = _seconds(scope) if path in WAKES else 0.0
        if seconds > 0:
            await self._look(WAKES[path], seconds, scope, receive, send)
            return
        await self.app(scope, receive, send)
        if path in self.bells:
            self.ring(path)
        elif path.startswith(COMMANDS):  # a run may have been stopped
            self.release()

    def ring(self, path: str) -> None:
        """Answer those who wait for this."""
        bell, self.bells[path] = self.bells[path], asyncio.Event()
        bell.set()

    def release(self) -> None:
        """Answer everybody."""
        for path in self.bells:
            self.ring(path)

    async def _look(
        self, wanted: str, seconds: float, scope: Scope, receive: Receive, send: Send
    ) -> None:
        body = await _body(receive)
        if body is None:
            return
        bell = self.bells[wanted]  # before the look: nothing is missed in between
        answer = await self._answer(scope, body)
        if _empty(answer) and (lost := self._lost(scope)):
            answer = lost
        elif _empty(answer):
            gone = asyncio.ensure_future(_gone(receive))
            rung = asyncio.ensure_future(bell.wait())
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait({gone, rung}, timeout=seconds, return_when=first)
            left = gone.done()
            for waiting in (gone, rung):
                waiting.cancel()
            if left:  # a message for somebody who is gone would be lost
                return
            answer = await self._answer(scope, body)
        for part in answer if _empty(answer) else self._kept(scope, answer):
            await send(part)

    def _lost(self, scope: Scope) -> list[Scope]:
        """Return what was given to a node and did not come there."""
        node = _header(scope, NODE)
        number, answer = self.given.get(node, (b"", []))
        if number == _header(scope, SEEN.encode()):
            self.given.pop(node, None)
            return []
        return answer

    def _kept(self, scope: Scope, answer: list[Scope]) -> list[Scope]:
        """Return an answer with its number; if it is for a node, it is kept."""
        node, ok = _header(scope, NODE), answer[0].get("status") == 200
        if not node or not ok:
            return answer
        if answer is not self.given.get(node, (b"", []))[1]:
            self.count += 1
            number = b"%d" % self.count
            first = dict(answer[0])
            first["headers"] = [*first.get("headers", ()), (NUMBER.encode(), number)]
            answer = [first, *answer[1:]]
            self.given[node] = number, answer
        return answer

    async def _answer(self, scope: Scope, body: bytes) -> list[Scope]:
        """Ask the app, and return what it sends."""
        parts: list[Scope] = []

        asked = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def whole() -> Scope:
            for part in asked:
                return part
            await asyncio.Event().wait()  # nobody leaves while an app answers
            raise AssertionError("rung by nobody")

        async def keep(part: Scope) -> None:
            parts.append(part)

        own = {**scope, "state": dict(scope.get("state") or {})}
        await self.app(own, whole, keep)
        return parts


def _header(scope: Scope, wanted: bytes) -> bytes:
    """Return a header of a request; empty if there is none."""
    return next((v for name, v in scope.get("headers", ()) if name == wanted), b"")


def _seconds(scope: Scope) -> float:
    """Return how long somebody would wait for a message."""
    try:
        return min(float(_header(scope, HOLD.encode()) or 0), LONGEST)
    except ValueError:
        return 0.0


def _empty(parts: list[Scope]) -> bool:
    """Whether an answer says that there is nothing."""
    return parts[0].get("status") == 200 and not any(p.get("body") for p in parts)


async def _body(receive: Receive) -> bytes | None:
    """Read a request; None if there is none, or far too much."""
    body = b""
    while len(body) <= LARGEST:
        part = await receive()
        if part["type"] != "http.request":
            return None
        body += part.get("body", b"")
        if not part.get("more_body"):
            return body
    return None


async def _gone(receive: Receive) -> None:
    """Wait until whoever asked has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
