"""Flower's own commands for a deployed run: start, look after, stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pffl.errors import FederationError

PATIENCE = 120.0  # seconds that a command of Flower's may take


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
        Go on with a run that was stopped; also write certificate and report.
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
            raise FederationError(f"flwr {arguments[0]} failed: {error}") from error
        if done.returncode != 0:
            said = " ".join((done.stderr or done.stdout).split())[-500:]
            raise FederationError(f"flwr {arguments[0]} failed: {said}")
        return done.stdout

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
        raise FederationError(f"flwr run failed: {' '.join(str(why).split())}")

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

    def _link(self) -> Sequence[str]:
        return [] if self.superlink is None else [self.superlink]
