"""Looks for messages: held until there is one, never answered to who is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pffl.flower.held import HOLD, NUMBER, SEEN, Held

NODES, APPS = "/v1/fleet/pull-messages", "/v1/runtime/pull-messages"
TO_NODES, TO_APPS = "/v1/runtime/push-messages", "/v1/fleet/push-messages"


class Link:
    """A SuperLink with one mailbox a path, which gives each message out once."""

    def __init__(self) -> None:
        self.mail: dict[str, list[bytes]] = {NODES: [], APPS: []}
        self.asked = 0
        self.status = 200

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        self.asked += 1
        mail = self.mail.get(scope["path"], [])
        body = mail.pop(0) if mail else b""
        start = {"type": "http.response.start", "status": self.status, "headers": []}
        await send(start)
        await send({"type": "http.response.body", "body": body})


class Look:
    """One request, which may be cut off."""

    def __init__(self, held: Held, path: str, **headers: str) -> None:
        self.sent: list[Any] = []
        self.left = asyncio.Event()
        self.asked = False
        pairs = [(k.encode(), v.encode()) for k, v in headers.items()]
        scope = {"type": "http", "path": path, "headers": pairs}
        self.task = asyncio.ensure_future(held(scope, self.receive, self.send))

    async def receive(self) -> Any:
        if not self.asked:
            self.asked = True
            return {"type": "http.request", "body": b"who"}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, part: Any) -> None:
        self.sent.append(part)

    @property
    def body(self) -> bytes:
        return b"".join(p.get("body", b"") for p in self.sent)

    @property
    def number(self) -> str:
        return dict(self.sent[0]["headers"]).get(NUMBER.encode(), b"").decode()


def look(held: Held, path: str = NODES, node: str = "key", **more: str) -> Look:
    own = {"flwr-public-key": node} if path == NODES else {}
    return Look(held, path, **{HOLD: "20"}, **own, **more)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("path", "push"), [(NODES, TO_NODES), (APPS, TO_APPS)])
def test_a_look_waits_for_a_message(path, push) -> None:
    async def story() -> None:
        link = Link()
        held = Held(link)
        waiting = look(held, path)
        await turns()
        assert not waiting.sent
        await Look(held, TO_APPS if push == TO_NODES else TO_NODES).task
        await turns()
        assert not waiting.sent, "woken by what is no message for it"
        link.mail[path].append(b"question")
        await Look(held, push).task
        await asyncio.wait_for(waiting.task, 5)
        assert waiting.body == b"question"

    asyncio.run(story())


def test_a_message_that_comes_during_a_look_is_not_missed() -> None:
    async def story() -> None:
        link = Link()
        held = Held(link)
        inner, there = held.app, []

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await inner(scope, receive, send)  # finds nothing …
            if not there:
                there.append(True)
                link.mail[NODES].append(b"question")
                held.ring(TO_NODES)  # … and here it comes

        held.app = slow
        waiting = look(held)
        await asyncio.wait_for(waiting.task, 5)
        assert waiting.body == b"question"

    asyncio.run(story())


def test_who_asks_for_no_hold_gets_none_and_nonsense_is_none() -> None:
    async def story() -> None:
        link = Link()
        held = Held(link)
        for headers in ({}, {HOLD: "x"}, {HOLD: "0"}, {HOLD: "-3"}, {HOLD: "nan"}):
            answer = Look(held, NODES, **headers)
            await asyncio.wait_for(answer.task, 5)
            assert answer.body == b""
            assert answer.sent
        short = Look(held, NODES, **{HOLD: "0.05"})
        await asyncio.wait_for(short.task, 5)
        assert short.sent

    asyncio.run(story())


def test_a_refusal_is_answered_at_once_and_nothing_is_kept() -> None:
    async def story() -> None:
        link = Link()
        link.status = 401
        held = Held(link)
        stranger = look(held)
        await asyncio.wait_for(stranger.task, 5)
        assert stranger.sent[0]["status"] == 401
        assert not held.given

    asyncio.run(story())


def test_a_message_is_not_given_to_who_is_gone() -> None:
    async def story() -> None:
        link = Link()
        held = Held(link)
        gone = look(held)
        await turns()
        gone.left.set()
        await asyncio.wait_for(gone.task, 5)
        link.mail[NODES].append(b"question")
        await Look(held, TO_NODES).task
        back = look(held)
        await asyncio.wait_for(back.task, 5)
        assert not gone.sent
        assert back.body == b"question"

    asyncio.run(story())


def test_a_message_that_was_cut_off_is_given_again_and_to_nobody_else() -> None:
    async def story() -> None:
        link = Link()
        held = Held(link)
        link.mail[NODES].append(b"question")
        cut = look(held)  # answered, and the network is down
        await cut.task
        other = look(held, node="another")
        await turns()
        assert not other.sent
        other.left.set()
        again = look(held)  # has seen nothing
        await asyncio.wait_for(again.task, 5)
        assert again.body == b"question"
        assert again.number == cut.number
        after = look(held, **{SEEN: again.number})
        await turns()
        assert not after.sent, "what has come is not given again"
        assert not held.given
        link.mail[NODES].append(b"next")
        await Look(held, TO_NODES).task
        await asyncio.wait_for(after.task, 5)
        assert after.body == b"next"
        assert after.number != again.number

    asyncio.run(story())


def test_all_are_answered_when_the_server_ends_or_a_run_is_stopped() -> None:
    async def story() -> None:
        held = Held(Link())
        for wake in (held.release, lambda: Look(held, "/v1/control/stop-run").task):
            waiting = [look(held), look(held, APPS)]
            await turns()
            done = wake()
            if done is not None:
                await done
            await asyncio.wait_for(asyncio.gather(*(w.task for w in waiting)), 5)
            assert all(w.sent for w in waiting)

    asyncio.run(story())
