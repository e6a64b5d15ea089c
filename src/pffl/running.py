"""A run in its directory: trained, saved with its page, and certified again later."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pffl.callbacks import Callback
from pffl.certifying import Request, examine
from pffl.checkpoint import SPEC as STOPPED
from pffl.engines.base import Engine
from pffl.errors import ArtefactError
from pffl.evidence import verdict
from pffl.evidence.certificate import Certificate
from pffl.files import json_text
from pffl.reports.page import write_report
from pffl.runs.directory import (
    CERTIFICATE,
    EVIDENCE,
    MODEL,
    REPORT,
    RunDirectory,
    RunRecord,
    lock,
)
from pffl.solution import Solution
from pffl.solving import solve
from pffl.spec import Job

GAPS_SHOWN = 20  # times the gap is measured in a run of known length


def run(
    job: Job,
    place: RunDirectory,
    *,
    callbacks: Sequence[Callback] = (),
    report: bool = True,
) -> Solution:
    """Train what a run file describes, and save it in a directory that is held.

    A run that was stopped there goes on. One that stops before it has anything to go on
    with leaves nothing behind.

    Parameters
    ----------
    job
        What to run.
    place
        The directory.
    callbacks
        Shown between rounds.
    report
        Whether to also write a page to open.
    """
    fresh = not (place.directory / STOPPED).exists()
    seed = secrets.randbits(32) if job.seed is None else job.seed
    text = job.dump(place.directory, seed=seed)
    checkpoint = place.begin(text)
    try:
        solution = solve(
            job.federation,
            job.constraint,
            model=job.model,
            method=job.method,
            engine=job.engine,
            options=job.options,
            seed=seed,
            callbacks=callbacks,
            gap_every=gap_every(job),
            checkpoint=checkpoint,
        )
        place.save(solution, text)
        if solution.status != "interrupted":
            if report:
                write_report(place)
            checkpoint.remove()
    except BaseException:
        if fresh and not checkpoint.ready:
            checkpoint.remove()
        raise
    return solution


def gap_every(job: Job) -> int:
    """Rounds between two measurements of the gap: about twenty in a run of PFFL."""
    if not (job.method.approaches_saddle and job.engine == "local"):
        return 0
    return math.ceil((job.method.planned_rounds or 0) / GAPS_SHOWN)


def recertify(
    record: RunRecord, request: Request, engine: Engine | None = None
) -> tuple[Certificate, Path]:
    """Certify a run again, write it into its directory, and say where.

    What speaks of the rows of the run takes the place of what was there: evidence,
    result, certificate and page never contradict each other. What speaks of other rows
    gets files of its own.
    """
    edited = [m for m in record.mismatches if m.startswith((EVIDENCE, MODEL))]
    if edited:
        raise ArtefactError(f"'{record.directory}' cannot be certified: {edited[0]}")
    found = examine(record, engine, request)
    remarks = [f"not verified: {text}." for text in record.mismatches]
    found = replace(found, notes=list(dict.fromkeys([*remarks, *found.notes])))
    certificate, name = verdict.certificate(found), CERTIFICATE
    with lock(record.directory) as place:
        if found.data.other or request.splits is not None:
            other = "-".join(request.splits or ())
            if found.data.other:
                other = str(found.data.fingerprint)[:8]
            name = f"certificate-{other}.json"
            place.add(f"evidence-{other}.json", json_text(found.as_dict()).encode())
            place.add(name, json_text(certificate.as_dict()).encode())
        else:
            place.update(found)
            if (record.directory / REPORT).is_file():
                write_report(place)
    return certificate, record.directory / name
