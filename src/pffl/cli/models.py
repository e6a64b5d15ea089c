"""`pffl audit`, `predict`, `monitor`: a model that is there, on rows."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pffl.cli import console
from pffl.cli.options import COLUMNS, Draft, Json, Verbose, certified, takes

if TYPE_CHECKING:
    from pffl.evidence.monitor import Monitor

AUDITS = "audits"  # where they are written
WHOLE = {"test_fraction": 0.0, "validation_fraction": 0.0}
MODEL_HELP = "A run, model file, coefficients or probabilities."

Saved = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A run directory or a model file.")
]
Id = Annotated[
    str | None,
    typer.Option("--id", help="Joins predictions to rows.", metavar="COLUMN"),
]
Probability = Annotated[
    str | None,
    typer.Option(help="Column of the predictions to use.", metavar="COLUMN"),
]
Unseen = Annotated[
    Literal["refuse", "ignore"] | None,
    typer.Option(help="New categories. Default: as in training.", metavar="HOW"),
]


def predict(
    model: Saved,
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="ROWS",
            help="A table with the columns that the model was trained on (CSV, "
            "Parquet, …); label and groups may be there or not.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="A new file, CSV or Parquet by its ending. Default: CSV on stdout.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of ROWS to write beside the scores; may be repeated.",
        ),
    ] = None,
    unseen: Unseen = None,
) -> None:
    """Score new rows with a saved model: prediction, and probability of each class.

    Rows are read and written in pieces, so that a file may have any size. A row that
    cannot be read ends it with exit code 3, and no file is written.

    Example: pffl predict runs/people-001 new.csv -o scores.csv --keep id
    """
    from pffl import load
    from pffl.models.predictor import score_file

    target = sys.stdout.buffer if out is None else out
    try:
        found = score_file(load(model), rows, target, keep=keep or (), unseen=unseen)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the scores has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    for remark in found.remarks:
        console.note(remark)
    if out is not None:
        console.note(f"{found.rows:,} rows scored: {out}")


@takes(
    *(flag for flag in COLUMNS if flag != "missing"),
    *("constraint", "bound"),
    unused="model.* method.* privacy.* policy.* run.certify run.models run.radius "
    "run.error_at_most run.reach run.seed",
)
def audit(
    draft: Draft,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    certify: Annotated[
        str | None,
        typer.Option(
            help="Exit code 4 unless certified (0.95).",
            metavar="[CONFIDENCE]",
        ),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(help="Rows to use; repeatable. Default: all.", metavar="S"),
    ] = None,
    probability: Probability = None,
    clip: Annotated[
        float | None,
        typer.Option(metavar="P", help="Keep its outputs within P and 1 − P."),
    ] = None,
    p_min: Annotated[
        float | None,
        typer.Option(metavar="P", help="Declare that none is below P."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder. Default: audits/NAME-001, …"),
    ] = None,
    unseen: Unseen = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Measure and certify any model on any rows: losses and errors per group.

    Coefficients are JSON, npz or a CSV (feature, coef). A loss without a bound is
    certified with --clip or --p-min alone. Exit code 4: a group is above its bound.

    Example: pffl audit probabilities.csv people.csv --label y --group sex
    """
    from pffl import runs
    from pffl.cli.run import told
    from pffl.engines import ENGINES
    from pffl.evidence.looks import Looks
    from pffl.foreign import audit as audit_model
    from pffl.running import as_trained, open_model, save_audit

    if unseen is not None:
        draft = draft.where("data.unseen", unseen)
    if certify is not None and (sure := certified(certify).get("run.confidence")):
        draft = draft.where("run.confidence", sure)
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
        )
        save_audit(found, spec, held)
    certificate = found.certificate
    if json:
        console.print_json(certificate.as_dict())
    told(found.conclusions, held.directory, aside=json, verbose=verbose)
    certificate.insist(None if certify is None else "holdout")
    raise typer.Exit(found.conclusions.exit_code)


def monitor(
    model: Saved,
    rows: Annotated[
        list[Path],
        typer.Argument(
            metavar="ROWS...",
            help="Tables with inputs, groups and labels of people who came later: a "
            "batch each.",
        ),
    ],
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where batches are counted. Default: monitor.jsonl in the run.",
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Of no false alarm, ever; set with the first batch. Default: 0.95."
        ),
    ] = None,
    bound: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBER",
            help="Another bound than the model's; or GROUP=NUMBER for each.",
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="COLUMN",
            help="Person identifier. Default: the run's, if there.",
        ),
    ] = None,
    silo: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column that names the silo. Default: the run's, if there.",
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of sample weights. Default: the run's.",
        ),
    ] = None,
    weight_bound: Annotated[
        float | None,
        typer.Option(help="Upper bound on sample weights. Default: the run's."),
    ] = None,
    unseen: Unseen = None,
    json: Json = False,
) -> None:
    """Watch a model in use: an alarm where a group's mean loss is above its bound.

    Every call adds a batch of new rows, with labels, to what was counted before. Exit
    code 4: a group has an alarm. No alarm is no proof that bounds are kept.

    Example: pffl monitor runs/people-001 march.csv
    """
    from pffl.cli.options import bound as read_bound
    from pffl.data.reading import read_table
    from pffl.monitoring import Deployed, default_state
    from pffl.monitoring import monitor as count

    deployed, path = Deployed.of(model), state or default_state(model)
    run, limits = _columns_of(model), read_bound(bound) if bound else None
    for place in rows:
        frame, notes = read_table(place)
        there = list(map(str, frame.columns))
        known = {key: name for key, name in run.items() if name in there}
        found = count(
            deployed,
            frame,
            state=path,
            bound=limits,
            confidence=confidence,
            silo=silo or known.get("silo"),
            id=id or known.get("id"),
            weight=weight,
            weight_bound=weight_bound,
            unseen=unseen,
            name=place.name,
        )
        for note in (*notes, *found.notes):
            console.note(note)
    if json:
        console.print_json(found.as_dict())
    else:
        _show(found, path)
    raise typer.Exit(found.exit_code)


def _columns_of(model: Path) -> dict[str, Any]:
    """Return the columns of silos and ids that the run of a directory had."""
    from pffl.monitoring import run_of
    from pffl.records import read_toml
    from pffl.runs.directory import SPEC

    folder = run_of(model)
    if folder is None or not (folder / SPEC).is_file():
        return {}
    data = read_toml(folder / SPEC).get("data", {})
    return {key: data[key] for key in ("silo", "id") if key in data}


def _show(found: Monitor, path: Path) -> None:
    from rich.text import Text

    from pffl.cli import show
    from pffl.evidence.monitor import assumptions, shown
    from pffl.text import few, visible

    target = console.stdout()
    target.print()
    show.print_whole(target, show.text_rows(shown(found), target.width))
    target.print()
    notes = [f"assumed: {text}" for text in assumptions(found.settings)]
    if found.settings.unwatched:
        notes.insert(0, f"not watched: {few(found.settings.unwatched)}")
    target.print(show.remarks(notes))
    target.print()
    head = Text("▲ ALARM", "bold red") if found.alarms else Text("NO ALARM", "bold")
    target.print(head)
    target.print(Text(visible(found.message)))
    target.print(f"State: {path} (digest {found.digest[:12]})", soft_wrap=True)
