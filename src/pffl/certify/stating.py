"""Statements on the rows at hand: pure functions of the basis and their own figures.

`certify` computes the figures and states them; `verify` reads the figures back from a
certificate and states them again: the words must come out the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pffl.certificates import Assumption, CellLosses, Interval, Statement
from pffl.certificates import wording as w
from pffl.certificates.empirical import RiskBound
from pffl.certificates.infeasible import Witness
from pffl.certificates.plan import InnerProblem, plan
from pffl.certificates.words import down, up, words
from pffl.certify.basis import Basis, Sample
from pffl.gap import Gap

Figures = Mapping[str, Any]


def measured(basis: Basis, figures: Figures | None = None) -> Statement:
    """State what was measured, and keep all that the certificate stands on."""
    parts = [_described(basis, name) for name in basis.samples]
    text = f"Measured on {' and '.join(parts)} of '{basis.data}', {_silos(basis)}."
    if basis.other_data:
        text += " These are other data than the model was trained on."
    return Statement(
        "measured",
        text,
        inputs=basis.as_inputs(),
        per_cell=tuple(_cell_row(basis, z) for z in range(len(basis.cells))),
    )


def _silos(basis: Basis) -> str:
    return f"in {basis.silos:,} silo{'' if basis.silos == 1 else 's'}"


def _described(basis: Basis, name: str) -> str:
    sample = basis.samples[name]
    rows = int(sum(sample.atoms["count"]))
    if not basis.trained:
        return f"{rows:,} rows ({' and '.join(sample.splits)})"
    return f"{rows:,} {'training' if name == 'train' else name} rows"


def _cell_row(basis: Basis, z: int) -> dict[str, Any]:
    row: dict[str, Any] = {"cell": basis.cells[z].cell}
    for name, sample in basis.samples.items():
        mark = "" if len(basis.samples) == 1 else f"{name} "
        row[f"{mark}rows"] = int(sample.cells["count"][z])
        row[f"{mark}loss"] = _mean(sample, z)
    if basis.trained:
        row["multiplier"] = basis.multipliers[z]
    return row


def _mean(sample: Sample, z: int) -> float | None:
    count = sample.cells["count"][z]
    return sample.cells["loss"][z] / count if count else None


def gap(basis: Basis, figures: Figures) -> Statement:
    """State how far the pair is from the best trade-off."""
    upper, lower = float(figures["upper"]), float(figures["lower"])
    value = Gap(upper, lower, 0).value
    target = figures.get("target")
    ball = None if basis.modulus > 0 else basis.radius
    statement = w.gap_statement(
        value,
        convex=basis.model.convex,
        modulus=basis.modulus,
        radius=ball,
        target=target,
        inputs={"upper": upper, "lower": lower, "target": target},
    )
    if statement.available and not basis.multiplier_bound:
        text = (
            "No other model has an overall loss (with its ridge term) that is smaller "
            f"than this one's by more than {up(value)}."
        )
        statement = replace(statement, text=text)
    if statement.available and target is not None:
        text = f"{statement.text} The target was {words(float(target))}."
        statement = replace(statement, text=text)
    return statement


def unusable_multipliers(basis: Basis) -> str | None:
    """Say why λ is not a pair's multiplier; None if it is."""
    lam, most = np.asarray(basis.multipliers), basis.multiplier_bound
    if (lam < 0).any() or lam.sum() > most * (1 + 1e-12) + 1e-15:
        return "needs multipliers ≥ 0 whose sum is at most the multiplier bound"
    return None


def empirical(basis: Basis, figures: Figures) -> Statement:
    """State what was measured against the bounds, and the slack of Lemma 1."""
    if not basis.promise:
        return Statement.not_available("empirical", "no bound was set")
    slack, tolerance = figures.get("slack"), float(figures["tolerance"])
    source = figures.get("risk_bound_from")
    risk_bound = None
    if source is not None:
        risk_bound = RiskBound(float(figures["risk_bound"]), source)
    more = {key: v for key, v in figures.items() if key in _SLACK}
    statement = w.empirical_statement(
        basis.losses(basis.seen),
        slack=slack,
        risk_bound=risk_bound,
        tolerance=tolerance,
        inputs=more,
    )
    if slack is not None and statement.available:
        ball = w.compared_with(basis.radius, 0.0)
        grounds = (*statement.assumptions, ball)
        statement = replace(statement, assumptions=grounds)
    return statement if basis.trained else on_given_rows(statement)


_SLACK = ("gap", "risk_bound_from", "feasible_model")
_HERE = {
    "On the training rows": "On the rows given",
    "on the training rows": "on the rows given",
    "has training rows": "has rows",
    "no training rows": "no rows",
}


def given_rows(text: str) -> str:
    """Speak of the rows given: who audits a model does not know what trained it."""
    for there, here in _HERE.items():
        text = text.replace(there, here)
    return text


def on_given_rows(statement: Statement) -> Statement:
    """Return a statement on training rows as one on the rows given."""
    grounds = [Assumption(given_rows(a.text), a.state) for a in statement.assumptions]
    return replace(
        statement,
        text=given_rows(statement.text),
        reason=given_rows(statement.reason),
        assumptions=tuple(grounds),
    )


def infeasible(basis: Basis, figures: Figures) -> Statement:
    """State that no model meets all bounds, with the witness."""
    lam, at = _vector(figures["multipliers"]), _vector(figures["w"])
    witness = Witness(lam, at, basis.radius, float(figures["bound"]))
    statement = w.infeasible_statement(witness, basis.names, convex=basis.model.convex)
    inputs = {**statement.inputs, "bound": witness.bound}
    return replace(statement, inputs=inputs) if statement.available else statement


def attainable(basis: Basis, figures: Figures) -> Statement:
    """State the smallest bound that all cells, or one of them, can meet."""
    more = ("multipliers", "at", "model")
    interval = Interval(float(figures["lower"]), float(figures["upper"]))
    statement = w.attainable_statement(
        interval,
        convex=basis.model.convex,
        radius=basis.radius,
        cell=figures["cell"],
        inputs={key: figures[key] for key in more},
    )
    if not statement.available:
        return statement
    # Six digits: a bound is chosen by this number.
    what, between, _ = statement.text.partition(" lies between ")
    low, high = down(interval.lower, digits=6), up(interval.upper, digits=6)
    return replace(statement, text=f"{what}{between}{low} and {high}.")


PLAN = ("smoothness", "modulus", "gradient_bound", "distance", "heterogeneity")


def planned(basis: Basis, figures: Figures) -> Statement:
    """State how many rounds are enough for a target gap, before any is run."""
    inner = InnerProblem(**{name: float(figures[name]) for name in PLAN})
    statement = w.plan_statement(
        plan(
            float(figures["target_gap"]),
            inner,
            cells=len(basis.cells),
            multiplier_bound=basis.multiplier_bound,
            violation_bound=float(figures["violation_bound"]),
            local_steps=int(figures["local_steps"]),
        ),
        convex=basis.model.convex,
    )
    kept = (*PLAN, "violation_bound", "longest_input", "heaviest")
    more = {key: figures[key] for key in kept}
    return replace(statement, inputs={**statement.inputs, **more})


def needs_convexity(kind: str) -> Statement:
    """Refuse a statement that holds for convex losses only (fault 32)."""
    ground = w.convexity(False)
    return Statement.not_available(kind, ground.text, (ground,))


def worst_first(losses: CellLosses) -> Sequence[int]:
    """Cells in the order of their violation, the worst first."""
    return [int(z) for z in np.argsort(-losses.violation)]


def _vector(numbers: Any) -> Any:
    return np.asarray(numbers, dtype=np.float64)


STATEMENTS: dict[str, Callable[[Basis, Figures], Statement]] = {
    "measured": measured,
    "gap": gap,
    "empirical": empirical,
    "infeasible": infeasible,
    "attainable": attainable,
    "plan": planned,
}
