"""Verify a run: by its rows with `_verify`, which stands alone, and by making it again.

`_verify` computes claims from rows and recorded sums. Here the same evidence is put
through `pffl` once more: certificate, page and card are functions of it, so that an
edited sentence shows. A page of another version of pffl is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pffl import __version__, _verify
from pffl._report.card import markdown, own_model
from pffl._report.page import render
from pffl._verify import Check, compare, read_json
from pffl.config import of_run
from pffl.data.federation import Federation
from pffl.errors import ArtefactError, MissingExtraError, PFFLError, UsageError
from pffl.evidence.conclude import Conclusions, conclude
from pffl.evidence.looks import LOOKS, Looks, read_looks
from pffl.evidence.record import Evidence
from pffl.foreign import Probabilities
from pffl.running import open_model
from pffl.runs.directory import CARD, CERTIFICATE, MODEL, REPORT, derived

PREPARED = "split,silo,group,label"  # how a CSV of prepared rows begins


def verify(
    run: str | Path,
    rows: Federation | str | Path | None = None,
    *,
    model: Path | None = None,
    id: str | None = None,
    column: str | None = None,
) -> list[Check]:
    """Check a run, an audit, or a page; return every comparison.

    Parameters
    ----------
    run
        A folder that ``pffl run`` or ``pffl audit`` left, a certificate in it, or a
        report.html.
    rows
        A federation; prepared rows (`export_rows`); or data as a run file names them.
        Without rows conclusions are checked against the recorded sums alone.
    model, id, column
        Of an audit of predictions: the file that has them, and how it joins to rows.

    Returns
    -------
    list of Check
        What was stated, what came out here, and whether they agree.

    Raises
    ------
    ArtefactError
        A file is missing or cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = pffl.save(solution, f"{folder}/run")
    ...     checks = pffl.verify(run, people)
    >>> all(check.agrees for check in checks)
    True
    """
    place, given, own = Path(run), None, None
    with TemporaryDirectory() as folder:
        table = Path(folder) / "rows.npz"
        if isinstance(rows, Federation):
            rows.export(table)
            own = rows.fingerprint
        elif rows is not None and is_prepared(Path(rows)):
            table = Path(rows)
        elif rows is not None:
            options: Any = {"model": model, "id": id, "column": column}
            given, own = export_rows(place, table, data=str(rows), **options)
        try:
            checks = _verify.verify(place, None if rows is None else table)
        except _verify.Unreadable as error:
            raise ArtefactError(f"[bad-certificate] {error}") from error
        if model is not None and given is None:
            joined = Path(folder) / "joined.npz"
            given, _ = export_rows(place, joined, model=model, id=id, column=column)
    if model is not None and given not in [check.found for check in checks]:
        what, stated = f"fingerprint of the model in {model}", "the one certified"
        checks.append(Check(what, stated, given, False))
    return [*checks, *check_again(place, own)]


def check_again(place: Path, rows: str | None = None) -> Iterator[Check]:
    """Make certificate, page and card again from the evidence that is stored.

    `rows` is the fingerprint of the rows at hand.
    """
    folder, name = (
        (place, CERTIFICATE) if place.is_dir() else (place.parent, place.name)
    )
    alone = place.suffix == ".html"
    if alone:
        (text,) = _verify.EMBEDDED.findall(place.read_text("utf-8"))
        stated = read_json(text)
    else:
        stated = read_json((folder / name).read_bytes())
    try:
        e = Evidence.from_dict(stated["evidence"])
        own = read_looks(folder / LOOKS) if (folder / LOOKS).is_file() else ()
        looks = Looks(() if alone else own)
        conclusions = conclude(e)
        written = derived(conclusions, looks)
        made = {key: read_json(text) for key, text in written.items() if key != LOOKS}
    except (PFFLError, ValueError) as error:
        yield Check("evidence", "can be read", str(error), False)
        return
    if rows is not None and e.data.fingerprint is not None:
        yield from compare("fingerprint of the rows", e.data.fingerprint, rows)
    version = e.versions.get("pffl")
    if version != __version__:
        yield Check(
            f"words, page and card not compared: made by pffl {version}", note=True
        )
        return
    yield from compare("certificate", stated, made[CERTIFICATE], 1e-3)
    if alone:
        yield Check("the page itself not compared: verify its folder", note=True)
        return
    if own:
        counted = looks.counted(e).terms
        found = [counted.later, counted.candidates, counted.others]
        terms = [e.terms.later, e.terms.candidates, e.terms.others]
        good = all(a >= b for a, b in zip(terms, found, strict=True))
        yield Check("reuse of test rows", terms, found, good)
    if name == CERTIFICATE:
        for key, plain in made.items():
            path = folder / key
            if key != CERTIFICATE and path.is_file():
                yield from compare(key, read_json(path.read_bytes()), plain, 1e-3)
        yield from check_rendered(folder, conclusions)


def check_rendered(folder: Path, c: Conclusions) -> Iterator[Check]:
    """Compare page and card, byte by byte."""
    card, page = folder / CARD, folder / REPORT
    if card.is_file():
        found = markdown(c, own_model(folder, c.evidence))
        good = card.read_bytes() == found.encode()
        yield Check("model card", "as stored", "as made again: another", good)
    if page.is_file():
        try:
            good = page.read_bytes() == render([folder], known=c).encode()
        except MissingExtraError as error:
            yield Check(f"page not compared: {error}", note=True)
            return
        yield Check("page (report.html)", "as stored", "as made again: another", good)


def export_rows(
    run: Path,
    out: Path,
    *,
    data: str | None = None,
    model: Path | None = None,
    id: str | None = None,
    column: str | None = None,
) -> tuple[str, str]:
    """Write the rows of a run, prepared for `verify`; return two fingerprints.

    Of the model, and of the rows.

    Parameters
    ----------
    run
        The run's folder, or a certificate in it.
    out
        A .csv or .npz.
    data
        Other data than the run's.
    model, id, column
        As for `verify`. Default: the model of the folder.
    """
    folder = run if run.is_dir() else run.parent
    if model is None and _kind(folder) == Probabilities.name:
        raise UsageError(
            "[needs-model] the model is known by its predictions only: --model FILE "
            "gives them"
        )
    source = of_run(folder, data).data
    audited, federation = open_model(model or folder / MODEL, source, id, column)
    federation.export(out)
    return audited.model.fingerprint(audited.w), federation.fingerprint


def _kind(folder: Path) -> object:
    """Return the kind of a model by the certificate about it."""
    try:
        stated = read_json((folder / CERTIFICATE).read_bytes())
        return stated["evidence"]["model"]["kind"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"[bad-certificate] {folder}: {error!r}") from error


def is_prepared(path: Path) -> bool:
    """Whether a file holds rows that were exported."""
    if path.suffix == ".npz" or not path.is_file():
        return path.suffix == ".npz"
    with path.open(encoding="utf-8", errors="replace") as text:
        return text.readline().startswith(PREPARED)
