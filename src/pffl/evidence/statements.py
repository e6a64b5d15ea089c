"""The statements of a certificate: each a claim with its number and its grounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl.bounds import rates
from pffl.evidence.certificate import Assumption, State, Statement
from pffl.evidence.figures import METRICS, later_part, shares
from pffl.evidence.record import (
    Evidence,
    Missing,
    ModelPath,
    Noise,
    known,
)
from pffl.privacy.accounting import epsilon_of

if TYPE_CHECKING:
    from pffl.evidence.conclude import Conclusions
    from pffl.evidence.sentences import Said

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


# Rows at hand


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
        c.say("empirical" if len(cells.names) > 1 else "empirical.one", slack=more),
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
        said = c.say("holdout.path", short=said, how=_how(c, path))
        grounds = _path_grounds(c, path)
    elif c.noise is None:
        figures["delta"] = rows.delta
        value = float((found - e.bounds if e.promise else found).max())
        if e.promise:
            said = c.say("holdout", mixture=c.mixture("test"))
        if path is not None:
            short = f"{c.failed}{c.in_the_way}"
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
    """One row per cell; without bounds there is none to compare with."""
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


def _how(c: Conclusions, path: ModelPath) -> Said:
    """Say how the model was chosen, and what rows were spent."""
    many, place = len(path.candidates), path.chosen + 1
    if many == 1:
        return c.say("how.one")
    end = c.say("end.some")
    if place == many:
        end = c.say("end.last")
    elif len(c.tested) == place + 1 and not c.tested[-1]:
        end = c.say("end.before", number=place + 1)
    return c.say("how.many", models=many, end=end)


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

    On the rows at hand L_a = Σ_y share_{a,y} L_{a,y} ≤ Σ_y share_{a,y} ζ_{a,y}; for
    unseen people, where nobody knows the shares, L_a ≤ max_y ζ_{a,y}. It is stated
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
    """State what was spent, and for whom it holds."""
    # Whether rows were at hand: who asks sites elsewhere does not see what they do.
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
    """Say who added the noise, and on whom that relies."""
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
    e, kinds, many = c.e, shares(c.e), c.heldout.candidates
    parts, more = c.say("sharing.losses"), ""
    if len(kinds) > 1:
        parts = c.say("sharing.parts", many=len(kinds) - 1)
    if many > 1:
        more += str(c.say("sharing.candidates", candidates=many))
    if later := e.terms.later:
        more += str(c.say("sharing.later", number=later + 1, part=later_part(e)))
    key = "sharing.path" if isinstance(e.path, ModelPath) else "sharing"
    return c.say(key, delta=1.0 - e.terms.confidence, parts=parts, more=more)
