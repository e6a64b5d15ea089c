"""`pffl run`: train one model under bounds, judge it, and leave a run directory."""

from __future__ import annotations

import math
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console
from pffl.cli.draft import Draft
from pffl.cli.options import takes

if TYPE_CHECKING:
    from pffl.run_directory import Claim
    from pffl.solution import Solution
    from pffl.spec import Job

INTERRUPTED = 128 + signal.SIGINT
EXIT_CODES = {
    "met": 0,
    "within_slack": 0,
    "not_met": 4,
    "infeasible": 4,
    "diverged": 4,
    "interrupted": INTERRUPTED,
}
GAPS_SHOWN = 20  # times the gap is measured in a run of known length


@takes("data", "constraint", "method", "model", "run")
def run(
    draft: Draft,
    out: Annotated[
        Path | None,
        typer.Option(help="Run directory. Default: the next free runs/NAME-001."),
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
) -> None:
    """Train one model over all silos, with a bound on the loss of every group.

    Ends with exit code 0 if the bounds are met (or within the stated slack), 4 if not.

    Example: pffl run compas --bound 0.62
    """
    spec = draft.check()
    with _interruptible() as signals, _claim(out, spec.data.name) as claimed:
        job = spec.build()
        solution = _solve(job, quiet=quiet)
        directory = claimed.directory
        claimed.save(solution, job.dump(directory, seed=solution.seed))
        added = _extras(solution, job, claimed) if extras else []
    _tell(solution, directory, job, as_json=json, quiet=quiet)
    if not quiet:
        target = console.stderr() if json else console.stdout()
        for title, name in added:
            target.print(f"{title}: {directory / name}", soft_wrap=True)
    interrupted = solution.status == "interrupted"
    code = 128 + signals[-1] if signals and interrupted else None
    raise typer.Exit(EXIT_CODES[solution.status] if code is None else code)


def _claim(out: Path | None, name: str) -> AbstractContextManager[Claim]:
    """Take hold of the run directory before any time is spent on training."""
    from pffl import run_directory

    if out is None:
        return run_directory.claim_next("runs", name)
    return run_directory.claim(out)


def _solve(job: Job, *, quiet: bool) -> Solution:
    from pffl.cli import progress
    from pffl.solve import solve

    return solve(
        job.federation,
        job.constraint,
        model=job.model,
        method=job.method,
        engine=job.engine,
        options=job.options,
        seed=job.seed,
        callbacks=[] if quiet else [progress.shown()],
        gap_every=gap_every(job),
    )


def _extras(solution: Solution, job: Job, claimed: Claim) -> list[tuple[str, str]]:
    """Write the certificate and, where its extra is installed, the report."""
    from pffl.certify import certify
    from pffl.errors import MissingExtraError
    from pffl.report.page import render
    from pffl.run_directory import result_text

    if solution.status == "interrupted":
        return []
    added = []
    if solution.problem.n_cells:
        certificate = certify(
            solution, job.federation, confidence=job.options.confidence
        )
        text = result_text(certificate.as_dict())
        claimed.add("certificate.json", text.encode())
        added.append(("Certificate", "certificate.json"))
    try:
        claimed.add("report.html", render([claimed.directory]).encode())
        added.append(("Report", "report.html"))
    except MissingExtraError as error:
        console.note(str(error))
    return added


def gap_every(job: Job) -> int:
    """Rounds between two measurements of the gap: about twenty in a run of PFFL."""
    outer = getattr(job.method, "dual_rounds", 0)
    planned = outer * getattr(job.method, "rounds_per_dual", 0)
    return math.ceil(planned / GAPS_SHOWN) if job.engine == "local" else 0


def _tell(
    solution: Solution, directory: Path, job: Job, *, as_json: bool, quiet: bool
) -> None:
    from pffl.cli import show
    from pffl.run_directory import result_text

    if as_json:
        plain = not console.speaks_unicode(sys.stdout)
        sys.stdout.write(result_text(solution.as_dict(), ascii_only=plain))
    if quiet:
        return
    target = console.stderr() if as_json else console.stdout()
    if not as_json:
        show.verdict(target, solution, file="path" in job.source.values)
    target.print(show.sentence(solution))
    target.print(f"Saved in {directory}", soft_wrap=True)


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Treat SIGTERM like Ctrl-C, and remember which one it was."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen  # only the main thread may handle signals
        return

    def remember(number: int, frame: object) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, remember)
    try:
        yield seen
    except KeyboardInterrupt:
        console.error("interrupted before there was anything to save")
        raise typer.Exit(128 + seen[-1] if seen else INTERRUPTED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
