"""`certify`: everything that can be promised of a model, in one certificate.

`basis` is what the certificate stands on, `training` and `unseen` compute figures,
`stating` puts them into words, `concluding` adds the verdict. See docs/certificates.md.
"""

from __future__ import annotations

from pffl.certificates import Certificate, Statement
from pffl.certify import stating, stating_unseen, training, unseen
from pffl.certify.basis import Basis
from pffl.certify.basis import basis_of as basis_of
from pffl.certify.concluding import conclude
from pffl.certify.concluding import restate as restate
from pffl.certify.lowest import lowest
from pffl.certify.measuring import Request as Request
from pffl.certify.measuring import basis_for
from pffl.certify.planning import plan_figures, plan_unavailable
from pffl.certify.subject import Subject as Subject
from pffl.certify.subject import model_fingerprint as model_fingerprint
from pffl.data.federation import Federation
from pffl.engines.base import Engine
from pffl.solution import Solution


def certify(
    solution: Solution,
    federation: Federation | Engine,
    *,
    confidence: float = 0.95,
    candidates: int = 1,
    fresh_split: bool = False,
    split: str = "test",
    feature_bound: float | None = None,
    target_gap: float | None = None,
    cell: str | None = None,
) -> Certificate:
    """Say what holds for a model: on the training rows, for unseen people, at best.

    A number is stated only where its assumptions hold; otherwise the statement says
    "not available" and why.

    Parameters
    ----------
    solution
        What `solve` returned.
    federation
        The silos, or an engine that reaches them. Other data than the model was
        trained on are measured, too, and labelled "other data".
    confidence
        1 − δ of all statements on unseen people together.
    candidates, fresh_split
        How many models were compared on the held-out rows before this one was chosen:
        δ is shared among them, unless the split is a fresh one.
    split
        The rows that stand for unseen people.
    feature_bound
        A bound on the length of everyone's scaled inputs (with the constant 1), for
        the statement from the training rows alone.
    target_gap
        A duality gap to judge by, and to plan rounds for.
    cell
        A cell whose smallest attainable bound is wanted, the others' bounds kept.
    """
    request = Request(
        confidence=confidence,
        candidates=candidates,
        fresh_split=fresh_split,
        splits=(split,),
        feature_bound=feature_bound,
        target_gap=target_gap,
        cell=cell,
    )
    return certify_subject(Subject.of_solution(solution, federation), request)


def certify_subject(subject: Subject, request: Request) -> Certificate:
    """Certify a model, however it came here."""
    basis = basis_for(subject, request)
    statements = [stating.measured(basis)]
    if subject.trained:
        statements += _proved(subject, basis, request)
    else:
        figures = training.empirical_figures(subject, basis, None, None)
        statements.append(stating.empirical(basis, figures))
    statements += _unseen(basis)
    if subject.trained:
        statements += _a_priori(subject, basis, request)
    return conclude(
        basis, statements, fingerprints=subject.fingerprints(), notes=subject.notes
    )


def _proved(subject: Subject, basis: Basis, request: Request) -> list[Statement]:
    """State what can be proved of the training rows."""
    reason = training.unreachable(subject)
    if not basis.model.convex:
        gap, proof, least = stating.needs_convexity("gap"), None, None
    elif reason is not None:
        gap, proof, least = Statement.not_available("gap", reason), None, None
    else:
        gap = _gap(subject, basis, request)
        least = training.Proof.of(subject.engine, training.common(subject.problem))
        proof = training.proof_of_bounds(subject, basis)
    figures = training.empirical_figures(subject, basis, gap.value, proof)
    out = [gap, stating.empirical(basis, figures)]
    if proof is not None:
        out.append(stating.infeasible(basis, training.infeasible_figures(proof)))
    return out + _attainable(subject, basis, request, least)


def _gap(subject: Subject, basis: Basis, request: Request) -> Statement:
    unusable = stating.unusable_multipliers(basis)
    if unusable is not None:
        return Statement.not_available("gap", unusable)
    figures = {**training.gap_figures(subject), "target": request.target_gap}
    return stating.gap(basis, figures)


def _attainable(
    subject: Subject, basis: Basis, request: Request, least: training.Proof | None
) -> list[Statement]:
    """State the smallest bound of all cells together, and of the one asked for."""
    if least is None:
        if not basis.model.convex:
            return [stating.needs_convexity("attainable")]
        return [Statement.not_available("attainable", "needs Hessians")]
    out = [stating.attainable(basis, training.attainable_figures(least))]
    if request.cell is not None and not basis.promise:
        reason = "no bound was set for the other cells to keep"
        out.append(Statement.not_available("attainable", reason))
    elif request.cell is not None:
        place = basis.names.index(request.cell)
        found = lowest(subject.engine, subject.problem, place)
        out.append(training.lowest_statement(basis, request.cell, found))
    return out


def _unseen(basis: Basis) -> list[Statement]:
    """State what held-out rows say of unseen people."""
    out = [stating_unseen.holdout(basis, unseen.holdout_figures(basis))]
    if basis.labels:
        error = unseen.error_figures(basis)
        out.append(stating_unseen.holdout_error(basis, error))
    if len(basis.labels) == 2:
        out += [
            stating_unseen.metric(kind, basis, unseen.metric_figures(kind, basis))
            for kind in stating_unseen.METRICS
        ]
    return out


def _a_priori(subject: Subject, basis: Basis, request: Request) -> list[Statement]:
    """State what needs no held-out rows: the uniform bound, and a plan of rounds."""
    reason = unseen.uniform_unavailable(basis)
    if reason is not None:
        out = [Statement.not_available("uniform", reason)]
    else:
        figures = unseen.uniform_figures(subject, basis)
        out = [stating_unseen.uniform(basis, figures)]
    if request.target_gap is None:
        return out
    if not basis.model.convex:
        return [*out, stating.needs_convexity("plan")]
    reason = plan_unavailable(basis)
    constants = None if reason else plan_figures(subject, basis, request.target_gap)
    if constants is None:
        reason = reason or "needs a bound on the length of the inputs (feature_bound)"
        return [*out, Statement.not_available("plan", reason)]
    return [*out, stating.planned(basis, constants)]
