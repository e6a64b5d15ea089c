"""Flower's SuperLink, with its doors for operators open to its own machine only.

Flower serves three things on one port: the nodes' API, which registered keys protect,
and two that nothing protects unless an account service is set up: the one for commands
(register a key, start any app on the server) and the one for app processes. Whoever
reaches the port could use them. `start.sh` runs this module in the place of
``flower-superlink``; it takes the same arguments.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pffl import files
from pffl.flower.held import COMMANDS, App, Held, Receive, Scope, Send
from pffl.flower.pauses import known, seldom

IDLE = 5.0  # seconds between two looks for runs that nobody told of
EXPIRY = 1.0  # seconds between two looks for tasks whose time is over
NODES = "/v1/fleet/"
HEALTH = "/health"
FORWARDED = (b"forwarded", b"x-forwarded-for")  # a proxy speaks for someone else


class Told:
    """Tell the process that runs ServerApps of every command.

    Parameters
    ----------
    app
        The ASGI app that takes commands.
    bell
        A pipe to that process.
    """

    def __init__(self, app: App, bell: int) -> None:
        self.app = app
        self.bell = bell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; if it was a command, there may be a run to start."""
        await self.app(scope, receive, send)
        if scope.get("path", "").startswith(COMMANDS):
            try:
                os.write(self.bell, b".")
            except BrokenPipeError:
                text = "pffl: the process that runs ServerApps has ended: start again"
                print(text, file=sys.stderr, flush=True)
                signal.raise_signal(signal.SIGTERM)


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
    if not known():
        raise SystemExit("pffl: this version of flwr is not known: install 1.41.x")
    quick = hasattr(os, "fork") and _settings(sys.argv[1:])
    bell = _executor(*quick) if quick else None

    import uvicorn
    from flwr.superlink.cli import flower_superlink

    load, shutdown = uvicorn.Config.load, uvicorn.Server.shutdown
    held: list[Held] = []

    def guarded(self: uvicorn.Config) -> None:
        load(self)
        app = self.loaded_app
        if quick:
            app = Held(app)
            held.append(app)
        self.loaded_app = HomeOnly(Told(app, bell) if bell is not None else app)

    async def ended(self: uvicorn.Server, sockets: Any = None) -> None:
        for looks in held:
            looks.release()
        await shutdown(self, sockets)

    # Every server of uvicorn's in this process loads its app here.
    uvicorn.Config.load = guarded  # type: ignore[method-assign]
    uvicorn.Server.shutdown = ended  # type: ignore[method-assign]
    from flwr.supercore.corestate.sql_corestate import SqlCoreState

    tasks: Any = SqlCoreState
    expire = tasks._cleanup_expired_task_tokens
    tasks._cleanup_expired_task_tokens = seldom(expire, EXPIRY)
    flower_superlink()


def _settings(arguments: Sequence[str]) -> tuple[str, str] | None:
    """Return address and authority, unless ServerApps are somebody else's business."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--host", required=False)
    parser.add_argument("--port", required=False)
    parser.add_argument("--ssl-ca-certfile", required=False)
    parser.add_argument("--isolation", required=False)
    found = parser.parse_known_args(arguments)[0]
    if found.isolation or not (found.host and found.port and found.ssl_ca_certfile):
        return None
    return f"{found.host}:{found.port}", found.ssl_ca_certfile


def _executor(address: str, authority: str) -> int:
    """Start the process that runs ServerApps; return the pipe of its bell."""
    from pffl.flower import forks

    secret = secrets.token_bytes(32)
    files.write(Path(forks.SECRET), secret, private=True)

    def serve(bell: forks.Bell) -> None:
        from pffl.flower import serverapps

        serverapps.serve(address, authority, secret, bell)

    _, bell = forks.start(serve, IDLE)
    secret_file = f"--superexec-auth-secret-file={forks.SECRET}"
    sys.argv[1:] = [*sys.argv[1:], "--isolation=process", secret_file]
    return bell


if __name__ == "__main__":
    main()
