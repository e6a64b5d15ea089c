"""The gate that every answer of a site passes before it counts."""

from pffl.admission.gate import Gate as Gate
from pffl.admission.gate import Verdict as Verdict
from pffl.admission.gate import missing_cells as missing_cells
from pffl.admission.policy import Policy as Policy
from pffl.admission.policy import Refused as Refused
