"""What a person should be told besides: whom bounds bind, and what was overfitted.

Pure functions of `Evidence`; each returns a sentence, or None where there is none.
"""

from __future__ import annotations

import numpy as np

from pffl.evidence import training
from pffl.evidence.evidence import Evidence, ModelPath, Sample, known
from pffl.evidence.noise import FEWEST, Noise
from pffl.evidence.training import CellLosses, converged, losses
from pffl.text import words
from pffl.typing import FloatArray

FEW = 30  # rows in a split, below which a mean says too little
MUCH = 0.1  # part of the training loss by which held-out loss must be above it
ERRORS = 3.0  # standard errors by which it must be above it, for one set of rows
MOST_NAMED = 3


def no_better(e: Evidence) -> str | None:
    """Name those for whom the model is no better than a constant guess, of test rows.

    Groups with a bound, and all rows together. The guess is that of their own rates,
    for losses, or their most frequent label, for errors. None where there is nobody, or
    noise would choose the names.
    """
    sample = known(e.heldout) or e.seen
    if not e.labels or e.stopped is not None or isinstance(e.privacy, Noise):
        return None
    columns = ("count", "weight", e.judged(sample), "correct")
    count, weight, loss, right = (sample.of_atoms(c, len(e.groups)) for c in columns)
    bounded = {group for cell in e.cells if e.promise for group, _ in cell.of}
    sets = {f"'{a}'": [i] for i, a in enumerate(e.groups) if a in bounded}
    found: dict[str, list[str]] = {"loss": [], "error": []}
    for name, i in {**sets, "all rows together": list(range(len(e.groups)))}.items():
        n = weight[i].sum(axis=0)
        if count[i].sum() < FEWEST or np.count_nonzero(n) < 2:
            continue
        if loss[i].sum() >= -(n[n > 0] * np.log(n[n > 0] / n.sum())).sum():
            found["loss"].append(name)
        if right[i].sum() <= n.max():
            found["error"].append(name)
    told = [
        f"{guess} of {', '.join(found[of])}"
        for of, guess in (
            ("loss", "its loss is not below that of guessing the own rates"),
            ("error", "its error not below that of the most frequent label"),
        )
        if found[of]
    ]
    rows = "test rows" if sample is not e.seen else training.rows_word(e)
    return f"On {rows} {'; '.join(told)}." if told else None


def asks_most(e: Evidence) -> str | None:
    """Say of which cell the bounds ask most, and which one pays.

    It is the cell with the largest multiplier, where the pair is near the saddle point;
    otherwise the one that is furthest above its bound in the model without bounds. None
    where neither is known.
    """
    if isinstance(e.privacy, Noise):
        return None  # the price of a cell is no figure that was released
    now = losses(e, e.seen)
    if not e.promise or not e.trained or now.empty:
        return None
    this = "This bound asks" if np.ptp(e.bounds) == 0 else "These bounds ask"
    before, total = known(e.before), float(e.multipliers.sum())
    free = None if before is None else losses(e, before.samples["train"])
    priced, met = converged(e) == "yes", free is not None and not free.missed
    if isinstance(e.path, ModelPath):  # bounds were tightened to be shown
        this, met = "The promise asks", priced and total == 0
    if met or (free is None and priced and total == 0):
        return f"{this} nothing of anyone: the model without bounds is within."
    if priced and total > 0:
        z = int(np.argmax(e.multipliers))
        share = 100 * float(e.multipliers[z]) / total
        reason = f"{share:.0f} % of the price of all bounds is its own"
    elif free is not None:
        z = free.worst
        reason = "without bounds it is the furthest above"
        if not free.missed:  # as on a path, where bounds were tightened to be shown
            reason = "without bounds it has the least room"
    else:
        return None
    text = f"{this} most of '{e.names[z]}': {reason}."
    if free is not None:
        text += _changes(z, free, now)
    return text + _constants(e, z)


def _changes(z: int, free: CellLosses, now: CellLosses) -> str:
    """Say what the bounds did to the cell's loss, and to that of the one that pays."""
    rise = now.means - free.means
    text = f" Its mean training loss goes from {words(free.means[z])} without bounds "
    text += f"to {words(now.means[z])}"
    payer = int(np.argmax(rise))
    if rise[payer] <= 10 * now.tolerance[payer] or payer == z:
        return f"{text}."
    ends = f"from {words(free.means[payer])} to {words(now.means[payer])}"
    return f"{text}; '{now.names[payer]}' pays most, {ends}."


def _constants(e: Evidence, z: int) -> str:
    """Say how well constants do: a cell with mixed labels has a high loss anyway.

    In a cell of one label there is nothing to guess.
    """
    own = e.cells[z].constant
    if not own:
        return ""
    others = [c.constant for i, c in enumerate(e.cells) if i != z]
    found = [other for other in others if other]
    text = f" The best constant guess for it has {words(own)}"
    if not found:
        return f"{text}."
    low, high = words(min(found)), words(max(found))
    return f"{text}, for the others {low if low == high else f'{low} to {high}'}."


def remarks(e: Evidence) -> list[str]:
    """Say what a reader of all figures should know, and what a user may want to do."""
    found = overfitted(e)
    out = [] if found is None else [found]
    if e.weighted:
        out.append(
            "rows have weights: losses, errors and rates are weighted means; rows and "
            "people are counted"
        )
    return out


def overfitted(e: Evidence) -> str | None:
    """Say where held-out loss is above training loss by more than chance explains.

    Of all rows together, or of a cell; None where it is nowhere, or nobody can tell.
    """
    if not isinstance(e.heldout, Sample) or not e.trained:
        return None
    if isinstance(e.privacy, Noise):
        return None  # squares are not released
    names = ("all rows", *(f"'{name}'" for name in e.names))
    if e.weighted:
        return None  # their standard errors are not known
    (n, mean, error), (m, new, other) = _moments(e.seen), _moments(e.heldout)
    limit = np.sqrt(ERRORS**2 + 2 * np.log(len(names)))  # a union over the sets
    far = new - mean > limit * np.hypot(error, other)
    found = np.flatnonzero(far & (new > (1 + MUCH) * mean) & (np.minimum(n, m) >= FEW))
    if not len(found):
        return None
    told = [
        f"{names[i]} {words(mean[i])} and {words(new[i])}"
        for i in found[:MOST_NAMED].tolist()
    ]
    more = f", and {len(found) - MOST_NAMED:,} more" if len(found) > MOST_NAMED else ""
    return (
        "overfitted: held-out loss is above training loss by more than chance explains "
        f"({', '.join(told)}{more}); a larger l2 (--l2 auto chooses one on training "
        "rows), fewer inputs or more rows help"
    )


def _moments(sample: Sample) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows, mean loss and its standard error, of all rows and of each cell."""
    columns = ("count", "bounded_loss", "bounded_loss_squared")
    n, total, square = (
        np.append(sample.column(c).sum(), sample.of_cells(c)) for c in columns
    )
    rows = np.maximum(n, 1.0)
    variance = np.maximum(square - total**2 / rows, 0.0) / np.maximum(rows - 1, 1.0)
    return n, total / rows, np.sqrt(variance / rows)
