"""Statements and certificates: what is claimed, on what grounds, and whether it holds.

These objects only remember; `statements` makes them from `Conclusions`. A statement of
which an assumption failed is **not available**: its number, its verdict and its text
are gone the moment it is built, so none of them can be shown by mistake.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from typing import Any, Literal, TypeAlias, get_args

from pffl.errors import NotMetError, UsageError
from pffl.evidence.sentences import Said, say
from pffl.files import plain
from pffl.records import Record
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
    "holdout": "Unseen people: loss",
    "implied": "Whole groups",
    "holdout_error": "Unseen people: errors",
    "dp_gap": "Unseen people: demographic parity",
    "eo_gap": "Unseen people: equal opportunity",
    "equalised_odds": "Unseen people: equalised odds",
}
#: What stands before a statement that holds, and that does not.
MARKS = {
    "holdout": ("certified", "not certified"),
    "empirical": ("met", "not met"),
    "infeasible": ("proved", "not proved"),
}


@dataclass(frozen=True)
class Assumption(Record):
    """One thing that must be true, in words, and what we know of it.

    ``checked``: verified on the data or the model. ``assumed``: no look at them can
    verify it. ``could not be checked``: one could, had more been known. ``failed``:
    verified, and false.
    """

    text: str
    state: State

    @classmethod
    def of(cls, key: str, state: State, **figures: Json) -> Assumption:
        """Build one from the key of its sentence."""
        return cls(say(f"ground.{key}", **figures), state)


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
        found = [self.reason] if self.reason else []
        found += [a.text for a in self.assumptions if a.state == "failed"]
        if self.value is not None and not math.isfinite(self.value):
            found.append("the number could not be computed")
        first = found[0] if found else ""
        reason = "; ".join(t for i, t in enumerate(found) if i == 0 or t not in first)
        rows = None if self.per_cell is None else tuple(map(_plain_row, self.per_cell))
        said, figures = plain(self.said), plain(dict(self.figures))
        made = {"per_cell": rows, "said": said, "figures": figures}
        if found:
            nothing = dict.fromkeys(("value", "holds", "per_cell", "said"))
            made = {**nothing, "figures": {}, "text": f"not available: {reason}"}
        for name, value in {**made, "available": not found, "reason": reason}.items():
            object.__setattr__(self, name, value)

    @property
    def title(self) -> str:
        """What it is about, in words."""
        return TITLES.get(self.kind, self.kind)

    @property
    def mark(self) -> str:
        """The word that stands before it."""
        if not self.available:
            return "not available"
        good, bad = MARKS.get(self.kind, ("holds", "does not hold"))
        return {None: "known", True: good, False: bad}[self.holds]

    @property
    def grounds(self) -> list[str]:
        """What it stands on, each with what is known of it."""
        if not self.available:
            return []
        return [f"{a.text} ({a.state})" for a in self.assumptions]

    @classmethod
    def of(cls, kind: str, said: Said, **parts: Any) -> Statement:
        """Build one from its sentence."""
        return cls(kind, str(said), said=said.as_dict(), **parts)

    @classmethod
    def not_available(
        cls, kind: str, reason: str, assumptions: Sequence[Assumption] = ()
    ) -> Statement:
        """Build the statement that says why there is none."""
        return cls(kind, "", assumptions=tuple(assumptions), reason=reason)

    def as_dict(self) -> dict[str, Json]:
        """Plain form, for JSON: no NaN, no infinity."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        out: dict[str, Json] = plain(
            {**parts, "assumptions": [vars(a) for a in self.assumptions]}
        )
        return out

    def lines(self) -> list[str]:
        """Return the statement as plain lines."""
        out = [f"[{self.mark}] {visible(self.kind)}", f"    {visible(self.text)}"]
        out += [f"    {line}" for line in text_table(self.per_cell or ())]
        return out + [f"    - {a.state}: {visible(a.text)}" for a in self.assumptions]


def _plain_row(row: Mapping[str, Json]) -> dict[str, Json]:
    """Make one cell's figures plain; a number that was lost cannot hold."""
    out: dict[str, Json] = plain(dict(row))
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
    >>> told.of_kind("empirical")[0].available
    True
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

    @property
    def grounds(self) -> dict[str, int]:
        """What the statements stand on, each once, with its number."""
        found = (ground for one in self.statements for ground in one.grounds)
        return {text: i for i, text in enumerate(dict.fromkeys(found), start=1)}

    def __str__(self) -> str:
        lines = [
            f"{VERDICTS[key][0]}: {one['verdict']}. {visible(one['sentence'])}"
            for key, one in self.verdicts.items()
        ]
        share = f"{100 * self.confidence:.6g}"
        lines.append(f"Data: {visible(self.data)}.")
        lines.append(f"Statements on new people hold with confidence {share} %.")
        lines += [f"Note: {visible(note)}" for note in self.notes]
        for statement in self.statements:
            lines += ["", *statement.lines()]
        if self.fingerprints:
            lines += ["", "Fingerprints"]
        for name, value in self.fingerprints.items():
            lines.append(f"    {visible(name)}: {visible(value)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
