"""`verify`: every number of a certificate once more, from the model and rows alone.

The sums, losses and bounds are written here a second time, in plain NumPy over all
rows at once; lower bounds are tried by an independent minimisation. Nobody has to
trust the code, or the person, that made the certificate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from pffl.certificates import Certificate, Statement
from pffl.certify import basis_of, model_fingerprint, restate
from pffl.certify.basis import COUNTS, Basis, Sample
from pffl.data.federation import Federation
from pffl.errors import ArtefactError
from pffl.models.base import Model
from pffl.typing import FloatArray
from pffl.verify import claims, unseen
from pffl.verify.check import EXACT, SUMS, leaves, same, same_list
from pffl.verify.check import Check as Check
from pffl.verify.plain import KNOWN, Plain


class ModelRecord(Protocol):
    """A saved model: a run record, or a model file."""

    @property
    def model(self) -> Model:
        """The model, bound to its schema and scaling."""

    @property
    def w(self) -> FloatArray:
        """Parameters."""

    @property
    def multipliers(self) -> FloatArray:
        """λ of each cell."""


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
        `multiplier_bound`, `radius`, `loss_bound`, `weighting`, and `bounds`, a
        mapping from cell to number.
    """
    basis = basis_of(certificate)
    out = list(_fingerprints(certificate, record, federation))
    out += _declared(basis, record, declared or {})
    try:
        plain = {
            name: Plain.of(record.model, federation, basis, sample.splits)
            for name, sample in basis.samples.items()
        }
        out += _facts(basis, record, federation)
        for name, rows in plain.items():
            out += _sums(
                basis, name, rows.sums(record.w, basis, rows_splits(basis, name))
            )
        out += _claims(certificate, basis, record, plain)
    except ArtefactError as error:
        out.append(Check("rows of the cells", "as stated", None, False, str(error)))
    out += _words(certificate)
    return out


def rows_splits(basis: Basis, name: str) -> Sequence[str]:
    """Return the splits of a sample."""
    return basis.samples[name].splits
