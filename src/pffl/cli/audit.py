"""`pffl audit`: measure and certify a model that was trained elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import console
from pffl.cli.certify import CERTIFICATE, Candidates, Fresh, Require, insist
from pffl.cli.draft import Draft
from pffl.cli.options import takes

if TYPE_CHECKING:
    from pffl.data import Federation
    from pffl.foreign import Audit, Audited
    from pffl.spec import RunSpec

MODEL_HELP = (
    "A run directory, a model.safetensors, coefficients (JSON, npz or CSV with "
    "feature, coef), or a CSV of predicted probabilities."
)


def _model_first(command: Callable[..., None]) -> Callable[..., None]:
    """Ask for MODEL before DATA."""
    given = inspect.signature(command)
    names = sorted(given.parameters, key=lambda name: name != "model")
    parameters = [given.parameters[name] for name in names]
    command.__signature__ = given.replace(  # type: ignore[attr-defined]
        parameters=parameters
    )
    return command


@_model_first
@takes("data", "constraint", "run")
def audit(
    draft: Draft,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    id: Annotated[
        str | None,
        typer.Option(
            "--id", help="Column that joins predictions to rows.", metavar="COLUMN"
        ),
    ] = None,
    probability: Annotated[
        str | None,
        typer.Option(help="Column of the predictions to use.", metavar="COLUMN"),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(help="Rows to use; may be repeated. Default: all.", metavar="S"),
    ] = None,
    require: Require = None,
    candidates: Candidates = None,
    fresh_split: Fresh = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for certificate, evidence, model and spec.toml, to verify."
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the certificate as JSON only.")
    ] = False,
) -> None:
    """Measure and certify a model that we did not train, silo by silo.

    Nothing is trained, and no code is loaded. Bounds are optional (--bound).

    Example: pffl audit model.json people.csv --label y --group sex --silo site
    """
    from pffl.cli import show
    from pffl.engines import ENGINES
    from pffl.foreign import audit as audit_model

    draft, bounded = _bounded(draft)
    spec = draft.check()
    audited, federation = opened(model, spec, id=id, probability=probability)
    found = audit_model(
        audited,
        ENGINES[spec.settings.engine](federation),
        spec.constraint,
        promise=bounded,
        splits=tuple(split) if split else None,
        options=spec.options,
        candidates=candidates or 1,
        fresh_split=bool(fresh_split),
    )
    certificate = found.certificate
    if out is not None:
        _save(found, spec, out, bounded=bounded)
    if json:
        console.print_json(certificate.as_dict())
    else:
        show.certificate(console.stdout(), certificate)
        if out is not None:
            console.stdout().print(f"Saved in {out / CERTIFICATE}", soft_wrap=True)
    insist(certificate, require)


def _bounded(draft: Draft) -> tuple[Draft, bool]:
    """Let a constraint without a bound name the cells that are reported on."""
    return draft.with_a_bound() if draft.sections.get("constraint") else (draft, False)


def opened(
    path: Path, spec: RunSpec, *, id: str | None, probability: str | None
) -> tuple[Audited, Federation]:
    """Read a model, and open the data that it is to be measured on."""
    from pffl.errors import ArtefactError
    from pffl.foreign import Audited, Probabilities, read_coefficients

    if not path.exists():
        raise ArtefactError(f"'{path}' does not exist")
    if path.is_dir() or path.suffix == ".safetensors":
        federation = spec.data.open()
        return _ours(path, federation), federation
    if path.suffix in (".json", ".npz") or _names_coefficients(path):
        federation = spec.data.open()
        model, w, notes = read_coefficients(path).bind(federation.schema)
        return Audited(model, w, notes=notes), federation
    federation = _predicted(path, spec, id=id, probability=probability)
    blank = Probabilities()
    bound = blank.bind(federation.schema, blank.inputs)
    return Audited(bound, bound.start(0)), federation


def _ours(path: Path, federation: Federation) -> Audited:
    """A model that `pffl` saved; in a run directory also what it was trained on."""
    from pffl import runs
    from pffl.errors import DataError
    from pffl.foreign import Audited
    from pffl.runs.directory import MODEL, RESULT

    directory = path if path.is_dir() else path.parent
    saved = runs.read_model(path / MODEL if path.is_dir() else path)
    if saved.schema.features != federation.schema.features:
        raise DataError("the model and the data have different inputs")
    if saved.schema.labels != federation.schema.labels:
        raise DataError("the model and the data have different labels")
    trained_on: str | None = None
    notes: tuple[str, ...] = ()
    if (directory / RESULT).is_file():
        record = runs.load(directory)
        facts: Any = record.result.get("data", {})
        trained_on = facts.get("fingerprint")
        notes = tuple(f"not verified: {text}." for text in record.mismatches)
    return Audited(saved.model, saved.w, trained_on, notes)


def _names_coefficients(path: Path) -> bool:
    """Whether a table holds coefficients: its first column is called feature."""
    from pffl.data.reading import read_table

    frame, _ = read_table(path)
    return str(frame.columns[0]).lower() in ("feature", "features", "name")


def _predicted(
    path: Path, spec: RunSpec, *, id: str | None, probability: str | None
) -> Federation:
    from pffl.errors import UsageError
    from pffl.foreign import with_probabilities

    options = dict(spec.data.values)
    table = options.pop("path", None)
    if not isinstance(table, str):
        raise UsageError(
            "predicted probabilities are joined to the rows of a table: give the data "
            "as a CSV or Parquet file"
        )
    options.setdefault("name", spec.data.name)
    known: Any = options.get("id")
    joined = id or (known if _has_column(path, known) else None)
    return with_probabilities(table, path, options, id=joined, column=probability)


def _has_column(path: Path, name: object) -> bool:
    from pffl.data.reading import read_table

    return name is not None and name in read_table(path)[0].columns


def _save(found: Audit, spec: RunSpec, directory: Path, *, bounded: bool) -> None:
    """Write what was found, and the run file that opens the same data again."""
    from dataclasses import asdict

    from pffl import runs
    from pffl.spec import constraint_sections, dumps

    sections = {
        "data": spec.data.sections(directory),
        "constraint": constraint_sections(spec.constraint if bounded else None),
        "run": {"engine": spec.settings.engine, **asdict(spec.options)},
    }
    with runs.lock(directory) as place:
        place.save_audit(found, dumps(sections))
