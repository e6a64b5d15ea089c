"""`verify`: every number of a certificate once more, from the model and rows alone.

The sums, losses and bounds are written here a second time, in plain NumPy over all
rows at once; lower bounds are tried by an independent minimisation. Nobody has to
trust the code, or the person, that made the certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np

from pffl.certificates import Certificate, Statement
from pffl.certify import basis_of, restate
from pffl.certify.basis import Basis
from pffl.data.federation import Federation
from pffl.errors import PFFLError
from pffl.models.base import Model
from pffl.typing import FloatArray
from pffl.verify import claims, facts, unseen
from pffl.verify.check import Check as Check
from pffl.verify.check import leaves
from pffl.verify.plain import KNOWN, Plain

MOST = 20  # differing entries of the words that are listed


class ModelRecord(Protocol):
    """A saved model: a run record, a model file, or one of somebody else."""

    @property
    def model(self) -> Model:
        """The model, bound to its schema and scaling."""

    @property
    def w(self) -> FloatArray:
        """Parameters."""

    @property
    def multipliers(self) -> FloatArray:
        """λ of each cell; empty if there are none."""


def verify(
    certificate: Certificate,
    record: ModelRecord,
    federation: Federation,
    *,
    declared: Mapping[str, object] | None = None,
) -> list[Check]:
    """Compute every number again, and say which agree.

    Parameters
    ----------
    certificate
        What is to be checked.
    record
        The model.
    federation
        The rows.
    declared
        What the run recorded of itself, where it is known: `risk_weight`,
        `multiplier_bound`, `radius`, `loss_bound`, `weighting`, `fingerprint` of its
        data, and `bounds`, a mapping from cell to number.
    """
    basis = basis_of(certificate)
    model, w = record.model, record.w
    out = list(facts.fingerprints(certificate, model, w, federation))
    out += facts.declared(certificate, basis, declared or {})
    try:
        out += _recomputed(certificate, basis, record, federation)
    except PFFLError as error:
        out.append(Check("the rest", "computed", "not computed", False, str(error)))
    return out + list(_words(certificate))


def _recomputed(
    certificate: Certificate, basis: Basis, record: ModelRecord, federation: Federation
) -> list[Check]:
    model, w, lam = record.model, record.w, record.multipliers
    if len(model.inputs.mean) != federation.schema.n_features:
        detail = "the model has another number of inputs than the data"
        return [Check("the rest", "computed", "not computed", False, detail)]
    out = list(facts.facts(certificate, basis, model, w, lam, federation))
    plain = {
        name: Plain.of(model, federation, basis, sample.splits)
        for name, sample in basis.samples.items()
    }
    for name, rows in plain.items():
        found = rows.sums(w, basis, basis.samples[name].splits)
        out += facts.sums(basis, name, found, rows.precision)
    training = plain[basis.training]
    if not training.counts.all():
        return [*out, Check("rows in every cell", "some", "none", False)]
    stated = np.asarray(basis.multipliers, dtype=np.float64)
    case = claims.Case(basis, training, w, stated)
    held = None if basis.heldout is None else plain[basis.heldout]
    for statement in certificate.statements:
        out += _claim(case, statement, held)
    return out


_PROVED: dict[str, Callable[[claims.Case, Statement], Iterator[Check]]] = {
    "gap": claims.gap,
    "empirical": claims.empirical,
    "infeasible": claims.infeasible,
    "attainable": claims.attainable,
}
_HELD: dict[str, Callable[[claims.Case, Statement, Plain], Iterator[Check]]] = {
    "holdout": unseen.holdout,
    "holdout_error": unseen.holdout_error,
    "dp_gap": unseen.metric,
    "eo_gap": unseen.metric,
    "equalised_odds": unseen.metric,
}
_PRIOR: dict[str, Callable[[claims.Case, Statement], Iterator[Check]]] = {
    "uniform": unseen.uniform,
    "plan": unseen.plan,
}


def _claim(case: claims.Case, statement: Statement, held: Plain | None) -> list[Check]:
    """Check one statement; one that is not available claims nothing."""
    kind = statement.kind
    if not statement.available or kind == "measured":
        return []
    alone = {**_PROVED, **_PRIOR}
    try:
        if kind in alone and kind != "empirical" and case.rows.kind not in KNOWN:
            detail = f"models of kind '{case.rows.kind}' are not known here"
            return [Check(f"statement '{kind}'", "computed", None, False, detail)]
        if kind in alone:
            return list(alone[kind](case, statement))
        if kind in _HELD and held is not None:
            return list(_HELD[kind](case, statement, held))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        detail = f"its figures cannot be read: {error!r}"
        return [Check(f"statement '{kind}'", "figures", None, False, detail)]
    return [Check(f"statement '{kind}'", "known", "unknown", False)]


def _words(certificate: Certificate) -> Iterator[Check]:
    """Write the certificate again from its own figures, and compare every entry."""
    what = "words and tables follow from the figures"
    try:
        again = dict(leaves(restate(certificate).as_dict()))
    except PFFLError as error:
        yield Check(what, "yes", "no", False, str(error))
        return
    stated = dict(leaves(certificate.as_dict()))
    wrong = [p for p in {**stated, **again} if stated.get(p) != again.get(p)]
    if not wrong:
        yield Check(what, "yes", "yes", True)
    for path in wrong[:MOST]:
        where = _place(certificate, path)
        yield Check(f"text: {where}", stated.get(path), again.get(path), False)
    if len(wrong) > MOST:
        yield Check("text: further entries", len(wrong) - MOST, 0, False)


def _place(certificate: Certificate, path: str) -> str:
    """Name an entry of a certificate for a reader."""
    if not path.startswith("statements["):
        return path
    number, _, rest = path.removeprefix("statements[").partition("].")
    return f"statement '{certificate.statements[int(number)].kind}', {rest}"
