"""Statements on unseen people: pure functions of the basis and their own figures.

All of them hold together with the confidence of the certificate: its risk of being
wrong, δ, is shared out before the rows are looked at, half of it to the losses and the
other half in equal parts to all else that is stated (`shares`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pffl.certificates import Assumption, CellLosses, Interval, Statement
from pffl.certificates import wording_unseen as w
from pffl.certificates.holdout import split_delta
from pffl.certificates.rates import Spread
from pffl.certificates.words import up
from pffl.certify.basis import Basis

Figures = Mapping[str, Any]

METRICS = ("dp_gap", "eo_gap", "equalised_odds")


def shares(basis: Basis) -> dict[str, float]:
    """Return the part of δ that each kind of statement may spend.

    A union over the candidates comes on top, but for the uniform statement: that holds
    for all models at once.
    """
    delta = 1.0 - basis.confidence
    others = []
    if basis.labels:
        others.append("holdout_error")
    if len(basis.labels) == 2:
        others += METRICS
    if basis.feature_bound is not None and basis.trained:
        others.append("uniform")
    out = {"holdout": delta / 2 if others else delta}
    return out | {kind: delta / (2 * len(others)) for kind in others}


def cell_delta(basis: Basis, kind: str) -> float:
    """Return δ of one cell (or of one metric) of a statement."""
    cells = 1 if kind in METRICS else len(basis.cells)
    return split_delta(shares(basis)[kind], cells, _paid_for(basis, kind))


def _paid_for(basis: Basis, kind: str) -> int:
    free = basis.fresh_split or kind == "uniform"
    return 1 if free else basis.candidates


def sharing(basis: Basis) -> str:
    """Say in words how δ is shared out."""
    parts = shares(basis)
    delta = f"{1.0 - basis.confidence:.6g}"
    text = f"The statements on unseen people hold together: their risk, {delta}, goes "
    if len(parts) == 1:
        text += "to the losses"
    else:
        many = len(parts) - 1
        text += f"half to the losses and half in {many} equal parts to the others"
    text += ", and in each to all cells alike"
    if basis.candidates > 1 and not basis.fresh_split:
        text += f" and to all {basis.candidates} candidates"
    return text + "."


def grounds(basis: Basis) -> tuple[Assumption, ...]:
    """Say what all statements from held-out rows stand on."""
    if basis.heldout is None:
        return (Assumption("needs held-out rows, and there are none", "failed"),)
    chosen = w.chosen_among(basis.candidates, basis.fresh_split)
    return (w.SAMPLING, w.separate(basis.overlap), chosen)


def holdout(basis: Basis, figures: Figures) -> Statement:
    """State how large the mean loss of unseen people can be, cell by cell."""
    sample = basis.unseen
    if sample is None or basis.loss_bound is None or basis.overlap:
        reasons = (*grounds(basis), w.bounded_loss(basis.loss_bound, clipped=True))
        return Statement("holdout", "", assumptions=reasons)
    cells = basis.losses(sample, "capped_loss")
    upper = np.asarray(figures["upper"], dtype=np.float64)
    statement = w.holdout_statement(
        cells,
        upper,
        confidence=basis.confidence,
        loss_bound=basis.loss_bound,
        assumptions=grounds(basis),
        clipped=True,
        inputs={"upper": upper.tolist(), "delta": cell_delta(basis, "holdout")},
    )
    return statement if basis.promise else _unbounded(statement, cells, upper)


def _unbounded(statement: Statement, cells: CellLosses, upper: Any) -> Statement:
    """Speak of the largest figure, where there is no bound to compare with."""
    worst = int(np.argmax(upper))
    first, _, _ = statement.text.partition("figure in the table. ")
    text = (
        f"{first}figure in the table; the largest is that of '{cells.names[worst]}', "
        f"at most {up(float(upper[worst]))}."
    )
    rows = tuple(
        {key: v for key, v in row.items() if key not in ("bound", "holds")}
        for row in statement.per_cell or ()
    )
    return replace(
        statement, text=text, value=float(upper[worst]), holds=None, per_cell=rows
    )


def holdout_error(basis: Basis, figures: Figures) -> Statement:
    """State how often unseen people are misjudged, cell by cell."""
    sample = basis.unseen
    if sample is None or basis.overlap:
        return Statement("holdout_error", "", assumptions=grounds(basis))
    count = sample.of_cells("count")
    statement = w.error_statement(
        basis.names,
        count - sample.of_cells("correct"),
        count,
        figures["upper"],
        confidence=basis.confidence,
        assumptions=grounds(basis),
    )
    more: dict[str, Any] = {
        "upper": [float(v) for v in figures["upper"]],
        "delta": cell_delta(basis, "holdout_error"),
    }
    return replace(statement, inputs={**statement.inputs, **more})


def reported_groups(basis: Basis) -> list[int]:
    """Return the groups that anyone belongs to, in any sample."""
    counts = [
        sample.of_atoms("count", len(basis.groups)).sum(axis=1)
        for sample in basis.samples.values()
    ]
    return [int(a) for a in np.flatnonzero(np.sum(counts, axis=0))]


def metric(kind: str, basis: Basis, figures: Figures) -> Statement:
    """State a fairness metric with its interval."""
    if basis.unseen is None or basis.overlap:
        return Statement(kind, "", assumptions=grounds(basis))
    groups = [basis.groups[a] for a in reported_groups(basis)]
    missing = tuple(groups.index(name) for name in figures["undefined"])
    spread = Spread(
        figures["spread"],
        Interval(float(figures["lower"]), float(figures["upper"])),
        missing,
    )
    statement = w.metric_statement(
        kind,
        spread,
        groups,
        confidence=basis.confidence,
        assumptions=grounds(basis),
    )
    more = {"spread": spread.value, "delta": cell_delta(basis, kind)}
    return replace(statement, inputs={**statement.inputs, **more})


def uniform(basis: Basis, figures: Figures) -> Statement:
    """State what the training rows alone say, for every linear model of the ball."""
    upper = np.asarray(figures["upper"], dtype=np.float64)
    statement = w.uniform_statement(
        basis.losses(basis.seen),
        upper,
        confidence=basis.confidence,
        loss_bound=float(figures["loss_bound"]),
        radius=basis.radius,
        inside=basis.model.linear and basis.model.length <= basis.radius,
        printed=figures["printed"],
    )
    if not statement.available:
        return statement
    short = _short_inputs(basis, figures["longest_input"])
    kept = ("upper", "printed", "longest_input")
    more = {**{key: figures[key] for key in kept}, "delta": shares(basis)["uniform"]}
    rows = statement.per_cell or ()
    if not basis.promise:
        rows = tuple(
            {k: v for k, v in row.items() if k not in ("bound", "holds")}
            for row in rows
        )
    return replace(
        statement,
        assumptions=(*statement.assumptions, short),
        inputs={**statement.inputs, **more},
        holds=statement.holds if basis.promise else None,
        per_cell=rows,
    )


def _short_inputs(basis: Basis, longest: float | None) -> Assumption:
    """Say that nobody's inputs are longer than was declared."""
    bound = basis.feature_bound or 0.0
    if longest is not None and longest > bound:
        reason = f"needs a true bound on the inputs: {up(longest)} was seen"
        return Assumption(reason, "failed")
    seen = "" if longest is None else f" (in the training rows at most {up(longest)})"
    text = f"Nobody's scaled inputs are longer than {bound:g}{seen}."
    return Assumption(text, "assumed")


STATEMENTS: dict[str, Callable[[Basis, Figures], Statement]] = {
    "holdout": holdout,
    "holdout_error": holdout_error,
    **{kind: partial(metric, kind) for kind in METRICS},
    "uniform": uniform,
}
