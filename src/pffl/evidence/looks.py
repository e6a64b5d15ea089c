"""Looks at held-out rows: who was measured on them before, and what that costs.

A folder counts them: each run, comparison and audit keeps a log of its looks. A
run reads its own, its folder's and its neighbours'; an audit comes after all that were
certified on the same people, as far as its folder knows. Of s models that were fixed
before the first look each has δ/s. The l-th later certificate on the same rows has
δ/(l(l + 1)), so that all later ones together spend as much as the first. No count pays
for settings that were changed in view of held-out figures: that they were not could not
be checked, and fresh rows are needed to settle it.
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
from pffl.evidence.record import Evidence, Missing, ModelPath, Sample, Training
from pffl.records import Record, read

LOOKS = "looks.jsonl"
#: Parameters of a method that say how far or from where it goes, not to what.
NO_SETTING = ("multiplier_bound", "warm_start")
SEEDLESS = ("exact", "first-order", "pooled")  # methods that draw nothing


@dataclass(frozen=True)
class Look(Record):
    """A model that was measured on held-out rows.

    Attributes
    ----------
    rows
        Hashes of these rows, one per split; none under noise, as a hash tells of rows.
    settings, price
        Hash of what the model was set to, and B. In a comparison: a hash of bounds and
        model, a slash, and one of all settings.
    certificate
        Hash of what was stated of it; None where nothing was, as in a comparison.
    plan
        What was fixed together with it, before the first look.
    candidates, others
        As in `evidence.Terms`.
    named
        Hash of what the data are called, and of their schema. Under noise that is all
        that is known: looks at data of the same name may be at the same rows.
    """

    rows: list[str]
    settings: str
    price: float
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


def look(e: Evidence, plan: str | None = None, *, stated: bool = True) -> Look | None:
    """Return the look that evidence is of; None without held-out rows."""
    if isinstance(e.heldout, Missing):
        return None
    rows = _rows(e, e.heldout)
    if isinstance(e.path, ModelPath):
        rows = list(dict.fromkeys([*rows, *_rows(e, e.path.shipped.calibration)]))
    return Look(
        rows,
        settings(e),
        e.terms.multiplier_bound,
        _certificate(e) if stated else None,
        plan,
        e.terms.candidates,
        e.terms.others,
        hashed("named", e.data.name, e.data.schema),
    )


def _rows(e: Evidence, sample: Sample) -> list[str]:
    """Return hashes of the rows of a sample, one per split."""
    if e.noise is not None:
        return []
    rows = [e.data.splits[s] for s in sample.splits if s in e.data.splits]
    if len(rows) < len(sample.splits):  # out of reach: known by their counts
        counts = [*sample.splits, [int(n) for n in sample.atoms["count"]]]
        rows = [hashed("rows", e.data.schema, counts)]
    if isinstance(e.training, Missing):  # models of others have inputs of their own
        people = [int(n) for n in sample.atoms["count"]]
        rows.append(hashed("people", e.groups, e.labels, people))
    return rows


def settings(e: Evidence) -> str:
    """Return a hash of all that was chosen of a model, whatever its training rows."""
    run = e.training if isinstance(e.training, Training) else None
    method = {} if run is None else run.method
    chosen = {key: method[key] for key in method if key not in NO_SETTING}
    drawn = None if run is None or method["kind"] in SEEDLESS else run.seed
    cells = [(c.cell, c.bound, c.silo, c.of) for c in e.cells]
    terms = (e.terms.weighting, e.terms.risk_weight, e.terms.loss_bound)
    model = e.model.described if run is not None else e.model.fingerprint
    if e.noise is not None:  # the same settings draw another model
        model = e.model.fingerprint
    parts: list[object] = [e.promise, cells, terms, model, chosen, drawn]
    if isinstance(e.path, ModelPath):  # what was promised was chosen by these rows
        parts += ["path", e.path.confidence, len(e.path.candidates)]
    return hashed("settings", *parts)


def bounds_settings(
    cells: Sequence[str], bounds: Sequence[float], model: Mapping[str, Any]
) -> str:
    """Return a hash of bounds and model, whatever the method."""
    plain = [float(bound) for bound in bounds]
    return hashed("bounds", list(cells), plain, dict(model))


def _certificate(e: Evidence) -> str:
    """Return a hash of what the statements on unseen people depend on."""
    t = e.terms
    paid: list[object] = [t.confidence, t.candidates, t.loss_bound]
    paid += [] if t.weight_bound is None else [t.weight_bound]
    paid += ["audit"] if isinstance(e.training, Missing) else []  # its bets are blind
    cells = [(c.cell, c.bound, c.silo, c.of) for c in e.cells]
    return hashed("certificate", e.model.fingerprint, cells, *paid)


def hashed(*parts: object) -> str:
    """SHA-256 of anything that JSON can hold."""
    return files.digest(files.key_of(*parts))


@dataclass(frozen=True)
class Looks:
    """The looks of a folder: a run's own, in order, and those of others around it."""

    own: tuple[Look, ...] = ()
    around: tuple[tuple[Look, ...], ...] = ()

    @classmethod
    def of(cls, directory: Path) -> Looks:
        """Read the log of a run directory, of its folder and of its neighbours."""
        place = directory.resolve()
        others = []
        with suppress(OSError):
            near = [place.parent / LOOKS, *sorted(place.parent.glob(f"*/{LOOKS}"))]
            others = [path for path in near if path.parent != place]
        found = []
        for path in others:
            with suppress(PFFLError):  # another's log may be what it likes
                found.append(read_looks(path))
        return cls(read_looks(place / LOOKS), tuple(found))

    def after(self, other: Looks) -> Looks:
        """Return these as looks of one that comes after all others."""
        found = list(self.own)
        for one in (*other.own, *(one for log in other.around for one in log)):
            if one.certificate and one not in found:
                found.append(one)
        return Looks(tuple(found))

    def counted(self, e: Evidence) -> Evidence:
        """Return evidence with its looks counted; the same certificate counts once."""
        now = look(e)
        if now is None:
            return e
        mine = {one.certificate: one for one in self.own if one.touches(now)}
        if now.certificate not in mine:
            e, now = self._among(e, now)
        keys = list(mine)
        if now.certificate in mine:
            known, later = mine[now.certificate], keys.index(now.certificate)
            terms = replace(e.terms, later=later, candidates=known.candidates)
            return replace(e, terms=replace(terms, others=known.others))
        return replace(e, terms=replace(e.terms, later=len(keys)))

    def _among(self, e: Evidence, now: Look) -> tuple[Evidence, Look]:
        """Count the models that were measured on the same rows around the run."""
        candidates, planned, others = e.terms.candidates, False, 0
        names, bounds = [c.cell for c in e.cells], [c.bound for c in e.cells]
        known = {now.settings}
        if None not in bounds:
            known.add(bounds_settings(names, bounds, e.model.described))
        for log in self.around:
            seen = [one for one in log if one.touches(now)]
            first = [o for o in seen if o.plan is not None and o.plan == seen[0].plan]
            if any(known & {one.settings, _bounds(one)} for one in first):
                candidates, planned = max(candidates, _fixed(first, now)), True
            else:
                others += len({o.settings for o in seen} - {now.settings})
        terms = replace(e.terms, candidates=candidates, others=others)
        e = replace(e, terms=replace(terms, counted=terms.counted or planned))
        return e, look(e) or now

    def added(self, e: Evidence) -> tuple[Look, ...] | None:
        """Return a run's own looks, this one among them; None where it is none."""
        now = look(e)
        if now is None:
            return None
        mine = [one.certificate for one in self.own if one.touches(now)]
        return self.own if now.certificate in mine else (*self.own, now)

    def text(self, e: Evidence) -> bytes | None:
        """Return the log with this evidence in it; None where nothing is to be said."""
        looks = self.added(e)
        if looks is None:
            return None
        return "".join(f"{json.dumps(asdict(one))}\n" for one in looks).encode()


def _fixed(plan: Sequence[Look], now: Look) -> int:
    """Number of models that a plan fixed, this one among them.

    A plan of bounds and prices also fixes, for each bound, the model whose price is
    left open.
    """
    points = {(one.settings, one.price) for one in plan}
    if (now.settings, now.price) in points:
        return len(points)
    return len(points) + len({_bounds(one) for one in plan})


def _bounds(look: Look) -> str:
    """The part of the settings that is common to all methods and prices."""
    return look.settings.partition("/")[0]


def read_looks(path: Path) -> tuple[Look, ...]:
    """Read a log; an empty one where there is none."""
    if not path.is_file():
        return ()
    whole, _, _ = files.read(path).rpartition(b"\n")  # a crash may cut the last line
    return tuple(
        read(Look, text, source=f"'{path}', line {number}")
        for number, text in enumerate(whole.splitlines(), start=1)
    )
