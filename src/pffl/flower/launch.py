"""A deployed run from outside: start it, follow its record, stop it.

Flower's `flwr run` starts the ServerApp on the SuperLink's machine, which is this one;
what it writes into the run directory is read here as it comes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pffl.config import RunSpec, load
from pffl.errors import FederationError, UsageError
from pffl.runs.directory import SPEC
from pffl.runs.overview import ENDED
from pffl.site.agreement import FILE as FEDERATION
from pffl.site.agreement import Agreement

PATIENCE = 120.0  # seconds that a command of Flower's may take
PAUSE = 0.5  # seconds between two looks at the record
ASK_AFTER = 60.0  # seconds of silence, after which Flower is asked about the run


@dataclass(frozen=True)
class Launch:
    """How a deployed run is started.

    Attributes
    ----------
    app
        The Flower app that `pffl deploy` wrote.
    superlink
        Name of the connection in Flower's configuration; None for its default.
    out
        The run directory.
    resume, extras
        Go on with a run that was stopped; also write a page to open.
    """

    app: Path
    superlink: str | None
    out: Path
    resume: bool
    extras: bool

    def command(self, *arguments: str) -> list[str]:
        """Return a command of Flower's, by the deployment's own script if there is one.

        That script knows the server's address and certificate.
        """
        script = self.app.parent / "server" / "flwr.sh"
        if script.is_file() and "FLWR_HOME" not in os.environ:
            return [str(script), *arguments]
        return [sys.executable, "-m", "flwr.cli.app", *arguments]

    def call(self, *arguments: str) -> str:
        """Run a command of Flower's, and return what it prints."""
        environment = {"PFFL_BIN": str(Path(sys.executable).parent), **os.environ}
        try:
            done = subprocess.run(
                self.command(*arguments),
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
        if done.returncode != 0:
            said = " ".join((done.stderr or done.stdout).split())[-500:]
            raise FederationError(f"[flwr-failed] flwr {arguments[0]} failed: {said}")
        return done.stdout

    def check(self, spec: RunSpec) -> None:
        """Refuse an app that was made from another run file."""
        if not (self.app / SPEC).is_file():
            raise UsageError(
                f"[not-an-app] '{self.app}' is no app of pffl: pffl deploy RUN_FILE "
                "-o DIR writes one, in DIR/app (--app)"
            )
        there = load(self.app / SPEC)
        schema = Agreement.read(self.app / FEDERATION).schema
        parts: dict[str, Callable[[RunSpec], object]] = {
            "model": lambda s: dict(s.model_for(schema).describe()),
            "constraint": lambda s: s.constraint and s.constraint.describe(),
            "method": lambda s: s.method.describe(),
            "run": lambda s: s.options,
            "policy": lambda s: s.policy,
            # Deployed ranges are also those that the data come with.
            "privacy": lambda s: replace(s.privacy, secure_sum=None, range=()),
        }
        other = [f"[{name}]" for name, of in parts.items() if of(spec) != of(there)]
        seeds = {s.settings.seed for s in (spec, there)} - {None}
        if len(seeds) > 1:  # deploy draws one where the run file has none
            other.append("the seed")
        if other:
            raise UsageError(
                f"[other-run] '{self.app}' was made from another run file: "
                f"{', '.join(other)} differ. Write it again: pffl deploy"
            )

    def start(self) -> int:
        """Submit the run, and return its id."""
        config = {
            "out": str(self.out),
            "resume": self.resume,
            "extras": self.extras,
        }
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        said = self.call(
            "run", str(self.app), *self._link(), "-c", pairs, "--format", "json"
        )
        try:
            plain = json.loads(said)
            why = plain.get("error-message", "it gave no run id")
            if "run-id" in plain:
                return int(plain["run-id"])
        except (ValueError, TypeError, AttributeError):
            why = said[-500:]
        raise FederationError(
            f"[flwr-failed] flwr run failed: {' '.join(str(why).split())}"
        )

    def status(self, run: int) -> str:
        """Return what Flower knows of the run."""
        said = self.call(
            "list", *self._link(), "--run-id", str(run), "--format", "json"
        )
        try:
            return str(json.loads(said)["runs"][0]["status"])
        except (ValueError, KeyError, TypeError, IndexError):
            return "unknown"

    def stop(self, run: int) -> None:
        """Stop the run."""
        self.call("stop", str(run), *self._link())

    def watch(
        self,
        run: int,
        entries: Iterator[dict[str, Any] | None],
        show: Callable[[dict[str, Any]], object],
    ) -> dict[str, Any]:
        """Show what the record of a run says, until its last entry; return that."""
        heard, finished = time.monotonic(), False
        for entry in entries:
            if entry is not None:
                heard = time.monotonic()
                if entry.get("event") == ENDED:
                    return entry
                show(entry)
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

    def _link(self) -> Sequence[str]:
        return [] if self.superlink is None else [self.superlink]
