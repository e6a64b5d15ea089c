"""`pffl run`, and before it `pffl feasible`: one model under bounds, with a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console, deployed
from pffl.cli.interruption import code_of, how_to_go_on, interruptible, resumable
from pffl.cli.options import (
    COLUMNS,
    OPTIONS,
    Draft,
    Json,
    Verbose,
    build,
    certified,
    takes,
)
from pffl.errors import UsageError

if TYPE_CHECKING:
    from pffl.callbacks import Callback
    from pffl.evidence.conclude import Conclusions
    from pffl.runs import RunDirectory


@takes(*OPTIONS)
def run(
    draft: Draft,
    out: Annotated[
        Path | None,
        typer.Option(help="Run directory. Default: the next free runs/NAME-001."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run that stopped there.")
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
    show: Annotated[
        bool, typer.Option("--open", help="Open the report in the browser.")
    ] = False,
) -> None:
    """Train one model over all silos, with a bound on the loss of every group.

    Exit code 4: the bounds are not met on the training rows, or --certify was asked
    for and not given. A run that was stopped goes on with --resume DIR.

    Example: pffl run adult --constraint cbgl --bound 0.7 --certify --seed 0
    """
    from pffl.engines import DEPLOYED
    from pffl.log import SPEC
    from pffl.progress import Rounds
    from pffl.running import run as run_in

    spec = draft.check()
    if spec.settings.engine == DEPLOYED:
        directory, code = deployed.run(spec, out, resume, verbose=verbose, json=json)
        if show:
            _open(directory)
        raise typer.Exit(code)
    if draft.sections.get("policy"):
        raise UsageError(
            f"[no-effect] {draft.source}: [policy] goes with [run] engine = 'flower'"
        )
    with interruptible() as signals, _lock(out, resume, spec.data.name) as held:
        job, directory = build(spec), held.directory
        with resumable(directory):
            solution = run_in(
                job,
                held,
                callbacks=[Rounds(), _releases()],
                say=console.note,
            )
    if json:
        console.print_json(solution.as_dict())
    told(solution.conclusions, directory, aside=json, verbose=verbose)
    if show:
        _open(directory)
    if solution.status != "interrupted":
        raise typer.Exit(solution.exit_code)
    if (directory / SPEC).is_file():
        console.note(how_to_go_on(directory))
    raise typer.Exit(code_of(signals))


def _releases() -> Callback:
    """Return what shows the plan of a run with noise, before its first query."""
    from pffl.callbacks import Callback

    class Releases(Callback):
        def releasing(self, lines: Sequence[str]) -> None:
            for line in lines:
                console.note(line)

    return Releases()


def _open(directory: Path) -> None:
    """Open the page of a run, where it has one."""
    from pffl.cli.report import open_page
    from pffl.runs.directory import REPORT

    if (directory / REPORT).is_file():
        open_page(directory / REPORT)


def told(found: Conclusions, directory: Path, *, aside: bool, verbose: bool) -> None:
    """Show what a run reached, and where it is saved.

    Parameters
    ----------
    found
        What follows from the evidence.
    directory
        The run directory.
    aside
        Whether the result itself went to stdout: then only say how it ended, on stderr.
    verbose
        Whether to show all figures.
    """
    from pffl.cli import show
    from pffl.runs.directory import MODEL, REPORT

    target = console.stderr() if aside else console.stdout()
    if verbose and not aside:
        show.details(target, found)
    (show.verdicts if aside else show.screen)(target, found)
    made = {"report": directory / REPORT, "model": directory / MODEL}
    parts = [f"{title:8} {path}" for title, path in made.items() if path.is_file()]
    notes = found.evidence.data.notes
    if notes and not verbose:
        parts.append(f"notes    {len(notes)} on the data: see -v")
    line = (" " * 8).join(parts)
    target.print()
    target.print(
        line if len(line) <= target.width else "\n".join(parts), soft_wrap=True
    )


def _lock(
    out: Path | None, resume: Path | None, name: str
) -> AbstractContextManager[RunDirectory]:
    """Take hold of the run directory before any time is spent on training."""
    from pffl import runs

    if resume is not None and out is not None:
        raise UsageError(
            "[options-conflict] --resume goes on in the directory it names: leave out "
            "--out"
        )
    if resume is not None:
        return runs.lock(resume, unfinished=True)
    if out is None:
        return runs.lock_next("runs", name)
    return runs.lock(out)


@takes(
    *COLUMNS,
    *("constraint", "bound", "model", "method", "seed", "epsilon"),
    unused="data.unseen run.certify run.models run.error_at_most run.reach about.* "
    "policy.*",
)
def feasible(
    draft: Draft,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only this group; repeatable.", metavar="GROUP"),
    ] = None,
    certify: Annotated[
        str | None,
        typer.Option(
            help="Forecast a certificate, and rows needed.",
            metavar="[CONFIDENCE]",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Find the smallest bounds that any model can meet; nothing is trained or saved.

    First for all groups together, then how low each could go alone, with the others
    kept. With --certify, how many rows a certificate takes; with --epsilon, what a run
    with noise releases and what the noise costs. Exit code 4: bounds are impossible.

    Example: pffl feasible compas --bound 0.61
    """
    if draft.sections.get("privacy", {}).get("epsilon") is not None:
        _show_releases(draft, json=json)
        return
    draft, bounded = draft.with_a_bound()
    if certify is not None and not bounded:
        raise UsageError("[needs-bound] what is certified is a bound: --bound NUMBER")
    draft.refuse("feasible", "method.*", "privacy.*")
    if certify is None:
        options = ("model.l2", "run.confidence", "run.weighting", "run.weight_bound")
        draft.refuse("feasible", *options)
    elif confidence := certified(certify).get("run.confidence"):
        draft = draft.where("run.confidence", confidence)
    from pffl._feasible import feasible as search

    job = draft.build()
    found = search(
        job.federation,
        job.constraint,
        bounded=bounded,
        cells=only or (),
        certify=None if certify is None else job.options.confidence,
        model=job.model,
        engine=job.engine,
        options=job.options,
    )
    code = 4 if found.impossible else 0
    if json:
        console.print_json(found.as_dict())
        raise typer.Exit(code)
    _notes(found.notes)
    _lines([found.sentence])
    if found.verdict:
        style = "bold red" if found.impossible else "bold green"
        console.stdout().print(found.verdict, style=style)
    _table(found.table if found.cells else [])
    if found.forecast is not None:
        _lines([found.forecast.sentence])
        _table(found.forecast.table)
    if found.left and not found.cells:
        console.show(f"{found.left:,} groups: name those to look at with --only")
    raise typer.Exit(code)


def _show_releases(draft: Draft, *, json: bool) -> None:
    """Show what a run with noise would release, before anything is."""
    from pffl._solve import noise_forecast

    spec = draft.check()
    job = build(spec)
    if (terms := spec.privacy.terms) is None:
        raise UsageError("[needs-epsilon] what is released needs a budget: --epsilon")
    lines, rows = noise_forecast(
        job.federation,
        job.constraint,
        model=job.model,
        method=job.method,
        options=job.options,
        privacy=terms,
        secure_sum=bool(spec.privacy.secure_sum),
    )
    if json:
        console.print_json({"releases": lines, "margins": rows})
        return
    _lines(lines)
    _table(rows)
    console.show(
        "margin: what noise adds to a group's mean training loss, for so many people, "
        f"{100 * job.options.confidence:.4g} % sure for all groups together; ε for … "
        "of room: the smallest at which a group so far below its bound is seen to be"
    )


def _notes(notes: Iterable[str]) -> None:
    for note in notes:
        console.note(note)


def _lines(texts: Iterable[str]) -> None:
    console.stdout().print()
    for text in texts:
        console.show(text)


def _table(rows: Sequence[Mapping[str, object]]) -> None:
    from pffl.cli import show

    if rows:
        target = console.stdout()
        target.print()
        show.print_whole(target, show.text_rows(rows, target.width))
