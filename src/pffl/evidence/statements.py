"""Statements and certificates: what is claimed, on what grounds, and whether it holds.

All sentences stand in sentences.toml. One is stored as its key and its figures, and
written from them: `Said`. In a template ``up`` and ``down`` round a figure to the side
on which the words stay true, with four digits, or as many as stand behind; ``%`` writes
a share, ``'`` a name.

These objects only remember; `statements` makes them from `Conclusions`. A statement of
which an assumption failed is **not available**: its number, its verdict and its text
are gone the moment it is built, so none of them can be shown by mistake.
"""

from __future__ import annotations

import math
import string
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from pffl.bounds.mean import clopper_pearson_upper
from pffl.errors import NotMetError
from pffl.evidence.record import Evidence, Missing, Noise, known
from pffl.files import plain
from pffl.privacy.terms import epsilon_of
from pffl.records import Record
from pffl.text import down, text_table, up, visible, words

if TYPE_CHECKING:
    from pffl.evidence.conclude import Conclusions

Json: TypeAlias = Any
State: TypeAlias = Literal["checked", "assumed", "could not be checked", "failed"]
Tone: TypeAlias = Literal["good", "caution", "bad", "plain"]

#: The three verdicts, and who each is about.
VERDICTS = {
    "training": "Training rows",
    "test": "Test rows",
    "new_people": "New people",
}
#: How good a word is; one that is not known to be good is bad.
TONES: dict[str, Tone] = {
    **dict.fromkeys(("met", "within", "certified", "holds"), "good"),
    **dict.fromkeys(("not decided", "not certified", "interrupted"), "caution"),
    "no better than a guess": "caution",
    **dict.fromkeys(("no bounds", "not measured"), "plain"),
}
SIGNS: dict[Tone, str] = {"good": "✓", "caution": "!", "bad": "✗", "plain": "–"}
FORMAT = "pffl.certificate"
VERSION = 7
#: What stands before a statement that holds, and before one that does not.
MARKS = {
    "empirical": ("met", "not met"),
    "infeasible": ("proved", "not proved"),
    "holdout": ("certified", "not certified"),
}

SENTENCES: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("sentences.toml").read_text("utf-8")
)


class _Formatter(string.Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        if isinstance(value, bool):  # a name that means something else, too
            raise TypeError("a sentence names a figure or a text")
        side = spec.rstrip("0123456789")
        if side in ("up", "down"):
            rounded = up if side == "up" else down
            return rounded(value, digits=int(spec.removeprefix(side) or 4))
        if side == "%":
            return f"{100 * value:.6g} %"
        if side == "'":
            return f"'{value}'"
        plain = not spec and isinstance(value, float)
        return words(value) if plain else format(value, spec)


FORMATTER = _Formatter()


@cache
def names_in(key: str) -> tuple[str, ...]:
    """Return the names of the figures of a sentence.

    >>> names_in("limit")
    ('reach',)
    """
    return tuple(name for _, name, _, _ in FORMATTER.parse(SENTENCES[key]) if name)


class Said(str):
    """A sentence that knows its key, and the figures that it is made of.

    >>> Said("limit", {"reach": 2.5}).figures
    {'reach': 2.5}
    """

    key: str
    figures: dict[str, Any]

    def __new__(cls, key: str, figures: Mapping[str, Any]) -> Said:
        """Write the sentence of a key."""
        own = super().__new__(cls, FORMATTER.vformat(SENTENCES[key], (), figures))
        own.key, own.figures = key, dict(figures)
        return own

    @property
    def word(self) -> str:
        """The verdict that it is, in a word: the second part of its key."""
        return self.key.split(".")[1]

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Copy the words alone."""
        return str, (str(self),)


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
    def of(cls, key: str, state: State, **figures: Any) -> Assumption:
        """Build one from the key of its sentence."""
        return cls(Said(f"ground.{key}", figures), state)


HONEST = Assumption.of("honest", "assumed")


@dataclass(frozen=True)
class Verdict:
    """One of the three: who it is about, in a word, in a sentence, with figures."""

    title: str
    word: str
    sentence: Said

    @classmethod
    def of(cls, key: str, said: Said, word: str = "") -> Verdict:
        """Build one from its sentence, whose key has the word, unless it is given."""
        return cls(VERDICTS[key], word or said.word, said)

    @property
    def tone(self) -> Tone:
        """How good it is."""
        return TONES.get(self.word, "bad")

    @property
    def sign(self) -> str:
        """What tells the tones apart without colour."""
        return SIGNS[self.tone]

    def as_dict(self) -> dict[str, Any]:
        """Plain form, for certificate.json: with key and figures of the sentence."""
        told = {"verdict": self.word, "sentence": str(self.sentence)}
        figures = plain(self.sentence.figures)
        return {**told, "key": self.sentence.key, "figures": figures}


@dataclass(frozen=True)
class Statement(Record):
    """One claim: words, number, grounds.

    Attributes
    ----------
    kind
        What sort of claim: ``gap``, ``empirical``, ``holdout``, …
    text
        The claim in plain words; why there is none, where it is not `available`.
    value
        Its number, if it has one.
    holds
        Whether what was asked for is true; None if nothing was asked.
    assumptions
        What the claim stands on.
    figures
        The numbers that the text shows, and further ones.
    per_cell
        One plain mapping per cell, with at least the key ``cell``.
    available
        False if there is nothing to claim; then it has no number either.
    key
        That of the sentence that `text` is.
    """

    kind: str
    text: str
    value: float | None = None
    holds: bool | None = None
    assumptions: tuple[Assumption, ...] = ()
    figures: Mapping[str, Json] = field(default_factory=dict)
    per_cell: tuple[Mapping[str, Json], ...] | None = None
    available: bool = True
    key: str = ""

    def __post_init__(self) -> None:
        why = [a.text for a in self.assumptions if a.state == "failed"]
        why += [] if self.available else [self.text]
        if self.value is not None and not math.isfinite(self.value):
            why.append("the number could not be computed")
        if why:
            told = f"not available: {'; '.join(dict.fromkeys(why))}"
            gone = {"text": told, "available": False, "figures": {}, "key": ""}
            vars(self).update(gone, value=None, holds=None, per_cell=None)

    @property
    def title(self) -> str:
        """What it is about, in words."""
        rate = self.kind == "holdout" and "goal" in self.figures
        return SENTENCES[f"title.{self.kind}{'.rate' * rate}"]

    @property
    def mark(self) -> str:
        """The word that stands before it."""
        if not self.available:
            return "not available"
        told = MARKS.get(self.kind, ("holds", "does not hold"))
        return "known" if self.holds is None else told[not self.holds]

    @property
    def grounds(self) -> list[str]:
        """What it stands on, each with what is known of it."""
        found = self.assumptions if self.available else ()
        return [f"{a.text} ({a.state})" for a in found]

    @classmethod
    def of(
        cls,
        kind: str,
        said: Said,
        grounds: Sequence[Assumption],
        *,
        table: Mapping[str, Any] | None = None,
        figures: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> Statement:
        """Build one from its sentence; a table has columns of one figure per cell."""
        numbers = plain({**said.figures, **(figures or {})})
        parts |= {"assumptions": tuple(grounds), "figures": numbers, "key": said.key}
        if table is not None:
            rows = zip(*map(plain, table.values()), strict=True)
            parts["per_cell"] = tuple(
                dict(zip(table, row, strict=True)) for row in rows
            )
        return cls(kind, str(said), **parts)

    def as_dict(self) -> dict[str, Json]:
        """Plain form, for JSON: no NaN, no infinity."""
        return {**plain(vars(self)), "assumptions": [vars(a) for a in self.assumptions]}


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
        As stated; None if it was not.
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

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> told = pffl.solve(people, pffl.BoundedGroupLoss(0.65)).certificate
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
            raise NotMetError("not-certified", kind=kind, reason=reason)

    def as_dict(self) -> dict[str, Json]:
        """Plain form, for JSON, with the version of the format."""
        parts = plain({k: v for k, v in vars(self).items() if k != "statements"})
        stated = {"statements": [s.as_dict() for s in self.statements]}
        return {**parts, **stated, "format": FORMAT, "version": VERSION}

    @property
    def grounds(self) -> dict[str, int]:
        """What the statements stand on, each once, with its number."""
        found = (ground for one in self.statements for ground in one.grounds)
        return {text: i for i, text in enumerate(dict.fromkeys(found), start=1)}

    def __str__(self) -> str:
        lines = [
            f"{VERDICTS[key]}: {one['verdict']}. {one['sentence']}"
            for key, one in self.verdicts.items()
        ]
        sure = f"confidence {100 * self.confidence:.6g} %"
        lines.append(f"Data: {self.data}.")
        lines.append(f"Statements on new people hold, each by itself, with {sure}.")
        lines += [f"Note: {note}" for note in self.notes]
        for one in self.statements:
            lines += ["", f"[{one.mark}] {one.kind}", f"    {one.text}"]
            lines += [f"    {line}" for line in text_table(one.per_cell or ())]
            lines += [f"    - {a.state}: {a.text}" for a in one.assumptions]
        lines += ["", *(f"{name}: {of}" for name, of in self.fingerprints.items())]
        return "\n".join(map(visible, lines))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def statements(c: Conclusions) -> list[Statement]:
    """Return all statements; none of a run that was interrupted."""
    e = c.e
    if e.stopped == "interrupted":
        return []
    if c.noise is not None:
        return [privacy(c, c.noise), empirical(c), holdout(c)]
    found, promised = [empirical(c)], holdout(c)
    if e.trained:
        found = [gap(c), *found]
        searched = e.promise and known(e.proofs.least) is not None
        if searched and c.losses["train"].above.any():
            found.append(infeasible(c))
        if float(np.ptp(e.bounds)) == 0:
            found.append(attainable(c))
    found += [promised, *implied(c, promised)]
    return found + ([holdout_error(c)] if e.labels else [])


# Rows given


def proved(e: Evidence, scope: Assumption) -> tuple[Assumption, ...]:
    """Return what proofs on all models stand on: convexity, and their scope."""
    convex = Assumption.of("not convex", "failed")
    if e.model.convex:
        convex = Assumption.of("convex", "checked")
    return convex, scope, HONEST


def gap(c: Conclusions) -> Statement:
    """State how far the pair is from the best trade-off."""
    e, pair, target = c.e, c.e.proofs.gap, c.target
    if isinstance(pair, Missing):
        return Statement("gap", pair.missing, available=False)
    bare = not e.terms.multiplier_bound or (not e.promise and not e.minimax)
    scope = Assumption.of("ridge", "checked")
    if pair.radius is not None:
        scope = Assumption.of("ball", "assumed", radius=pair.radius)
    aim = "" if target is None else c.say("gap.target")
    return Statement.of(
        "gap",
        c.say("gap.risk" if bare else "gap", aim=aim),
        proved(e, scope),
        value=pair.gap,
        holds=None if target is None else pair.gap <= target,
        figures={"upper": pair.upper, "lower": pair.lower, "target": target},
    )


def empirical(c: Conclusions) -> Statement:
    """State what was measured, against bounds if there are any; slack as in Lemma 1."""
    cells, noise, promise = c.losses["train"], c.noise, c.e.promise
    if cells.empty and noise is None and promise:
        reason = f"no rows in {', '.join(cells.empty)}"
        return Statement("empirical", reason, available=False)
    met: list[bool | None] = [*(cells.high - cells.bounds <= cells.tolerance)]
    table: dict[str, Any] = {"cell": cells.names, "rows": cells.counts.astype(int)}
    table["rate" if c.e.terms.on_rates else "loss"] = cells.means
    grounds = [HONEST]
    if noise is not None:
        pairs = zip(met, cells.above, strict=True)
        met = [one or (False if above else None) for one, above in pairs]
        limits = {"clip": noise.clip, "loss_bound": noise.loss_bound}
        grounds.insert(0, Assumption.of("shipped.noise", "checked", **limits))
        table |= {"lower": cells.low, "upper": cells.high}
    if promise:
        table |= {"bound": cells.bounds, "margin": -cells.violation, "holds": met}
    held = {*met} if promise else {None}
    return Statement.of(
        "empirical",
        c.judged,
        grounds,
        value=float(cells.violation.max()) if noise is None and promise else None,
        holds=False if False in held else None if None in held else True,
        figures={"slack": c.slack, "converged": c.converged},
        table=table,
    )


def infeasible(c: Conclusions) -> Statement:
    """State that no model meets all bounds, with the witness."""
    if c.proof is None:
        reason = "there is no proof that the bounds are impossible"
        return Statement("infeasible", reason, available=False)
    low, reach = c.proof
    return Statement.of(
        "infeasible",
        c.say("infeasible", low=low),
        proved(c.e, Assumption.of("reach", "checked", reach=reach)),
        value=low,
        holds=True,
        figures={"multipliers": [*(c.witness or {}).values()], "reach": reach},
    )


def attainable(c: Conclusions) -> Statement:
    """State the smallest bound that all cells can meet, where bounds are alike."""
    e, least = c.e, c.e.proofs.least
    if isinstance(least, Missing):
        return Statement("attainable", least.missing, available=False)
    ends, reach = least.enclosed(c.longest)
    # Six digits: a bound is chosen by this number.
    limit = c.limit_of(reach, least.longest) if ends.lower > 0 else ""
    models = c.say("attainable.models", limit=limit) if limit else ""
    return Statement.of(
        "attainable",
        c.say("attainable", low=ends.lower, high=ends.upper, models=models),
        proved(e, Assumption.of("reach", "checked", reach=reach)),
        value=ends.upper,
        figures={"lower": ends.lower, "upper": ends.upper, "reach": reach},
    )


# New people


def holdout(c: Conclusions) -> Statement:
    """State how large the mean loss of unseen people can be, cell by cell."""
    e, rows, found, path, terms = c.e, c.people, c.upper, known(c.e.path), c.e.terms
    sample, M = known(rows.sample), 1.0 if terms.on_rates else terms.loss_bound
    if found is None or M is None or sample is None:
        return Statement("holdout", c.absent, available=False)
    figures: dict[str, Any] = {"confidence": terms.confidence}
    figures |= {"goal": terms.goal} if terms.on_rates else {"loss_bound": M}
    figures["delta"] = c.risk if c.by_path else rows.delta
    if path is not None:
        figures |= {"model": path.chosen + 1, "models": len(path.candidates)}
        figures["rows spent"] = path.shipped.calibration.rows
    grounds = rows.grounds
    if c.by_path:
        fixed = [Assumption.of("fixed.path", "assumed")]
        if (many := terms.candidates) > 1:
            fixed.append(Assumption.of("fixed.many", "assumed", many=many))
        grounds = (*grounds[:2], *fixed, *rows.reuse[not terms.others :])
    table = {"cell": e.names, "rows": sample.of_cells("count").astype(int)}
    means = e.means(sample) if terms.on_rates else sample.means
    table |= {"rate" if terms.on_rates else "loss": means, "upper": found}
    table["vacuous"] = found >= M
    if e.promise:
        table |= {"bound": e.bounds, "shown": found <= e.bounds}
    worst = float((found - e.bounds if e.promise else found).max())
    return Statement.of(
        "holdout",
        c.verdicts["new_people"].sentence,
        (*grounds, *rows.of_losses),
        value=None if c.by_path or c.noise is not None else worst,
        holds=c.shown,
        figures=figures,
        table=table,
    )


def implied(c: Conclusions, promised: Statement) -> list[Statement]:
    """State what bounds on every label of a group imply for the group as a whole.

    On the rows given L_a = Σ_y share_{a,y} L_{a,y} ≤ Σ_y share_{a,y} ζ_{a,y}; for
    unseen people, where the shares are unknown, L_a ≤ max_y ζ_{a,y}. It is stated
    where the bounds are met, and (`promised`) shown for unseen people.
    """
    e, cells, parts = c.e, c.losses["train"], dict[tuple[str, ...], dict[Any, int]]()
    for z, cell in enumerate(e.cells):
        groups, labels = zip(*cell.of, strict=True)
        if cell.silo is None and len(set(labels)) == 1:
            parts.setdefault(groups, {})[labels[0]] = z
    every = {name: [*own.values()] for name, own in parts.items()}
    whole = {
        k: own for k, own in every.items() if e.labels and len(own) == len(e.labels)
    }
    if not e.promise or cells.empty or cells.above.any() or not whole:
        return []
    weight, sure = e.seen.of_cells("weight"), promised.holds is True
    own = [(group, weight[group]) for group in whole.values()]
    most = [float(np.average(e.bounds[z], weights=n)) for z, n in own]
    tops = [float(e.bounds[z].max()) for z, _ in own]
    unseen = c.say("implied.unseen", most=max(tops)) if sure else ""
    return [
        Statement.of(
            "implied",
            c.say("implied", largest=max(most), unseen=unseen),
            (HONEST, *(promised.assumptions if sure else ())),
            value=max(most),
            holds=True,
            table={
                "cell": [" or ".join(groups) for groups in whole],
                "loss": [np.average(cells.means[z], weights=n) for z, n in own],
                "at most": most,
                "unseen at most": tops if sure else [None] * len(tops),
            },
        )
    ]


def holdout_error(c: Conclusions) -> Statement:
    """State how often unseen people are misjudged, cell by cell, all cells at once."""
    e, sample = c.e, c.heldout.usable
    grounds = (*c.heldout.grounds, *c.heldout.alike)
    if sample is None or any(ground.state == "failed" for ground in grounds):
        return Statement("holdout_error", "", assumptions=grounds)
    count = sample.of_cells("count")
    wrong, delta = count - sample.of_cells("correct"), c.heldout.delta / len(e.cells)
    bounds = clopper_pearson_upper(wrong, count, delta=delta)
    worst = int(np.argmax(bounds))
    high = float(bounds[worst])
    share = wrong / np.where(count > 0, count, np.nan)
    return Statement.of(
        "holdout_error",
        c.say("holdout_error", high=high, cell=e.names[worst]),
        grounds,
        value=high,
        table={
            "cell": e.names,
            "rows": count.astype(int),
            "error": share,
            "upper": bounds,
        },
    )


# Noise


def privacy(c: Conclusions, noise: Noise) -> Statement:
    """State what was spent, and who it protects."""
    # Whether rows were in one process: sites elsewhere are not seen.
    here: State = "assumed" if c.e.data.synthetic is None else "checked"
    test, sites, of = "", {"sites": noise.sites}, Assumption.of
    if noise.heldout_mu is not None:
        own = epsilon_of(noise.heldout_mu, noise.delta)
        test = c.say("privacy.test", own=own, delta=noise.delta)
    grounds = [of("seeded", "failed") if noise.repeatable else of("secret", "checked")]
    if noise.shared:
        sites |= {"colluding": noise.colluding}
        enough = noise.sites - noise.colluding
        grounds.append(of("noise.shared", here, enough=enough, **sites))
        grounds.append(of("colluding", "assumed", **sites))
    else:
        grounds.append(of("noise.each", here, times=math.sqrt(noise.sites), **sites))
    who = of("person", here) if noise.by_id else of("row", "assumed")
    grounds += [of("declared", here), who, of("neighbours", here)]
    grounds.append(of("timing", "assumed"))
    spent = {"spent": noise.epsilon_spent, "mu": noise.mu, "delta": noise.delta}
    return Statement.of(
        "privacy",
        c.say("privacy", test=test, **spent),
        grounds,
        value=noise.epsilon_spent,
        figures={"heldout_mu": noise.heldout_mu},
    )
