"""`pffl run --engine flower`: start a deployed run, watch it, and end as it ends.

Flower's `flwr run` starts the ServerApp on the SuperLink's machine, which is this one;
what it writes into the run directory is shown here as it comes.
"""

from __future__ import annotations

import itertools
import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from pffl.cli import console
from pffl.cli.interruption import how_to_go_on, interruptible
from pffl.cli.launch import Launch
from pffl.errors import FederationError, UsageError

if TYPE_CHECKING:
    from pffl.spec import RunSpec

SPEC, FEDERATION, RECORD = "spec.toml", "federation.json", "record.jsonl"
CHECKPOINT = "checkpoint.toml"
CERTIFICATE, REPORT = "certificate.json", "report.html"
PAUSE = 0.5  # seconds between two looks at the record
ASK_AFTER = 60.0  # seconds of silence, after which Flower is asked about the run


def run(
    spec: RunSpec,
    app: Path,
    superlink: str | None,
    out: Path | None,
    resume: Path | None,
    *,
    quiet: bool,
    json: bool,
    extras: bool,
) -> NoReturn:
    """Do what `pffl run` does, with silos that are elsewhere."""
    if resume is not None and out is not None:
        raise UsageError("--resume goes on in the directory it names: leave out --out")
    place = (resume or out or _next_free(spec.data.name)).resolve()
    planned = Launch(app.resolve(), superlink, place, resume is not None, extras)
    with interruptible():
        code = launch(spec, planned, quiet=quiet)
    if code in (0, 4):
        _tell(place, as_json=json, quiet=quiet)
    raise typer.Exit(code)


def launch(spec: RunSpec, planned: Launch, *, quiet: bool) -> int:
    """Start a run, show its rounds, and return the exit code that it ended with."""
    from pffl.runs import lock, refuse_recorded

    _check(spec, planned.app)
    with lock(planned.out, unfinished=planned.resume):
        if not planned.resume:  # what the ServerApp would refuse is refused here
            refuse_recorded(planned.out)
    entries = follow(planned.out / RECORD)
    run = planned.start()
    if not quiet:
        console.note(f"Flower run {run}: stop it with Ctrl-C")
    try:
        ended = _watch(planned, run, entries, quiet=quiet)
    except KeyboardInterrupt:
        try:
            planned.stop(run)
        except FederationError as error:
            console.error(f"run {run} may still go on: {error}")
        _say_how_to_go_on(planned)
        raise
    except FederationError:
        _say_how_to_go_on(planned)
        raise
    if ended["code"] not in (0, 4):
        console.error(str(ended["message"]))
        _say_how_to_go_on(planned)
    return int(ended["code"])


def follow(path: Path) -> Iterator[dict[str, Any] | None]:
    """Return the entries that a record gets from now on; None when there is no more.

    What an earlier run left there is passed over. A new run begins a new file, which is
    known by its first line.
    """
    return _entries(path, *_seen(path, 0))


def _entries(
    path: Path, first: bytes, before: bytes
) -> Iterator[dict[str, Any] | None]:
    place = len(before)
    while True:
        now, found = _seen(path, place)
        if now != first:
            place = 0 if first else place
            first = now
            continue
        whole, _, _ = found.rpartition(b"\n")
        place += len(whole) + 1 if whole else 0
        for line in whole.splitlines():
            yield json.loads(line)
        yield None


def _seen(path: Path, place: int) -> tuple[bytes, bytes]:
    """Return a file's first line, and what it holds from a place on."""
    try:
        with path.open("rb") as stream:
            first = stream.readline()
            stream.seek(place)
            return (first if first.endswith(b"\n") else b""), stream.read()
    except FileNotFoundError:
        return b"", b""


def _say_how_to_go_on(planned: Launch) -> None:
    """Name the command, if there is something to go on with."""
    if not (planned.out / CHECKPOINT).is_file():
        return
    link = [] if planned.superlink is None else ["--superlink", planned.superlink]
    more = shlex.join(["--app", str(planned.app), *link])
    console.note(f"{how_to_go_on(planned.out)} {more}")


def _watch(
    planned: Launch,
    run: int,
    entries: Iterator[dict[str, Any] | None],
    *,
    quiet: bool,
) -> Mapping[str, Any]:
    """Show rounds until the run's last entry."""
    from pffl.flower.live import ENDED, ROUND, line

    heard, finished = time.monotonic(), False
    for entry in entries:
        if entry is None:
            if finished:
                raise FederationError(
                    f"the ServerApp of run {run} ended without a word; what it said: "
                    f"flwr log {run}"
                )
            if time.monotonic() - heard > ASK_AFTER:
                heard = time.monotonic()
                finished = planned.status(run).startswith("finished")
            time.sleep(PAUSE)
            continue
        heard = time.monotonic()
        if entry.get("event") == ENDED:
            return entry
        if entry.get("event") == ROUND and not quiet:
            console.stderr().print(console.clean(line(entry)), soft_wrap=True)
        if entry.get("refused") and not quiet:
            console.note("; ".join(f"{who}: {why}" for who, why in entry["refused"]))
    raise AssertionError("a record is followed for ever")


def _check(spec: RunSpec, app: Path) -> None:
    """Refuse an app that was made from another run file."""
    from pffl.site import Agreement
    from pffl.spec import load

    if not (app / SPEC).is_file():
        raise UsageError(
            f"'{app}' is no app of pffl: pffl deploy RUN_FILE -o DIR writes one, in "
            "DIR/app (--app)"
        )
    there, schema = load(app / SPEC), Agreement.read(app / FEDERATION).schema
    parts: dict[str, Callable[[RunSpec], object]] = {
        "model": lambda s: dict(s.model_for(schema).describe()),
        "constraint": lambda s: s.constraint and s.constraint.describe(),
        "method": lambda s: s.method.describe(),
        "run": lambda s: s.options,
        "policy": lambda s: s.policy,
    }
    other = [f"[{name}]" for name, part in parts.items() if part(spec) != part(there)]
    if there.settings.seed not in (None, spec.settings.seed):
        other.append("the seed")
    if other:
        raise UsageError(
            f"'{app}' was made from another run file: {', '.join(other)} differ. "
            "Write it again: pffl deploy"
        )


def _next_free(name: str) -> Path:
    """Return the first of runs/NAME-001, runs/NAME-002 and so on that is not there."""
    places = (Path("runs") / f"{name}-{number:03d}" for number in itertools.count(1))
    return next(place for place in places if not place.exists())


def _tell(directory: Path, *, as_json: bool, quiet: bool) -> None:
    """Show the verdict that the ServerApp left."""
    from pffl import runs
    from pffl.cli.run import told

    record = runs.load(directory)
    if as_json:
        console.print_json(record.result)
    if not quiet:
        told(record.evidence, directory, aside=as_json)
