"""Generated rows in the shape of census data, for examples, tests and measurements.

Everything that makes fairness over silos hard has its own knob: how many people a group
has, how noisy their labels are (no model can help that), how far the best model of one
group is from the best model of another (a fair model can), and how silos differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Literal

import numpy as np

from pffl.data import Attribute, Federation, Rows, Schema
from pffl.data.checks import check_choice, check_whole
from pffl.data.partition import fill_empty, silo_names
from pffl.errors import Problems, UsageError, wrong
from pffl.numerics import sigmoid

SIGNAL = 2.0
NOISE = 0.05  # share of labels that are drawn anew; deviation of numbers
MOST_SPREAD = 1e6
# Of each kind: factor, offset, smallest and largest value, centre and spread.
KINDS = {
    "number": (15.0, 40.5, 0.0, 99.0, 40.0, 15.0),
    "flag": (1.0, 0.5, 0.0, 1.0, 0.3, 0.5),
    "count": (2.0, 1.0, 0.0, 9.0, 1.0, 1.5),
}


def synthetic(
    rows: int = 20_000,
    *,
    silos: int = 10,
    groups: int | Sequence[str] | Mapping[str, int | Sequence[str]] = 3,
    group_conflict: float = 0.5,
    heterogeneity: float = 0.5,
    features: int = 10,
    task: Literal["classification", "regression"] = "classification",
    classes: int = 2,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    random_state: int = 0,
) -> Federation:
    """Generate a federation; its name, and every result on it, says "synthetic".

    Columns take turns between numbers (in raw units, mean 40 and deviation 15, as an
    age), flags (0 or 1) and small counts. With z the standardised inputs, group a draws
    its label from the score  2·(1 − h_a)·zᵀw_a, where h_a grows from 0 for the first
    group to 0.5 for the last: labels of later groups are noisier.

    Parameters
    ----------
    rows
        Number of people, over all silos and splits.
    silos
        Number of silos.
    groups
        Number of groups, or their names, or several attributes with the number or the
        names of their values; every combination of values is then a group. Each group
        has half the people of the one before.
    group_conflict
        How far the weights w_a of different groups point apart: 0 one model suits all,
        1 they have nothing in common.
    heterogeneity
        How silos differ in size, group mix and inputs; 0: not at all, equal sizes.
    features
        Number of input columns.
    task, classes
        What is predicted.
    test_fraction, validation_fraction
        Share of each silo's rows kept for testing and validation.
    random_state
        The same seed, the same rows, silos and split.
    """
    named = groups if isinstance(groups, Mapping) else {"group": groups}
    attributes = tuple(Attribute(str(n), _values(v)) for n, v in named.items())
    total = int(np.prod([len(attribute.values) for attribute in attributes]))
    sizes = 0.5 ** np.arange(total)
    outputs = classes if task == "classification" else 0
    with Problems("synthetic", UsageError) as problems:
        check_whole(problems, rows=rows, silos=silos, features=features)
        check_whole(problems, least=2, classes=classes)
        check_choice(problems, "task", task, ("classification", "regression"))
        if not 0 <= group_conflict <= 1:
            told = wrong("group_conflict", "synthetic", "in [0, 1]", group_conflict)
            problems.add(told)
        if not 0 <= heterogeneity <= MOST_SPREAD:
            told = f"in [0, {MOST_SPREAD:g}]"
            problems.add(wrong("heterogeneity", "synthetic", told, heterogeneity))
        if rows < silos:
            problems.add("too-few-rows:synthetic", rows=rows, silos=silos)
    rng, spread = np.random.default_rng(random_state), heterogeneity

    # Unit weights of each group: a common direction, turned by up to 90°.
    drawn = rng.standard_normal((total + 1, features, outputs if outputs > 2 else 1))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    angle = 0.5 * np.pi * group_conflict * np.arange(total) / max(1, total - 1)
    angle = angle[:, None, None]
    weights = np.cos(angle) * drawn[0] + np.sin(angle) * drawn[1:]
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)

    # Each silo's inputs, group shares and size; a silo has at least one row.
    shift = spread * rng.standard_normal((silos, features)) / 2
    shares = np.tile(sizes / sizes.sum(), (silos, 1))
    if spread > 0:
        shares = rng.gamma(shares * 10 / spread**2) + 1e-300
        shares /= shares.sum(axis=1, keepdims=True)
    share = np.exp(spread * rng.standard_normal(silos))
    cuts = np.rint(np.cumsum(share / share.sum()) * (rows - silos)).astype(np.int64)
    silo = np.repeat(np.arange(silos), 1 + np.diff(cuts, prepend=0))

    # People: group, inputs in units (and standardised), label.
    ends = np.cumsum(shares, axis=1)[silo, :-1]
    group = fill_empty((rng.random(rows)[:, None] >= ends).sum(axis=1), total)
    z = rng.standard_normal((rows, features), dtype=np.float32)
    z += shift.astype(np.float32)[silo]
    kinds = [list(KINDS)[j % len(KINDS)] for j in range(features)]
    units = np.array([KINDS[kind] for kind in kinds], dtype=np.float32).T
    factor, offset, low, high, centre, deviation = units
    X = np.clip(np.floor(z * factor + offset), low, high)
    scale = SIGNAL * (1 - np.linspace(0, 0.5, total))  # of the signal, by group
    z = (X - centre) / deviation
    scores = np.einsum("ij,ijc->ic", z, weights[group]) * scale[group, None]
    if outputs == 0:
        y = scores[:, 0] + NOISE * rng.standard_normal(rows)
    else:
        if outputs == 2:
            label = rng.random(rows) < sigmoid(scores[:, 0])
        else:  # the largest of score + Gumbel noise is a draw from the softmax
            label = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
        y = label.astype(np.float64)
        noisy = rng.random(rows) < NOISE
        y[noisy] = rng.integers(outputs, size=int(noisy.sum()))
    names = tuple(f"{kind} {j // len(KINDS) + 1}" for j, kind in enumerate(kinds))
    labels = tuple(f"class {c}" for c in range(outputs))
    seed = f"synthetic: generated with seed {random_state}, no real person is described"
    return Federation.from_rows(
        Schema(names, attributes, labels, "synthetic label"),
        Rows(X.astype(np.float64), y, group),
        silo,
        silo_names(silos),
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        name=f"synthetic ({rows:,} rows, {silos:,} silos, {total} groups)",
        synthetic=True,
        random_state=random_state,
        notes=(seed,),
    )


def _values(values: int | Sequence[str]) -> tuple[str, ...]:
    """Names of an attribute's values: A, B, …, AA, AB, … ZZ where a number is given."""
    if not isinstance(values, int):
        return tuple(values)
    if values < 1:
        raise UsageError(f"'groups' must be at least 1. Got {values} instead.")
    single = list(ascii_uppercase)
    return tuple([*single, *(a + b for a in single for b in single)][:values])
