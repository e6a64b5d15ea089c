"""The run on Flower: a transport over its Grid, and the ServerApp of a deployment.

Only Flower's public interface is used. `ServerApp.main` drives the same flow as in one
process; a message takes 6 to 8 seconds on an idle machine, since Flower starts a
process for each. The ClientApp (`templates/client_app.txt`) is a dozen lines of
standard library that carry bytes to the site's socket.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from pffl import files
from pffl.callbacks import Callback
from pffl.config import RunSpec
from pffl.config import load as load_spec
from pffl.deploy.coordinator import ASKING, BEGUN, ENDED, ROUND, agreed_run, line
from pffl.deploy.federation import FILE as FEDERATION
from pffl.deploy.federation import Agreement
from pffl.deploy.messages import shown as cleaned
from pffl.deploy.server import Remote, Reply, RunLog, Transport
from pffl.errors import ArtefactError, FederationError, PFFLError, UsageError
from pffl.flow import Round
from pffl.progress import describe, measured
from pffl.queries import Query
from pffl.records import read_toml
from pffl.runs import RECORD, SESSION, SPEC, STEPS, lock
from pffl.runs import run as run_in
from pffl.solution import Solution

TYPE, KEY = "query.pffl", "pffl"  # of our messages among Flower's
EXPIRY = 3600.0  # seconds by which a site's clock may be wrong, for Flower's expiry
HEADS = "heads.json"  # what sites have signed of their memories, over all runs


class GridTransport:
    """Reach the nodes of a Flower federation; an address is a node id as text.

    Replies are matched by the message that they answer: the sender of an error is the
    SuperLink, not the node that is gone.

    Parameters
    ----------
    grid
        What Flower gives to a ServerApp.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._waiting: dict[str, str] = {}
        self._lost: list[Reply] = []

    def addresses(self) -> Collection[str]:
        """Return the nodes that are there now."""
        return [str(node) for node in self._call(self._grid.get_node_ids)]

    def send(self, requests: Mapping[str, bytes], seconds: float) -> None:
        """Push all at once."""
        messages = []
        for address, body in requests.items():
            content = RecordDict({KEY: ConfigRecord({"body": body})})
            messages.append(Message(content, int(address), TYPE, ttl=seconds + EXPIRY))
        pushed = set(self._call(lambda: self._grid.push_messages(messages)))
        for address, message in zip(requests, messages, strict=True):
            if message.metadata.message_id in pushed:
                self._waiting[message.metadata.message_id] = address
            else:
                self._lost.append(Reply(address, None, "Flower did not take it"))

    def receive(self) -> Iterable[Reply]:
        """Pull what has come."""
        lost, self._lost = self._lost, []
        yield from lost
        if not self._waiting:
            return
        ids = list(self._waiting)
        for message in self._call(lambda: list(self._grid.pull_messages(ids))):
            address = self._waiting.pop(message.metadata.reply_to_message_id, None)
            if address is not None:
                yield _reply(address, message)

    def _call(self, what: Any) -> Any:
        """Do something with the Grid; say it where the SuperLink is gone."""
        try:
            return what()
        except Exception as error:  # of the HTTP client, which is Flower's own affair
            raise FederationError("no-answer", name=type(error).__name__) from error


def _reply(address: str, message: Message) -> Reply:
    if message.has_error():
        reason = " ".join((message.error.reason or "").split())
        return Reply(address, None, f"Flower error {message.error.code}: {reason}")
    content = message.content.config_records.get(KEY, ConfigRecord())
    body = content.get("body")
    if not isinstance(body, bytes):
        return Reply(address, None, "not our message")
    if not body:
        why = cleaned(str(content.get("error", "")))
        return Reply(address, None, f"'pffl site serve' does not answer there ({why})")
    return Reply(address, body)


def server_app() -> ServerApp:
    """Make the ServerApp.

    The run's configuration has ``folder`` (what `pffl deploy` wrote, on this machine),
    ``out`` (the run directory), ``resume`` and ``check`` (only see who is there).
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = context.run_config
        folder, out = str(config["folder"]), str(config["out"])
        if config["check"]:
            check(GridTransport(grid), Path(folder), Path(out))
            return
        run(GridTransport(grid), folder, out, resume=bool(config["resume"]))

    return app


def run(
    transport: Transport, folder: str | Path, out: str | Path, *, resume: bool = False
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
    """
    place = Path(folder)
    with lock(out, unfinished=resume) as held:
        steps = held.directory / STEPS
        if not resume:
            (held.directory / RECORD).unlink(missing_ok=True)
            shutil.rmtree(steps, ignore_errors=True)
        record = RunLog(held.directory / RECORD)
        name = _run_name(held.directory, resume=resume)
        try:
            job, agreed = load_spec(place / SPEC), Agreement.read(place / FEDERATION)
            refuse_other_run(job, read_toml(place / SPEC), agreed)
            begun = {"run": name, "data": agreed.name, "sites": [*agreed.sites]}
            record.write({"event": BEGUN, **begun})
            known: Any = {"record": record, "folder": steps, "heads": place / HEADS}
            engine = Remote(transport, agreed, policy=job.policy, run=name, **known)
            say, shown = partial(print, flush=True), [Live(record)]
            solution = run_in(job.over(engine), held, callbacks=shown, say=say)
        except BaseException as error:
            if isinstance(error, SystemExit):  # by which Flower ends a ServerApp
                error = FederationError("server-gone:run")
            if isinstance(error, PFFLError):
                _ended(record, error.exit_code, str(error))
            else:
                _ended(record, 1, type(error).__name__)
            raise
        if solution.status != "interrupted":  # whoever waits finds no secrets left
            engine.end()
            shutil.rmtree(steps, ignore_errors=True)
        _ended(record, solution.exit_code, solution.message, solution.status)
        held.add(RECORD, (held.directory / RECORD).read_bytes())
    return solution


def check(transport: Transport, folder: Path, out: Path) -> None:
    """See which sites are there, and whether they would take part; ask nothing."""
    record = RunLog(out / RECORD)
    agreed = Agreement.read(folder / FEDERATION)
    policy = replace(load_spec(folder / SPEC).policy, join_seconds=30.0, seconds=60.0)
    engine = Remote(transport, agreed, policy=policy, heads=folder / HEADS)
    try:
        engine.meet()
        engine.end()
    except PFFLError as error:
        _ended(record, error.exit_code, str(error))
        return
    _ended(record, 0, f"all {len(agreed.sites)} sites are there and take part")


def refuse_other_run(
    job: RunSpec, sections: Mapping[str, Any], agreed: Agreement
) -> None:
    """Refuse another run than the sites joined."""
    given = json.loads(json.dumps(agreed_run(job, sections)))
    known = json.loads(json.dumps(dict(agreed.run)))
    others = [f"[{n}]" for n in {**known, **given} if known.get(n) != given.get(n)]
    if others:
        raise UsageError(
            "other-run:refuse-other-run", spec=SPEC, others=" and ".join(others)
        )


def _run_name(directory: Path, *, resume: bool) -> str:
    """Return the name of the run of a directory, or draw one; on disk then."""
    path = directory / SESSION
    if resume and path.exists():
        try:
            return str(json.loads(files.read(path))["run"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArtefactError("bad-file:run-name", path=path) from error
    name = secrets.token_hex(8)
    files.write(path, json.dumps({"run": name}).encode())
    return name


def _ended(record: RunLog, code: int, message: str, status: str | None = None) -> None:
    """Write the last entry of a run, and its last line in the log."""
    record.write({"event": ENDED, "code": code, "status": status, "message": message})
    print(f"pffl: exit status {code}: {message}", flush=True)


@dataclass
class Live(Callback):
    """Write a line and an entry after each round, and for what is measured with them.

    The figures are totals over all sites; none is of one site.
    """

    record: RunLog
    begun: float = field(default_factory=time.monotonic)
    _first: tuple[int, float] | None = None

    def asking(self, queries: Sequence[Query[Any]]) -> None:
        """Write what is asked."""
        self.record.write({"event": ASKING, "what": measured(queries)})

    def after_round(self, row: Round) -> bool:
        """Tell how the run goes."""
        seconds, left = time.monotonic() - self.begun, None
        number, at = self._first = self._first or (row.number, seconds)
        if row.planned is not None and row.number > number:
            pace = (seconds - at) / (row.number - number)
            left = round((row.planned - row.number) * pace, 1)
        entry = {"event": ROUND, "round": row.number, "planned": row.planned}
        entry |= {"what": describe(row), "seconds": round(seconds, 1), "left": left}
        self.record.write(entry)
        print(line(entry), flush=True)
        return False
