"""Models from elsewhere: by their coefficients, or by their probabilities alone."""

from pffl.foreign.auditing import Audit, Audited, audit
from pffl.foreign.coefficients import Coefficients, read_coefficients
from pffl.foreign.probabilities import with_probabilities
from pffl.models.external import Probabilities

__all__ = [
    "Audit",
    "Audited",
    "Coefficients",
    "Probabilities",
    "audit",
    "read_coefficients",
    "with_probabilities",
]
