"""Statements on unseen people: pure functions of `Evidence`.

The one number of a cell is its upper end at δ, "each by itself" (`upper`): it is what
the table, result.json, the page and the promise show. Every cell within its bound by
that figure shows all bounds at once with the same confidence, whatever the number of
cells: to be wrong, the one cell that is above its bound must have been misjudged.

Joint figures hold for all cells at once, together with all else that is stated; their
risk, δ, is shared out before the rows are looked at (`shares`). They stand in the
certificate only, named so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pffl.bounds import mean, rates
from pffl.bounds.mean import Moments, split_delta
from pffl.evidence.certificate import Assumption, State, Statement
from pffl.evidence.noise import Noise
from pffl.evidence.record import (
    WEIGHTED,
    Evidence,
    Missing,
    ModelPath,
    Sample,
    known,
)
from pffl.evidence.training import HONEST, CellLosses, losses, rows_word
from pffl.models.base import LOSS_BOUNDS
from pffl.models.linear import NumericModel, rebuild
from pffl.text import decimals, down, up, words
from pffl.typing import FloatArray

SAMPLING = Assumption(
    "The held-out rows are drawn like the unseen people, independently of each other.",
    "assumed",
)

#: The fairness metrics, by kind: how they are enclosed, and in words.
METRICS: dict[str, tuple[Callable[..., rates.Spread], str]] = {
    "dp_gap": (
        rates.demographic_parity,
        "how often groups are predicted positive (demographic parity)",
    ),
    "eo_gap": (
        rates.equal_opportunity,
        "how often truly positive people of groups are predicted positive (equal "
        "opportunity)",
    ),
    "equalised_odds": (
        rates.equalised_odds,
        "how often people of groups with the same true label are predicted positive "
        "(equalised odds)",
    ),
}


def statements(e: Evidence) -> list[Statement]:
    """Return what is stated of unseen people beside losses."""
    out = []
    if e.labels:
        out.append(holdout_error(e))
    if len(e.labels) == 2:
        out += [metric(kind, e) for kind in METRICS]
    return out


# How sure


def candidates(e: Evidence) -> int:
    """Models that share δ: those that were compared on the same rows.

    Among them those of a path that was tested on these rows.
    """
    many = e.terms.candidates
    path, held = known(e.path), known(e.heldout)
    if path is not None and held is not None and path.split in held.splits:
        many *= len(path.candidates)
    return many


def parts(e: Evidence) -> int:
    """Return the number of parts of δ, of which these statements have one."""
    return candidates(e) * later_part(e)


def later_part(e: Evidence) -> int:
    """Return l(l + 1) for the l-th later certificate on the same rows."""
    return max(1, e.terms.later * (e.terms.later + 1))


def shares(e: Evidence) -> dict[str, float]:
    """Return the part of δ that each kind of joint statement may spend.

    A union over the candidates comes on top. Of weighted rows nothing is said but
    losses.
    """
    delta = 1.0 - e.terms.confidence
    others = []
    if e.labels and not e.heldout_weighted:
        others.append("holdout_error")
    if len(e.labels) == 2 and not e.heldout_weighted:
        others += METRICS
    out = {"holdout": delta / 2 if others else delta}
    return out | {kind: delta / (2 * len(others)) for kind in others}


def joint_delta(e: Evidence, kind: str) -> float:
    """Return δ of one cell (or of one metric) of a joint statement."""
    cells = 1 if kind in METRICS else len(e.cells)
    return split_delta(shares(e)[kind], cells, parts(e))


def sharing(e: Evidence) -> str:
    """Say in words how sure the statements on unseen people are."""
    kinds = shares(e)
    sure, delta = percent(e), f"{1.0 - e.terms.confidence:.6g}"
    text = (
        f"On unseen people: the figure 'at most' of a cell holds by itself with "
        f"confidence {sure}, and so does that every bound is kept, if no figure is "
        f"above its bound. Joint figures and all else hold together: their risk, "
        f"{delta}, goes "
    )
    if isinstance(e.path, ModelPath):
        text = (
            f"On unseen people: that every bound is kept, if the path shows it, holds "
            f"by itself with confidence {sure}. All else holds together: its risk, "
            f"{delta}, goes "
        )
    if len(kinds) == 1:
        text += "to the losses"
    else:
        many = len(kinds) - 1
        text += f"half to the losses and half in {many} equal parts to the others"
    text += ", and in each to all cells alike"
    if candidates(e) > 1:
        text += f". All of it is shared among {candidates(e)} candidates"
    if e.terms.later:
        text += (
            f". Of all of it this certificate, number {e.terms.later + 1} on these "
            f"held-out rows, has 1/{later_part(e)}: all later ones together spend as "
            "much as the first"
        )
    return text + "."


def percent(e: Evidence) -> str:
    """Return the confidence, in words."""
    return f"{100 * e.terms.confidence:.6g} %"


# What it stands on


def separate(e: Evidence, sample: Sample) -> Assumption:
    """Say whether held-out rows were used in training.

    Rows that equal a training row may be of the same person or of another: only ids
    tell. Where there are none, such rows stay, and are counted.
    """
    many, data = e.data.overlap, e.data
    own = (e.trained or data.trained_on is not None) and not data.other
    if own and "train" in sample.splits:
        reason = "needs separate rows: these held-out rows were used in training"
        return Assumption(reason, "failed")
    if data.by_person and many:
        reason = f"needs separate rows: {many} held-out rows are of people in training"
        return Assumption(reason, "failed")
    text = "No held-out row was used to train the model"
    if many is None:
        return Assumption(f"{text}; the rows are not at hand.", "could not be checked")
    if not many:
        return Assumption(f"{text}.", "checked")
    text = f"{text}; {many:,} of {sample.rows:,} equal a training row, of the same "
    return Assumption(f"{text}person or of another.", "could not be checked")


def bounded_loss(e: Evidence) -> tuple[Assumption, ...]:
    """Say why no loss is above M: the predictor that is shipped is bounded."""
    M, ends = e.terms.loss_bound, limits(e)
    if M is None or ends is None:
        return (Assumption(unbounded(e), "failed"),)
    who = "The shipped predictor keeps"
    state: State = "checked"
    if e.terms.clipping == "clip":
        who = "All figures are those of the model that keeps"
    if e.terms.clipping == "range":
        who, state = (
            "It was declared without these rows that the model keeps",
            "assumed",
        )
    if not e.labels:
        low, high = map(words, e.model.described["target_range"])
        text = f"{who} its numbers within {words(ends[0])} and {words(ends[1])}, so "
        text += f"that no loss is above {up(M)}, for targets from {low} to {high}."
        declared = Assumption("All targets lie there, seen or unseen.", "assumed")
        return Assumption(text, state), declared
    text = f"{who} probabilities within {down(ends[0])} and {up(ends[1])}"
    return (Assumption(f"{text}, so that no loss is above {words(M)}.", state),)


def named(e: Evidence) -> str:
    """Return what a model from elsewhere is called that was clipped for an audit."""
    M = e.terms.loss_bound
    if e.terms.clipping != "clip" or M is None:
        return ""
    least = math.exp(-M)
    if len(e.labels) > 2:
        return f"the model, kept at {least:.6g} or more"
    return f"the model, kept within {least:.6g}–{1 - least:.6g}"


def limits(e: Evidence) -> tuple[float, float] | None:
    """Return between which ends predictions are kept; None where they are not."""
    M = e.terms.loss_bound
    if M is None:
        return None
    if e.labels:
        least = math.exp(-M)
        return least, 1.0 - (len(e.labels) - 1) * least
    model = rebuild(e.model.described, e.model.parameters)
    return model.limits(M) if isinstance(model, NumericModel) else None


def unbounded(e: Evidence) -> str:
    """Say why losses have no bound."""
    if not e.labels and not e.model.described.get("target_range"):
        return "needs a range that all targets keep to (--target-range LOW,HIGH)"
    if not e.trained:
        return (
            "needs a loss with a largest value, and that of this model is unbounded: "
            "declare the range of its probabilities (--p-min P), or audit the clipped "
            "model (--clip P)"
        )
    # Where they were all below the largest M, it would have changed nothing.
    square, loss = (e.seen.column(name).sum() for name in ("loss_squared", "loss"))
    largest = max(float(square / loss), LOSS_BOUNDS[-1] if e.labels else 0.0)
    return (
        f"needs a loss that has a bound: the largest training loss is {down(largest)} "
        "or more, and no limits on predictions leave the mean losses as they are"
    )


def kept_within(e: Evidence) -> str | None:
    """Say between which limits the shipped predictor keeps its predictions."""
    ends = limits(e)
    if not e.trained or isinstance(e.privacy, Noise):
        return None
    if ends is None:
        return (
            f"Predictions have no limits: the statement on new people {unbounded(e)}."
        )
    return (
        f"Predictions are kept between {down(ends[0])} and {up(ends[1])}; this changes "
        "no group's training loss by more than 0.1 %."
    )


def noticed(e: Evidence) -> bool:
    """Whether a printed training loss has another digit within the limits, or none."""
    pairs = zip(e.seen.own_means, e.seen.means, strict=True)
    changed = any(decimals(a) != decimals(b) for a, b in pairs if not np.isnan(a))
    return changed or limits(e) is None


def weights(e: Evidence) -> tuple[Assumption, ...]:
    """Say that no weight is above s_max, where rows have weights."""
    most, sample = e.terms.weight_bound, e.heldout
    if not e.heldout_weighted or isinstance(sample, Missing):
        return ()
    reason = "needs a bound that no row's weight is above (--weight-bound NUMBER)"
    if most is None:
        return (Assumption(reason, "failed"),)
    over, seen = np.array(sample.stakes.get("above", [])), e.data.weights
    if seen is not None and seen[1] > most:
        return (Assumption(f"{reason}: a training row weighs {up(seen[1])}", "failed"),)
    if over.any():
        z = int(over.argmax())
        what = f"{over[z]:,.0f} held-out rows of '{e.names[z]}' weigh more than"
        return (Assumption(f"{reason}: {what} {words(most)}", "failed"),)
    text = f"Nobody's weight is above {up(most)}, seen or unseen."
    return (Assumption(text, "assumed"),)


def failed(e: Evidence) -> bool:
    """Whether the weights of rows forbid every statement."""
    return any(ground.state == "failed" for ground in weights(e))


def looked_at(e: Evidence) -> tuple[Assumption, ...]:
    """Say how looks at the held-out rows, and a choice by them, were paid for."""
    many, terms = candidates(e), e.terms
    text = "The model was fixed before the held-out rows were looked at."
    state: State = "assumed"
    if many > 1:
        text = f"It is one of {many} models that were fixed before the held-out rows "
        text += f"were looked at; each has 1/{many} of the risk."
        state = "checked" if terms.counted else "assumed"
    if terms.others:
        text = (
            f"It was set without regard to the held-out figures of {terms.others} "
            "others, measured on the same rows; fresh rows would settle it."
        )
        state = "could not be checked"
    found = (Assumption(text, state),)
    if not terms.later:
        return found
    text = f"This is certificate {terms.later + 1} on these held-out rows, and has "
    return (*found, Assumption(f"{text}1/{later_part(e)} of the risk.", "checked"))


def grounds(e: Evidence) -> tuple[Assumption, ...]:
    """Say what all statements from held-out rows stand on."""
    if isinstance(e.heldout, Missing):
        return (Assumption(e.heldout.missing, "failed"),)
    return (SAMPLING, separate(e, e.heldout), *looked_at(e))


def usable(e: Evidence) -> Sample | None:
    """Return the held-out rows, where something may be said by them."""
    if isinstance(e.heldout, Missing) or isinstance(e.privacy, Noise):
        return None  # under noise `noise` says what may be said
    return None if separate(e, e.heldout).state == "failed" else e.heldout


# Losses


def upper(e: Evidence) -> FloatArray | None:
    """Return the one number per cell: its mean loss for unseen people is at most this.

    Each by itself, with the confidence of the evidence; None where nothing may be said.
    """
    return loss_bounds(e, 1.0 - e.terms.confidence)


def joint(e: Evidence) -> FloatArray | None:
    """Return figures that hold for all cells, and for all else that is said."""
    delta = shares(e)["holdout"]
    return loss_bounds(e, split_delta(delta, max(1, len(e.cells))))


def loss_bounds(e: Evidence, delta: float) -> FloatArray | None:
    """Bound the cells' mean losses from held-out rows, each with probability 1 − δ."""
    sample, M = usable(e), e.terms.loss_bound
    if sample is None or M is None or not e.cells:
        return None
    if failed(e):
        return None
    share = split_delta(delta, 1, parts(e))
    return upper_ends(sample, M, share, weighs=e.heldout_weighted)


def upper_ends(
    sample: Sample, loss_bound: float, delta: float, *, weighs: bool
) -> FloatArray | None:
    """Bound the mean losses that rows were drawn from, each with probability 1 − δ.

    `weighs`: whether the rows have weights; then None without bets on them, or where a
    row weighs more than was assumed.
    """
    bets = sample.planned
    if weighs:
        if bets is None or not sample.levels or any(sample.stakes["above"]):
            return None
        return mean.upper(
            bets,
            np.array(sample.diluted),
            np.array(sample.stakes["count"]),
            loss_bound=loss_bound,
            delta=delta,
            levels=np.array(sample.levels),
        )
    count, total = sample.of_people("count"), sample.of_people("bounded_loss")
    if bets is None:
        return mean.chernoff_upper(count, total, loss_bound, delta)
    below = np.array(sample.below)
    return mean.upper_bounds(
        bets, below, count, total, loss_bound=loss_bound, delta=delta
    )


def holdout(e: Evidence) -> Statement:
    """State how large the mean loss of unseen people can be, cell by cell."""
    sample, M, found = usable(e), e.terms.loss_bound, upper(e)
    reasons = (*grounds(e), *bounded_loss(e), *weights(e))
    together = joint(e)
    if sample is None or M is None or found is None or together is None:
        return Statement("holdout", "", assumptions=reasons)
    cells = losses(e, sample, "bounded_loss")
    kept = f" by {name}," if (name := named(e)) else ""
    counted = "weighted " if e.heldout_weighted else ""
    text = (
        f"With confidence {percent(e)}, each cell by itself, the {counted}mean loss "
        f"of unseen people{kept} is at most the figure in the table{mixture(e)}"
    )
    excess = found - cells.bounds
    if e.promise:
        text += f". By these figures {_standing(e, cells, found, M)}"
        value, holds = float(excess.max()), bool((excess <= 0).all())
    else:
        worst = int(np.argmax(found))
        name = cells.names[worst]
        text += f"; the largest is that of '{name}', at most {up(found[worst])}."
        value, holds = float(found[worst]), None
    figures = {"confidence": e.terms.confidence, "loss_bound": M}
    return Statement(
        "holdout",
        text,
        value=value,
        holds=holds,
        assumptions=reasons,
        figures=figures | {"delta": split_delta(1.0 - e.terms.confidence, 1, parts(e))},
        per_cell=_loss_rows(e, cells, found, M, together),
    )


def in_short(e: Evidence) -> str:
    """Say what is promised for unseen people, without how."""
    sample, M, found = usable(e), e.terms.loss_bound, upper(e)
    if sample is None or M is None or found is None or not e.promise:
        whole = holdout(e)
        reason = f"{whole.reason[:1].upper()}{whole.reason[1:]}."
        return whole.text if whole.available else reason
    standing = _standing(e, losses(e, sample), found, M)
    who = f", for {name}, " if (name := named(e)) else " "
    return f"With confidence {percent(e)}{who}{standing}"


def _standing(
    e: Evidence, cells: CellLosses, found: FloatArray, loss_bound: float
) -> str:
    """Say how many bounds are shown, and what is lacking for the others."""
    lacking, idle = _lacking(e, cells), trivial(e, loss_bound)
    return f"{_against(cells, found)}{lacking}{idle}"


def mixture(e: Evidence) -> str:
    """Say who unseen people are, where silos may differ."""
    if e.data.silos == 1:
        return ""
    return ", for the mixture of silos in the held-out rows of the cell"


def more_rows(e: Evidence) -> dict[str, int | None]:
    """Return, of each cell whose bound is not shown, about how many more rows would.

    (Or people, where some have several rows.) If they were like those that there are;
    None where they would not, because the mean of these is not below the bound, or
    there are none.
    """
    sample, M, found = usable(e), e.terms.loss_bound, upper(e)
    if sample is None or M is None or found is None or not e.promise:
        return {}
    delta = split_delta(1.0 - e.terms.confidence, 1, parts(e))
    out: dict[str, int | None] = {}
    for z in np.flatnonzero(found > e.bounds):
        known, there = _moments(sample, int(z), M, weighs=e.heldout_weighted)
        needed = None
        if known is not None:
            needed = mean.rows_needed(
                float(e.bounds[z]),
                known=known,
                loss_bound=M,
                delta=delta,
                weighted=e.heldout_weighted,
            )
        out[e.names[z]] = None if needed is None else max(1, needed - there)
    return out


def _moments(
    sample: Sample, z: int, loss_bound: float, *, weighs: bool
) -> tuple[Moments | None, int]:
    """Return the moments of a cell's held-out people, and how many they are."""
    if weighs:
        return sample.moments(z), int(sample.stakes["count"][z])
    count, total, squares = (
        float(sample.of_people(name)[z])
        for name in ("count", "bounded_loss", "bounded_loss_squared")
    )
    if count == 0:
        return None, 0
    level = total / count
    variance = max(0.0, squares / count - level**2)
    return Moments.alike(level, variance, loss_bound), int(count)


def _lacking(e: Evidence, cells: CellLosses) -> str:
    """Say about how many more rows would show the bounds that are not shown."""
    lacking = more_rows(e)
    if not lacking:
        return ""
    never = [name for name, many in lacking.items() if many is None]
    if never:
        z = cells.names.index(never[0])
        if cells.counts[z] == 0:
            return f" There are no held-out rows of '{never[0]}'."
        return (
            f" The held-out rows of '{never[0]}' have a mean loss of "
            f"{words(cells.means[z])}: more rows like these would not show its bound."
        )
    name, many = max(lacking.items(), key=lambda pair: pair[1] or 0)
    who = "people" if e.data.several else "rows"
    return (
        f" About {float(up(many or 0, digits=2)):,.0f} more held-out {who} of '{name}' "
        "would show its bound, if they were like these."
    )


def trivial(e: Evidence, loss_bound: float) -> str:
    """Say that a bound that is not below M says nothing of the model."""
    idle = int((e.bounds >= loss_bound).sum())
    if not idle:
        return ""
    return (
        f" In {idle} cell{'s' * (idle > 1)} the bound is not below {words(loss_bound)}"
        ", the largest loss of the shipped predictor: true, and trivial."
    )


def _against(cells: CellLosses, bounds: FloatArray) -> str:
    kept = int((bounds <= cells.bounds).sum())
    worst = int(np.argmax(bounds - cells.bounds))
    head = f"{kept} of {len(cells.names)} bounds are certified, taken one at a time"
    if kept == len(cells.names):
        head = "every cell is within its bound"
    return (
        f"{head}; the one with the least room is '{cells.names[worst]}', at most "
        f"{up(bounds[worst])} against a bound of {words(cells.bounds[worst])}."
    )


def _loss_rows(
    e: Evidence,
    cells: CellLosses,
    bounds: FloatArray,
    loss_bound: float,
    together: FloatArray,
) -> tuple[dict[str, Any], ...]:
    """One row per cell; without a promise there is no bound to compare with."""
    rows = []
    for z, name in enumerate(cells.names):
        row: dict[str, Any] = {
            "cell": name,
            "rows": int(cells.counts[z]),
            "loss": float(cells.means[z]) if cells.counts[z] else None,
            "upper": float(bounds[z]),
            "joint": float(together[z]),
            "vacuous": bool(bounds[z] >= loss_bound),
        }
        if e.promise:
            row["bound"] = float(cells.bounds[z])
            row["shown"] = bool(bounds[z] <= cells.bounds[z])
        rows.append(row)
    return tuple(rows)


def implied(e: Evidence, promised: Statement) -> list[Statement]:
    """State what bounds on every label of a group imply for the group as a whole.

    On the rows at hand L_a = Σ_y share_{a,y} L_{a,y} ≤ Σ_y share_{a,y} ζ_{a,y}; for
    unseen people, where nobody knows the shares, L_a ≤ max_y ζ_{a,y}. It is stated
    where the bounds are met, and (`promised`) shown for unseen people.
    """
    cells, named_of = losses(e, e.seen), groups_of(e)
    if not e.promise or cells.empty or cells.missed or not named_of:
        return []
    weight, loss = e.seen.of_cells("weight"), cells.means
    sure = promised.holds is True
    rows: list[dict[str, Any]] = [
        {
            "cell": name,
            "loss": float(np.average(loss[own], weights=weight[own])),
            "at most": float(np.average(e.bounds[own], weights=weight[own])),
            "unseen at most": float(e.bounds[own].max()) if sure else None,
        }
        for name, own in named_of.items()
    ]
    largest = max(row["at most"] for row in rows)
    text = (
        f"Bounds on all labels of a group bound its loss as a whole: on {rows_word(e)} "
        "by their mean, weighted with the labels' shares, in every group at most "
        f"{up(largest)}."
    )
    if sure:
        most = max(row["unseen at most"] for row in rows)
        text += (
            f" With confidence {percent(e)}, all groups at once, the mean loss of "
            "unseen people is at most the largest of their group's bounds, whatever "
            f"the labels' shares{mixture(e)}; in every group at most {up(most)}."
        )
    return [
        Statement(
            "implied",
            text,
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


# Errors and metrics


def alike(e: Evidence) -> tuple[Assumption, ...]:
    """Say why there is no bound where rows do not count alike."""
    return (Assumption(WEIGHTED, "failed"),) if e.heldout_weighted else ()


def single(e: Evidence) -> tuple[Assumption, ...]:
    """Say why rates have no bound where people have several rows, or rows weights."""
    if not e.data.several:
        return alike(e)
    reason = "needs one row for each person, and some people have several"
    return (Assumption(reason, "failed"), *alike(e))


def errors(e: Evidence) -> FloatArray | None:
    """Bound how often unseen people are misjudged, for all cells at once."""
    sample = usable(e)
    if sample is None or single(e):
        return None
    count = sample.of_cells("count")
    wrong = count - sample.of_cells("correct")
    delta = joint_delta(e, "holdout_error")
    return rates.clopper_pearson_upper(wrong, count, delta=delta)


def holdout_error(e: Evidence) -> Statement:
    """State how often unseen people are misjudged, cell by cell."""
    sample, bounds = usable(e), errors(e)
    if sample is None or bounds is None:
        return Statement("holdout_error", "", assumptions=(*grounds(e), *single(e)))
    count, worst = sample.of_cells("count"), int(np.argmax(bounds))
    wrong = count - sample.of_cells("correct")
    text = (
        f"With confidence {percent(e)}, for all cells at once, the model is wrong "
        "about unseen people no more often than the table says; at most "
        f"{up(bounds[worst])} of the time in '{e.names[worst]}', the worst cell."
    )
    return Statement(
        "holdout_error",
        text,
        value=float(bounds[worst]),
        assumptions=grounds(e),
        figures={"confidence": e.terms.confidence},
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


def reported_groups(e: Evidence) -> list[int]:
    """Return the groups that anyone belongs to, in any sample."""
    samples = [e.seen, *([e.heldout] if isinstance(e.heldout, Sample) else [])]
    counts = [s.of_atoms("count", len(e.groups)).sum(axis=1) for s in samples]
    return [int(a) for a in np.flatnonzero(np.sum(counts, axis=0))]


def spread(kind: str, e: Evidence) -> rates.Spread | None:
    """Enclose a fairness metric of unseen people; groups as `reported_groups`."""
    sample = usable(e)
    if sample is None or single(e):
        return None
    chosen = reported_groups(e)
    tables = [
        sample.of_atoms(column, len(e.groups))[chosen]
        for column in ("positive", "count")
    ]
    return METRICS[kind][0](*tables, delta=joint_delta(e, kind))


def metric(kind: str, e: Evidence) -> Statement:
    """State a fairness metric with its interval."""
    found = spread(kind, e)
    if found is None:
        return Statement(kind, "", assumptions=(*grounds(e), *single(e)))
    groups = [e.groups[a] for a in reported_groups(e)]
    missing = [groups[a] for a in found.undefined]
    low, high = found.interval.lower, found.interval.upper
    text = (
        f"With confidence {percent(e)}, among unseen people the largest difference in "
        f"{METRICS[kind][1]} lies between {down(low)} and {up(high)}. "
    )
    if found.value is None:
        text += f"In the held-out rows it is undefined: no rows for {missing}."
    else:
        text += f"In the held-out rows it is {words(found.value)}."
    return Statement(
        kind,
        text,
        value=found.value,
        assumptions=grounds(e),
        figures={
            "confidence": e.terms.confidence,
            "lower": low,
            "upper": high,
            "undefined": missing,
        },
    )
