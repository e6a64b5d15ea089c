"""The statements of a certificate: each a claim with its number and its grounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pffl.bounds import rates
from pffl.bounds.checks import Interval
from pffl.evidence import sites
from pffl.evidence.certificate import Assumption, State, Statement
from pffl.evidence.judged import (
    METRICS,
    Judged,
    later_part,
    named,
    reported_groups,
    shares,
)
from pffl.evidence.record import (
    Evidence,
    Least,
    Lowest,
    Missing,
    ModelPath,
    Noise,
    known,
)
from pffl.evidence.sentences import Said, say
from pffl.evidence.verdicts import (
    absent,
    against,
    among,
    failed,
    in_the_way,
    instead,
    mixture,
    nobody,
    rows_word,
    standing,
)
from pffl.privacy.accounting import epsilon_of

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


def statements(j: Judged, judged: Said, short: Said) -> list[Statement]:
    """Return all statements; `judged` and `short` are what two verdicts say."""
    e = j.e
    if e.noise is not None:
        absent_of = {k: Statement.not_available(k, why) for k, why in EXACT.items()}
        first = [privacy(e, e.noise), empirical_noise(j, e.noise, judged)]
        proofs = [absent_of["gap"], absent_of["infeasible"]]
        return [*first, *proofs, holdout(j, short), absent_of["holdout_error"]]
    promised = holdout(j, short)
    out = [*of_rows(j), *sites.statements(e), promised, *implied(j, promised)]
    if e.labels:
        out.append(holdout_error(j))
    if len(e.labels) == 2:
        out += [metric(kind, j) for kind in METRICS]
    return out


# Rows at hand


def of_rows(j: Judged) -> list[Statement]:
    """Return all statements on the rows at hand."""
    e, out = j.e, [measured(j)]
    if not e.trained:
        return [*out, empirical(j)]
    out += [gap(j), empirical(j)]
    if isinstance(e.proofs.excess, Least) and e.promise and j.train.missed:
        out.append(infeasible(j))
    out.append(attainable(j))
    return out + [lowest(j, found) for found in e.proofs.lowest]


def measured(j: Judged) -> Statement:
    """State what was measured, and on how many rows."""
    e, held = j.e, known(j.e.heldout)
    samples = {"train": e.seen}
    if held is not None and e.trained:
        samples["+".join(held.splits)] = held
    parts = []
    for name, sample in samples.items():
        word = f" {name}".replace(" train", " training") if e.trained else ""
        rows = f"{sample.rows:,}{word} rows"
        if not e.trained and e.data.trained_on is not None:
            rows += f" ({' and '.join(sample.splits)})"
        parts.append(rows)
    table = []
    for z, cell in enumerate(e.cells):
        row: dict[str, Any] = {"cell": cell.cell}
        for name, sample in samples.items():
            mark, mean = f"{name} " * (len(samples) > 1), float(e.means(sample)[z])
            row[f"{mark}rows"] = int(sample.cells["count"][z])
            row[f"{mark}loss"] = None if np.isnan(mean) else mean
        table.append({**row, "multiplier": cell.multiplier} if e.trained else row)
    figures = {
        "parts": " and ".join(parts),
        "data": e.data.name,
        "silos": e.data.silos,
        "s": "" if e.data.silos == 1 else "s",
        "other": Said("measured.other") if e.data.other else "",
    }
    return Statement.of("measured", Said("measured", figures), per_cell=tuple(table))


def convexity(e: Evidence) -> Assumption:
    """Say whether the loss is convex in the model's weights."""
    if e.model.convex:
        return Assumption.of("convex", "checked")
    return Assumption.of("not convex", "failed")


def gap(j: Judged) -> Statement:
    """State how far the pair is from the best trade-off."""
    e, pair, target = j.e, j.e.proofs.gap, j.target
    if isinstance(pair, Missing):
        grounds = () if e.model.convex else (convexity(e),)
        return Statement.not_available("gap", pair.missing, grounds)
    bare = not e.terms.multiplier_bound or (not e.promise and not e.minimax)
    aim = "" if target is None else Said("gap.target", {"target": target})
    compared = Assumption.of("ridge", "checked")
    if pair.radius is not None:
        compared = Assumption.of("ball", "assumed", radius=pair.radius)
    return Statement.of(
        "gap",
        Said("gap.risk" if bare else "gap", {"gap": pair.gap, "aim": aim}),
        value=pair.gap,
        holds=None if target is None else pair.gap <= target,
        assumptions=(convexity(e), compared, HONEST),
        figures={"upper": pair.upper, "lower": pair.lower, "target": target},
    )


def empirical(j: Judged) -> Statement:
    """State what was measured against the bounds, and the slack of Lemma 1."""
    e, cells, rows = j.e, j.train, rows_word(j)
    if not e.promise:
        return Statement.not_available("empirical", "no bound was set")
    of_these = rows.removeprefix("the ").removesuffix(" used")
    if cells.empty:
        reason = f"no {of_these} in {', '.join(cells.empty)}"
        return Statement.not_available("empirical", reason)
    worst, allowed, more = float(cells.violation.max()), j.slack, ""
    if allowed is not None and worst <= allowed:
        price = e.terms.multiplier_bound
        more = say("empirical.slack", multiplier_bound=price, slack=allowed)
    figures = {"rows": rows, "worst": standing(cells, cells.worst), "slack": more}
    return Statement.of(
        "empirical",
        Said("empirical" if len(cells.names) > 1 else "empirical.one", figures),
        value=worst,
        holds=not cells.missed,
        assumptions=(Assumption.of("filled", "checked", rows=of_these), HONEST),
        figures={"slack": allowed, "converged": j.converged},
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


def infeasible(j: Judged) -> Statement:
    """State that no model meets all bounds, with the witness."""
    e, least, found = j.e, known(j.e.proofs.excess), j.proof
    if least is None or found is None:
        reason = "there is no proof that the bounds are impossible"
        return Statement.not_available("infeasible", reason, (convexity(e),))
    bound, reach = found
    return Statement.of(
        "infeasible",
        Said("infeasible", {"nobody": nobody(j), "low": bound}),
        value=bound,
        holds=True,
        assumptions=reaching(e, reach),
        figures={"multipliers": least.multipliers, "reach": reach},
    )


def attainable(j: Judged) -> Statement:
    """State the smallest bound that all cells can meet."""
    e, least = j.e, j.e.proofs.least
    if isinstance(least, Missing):
        grounds = () if e.model.convex else (convexity(e),)
        return Statement.not_available("attainable", least.missing, grounds)
    return _enclosed(j, *least.enclosed(j.longest), least.longest)


def lowest(j: Judged, found: Lowest) -> Statement:
    """State how low the bound of one cell can go with the others kept."""
    name, reason, ends = f"'{found.cell}'", "", found.enclosed(j.longest)
    if not j.e.promise:
        reason = "no bound was set for the other cells to keep"
    elif found.impossible:
        reason = (
            f"the other bounds cannot be kept by any model, whatever that of {name}"
        )
    elif ends is None:
        reason = f"no model was found that keeps the bounds of all but {name}"
    if reason or ends is None:
        return Statement.not_available("attainable", reason)
    return _enclosed(j, *ends, found.longest, found.cell)


def _enclosed(
    j: Judged, ends: Interval, reach: float, seen: float, cell: str | None = None
) -> Statement:
    # Six digits: a bound is chosen by this number.
    limit = among(j, reach, seen) if ends.lower > 0 else ""
    models = say("attainable.models", limit=limit) if limit else ""
    figures = {"low": ends.lower, "high": ends.upper, "models": models, "cell": cell}
    return Statement.of(
        "attainable",
        Said("attainable" if cell is None else "attainable.cell", figures),
        value=ends.upper,
        assumptions=reaching(j.e, reach),
        figures={
            "lower": ends.lower,
            "upper": ends.upper,
            "cell": cell,
            "reach": reach,
        },
    )


# New people


def holdout(j: Judged, short: Said) -> Statement:
    """State how large the mean loss of unseen people can be, cell by cell."""
    e, rows, found, M = j.e, j.people, j.upper, j.e.terms.loss_bound
    path = known(e.path)
    if e.noise is not None and found is None:
        return Statement.not_available("holdout", absent(j))
    if found is None or M is None:
        reasons = (*rows.grounds, *rows.bounded_loss, *rows.weights)
        return Statement("holdout", "", assumptions=reasons)
    reasons = rows.grounds
    if e.noise is None:
        reasons = (*rows.grounds, *rows.bounded_loss, *rows.weights)
    figures: dict[str, Any] = {"confidence": e.terms.confidence, "loss_bound": M}
    said, value = short, float((found - e.bounds).max()) if e.promise else None
    if e.noise is not None:
        value = None
    elif path is not None and j.by_path:
        figures |= {"delta": j.risk, **_of(path)}
        said = Said("holdout.path", {"short": said, "how": _how(j, path)})
        reasons, value = _grounds(j, path), None
    else:
        figures["delta"] = rows.delta
        if e.promise:
            said = Said("holdout", _holdout_figures(j))
        else:
            value = float(found.max())
        if path is not None:
            figures |= {**_of(path), "rise": j.rise}
            parts = failed(path), in_the_way(j), instead(j)
            said = Said(
                "holdout.path", {"short": "".join(map(str, parts)), "how": said}
            )
    return Statement.of(
        "holdout",
        said,
        value=value,
        holds=j.certified,
        assumptions=reasons,
        figures=figures,
        per_cell=_loss_rows(j),
    )


def _holdout_figures(j: Judged) -> dict[str, Any]:
    kept = f" by {name}," if (name := named(j.e)) else ""
    return {
        "confidence": j.e.terms.confidence,
        "counted": "weighted " if j.e.heldout_weighted else "",
        "kept": kept,
        "mixture": mixture(j, "test"),
        "standing": against(j),
    }


def _loss_rows(j: Judged) -> tuple[dict[str, Any], ...]:
    """One row per cell; without bounds there is none to compare with."""
    e, found, joint = j.e, j.upper, None if j.by_path else j.people.joint
    sample, M, out = known(j.people.sample), j.e.terms.loss_bound or math.inf, []
    if found is None or sample is None:
        return ()
    counts, means = sample.of_cells("count"), sample.means
    released = None if e.noise is None else e.noise.heldout
    for z, name in enumerate(e.names):
        row: dict[str, Any] = {"cell": name}
        if released is not None:
            row |= {"people": float(j.member[z] @ released.counts)}
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


def _of(path: ModelPath) -> dict[str, Any]:
    return {
        "model": path.chosen + 1,
        "models": len(path.candidates),
        "rows spent": path.shipped.calibration.rows,
    }


def _how(j: Judged, path: ModelPath) -> Said:
    """Say how the model was chosen, and what rows were spent."""
    many, place = len(path.candidates), path.chosen + 1
    if many == 1:
        return Said("how.one", {"risk": j.risk})
    end = Said("end.some")
    if place == many:
        end = Said("end.last")
    elif len(j.tested) == place + 1 and not j.tested[-1]:
        end = Said("end.before", {"number": place + 1})
    return Said("how.many", {"models": many, "risk": j.risk, "end": end})


def _grounds(j: Judged, path: ModelPath) -> tuple[Assumption, ...]:
    """Say what a certificate by a path stands on."""
    many, terms, rows = len(path.candidates), j.e.terms, j.people
    key = "fixed.path" if many > 1 else "fixed.path.one"
    others = list(rows.looked_at if terms.others else rows.looked_at[1:])
    if terms.candidates > 1 and not terms.others:
        others.insert(0, Assumption.of("paths", "assumed", paths=terms.candidates))
    first = (rows.grounds[0], rows.separate, Assumption.of(key, "assumed"))
    return (*first, *others, *rows.bounded_loss, *rows.weights)


def implied(j: Judged, promised: Statement) -> list[Statement]:
    """State what bounds on every label of a group imply for the group as a whole.

    On the rows at hand L_a = Σ_y share_{a,y} L_{a,y} ≤ Σ_y share_{a,y} ζ_{a,y}; for
    unseen people, where nobody knows the shares, L_a ≤ max_y ζ_{a,y}. It is stated
    where the bounds are met, and (`promised`) shown for unseen people.
    """
    e, cells, whole = j.e, j.train, groups_of(j.e)
    if not e.promise or cells.empty or cells.missed or not whole:
        return []
    weight, loss, sure = e.seen.of_cells("weight"), cells.means, promised.holds is True
    rows: list[dict[str, Any]] = [
        {
            "cell": name,
            "loss": float(np.average(loss[own], weights=weight[own])),
            "at most": float(np.average(e.bounds[own], weights=weight[own])),
            "unseen at most": float(e.bounds[own].max()) if sure else None,
        }
        for name, own in whole.items()
    ]
    largest, unseen = max(row["at most"] for row in rows), ""
    if sure:
        most = max(row["unseen at most"] for row in rows)
        figures = {"confidence": e.terms.confidence, "mixture": mixture(j, "test")}
        unseen = say("implied.unseen", most=most, **figures)
    said = {"rows": rows_word(j), "largest": largest, "unseen": unseen}
    return [
        Statement.of(
            "implied",
            Said("implied", said),
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


def single(e: Evidence) -> tuple[Assumption, ...]:
    """Say why rates have no bound where people have several rows, or rows weights."""
    found = [Assumption.of("single", "failed")] if e.data.several else []
    found += [Assumption.of("alike", "failed")] if e.heldout_weighted else []
    return tuple(found)


def holdout_error(j: Judged) -> Statement:
    """State how often unseen people are misjudged, cell by cell, all cells at once."""
    e, rows = j.e, j.heldout
    sample, none = rows.usable, single(e)
    if sample is None or none:
        return Statement("holdout_error", "", assumptions=(*rows.grounds, *none))
    count = sample.of_cells("count")
    wrong = count - sample.of_cells("correct")
    delta = rows.joint_delta("holdout_error")
    bounds = rates.clopper_pearson_upper(wrong, count, delta=delta)
    worst, confidence = int(np.argmax(bounds)), e.terms.confidence
    high = float(bounds[worst])
    figures = {"confidence": confidence, "high": high, "cell": e.names[worst]}
    return Statement.of(
        "holdout_error",
        Said("holdout_error", figures),
        value=high,
        assumptions=rows.grounds,
        figures={"confidence": confidence},
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


def metric(kind: str, j: Judged) -> Statement:
    """State a fairness metric of unseen people with its interval."""
    e, rows = j.e, j.heldout
    sample, none = rows.usable, single(e)
    if sample is None or none:
        return Statement(kind, "", assumptions=(*rows.grounds, *none))
    chosen = reported_groups(e)
    columns = ("positive", "count")
    tables = [sample.of_atoms(column, len(e.groups))[chosen] for column in columns]
    found = SPREADS[kind](*tables, delta=rows.joint_delta(kind))
    missing = [e.groups[chosen[a]] for a in found.undefined]
    low, high = found.interval.lower, found.interval.upper
    here = say("metric.undefined", missing=missing)
    if found.value is not None:
        here = say("metric.here", value=float(found.value))
    sure = {"confidence": e.terms.confidence}
    said = {**sure, "low": low, "high": high, "what": say(f"metric.{kind}")}
    return Statement.of(
        kind,
        Said("metric", {**said, "here": here}),
        value=found.value,
        assumptions=rows.grounds,
        figures={**sure, "lower": low, "upper": high, "undefined": missing},
    )


# Noise


def empirical_noise(j: Judged, noise: Noise, judged: Said) -> Statement:
    """State how the training losses stand to the bounds, noise allowed for."""
    e, cells = j.e, j.train
    decided = True if cells.met else False if cells.missed else None
    limits = {"clip": noise.clip, "loss_bound": noise.loss_bound}
    rows = tuple(
        {
            "cell": name,
            "people": float(cells.counts[z]),
            "loss": float(np.nan_to_num(cells.means[z])),
            "lower": float(cells.low[z]),
            "upper": float(cells.high[z]),
            "bound": float(e.bounds[z]) if e.promise else None,
        }
        for z, name in enumerate(e.names)
    )
    return Statement.of(
        "empirical",
        judged,
        holds=decided if e.promise else None,
        assumptions=(Assumption.of("shipped.noise", "checked", **limits), HONEST),
        figures={"factor": j.factor},
        per_cell=rows,
    )


def privacy(e: Evidence, noise: Noise) -> Statement:
    """State what was spent, and for whom it holds."""
    # Whether rows were at hand: who asks sites elsewhere does not see what they do.
    here: State = "assumed" if e.data.synthetic is None else "checked"
    own, test = None, ""
    if noise.heldout_mu is not None:
        own = epsilon_of(noise.heldout_mu, noise.delta)
        test = say("privacy.test", own=own, delta=noise.delta)
    spent, mark = noise.epsilon_spent, "id and rows" if noise.by_id else "row"
    secret = Assumption.of("secret", "checked")
    if noise.repeatable:
        secret = Assumption.of("seeded", "failed")
    person = Assumption.of("row", "assumed")
    if noise.by_id:
        person = Assumption.of("person", here)
    figures = {"spent": spent, "delta": noise.delta, "mu": noise.mu, "test": test}
    return Statement.of(
        "privacy",
        Said("privacy", figures),
        value=spent,
        assumptions=(
            secret,
            *_adding(noise, here),
            Assumption.of("declared", here),
            Assumption.of("chosen", "assumed"),
            person,
            Assumption.of("neighbours", here, own=mark),
            Assumption.of("timing", "assumed"),
        ),
        figures={"mu": noise.mu, "delta": noise.delta, "heldout_mu": noise.heldout_mu},
    )


def _adding(noise: Noise, here: State) -> list[Assumption]:
    """Say who added the noise, and on whom that relies."""
    sites, colluding = noise.sites, noise.colluding
    if sites < 2:
        return [Assumption.of("noise.one", here)]
    if not noise.shared:
        return [Assumption.of("noise.each", here, sites=sites, times=math.sqrt(sites))]
    more = say("ground.noise.here") if here == "checked" else ""
    figures = {"sites": sites, "enough": sites - colluding, "here": more}
    return [
        Assumption.of("noise.shared", here, **figures),
        Assumption.of("colluding", "assumed", colluding=colluding, sites=sites),
    ]


# How sure


def sharing(j: Judged) -> str:
    """Say in words how sure the statements on unseen people are."""
    e, kinds, many = j.e, shares(j.e), j.heldout.candidates
    parts, more = say("sharing.losses"), ""
    if len(kinds) > 1:
        parts = say("sharing.parts", many=len(kinds) - 1)
    if many > 1:
        more += say("sharing.candidates", candidates=many)
    if e.terms.later:
        part = later_part(e)
        more += say("sharing.later", number=e.terms.later + 1, part=part)
    key = "sharing.path" if isinstance(e.path, ModelPath) else "sharing"
    delta = 1.0 - e.terms.confidence
    return say(key, confidence=e.terms.confidence, delta=delta, parts=parts, more=more)
