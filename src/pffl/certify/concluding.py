"""From statements to a certificate: the verdict, the sentence, the notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pffl.certificates import Certificate, Statement, Verdict, judge
from pffl.certificates.words import up, words
from pffl.certify import stating, stating_unseen
from pffl.certify.basis import Basis, basis_of
from pffl.errors import ArtefactError

STATEMENTS = {**stating.STATEMENTS, **stating_unseen.STATEMENTS}


def conclude(
    basis: Basis,
    statements: Sequence[Statement],
    *,
    fingerprints: Mapping[str, str],
    notes: Sequence[str] = (),
) -> Certificate:
    """Put statements together, with the verdict that follows from them."""
    verdict, sentence = verdict_of(basis, statements)
    return Certificate(
        tuple(statements),
        verdict,
        sentence,
        basis.confidence,
        dict(fingerprints),
        (*standing_notes(basis), *notes),
    )


def verdict_of(basis: Basis, statements: Sequence[Statement]) -> tuple[Verdict, str]:
    """Return the verdict and its sentence, from what is stated."""
    if basis.stopped == "diverged":
        return "diverged", "The run diverged; its model is the last finite one."
    if basis.stopped == "interrupted":
        return "interrupted", "The run was interrupted; its model is unfinished."
    if basis.minimax:
        return "met", _minimax(basis, statements)
    if not basis.promise:
        return "met", "No bound was asked for."
    losses = basis.losses(basis.seen)
    if losses.empty:
        return "not_met", f"No rows to judge by: {', '.join(losses.empty)}."
    inputs = _first(statements, "empirical").inputs
    slack, tolerance = inputs.get("slack"), inputs.get("tolerance")
    proved = any(s.kind == "infeasible" and s.available for s in statements)
    verdict, sentence = judge(
        losses,
        slack=float(slack) if isinstance(slack, int | float) else None,
        impossible=proved,
        tolerance=float(tolerance) if isinstance(tolerance, int | float) else 0.0,
    )
    return verdict, sentence if basis.trained else stating.given_rows(sentence)


def _minimax(basis: Basis, statements: Sequence[Statement]) -> str:
    losses = basis.losses(basis.seen)
    worst = int(np.nanargmax(losses.means))
    text = f"The worst cell is '{losses.names[worst]}' with a mean loss of "
    text += words(float(losses.means[worst]))
    gap = _first(statements, "gap").value
    known = "" if gap is None else f", within {up(gap)} of the smallest possible"
    return f"{text}{known}."


def _first(statements: Sequence[Statement], kind: str) -> Statement:
    return next(
        (s for s in statements if s.kind == kind), Statement.not_available(kind, "none")
    )


def standing_notes(basis: Basis) -> tuple[str, ...]:
    """Say what a reader must know of any such certificate."""
    notes = []
    if basis.other_data:
        notes.append(
            "other data: these are not the rows that the model was trained on; see the "
            "fingerprints."
        )
    if basis.trained:
        notes.append(
            "It speaks of models of the same kind on the same scaled inputs, and of "
            "nobody outside the cells."
        )
    notes.append(stating_unseen.sharing(basis))
    return tuple(notes)


def restate(certificate: Certificate) -> Certificate:
    """Write the certificate again from its own figures: all words must come out alike.

    A statement that is not available claims nothing and is taken as it is.
    """
    basis = basis_of(certificate)
    statements = []
    for statement in certificate.statements:
        if not statement.available:
            statements.append(statement)
            continue
        if statement.kind not in STATEMENTS:
            raise ArtefactError(f"certificate: unknown statement '{statement.kind}'")
        try:
            again = STATEMENTS[statement.kind](basis, statement.inputs)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ArtefactError(
                f"certificate: the figures of '{statement.kind}' cannot be read: "
                f"{error}"
            ) from error
        statements.append(again)
    standing = standing_notes(basis)
    further = certificate.notes[len(standing) :]
    return conclude(
        basis, statements, fingerprints=certificate.fingerprints, notes=further
    )
