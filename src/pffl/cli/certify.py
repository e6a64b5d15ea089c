"""`pffl certify`, `verify`, `audit`: what holds for a model, checked, or of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import console
from pffl.cli.options import Draft, Verbose, build, takes
from pffl.errors import UsageError

if TYPE_CHECKING:
    from pffl.evidence.verify import Check

AUDITS = "audits"  # where they are written
WHOLE = {"test_fraction": 0.0, "validation_fraction": 0.0}
MODEL_HELP = (
    "A run directory, a model.safetensors, coefficients (JSON, npz or CSV with "
    "feature, coef), or a CSV of predicted probabilities."
)


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
Id = Annotated[
    str | None,
    typer.Option(
        "--id", help="Column that joins predictions to rows.", metavar="COLUMN"
    ),
]
Probability = Annotated[
    str | None,
    typer.Option(help="Column of the predictions to use.", metavar="COLUMN"),
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
        float | None, typer.Option(help="Duality gap to judge by.")
    ] = None,
    weight_bound: Annotated[
        float | None,
        typer.Option(help="What no row's weight is above, where rows have weights."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="The rows that stand for unseen people. Default: test."),
    ] = None,
    candidates: Candidates = None,
    data: Annotated[
        str | None, typer.Option(help="Other data: a file, a data set or a run file.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print certificate.json, and nothing else.")
    ] = False,
) -> None:
    """Say what holds for a model: on its rows, for unseen people, at best.

    Writes certificate.json into the run directory, from what the run measured; only
    --cell, --weight-bound, --split and --data open the data again.
    With --require, ends with exit code 4 unless the bounds hold on the training rows
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
        splits=None if split is None else (split,),
        target_gap=target_gap,
        weight_bound=weight_bound,
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
    certificate.insist(None if require is None else require.value)


def verify(
    path: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A run directory, or a certificate in it."),
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[ROWS]",
            help="Rows that --export wrote; or a file, a data set or a run file. "
            "Default: the data of the run file in DIR.",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write the rows, prepared, to a .csv or .npz; check nothing."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Of an audit: the predictions, to be joined to the rows."),
    ] = None,
    id: Id = None,
    probability: Probability = None,
    arithmetic: Annotated[
        bool,
        typer.Option("--arithmetic", help="Check by evidence alone; open no data."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the checks as JSON, nothing else.")
    ] = False,
) -> None:
    """Compute every number again, from the rows and from evidence alone.

    The code that does it is one file, pffl/evidence/verify.py, which uses nothing else
    of pffl and runs without it: python verify.py DIR rows.csv. Ends with exit code 6
    if something does not agree.

    Example: pffl verify runs/compas-001
    """
    from tempfile import TemporaryDirectory

    from pffl.evidence.verify import SKIPPED
    from pffl.running import export_rows, recompute

    options: Any = {"data": data, "model": model, "id": id, "column": probability}
    if export:
        export_rows(path, export, **options)
        console.show(f"Rows written to {export}")
        return
    if arithmetic and any(options.values()):
        raise UsageError(
            "[options-conflict] --arithmetic opens no data: leave out ROWS and --model"
        )
    with TemporaryDirectory() as place:
        checks = recompute(path, None if arithmetic else Path(place), **options)
    wrong = [check for check in checks if not check.agrees]
    if json:
        console.print_json([vars(check) for check in checks])
    else:
        left_out = [check for check in checks if check.what.startswith(SKIPPED)]
        _tell(left_out + wrong, len(checks), len(wrong))
    raise typer.Exit(6 if wrong else 0)


def _tell(shown: Sequence[Check], every: int, wrong: int) -> None:
    from rich.text import Text

    from pffl.text import visible

    target = console.stdout()
    for check in shown:
        style = "" if check.agrees else "red"
        target.print(Text(visible(str(check)), style=style), soft_wrap=True)
    bad = Text(f"NOT VERIFIED: {wrong} of {every} do not agree", "bold red")
    good = Text(f"VERIFIED: all {every} numbers and texts agree", "bold green")
    target.print(bad if wrong else good)


@takes(
    "data",
    "constraint",
    "run",
    "about",
    without="radius error-at-most reach promise models",
)
def audit(
    draft: Draft,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    probability: Probability = None,
    split: Annotated[
        list[str] | None,
        typer.Option(help="Rows to use; may be repeated. Default: all.", metavar="S"),
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Audit the model with its probabilities kept within P and 1 − P.",
        ),
    ] = None,
    p_min: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Declare, without a look at these rows, that the model's own "
            "probabilities are never below P; a row with one that is, is refused.",
        ),
    ] = None,
    require: Require = None,
    candidates: Candidates = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for what was found. Default: the next free audits/NAME-001."
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the certificate as JSON only.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Measure and certify a model that we did not train: losses and errors per group.

    Nothing is trained, and no code is loaded. Bounds (--bound) and silos (--silo) are
    optional; of a run, what its run file says holds for new rows, too. The loss of new
    people is certified only with --clip or --p-min, unless the model is a run's: error
    rates always are. Writes a report, a certificate and all to verify them. Ends with
    exit code 4 where a group is above its bound.

    Example: pffl audit probabilities.csv people.csv --label y --group sex
    """
    from pffl import runs
    from pffl.cli.run import told
    from pffl.engines import ENGINES
    from pffl.evidence.looks import Looks
    from pffl.foreign import audit as audit_model
    from pffl.running import as_trained, open_model, save_audit

    sections = as_trained(model, draft.sections)
    data = sections.get("data", {})
    ours = model.is_dir() or model.suffix == ".safetensors"
    typed = draft.sections.get("data", {})
    # All rows are judged alike, but those that a model of ours was trained on.
    whole = "path" in data and not (split or "test_fraction" in typed)
    if whole and not ours:
        sections["data"] = {**data, **WHOLE}
    draft = replace(draft, sections=sections)
    bounded = False
    if draft.sections.get("constraint"):  # one without a bound only names cells
        draft, bounded = draft.with_a_bound()
    spec = draft.check()
    id = spec.data.values.get("id")
    joined = id if isinstance(id, str) else None
    place = runs.lock_next(AUDITS, spec.data.name) if out is None else runs.lock(out)
    with place as held:
        audited, rows = open_model(model, spec.data, id=joined, column=probability)
        if whole and rows.fingerprint != audited.trained_on and len(rows.splits) > 1:
            values = {**spec.data.values, **WHOLE}
            spec = replace(spec, data=replace(spec.data, values=values))
            audited, rows = open_model(model, spec.data)
        looks = audited.looks.after(Looks.of(held.directory))
        found = audit_model(
            replace(audited, looks=looks),
            ENGINES[spec.settings.engine](rows),
            spec.constraint,
            promise=bounded,
            splits=tuple(split) if split else None,
            options=spec.options,
            clip=clip,
            p_min=p_min,
            candidates=candidates or 1,
        )
        save_audit(found, spec, held)
    certificate = found.certificate
    if json:
        console.print_json(certificate.as_dict())
    told(found.conclusions, held.directory, aside=json, verbose=verbose)
    certificate.insist(None if require is None else require.value)
    raise typer.Exit(found.conclusions.exit_code)
