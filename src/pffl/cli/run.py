"""`pffl run`: train one model under bounds, judge it, and leave a run directory."""

from __future__ import annotations

import math
import secrets
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console, deployed
from pffl.cli.draft import Draft
from pffl.cli.interruption import code_of, how_to_go_on, interruptible, resumable
from pffl.cli.loading import build
from pffl.cli.options import takes
from pffl.errors import UsageError

if TYPE_CHECKING:
    from pffl.checkpoint import Checkpoint
    from pffl.runs import RunDirectory
    from pffl.solution import Solution
    from pffl.spec import Job

GAPS_SHOWN = 20  # times the gap is measured in a run of known length


@takes("data", "constraint", "method", "model", "run")
def run(
    draft: Draft,
    out: Annotated[
        Path | None,
        typer.Option(help="Run directory. Default: the next free runs/NAME-001."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with the run that was stopped in this directory."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print result.json, and nothing else.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")
    ] = False,
    extras: Annotated[
        bool,
        typer.Option(
            "--extras/--no-extras", help="Also write a certificate and a report page."
        ),
    ] = True,
    app: Annotated[
        Path | None,
        typer.Option(help="App of 'pffl deploy' (engine flower). Default: app."),
    ] = None,
    superlink: Annotated[
        str | None,
        typer.Option(help="Flower's name of the SuperLink (engine flower)."),
    ] = None,
) -> None:
    """Train one model over all silos, with a bound on the loss of every group.

    Ends with exit code 0 if the bounds are met (or within the stated slack), 4 if not.
    A run that was stopped (Ctrl-C, SIGTERM, error, crash) goes on with --resume DIR.

    Example: pffl run compas --bound 0.62
    """
    from pffl.engines import DEPLOYED
    from pffl.verdict import EXIT_CODES

    spec = draft.check()
    if spec.settings.engine == DEPLOYED:
        place = app or draft.base / "app"
        deployed.run(
            spec, place, superlink, out, resume, quiet=quiet, json=json, extras=extras
        )
    if app is not None or superlink is not None:
        raise UsageError("--app and --superlink are for --engine flower")
    with interruptible() as signals, _lock(out, resume, spec.data.name) as held:
        job, directory = build(spec), held.directory
        seed = secrets.randbits(32) if job.seed is None else job.seed
        text = job.dump(directory, seed=seed)
        checkpoint = held.begin(text)
        with resumable(checkpoint, fresh=resume is None):
            solution = _solve(job, seed, checkpoint, quiet=quiet)
            held.save(solution, text)
            added = _extras(solution, held, text) if extras else []
            interrupted = solution.status == "interrupted"
            if not interrupted:
                checkpoint.remove()
    _tell(solution, directory, job, as_json=json, quiet=quiet)
    if not quiet:
        target = console.stderr() if json else console.stdout()
        for title, name in added:
            target.print(f"{title}: {directory / name}", soft_wrap=True)
    if interrupted:
        console.note(how_to_go_on(directory))
    raise typer.Exit(code_of(signals) if interrupted else EXIT_CODES[solution.status])


def _lock(
    out: Path | None, resume: Path | None, name: str
) -> AbstractContextManager[RunDirectory]:
    """Take hold of the run directory before any time is spent on training."""
    from pffl import runs

    if resume is not None and out is not None:
        raise UsageError("--resume goes on in the directory it names: leave out --out")
    if resume is not None:
        return runs.lock(resume, unfinished=True)
    if out is None:
        return runs.lock_next("runs", name)
    return runs.lock(out)


def _solve(job: Job, seed: int, checkpoint: Checkpoint, *, quiet: bool) -> Solution:
    from pffl.cli import progress
    from pffl.solve import solve

    saved = checkpoint.saved()
    if saved is not None and not quiet:
        console.note(f"going on after round {saved[1]}")
    return solve(
        job.federation,
        job.constraint,
        model=job.model,
        method=job.method,
        engine=job.engine,
        options=job.options,
        seed=seed,
        callbacks=[] if quiet else [progress.shown()],
        gap_every=gap_every(job),
        checkpoint=checkpoint,
    )


def _extras(solution: Solution, held: RunDirectory, text: str) -> list[tuple[str, str]]:
    """Write the certificate and, where its extra is installed, the report."""
    from pffl.reports.page import write_extras

    added, notes = write_extras(held, solution, text)
    for note in notes:
        console.note(note)
    return added


def gap_every(job: Job) -> int:
    """Rounds between two measurements of the gap: about twenty in a run of PFFL."""
    if not (job.method.approaches_saddle and job.engine == "local"):
        return 0
    return math.ceil((job.method.planned_rounds or 0) / GAPS_SHOWN)


def _tell(
    solution: Solution, directory: Path, job: Job, *, as_json: bool, quiet: bool
) -> None:
    from pffl.cli import show
    from pffl.files import json_text

    if as_json:
        plain = not console.speaks_unicode(sys.stdout)
        sys.stdout.write(json_text(solution.as_dict(), ascii_only=plain))
    if quiet:
        return
    target = console.stderr() if as_json else console.stdout()
    if not as_json:
        show.verdict(target, solution, file="path" in job.source.values)
    target.print(show.sentence(solution))
    target.print(f"Saved in {directory}", soft_wrap=True)
