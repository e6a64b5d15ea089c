"""The ServerApp of a deployed run: `solve`, over a Grid, into a run directory."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from pffl import spec
from pffl.checkpoint import Checkpoint
from pffl.engines.flower.grid import GridTransport
from pffl.engines.remembered import Remembered
from pffl.engines.remote import Record, Remote, Transport
from pffl.errors import PFFLError, UsageError
from pffl.flower.live import ENDED, Live
from pffl.flower.session import Session
from pffl.reports.page import write_report
from pffl.runs import RunDirectory, lock, refuse_recorded
from pffl.site import Agreement
from pffl.solution import Solution
from pffl.solve import solve
from pffl.verdict import EXIT_CODES

SPEC, FEDERATION, RECORD = "spec.toml", "federation.json", "record.jsonl"


def server_app(folder: str | os.PathLike[str]) -> ServerApp:
    """Make the ServerApp of a folder that holds spec.toml and federation.json.

    The run's configuration has ``out`` (the run directory, on the SuperLink's machine),
    ``resume`` (go on with a run that was stopped there), ``extras`` (also write the
    certificate and the report, which asks a few more questions) and ``seconds`` (how
    long a message may take; 0: as the run file's [policy] says).
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = context.run_config
        out = config.get("out")
        if not isinstance(out, str) or not out:
            raise UsageError("the run needs a directory: flwr run … -c 'out=\"DIR\"'")
        run(
            GridTransport(grid),
            folder,
            out,
            resume=bool(config.get("resume", False)),
            extras=bool(config.get("extras", True)),
            seconds=float(config.get("seconds", 0.0)) or None,
        )

    return app


def run(
    transport: Transport,
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    extras: bool = True,
    seconds: float | None = None,
) -> Solution:
    """Run what a folder describes; say in the record how it ended.

    Parameters
    ----------
    transport
        How the sites are reached.
    folder
        Where spec.toml and federation.json lie.
    out
        The run directory.
    resume
        Go on with the run that was stopped in `out`.
    extras
        Also write certificate and report.
    seconds
        How long a message may take, instead of what the run file says.
    """
    with lock(out, unfinished=resume) as place:
        if not resume:
            refuse_recorded(place.directory)
            (place.directory / RECORD).unlink(missing_ok=True)
        record = Record(place.directory / RECORD)
        session = Session.begin(place.directory, resume=resume)
        try:
            job = spec.load(Path(folder) / SPEC)
            if seconds is not None:
                job = replace(job, policy=replace(job.policy, seconds=seconds))
            agreed = Agreement.read(Path(folder) / FEDERATION)
            engine = Remembered(
                Remote(
                    transport,
                    agreed.schema,
                    agreed.sites,
                    policy=job.policy,
                    record=record,
                    run=session.run,
                    session=session.session,
                ),
                name=agreed.name,
            )
            solution = _solve(engine, job, place, record, extras=extras)
        except BaseException as error:
            known = isinstance(error, PFFLError)
            code = error.exit_code if isinstance(error, PFFLError) else 1
            _ended(record, code, str(error) if known else type(error).__name__)
            raise
        _ended(record, EXIT_CODES[solution.status], solution.message, solution.status)
        place.add(RECORD, (place.directory / RECORD).read_bytes())
    return solution


def _solve(
    engine: Remembered,
    job: spec.RunSpec,
    place: RunDirectory,
    record: Record,
    *,
    extras: bool,
) -> Solution:
    """Solve, from the start or from a checkpoint, and save what came of it."""
    saved = Checkpoint(place.directory).saved()
    seed = job.settings.seed if saved is None else saved[0]
    seed = secrets.randbits(32) if seed is None else seed
    text = job.dump(place.directory, schema=engine.schema, seed=seed)
    checkpoint = place.begin(text)
    if saved is not None:
        print(f"going on after round {saved[1]}", flush=True)
    solution = solve(
        engine,
        job.constraint,
        model=job.model_for(engine.schema),
        method=job.method,
        options=job.options,
        seed=seed,
        callbacks=[Live(record, len(engine.silo_names))],
        checkpoint=checkpoint,
    )
    place.save(solution, text)
    if solution.status != "interrupted":
        if extras:
            write_report(place)
        checkpoint.remove()
    return solution


def _ended(record: Record, code: int, message: str, status: str | None = None) -> None:
    """Write the last entry of a run, and its last line in the log."""
    record.write({"event": ENDED, "code": code, "status": status, "message": message})
    print(f"pffl: exit status {code}: {message}", flush=True)
