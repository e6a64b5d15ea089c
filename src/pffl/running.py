"""A run in its directory: trained, saved with its page, and certified again later.

And models of others: read beside their data, audited, and saved to be verified.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pffl import files, records
from pffl._audit import Audit, Audited, read_coefficients, with_probabilities
from pffl._report.page import write_report
from pffl._solve import solve
from pffl.callbacks import Callback
from pffl.config import (
    APART,
    DataSource,
    Job,
    RunSpec,
    about_section,
    constraint_sections,
    dumps,
    set_apart,
)
from pffl.constraints import AUTO, settled
from pffl.data.federation import Federation
from pffl.data.reading import read_table
from pffl.data.schema import Schema
from pffl.data.table import TableOptions
from pffl.errors import ArtefactError, DataError, UsageError
from pffl.evidence.conclude import conclude
from pffl.evidence.looks import Looks
from pffl.evidence.record import About, Evidence, Training
from pffl.files import digest
from pffl.log import SPEC as STOPPED
from pffl.log import Log
from pffl.models.model_file import read_model
from pffl.models.predictor import Predictor
from pffl.runs.directory import (
    CERTIFICATE,
    EVIDENCE,
    MODEL,
    REPORT,
    RESULT,
    SPEC,
    RunDirectory,
    load,
    lock,
    read_evidence,
    read_manifest,
)
from pffl.solution import Solution

GAPS_SHOWN = 20  # times the gap is measured in a run of known length


def run(
    job: Job[Any],
    place: RunDirectory,
    *,
    callbacks: Sequence[Callback] = (),
    report: bool = True,
    say: Callable[[str], object] = lambda text: None,
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
    say
        Told where a run that was stopped goes on, and what takes its time before it.
    """
    fresh = not (place.directory / STOPPED).exists()
    checkpoint, seed = Log(place.directory), job.seed
    if checkpoint.seed is not None:
        seed = checkpoint.seed
        say(f"going on after message {checkpoint.messages}")
    seed = secrets.randbits(32) if seed is None else seed
    if job.constraint is not None and job.constraint.open:
        say("choosing the bound on training rows that are set aside")
    text = job.dump(place.directory, seed=seed)
    place.begin(text)
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
            about=job.about,
            secure_sum=job.secure_sum,
            privacy=job.privacy.terms,
        )
        looks = Looks.of(place.directory)
        solution = replace(solution, evidence=looks.counted(solution.evidence))
        place.save(solution, text)
        if solution.status != "interrupted":
            write_report(place, solution.conclusions, page=report)
        if solution.status != "interrupted" or not checkpoint.messages:
            checkpoint.remove()
    except BaseException:
        if fresh and checkpoint.messages < 2:  # rows were counted at most
            checkpoint.remove()
        raise
    return solution


def gap_every(job: Job[Any]) -> int:
    """Rounds between two measurements of the gap: about twenty in a run of PFFL."""
    if not (job.method.saddle and job.engine == "local"):
        return 0
    return math.ceil((job.method.planned_rounds or 0) / GAPS_SHOWN)


def describe(directory: Path, about: About) -> Evidence:
    """State purpose, owner, date of a run or an audit, in all files that have them.

    Nothing that was measured changes. What was stated before and is not stated now
    stays.
    """
    known = read_manifest(directory).get(EVIDENCE)
    if known != digest(files.read(directory / EVIDENCE)):
        raise ArtefactError(
            f"[changed-file] '{directory}': {EVIDENCE} was changed after the run"
        )
    evidence = read_evidence(directory)
    evidence = replace(evidence, about=evidence.about.with_more(about))
    found = conclude(evidence)
    with lock(directory, finished=True) as place:
        place.add(EVIDENCE, files.json_text(evidence.as_dict()).encode())
        if (directory / CERTIFICATE).is_file():  # it has the date
            place.add(CERTIFICATE, files.json_text(found.certified()).encode())
        if (directory / SPEC).is_file():
            sections = records.read_toml(directory / SPEC)
            sections["about"] = about_section(evidence.about)
            place.add(SPEC, dumps(sections).encode())
        write_report(place, found, page=(directory / REPORT).is_file())
    return evidence


# Models of others


def open_model(
    path: Path, source: DataSource, id: str | None = None, column: str | None = None
) -> tuple[Audited, Federation]:
    """Read a model from elsewhere, and open the data that it is to be measured on.

    Parameters
    ----------
    path
        A run directory, a model.safetensors, coefficients, or a table of predicted
        probabilities.
    source
        The data.
    id, column
        Of predictions: the column that joins them to rows, and the one to use.
    """
    if not path.exists():
        raise ArtefactError(f"[file-missing] '{path}' does not exist")
    if path.is_dir() or path.suffix == ".safetensors":
        predictor = read_model(path / MODEL if path.is_dir() else path)
        federation = _rows_for(predictor, source)
        return _ours(path, predictor, federation.schema), federation
    first = read_table(path)[0].columns
    if str(first[0]).lower() in ("feature", "features", "name"):
        federation = source.open()
        audited = read_coefficients(path, federation.schema)
        return replace(audited, notes=(_named(path), *audited.notes)), federation
    options: dict[str, Any] = {"name": source.name, **source.values}
    table = options.pop("path", None)
    if not isinstance(table, str):
        raise UsageError(
            "[needs-rows] predicted probabilities are joined to the rows of a table: "
            "give the data as a CSV or Parquet file"
        )
    known = options.get("id")
    joined = id or (known if known in first else None)
    options.pop(APART, None)
    federation = with_probabilities(table, path, options, id=joined, column=column)
    federation = set_apart(federation, source.values)
    return Audited.by_probabilities(federation, (_named(path),)), federation


def _named(path: Path) -> str:
    return f"the model audited: '{path.name}'"


def _rows_for(predictor: Predictor, source: DataSource) -> Federation:
    """Open data for a model of ours: a table is read as the one it was trained on."""
    table, encoding = source.values.get("path"), predictor.preparation
    names = [column.name for column in encoding.columns]
    # Files of pffl 0.1.0 know names of inputs only, not the categories behind them.
    coded = any("=" in name for name in names)
    if not isinstance(table, str) or (coded and not _has(table, names)):
        return source.open()
    ours = ("path", APART)
    options: Any = {k: value for k, value in source.values.items() if k not in ours}
    federation = Federation.alike(
        table,
        encoding,
        TableOptions(**options),
        unseen=options.get("unseen"),
        name=source.name,
    )
    return set_apart(federation, source.values)


def _in_numbers(constraint: Any, model: Path, predictor: Predictor) -> Any:
    """Return a run's constraint with bounds on losses as its run found them."""
    if isinstance(constraint, Mapping):
        bound = constraint.get("bound")
        numbers = bound.values() if isinstance(bound, Mapping) else [bound]
        if AUTO not in numbers:
            return constraint
        found = zip(predictor.cells, predictor.bounds.tolist(), strict=True)
        return {**constraint, "bound": dict(found)}
    run = read_evidence(model).training
    choice = run.choice if isinstance(run, Training) else None
    if choice is None:
        return constraint
    return [
        {**part, "bound": settled(part["bound"], choice.bound)}
        if "bound" in part
        else part
        for part in constraint
    ]


def as_trained(model: Path, sections: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in what a model of ours knows of a table: label, groups, silos, bounds.

    Parameters
    ----------
    model
        A run directory or a file of a predictor; of other models nothing is known.
    sections
        A run file, of which some is not said.
    """
    out = {**sections}
    given: Any = out.get("data", {})
    if not (model.is_dir() or model.suffix == ".safetensors"):
        return out
    folder = model if model.is_dir() else model.parent
    whole = (model.is_dir() or model.name == MODEL) and (folder / SPEC).is_file()
    run = records.read_toml(folder / SPEC) if whole else {}
    first: dict[str, Any] = dict(run.get("data", {}))
    predictor = read_model(folder / MODEL if model.is_dir() else model)
    if "path" in given:
        if first.pop("path", None) is None:
            known = predictor.preparation
            groups = [attribute.name for attribute in known.schema.attributes]
            first = {"label": known.label, "group": groups}
            first |= {} if known.schema.labels else {"classification": False}
        first.pop("name", None)
        out["data"] = {**first, **given}
    elif first.get("name", "") == given.get("name"):
        out["data"] = {**first, **given}
    if not out.get("constraint") and "constraint" in run:
        out["constraint"] = _in_numbers(run["constraint"], folder, predictor)
    return out


def _has(table: str, names: Sequence[str]) -> bool:
    return set(names) <= set(map(str, read_table(table)[0].columns))


def _ours(path: Path, predictor: Predictor, schema: Schema) -> Audited:
    """Return a model that was saved here; of a run also what it was trained on."""
    directory = path if path.is_dir() else path.parent
    if predictor.schema.features != schema.features:
        raise DataError("[other-inputs] the model and the data have different inputs")
    if predictor.schema.labels != schema.labels:
        raise DataError("[other-labels] the model and the data have different labels")
    audited = Audited.of(predictor)
    if not (directory / RESULT).is_file():
        return audited
    record = load(directory)
    facts: Any = record.result.get("data", {})
    notes = tuple(f"not verified: {text}." for text in record.mismatches)
    return replace(
        audited,
        trained_on=facts.get("fingerprint"),
        notes=notes,
        looks=Looks(own=record.looks.own),
        evidence=record.evidence if (directory / EVIDENCE).is_file() else None,
    )


def save_audit(found: Audit, spec: RunSpec, place: RunDirectory) -> None:
    """Write what was found, and the run file that opens the same data again."""
    promised = spec.constraint if found.evidence.promise else None
    sections = {
        **spec.data.sections(place.directory),
        "constraint": constraint_sections(promised),
        "run": {"engine": spec.settings.engine, **asdict(spec.options)},
        "about": about_section(spec.about),
    }
    found = replace(found, evidence=replace(found.evidence, about=spec.about))
    place.save_audit(found, dumps(sections))
    write_report(place, found.conclusions)
