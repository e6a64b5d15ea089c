"""Reuse of test rows: which models were measured on them before, and what that costs.

A folder counts them: each run, comparison and audit keeps a log (looks.jsonl). A run
reads its own, its folder's and its neighbours'; an audit comes after all that were
certified on the same people, as far as its folder knows. Of s models that were fixed
before the rows were first used each has δ/s. The l-th later certificate on the same
rows has δ/(l(l + 1)), so that all later ones together spend as much as the first. No
count pays for settings that were changed in view of test figures: that they were not
could not be checked, and fresh rows are needed to settle it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pffl import files
from pffl.errors import PFFLError
from pffl.evidence.record import Evidence, Sample, known
from pffl.records import Record, read

LOOKS = "looks.jsonl"


@dataclass(frozen=True)
class Look(Record):
    """A model that was measured on test rows.

    Attributes
    ----------
    rows
        Hashes of these rows, one per split; none under noise, as a hash tells of rows.
    settings
        Hash of the model and its bounds. In a comparison: a hash of bounds and kind of
        model, a slash, and one of all settings.
    certificate
        Hash of what was stated of it; None where nothing was, as in a comparison.
    plan
        What was fixed together with it, before the rows were first used.
    candidates, others
        As in `record.Declared`.
    named
        Hash of what the data are called, and of their schema. Under noise that is all
        that is known: models of data of the same name may be measured on the same rows.
    """

    rows: list[str]
    settings: str
    certificate: str | None = None
    plan: str | None = None
    candidates: int = 1
    others: int = 0
    named: str | None = None

    def touches(self, other: Look) -> bool:
        """Whether both are of the same rows, or share some, as far as is known."""
        if not (self.rows and other.rows):
            return self.named is not None and self.named == other.named
        return not set(self.rows).isdisjoint(other.rows)

    @property
    def bounds(self) -> str:
        """The part of the settings that is common to all methods."""
        return self.settings.partition("/")[0]


def hashed(*parts: object) -> str:
    """SHA-256 of anything that JSON can hold."""
    return files.digest(files.key_of(*parts))


def bounds_settings(
    cells: Sequence[str], bounds: Sequence[float], model: Mapping[str, Any]
) -> str:
    """Return a hash of bounds and model, whatever the method."""
    plain = [float(bound) for bound in bounds]
    return hashed("bounds", list(cells), plain, dict(model))


def look(e: Evidence) -> Look | None:
    """Return the entry of what was measured and stated; None without test rows."""
    held, path, terms = known(e.heldout), known(e.path), e.terms
    if held is None:
        return None
    rows = _rows(e, held) + ([] if path is None else _rows(e, path.shipped.calibration))
    cells = [(c.cell, c.bound, c.silo, c.of) for c in e.cells]
    # Probabilities from elsewhere are told apart by what they lose.
    losses = [] if e.trained else [f"{loss:.9e}" for loss in held.strata["loss"]]
    model = e.model.fingerprint, cells, losses
    # What the statements on new people depend on; bets of an audit are blind.
    paid = terms.confidence, terms.candidates, terms.loss_bound, terms.weight_bound
    return Look(
        list(dict.fromkeys(rows)),
        hashed("settings", e.promise, *model),
        hashed("certificate", *model, *paid, e.trained),
        candidates=terms.candidates,
        others=terms.others,
        named=hashed("named", e.data.name, e.data.schema),
    )


def _rows(e: Evidence, sample: Sample) -> list[str]:
    """Return hashes of the rows of a sample, one per split."""
    if e.noise is not None:
        return []
    counts = [int(n) for n in sample.strata["count"]]
    rows = [e.data.splits[s] for s in sample.splits if s in e.data.splits]
    if len(rows) < len(sample.splits):  # out of reach: known by their counts
        rows = [hashed("rows", e.data.schema, [*sample.splits, counts])]
    if not e.trained:  # models from elsewhere have their own inputs
        rows.append(hashed("people", e.groups, e.labels, counts))
    return rows


@dataclass(frozen=True)
class Looks:
    """What a folder knows: a run's own entries, in order, and those around it."""

    own: tuple[Look, ...] = ()
    around: tuple[tuple[Look, ...], ...] = ()

    @classmethod
    def of(cls, directory: Path) -> Looks:
        """Read the log of a run directory, of its folder and of its neighbours."""
        place, found = directory.resolve(), []
        logs = [place.parent / LOOKS, *sorted(place.parent.glob(f"*/{LOOKS}"))]
        for path in logs:
            with suppress(PFFLError, OSError):  # another's log may be what it likes
                found += [read_looks(path)] if path.parent != place else []
        return cls(read_looks(place / LOOKS), tuple(found))

    def after(self, other: Looks) -> Looks:
        """Return these as entries of one that comes after all others."""
        own = list(self.own)
        for one in (*other.own, *(one for log in other.around for one in log)):
            own += [one] if one.certificate and one not in own else []
        return Looks(tuple(own))

    def counted(self, e: Evidence) -> Evidence:
        """Return evidence with its reuse counted; the same certificate counts once."""
        now = look(e)
        if now is None:
            return e
        mine = {one.certificate: one for one in self.own if one.touches(now)}
        if now.certificate not in mine:
            e = self._among(e, now)
            now = look(e) or now
        same, terms = mine.get(now.certificate), e.terms
        if same is not None:
            terms = replace(terms, candidates=same.candidates, others=same.others)
        keys = [*mine, now.certificate]
        return replace(e, terms=replace(terms, later=keys.index(now.certificate)))

    def _among(self, e: Evidence, now: Look) -> Evidence:
        """Count the models that were measured on the same rows around the run."""
        candidates, others = e.terms.candidates, 0
        own = bounds_settings(e.names, [c.bound for c in e.cells], e.model.described)
        for log in self.around:
            seen = [one for one in log if one.touches(now)]
            plan = [o for o in seen if o.plan is not None and o.plan == seen[0].plan]
            bounds = {one.bounds for one in plan}
            if own in bounds:  # a plan also fixes one run of another method for each
                many = len({one.settings for one in plan}) + len(bounds)
                candidates = max(candidates, many)
            else:
                others += len({o.settings for o in seen} - {now.settings})
        counted = e.terms.counted or candidates > e.terms.candidates
        terms = replace(e.terms, candidates=candidates, others=others, counted=counted)
        return replace(e, terms=terms)

    def added(self, e: Evidence) -> tuple[Look, ...]:
        """Return a run's own entries, that of this evidence among them."""
        now, own = look(e), self.own
        mine = {one.certificate for one in own if now is not None and one.touches(now)}
        return own if now is None or now.certificate in mine else (*own, now)

    def text(self, e: Evidence) -> bytes:
        """Return the log with this evidence in it."""
        lines = [f"{json.dumps(asdict(one))}\n" for one in self.added(e)]
        return "".join(lines).encode()


def read_looks(path: Path) -> tuple[Look, ...]:
    """Read a log; an empty one if it is missing."""
    if not path.is_file():
        return ()
    whole, _, _ = files.read(path).rpartition(b"\n")  # a crash may cut the last line
    return tuple(
        read(Look, text, source=f"'{path}', line {number}")
        for number, text in enumerate(whole.splitlines(), start=1)
    )
