"""One check over every result before anybody sees it: its conclusions must agree."""

from __future__ import annotations

import numpy as np

from pffl.errors import PFFLError
from pffl.evidence import promise, training, unseen
from pffl.evidence.noise import Noise
from pffl.evidence.record import Evidence, ModelPath, known
from pffl.evidence.verdict import exit_code, judge, verdicts

ROUNDING = 1e-9  # of a figure


class ContradictionError(PFFLError):
    """Two figures of a result contradict each other: a fault of pffl."""

    code = "figures-contradict"


def consistent(e: Evidence, *, own: bool = True) -> Evidence:
    """Return the evidence; refuse it where two conclusions contradict each other.

    `own`: whether `seen` are the rows on which the limits of predictions were chosen.
    """
    if e.stopped is not None or isinstance(e.privacy, Noise):
        return e
    found = [_certified(e), _smallest(e), _ended(e), _limits(e) if own else None]
    if told := [text for text in found if text is not None]:
        raise ContradictionError(
            f"[figures-contradict] nothing is shown: {'; '.join(told)}. This is a "
            "fault of pffl: please report it"
        )
    return e


def _certified(e: Evidence) -> str | None:
    """A certified upper end is never below the mean of the same rows."""
    view = promise.on_calibration(e, e.path) if isinstance(e.path, ModelPath) else e
    sample, ends = unseen.usable(view), unseen.upper(view)
    if sample is None or ends is None:
        return None
    means = e.means(sample)
    if sample.people:  # what is bounded is the mean over people
        count = sample.of_people("count")
        means = sample.of_people("bounded_loss") / np.where(count > 0, count, np.nan)
    for name, mean, end in zip(e.names, means, ends, strict=True):
        if end < mean * (1 - ROUNDING):
            return f"'{name}' has a loss of {mean:g}, certified to be at most {end:g}"
    return None


def _smallest(e: Evidence) -> str | None:
    """No common bound that is met is below the smallest that is possible."""
    least = known(e.proofs.least)
    if least is None or judge(e)[0] != "met" or np.ptp(e.bounds) > 0:
        return None
    low = least.enclosed(training.longest(e))[0].lower
    room = training.tolerance(e.scales, e.bounds).max()
    if low <= e.bounds[0] + room:
        return None
    return f"a bound of {e.bounds[0]:g} is met, and none below {low:g} is possible"


def _ended(e: Evidence) -> str | None:
    """The exit code is 0 where, and only where, nothing that was asked for lacks."""
    said = verdicts(e)
    status, new = said["training"]["verdict"], said["new_people"]["verdict"]
    shown = new == "certified" or not promise.asked(e)
    good = status in ("met", "no bounds") and shown
    if e.trained and good != (exit_code(e) == 0):
        return f"'{status}' and '{new}' end with exit code {exit_code(e)}"
    return None


def _limits(e: Evidence) -> str | None:
    """Limits of predictions change no training verdict, and no mean loss by much."""
    if not e.trained or e.terms.loss_bound is None:
        return None
    bounds = e.bounds if e.promise else np.zeros(len(e.cells))
    allowed = training.tolerance(e.scales, bounds)
    if training.unmoved(e.seen, bounds, allowed, e.model.unit):
        return None
    return f"limits at M = {e.terms.loss_bound:g} change the losses of training rows"
