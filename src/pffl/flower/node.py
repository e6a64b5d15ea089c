"""A site's node: Flower's SuperNode, without its waits, its open door and foreign code.

`start.sh` runs this module in the place of ``flower-supernode``; it takes the same
arguments. Beside it runs `executor`, which alone holds the secret that the node asks
for: another account of the machine gets no task (fault 94). Neither runs what the
server sends (fault 95).

With ``--app module:name`` what answers is a ClientApp of one's own, installed here or
in the current folder: an app with a torch model answers in the time of its own work,
because torch is imported once. Of a site's rules its code keeps those that it keeps.

Both use private modules of Flower, so they are for the versions that they were tried
with; any other is refused.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pffl import files
from pffl.errors import PFFLError, UsageError
from pffl.flower.pauses import KNOWN, known

ALLOW_ROOT = "PFFL_ALLOW_ROOT"
LOOPBACK = "127.0.0.1"
SHORTEST, LONGEST = 0.1, 1.0  # seconds between two looks for a message
SHARE = 4  # a pause is that part of the silence so far, so that an idle node is no load
REPLY = 0.01  # seconds between two looks for a reply that is being made here
HELD = 1.0  # seconds of a look that the server has held: the next may begin at once


class Pauses:
    """Flower's `time` in its node: short while a run asks, and no busier than needed.

    Parameters
    ----------
    executor, bell
        The process that answers, and the pipe that wakes it.
    """

    def __init__(self, executor: int, bell: int) -> None:
        self.executor, self.bell = executor, bell
        self.heard = self.looked = time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for a message (Flower: 3 seconds) or for a reply (0.5)."""
        now = time.monotonic()
        if seconds < 1:
            time.sleep(REPLY)
        elif now - self.looked < HELD:
            time.sleep(min(LONGEST, max(SHORTEST, (now - self.heard) / SHARE)))

    def lost(self, *_: object) -> None:
        """End the node if the process that answers has ended, also during a look."""
        if os.waitpid(self.executor, os.WNOHANG)[0]:
            _say("the process that answers has ended, and so does the node")
            signal.raise_signal(signal.SIGTERM)

    def look(self) -> None:
        """Note that the server is asked for a message."""
        self.looked = time.monotonic()

    def ring(self) -> None:
        """Tell the executor that there is a message."""
        self.heard = time.monotonic()
        os.write(self.bell, b".")


def main() -> None:
    """Run the node, or say why not."""
    try:
        run(sys.argv[1:])
    except PFFLError as error:
        _say(str(error))
        raise SystemExit(error.exit_code) from None


def run(arguments: Sequence[str]) -> None:
    """Run a node in the site's folder, which is the current one.

    Parameters
    ----------
    arguments
        Those of ``flower-supernode``, and ``--app``.
    """
    check_user()
    os.environ.setdefault("FLWR_HOME", str(Path("flwr").resolve()))
    here = [*arguments, "--host", LOOPBACK]
    if not known():
        raise UsageError(
            f"[other-version] flwr {version('flwr')} is not one that this node knows: "
            f"install {' or '.join(f'{start}x' for start in KNOWN)}"
        )
    quick(here)


def check_user() -> None:
    """Refuse root, who may do everything on this machine."""
    if os.geteuid() != 0:
        return
    if os.environ.get(ALLOW_ROOT) != "1":
        raise UsageError(
            "[runs-as-root] a site's node is not run as root: whoever finds a way "
            "into it would have the whole machine. Use an account of its own "
            "(README.md, step 1); if this is a container that holds nothing else: "
            f"{ALLOW_ROOT}=1"
        )
    _say(f"running as root ({ALLOW_ROOT}=1): the whole machine trusts this process")


def quick(arguments: Sequence[str]) -> None:
    """Run Flower's SuperNode with an executor of ours."""
    from pffl.flower import forks

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--app")
    found, rest = parser.parse_known_args(arguments)
    port = found.port
    secret = secrets.token_bytes(32)
    files.write(Path(forks.SECRET), secret, private=True)

    def serve(bell: forks.Bell) -> None:
        from pffl.flower import executor

        executor.serve(f"{LOOPBACK}:{port}", secret, bell, found.app)

    pauses = Pauses(*forks.start(serve))
    signal.signal(signal.SIGCHLD, pauses.lost)

    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    from pffl.flower.whole import carry

    node: Any = start_client_internal
    carry(node, fleet_http_connection)
    pull = node._pull_and_store_message

    def pulled(**given: Any) -> int | None:
        pauses.look()
        run: int | None = pull(**given)
        if run is not None:
            pauses.ring()
        return run

    node._pull_and_store_message = pulled
    node.time = pauses
    sys.argv[1:] = [
        *rest,
        f"--port={port}",
        "--isolation=process",
        f"--superexec-auth-secret-file={forks.SECRET}",
    ]
    flower_supernode()


def _say(text: str) -> None:
    print(f"pffl: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
