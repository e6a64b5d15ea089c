"""Experiments: trials, grids of them, and paired statistics."""

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

__all__ = [
    "Decision",
    "Interval",
    "Judgement",
    "choose",
    "chosen_front",
    "holm",
    "hypervolume",
    "judge",
    "overlap",
    "people",
]
