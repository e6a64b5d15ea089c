"""Statements and certificates: what is claimed, on what grounds, and whether it holds.

These objects only remember; `statements` makes them from `Conclusions`. A statement of
which an assumption failed is **not available**: its number, its verdict and its text
are gone the moment it is built, so none of them can be shown by mistake.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from pffl.bounds import rates
from pffl.errors import NotMetError, UsageError
from pffl.evidence.figures import METRICS, shares
from pffl.evidence.record import (
    Evidence,
    Missing,
    ModelPath,
    Noise,
    known,
)
from pffl.evidence.sentences import Assumption, Said, State
from pffl.files import plain
from pffl.privacy.accounting import epsilon_of
from pffl.records import Record
from pffl.text import text_table, visible

if TYPE_CHECKING:
    from pffl.evidence.conclude import Conclusions

Json: TypeAlias = Any
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

#: The three verdicts, who each is about, and their words, the same wherever they are
#: shown; a run that was broken off, or without bounds, has another word.
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
VERSION = 5
#: What a file has besides the claims: every figure, and what all of it follows from.
INSIDE = ("figures", "evidence")
TITLES = {
    "measured": "Measured",
    "privacy": "Privacy",
    "gap": "Best trade-off",
    "empirical": "Bounds, on the rows at hand",
    "infeasible": "Impossible bounds",
    "attainable": "Smallest bound",
    "holdout": "New people: loss",
    "implied": "Whole groups",
    "holdout_error": "New people: errors",
    "dp_gap": "New people: demographic parity",
    "eo_gap": "New people: equal opportunity",
    "equalised_odds": "New people: equalised odds",
}
#: What stands before a statement that holds, and that does not.
MARKS = {
    "holdout": ("certified", "not certified"),
    "empirical": ("met", "not met"),
    "infeasible": ("proved", "not proved"),
}


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
        """Build the statement that says why it is missing."""
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


#: How the fairness metrics are enclosed, by kind.
SPREADS: dict[str, Callable[..., rates.Spread]] = {
    "dp_gap": rates.demographic_parity,
    "eo_gap": rates.equal_opportunity,
    "equalised_odds": rates.equalised_odds,
}
HONEST = Assumption.of("honest", "assumed")
EXACT = {
    "gap": "under noise: it needs exact sums",
    "infeasible": "under noise: its proof needs exact sums",
    "holdout_error": "under noise: errors are released as figures only",
}


def statements(c: Conclusions) -> list[Statement]:
    """Return all statements; none of a run that was interrupted."""
    e = c.e
    if e.stopped == "interrupted":
        return []
    if c.noise is not None:
        none = {k: Statement.not_available(k, why) for k, why in EXACT.items()}
        first = [privacy(c, c.noise), empirical_noise(c, c.noise)]
        proofs = [none["gap"], none["infeasible"]]
        return [*first, *proofs, holdout(c), none["holdout_error"]]
    out, promised = [measured(c)], holdout(c)
    out += [gap(c), empirical(c)] if e.trained else [empirical(c)]
    if e.trained:
        proved = known(e.proofs.excess) is not None and e.promise
        out += [infeasible(c)] if proved and c.losses["train"].above.any() else []
        out += [attainable(c)]
    out += [promised, *implied(c, promised)]
    out += [holdout_error(c)] if e.labels else []
    return out + ([metric(kind, c) for kind in METRICS] if len(e.labels) == 2 else [])


# Rows given


def measured(c: Conclusions) -> Statement:
    """State what was measured, and on how many rows."""
    e, held = c.e, known(c.e.heldout)
    samples = {"train": e.seen}
    if held is not None and e.trained:
        samples["+".join(held.splits)] = held
    parts = []
    for name, sample in samples.items():
        word = f" {name}".replace(" train", " training") if e.trained else ""
        used = not e.trained and e.data.trained_on is not None
        more = f" ({' and '.join(sample.splits)})" if used else ""
        parts.append(f"{sample.rows:,}{word} rows{more}")
    table = []
    for z, cell in enumerate(e.cells):
        row: dict[str, Any] = {"cell": cell.cell}
        for name, sample in samples.items():
            mark, mean = f"{name} " * (len(samples) > 1), float(e.means(sample)[z])
            row[f"{mark}rows"] = int(sample.cells["count"][z])
            row[f"{mark}loss"] = None if np.isnan(mean) else mean
        table.append({**row, "multiplier": cell.multiplier} if e.trained else row)
    said = c.say(
        "measured",
        parts=" and ".join(parts),
        data=e.data.name,
        silos=e.data.silos,
        s="" if e.data.silos == 1 else "s",
        other=c.say("measured.other") if e.data.other else "",
    )
    return Statement.of("measured", said, per_cell=tuple(table))


def convexity(e: Evidence) -> Assumption:
    """Say whether the loss is convex in the model's weights."""
    if e.model.convex:
        return Assumption.of("convex", "checked")
    return Assumption.of("not convex", "failed")


def gap(c: Conclusions) -> Statement:
    """State how far the pair is from the best trade-off."""
    e, pair, target = c.e, c.e.proofs.gap, c.target
    if isinstance(pair, Missing):
        grounds = () if e.model.convex else (convexity(e),)
        return Statement.not_available("gap", pair.missing, grounds)
    bare = not e.terms.multiplier_bound or (not e.promise and not e.minimax)
    compared = Assumption.of("ridge", "checked")
    if pair.radius is not None:
        compared = Assumption.of("ball", "assumed", radius=pair.radius)
    aim = "" if target is None else c.say("gap.target")
    return Statement.of(
        "gap",
        c.say("gap.risk" if bare else "gap", aim=aim),
        value=pair.gap,
        holds=None if target is None else pair.gap <= target,
        assumptions=(convexity(e), compared, HONEST),
        figures={"upper": pair.upper, "lower": pair.lower, "target": target},
    )


def empirical(c: Conclusions) -> Statement:
    """State what was measured against the bounds, and the slack of Lemma 1."""
    cells, rows = c.losses["train"], c.rows.removeprefix("the ").removesuffix(" used")
    if not c.e.promise:
        return Statement.not_available("empirical", "no bound was set")
    if cells.empty:
        reason = f"no {rows} in {', '.join(cells.empty)}"
        return Statement.not_available("empirical", reason)
    worst = float(cells.violation.max())
    excused = c.slack is not None and worst <= c.slack
    more = c.say("empirical.slack") if excused else ""
    return Statement.of(
        "empirical",
        c.say("empirical", slack=more),
        value=worst,
        holds=not cells.above.any(),
        assumptions=(Assumption.of("filled", "checked", rows=rows), HONEST),
        figures={"slack": c.slack, "converged": c.converged},
        per_cell=tuple(
            {
                "cell": name,
                "rows": int(cells.counts[z]),
                "loss": float(cells.means[z]),
                "bound": float(cells.bounds[z]),
                "margin": float(-cells.violation[z]),
                "holds": bool(cells.violation[z] <= cells.tolerance[z]),
            }
            for z, name in enumerate(cells.names)
        ),
    )


def reaching(e: Evidence, reach: float) -> tuple[Assumption, ...]:
    """Say which models a proof speaks of."""
    return convexity(e), Assumption.of("reach", "checked", reach=reach), HONEST


def infeasible(c: Conclusions) -> Statement:
    """State that no model meets all bounds, with the witness."""
    least, found = known(c.e.proofs.excess), c.proof
    if least is None or found is None:
        reason = "there is no proof that the bounds are impossible"
        return Statement.not_available("infeasible", reason, (convexity(c.e),))
    return Statement.of(
        "infeasible",
        c.say("infeasible", low=found[0]),
        value=found[0],
        holds=True,
        assumptions=reaching(c.e, found[1]),
        figures={"multipliers": least.multipliers, "reach": found[1]},
    )


def attainable(c: Conclusions) -> Statement:
    """State the smallest bound that all cells can meet."""
    e, least = c.e, c.e.proofs.least
    if isinstance(least, Missing):
        grounds = () if e.model.convex else (convexity(e),)
        return Statement.not_available("attainable", least.missing, grounds)
    ends, reach = least.enclosed(c.longest)
    # Six digits: a bound is chosen by this number.
    limit = c.limit_of(reach, least.longest) if ends.lower > 0 else ""
    models = c.say("attainable.models", limit=limit) if limit else ""
    return Statement.of(
        "attainable",
        c.say("attainable", low=ends.lower, high=ends.upper, models=models),
        value=ends.upper,
        assumptions=reaching(e, reach),
        figures={"lower": ends.lower, "upper": ends.upper, "reach": reach},
    )


# New people


def holdout(c: Conclusions) -> Statement:
    """State how large the mean loss of unseen people can be, cell by cell."""
    e, rows, found, M = c.e, c.people, c.upper, c.e.terms.loss_bound
    path, said, grounds = (
        known(e.path),
        c.verdicts["new_people"].said,
        rows.loss_grounds,
    )
    if found is None or M is None:
        if c.noise is not None:
            return Statement.not_available("holdout", c.absent)
        return Statement("holdout", "", assumptions=grounds)
    figures: dict[str, Any] = {"confidence": c.confidence, "loss_bound": M}
    value = None
    if path is not None:
        figures |= {"model": path.chosen + 1, "models": len(path.candidates)}
        figures["rows spent"] = path.shipped.calibration.rows
    if path is not None and c.by_path:
        figures["delta"] = c.risk
        models = len(path.candidates)
        many = "model was" if models == 1 else "models were"
        how = c.say("how", models=models, many=many)
        said = c.say("holdout.path", short=said, how=how)
        grounds = _path_grounds(c, path)
    elif c.noise is None:
        figures["delta"] = rows.delta
        value = float((found - e.bounds if e.promise else found).max())
        if e.promise:
            said = c.say("holdout", mixture=c.mixture("test"))
        if path is not None:
            short = f"{c.failed}{c.lacking}"
            said = c.say("holdout.path", short=short, how=said)
    return Statement.of(
        "holdout",
        said,
        value=value,
        holds=c.shown,
        assumptions=grounds,
        figures=figures,
        per_cell=_loss_rows(c),
    )


def _loss_rows(c: Conclusions) -> tuple[dict[str, Any], ...]:
    """One row per cell; without bounds nothing is compared."""
    e, found, joint = c.e, c.upper, None if c.by_path else c.people.joint
    sample, M, out = known(c.people.sample), c.e.terms.loss_bound or math.inf, []
    if found is None or sample is None:
        return ()
    counts, means = sample.of_cells("count"), sample.means
    released = None if c.noise is None else c.noise.heldout
    for z, name in enumerate(e.names):
        row: dict[str, Any] = {"cell": name}
        if released is not None:
            row |= {"people": float(c.member[z] @ released.counts)}
            row |= {"upper": float(found[z]), "bound": None, "shown": None}
        else:
            row["rows"] = int(counts[z])
            row["loss"] = float(means[z]) if counts[z] else None
            row["upper"] = float(found[z])
            row |= {} if joint is None else {"joint": float(joint[z])}
            row["vacuous"] = bool(found[z] >= M)
        if e.promise:
            row["bound"] = float(e.bounds[z])
            row["shown"] = bool(found[z] <= e.bounds[z])
        out.append(row)
    return tuple(out)


def _path_grounds(c: Conclusions, path: ModelPath) -> tuple[Assumption, ...]:
    """Say what a certificate by a path stands on."""
    terms, rows = c.e.terms, c.people
    key = "fixed.path" if len(path.candidates) > 1 else "fixed.path.one"
    others = list(rows.reuse if terms.others else rows.reuse[1:])
    if terms.candidates > 1 and not terms.others:
        others.insert(0, Assumption.of("paths", "assumed", paths=terms.candidates))
    first = (rows.grounds[0], rows.separate, Assumption.of(key, "assumed"))
    return (*first, *others, *rows.loss_grounds[len(rows.grounds) :])


def implied(c: Conclusions, promised: Statement) -> list[Statement]:
    """State what bounds on every label of a group imply for the group as a whole.

    On the rows given L_a = Σ_y share_{a,y} L_{a,y} ≤ Σ_y share_{a,y} ζ_{a,y}; for
    unseen people, where the shares are unknown, L_a ≤ max_y ζ_{a,y}. It is stated
    where the bounds are met, and (`promised`) shown for unseen people.
    """
    e, cells, whole = c.e, c.losses["train"], groups_of(c.e)
    if not e.promise or cells.empty or cells.above.any() or not whole:
        return []
    weight, sure = e.seen.of_cells("weight"), promised.holds is True
    rows: list[dict[str, Any]] = [
        {
            "cell": name,
            "loss": float(np.average(cells.means[own], weights=weight[own])),
            "at most": float(np.average(e.bounds[own], weights=weight[own])),
            "unseen at most": float(e.bounds[own].max()) if sure else None,
        }
        for name, own in whole.items()
    ]
    largest, unseen = max(row["at most"] for row in rows), ""
    if sure:
        most = max(row["unseen at most"] for row in rows)
        unseen = str(c.say("implied.unseen", most=most, mixture=c.mixture("test")))
    return [
        Statement.of(
            "implied",
            c.say("implied", largest=largest, unseen=unseen),
            value=largest,
            holds=True,
            assumptions=(HONEST, *(promised.assumptions if sure else ())),
            per_cell=tuple(rows),
        )
    ]


def groups_of(e: Evidence) -> dict[str, list[int]]:
    """Return the cells of each group of which every label has a bound."""
    found: dict[tuple[str, ...], dict[str | None, int]] = {}
    for z, cell in enumerate(e.cells):
        groups, labels = zip(*cell.of, strict=True)
        if cell.silo is None and len(set(labels)) == 1:
            found.setdefault(groups, {})[labels[0]] = z
    return {
        " or ".join(groups): list(own.values())
        for groups, own in found.items()
        if e.labels and len(own) == len(e.labels)
    }


def _rate_grounds(c: Conclusions) -> tuple[Assumption, ...]:
    """Say what rates stand on: one row for each person, which count alike."""
    failed = {"single": c.e.data.several, "alike": c.e.heldout_weighted}
    none = (Assumption.of(key, "failed") for key, true in failed.items() if true)
    return (*c.heldout.grounds, *none)


def holdout_error(c: Conclusions) -> Statement:
    """State how often unseen people are misjudged, cell by cell, all cells at once."""
    e, rows, grounds = c.e, c.heldout, _rate_grounds(c)
    sample = rows.usable
    if sample is None or any(ground.state == "failed" for ground in grounds):
        return Statement("holdout_error", "", assumptions=grounds)
    count = sample.of_cells("count")
    wrong = count - sample.of_cells("correct")
    delta = rows.joint_delta("holdout_error")
    bounds = rates.clopper_pearson_upper(wrong, count, delta=delta)
    worst = int(np.argmax(bounds))
    high = float(bounds[worst])
    return Statement.of(
        "holdout_error",
        c.say("holdout_error", high=high, cell=e.names[worst]),
        value=high,
        assumptions=grounds,
        figures={"confidence": c.confidence},
        per_cell=tuple(
            {
                "cell": name,
                "rows": int(count[z]),
                "error": float(wrong[z] / count[z]) if count[z] else None,
                "upper": float(bounds[z]),
            }
            for z, name in enumerate(e.names)
        ),
    )


def metric(kind: str, c: Conclusions) -> Statement:
    """State a fairness metric of unseen people with its interval."""
    e, rows, grounds = c.e, c.heldout, _rate_grounds(c)
    sample = rows.usable
    if sample is None or any(ground.state == "failed" for ground in grounds):
        return Statement(kind, "", assumptions=grounds)
    chosen = c.reported_groups
    columns = ("positive", "count")
    tables = [sample.of_strata(column, len(e.groups))[chosen] for column in columns]
    found = SPREADS[kind](*tables, delta=rows.joint_delta(kind))
    missing = [e.groups[chosen[a]] for a in found.undefined]
    low, high = found.interval.lower, found.interval.upper
    key = "metric.undefined" if found.value is None else "metric.here"
    here = str(c.say(key, missing=missing, value=found.value and float(found.value)))
    what = str(c.say(f"metric.{kind}"))
    return Statement.of(
        kind,
        c.say("metric", low=low, high=high, what=what, here=here),
        value=found.value,
        assumptions=grounds,
        figures={
            "confidence": c.confidence,
            "lower": low,
            "upper": high,
            "undefined": missing,
        },
    )


# Noise


def empirical_noise(c: Conclusions, noise: Noise) -> Statement:
    """State how the training losses stand to the bounds, noise allowed for."""
    e, cells = c.e, c.losses["train"]
    decided = True if cells.met else False if cells.above.any() else None
    limits = {"clip": noise.clip, "loss_bound": noise.loss_bound}
    return Statement.of(
        "empirical",
        c.judged.said,
        holds=decided if e.promise else None,
        assumptions=(Assumption.of("shipped.noise", "checked", **limits), HONEST),
        figures={"factor": c.factor},
        per_cell=tuple(
            {
                "cell": name,
                "people": float(cells.counts[z]),
                "loss": float(np.nan_to_num(cells.means[z])),
                "lower": float(cells.low[z]),
                "upper": float(cells.high[z]),
                "bound": float(e.bounds[z]) if e.promise else None,
            }
            for z, name in enumerate(e.names)
        ),
    )


def privacy(c: Conclusions, noise: Noise) -> Statement:
    """State what was spent, and who it protects."""
    # Whether rows were in one process: sites elsewhere are not seen.
    here: State = "assumed" if c.e.data.synthetic is None else "checked"
    test, figures = "", {"mu": noise.mu, "delta": noise.delta}
    if noise.heldout_mu is not None:
        own = epsilon_of(noise.heldout_mu, noise.delta)
        test = str(c.say("privacy.test", own=own, delta=noise.delta))
    secret = Assumption.of("secret", "checked")
    if noise.repeatable:
        secret = Assumption.of("seeded", "failed")
    person, mark = Assumption.of("row", "assumed"), "row"
    if noise.by_id:
        person, mark = Assumption.of("person", here), "id and rows"
    return Statement.of(
        "privacy",
        c.say("privacy", spent=noise.epsilon_spent, test=test, **figures),
        value=noise.epsilon_spent,
        assumptions=(
            secret,
            *_adding(c, noise, here),
            Assumption.of("declared", here),
            Assumption.of("chosen", "assumed"),
            person,
            Assumption.of("neighbours", here, own=mark),
            Assumption.of("timing", "assumed"),
        ),
        figures={**figures, "heldout_mu": noise.heldout_mu},
    )


def _adding(c: Conclusions, noise: Noise, here: State) -> Sequence[Assumption]:
    """Say who added the noise, and who it relies on."""
    sites, colluding = noise.sites, noise.colluding
    if sites < 2:
        return [Assumption.of("noise.one", here)]
    if not noise.shared:
        return [Assumption.of("noise.each", here, sites=sites, times=math.sqrt(sites))]
    more = c.say("ground.noise.here") if here == "checked" else ""
    figures = {"sites": sites, "enough": sites - colluding, "here": more}
    return [
        Assumption.of("noise.shared", here, **figures),
        Assumption.of("colluding", "assumed", colluding=colluding, sites=sites),
    ]


# How sure


def sharing(c: Conclusions) -> Said:
    """Say in words how sure the statements on unseen people are."""
    kinds, parts = shares(c.e), c.say("sharing.losses")
    if len(kinds) > 1:
        parts = c.say("sharing.parts", many=len(kinds) - 1)
    return c.say("sharing", delta=1.0 - c.e.terms.confidence, parts=parts)
