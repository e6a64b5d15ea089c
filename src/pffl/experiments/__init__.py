"""Experiments: trials, grids of them, and paired statistics."""

from pffl.experiments.comparison import CONSTRAINTS as CONSTRAINTS
from pffl.experiments.comparison import Comparison as Comparison
from pffl.experiments.comparison import compare as compare
from pffl.experiments.comparison import figures as figures
from pffl.experiments.comparison import reproduce as reproduce
from pffl.experiments.statistics import Decision as Decision
from pffl.experiments.statistics import DifferenceInterval as DifferenceInterval
from pffl.experiments.statistics import Judgement as Judgement
from pffl.experiments.statistics import choose as choose
from pffl.experiments.statistics import holm as holm
from pffl.experiments.statistics import judge as judge
from pffl.experiments.statistics import overlap as overlap
from pffl.experiments.statistics import people as people
from pffl.experiments.trial import MEASURES as MEASURES
from pffl.experiments.trial import Draw as Draw
from pffl.experiments.trial import Trial as Trial
from pffl.experiments.trial import TrialRecord as TrialRecord
from pffl.experiments.trial import few_people as few_people
from pffl.experiments.trial import measures as measures
