"""`pffl run` over machines: start a run, watch it, and end as it ends."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pffl.cli import console
from pffl.cli.interruption import how_to_go_on, interruptible
from pffl.errors import FederationError, UsageError

if TYPE_CHECKING:
    from pffl.config import RunSpec
    from pffl.flower.launch import Launch


def run(
    spec: RunSpec,
    app: Path,
    superlink: str | None,
    out: Path | None,
    resume: Path | None,
    *,
    quiet: bool,
    verbose: bool,
    json: bool,
    extras: bool,
) -> tuple[Path, int]:
    """Do what `pffl run` does, with silos elsewhere; return where, and its code."""
    from pffl import runs
    from pffl.cli.run import told
    from pffl.evidence.conclude import conclude
    from pffl.flower.launch import Launch

    if resume is not None and out is not None:
        raise UsageError(
            "[options-conflict] --resume goes on in the directory it names: leave out "
            "--out"
        )
    place = (resume or out or _next_free(spec.data.name)).resolve()
    planned = Launch(app.resolve(), superlink, place, resume is not None, extras)
    with interruptible():
        code = launch(spec, planned, quiet=quiet)
    if code in (0, 4):
        record = runs.load(place)
        if json:
            console.print_json(record.result)
        if not quiet:
            told(conclude(record.evidence), place, aside=json, verbose=verbose)
    return place, code


def launch(spec: RunSpec, planned: Launch, *, quiet: bool) -> int:
    """Start a run, show its rounds, and return the exit code that it ended with."""
    from pffl.runs import lock
    from pffl.runs.overview import follow

    planned.check(spec)
    with lock(planned.out, unfinished=planned.resume):
        pass  # what the ServerApp would refuse is refused here
    entries = follow(planned.out)
    run = planned.start()
    if not quiet:
        console.note(f"Flower run {run}: stop it with Ctrl-C")
    try:
        ended = planned.watch(
            run, entries, show=(lambda entry: None) if quiet else _show
        )
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
    code = int(ended["code"])
    if code not in (0, 4):
        console.error(str(ended["message"]))
        _say_how_to_go_on(planned)
    return code


def _show(entry: Mapping[str, Any]) -> None:
    """Show a round, what is measured beside the rounds, and what was refused."""
    from pffl.runs.overview import told

    text = told(entry)
    if text and entry.get("refused"):
        console.note(text)
    elif text:
        console.stderr().print(console.clean(text), soft_wrap=True)


def _say_how_to_go_on(planned: Launch) -> None:
    """Name the command, if there is something to go on with."""
    from pffl.log import SPEC

    if not (planned.out / SPEC).is_file():
        return
    link = [] if planned.superlink is None else ["--superlink", planned.superlink]
    more = shlex.join(["--app", str(planned.app), *link])
    console.note(f"{how_to_go_on(planned.out)} {more}")


def _next_free(name: str) -> Path:
    """Return the first of runs/NAME-001, runs/NAME-002 and so on that is not there."""
    from pffl.runs import lock_next

    with lock_next("runs", name) as held:  # empty, so it goes away again
        return held.directory
