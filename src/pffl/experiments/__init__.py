"""Experiments: trials, grids of them, and paired statistics."""

from pffl.experiments.comparison import (
    CONSTRAINTS,
    Comparison,
    compare,
    figures,
    reproduce,
    smallest_bound,
)
from pffl.experiments.statistics import (
    Decision,
    Interval,
    Judgement,
    choose,
    chosen_front,
    holm,
    hypervolume,
    judge,
    overlap,
    people,
)
from pffl.experiments.trial import (
    COSTS,
    MEASURES,
    Draw,
    LeftOut,
    Trial,
    TrialRecord,
    measures,
)

__all__ = [
    "CONSTRAINTS",
    "COSTS",
    "MEASURES",
    "Comparison",
    "Decision",
    "Draw",
    "Interval",
    "Judgement",
    "LeftOut",
    "Trial",
    "TrialRecord",
    "choose",
    "chosen_front",
    "compare",
    "figures",
    "holm",
    "hypervolume",
    "judge",
    "measures",
    "overlap",
    "people",
    "reproduce",
    "smallest_bound",
]
