"""`pffl run`, and before it `pffl feasible`: one model under bounds, with a verdict."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console, deployed
from pffl.cli.interruption import code_of, how_to_go_on, interruptible, resumable
from pffl.cli.options import Draft, Verbose, build, takes
from pffl.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pffl.callbacks import Callback
    from pffl.evidence.conclude import Conclusions
    from pffl.runs import RunDirectory


@takes("data", "constraint", "method", "model", "run", "privacy", "about")
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
    verbose: Verbose = False,
    extras: Annotated[
        bool,
        typer.Option("--extras/--no-extras", help="Also write a report page."),
    ] = True,
    show: Annotated[
        bool, typer.Option("--open", help="Open the report page in the browser.")
    ] = False,
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

    Ends with exit code 0 if the bounds are met on the training rows (or none was asked
    for), 4 if not; what holds for people not seen is said beside it.
    A run that was stopped (Ctrl-C, SIGTERM, error, crash) goes on with --resume DIR.

    Example: pffl run compas --constraint cbgl --bound 0.7
    """
    from pffl.engines import DEPLOYED
    from pffl.log import SPEC
    from pffl.progress import Rounds
    from pffl.running import run as run_in

    spec = draft.check()
    if spec.settings.engine == DEPLOYED:
        place = app or draft.base / "app"
        directory, code = deployed.run(
            spec,
            place,
            superlink,
            out,
            resume,
            quiet=quiet,
            verbose=verbose,
            json=json,
            extras=extras,
        )
        if show:
            _open(directory)
        raise typer.Exit(code)
    if app is not None or superlink is not None:
        raise UsageError(
            "[options-conflict] --app and --superlink are for --engine flower"
        )
    with interruptible() as signals, _lock(out, resume, spec.data.name) as held:
        job, directory = build(spec), held.directory
        with resumable(directory):
            solution = run_in(
                job,
                held,
                callbacks=[] if quiet else [Rounds(), _releases()],
                report=extras,
                say=str if quiet else console.note,
            )
    if json:
        console.print_json(solution.as_dict())
    if not quiet:
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
    "data",
    "constraint",
    "model",
    "run",
    without="unseen l2 weighting weight-bound error-at-most reach "
    "confidence promise models",
)
def feasible(
    draft: Draft,
    cell: Annotated[
        list[str] | None,
        typer.Option(help="Only this cell; may be repeated.", metavar="CELL"),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, nothing else.")
    ] = False,
) -> None:
    """Find the smallest bounds that any model can meet; nothing is trained or saved.

    First the smallest bound for all cells together, then how low the bound of each
    cell could go with the others at that value, or at --bound. Ends with exit code 4
    if the bounds given cannot be met.

    Example: pffl feasible compas --bound 0.61
    """
    from rich.text import Text

    from pffl.cli import show
    from pffl.feasibility import feasible as search

    draft, bounded = draft.with_a_bound()
    job = draft.build()
    found = search(
        job.federation,
        job.constraint,
        promise=bounded,
        cells=cell or (),
        model=job.model,
        engine=job.engine,
        options=job.options,
    )
    if json:
        console.print_json(found.as_dict())
        raise typer.Exit(4 if found.impossible else 0)
    for note in found.notes:
        console.note(note)
    target = console.stdout()
    target.print()
    console.show(found.sentence)
    if found.verdict:
        style = "bold red" if found.impossible else "bold green"
        target.print(Text(found.verdict, style=style))
    if found.cells:
        show.print_whole(target, show.text_rows(found.table, target.width))
    elif found.left:
        target.print(f"{found.left:,} cells: name those to look at with --cell")
    raise typer.Exit(4 if found.impossible else 0)
