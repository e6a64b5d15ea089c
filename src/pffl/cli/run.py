"""`pffl run`: one model under bounds; before it `pffl feasible` and `pffl data`."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from pffl.cli import INTERRUPTED, options, terminal
from pffl.cli.options import (
    COLUMNS,
    OPTIONS,
    Draft,
    flag,
    option,
    table_of,
    takes,
)
from pffl.errors import ArtefactError, FederationError, UsageError
from pffl.text import few, shorten, visible

if TYPE_CHECKING:
    from pffl.config import RunSpec
    from pffl.data import Federation
    from pffl.evidence.conclude import Conclusions
    from pffl.privacy.terms import Privacy

DECLARE = "Write a columns section for private runs, from a public or made-up table."
MAX_GROUPS, MAX_COLUMNS, EXAMPLES, MAX_EXAMPLE = 6, 200, 3, 16  # that are shown


@takes(*OPTIONS, optional=True)
def run(
    draft: Draft | None,
    out: Path | None = option("Run directory. Default: the next free runs/NAME-001."),
    resume: Path | None = option("Go on with the run that stopped there."),
    json: bool = options.JSON,
    verbose: bool = options.VERBOSE,
    show: bool = flag("Open the page in the browser.", "--open"),
) -> None:
    """Train one model over all silos, with a bound on the loss of every group.

    Exit code 4: the bounds are not met on the training rows, or --certify was asked
    for and not given. A run that was stopped resumes with --resume DIR.

    Example: pffl run adult --constraint cbgl --bound 0.7 --certify --seed 0
    """
    import webbrowser

    from pffl import driver, engines
    from pffl.runs import REPORT

    if resume is not None:
        if out is not None:
            raise UsageError("options-conflict:run")
        if not (resume / driver.SPEC).is_file():
            raise ArtefactError("no-stopped-run", resume=resume, spec=driver.SPEC)
        draft = Draft.of(str(resume / driver.SPEC), {})
    if draft is None:
        raise UsageError("missing-data:run")
    spec = draft.check()
    deployed = spec.settings.engine == engines.DEPLOYED
    if draft.sections.get("policy") and not deployed:
        raise UsageError("no-effect:run", source=draft.source)
    train = _run_deployed if deployed else _run_here
    directory, found, code = train(spec, out, resume)
    if found is not None:
        print_result(found, directory, json=json, verbose=verbose)
        if show and not webbrowser.open(
            (page := directory / REPORT).resolve().as_uri()
        ):
            terminal.note(f"no browser was found: open {page} yourself")
    if found is None or code >= INTERRUPTED:
        _say_how_to_go_on(directory)
    raise typer.Exit(code)


def _run_here(
    spec: RunSpec, out: Path | None, resume: Path | None
) -> tuple[Path, Conclusions, int]:
    """Train in this process; return where, what it reached, and its exit code."""
    from pffl import runs
    from pffl.progress import Rounds

    class NotedRounds(Rounds):
        def releasing(self, lines: Sequence[str]) -> None:
            for line in lines:  # the plan of a run with noise, before its first query
                terminal.note(line)

    place = resume or out or runs.make_next("runs", spec.data.name)
    held_by = runs.lock(place, unfinished=resume is not None)
    with interruptible() as signals, held_by as held:
        job = spec.build()
        try:
            solution = runs.run(job, held, callbacks=[NotedRounds()], say=terminal.note)
        except BaseException:
            _say_how_to_go_on(held.directory)
            raise
    stopped = solution.status == "interrupted"
    code = _code_of(signals) if stopped else solution.exit_code
    return held.directory, solution.conclusions, code


def _run_deployed(
    spec: RunSpec, out: Path | None, resume: Path | None
) -> tuple[Path, Conclusions | None, int]:
    """Start what `pffl deploy` wrote, watch it, and end as it ends."""
    from pffl import runs
    from pffl.deploy.coordinator import Launch
    from pffl.evidence.conclude import conclude

    if (given := spec.data.federation) is None:
        raise UsageError("not-deployed:run-deployed")
    folder = given.parent
    place = resume or out or runs.make_next("runs", folder.resolve().name)
    planned = Launch(folder, place.resolve(), resume is not None)
    with interruptible():
        planned.agreed  # noqa: B018 - a folder of another kind is refused here
        with runs.lock(planned.out, unfinished=planned.resume):
            pass  # what the ServerApp would refuse is refused here
        planned.register()
        number = planned.start()
        terminal.note(f"Flower run {number}: stop it with Ctrl-C")
        try:
            ended = planned.watch(number, terminal.note)
        except (KeyboardInterrupt, FederationError) as error:
            if isinstance(error, KeyboardInterrupt):
                try:
                    planned.stop(number)
                except FederationError as refused:
                    terminal.error(f"run {number} may still go on: {refused}")
            _say_how_to_go_on(planned.out)
            raise
    code = int(ended["code"])
    if code in (0, 4):
        return planned.out, conclude(runs.read_run(planned.out).evidence), code
    terminal.error(str(ended["message"]))
    return planned.out, None, code


def print_result(
    found: Conclusions, directory: Path, *, json: bool, verbose: bool
) -> None:
    """Show what a run or an audit reached, and where it is saved.

    With `json` the result is on stdout alone, and how it ended on stderr.
    """
    from pffl import runs

    target = terminal.stdout(stderr=json)
    if json:
        e = found.evidence
        terminal.print_json(
            found.result() if e.trained else found.certificate.as_dict()
        )
    elif verbose:
        terminal.print_details(found)
    (terminal.print_verdicts if json else terminal.print_screen)(target, found)
    made = {"report": directory / runs.REPORT, "model": directory / runs.MODEL}
    parts = [f"{title:8} {path}" for title, path in made.items() if path.is_file()]
    notes = found.evidence.data.notes
    if notes and not verbose:
        parts.append(f"notes    {len(notes)} on the data: see -v")
    line = (" " * 8).join(parts)
    target.print("", line if len(line) <= target.width else "\n".join(parts), sep="\n")


# Ctrl-C and SIGTERM


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Treat SIGTERM like Ctrl-C, and remember which one it was.

    The second of them ends the process at once, whatever it is doing: it is left to
    the system. Files are whole at any time.
    """
    seen: list[int] = []

    def remember(number: int, frame: object) -> None:
        seen.append(number)
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        with suppress(OSError):
            os.write(2, b"\nstopping; once more ends at once\n")
        raise KeyboardInterrupt

    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, remember)
    try:
        yield seen
    except KeyboardInterrupt:
        terminal.error("interrupted")
        raise typer.Exit(_code_of(seen)) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _code_of(seen: list[int]) -> int:
    return 128 + seen[-1] if seen else INTERRUPTED


def _say_how_to_go_on(directory: Path) -> None:
    """Name the command that resumes a run, if there is something to go on with."""
    from pffl.driver import SPEC

    if (directory / SPEC).is_file():
        place = shlex.quote(str(directory))
        terminal.note(f"to go on: pffl run --resume {place}")


# What is possible


@takes(
    *COLUMNS,
    *("constraint", "bound", "model", "method", "seed", "epsilon"),
    unused="run.certify run.models run.smallest_bound "
    "run.selection_rate about.* policy.*",
)
def feasible(
    draft: Draft,
    certify: str | None = option(
        "Forecast a certificate, and rows needed.", "[CONFIDENCE]"
    ),
    json: bool = options.JSON,
) -> None:
    """Find the smallest bounds that any model can meet; nothing is trained or saved.

    First for all groups together, then how low each could go alone. With --certify, how
    many rows a certificate takes; with --epsilon, what a run with noise releases and
    what the noise costs. Exit code 4: bounds are impossible.

    Example: pffl feasible compas --bound 0.61
    """
    if table_of(draft.sections, "privacy").get("epsilon") is not None:
        _show_releases(draft.check(), json=json)
        return
    draft, bounded = draft.with_a_bound()
    if certify is not None and not bounded:
        raise UsageError("needs-bound:feasible")
    unused = ["method.*", "privacy.*"]
    if certify is None:
        unused += ["model.l2", "run.confidence", "run.weighting", "run.weight_bound"]
    draft.refuse("feasible", *unused)
    if certify is not None:
        draft = draft.certified(certify)
    from pffl._feasible import feasible as search

    job = draft.build()
    sure = job.spec.options.confidence
    found = search(
        job.federation,
        job.spec.constraint,
        bounded=bounded,
        certify=None if certify is None else sure,
        model=job.model,
        engine=job.spec.settings.engine,
        options=job.spec.options,
    )
    code = 4 if found.impossible else 0
    if json:
        terminal.print_json(found.as_dict())
        raise typer.Exit(code)
    for note in found.notes:
        terminal.note(note)
    terminal.show("", found.sentence)
    if found.verdict:
        style = "bold red" if found.impossible else "bold green"
        terminal.stdout().print(found.verdict, style=style)
    terminal.print_rows(found.table if found.cells else [])
    if found.forecast is not None:
        terminal.show("", found.forecast.sentence)
        terminal.print_rows(found.forecast.table)
    raise typer.Exit(code)


def _show_releases(spec: RunSpec, *, json: bool) -> None:
    """Show what a run with noise would release, before anything is."""
    from pffl._solve import planned_releases

    job = spec.build()
    lines = planned_releases(
        job.federation,
        spec.constraint,
        model=job.model,
        method=spec.method,
        options=spec.options,
        privacy=cast("Privacy", spec.privacy),
    )
    terminal.print_json({"releases": lines}) if json else terminal.show("", *lines)


# What data there are


@takes(
    *COLUMNS,
    optional=True,
    unused="constraint.* model.* method.* run.* privacy.* policy.* about.*",
)
def data(
    draft: Draft | None,
    columns: bool = flag(DECLARE, "--columns"),
) -> None:
    """List data sets; or fetch one, or look into a table: columns, groups, silos.

    Without DATA, the data sets there are. Of a table without --label and --group, what
    its columns hold; with them, rows by silo and group, and what gives the label away.

    Example: pffl data people.csv --label income --group sex --silo state
    """
    if draft is None:
        from pffl.datasets import DATASETS

        told = {name: load.__doc__ or "" for name, load in DATASETS.items()}
        terminal.show(*(f"{n:10} {text.splitlines()[0]}" for n, text in told.items()))
        return
    given = table_of(draft.sections, "data")
    path = given.get("path")
    if isinstance(path, str) and not {"label", "group"} <= set(given):
        if columns:
            raise UsageError("missing-option:data")
        _show_columns(str(draft.base / path))
        return
    source = draft.check().data
    federation = source.open()
    if columns:
        _show_declaration(federation, source.values)
    else:
        _show_counts(federation)


def _show_declaration(federation: Federation, values: Mapping[str, object]) -> None:
    """Show [columns] as a run file has it."""
    from pffl.config import dumps
    from pffl.data.read import read_table
    from pffl.data.table import declare

    if "path" not in values:
        raise UsageError("needs-rows:show-declaration")
    silo = [str(values["silo"])] if "silo" in values else []
    columns = declare(read_table(str(values["path"]))[0], federation.encoding, *silo)
    typer.echo("# declared from a public or made-up table: never from the private one")
    typer.echo(dumps({"columns": columns}))


def _show_counts(federation: Federation) -> None:
    """Show training rows per silo and group, and notes."""
    import numpy as np

    schema = federation.schema
    kind = f"{len(schema.labels)} classes" if schema.labels else "a number"
    splits = ", ".join(f"{federation.rows(s):,} {s}" for s in federation.splits)
    terminal.print_head(
        federation.name,
        f"silos: {len(federation):,}; rows: {splits}",
        f"{schema.n_features:,} inputs; '{visible(schema.target)}' is {kind}",
        *federation.notes,
        f"fingerprint {federation.fingerprint[:16]}",
    )
    parts, many = [s.rows("train").group for s in federation.silos], len(schema.groups)
    counts = np.array([np.bincount(part, minlength=many) for part in parts])
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    shown = np.argsort(-counts.sum(axis=0), kind="stable")[:MAX_GROUPS]
    names = ["all", *(federation.silo_names[k] for k in order)]
    rows = [
        {"silo": name, "training rows": int(row.sum())}
        | {visible(schema.groups[g]): int(row[g]) for g in shown}
        for name, row in zip(names, [counts.sum(axis=0), *counts[order]], strict=True)
    ]
    terminal.print_rows(rows)
    if many > MAX_GROUPS:
        terminal.show(f"and {many - MAX_GROUPS:,} more groups")


def _show_columns(path: str) -> None:
    """Show the columns of a file, and what is odd about them."""
    from pffl.data.read import read_table
    from pffl.data.table import infer, looks_protected
    from pffl.errors import DataError, Problems

    frame, notes = read_table(path, numbered=True)
    names = list(map(str, frame.columns))
    problems, rows, told = Problems("table", DataError), [], list[str]()
    for name in names[:MAX_COLUMNS]:
        column, odd = infer(frame[name])
        if column is not None:
            column.encode(frame[name], problems)
        told += odd
        counts = frame[name].value_counts()
        examples = [shorten(str(v), MAX_EXAMPLE) for v in counts.index[:EXAMPLES]]
        kind = "left out" if column is None else column.kind
        row = {"column": name, "taken as": kind, "values": len(counts)}
        row["missing"] = int(frame[name].isna().sum())
        rows.append({**row, "such as": ", ".join(examples)})
    counted = f"{len(frame):,} rows, {len(names):,} columns"
    terminal.print_head(Path(path).name, counted, *notes)
    terminal.print_rows(rows, MAX_COLUMNS, left=("taken as", "such as"))
    remarks = [*problems.found, *told]
    if protected := [name for name in names if looks_protected(name)]:
        remarks.append(f"look protected, by name: {few(protected)}")
    terminal.print_remarks(remarks)
    command = f"pffl data {shlex.quote(path)} --label COLUMN --group COLUMN"
    terminal.show("", "Next:", f"  {command}")
