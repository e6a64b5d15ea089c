"""Generated rows in the shape of census data, for examples, tests and measurements.

Everything that makes fairness over silos hard has its own knob: how many people a group
has, how noisy their labels are (no model can help that), how far the best model of one
group is from the best model of another (a fair model can), and how silos differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pffl.data.federation import Federation
from pffl.data.partition import silo_names
from pffl.data.schema import Attribute, Schema
from pffl.datasets._population import (
    KINDS,
    SIGNAL,
    World,
    draw_mix,
    draw_rows,
    draw_silos,
    draw_weights,
)
from pffl.errors import Problems, UsageError
from pffl.typing import FloatArray


def synthetic(
    rows: int = 20_000,
    *,
    silos: int = 10,
    groups: int | Sequence[str] | Mapping[str, int | Sequence[str]] = 3,
    group_sizes: Sequence[float] | None = None,
    group_hardness: Sequence[float] | None = None,
    group_conflict: float = 0.5,
    label_noise: float = 0.05,
    heterogeneity: float = 0.5,
    features: int = 10,
    task: Literal["classification", "regression"] = "classification",
    classes: int = 2,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    dtype: Literal["float64", "float32"] = "float64",
    seed: int = 0,
) -> Federation:
    """Generate a federation; its name, and every result on it, says "synthetic".

    Columns take turns between numbers (in raw units, mean 40 and deviation 15, as an
    age), flags (0 or 1) and small counts. With z the standardised inputs, group a draws
    its label from the score  2·(1 − h_a)·zᵀw_a.

    Parameters
    ----------
    rows
        Number of people, over all silos and splits.
    silos
        Number of silos.
    groups
        Number of groups, or their names, or several attributes with the number or the
        names of their values; every combination of values is then a group.
    group_sizes
        Share of each group, in the order of `Schema.groups`. Default: each group has
        half the people of the one before.
    group_hardness
        h_a in [0, 1] for each group: 0 clear labels, 1 labels at random. Default: from
        0 for the first (largest) group up to 0.5 for the last.
    group_conflict
        How far the weights w_a of different groups point apart: 0 one model suits all,
        1 they have nothing in common.
    label_noise
        Share of labels replaced at random, in all groups alike (standard deviation of
        the noise for a regression).
    heterogeneity
        How silos differ in size, group mix and inputs; 0: not at all, equal sizes.
    features
        Number of input columns.
    task, classes
        What is predicted.
    test_fraction, validation_fraction
        Share of each silo's rows kept for testing and validation.
    dtype
        Floating type of the inputs.
    seed
        The same seed, the same rows.
    """
    attributes = _attributes(groups)
    total = int(np.prod([len(attribute.values) for attribute in attributes]))
    sizes = _per_group(group_sizes, 0.5 ** np.arange(total))
    hardness = _per_group(group_hardness, np.linspace(0, 0.5, total))
    with Problems("synthetic", UsageError) as problems:
        _check_counts(problems, rows=rows, silos=silos, features=features)
        _check_groups(problems, total, sizes, hardness)
        _check_knobs(problems, group_conflict, label_noise, heterogeneity)
        if task not in ("classification", "regression"):
            problems.add(f"'task' must be classification or regression. Got {task}.")
        if classes < 2:
            problems.add(f"'classes' must be at least 2. Got {classes} instead.")
        if rows < silos:
            problems.add(f"{rows} rows are too few for {silos} silos")
    generator = np.random.default_rng(seed)
    outputs = classes if task == "classification" else 0
    world = World(
        weights=draw_weights(generator, total, features, outputs, group_conflict),
        scale=SIGNAL * (1 - hardness),
        shift=heterogeneity * generator.standard_normal((silos, features)) / 2,
        mix=draw_mix(generator, sizes / sizes.sum(), silos, heterogeneity),
        classes=outputs,
        label_noise=label_noise,
    )
    silo = draw_silos(generator, rows, silos, heterogeneity)
    drawn = draw_rows(generator, world, silo, np.dtype(dtype))
    labels = tuple(f"class {c}" for c in range(outputs))
    schema = Schema(_feature_names(features), attributes, labels, "synthetic label")
    return Federation.from_rows(
        schema,
        drawn,
        silo,
        silo_names(silos),
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        name=f"synthetic ({rows:,} rows, {silos:,} silos, {total} groups)",
        synthetic=True,
        seed=seed,
        notes=(f"synthetic: generated with seed {seed}, no real person is described",),
    )


def _attributes(
    groups: int | Sequence[str] | Mapping[str, int | Sequence[str]],
) -> tuple[Attribute, ...]:
    named = groups if isinstance(groups, Mapping) else {"group": groups}
    attributes = []
    for name, values in named.items():
        if isinstance(values, int):
            if values < 1:
                raise UsageError(f"'groups' must be at least 1. Got {values} instead.")
            letters = (
                "".join(word)
                for length in itertools.count(1)
                for word in itertools.product(ascii_uppercase, repeat=length)
            )
            values = tuple(itertools.islice(letters, values))
        attributes.append(Attribute(str(name), tuple(values)))
    return tuple(attributes)


def _feature_names(features: int) -> tuple[str, ...]:
    return tuple(
        f"{KINDS[j % len(KINDS)]} {j // len(KINDS) + 1}" for j in range(features)
    )


def _per_group(
    given: Sequence[float] | None, default: NDArray[np.floating]
) -> FloatArray:
    return np.asarray(default if given is None else given, dtype=np.float64)


def _check_counts(problems: Problems, **counts: int) -> None:
    for name, value in counts.items():
        if value < 1 or int(value) != value:
            problems.add(f"'{name}' must be a whole number ≥ 1. Got {value} instead.")


def _check_groups(
    problems: Problems, total: int, sizes: FloatArray, hardness: FloatArray
) -> None:
    if sizes.shape != (total,) or not (np.isfinite(sizes) & (sizes > 0)).all():
        problems.add(f"'group_sizes' must be {total} positive numbers, one per group")
    if hardness.shape != (total,) or not ((hardness >= 0) & (hardness <= 1)).all():
        problems.add(f"'group_hardness' must be {total} numbers in [0, 1]")


def _check_knobs(
    problems: Problems, conflict: float, label_noise: float, heterogeneity: float
) -> None:
    for name, value in (("group_conflict", conflict), ("label_noise", label_noise)):
        if not 0 <= value <= 1:
            problems.add(f"'{name}' must be in [0, 1]. Got {value} instead.")
    if not (np.isfinite(heterogeneity) and heterogeneity >= 0):
        problems.add(f"'heterogeneity' must be ≥ 0. Got {heterogeneity} instead.")
