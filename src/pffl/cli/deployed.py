"""`pffl run DIR` of what `pffl deploy` wrote: start it, watch it, end as it ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pffl.cli import console
from pffl.cli.interruption import how_to_go_on, interruptible
from pffl.errors import FederationError, UsageError

if TYPE_CHECKING:
    from pffl.config import RunSpec
    from pffl.deploy.launch import Launch


def run(
    spec: RunSpec,
    out: Path | None,
    resume: Path | None,
    *,
    verbose: bool,
    json: bool,
) -> tuple[Path, int]:
    """Do what `pffl run` does, with sites elsewhere; return where, and its code."""
    from pffl import runs
    from pffl.cli.run import told
    from pffl.deploy.launch import Launch
    from pffl.evidence.conclude import conclude

    given = spec.data.federation
    if given is None:
        raise UsageError(
            "[not-deployed] engine = 'flower': give the folder that 'pffl deploy' wrote"
        )
    if resume is not None and out is not None:
        raise UsageError(
            "[options-conflict] --resume goes on in the directory it names: leave out "
            "--out"
        )
    folder = given.parent
    place = (resume or out or _next_free(folder.resolve().name)).resolve()
    planned = Launch(folder, place, resume is not None)
    with interruptible():
        code = launch(planned)
    if code in (0, 4):
        record = runs.load(place)
        if json:
            console.print_json(record.result)
        told(conclude(record.evidence), place, aside=json, verbose=verbose)
    return place, code


def launch(planned: Launch) -> int:
    """Start a run, show its rounds, and return the exit code that it ended with."""
    from pffl.runs import lock

    planned.agreed  # noqa: B018 - a folder of another kind is refused here
    with lock(planned.out, unfinished=planned.resume):
        pass  # what the ServerApp would refuse is refused here
    planned.register()
    run = planned.start()
    console.note(f"Flower run {run}: stop it with Ctrl-C")
    try:
        ended = planned.watch(run, console.note)
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


def _say_how_to_go_on(planned: Launch) -> None:
    """Name the command, if there is something to go on with."""
    from pffl.log import SPEC

    if (planned.out / SPEC).is_file():
        console.note(how_to_go_on(planned.out))


def _next_free(name: str) -> Path:
    """Return the first of runs/NAME-001, runs/NAME-002 and so on that is not there."""
    from pffl.runs import lock_next

    with lock_next("runs", name) as held:  # empty, so it goes away again
        return held.directory
