"""What a person should be told besides: whom bounds bind, and what was overfitted.

Pure functions of `Evidence`; each returns a sentence, or None where there is none.
"""

from __future__ import annotations

import numpy as np

from pffl.evidence import training
from pffl.evidence.noise import FEWEST, Noise
from pffl.evidence.record import Evidence, ModelPath, Sample, known
from pffl.evidence.training import converged, losses
from pffl.text import words
from pffl.typing import FloatArray

FEW = 30  # rows in a split, below which a mean says too little
MUCH = 0.1  # part of the training loss by which held-out loss must be above it
ERRORS = 3.0  # standard errors by which it must be above it, for one set of rows
MOST_NAMED = 3
NO_MULTIPLIER = 1e-9  # multipliers whose sum is this small are 0


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
    found: dict[str, list[str]] = {"loss": [], "errors": []}
    for name, i in {**sets, "all rows together": list(range(len(e.groups)))}.items():
        n = weight[i].sum(axis=0)
        if count[i].sum() < FEWEST or np.count_nonzero(n) < 2:
            continue
        if loss[i].sum() >= -(n[n > 0] * np.log(n[n > 0] / n.sum())).sum():
            found["loss"].append(name)
        if right[i].sum() <= n.max():
            found["errors"].append(name)
    told = [f"{of} of {', '.join(sets)}" for of, sets in found.items() if sets]
    apart = e.trained and known(e.heldout) is not None
    rows = "test rows" if apart else training.rows_word(e)
    guess = f"On {rows} the model is no better than a guess"
    return f"{guess}: {'; '.join(told)}." if told else None


def binding(e: Evidence) -> str | None:
    """Name the groups whose bounds are binding, with their shares of the multipliers.

    None where multipliers say nothing: without bounds, before convergence, under noise.
    """
    silent = isinstance(e.privacy, Noise) or not (e.promise and e.trained)
    if silent or converged(e) != "yes" or losses(e, e.seen).empty:
        return None
    total = float(e.multipliers.sum())
    kind = "tightened bound" if isinstance(e.path, ModelPath) else "bound"
    if total <= NO_MULTIPLIER:
        return f"No {kind} is binding."
    shares = [(100 * float(e.multipliers[z]) / total, z) for z in range(len(e.names))]
    found = sorted((one for one in shares if one[0] >= 0.5), key=lambda one: -one[0])
    if len(found) == 1:
        return f"Only the {kind} on '{e.names[found[0][1]]}' is binding."
    named = [f"'{e.names[z]}' ({share:.0f} %)" for share, z in found[:MOST_NAMED]]
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"Binding {kind}s, by their multipliers: {', '.join(named)}{more}."


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
