"""Certificates: what can be promised about a model, proved from sums of the silos.

Pure mathematics, one module per question (`gap`, `empirical`, `infeasible`,
`holdout`, `rates`, `uniform`, `plan`); `wording` turns numbers into statements, and a
`Certificate` holds them. Nothing here asks a silo or reads a file.
"""

from __future__ import annotations

from pffl.certificates.interval import Interval
from pffl.certificates.statement import Assumption, Certificate, Statement, Verdict
from pffl.certificates.verdict import CellLosses, judge

__all__ = [
    "Assumption",
    "CellLosses",
    "Certificate",
    "Interval",
    "Statement",
    "Verdict",
    "judge",
]
