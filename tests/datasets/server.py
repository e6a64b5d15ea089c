"""A web server on the loopback interface that can also misbehave."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Reply:
    """What to send: `body`, but announced as `announced` bytes, after a `delay`."""

    body: bytes
    announced: int | None = None
    status: int = 200
    delay: float = 0.0


@dataclass
class Site:
    """An address, its replies in order (the last one stays), and its requests."""

    url: str
    replies: list[Reply]
    requests: list[str] = field(default_factory=list)


@contextmanager
def serve(*replies: Reply) -> Iterator[Site]:
    site = Site("", list(replies))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reply = site.replies[min(len(site.requests), len(site.replies) - 1)]
            site.requests.append(self.path)
            time.sleep(reply.delay)
            self.send_response(reply.status)
            size = len(reply.body) if reply.announced is None else reply.announced
            self.send_header("Content-Length", str(size))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        site.url = f"http://127.0.0.1:{server.server_port}/file.csv"
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
