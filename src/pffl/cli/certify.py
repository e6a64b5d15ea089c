"""`pffl certify`: say in plain words what holds for the model of a run directory."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console
from pffl.cli.options import build

if TYPE_CHECKING:
    from pffl.evidence.certificate import Certificate

CERTIFICATE = "certificate.json"


class Required(StrEnum):
    """What a caller may insist on."""

    empirical = "empirical"
    holdout = "holdout"


Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="A run directory, as `pffl run` left it.")
]
Require = Annotated[
    Required | None,
    typer.Option(help="End with exit code 4 unless this holds: empirical or holdout."),
]
Candidates = Annotated[
    int | None,
    typer.Option(
        min=1, help="How many models were compared on the held-out rows before."
    ),
]
Fresh = Annotated[
    bool | None,
    typer.Option("--fresh-split", help="The held-out rows were not looked at before."),
]


def certify(
    directory: Directory,
    confidence: Annotated[
        float | None,
        typer.Option(help="Of statements on unseen people. Default: the run's."),
    ] = None,
    require: Require = None,
    cell: Annotated[
        str | None,
        typer.Option(help="Cell whose smallest possible bound is wanted.", metavar="C"),
    ] = None,
    target_gap: Annotated[
        float | None, typer.Option(help="Duality gap to judge by and to plan for.")
    ] = None,
    feature_bound: Annotated[
        float | None,
        typer.Option(help="Bound on the length of everyone's scaled inputs."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="The rows that stand for unseen people. Default: test."),
    ] = None,
    candidates: Candidates = None,
    fresh_split: Fresh = None,
    data: Annotated[
        str | None, typer.Option(help="Other data: a file, a data set or a run file.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print certificate.json, and nothing else.")
    ] = False,
) -> None:
    """Say what holds for a model: on its rows, for unseen people, at best.

    Writes certificate.json into the run directory, from what the run measured; only
    --cell, --target-gap, --feature-bound, --split and --data open the data again. With
    --require, ends with exit code 4 unless the bounds hold on the training rows
    (empirical) or for unseen people (holdout).

    Example: pffl certify runs/compas-001 --require holdout
    """
    from pffl import runs
    from pffl.certifying import Request
    from pffl.cli import show
    from pffl.running import recertify
    from pffl.solving import open_engine
    from pffl.spec import of_run

    record = runs.load(directory)
    for problem in record.mismatches:
        console.note(f"not verified: {problem}")
    request = Request(
        confidence=confidence,
        candidates=candidates,
        fresh_split=fresh_split,
        splits=None if split is None else (split,),
        feature_bound=feature_bound,
        target_gap=target_gap,
        cell=cell,
    )
    engine = None
    if request.needs_rows or data is not None:
        job = build(of_run(directory, data))
        engine = open_engine(job.federation, job.engine)
    certificate, path = recertify(record, request, engine)
    if json:
        console.print_json(certificate.as_dict())
    else:
        show.certificate(console.stdout(), certificate)
        console.show(f"Saved in {path}")
    insist(certificate, require)


def insist(certificate: Certificate, require: Required | None) -> None:
    """Raise unless what is required holds."""
    from pffl.errors import NotMetError

    if require is None or certificate.holds(require.value):
        return
    found = certificate.of_kind(require.value)
    reason = found[0].text if found else "there is no such statement"
    raise NotMetError(f"'{require.value}' is required and not shown: {reason}")
