"""How a bound was chosen, in words and as a table: pure functions of the record."""

from __future__ import annotations

from pffl.evidence.record import Choice, Evidence, Training, Trial
from pffl.text import decimals, words

EQUAL = 1e-12  # errors this close are equal
HERE = "◀"  # beside the bound that was chosen


def told(choice: Choice, *, numeric: bool) -> str:
    """Say which bound was chosen, by what, and on which rows."""
    free, *others = choice.trials
    taken = next(trial for trial in others if trial.bound == choice.bound)
    error = "a mean loss" if numeric else "an error"
    limit = f"{error} of at most {words(choice.error_at_most)}"
    if not choice.declared:
        more = "1 % more than" if numeric else "a point above"
        limit += f" ({more} the {words(free.error)} without it)"
    within = sum(t.error <= choice.error_at_most + EQUAL for t in others)
    return (
        f"bound = {words(choice.bound, digits=5)} was chosen on {choice.aside:,} of "
        f"the {choice.rows:,} training rows, set aside while the others were trained "
        f"on: {within:,} of {len(others):,} bounds have {limit} there, and this one "
        f"has the smallest worst loss of them, {words(taken.worst)} of "
        f"'{taken.cell}' ({words(free.worst)} of '{free.cell}' without it); no "
        "held-out row was looked at"
    )


def table(e: Evidence) -> list[dict[str, str]]:
    """Return what every bound that was tried did on the rows set aside."""
    choice = e.training.choice if isinstance(e.training, Training) else None
    if choice is None:
        return []
    error = "error" if e.labels else "mean loss"
    return [
        {
            "bound tried": _bound(trial, choice),
            f"{error} aside": decimals(trial.error),
            "worst loss aside": decimals(trial.worst),
            "of": trial.cell,
        }
        for trial in choice.trials
    ]


def _bound(trial: Trial, choice: Choice) -> str:
    if trial.bound is None:
        return "none"
    text = words(trial.bound, digits=5)
    return f"{text} {HERE}" if trial.bound == choice.bound else text
