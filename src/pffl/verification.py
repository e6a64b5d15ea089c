"""Verify a run: by its rows with `_verify`, which stands alone, and by making it again.

`_verify` computes claims from rows and recorded sums. Here the same evidence is put
through `pffl` once more: certificate, page and card are functions of it, so that an
edited figure or sentence shows. A page of another version of pffl is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from pffl import __version__, _verify
from pffl._audit import open_model
from pffl._report.card import markdown, own_model
from pffl._report.page import render
from pffl._verify import Check, compare, read_json
from pffl.config import of_run
from pffl.data.federation import Federation
from pffl.errors import ArtefactError, MissingExtraError, PFFLError, UsageError
from pffl.evidence.conclude import Conclusions, conclude
from pffl.evidence.looks import LOOKS, Looks, read_looks
from pffl.evidence.record import Evidence
from pffl.models.external import Probabilities
from pffl.runs import CARD, CERTIFICATE, MODEL, REPORT, derived


def verify(
    run: str | Path,
    rows: Federation | str | Path | None = None,
    *,
    model: Path | None = None,
) -> list[Check]:
    """Check a run, an audit, or a page; return every comparison.

    Parameters
    ----------
    run
        A folder that ``pffl run`` or ``pffl audit`` left, or a report.html.
    rows
        A federation; rows that ``pffl verify --export`` wrote; or data as a run file
        names them. Without rows conclusions are checked against the recorded sums
        alone.
    model
        Of an audit of predictions: the file that has them.

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
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = solution.save(f"{folder}/run")
    ...     checks = pffl.verify(run, people)
    >>> all(check.agrees for check in checks)
    True
    """
    place, prepared = Path(run), rows is None or isinstance(rows, Federation)
    prepared = prepared or Path(rows).suffix == ".npz"  # type: ignore[arg-type]
    audited = None
    if not prepared or model is not None:
        data = None if prepared else str(rows)
        opened, audited = open_rows(place, data, model)
        rows = rows if prepared else opened
    return check_run(place, rows, audited)


def check_run(
    place: Path, rows: Federation | str | Path | None, audited: str | None = None
) -> list[Check]:
    """Check a run by rows that are open; `audited` is the fingerprint of its model."""
    own = rows.fingerprint if isinstance(rows, Federation) else None
    place = place.parent if place.name == CERTIFICATE else place
    try:
        with TemporaryDirectory() as folder:
            if isinstance(rows, Federation):
                rows.export(table := Path(folder) / "rows.npz")
                rows = table
            checks = _verify.verify(place, rows)
        stated = _verify.read_run(place)[0]
    except _verify.Unreadable as error:
        raise ArtefactError(f"[bad-certificate] {error}") from error
    try:
        checks += check_again(place, stated, own, audited)
    except (PFFLError, ValueError, ArithmeticError) as error:
        checks.append(Check("evidence", "can be read", str(error), False))
    return checks


def check_again(
    place: Path, stated: dict[str, object], rows: str | None, audited: str | None
) -> Iterator[Check]:
    """Make certificate, page and card again from the evidence that is stored.

    `rows` and `audited` are the fingerprints of the rows and the model given.
    """
    e = Evidence.from_dict(stated["evidence"])  # type: ignore[arg-type]
    page, log = place.suffix == ".html", place / LOOKS
    looks = Looks(read_looks(log))
    found = conclude(e)
    written = derived(found, looks)
    if rows is not None and e.data.fingerprint is not None:
        yield from compare("fingerprint of the rows", e.data.fingerprint, rows)
    if audited is not None:
        yield from compare("fingerprint of the model", e.model.fingerprint, audited)
    if (version := e.versions.get("pffl")) != __version__:
        what = f"words, page and card not compared: made by pffl {version}"
        yield Check(what, note=True)
        return
    if page:
        yield from compare_all(CERTIFICATE, stated, read_json(written[CERTIFICATE]))
        yield Check("the page itself not compared: verify its folder", note=True)
        return
    if log.is_file():
        counted = looks.counted(e).terms
        ours = [e.terms.later, e.terms.candidates, e.terms.others]
        least = [counted.later, counted.candidates, counted.others]
        good = all(a >= b for a, b in zip(ours, least, strict=True))
        yield Check("reuse of test rows", ours, least, good)
    for name, content in written.items():
        if name != LOOKS and (place / name).is_file():
            stored = read_json((place / name).read_bytes())
            yield from compare_all(name, stored, read_json(content))
    yield from check_rendered(place, found)


def compare_all(what: str, stated: object, found: object) -> Iterator[Check]:
    """Compare all entries of two plain values, whichever has them."""
    yield from compare(what, stated, found, 1e-3)
    for one in compare(what, found, stated, 1e-3):
        if not one.agrees:
            yield Check(one.what, one.found, one.stated, False)


def check_rendered(folder: Path, c: Conclusions) -> Iterator[Check]:
    """Compare page and card, byte by byte."""
    card, page = folder / CARD, folder / REPORT
    if card.is_file():
        found = markdown(c, own_model(folder, c.evidence))
        good = card.read_bytes() == found.encode()
        yield Check("model card", "as stored", "as made again: another", good)
    if page.is_file():
        try:
            good = page.read_bytes() == render(folder, known=c).encode()
        except MissingExtraError as error:
            yield Check(f"page not compared: {error}", note=True)
            return
        yield Check("page (report.html)", "as stored", "as made again: another", good)


def open_rows(
    run: Path, data: str | None = None, model: Path | None = None
) -> tuple[Federation, str]:
    """Open the rows of a run, or other data; also return the model's fingerprint.

    `model` as for `verify`. Default: the model of the folder.
    """
    folder = run if run.is_dir() else run.parent
    try:
        stated = _verify.read_run(run)[0]
    except _verify.Unreadable as error:
        raise ArtefactError(f"[bad-certificate] {error}") from error
    kind = stated["evidence"]["model"]["kind"]
    if model is None and kind == Probabilities.name:
        raise UsageError("needs-model")
    source = of_run(folder, data).data
    audited, federation = open_model(model or folder / MODEL, source)
    predictor = audited.predictor
    return federation, predictor.model.fingerprint(predictor.w)
