"""What can be proved of the training rows: gap, slack, impossibility, least bounds.

Each function asks the silos and returns the figures that `stating` puts into words:
enough of them that anyone with the rows can compute the statement again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pffl.certificates import Statement
from pffl.certificates.empirical import RiskBound, choose_risk_bound, threshold
from pffl.certificates.infeasible import Witness
from pffl.certify import stating
from pffl.certify.basis import Basis
from pffl.certify.lowest import Lowest, polished
from pffl.certify.subject import Subject
from pffl.engines.base import Engine
from pffl.feasibility import Feasibility, feasibility
from pffl.gap import measure
from pffl.methods.exact import LARGEST
from pffl.models.linear import LinearModel
from pffl.problem import Problem
from pffl.verdict import TOLERANCE, implied_risk_of

Figures = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Proof:
    """How far the bounds are from what is possible, with all that shows it.

    Attributes
    ----------
    found
        The enclosure and its models.
    witness
        λ, and the point where its plane was taken.
    """

    found: Feasibility
    witness: Witness

    @classmethod
    def of(cls, engine: Engine, problem: Problem) -> Proof:
        """Solve the minimax problem and keep the witness of its lower end."""
        found = feasibility(engine, problem)
        witness = polished(engine, problem, found.witness, found.model)
        return cls(found, witness)


def unreachable(subject: Subject) -> str | None:
    """Say why Hessians cannot be asked for; None if they can."""
    if not isinstance(subject.problem.task.model, LinearModel):
        return "needs Hessians, and the model is not linear"
    if subject.problem.n_parameters > LARGEST:
        return f"needs Hessians, and the model has more than {LARGEST:,} parameters"
    return None


def proof_of_bounds(subject: Subject, basis: Basis) -> Proof | None:
    """Return how far the bounds are from possible, where one of them is missed."""
    if not violated(basis):
        return None
    return Proof.of(subject.engine, subject.problem)


def gap_figures(subject: Subject) -> Figures:
    """Measure the duality gap of the pair."""
    found = measure(subject.engine, subject.problem, subject.point)
    return {"upper": found.upper, "lower": found.lower}


def violated(basis: Basis) -> bool:
    """Whether a bound is not met on the training rows."""
    if not basis.promise:
        return False
    losses = basis.losses(basis.seen)
    return not losses.empty and float(losses.violation.max()) > TOLERANCE


def infeasible_figures(proof: Proof) -> Figures:
    """Return the witness."""
    witness = proof.witness
    return {
        "multipliers": witness.multipliers.tolist(),
        "w": witness.w.tolist(),
        "bound": witness.bound,
    }


def attainable_figures(proof: Proof) -> Figures:
    """Return both ends of the smallest common bound, and what shows them.

    The proof must be of the problem with all bounds 0, so that r is the mean loss.
    """
    upper = proof.found.excess.upper
    return {
        "lower": min(max(0.0, proof.witness.bound), upper),
        "upper": upper,
        "multipliers": proof.witness.multipliers.tolist(),
        "at": proof.witness.w.tolist(),
        "model": proof.found.model.tolist(),
        "cell": None,
    }


def lowest_statement(basis: Basis, cell: str, found: Lowest) -> Statement:
    """State how low the bound of one cell can go with the others kept."""
    if found.impossible:
        reason = (
            f"the other bounds cannot be kept by any model, whatever that of '{cell}'"
        )
        return Statement.not_available("attainable", reason)
    if found.interval is None:
        reason = f"no model was found that keeps the bounds of all but '{cell}'"
        return Statement.not_available("attainable", reason)
    figures = {
        "lower": found.interval.lower,
        "upper": found.interval.upper,
        "multipliers": found.multipliers.tolist(),
        "at": found.at.tolist(),
        "model": found.model.tolist(),
        "cell": cell,
    }
    return stating.attainable(basis, figures)


def empirical_figures(
    subject: Subject, basis: Basis, gap: float | None, proof: Proof | None
) -> Figures:
    """Return the slack of Lemma 1 where a bound is missed, and where its M comes from.

    M is F of a model that meets all bounds, if one was found, or what the bounds
    themselves imply, whichever is smaller.
    """
    figures: dict[str, Any] = {"tolerance": TOLERANCE if subject.trained else 0.0}
    problem = subject.problem
    impossible = proof is None or proof.witness.proves
    if gap is None or impossible or problem.multiplier_bound <= 0:
        return figures
    found = proof.found if proof is not None else None
    met = found is not None and found.excess.upper <= 0
    chosen = choose_risk_bound(
        feasible_risk=found.risk if found is not None and met else None,
        implied=implied_risk_of(problem),
    )
    if chosen is None:
        return figures
    slack = threshold(
        chosen.value,
        gap,
        risk_weight=problem.risk_weight,
        multiplier_bound=problem.multiplier_bound,
    )
    figures |= {"slack": slack, "gap": gap, **_source(chosen, found)}
    return figures


def _source(chosen: RiskBound, found: Feasibility | None) -> Figures:
    figures: dict[str, Any] = {
        "risk_bound": chosen.value,
        "risk_bound_from": chosen.source,
    }
    if chosen.source == "feasible model" and found is not None:
        figures["feasible_model"] = found.model.tolist()
    return figures


def common(problem: Problem) -> Problem:
    """Return the problem with all bounds 0: r is then the mean loss."""
    return problem.with_bounds(np.zeros(problem.n_cells))
