"""Statements about unseen people, from numbers to plain words.

Each function takes bounds that `holdout`, `rates` or `uniform` computed, and what is
known of the assumptions, and returns one `Statement`. Bounds are written rounded to
the safe side, and one that says nothing is called vacuous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pffl.certificates._checks import Numbers, finite, refuse
from pffl.certificates._plain import Json
from pffl.certificates.rates import Spread
from pffl.certificates.statement import Assumption, State, Statement
from pffl.certificates.verdict import CellLosses
from pffl.certificates.words import down, up, words
from pffl.typing import FloatArray

SAMPLING = Assumption(
    "The held-out rows are drawn like the unseen people, independently of each other.",
    "assumed",
)
TRAINING_SAMPLE = Assumption(
    "The training rows are drawn like the unseen people, independently of each other.",
    "assumed",
)


def separate(overlap: int | None) -> Assumption:
    """Say whether held-out rows were used in training; None if nobody looked."""
    text = "No held-out row was used to train or to choose the model"
    if overlap:
        reason = f"needs separate rows: {overlap} held-out rows were used in training"
        return Assumption(reason, "failed")
    return Assumption(f"{text}.", "assumed" if overlap is None else "checked")


def bounded_loss(loss_bound: float | None, *, clipped: bool = False) -> Assumption:
    """Say where M comes from: declared, enforced by clipping, or missing."""
    if loss_bound is None:
        return Assumption("needs a loss bound known before the data is seen", "failed")
    if clipped:
        text = f"Losses above {words(loss_bound)} count as {words(loss_bound)}."
        return Assumption(text, "checked")
    text = f"No person's loss can be above {words(loss_bound)}, seen or unseen."
    return Assumption(text, "assumed")


def chosen_among(candidates: int, fresh: bool) -> Assumption:
    """Say how a choice among candidates was paid for."""
    if candidates > 1 and not fresh:
        text = f"The model was one of {candidates} candidates; the risk was shared."
    else:
        text = "The model was fixed before the held-out rows were looked at."
    state: State = "checked" if candidates > 1 or fresh else "assumed"
    return Assumption(text, state)


def _percent(confidence: float) -> str:
    return f"{100 * confidence:.6g} %"


def holdout_statement(
    cells: CellLosses,
    upper: Numbers,
    *,
    confidence: float,
    loss_bound: float | None,
    assumptions: Sequence[Assumption] = (SAMPLING,),
    clipped: bool = False,
    inputs: Mapping[str, Json] | None = None,
) -> Statement:
    """State, for all cells at once, how large the loss of unseen people can be.

    `upper` has one bound per cell that hold together with the confidence given
    (`holdout.upper_bounds` at `holdout.split_delta`).
    """
    grounds = (*assumptions, bounded_loss(loss_bound, clipped=clipped))
    if not cells.names or loss_bound is None:
        return _missing("holdout", grounds, "" if cells.names else "no bound was set")
    bounds = _one_per_cell(upper, cells)
    excess = bounds - cells.bounds
    what = f"mean loss (cut at {words(loss_bound)})" if clipped else "mean loss"
    text = (
        f"With confidence {_percent(confidence)}, for all cells at once, the {what} of "
        f"unseen people is at most the figure in the table. {_against(cells, bounds)}"
    )
    figures = {"confidence": confidence, "loss_bound": loss_bound, "clipped": clipped}
    return Statement(
        "holdout",
        text,
        value=float(excess.max()),
        holds=bool((excess <= 0).all()),
        assumptions=grounds,
        inputs={**figures, **(inputs or {})},
        per_cell=_unseen_rows(cells, bounds, loss_bound),
    )


def _missing(kind: str, grounds: tuple[Assumption, ...], reason: str) -> Statement:
    """Build a statement that is not available, for `reason` or a failed ground."""
    return Statement(kind, "", assumptions=grounds, available=not reason, reason=reason)


def _one_per_cell(values: Numbers, cells: CellLosses) -> FloatArray:
    array = finite("upper", values)
    if array.shape != (len(cells.names),):
        raise refuse("upper", f"of shape ({len(cells.names)},)", array.shape)
    return array


def _against(cells: CellLosses, upper: FloatArray) -> str:
    kept = int((upper <= cells.bounds).sum())
    worst = int(np.argmax(upper - cells.bounds))
    head = f"That keeps {kept} of {len(cells.names)} cells within their bound"
    if kept == len(cells.names):
        head = "That keeps every cell within its bound"
    return (
        f"{head}; the one with the least room is '{cells.names[worst]}', at most "
        f"{up(upper[worst])} against a bound of {words(cells.bounds[worst])}."
    )


def _unseen_rows(
    cells: CellLosses,
    upper: FloatArray,
    loss_bound: float,
    extra: Mapping[str, FloatArray] | None = None,
) -> tuple[dict[str, Json], ...]:
    means = cells.means
    return tuple(
        {
            "cell": name,
            "rows": int(cells.counts[z]),
            "loss": float(means[z]) if cells.counts[z] else None,
            "upper": float(upper[z]),
            "bound": float(cells.bounds[z]),
            "vacuous": bool(upper[z] >= loss_bound),
            **{key: float(values[z]) for key, values in (extra or {}).items()},
            "holds": bool(upper[z] <= cells.bounds[z]),
        }
        for z, name in enumerate(cells.names)
    )


def error_statement(
    names: Sequence[str],
    errors: Numbers,
    counts: Numbers,
    upper: Numbers,
    *,
    confidence: float,
    assumptions: Sequence[Assumption] = (SAMPLING,),
) -> Statement:
    """State how often unseen people of each cell are misjudged, at most."""
    wrong, rows, bounds = (
        finite("errors", errors),
        finite("counts", counts),
        finite("upper", upper),
    )
    worst = int(np.argmax(bounds))
    text = (
        f"With confidence {_percent(confidence)}, for all cells at once, the model is "
        "wrong about unseen people no more often than the table says; at most "
        f"{up(bounds[worst])} of the time in '{names[worst]}', the worst cell."
    )
    return Statement(
        "holdout_error",
        text,
        value=float(bounds[worst]),
        assumptions=tuple(assumptions),
        inputs={"confidence": confidence},
        per_cell=tuple(
            {
                "cell": name,
                "rows": int(rows[z]),
                "error": float(wrong[z] / rows[z]) if rows[z] else None,
                "upper": float(bounds[z]),
            }
            for z, name in enumerate(names)
        ),
    )


def uniform_statement(
    cells: CellLosses,
    upper: Numbers,
    *,
    confidence: float,
    loss_bound: float | None,
    radius: float | None,
    inside: bool = True,
    printed: Numbers | None = None,
) -> Statement:
    """State what the training rows alone say, for every linear model of the ball.

    `printed` is the paper's term per cell; it is shown as "as printed, not valid".
    """
    ball = _in_ball(radius is not None and inside)
    grounds = (TRAINING_SAMPLE, ball, bounded_loss(loss_bound))
    unmet = "" if cells.names and not cells.empty else "needs rows in every cell"
    if unmet or loss_bound is None or radius is None:
        return _missing("uniform", grounds, unmet)
    bounds = _one_per_cell(upper, cells)
    vacuous = int((bounds >= loss_bound).sum())
    text = (
        f"From the training rows alone, with confidence {_percent(confidence)}, the "
        "mean loss of unseen people is at most the figure in the table, whichever "
        f"model of length at most {words(radius)} was picked. The figure is vacuous "
        f"in {vacuous} of {len(cells.names)} cells."
    )
    extra = {}
    if printed is not None:
        extra = {"as printed, not valid": cells.means + finite("printed", printed)}
    return Statement(
        "uniform",
        text,
        value=float((bounds - cells.bounds).max()),
        holds=bool((bounds <= cells.bounds).all()),
        assumptions=grounds,
        inputs={"confidence": confidence, "loss_bound": loss_bound, "radius": radius},
        per_cell=_unseen_rows(cells, bounds, loss_bound, extra),
    )


def _in_ball(inside: bool) -> Assumption:
    if inside:
        text = "The model is linear and lies in a norm ball declared before the data."
        return Assumption(text, "checked")
    return Assumption("needs a linear model inside a declared norm ball", "failed")


#: Words for the fairness metrics, by kind.
METRICS: dict[str, str] = {
    "dp_gap": "how often groups are predicted positive (demographic parity)",
    "eo_gap": "how often truly positive people of groups are predicted positive "
    "(equal opportunity)",
    "equalised_odds": "how often people of groups with the same true label are "
    "predicted positive (equalised odds)",
}


def metric_statement(
    kind: str,
    spread: Spread,
    groups: Sequence[str],
    *,
    confidence: float,
    assumptions: Sequence[Assumption] = (SAMPLING,),
) -> Statement:
    """State a fairness metric with its interval; `kind` is a key of `METRICS`."""
    low, high = spread.interval.lower, spread.interval.upper
    missing = [groups[a] for a in spread.undefined]
    text = (
        f"With confidence {_percent(confidence)}, among unseen people the largest "
        f"difference in {METRICS[kind]} lies between {down(low)} and {up(high)}. "
    )
    if spread.value is None:
        text += f"In the held-out rows it is undefined: no rows for {missing}."
    else:
        text += f"In the held-out rows it is {words(spread.value)}."
    return Statement(
        kind,
        text,
        value=spread.value,
        assumptions=tuple(assumptions),
        inputs={
            "confidence": confidence,
            "lower": low,
            "upper": high,
            "undefined": missing,
        },
    )
