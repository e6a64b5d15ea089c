"""`pffl verify`: compute every number of a certificate again, and say which agree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import console

if TYPE_CHECKING:
    from pffl.certificates import Certificate
    from pffl.data import Federation
    from pffl.runs import RunRecord
    from pffl.spec import RunSpec
    from pffl.verify import Check, ModelRecord


def verify(
    path: Annotated[
        Path, typer.Argument(metavar="CERTIFICATE", help="A certificate.json.")
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="The rows: a file, a data set or a run file. Default: those of the "
            "run file beside the certificate.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="The model, as for `pffl audit`. Default: that beside it."),
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="As for `pffl audit`.", metavar="COLUMN")
    ] = None,
    probability: Annotated[
        str | None, typer.Option(help="As for `pffl audit`.", metavar="COLUMN")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="List also what agrees.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the checks as JSON, nothing else.")
    ] = False,
) -> None:
    """Compute every number again from the model and the rows alone.

    Ends with exit code 6 if something does not agree.

    Example: pffl verify runs/compas-001/certificate.json
    """
    from pffl.cli import statements
    from pffl.cli.audit import opened
    from pffl.cli.certify import spec_of
    from pffl.verify import verify as recompute

    certificate = read_certificate(path)
    spec = spec_of(path.parent, data)
    checks, known = [], {}
    record: ModelRecord
    federation: Federation
    if model is None:
        run = _record(path.parent)
        record, federation = run, spec.data.open()
        checks += _files(run)
        known = declared(run, spec)
    else:
        record, federation = opened(model, spec, id=id, probability=probability)
    checks += recompute(certificate, record, federation, declared=known)
    if json:
        statements.print_json([_plain(check) for check in checks])
    else:
        _tell(checks, every=every)
    raise typer.Exit(0 if all(check.agrees for check in checks) else 6)


def read_certificate(path: Path) -> Certificate:
    """Read a certificate; refuse whatever is not one."""
    import json

    from pffl.certificates import Certificate
    from pffl.errors import ArtefactError

    try:
        plain = json.loads(path.read_bytes())
    except OSError as error:
        raise ArtefactError(f"'{path}' cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"'{path}' is not a certificate: {error}") from error
    return Certificate.from_dict(plain)


def _record(directory: Path) -> RunRecord:
    from pffl import runs
    from pffl.errors import ArtefactError
    from pffl.runs.directory import MODEL

    if not (directory / MODEL).is_file():
        raise ArtefactError(
            f"there is no {MODEL} beside the certificate: name the model (--model)"
        )
    return runs.load(directory)


def _files(record: RunRecord) -> list[Check]:
    """Check the files of the run directory against its manifest (fault 74)."""
    from pffl.verify import Check

    what = "files of the run directory"
    if record.verified:
        return [Check(what, "as left", "as left", True)]
    return [Check(what, "as left", text, False) for text in record.mismatches]


def declared(record: RunRecord, spec: RunSpec) -> dict[str, Any]:
    """Return what the run recorded of itself, to compare a certificate with."""
    from pffl.preparation import prices

    beta, bound = prices(spec.constraint, spec.method)
    result: Mapping[str, Any] = record.result
    known = {
        "risk_weight": beta,
        "multiplier_bound": bound if result.get("cells") else 0.0,
        "radius": spec.options.radius,
        "loss_bound": result.get("loss_bound"),
        "weighting": spec.options.weighting,
        "bounds": {cell["cell"]: cell["bound"] for cell in result.get("cells", [])},
    }
    fingerprint = result.get("data", {}).get("fingerprint")
    return known if fingerprint is None else {**known, "fingerprint": fingerprint}


def _plain(check: Check) -> dict[str, object]:
    return {
        "what": check.what,
        "agrees": check.agrees,
        "stated": _value(check.stated),
        "found": _value(check.found),
        "difference": _value(check.difference),
        "detail": check.detail,
    }


def _value(value: object) -> object:
    import math

    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _tell(checks: list[Check], *, every: bool) -> None:
    from rich.text import Text

    from pffl.cli.console import clean

    target = console.stdout()
    wrong = [check for check in checks if not check.agrees]
    for check in checks if every else wrong:
        style = "" if check.agrees else "red"
        target.print(Text(clean(str(check)), style=style), soft_wrap=True)
    good = len(checks) - len(wrong)
    if wrong:
        summary = Text(f"NOT VERIFIED: {len(wrong)} of {len(checks)} do not agree")
        summary.stylize("bold red")
    else:
        summary = Text(f"VERIFIED: all {good} numbers and texts agree")
        summary.stylize("bold green")
    target.print(summary)
