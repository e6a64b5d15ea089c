"""Waiting for a server: one that comes late, never, or is not the one it should be."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pffl.errors import FederationError
from tests.inside import Address, wait
from tests.raising import raises

tls = pytest.importorskip("pffl.flower.tls", reason="cryptography is missing")


class Healthy(BaseHTTPRequestHandler):
    """Answers like a SuperLink, whoever asks."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HTTPServer]:
    """A server that has its port, and listens to nobody yet."""
    tls.write_server(tmp_path, Address("127.0.0.1", 8443))
    made = HTTPServer(("127.0.0.1", 0), Healthy)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    made.socket = context.wrap_socket(made.socket, server_side=True)
    yield made
    made.server_close()


def address(server: HTTPServer) -> Address:
    return Address("127.0.0.1", server.server_port)


def test_a_server_that_never_comes_is_named(tmp_path: Path) -> None:
    tls.write_server(tmp_path, Address("127.0.0.1", 8443))
    with raises(FederationError, "no-answer", "127.0.0.1:1"):
        wait(Address("127.0.0.1", 1), tmp_path / "ca.crt", seconds=0.0)


def test_another_server_is_refused_at_once(server: HTTPServer, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    tls.write_server(tmp_path / "other", Address("127.0.0.1", 8443))
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        with raises(FederationError, "untrusted-server"):
            wait(address(server), tmp_path / "other" / "ca.crt")
    finally:
        server.shutdown()
        thread.join()
    with raises(FederationError, "bad-certificate-authority"):
        wait(address(server), tmp_path / "none.crt")
