"""`pffl predict`, `audit`, `verify`, `monitor`: a model that is there, on rows."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pffl.cli import options, terminal
from pffl.cli.options import COLUMNS, Draft, argument, flag, option, takes
from pffl.errors import ArtefactError, PFFLError, UsageError

if TYPE_CHECKING:
    from pffl._monitor import Monitor

AUDITS = "audits"  # where they are written

SAVED = argument("MODEL", "A run directory or a model file.")
TABLE = (
    "A table with the columns that the model was trained on (CSV, Parquet, …); label "
    "and groups may be there or not."
)
LATER = "Tables with inputs, groups and labels of people who came later: a batch each."
VERIFIED = (
    "Rows that --export wrote; or a file, a data set or a run file. Default: the data "
    "of the run file in RUN."
)


def predict(
    model: Path = SAVED,
    rows: Path = argument("ROWS", TABLE),
    out: Path | None = option(
        "A new CSV file. Default: stdout.", "FILE", "--out", "-o"
    ),
    keep: list[str] | None = option("Column to write with scores; repeatable.", "NAME"),
) -> None:
    """Score new rows with a saved model: prediction, and probability of each class.

    Rows are read and written in pieces, so that a file may have any size. A row that
    cannot be read ends it with exit code 3, and no file is written.

    Example: pffl predict runs/people-001 new.csv -o scores.csv --keep id
    """
    from pffl import load
    from pffl.models.predictor import score_file
    from pffl.solution import Result

    target = sys.stdout.buffer if out is None else out
    try:
        saved = load(model)
        own = saved.predictor if isinstance(saved, Result) else saved
        found = score_file(own, rows, target, keep=keep or ())
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the scores has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    if out is not None:
        terminal.note(f"{found:,} rows scored: {out}")


@takes(
    *(name for name in COLUMNS if name != "missing"),
    *("constraint", "bound"),
    unused="model.* method.* privacy.* policy.* run.certify run.models run.radius "
    "run.selection_rate run.smallest_bound run.seed",
)
def audit(
    draft: Draft,
    model: Path = argument(
        "MODEL", "A run, model file, coefficients or probabilities."
    ),
    certify: str | None = option(
        "Exit code 4 unless certified (0.95).", "[CONFIDENCE]"
    ),
    split: list[str] | None = option("Rows to use; repeatable. Default: all.", "S"),
    clip: float | None = option("Keep its outputs within P and 1 − P.", "P"),
    p_min: float | None = option("Declare that none is below P.", "P"),
    threshold: float | None = option("Probability above which to select.", "NUMBER"),
    out: Path | None = option("Folder. Default: audits/NAME-001, …"),
    json: bool = options.JSON,
    verbose: bool = options.VERBOSE,
) -> None:
    """Measure and certify any model on any rows: losses and errors per group.

    Coefficients are a table (feature, coef). A loss without a bound is
    certified with --clip or --p-min alone. Exit code 4: a group is above its bound.

    Example: pffl audit probabilities.csv people.csv --label y --group sex
    """
    from pffl import runs
    from pffl._audit import as_trained, open_model, save_audit
    from pffl._audit import audit as audit_model
    from pffl.cli.run import print_result
    from pffl.engines import ENGINES
    from pffl.evidence.looks import Looks

    if certify is not None:
        draft = draft.certified(certify)
    draft = replace(draft, sections=as_trained(model, draft.sections))
    bounded = False
    if draft.sections.get("constraint"):  # one without a bound only names cells
        draft, bounded = draft.with_a_bound()
    spec = draft.check()
    with runs.lock(out or runs.make_next(AUDITS, spec.data.name)) as held:
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
            threshold=threshold,
        )
        save_audit(found, spec, held)
    print_result(found.conclusions, held.directory, json=json, verbose=verbose)
    found.certificate.insist(None if certify is None else "holdout")
    raise typer.Exit(found.conclusions.exit_code)


def verify(
    path: Path | None = argument("[RUN]", "A run's folder, or its report.html.", None),
    data: str | None = argument("[ROWS]", VERIFIED, None),
    export: Path | None = option("Write the rows, prepared, to an .npz file and stop."),
    script: Path | None = option("Write the verifier, one file that needs no pffl."),
    model: Path | None = option("Of an audit: the predictions, one per row."),
    arithmetic: bool = flag("Check by recorded sums; open no data.", "--arithmetic"),
    json: bool = options.JSON,
) -> None:
    """Compute again what a run claims, and say whether it follows from its rows.

    Without rows the word is *consistent*: the conclusions follow from the recorded
    sums, and the sums were not checked. With rows it is *verified against rows*. No
    file can show who wrote it, that bounds, seed and settings were fixed before test
    rows were seen, what was tried elsewhere, how a model was trained, or who the rows
    are about. Ends with exit code 6 if something does not agree.

    Example: pffl verify runs/compas-001
    """
    from pffl import _verify
    from pffl.text import visible
    from pffl.verification import check_run, open_rows

    if script is not None:
        script.write_text(Path(_verify.__file__).read_text("utf-8"), encoding="utf-8")
        terminal.show(f"Verifier written to {script}: python {script} RUN [ROWS]")
        return
    if path is None:
        raise UsageError("nothing-to-verify")
    if path.is_file() and path.suffix not in (".html", ".json"):
        raise UsageError("no-run:verify", path=path)
    if export:
        open_rows(path, data, model)[0].export(export)
        terminal.show(f"Rows written to {export}")
        return
    if arithmetic and (data or model):
        raise UsageError("options-conflict:verify")
    rows: Any = data if data and data.endswith(".npz") else None
    audited = None
    if rows is None and not arithmetic and (data or path.suffix != ".html"):
        try:
            rows, audited = open_rows(path, data, model)
        except PFFLError as error:
            if data is not None or isinstance(error, ArtefactError):
                raise
            warnings.warn(f"not checked by rows: {error}", stacklevel=1)
    checks = check_run(path, rows, audited)
    wrong = [check for check in checks if not check.agrees]
    if json:
        terminal.print_json([vars(check) for check in checks])
        raise typer.Exit(6 if wrong else 0)
    target = terminal.stdout()
    for check in checks:
        if check.note or not check.agrees:
            style = "" if check.agrees else "red"
            target.print(visible(str(check)), style=style, soft_wrap=True)
    style = terminal.STYLES["bad" if wrong else "good"]
    target.print(_verify.judged(checks), style=style, soft_wrap=True)
    raise typer.Exit(6 if wrong else 0)


def monitor(
    model: Path = SAVED,
    rows: list[Path] = argument("ROWS...", LATER),
    state: Path | None = option(
        "Where batches are counted (RUN/monitor.json).", "FILE"
    ),
    confidence: float | None = option("Of no false alarm, ever (0.95); set once."),
    bound: list[str] | None = option("Not the model's; or GROUP=NUMBER.", "NUMBER"),
    id: str | None = option("Person identifier. Default: the run's.", "COLUMN"),
    json: bool = options.JSON,
) -> None:
    """Watch a model in use: an alarm where a group's mean loss is above its bound.

    Every call adds a batch of new rows, with labels, to what was counted before. Exit
    code 4: a group has an alarm. No alarm is no proof that bounds are kept.

    Example: pffl monitor runs/people-001 march.csv
    """
    from pffl._monitor import STATE
    from pffl._monitor import monitor as count
    from pffl.data.read import read_table
    from pffl.records import read_toml
    from pffl.runs import SPEC, run_of

    folder = run_of(model)
    nearby = model.with_suffix(".monitor.json")
    path = state or (nearby if folder is None else folder / STATE)
    limits, run = options.bound(bound) if bound else None, dict[str, Any]()
    if folder is not None and (folder / SPEC).is_file():
        run = read_toml(folder / SPEC).get("data", {})
    for place in rows:
        frame, notes = read_table(place)
        known = run.get("id") if run.get("id") in frame.columns else None
        found = count(
            model,
            frame,
            state=path,
            bound=limits,
            confidence=confidence,
            id=id or known,
            name=place.name,
        )
        for note in (*notes, *found.notes):
            terminal.note(note)
    if json:
        terminal.print_json(found.as_dict())
    else:
        _show_monitor(found, path)
    raise typer.Exit(found.exit_code)


def _show_monitor(found: Monitor, path: Path) -> None:
    from pffl._monitor import ASSUMPTIONS
    from pffl.text import few

    terminal.print_rows(found.shown)
    notes = [f"assumed: {text}" for text in ASSUMPTIONS]
    if unwatched := found.settings.unwatched:
        notes.insert(0, f"not watched: {few(unwatched)}")
    terminal.print_remarks(notes)
    word, tone = ("▲ ALARM", "bad") if found.alarms else ("NO ALARM", "plain")
    terminal.stdout().print(f"\n{word}", style=terminal.STYLES[tone])
    terminal.show(found.message, f"State: {path} (digest {found.digest[:12]})")
