"""The SuperLink's doors: nodes from anywhere, commands from its own machine only."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

HERE, ELSEWHERE = "10.77.0.1", "10.77.0.2"
COMMANDS = (
    "/v1/control/register-node",
    "/v1/control/start-run",
    "/v1/runtime/acquire-task",
    "/docs",
    "/v1/fleet",
)


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global pauses, HomeOnly
    pytest.importorskip("flwr")
    from tests.inside import HomeOnly, pauses


def asked(path: str, client: Any, headers: Any = (), kind: str = "http") -> int | str:
    """Return the status of a request, as whoever sent it sees it."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": kind,
        "path": path,
        "client": client,
        "server": (HERE, 8443),
        "headers": headers,
    }
    asyncio.run(HomeOnly(app)(scope, None, send))  # type: ignore[arg-type]
    return sent[0].get("status", sent[0]["type"])


@pytest.mark.parametrize("path", COMMANDS)
def test_commands_are_taken_from_the_servers_own_machine_only(path: str) -> None:
    assert asked(path, (HERE, 5)) == 200
    assert asked(path, ("127.0.0.1", 5)) == asked(path, ("::1", 5)) == 200
    assert asked(path, (ELSEWHERE, 5)) == 403
    assert asked(path, None) == asked(path, ("testclient", 5)) == 403
    assert asked(path, (ELSEWHERE, 5), kind="websocket") == "websocket.close"


def test_a_proxy_on_the_same_machine_does_not_open_the_door() -> None:
    for name in (b"X-Forwarded-For", b"forwarded"):
        assert asked(COMMANDS[0], ("127.0.0.1", 5), [(name, b"127.0.0.1")]) == 403


def test_nodes_come_from_anywhere() -> None:
    assert asked("/v1/fleet/pull-messages", (ELSEWHERE, 5)) == 200
    assert asked("/health", (ELSEWHERE, 5)) == 200


SERVER = """
import sys, uvicorn
from flwr.superlink.cli import flower_superlink
import flwr.superlink.cli as cli
from pffl.flower import superlink

async def app(scope, receive, send):
    pass

def flower():
    config = uvicorn.Config(app)
    config.load()
    print(type(config.loaded_app).__name__)

cli.flower_superlink = flower
superlink.main()
"""


def test_whatever_flower_serves_is_behind_the_door() -> None:
    command = [sys.executable, "-c", SERVER]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "HomeOnly"
