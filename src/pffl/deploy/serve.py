"""`pffl site serve`: a site answers on a Unix socket, and knows whose account asks.

Flower runs any app that its SuperLink sends, with the rights of the node's account. So
the rows belong to another account, which runs this, and the app that is sent can do
nothing but carry bytes to the socket. The system says which account is at the other
end; any but the node's is refused.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pffl import files
from pffl.deploy.join import LONGEST_SOCKET, SiteFolder, check_folder
from pffl.deploy.messages import read_answer, read_request, shown
from pffl.deploy.site import Site
from pffl.errors import PFFLError, Refused, UsageError
from pffl.processors import blas_threads, processors

SECONDS = 60.0  # that a message may take on its way through the socket
ONE_ACCOUNT = (
    "Flower's node runs under the account that holds the rows: an app that the server "
    "sends can read them"
)


class SiteServer:
    """Answers for a site on a socket.

    Parameters
    ----------
    folder
        The site's folder.
    path
        The socket.
    node_account
        Name of the account that may ask; None for the site's own, with a warning.
    say
        Told a line for every message, and for everybody who is refused.
    """

    def __init__(
        self,
        folder: SiteFolder,
        path: Path | None = None,
        node_account: str | None = None,
        say: Callable[[str], object] | None = None,
    ) -> None:
        check_folder(folder)
        self.site: Site = folder.open()
        self.path = path or folder.socket
        self.asker = _account(node_account)
        self._say = say or (lambda text: print(text, file=sys.stderr, flush=True))
        self._stopped = threading.Event()
        self._listening = self._bound()
        if self.one_account and not self.site.agreement.private:
            self._log(f"warning: {ONE_ACCOUNT} (--node-account)")

    @property
    def one_account(self) -> bool:
        """Whether whoever asks can read the rows anyway."""
        return self.asker in (0, os.geteuid())

    def run(self) -> None:
        """Answer one message after the other, until it is stopped."""
        self._log(f"site '{self.site.name}' answers on {self.path}")
        try:
            while not self._stopped.is_set():
                try:
                    connection, _ = self._listening.accept()
                except (TimeoutError, OSError):
                    continue
                with connection:
                    self._serve(connection)
        finally:
            self._listening.close()
            self.path.unlink(missing_ok=True)
            self.site.memory.close()

    def stop(self) -> None:
        """End, once the message that is being answered is."""
        self._stopped.set()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(SECONDS)
        form = "3i"
        peer = connection.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form)
        )
        _, user, _ = struct.unpack(form, peer)
        if user != self.asker:
            self._log(f"refused: account {user} asks, and only {self.asker} may")
            return
        try:
            with connection.makefile("rwb") as stream:
                length = int.from_bytes(stream.read(8), "big")
                if length > self.site.limits.largest_message:
                    error = Refused(f"[too-large] a message of {length:,} bytes")
                    answer = self.site.refuse(error)
                    self._log(f"refused: {error}")
                else:
                    answer = self.answer(stream.read(length))
                stream.write(len(answer).to_bytes(8, "big") + answer)
        except (OSError, ValueError) as error:
            self._log(f"a message was cut short: {type(error).__name__}")

    def answer(self, content: bytes) -> bytes:
        """Answer a message, and write a line about it."""
        if self.one_account and self.site.agreement.private:
            answer = self.site.refuse(
                Refused(
                    f"[one-account] {ONE_ACCOUNT}. Private mode needs two accounts "
                    "(pffl site serve --node-account)"
                )
            )
        else:
            with blas_threads(processors()):
                answer = self.site.answer(content)
        self._log(described(content, answer))
        return answer

    def _bound(self) -> socket.socket:
        """Listen on the socket, which others may reach and nobody may replace."""
        if len(os.fsencode(self.path)) > LONGEST_SOCKET:
            raise UsageError(
                f"[long-path] '{self.path}' is too long for a socket "
                f"({LONGEST_SOCKET} bytes): --socket PATH"
            )
        files.folder(self.path.parent)
        self.path.parent.chmod(0o711)
        listening = socket.socket(socket.AF_UNIX)
        try:
            with socket.socket(socket.AF_UNIX) as other:
                other.connect(str(self.path))
            raise UsageError(f"[port-taken] '{self.path}': another process answers")
        except OSError:
            self.path.unlink(missing_ok=True)
        listening.bind(str(self.path))
        self.path.chmod(0o666)
        listening.listen(16)
        listening.settimeout(0.5)
        return listening

    def _log(self, text: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._say(f"{now} {text}")


def described(content: bytes, answer: bytes) -> str:
    """Say in a line what was asked, and whether it was answered."""
    try:
        request = read_request(content)
        what = f"run {shown(request.run, 20)} step {request.step}: "
        what += ", ".join(dict.fromkeys(request.kinds))
    except PFFLError:
        what = f"{len(content):,} bytes that are no query"
    refusal = read_answer(answer).refusal
    if refusal:
        return f"{what}: REFUSED: {refusal}"
    return f"{what}: answered, {len(answer):,} bytes"


def _account(name: str | None) -> int:
    if name is None:
        return os.geteuid()
    try:
        return pwd.getpwnam(name).pw_uid if not name.isdecimal() else int(name)
    except KeyError as error:
        raise UsageError(
            f"[unknown-account] no account '{name}' on this machine"
        ) from error
