"""A web server on the loopback interface that can also misbehave; what is cached."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.golden.people import sha256
from tests.inside import COMPAS_FILE, cache_folder


def is_cached():
    """Whether COMPAS itself is here; nothing is downloaded."""
    path = cache_folder() / COMPAS_FILE.name
    return path.is_file() and sha256(path.read_bytes()) == COMPAS_FILE.sha256


@dataclass
class Web:
    """Files by their paths, and how the server misbehaves.

    `cut`: after how many bytes to break off; `delay`: seconds before an answer;
    `pause`: seconds in the middle of it; `length`: whether it is announced.
    """

    files: dict[str, bytes]
    cut: int | None = None
    length: bool = True
    delay: float = 0.0
    pause: float = 0.0
    status: int = 200
    address: str = ""
    requests: list[str] = field(default_factory=list)


@contextmanager
def serve(files: dict[str, bytes], **flaws: object) -> Iterator[Web]:
    web = Web(files, **flaws)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            web.requests.append(self.path)
            time.sleep(web.delay)
            body = web.files.get(self.path)
            if body is None or web.status != 200:
                self.send_error(404 if body is None else web.status)
                return
            self.send_response(200)
            if web.length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2][: web.cut])
            time.sleep(web.pause)
            self.wfile.write(body[: web.cut][len(body) // 2 :])

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # a client that gave up
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        web.address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield web
        finally:
            server.shutdown()
            thread.join()
