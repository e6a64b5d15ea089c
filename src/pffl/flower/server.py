"""The ServerApp of a deployed run: `solve`, over a Grid, into a run directory."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.superlink.grid import HttpGrid

from pffl import files, records, running
from pffl.config import Plan, RunSpec, constraint_sections
from pffl.config import load as read_run_file
from pffl.engines.remote import Noisy, Record, Remote, Secured, Transport
from pffl.errors import PFFLError, UsageError
from pffl.flower.live import Live
from pffl.flower.pauses import known, shorten
from pffl.flower.transport import GridTransport
from pffl.flower.whole import WholeGrid
from pffl.models.recipes import Recipe
from pffl.runs.directory import RECORD, SESSION, SPEC, STEPS, RunDirectory, lock
from pffl.runs.overview import BEGUN, ENDED
from pffl.site import Agreement
from pffl.site.agreement import FILE as FEDERATION
from pffl.site.terms import plan_of
from pffl.solution import Solution


def server_app(folder: str | os.PathLike[str]) -> ServerApp:
    """Make the ServerApp of a folder that holds run.toml and federation.json.

    The run's configuration has ``out`` (the run directory, on the SuperLink's machine),
    ``resume`` (go on with a run that was stopped there), ``extras`` (also write a page
    to open) and ``seconds`` (how long a message may take; 0: as the run file's [policy]
    says).
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = context.run_config
        out = config.get("out")
        if not isinstance(out, str) or not out:
            raise UsageError(
                "[needs-directory] "
                "the run needs a directory: flwr run … -c 'out=\"DIR\"'"
            )
        whole = known() and isinstance(grid, HttpGrid)
        if whole:
            shorten("flwr.superlink.grid.http_grid")
        run(
            GridTransport(WholeGrid(grid) if whole else grid),
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
        Where run.toml and federation.json lie.
    out
        The run directory.
    resume
        Go on with the run that was stopped in `out`.
    extras
        Also write a page to open.
    seconds
        How long a message may take, instead of what the run file says.
    """
    with lock(out, unfinished=resume) as place:
        if not resume:
            (place.directory / RECORD).unlink(missing_ok=True)
            shutil.rmtree(place.directory / STEPS, ignore_errors=True)
        record = Record(place.directory / RECORD)
        session = Session.begin(place.directory, resume=resume)
        try:
            job = read_run_file(Path(folder) / SPEC)
            if seconds is not None:
                job = replace(job, policy=replace(job.policy, seconds=seconds))
            agreed = Agreement.read(Path(folder) / FEDERATION)
            record.write(
                {
                    "event": BEGUN,
                    "run": session.run,
                    "session": session.session,
                    "data": agreed.name,
                    "sites": list(agreed.sites),
                }
            )
            engine = _engine(transport, agreed, job, record, session, place)
            solution = running.run(
                job.over(engine),
                place,
                callbacks=[Live(record, len(agreed.sites))],
                report=extras,
                say=lambda text: print(text, flush=True),
            )
        except BaseException as error:
            known = isinstance(error, PFFLError)
            code = error.exit_code if isinstance(error, PFFLError) else 1
            _ended(record, code, str(error) if known else type(error).__name__)
            raise
        _ended(record, solution.exit_code, solution.message, solution.status)
        if solution.status != "interrupted":
            if isinstance(engine, Secured):
                engine.end()
            shutil.rmtree(place.directory / STEPS, ignore_errors=True)
        place.add(RECORD, (place.directory / RECORD).read_bytes())
    return solution


def _engine(
    transport: Transport,
    agreed: Agreement,
    job: RunSpec,
    record: Record,
    session: Session,
    place: RunDirectory,
) -> Remote:
    """Return what asks the sites, under masks if they agreed on that."""
    known: dict[str, Any] = {
        "encoding": agreed.encoding,
        "policy": job.policy,
        "record": record,
        "name": agreed.name,
        "run": session.run,
        "session": session.session,
        "keys": agreed.keys,
    }
    noise = job.privacy.terms is not None
    if not agreed.secure_sum:
        if job.privacy.secure_sum:
            raise UsageError(
                "[no-secure-sums] [privacy] secure_sum = true, and the sites agreed "
                "on no secure sums: deploy again with their keys (pffl deploy --keys)"
            )
        engine = Noisy if noise else Remote
        return engine(transport, agreed.schema, agreed.sites, **known)
    _refuse_other_run(job, agreed)
    return Secured(
        transport,
        sites=agreed.sites,
        agreement=agreed.hash,
        splits=agreed.splits,
        floor=agreed.floor,
        folder=place.directory / STEPS,
        noise=noise,
        **known,
    )


def _refuse_other_run(job: Plan, agreed: Agreement) -> None:
    """Refuse another run than the sites agreed on."""
    known, given = (
        {
            "model": (
                plan.model
                if isinstance(plan.model, Recipe)
                else dict(plan.model.describe()),
                plan.any_model,
            ),
            "constraint": constraint_sections(plan.constraint),
            "method": dict(plan.method.describe()),
            "run": (plan.options, plan.settings.seed),
            "privacy": plan.privacy.terms,
        }
        for plan in (plan_of(agreed), job)
    )
    others = [f"[{name}]" for name in known if known[name] != given[name]]
    if others:
        raise UsageError(
            f"[other-run] {SPEC}: {' and '.join(others)} is not what the sites agreed "
            "on: deploy again, and have them agree (pffl site agree)"
        )


@dataclass(frozen=True)
class Session(records.Record):
    """What a deployed run must remember between two starts of its server.

    Sites answer no message number twice, so a server that starts again begins a new
    session: its numbers are above all earlier ones, whatever was lost.

    Attributes
    ----------
    run, session
        Name of the run, and how often its server has started before.
    """

    run: str
    session: int

    @classmethod
    def begin(cls, directory: Path, *, resume: bool) -> Session:
        """Go on with the run of a directory, or begin one; on disk when it returns."""
        path = directory / SESSION
        if resume and path.exists():
            source = f"'{path}' cannot be read"
            before = records.read(cls, files.read(path), source=source)
            begun = cls(before.run, before.session + 1)
        else:
            begun = cls(secrets.token_hex(8), 0)
        files.write(path, json.dumps(asdict(begun)).encode())
        return begun


def _ended(record: Record, code: int, message: str, status: str | None = None) -> None:
    """Write the last entry of a run, and its last line in the log."""
    record.write({"event": ENDED, "code": code, "status": status, "message": message})
    print(f"pffl: exit status {code}: {message}", flush=True)
