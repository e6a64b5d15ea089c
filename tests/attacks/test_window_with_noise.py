"""The window attack on releases with noise: counts are read no better than chance.

A server that chooses w makes the logistic loss a step at one value of an input: then
the gradient's constant counts who is above it, and differences of neighbouring steps
count the people of one value. Without noise that reads every count (docs/attacks.md).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pffl.constraints.base import Cells
from pffl.data.schema import Attribute, Schema
from pffl.models import LogisticRegression
from pffl.models.base import Inputs
from pffl.privacy.accounting import mu_of
from pffl.privacy.discrete import seeded_source
from pffl.questions import Noised, Task, View
from pffl.questions.noised import Adding

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
    schema = Schema(("age",), (Attribute("sex", ("f", "m")),), ("no", "yes"))
    model = LogisticRegression(input_bound=60.0).bind(
        schema, Inputs(np.full(1, 57.0), np.ones(1))
    )
    task = Task(model, Cells.none(schema), np.ones(1))
    X = model.inputs.apply(age[:, None])
    view = View(0, X, (atom % 2).astype(float), atom)
    adding = Adding(seeded_source("window", noise))
    steps = []
    for at in np.append(AGES, 97) - 0.5:
        w = np.array([SHARP, -SHARP * (at - 57.0)])
        only = np.array([0.0, 0, 0, noise, 0, 0])
        question = Noised(task, w, only, sets=np.eye(4), adding=adding)
        total = question.answer(view)
        if noise > 0.01:
            total = replace(question, adding=adding).pooled(total, [view])
        # Σ(p − y): those above the step, less those with y = 1.
        steps.append(question.real(total, "gradients")[:, 1])
    found = -np.diff(np.array(steps), axis=0)
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
