"""The window attack on releases with noise: counts are read no better than chance.

A server that chooses w makes the logistic loss a step at one value of an input: then
the gradient's constant counts who is above it, and differences of neighbouring steps
count the people of one value. Without noise that reads every count (SECURITY.md).
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.oracles import mu_of, noisy_gradients

AGES = np.arange(18, 97)
SHARP = 1e4


@pytest.fixture(scope="module")
def people():
    random = np.random.default_rng(0)
    age = np.clip(random.gamma(4, 5, 2000) + 18, 18, 96).round()
    return age, random.integers(0, 4, 2000)


def read(people, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Attack; return the counts per age and atom as read, and as they are."""
    age, atom = people
    ends = np.append(AGES, 97) - 0.5
    steps = np.array([[SHARP, -SHARP * (at - 57.0)] for at in ends])
    sums = noisy_gradients(age[:, None], atom, steps, noise, center=57.0, longest=60.0)
    # Σ(p − y): those above the step, less those with y = 1.
    found = -np.diff(sums[:, :, 1], axis=0)
    true = np.array(
        [[((age == a) & (atom == k)).sum() for k in range(4)] for a in AGES]
    )
    return found, true


def test_without_noise_every_count_is_read(people):
    found, true = read(people, 2.0**-8)
    assert np.array_equal(np.rint(found).astype(int), true)


@pytest.mark.parametrize("epsilon", [8.0, 2.0])
def test_with_a_budget_small_counts_are_read_no_better_than_chance(people, epsilon):
    noise = math.sqrt(len(AGES) + 1) / mu_of(epsilon, 1e-6)
    found, true = read(people, noise)
    small = (true >= 1) & (true <= 9)
    hits, many = int((np.rint(found) == true)[small].sum()), int(small.sum())
    assert many > 80
    chance = 0.05  # what guessing one of some twenty values gets, and more
    assert hits <= many * chance + 3 * math.sqrt(many * chance)
    error = float(np.sqrt(np.mean((found - true)[small] ** 2)))
    assert error > 20  # people: more than there are to be counted
