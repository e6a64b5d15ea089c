"""Statements on the rows at hand: pure functions of `Evidence`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from pffl.bounds.checks import Interval, Numbers, finite, nonnegative, refuse, whole
from pffl.bounds.gap import gap_unit
from pffl.bounds.gap import slack as slack_of
from pffl.bounds.infeasible import FAR
from pffl.evidence.certificate import Assumption, Statement
from pffl.evidence.record import Evidence, Least, Lowest, Missing, Sample, known
from pffl.text import down, up, words
from pffl.typing import FloatArray

#: A loss this little above its bound, beside the cell's scale, counts as met.
TOLERANCE = 1e-6
ROUNDING = 1e-6  # of the tolerance: what the addition of a million losses leaves
MOVED = 1e-3  # part of a mean training loss that the predictor's limits may change
SMALL = 1e-6  # of the unit of losses: a smaller change is none
CROSSED = 1e-4  # part of a bound by which the shipped predictor may be above it
Converged: TypeAlias = Literal["yes", "no", "not measurable"]
HONEST = Assumption("The silos reported their sums truthfully.", "assumed")


@dataclass(frozen=True, eq=False)
class CellLosses:
    """Names, rows, mean losses, bounds and tolerances of all cells, in one split."""

    names: tuple[str, ...]
    counts: FloatArray
    means: FloatArray
    bounds: FloatArray
    tolerance: FloatArray

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        counts: Numbers,
        totals: Numbers,
        bounds: Numbers,
        tolerance: Numbers | None = None,
        weights: Numbers | None = None,
    ) -> CellLosses:
        """Build from counts and loss sums; the mean of nobody is NaN.

        `weights` are those of the rows together, where they do not count alike.
        """
        parts = (
            whole("counts", counts),
            nonnegative("weights", counts if weights is None else weights),
            nonnegative("totals", totals),
            finite("bounds", bounds),
            np.zeros(len(names))
            if tolerance is None
            else nonnegative("tolerance", tolerance),
        )
        if any(part.shape != (len(names),) for part in parts):
            raise refuse("counts, totals, bounds", "one per name", len(names))
        count, weight, total, bound, allowed = parts
        means = np.full_like(total, np.nan)
        np.divide(total, weight, out=means, where=weight > 0)
        return cls(tuple(names), count, means, bound, allowed)

    @property
    def violation(self) -> FloatArray:
        """Mean loss minus bound, per cell; NaN where there are no rows."""
        return self.means - self.bounds

    @property
    def kept(self) -> bool:
        """Whether no cell is above its bound, but for rounding."""
        return bool((self.violation <= ROUNDING * self.tolerance).all())

    @property
    def missed(self) -> bool:
        """Whether a cell is above its bound by more than the tolerance."""
        return bool((self.violation > self.tolerance).any())

    @property
    def empty(self) -> tuple[str, ...]:
        """Names of cells without rows."""
        return tuple(self.names[z] for z in np.flatnonzero(self.counts == 0))

    @property
    def worst(self) -> int:
        """The cell that is furthest above (or least below) its bound."""
        return int(np.nanargmax(self.violation))

    def describe(self, z: int) -> str:
        """Say how cell z stands, in words."""
        loss, bound, excess = self.means[z], self.bounds[z], self.violation[z]
        side = f"{up(excess)} above it" if excess > 0 else f"{down(-excess)} below it"
        if abs(excess) <= self.tolerance[z]:
            side = "right at it"
        return (
            f"'{self.names[z]}' has a mean loss of {words(loss)} against a bound of "
            f"{words(bound)}: {side}"
        )


def losses(e: Evidence, sample: Sample, column: str | None = None) -> CellLosses:
    """Mean losses of the cells against their bounds, by default those that are judged.

    What was trained is met up to a `tolerance`; what was given is not.
    """
    return CellLosses.of(
        e.names,
        sample.of_cells("count"),
        sample.of_cells(column or e.judged(sample)),
        e.bounds,
        tolerance(e.scales, e.bounds) * e.trained,
        sample.of_cells("weight"),
    )


def tolerance(scales: FloatArray, bounds: FloatArray) -> FloatArray:
    """Return what a loss may be above its bound and count as met, cell by cell.

    It is small beside the loss of a constant guess, and beside the bound itself.
    """
    return TOLERANCE * np.maximum(np.minimum(scales, bounds), 0.0)


def harmless(
    own: FloatArray,
    kept: FloatArray,
    bounds: FloatArray,
    allowed: FloatArray,
    unit: float,
) -> bool:
    """Whether limits change no mean loss by much, and carry none across its bound.

    `own` and `kept` are mean training losses of the model and of the predictor that is
    kept within limits; a bound of 0 or less is none.
    """
    near = np.abs(kept - own) <= np.maximum(MOVED * own, SMALL * unit)
    met = own - bounds <= allowed
    same = np.where(met, kept <= bounds * (1 + CROSSED), kept > bounds)
    return bool((near & (same | (bounds <= 0)))[~np.isnan(own)].all())


def unmoved(seen: Sample, bounds: FloatArray, allowed: FloatArray, unit: float) -> bool:
    """Whether the limits of the shipped predictor are `harmless` on training rows.

    To every cell, and to all rows together.
    """
    own, kept = (
        np.append(seen.mean_of(column), seen.overall(column))
        for column in ("loss", "bounded_loss")
    )
    return harmless(own, kept, np.append(bounds, 0.0), np.append(allowed, 0.0), unit)


def rows_word(e: Evidence) -> str:
    """Who audits a model does not know what trained it."""
    return "the training rows" if e.trained else "the rows used"


def statements(e: Evidence) -> list[Statement]:
    """Return all statements on the rows at hand."""
    out = [measured(e)]
    if not e.trained:
        return [*out, empirical(e)]
    out += [gap(e), empirical(e)]
    if isinstance(e.proofs.excess, Least) and missed(e):
        out.append(infeasible(e))
    out.append(attainable(e))
    out += [lowest(e, found) for found in e.proofs.lowest]
    return out


def measured(e: Evidence) -> Statement:
    """State what was measured, and on how many rows."""
    parts = [_described(e, e.seen, "training")]
    if isinstance(e.heldout, Sample) and e.trained:
        parts.append(_described(e, e.heldout, "+".join(e.heldout.splits)))
    silos = f"in {e.data.silos:,} silo{'' if e.data.silos == 1 else 's'}"
    text = f"Measured on {' and '.join(parts)} of '{e.data.name}', {silos}."
    if e.data.other:
        text += " These are other data than the model was trained on."
    return Statement(
        "measured",
        text,
        per_cell=tuple(_measured_row(e, z) for z in range(len(e.cells))),
    )


def _described(e: Evidence, sample: Sample, name: str) -> str:
    if not e.trained and e.data.trained_on is None:  # how they are split means nothing
        return f"{sample.rows:,} rows"
    if not e.trained:
        return f"{sample.rows:,} rows ({' and '.join(sample.splits)})"
    return f"{sample.rows:,} {name} rows"


def _measured_row(e: Evidence, z: int) -> dict[str, Any]:
    row: dict[str, Any] = {"cell": e.cells[z].cell}
    samples = {"train ": e.seen}
    if not e.trained:
        samples = {"": e.seen}
    elif isinstance(e.heldout, Sample):
        samples[f"{'+'.join(e.heldout.splits)} "] = e.heldout
    else:
        samples = {"": e.seen}
    for mark, sample in samples.items():
        mean = float(e.means(sample)[z])
        row[f"{mark}rows"] = int(sample.cells["count"][z])
        row[f"{mark}loss"] = None if np.isnan(mean) else mean
    if e.trained:
        row["multiplier"] = e.cells[z].multiplier
    return row


def convexity(e: Evidence) -> Assumption:
    """Say whether the loss is convex in the model's weights."""
    if e.model.convex:
        return Assumption("The loss is convex in the weights of the model.", "checked")
    text = "needs convexity, and the loss is not convex in the weights of this model"
    return Assumption(text, "failed")


def in_ball(radius: float) -> Assumption:
    """Say that a bound speaks of the models of a ball."""
    text = "Only models whose weights have length at most "
    return Assumption(f"{text}{words(radius)} are considered.", "assumed")


def compared_with(e: Evidence) -> Assumption:
    """Say which models a gap speaks of: all of them, or those of the ball."""
    pair = known(e.proofs.gap)
    if pair is not None and pair.radius is not None:
        return in_ball(pair.radius)
    text = "There is a ridge term; all models are considered."
    return Assumption(text, "checked")


def gap(e: Evidence) -> Statement:
    """State how far the pair is from the best trade-off."""
    if isinstance(e.proofs.gap, Missing):
        grounds = () if e.model.convex else (convexity(e),)
        return Statement.not_available("gap", e.proofs.gap.missing, grounds)
    value, target = e.proofs.gap.gap, target_of(e)
    shown = up(value)
    text = (
        "No other model gives a better trade-off between overall loss and the bounds "
        f"than this one by more than {shown} (the duality gap)."
    )
    if not e.terms.multiplier_bound or (not e.promise and not e.minimax):
        text = (
            "No other model has an overall loss (with its ridge term) that is smaller "
            f"than this one's by more than {shown}."
        )
    if target is not None:
        text += f" The target was {words(target)}."
    return Statement(
        "gap",
        text,
        value=value,
        holds=None if target is None else value <= target,
        assumptions=(convexity(e), compared_with(e), HONEST),
        figures={
            "upper": e.proofs.gap.upper,
            "lower": e.proofs.gap.lower,
            "target": target,
        },
    )


def target_of(e: Evidence) -> float | None:
    """Return the gap that a converged run is under, in units of the loss."""
    if e.terms.target_gap is None:
        return None
    weight = e.terms.risk_weight + float(e.multipliers.sum())
    if weight == 0:  # nothing is asked of the model: any one is a saddle point
        weight = max(1.0, e.terms.multiplier_bound)
    largest = max([e.risk or 0.0, *e.seen.own_means.tolist()])
    return e.terms.target_gap * weight * gap_unit(largest, e.model.unit)


def converged(e: Evidence) -> Converged:
    """Say whether the run came as close to the best trade-off as was asked of it."""
    pair, target = known(e.proofs.gap), target_of(e)
    run = known(e.training)
    if run is not None and run.settling is not None and not run.settling.settled:
        return "no"
    if not e.trained or pair is None or target is None:
        return "not measurable"
    return "yes" if pair.gap <= target else "no"


def missed(e: Evidence) -> bool:
    """Whether a bound is not met on the rows at hand, by more than the tolerance."""
    return e.promise and losses(e, e.seen).missed


def longest(e: Evidence) -> float:
    """Return the length of the longest w that is known of."""
    before = known(e.before)
    other = [0.0] if before is None else np.array(before.model)
    return max(e.model.length, float(np.linalg.norm(other)))


def proof(e: Evidence) -> tuple[float, float] | None:
    """Return by how much bounds are impossible, and up to which ‖w‖; None if not."""
    least = known(e.proofs.excess)
    if least is None or not e.promise:
        return None
    return least.proof(e.bounds, longest(e))


def impossible(e: Evidence) -> bool:
    """Whether it is proved that no model meets all bounds."""
    return proof(e) is not None


def nobody(e: Evidence) -> str:
    """Say that no model meets all bounds, and of which models it is proved."""
    found, least = proof(e), known(e.proofs.excess)
    limit = "" if not (found and least) else among(e, found[1], least.longest)
    proved = f"proved for {limit}" if limit else "proved"
    return f"No linear model, with its own loss, meets all bounds ({proved})"


def among(e: Evidence, reach: float, seen: float) -> str:
    """Say how far a proof reaches, if it matters: not a million times what was seen."""
    if reach >= FAR * max(seen, longest(e)):
        return ""
    return f"weights of length at most {down(reach)}"


def slack(e: Evidence) -> float | None:
    """Return the slack of Lemma 1 where a bound is missed: (β(F(w°) − F(w)) + ν)/B.

    w° is a model that was found and meets all bounds, also those that the solver was
    given. There is none without such a model, and none for a run that did not converge:
    its own gap must not excuse it.
    """
    pair, least, B = known(e.proofs.gap), known(e.proofs.excess), e.terms
    if not missed(e) or converged(e) != "yes" or pair is None or least is None:
        return None
    room = -least.excess(e.bounds).upper
    if B.multiplier_bound <= 0 or e.risk is None or room < (e.bounds - e.aimed).max():
        return None
    return slack_of(
        least.risk,
        pair.gap,
        e.risk,
        risk_weight=B.risk_weight,
        multiplier_bound=B.multiplier_bound,
    )


def empirical(e: Evidence) -> Statement:
    """State what was measured against the bounds, and the slack of Lemma 1."""
    if not e.promise:
        return Statement.not_available("empirical", "no bound was set")
    cells, where = losses(e, e.seen), rows_word(e)
    of_these = where.removeprefix("the ").removesuffix(" used")
    if cells.empty:
        reason = f"no {of_these} in {', '.join(cells.empty)}"
        return Statement.not_available("empirical", reason)
    worst, allowed = float(cells.violation.max()), slack(e)
    met = not cells.missed
    text = f"On {where}, {cells.describe(cells.worst)}; "
    text += "no cell stands worse." if len(cells.names) > 1 else "it is the only cell."
    grounds = [Assumption(f"Every cell has {of_these}.", "checked"), HONEST]
    figures: dict[str, Any] = {"slack": allowed, "converged": converged(e)}
    if allowed is not None and worst <= allowed:
        text += (
            " A model that meets all bounds was found; that this one was trained "
            f"under the multiplier bound {words(e.terms.multiplier_bound)} explains up "
            f"to {up(allowed)} above them."
        )
    return Statement(
        "empirical",
        text,
        value=worst,
        holds=met,
        assumptions=tuple(grounds),
        figures=figures,
        per_cell=_training_rows(cells),
    )


def _training_rows(cells: CellLosses) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "cell": name,
            "rows": int(cells.counts[z]),
            "loss": float(cells.means[z]),
            "bound": float(cells.bounds[z]),
            "margin": float(-cells.violation[z]),
            "holds": bool(cells.violation[z] <= cells.tolerance[z]),
        }
        for z, name in enumerate(cells.names)
    )


def reaching(reach: float) -> Assumption:
    """Say which models a proof speaks of."""
    text = f"It holds for all weights of length up to {down(reach)}, and own losses."
    return Assumption(text, "checked")


def infeasible(e: Evidence) -> Statement:
    """State that no model meets all bounds, with the witness."""
    least, found = known(e.proofs.excess), proof(e)
    if least is None or found is None:
        reason = "there is no proof that the bounds are impossible"
        return Statement.not_available("infeasible", reason, (convexity(e),))
    bound, reach = found
    text = (
        f"{nobody(e)}: in each of them some cell is above its bound by at least "
        f"{down(bound)}."
    )
    return Statement(
        "infeasible",
        text,
        value=bound,
        holds=True,
        assumptions=(convexity(e), reaching(reach), HONEST),
        figures={"multipliers": least.multipliers, "reach": reach},
    )


def attainable(e: Evidence) -> Statement:
    """State the smallest bound that all cells can meet."""
    least = e.proofs.least
    if isinstance(least, Missing):
        grounds = () if e.model.convex else (convexity(e),)
        return Statement.not_available("attainable", least.missing, grounds)
    who = "The smallest bound that all cells can meet together"
    ends, reach = least.enclosed(longest(e))
    return _enclosed(e, who, ends, reach, seen=least.longest)


def lowest(e: Evidence, found: Lowest) -> Statement:
    """State how low the bound of one cell can go with the others kept."""
    if not e.promise:
        reason = "no bound was set for the other cells to keep"
        return Statement.not_available("attainable", reason)
    if found.impossible:
        reason = "the other bounds cannot be kept by any model, whatever that of "
        return Statement.not_available("attainable", f"{reason}'{found.cell}'")
    known_ends = found.enclosed(longest(e))
    if known_ends is None:
        reason = f"no model was found that keeps the bounds of all but '{found.cell}'"
        return Statement.not_available("attainable", reason)
    who = f"The smallest bound that '{found.cell}' can meet while the others keep "
    return _enclosed(
        e, f"{who}theirs", *known_ends, seen=found.longest, cell=found.cell
    )


def _enclosed(
    e: Evidence,
    who: str,
    ends: Interval,
    reach: float,
    *,
    seen: float,
    cell: str | None = None,
) -> Statement:
    # Six digits: a bound is chosen by this number.
    low, high = down(ends.lower, digits=6), up(ends.upper, digits=6)
    limit = among(e, reach, seen) if ends.lower > 0 else ""
    models = f", among linear models with {limit}" if limit else ""
    return Statement(
        "attainable",
        f"{who} lies between {low} and {high}{models}.",
        value=ends.upper,
        assumptions=(convexity(e), reaching(reach), HONEST),
        figures={
            "lower": ends.lower,
            "upper": ends.upper,
            "cell": cell,
            "reach": reach,
        },
    )
