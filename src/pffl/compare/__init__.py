"""Every method on the same footing, in one table."""

from pffl.compare.candidates import DEFAULT_BUDGET as DEFAULT_BUDGET
from pffl.compare.candidates import Candidate as Candidate
from pffl.compare.candidates import chosen_candidates as chosen_candidates
from pffl.compare.comparison import Comparison as Comparison
from pffl.compare.comparison import compare as compare
from pffl.compare.trial import Row as Row
from pffl.compare.trial import Setting as Setting
