"""λ where somebody else trains: the step, and what has settled."""

from __future__ import annotations

import numpy as np
import pytest

from pffl.external import have_settled
from tests.inside import Ascent


def projected(v, bound):
    """The nearest λ ≥ 0 with Σλ ≤ B, by halving what is taken off all of them."""
    if np.maximum(v, 0).sum() <= bound:
        return np.maximum(v, 0)
    low, high = 0.0, v.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.maximum(v - middle, 0).sum() > bound else (low, middle)
        )
    return np.maximum(v - low, 0)


def plain(rows, bound):
    """λ after each round, as the module's docstring has it, round by round."""
    lam, out, squares, pace, worst = np.zeros(rows.shape[1]), [], 0.0, 1.0, None
    for r in rows:
        counts = (r > 0) | (lam > 0)
        r = np.where(counts, r + 0.02, r)
        squares += max(np.abs(r[counts]), default=0.0) ** 2
        if worst is not None and r.argmax() != worst and r.max() > 0:
            pace = max(0.1, pace / 2)
        worst = r.argmax()
        eta = 0.8 * np.sqrt((1 + lam.sum()) / (0.25**2 + squares))
        lam = projected(lam + pace * eta * r, bound)
        out.append(lam)
    return np.array(out)


@pytest.mark.parametrize("smooth", [0.0, 0.5, 0.95])
def test_the_step_is_that_of_a_plain_loop(smooth):
    draw = np.random.default_rng(3)
    rows = [draw.normal(size=3)]
    for _ in range(25):
        rows.append(smooth * rows[-1] + 0.1 * draw.normal(size=3))
    rows, at, found = np.array(rows), Ascent(np.zeros(3), 7.0), []
    for r in rows:
        at = at.after(r)
        found.append(at.multipliers)
    np.testing.assert_allclose(found, plain(rows, 7.0), rtol=1e-9, atol=1e-12)


def test_a_fixed_step_is_taken_and_a_cell_that_nobody_told_of_stays():
    at = Ascent(np.array([0.5, 0.25]), 2.0, step_size=3.0)
    at = at.after(np.array([0.1, np.nan]))
    np.testing.assert_allclose(at.multipliers, [0.5 + 3.0 * 0.12, 0.25])


def settling(losses, shares=0.01):
    """Whether losses settled; the group's part of all weight has this deviation."""
    x = np.asarray(losses, float)[:, None]
    part = shares * (-1.0) ** np.arange(len(x))[:, None]
    found = have_settled(x, part - part.mean(axis=0))
    return found, found and x.std() > 0.05


NOISE = np.random.default_rng(0).normal(size=15)


@pytest.mark.parametrize(
    ("found", "settled", "noisy"),
    [
        (settling(0.02 * NOISE), True, False),
        (settling(0.1 * NOISE), True, True),
        (settling(0.25 * NOISE), False, False),  # the best round would be luck
        (settling([0.5, 0.7, 0.5, 0.7, 0.5]), False, False),  # too few to tell
        (settling(0.1 * NOISE, shares=0.052), False, False),  # λ swings with it
        (settling(0.3 * (-1.0) ** np.arange(8), shares=0.4), False, False),
        (settling(np.linspace(0.7, 0.4, 12)), False, False),  # it still falls
        (settling(0.2 * np.sin(np.arange(15) * 2 * np.pi / 14)), False, False),
        (settling([0.5, np.nan, 0.5, 0.5, 0.5, 0.5, 0.5]), False, False),
        (settling([0.5]), False, False),
    ],
)
def test_noise_of_the_training_has_settled_and_drift_waves_and_swings_have_not(
    found, settled, noisy
):
    assert found == (settled, noisy)
