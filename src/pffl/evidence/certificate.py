"""Statements and certificates: what is claimed, on what grounds, and whether it holds.

These objects only remember; `training` and `unseen` make them from `Evidence`. A
statement of which an assumption failed is **not available**: its number, its verdict
and its text are gone the moment it is built, so none of them can be shown by mistake.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from typing import Any, Literal, TypeAlias, get_args

from pffl.errors import ArtefactError, NotMetError, UsageError
from pffl.evidence.sentences import Said, say
from pffl.files import plain
from pffl.records import Record, read
from pffl.text import text_table, visible

Json: TypeAlias = Any
State: TypeAlias = Literal["checked", "assumed", "could not be checked", "failed"]
Status: TypeAlias = Literal[
    "met",
    "not met",
    "impossible",
    "not converged",
    "not measured",
    "not decided",
    "no bounds",
    "diverged",
    "interrupted",
]

#: The three verdicts, whom each speaks of, and their words, the same wherever they are
#: shown; a run that was broken off, or without bounds, has a word of its own.
VERDICTS = {
    "training": ("Training rows", get_args(Status)),
    "test": (
        "Test rows",
        ("within", "exceeded", "not measured", "not decided", "no bounds"),
    ),
    "new_people": (
        "New people",
        ("certified", "not certified", "not measured", "no bounds"),
    ),
}
FORMAT = "pffl.certificate"
VERSION = 4
#: What a file has beside the claims: every figure, and what all of it follows from.
INSIDE = ("figures", "evidence")
TITLES = {
    "measured": "Measured",
    "privacy": "Privacy",
    "gap": "Best trade-off",
    "empirical": "Bounds, on the rows at hand",
    "infeasible": "Impossible bounds",
    "attainable": "Smallest bound",
    "sites": "If one site did not tell the truth",
    "holdout": "Unseen people: loss",
    "implied": "Whole groups",
    "holdout_error": "Unseen people: errors",
    "dp_gap": "Unseen people: demographic parity",
    "eo_gap": "Unseen people: equal opportunity",
    "equalised_odds": "Unseen people: equalised odds",
}
_ABSENT = "not available: "


@dataclass(frozen=True)
class Assumption(Record):
    """One thing that must be true, in words, and what we know of it.

    ``checked``: verified on the data or the model. ``assumed``: no look at them can
    verify it. ``could not be checked``: one could, had more been known. ``failed``:
    verified, and false.
    """

    text: str
    state: State

    def __post_init__(self) -> None:
        if self.state not in get_args(State):
            raise UsageError(
                f"The 'state' parameter of Assumption must be one of "
                f"{get_args(State)}. Got {self.state!r} instead."
            )

    @classmethod
    def of(cls, key: str, state: State, **figures: Json) -> Assumption:
        """Build one from the key of its sentence."""
        return cls(say(f"ground.{key}", **figures), state)

    def as_dict(self) -> dict[str, Json]:
        """Plain form, for JSON."""
        return {"text": self.text, "state": self.state}


@dataclass(frozen=True)
class Statement(Record):
    """One claim: words, number, grounds.

    Attributes
    ----------
    kind
        What sort of claim: ``gap``, ``empirical``, ``holdout``, …
    text
        The claim in plain words.
    value
        Its number, if it has one.
    holds
        Whether what was asked for is true; None if nothing was asked.
    assumptions
        What the claim stands on.
    figures
        Further numbers that the text shows.
    per_cell
        One plain mapping per cell, with at least the key ``cell``.
    available
        False if there is nothing to claim; then `text` says why, and `value`, `holds`
        and `per_cell` are None.
    reason
        Why it is not available.
    said
        Key and figures of the sentence that `text` is.
    """

    kind: str
    text: str
    value: float | None = None
    holds: bool | None = None
    assumptions: tuple[Assumption, ...] = ()
    figures: Mapping[str, Json] = field(default_factory=dict)
    per_cell: tuple[Mapping[str, Json], ...] | None = None
    available: bool = True
    reason: str = ""
    said: Mapping[str, Json] | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "assumptions", tuple(self.assumptions))
        put(self, "figures", plain(dict(self.figures)))
        put(self, "said", plain(self.said))
        try:
            json.dumps(self.figures)
        except (TypeError, RecursionError) as error:
            raise UsageError(
                f"[not-json] figures that cannot be written: {error}"
            ) from error
        put(self, "holds", None if self.holds is None else bool(self.holds))
        if self.value is not None:
            put(self, "value", float(self.value))
        if self.per_cell is not None:
            put(self, "per_cell", tuple(_row(row) for row in self.per_cell))
        reasons = self._reasons()
        put(self, "available", not reasons)
        put(self, "reason", "; ".join(reasons))
        if reasons:
            put(self, "text", _ABSENT + self.reason)
            for name in ("value", "holds", "per_cell", "said"):
                put(self, name, None)
            put(self, "figures", {})

    def _reasons(self) -> list[str]:
        """Everything that forbids the claim, each once."""
        found = [self.reason] if self.reason and not self.available else []
        found += [a.text for a in self.assumptions if a.state == "failed"]
        if self.value is not None and not math.isfinite(self.value):
            found.append("the number could not be computed")
        if not self.available and not found:
            found.append("no reason was recorded")
        whole = found[0] if found else ""
        return [one for i, one in enumerate(found) if i == 0 or one not in whole]

    @property
    def title(self) -> str:
        """What it is about, in words."""
        return TITLES.get(self.kind, self.kind)

    @classmethod
    def of(cls, kind: str, said: Said, **parts: Any) -> Statement:
        """Build one from its sentence."""
        return cls(kind, str(said), said=said.as_dict(), **parts)

    @classmethod
    def not_available(
        cls, kind: str, reason: str, assumptions: Sequence[Assumption] = ()
    ) -> Statement:
        """Build the statement that says why there is none."""
        return cls(
            kind, "", assumptions=tuple(assumptions), available=False, reason=reason
        )

    def as_dict(self) -> dict[str, Json]:
        """Plain form, for JSON: no NaN, no infinity."""
        grounds = [a.as_dict() for a in self.assumptions]
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        out: dict[str, Json] = plain({**parts, "assumptions": grounds})
        return out


def _row(row: Mapping[str, Json]) -> dict[str, Json]:
    """Make one cell's figures plain; a number that was lost cannot hold."""
    out = plain(dict(row))
    if not isinstance(out, dict) or "cell" not in out:
        raise UsageError(
            f"[missing-key] a row of 'per_cell' needs the key 'cell'. Got {row!r}"
        )
    lost = any(out[key] is None and row[key] is not None for key in out)
    return {**out, "holds": None} if lost and out.get("holds") else out


@dataclass(frozen=True)
class Certificate(Record):
    """Three verdicts on one model, and everything that is claimed of it.

    Attributes
    ----------
    verdicts
        On ``training`` rows, on ``test`` rows, for ``new_people``: of each the
        ``verdict``, in a word, the ``sentence`` that says it, and its ``key`` and
        ``figures``.
    date
        As somebody stated it; None if nobody did.
    data
        The name of the data.
    groups, bounds
        Who is measured apart, and the bound on each group's mean loss, or None.
    confidence
        1 − δ of the statements on new people.
    statements
        The claims, in the order in which they are shown.
    fingerprints
        Hashes of what was certified: data, model, spec.
    notes
        What a reader must know: withheld cells, other data, not covered.

    Raises
    ------
    UsageError
        A verdict has none of its words.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> told = pffl.solve(people, pffl.BoundedGroupLoss(0.65), seed=0).certificate
    >>> [one["verdict"] for one in told.verdicts.values()]
    ['met', 'exceeded', 'not certified']
    >>> told.of_kind("attainable")[0].text
    'The smallest bound that all groups can meet together lies between ...'
    """

    verdicts: Mapping[str, Mapping[str, Json]]
    date: str | None
    data: str
    groups: tuple[str, ...]
    bounds: tuple[float | None, ...]
    confidence: float
    statements: tuple[Statement, ...]
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        said = {key: one.get("verdict") for key, one in self.verdicts.items()}
        if list(said) != list(VERDICTS) or not all(
            said[key] in allowed for key, (_, allowed) in VERDICTS.items()
        ):
            raise UsageError(
                "The 'verdicts' parameter of Certificate must have the words of "
                f"{VERDICTS}. Got {said!r} instead."
            )
        if not 0.0 < self.confidence < 1.0:
            raise UsageError(
                "The 'confidence' parameter of Certificate must be strictly between "
                f"0 and 1. Got {self.confidence!r} instead."
            )
        for name in ("groups", "bounds", "statements", "notes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "fingerprints", dict(self.fingerprints))

    def of_kind(self, kind: str) -> tuple[Statement, ...]:
        """Return the statements of one kind."""
        return tuple(s for s in self.statements if s.kind == kind)

    def holds(self, kind: str) -> bool:
        """Whether there is a statement of this kind and all of them hold."""
        found = self.of_kind(kind)
        return bool(found) and all(s.available and s.holds is True for s in found)

    def insist(self, kind: str | None) -> None:
        """Raise unless the statements of a kind, if one is named, hold."""
        if kind is not None and not self.holds(kind):
            found = self.of_kind(kind)
            reason = found[0].text if found else "there is no such statement"
            raise NotMetError(
                f"[not-certified] '{kind}' is required and not certified: {reason}"
            )

    def as_dict(self) -> dict[str, Json]:
        """Plain form, for JSON, with the version of the format."""
        parts = {f.name: plain(getattr(self, f.name)) for f in fields(self)}
        parts["statements"] = [s.as_dict() for s in self.statements]
        return {**parts, "format": FORMAT, "version": VERSION}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Certificate:
        """Read the plain form; refuse another format or version, or contradictions."""
        head = {key: part for key, part in data.items() if key not in INSIDE}
        known = dict(head)
        seen = (known.pop("format", None), known.pop("version", None))
        if seen != (FORMAT, VERSION):
            raise ArtefactError(
                f"[other-format] certificate: format and version {seen} cannot be "
                f"read; this pffl reads {(FORMAT, VERSION)}"
            )
        try:
            built = read(cls, known, source="certificate")
        except (UsageError, OverflowError) as error:
            raise ArtefactError(f"[bad-certificate] certificate: {error}") from error
        if built.as_dict() != plain(head):
            raise ArtefactError(
                "[bad-certificate] certificate: contradicts itself (a failed "
                "assumption or a non-finite number beside a claim), or has parts that "
                "are unknown"
            )
        return built

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(as_text(self))}</pre>"


def grounds_of(statement: Statement) -> list[str]:
    """Return what a statement stands on, each with what is known of it."""
    if not statement.available:
        return []
    return [f"{a.text} ({a.state})" for a in statement.assumptions]


def numbered(certificate: Certificate) -> dict[str, int]:
    """Return what the statements stand on, each once, with its number."""
    found = (ground for one in certificate.statements for ground in grounds_of(one))
    return {text: i for i, text in enumerate(dict.fromkeys(found), start=1)}


def mark(statement: Statement) -> str:
    """Return the word that stands before a statement."""
    if not statement.available:
        return "not available"
    if statement.kind == "infeasible":
        return "proved"
    words = {"holdout": ("certified", "not certified"), "empirical": ("met", "not met")}
    good, bad = words.get(statement.kind, ("holds", "does not hold"))
    return {None: "known", True: good, False: bad}[statement.holds]


def _text_statement(statement: Statement) -> list[str]:
    lines = [f"[{mark(statement)}] {visible(statement.kind)}"]
    lines.append(f"    {visible(statement.text)}")
    lines += [f"    {line}" for line in text_table(statement.per_cell or ())]
    lines += [f"    - {a.state}: {visible(a.text)}" for a in statement.assumptions]
    return lines


def as_text(certificate: Certificate) -> str:
    """Return the certificate as plain lines."""
    lines = [
        f"{VERDICTS[key][0]}: {one['verdict']}. {visible(one['sentence'])}"
        for key, one in certificate.verdicts.items()
    ]
    share = f"{100 * certificate.confidence:.6g}"
    lines.append(f"Data: {visible(certificate.data)}.")
    lines.append(f"Statements on new people hold with confidence {share} %.")
    lines += [f"Note: {visible(note)}" for note in certificate.notes]
    for statement in certificate.statements:
        lines += ["", *_text_statement(statement)]
    if certificate.fingerprints:
        lines += ["", "Fingerprints"]
        lines += [
            f"    {visible(name)}: {visible(value)}"
            for name, value in certificate.fingerprints.items()
        ]
    return "\n".join(lines)
