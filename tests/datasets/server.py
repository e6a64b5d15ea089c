"""A web server on the loopback interface that can also misbehave."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Web:
    """Files by their paths, and how the server misbehaves.

    `cut`: after how many bytes to break off, request by request.
    """

    files: dict[str, bytes]
    cut: list[int] = field(default_factory=list)
    tag: str = '"first"'
    ranges: bool = True
    length: bool = True
    delay: float = 0.0
    address: str = ""
    requests: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def serve(files: dict[str, bytes], **flaws: object) -> Iterator[Web]:
    web = Web(files, **flaws)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            web.requests.append((self.path, wanted))
            time.sleep(web.delay)
            body = web.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            start = 0
            if wanted and web.ranges and self.headers.get("If-Range") == web.tag:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start > len(body):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                whole = f"bytes {start}-{len(body) - 1}/{len(body)}"
                self.send_header("Content-Range", whole)
            if web.length:
                self.send_header("Content-Length", str(len(body) - start))
            if web.tag:
                self.send_header("ETag", web.tag)
            self.end_headers()
            end = start + web.cut.pop(0) if web.cut else len(body)
            self.wfile.write(body[start:end])

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        web.address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield web
        finally:
            server.shutdown()
            thread.join()
