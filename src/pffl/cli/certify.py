"""`pffl certify`: say in plain words what holds for the model of a run directory."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import console
from pffl.cli.options import build

if TYPE_CHECKING:
    from pffl.evidence.certificate import Certificate
    from pffl.spec import RunSpec

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
        job = build(spec_of(directory, data))
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


def spec_of(directory: Path, data: str | None) -> RunSpec:
    """Read the run file of a directory, with other data where they are given.

    Another table is read with the options of the first one.
    """
    from pffl.cli.draft import SPEC, TYPED, named
    from pffl.errors import UsageError
    from pffl.records import read_toml
    from pffl.spec import parse

    path = directory / SPEC
    sections: dict[str, Any] = {}
    if path.is_file():
        sections = read_toml(path)
    base, source = directory, str(path)
    if data is not None:
        given, origin, folder = named(data)
        section = given.get("data", {})
        if origin == TYPED and "path" in section:
            old = _table_options(sections.get("data"))
            section = {**old, "path": str(Path(data).resolve())}
        elif section == {"name": _name(sections.get("data"))}:
            section = sections["data"]  # the same data set, with the run's own options
        elif folder != Path():
            section = _from_here(section, folder)
        sections["data"] = section
    elif not sections:
        raise UsageError(f"'{path}' is missing: say where the data are")
    return parse(sections, source=source, base=base)


def _name(section: object) -> object:
    return section.get("name") if isinstance(section, Mapping) else None


def _table_options(section: object) -> dict[str, Any]:
    """Options of a table, without the place of the table."""
    from pffl.errors import UsageError

    if not isinstance(section, Mapping) or "path" not in section:
        raise UsageError(
            "the run was on a data set, so a table says too little: give a run file "
            "(.toml) whose [data] names its columns"
        )
    return {key: value for key, value in section.items() if key != "path"}


def _from_here(section: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a [data] section of a file in another folder, with full paths."""
    path = section.get("path")
    if isinstance(path, str):
        return {**section, "path": str((folder / path).resolve())}
    if isinstance(path, Mapping):
        full = {silo: str((folder / one).resolve()) for silo, one in path.items()}
        return {**section, "path": full}
    return dict(section)
