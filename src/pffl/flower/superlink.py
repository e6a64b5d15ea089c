"""Flower's SuperLink, with its doors for operators open to its own machine only.

Flower serves three things on one port: the nodes' API, which registered keys protect,
and two that nothing protects unless an account service is set up: the one for commands
(register a key, start any app on the server) and the one for app processes. Whoever
reaches the port could use them. `start.sh` runs this module in the place of
``flower-superlink``; it takes the same arguments.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from pffl.flower.pauses import known, seldom

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Scope], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

EXPIRY = 1.0  # seconds between two looks for tasks whose time is over
NODES = "/v1/fleet/"
HEALTH = "/health"
FORWARDED = (b"forwarded", b"x-forwarded-for")  # a proxy speaks for someone else


class HomeOnly:
    """Pass on what nodes ask; anything else only if it comes from this machine.

    Parameters
    ----------
    app
        The ASGI app behind the door.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "lifespan" or _open(scope) or from_home(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            text = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 403, "headers": text})
            body = b"only from the server's own machine"
            await send({"type": "http.response.body", "body": body})
        else:
            await send({"type": "websocket.close", "code": 1008})


def from_home(scope: Scope) -> bool:
    """Whether a connection comes from this machine: from loopback, or to itself."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return False
    if any(name.lower() in FORWARDED for name, _ in scope.get("headers", ())):
        return False
    try:
        here = ipaddress.ip_address(client[0])
        return here.is_loopback or here == ipaddress.ip_address(server[0])
    except ValueError:
        return False


def _open(scope: Scope) -> bool:
    path = scope.get("path", "")
    return path == HEALTH or path.startswith(NODES)


def main() -> None:
    """Run Flower's SuperLink behind the door."""
    import uvicorn
    from flwr.superlink.cli import flower_superlink

    load = uvicorn.Config.load

    def guarded(self: uvicorn.Config) -> None:
        load(self)
        self.loaded_app = HomeOnly(self.loaded_app)

    # Every server of uvicorn's in this process loads its app here.
    uvicorn.Config.load = guarded  # type: ignore[method-assign]
    if known():
        from flwr.supercore.corestate.sql_corestate import SqlCoreState

        tasks: Any = SqlCoreState
        expire = tasks._cleanup_expired_task_tokens
        tasks._cleanup_expired_task_tokens = seldom(expire, EXPIRY)
    flower_superlink()


if __name__ == "__main__":
    main()
