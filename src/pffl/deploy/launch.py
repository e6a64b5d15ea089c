"""A deployed run from the coordinator's side: start it, follow its record, stop it.

`flwr run` starts the ServerApp on the SuperLink's machine, which is this one; what it
writes into the run directory is read here as it comes. `check` looks at all that can
be wrong before: ports, certificate, versions, keys, who is there.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pffl.deploy.bundle import OLDEST_FLOWER, Address
from pffl.deploy.federation import FILE as FEDERATION
from pffl.deploy.federation import Agreement
from pffl.errors import FederationError, PFFLError, UsageError
from pffl.runs import RECORD

PATIENCE = 120.0  # seconds that a command of Flower's may take
PAUSE = 0.5  # seconds between two looks at the record
ASK_AFTER = 30.0  # seconds of silence, after which Flower is asked about the run
CLOCK = 5.0  # seconds that Flower lets a clock be ahead
ENDED, ROUND, ASKING = "ended", "round", "asking"


@dataclass(frozen=True)
class Launch:
    """How a deployed run is started.

    Attributes
    ----------
    folder
        What `pffl deploy` wrote.
    out
        The run directory.
    resume, check
        Go on with a run that was stopped; only see who is there.
    """

    folder: Path
    out: Path
    resume: bool = False
    check: bool = False

    @property
    def agreed(self) -> Agreement:
        """What the sites are to join."""
        if not (self.folder / FEDERATION).is_file():
            raise UsageError(
                f"[not-deployed] '{self.folder}' has no {FEDERATION}: pffl deploy SPEC "
                "--sites LINES -o DIR writes one"
            )
        return Agreement.read(self.folder / FEDERATION)

    def call(self, *arguments: str) -> dict[str, Any]:
        """Run a command of Flower's; return the JSON that it prints."""
        environment = {
            **os.environ,
            "FLWR_HOME": str(self.folder / "server" / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
        }
        program = Path(sys.executable).with_name("flwr")
        try:
            done = subprocess.run(
                [str(program), *arguments, "--format", "json"],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FederationError(
                f"[flwr-failed] flwr {arguments[0]} failed: {error}"
            ) from error
        try:
            plain = json.loads(done.stdout)
        except ValueError:
            plain = None
        if isinstance(plain, dict) and plain.get("success", True):
            return plain
        said = (plain or {}).get("error-message") or done.stderr or done.stdout
        raise FederationError(
            f"[flwr-failed] flwr {arguments[0]} failed: "
            f"{' '.join(str(said).split())[-500:]}"
        )

    def register(self) -> None:
        """Let the sites' nodes in; those that are known already stay."""
        for path in sorted((self.folder / "server" / "keys").glob("*.pub")):
            try:
                self.call("supernode", "register", str(path), "pffl")
            except FederationError as error:
                if "already" not in str(error) and "in use" not in str(error):
                    raise

    def start(self) -> int:
        """Submit the run, and return its id."""
        config = {
            "folder": str(self.folder.absolute()),
            "out": str(self.out.absolute()),
            "resume": self.resume,
            "check": self.check,
        }
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        said = self.call("run", str(self.folder / "app"), "pffl", "-c", pairs)
        if "run-id" not in said:
            raise FederationError("[flwr-failed] flwr run gave no run id")
        return int(said["run-id"])

    def status(self, run: int) -> str:
        """Return what Flower knows of the run."""
        try:
            return str(
                self.call("list", "pffl", "--run-id", str(run))["runs"][0]["status"]
            )
        except (KeyError, TypeError, IndexError):
            return "unknown"

    def stop(self, run: int) -> None:
        """Stop the run."""
        self.call("stop", str(run), "pffl")

    def watch(self, run: int, show: Callable[[str], object]) -> dict[str, Any]:
        """Show what the record of a run says, until its last entry; return that."""
        heard, finished = time.monotonic(), False
        for entry in follow(self.out / RECORD, run_begun=not self.resume):
            if entry is not None:
                heard = time.monotonic()
                if entry.get("event") == ENDED:
                    return entry
                if text := told(entry):
                    show(text)
                continue
            if finished:
                raise FederationError(
                    f"[server-gone] the ServerApp of run {run} ended without a word; "
                    f"what it said: flwr log {run}"
                )
            if time.monotonic() - heard > ASK_AFTER:
                heard = time.monotonic()
                finished = self.status(run).startswith("finished")
            time.sleep(PAUSE)
        raise AssertionError("a record is followed for ever")


def told(entry: Mapping[str, Any]) -> str:
    """Say what an entry of a record tells an operator; empty if it is nothing new."""
    texts = []
    if entry.get("event") == ROUND:
        from pffl.deploy.flower_app import line

        texts.append(line(entry))
    if entry.get("event") == ASKING:
        texts.append(f"asking: {entry['what']}")
    texts += [f"{who}: {why}" for who, why in entry.get("refused", ())]
    return "; ".join(dict.fromkeys(texts))


def follow(path: Path, *, run_begun: bool) -> Iterator[dict[str, Any] | None]:
    """Yield the entries that a record gets from now on; None when there is no more.

    A run that begins writes a file of its own; one that goes on adds to what is there.
    """
    place = 0 if run_begun or not path.exists() else path.stat().st_size
    if run_begun:
        path.unlink(missing_ok=True)
    while True:
        content = path.read_bytes()[place:] if path.exists() else b""
        whole, _, _ = content.rpartition(b"\n")
        place += len(whole) + 1 if whole else 0
        for one in whole.splitlines():
            yield json.loads(one)
        yield None


# What can be wrong before a run


def check(folder: Path) -> Iterator[tuple[bool, str]]:
    """Look at ports, certificate, versions, keys and sites; yield what was found."""
    launch = Launch(folder, folder)
    agreed = launch.agreed
    address = Address.parse(agreed.address)
    from importlib.metadata import version

    yield (
        True,
        f"pffl {version('pffl')}, flwr {version('flwr')} (at least {OLDEST_FLOWER})",
    )
    inner = _open(f"127.0.0.1:{address.inner}")
    yield (
        not inner,
        f"SuperLink on 127.0.0.1:{address.inner}: {inner or 'it listens'}",
    )
    yield from server_seen(agreed)
    if inner:
        return
    try:
        launch.register()
        yield True, f"keys of {len(agreed.keys)} nodes are registered"
        nodes = launch.call("supernode", "list", "pffl").get("nodes", [])
        there = [n for n in nodes if str(n.get("status", "")).lower() == "online"]
        yield (
            len(there) >= len(agreed.sites),
            f"{len(there)} of {len(agreed.sites)} nodes are online"
            + (
                ""
                if len(there) >= len(agreed.sites)
                else ": at the others, look at the clock (pffl site show), the "
                "certificate, and the log of Flower's node"
            ),
        )
        if there:
            yield _greeted(folder)
    except PFFLError as error:
        yield False, str(error)


def _greeted(folder: Path) -> tuple[bool, str]:
    """Ask the sites that are there whether they would take part."""
    with TemporaryDirectory() as place:
        launch = Launch(folder, Path(place), check=True)
        ended = launch.watch(launch.start(), lambda text: None)
    return ended["code"] == 0, str(ended["message"])


def server_seen(agreed: Agreement) -> Iterator[tuple[bool, str]]:
    """Look at the server from where this runs: port, certificate, door, clock."""
    problem = _open(agreed.address)
    if problem:
        yield False, f"server at {agreed.address}: {problem}"
        return
    address = Address.parse(agreed.address)
    context = ssl.create_default_context(cadata=agreed.certificate or None)
    connection = http.client.HTTPSConnection(
        address.host, address.port, timeout=10.0, context=context
    )
    try:
        with closing(connection):
            connection.request("GET", "/v1/control/")
            answer = connection.getresponse()
            date, status = answer.getheader("Date"), answer.status
    except ssl.SSLError as error:
        yield (
            False,
            f"server at {agreed.address}: its certificate is not that of "
            f"federation.json, or a clock is wrong ({error.reason})",
        )
        return
    except (OSError, http.client.HTTPException) as error:
        yield False, f"server at {agreed.address}: {type(error).__name__}"
        return
    yield (
        True,
        f"server at {agreed.address}: TLS with the certificate of federation.json",
    )
    yield (
        status == 403,
        "commands from outside are refused (403)"
        if status == 403
        else f"commands from outside are NOT refused ({status}): put the proxy of "
        "server/nginx.conf before the SuperLink",
    )
    if date:
        ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()
        good = abs(ahead) <= CLOCK
        yield (
            good,
            f"this machine's clock and the server's differ by {abs(ahead):.0f} s"
            + (
                "" if good else f": Flower lets in {CLOCK:.0f} s at most, set the clock"
            ),
        )


def _open(address: str) -> str:
    """Return why nobody listens at an address; empty if somebody does."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10.0):
            return ""
    except OSError as error:
        return f"nobody listens ({type(error).__name__}): start it, or open the port"
