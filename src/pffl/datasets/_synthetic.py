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
from numpy.typing import NDArray

from pffl.data import Attribute, Federation, Rows, Schema
from pffl.data.checks import check_choice, check_whole
from pffl.data.partition import fill_empty, silo_names
from pffl.errors import Problems, UsageError, wrong
from pffl.numerics import sigmoid
from pffl.typing import FloatArray, IntArray

SIGNAL = 2.0
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
    group_sizes: Sequence[float] | None = None,
    group_conflict: float = 0.5,
    label_noise: float = 0.05,
    heterogeneity: float = 0.5,
    features: int = 10,
    task: Literal["classification", "regression"] = "classification",
    classes: int = 2,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    random_state: int = 0,
    split_seed: int | None = None,
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
        names of their values; every combination of values is then a group.
    group_sizes
        Share of each group, in the order of `Schema.groups`. Default: each group has
        half the people of the one before.
    group_conflict
        How far the weights w_a of different groups point apart: 0 one model suits all,
        1 they have nothing in common.
    label_noise
        Share of labels replaced at random, in all groups equally (standard deviation of
        the noise for a regression).
    heterogeneity
        How silos differ in size, group mix and inputs; 0: not at all, equal sizes.
    features
        Number of input columns.
    task, classes
        What is predicted.
    test_fraction, validation_fraction
        Share of each silo's rows kept for testing and validation.
    random_state, split_seed
        The same seed, the same rows and silos; by default also the same split.
    """
    attributes = tuple(
        Attribute(str(name), _values(values))
        for name, values in (
            groups if isinstance(groups, Mapping) else {"group": groups}
        ).items()
    )
    total = int(np.prod([len(attribute.values) for attribute in attributes]))
    sizes = np.array(0.5 ** np.arange(total) if group_sizes is None else group_sizes)
    shares = {
        "group_conflict": (group_conflict, 1.0),
        "label_noise": (label_noise, 1.0),
        "heterogeneity": (heterogeneity, 1e6),
    }
    with Problems("synthetic", UsageError) as problems:
        check_whole(problems, rows=rows, silos=silos, features=features)
        check_whole(problems, least=2, classes=classes)
        check_choice(problems, "task", task, ("classification", "regression"))
        for name, (value, most) in shares.items():
            if not 0 <= value <= most:
                problems.add(wrong(name, "synthetic", f"in [0, {most:g}]", value))
        if sizes.shape != (total,) or not (np.isfinite(sizes) & (sizes > 0)).all():
            wanted = f"{total} positive numbers, one per group"
            problems.add(wrong("group_sizes", "synthetic", wanted, group_sizes))
        if rows < silos:
            problems.add(f"[too-few-rows] {rows} rows are too few for {silos} silos")
    generator = np.random.default_rng(random_state)
    outputs = classes if task == "classification" else 0
    shape = (features, outputs if outputs > 2 else 1)
    weights = _draw_weights(generator, total, shape, group_conflict)
    scale = SIGNAL * (1 - np.linspace(0, 0.5, total))  # of the signal, by group
    shift = heterogeneity * generator.standard_normal((silos, features)) / 2
    mix = _draw_mix(generator, sizes / sizes.sum(), silos, heterogeneity)
    silo = _draw_silos(generator, rows, silos, heterogeneity)
    drawn = generator.random(rows)[:, None] >= mix[silo, :-1]
    group = fill_empty(drawn.sum(axis=1), total)
    z = generator.standard_normal((rows, features), dtype=np.float32)
    z += shift.astype(np.float32)[silo]
    X, z = _to_units(z)
    scores = np.einsum("ij,ijc->ic", z, weights[group]) * scale[group, None]
    y = _draw_labels(generator, scores, outputs, label_noise)
    kinds = list(KINDS)
    names = tuple(f"{kinds[j % 3]} {j // 3 + 1}" for j in range(features))
    labels = tuple(f"class {c}" for c in range(outputs))
    return Federation.from_rows(
        Schema(names, attributes, labels, "synthetic label"),
        Rows(X.astype(np.float64), y, group),
        silo,
        silo_names(silos),
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        name=f"synthetic ({rows:,} rows, {silos:,} silos, {total} groups)",
        synthetic=True,
        random_state=random_state if split_seed is None else split_seed,
        notes=(
            f"synthetic: generated with seed {random_state}, "
            "no real person is described",
        ),
    )


def _values(values: int | Sequence[str]) -> tuple[str, ...]:
    """Names of an attribute's values: A, B, …, AA, AB, … ZZ where a number is given."""
    if not isinstance(values, int):
        return tuple(values)
    if values < 1:
        raise UsageError(f"'groups' must be at least 1. Got {values} instead.")
    single = list(ascii_uppercase)
    return tuple([*single, *(a + b for a in single for b in single)][:values])


def _to_units(
    z: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Turn standard numbers into ages, flags and counts, and standardise those."""
    turns = [list(KINDS.values())[j % len(KINDS)] for j in range(z.shape[1])]
    factor, offset, low, high, centre, spread = np.array(turns, dtype=np.float32).T
    units = np.clip(np.floor(z * factor + offset), low, high)
    return units, (units - centre) / spread


def _draw_labels(
    generator: np.random.Generator, scores: FloatArray, classes: int, noise: float
) -> FloatArray:
    """Labels from scores, (rows, outputs), or numbers where there are no classes."""
    rows = len(scores)
    if classes == 0:
        return np.asarray(scores[:, 0] + noise * generator.standard_normal(rows))
    if classes == 2:
        label = generator.random(rows) < sigmoid(scores[:, 0])
    else:
        # The largest of score + Gumbel noise is a draw from the softmax.
        label = (scores + generator.gumbel(size=scores.shape)).argmax(axis=1)
    codes = label.astype(np.float64)
    noisy = generator.random(rows) < noise
    codes[noisy] = generator.integers(classes, size=int(noisy.sum()))
    return codes


def _draw_weights(
    generator: np.random.Generator,
    groups: int,
    shape: tuple[int, int],
    conflict: float,
) -> FloatArray:
    """Unit weights: a common direction, turned group by group by up to 90°."""
    drawn = generator.standard_normal((groups + 1, *shape))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    angle = 0.5 * np.pi * conflict * np.arange(groups) / max(1, groups - 1)
    angle = angle[:, None, None]
    turned = np.cos(angle) * drawn[0] + np.sin(angle) * drawn[1:]
    return np.asarray(turned / np.linalg.norm(turned, axis=1, keepdims=True))


def _draw_mix(
    generator: np.random.Generator, sizes: FloatArray, silos: int, heterogeneity: float
) -> FloatArray:
    """Cumulative group shares of each silo, scattered around the given ones."""
    if heterogeneity == 0:
        shares = np.tile(sizes, (silos, 1))
    else:
        draws = generator.gamma(sizes * 10 / heterogeneity**2, size=(silos, len(sizes)))
        draws += 1e-300
        shares = draws / draws.sum(axis=1, keepdims=True)
    return np.cumsum(shares, axis=1)


def _draw_silos(
    generator: np.random.Generator, rows: int, silos: int, heterogeneity: float
) -> IntArray:
    """Silo of each row, in order; sizes log-normal, each silo at least one row."""
    share = np.exp(heterogeneity * generator.standard_normal(silos))
    cuts = np.rint(np.cumsum(share / share.sum()) * (rows - silos)).astype(np.int64)
    sizes = 1 + np.diff(cuts, prepend=0)
    return np.repeat(np.arange(silos), sizes)
