"""Generated rows in the shape of census data, for examples, tests and measurements.

Everything that makes fairness over silos hard has its own knob: how many people a group
has, how noisy their labels are (no model can help that), how far the best model of one
group is from the best model of another (a fair model can), and how silos differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pffl.data.checks import check_choice, check_shares, check_whole
from pffl.data.federation import Federation
from pffl.data.partition import fill_empty, silo_names
from pffl.data.schema import Attribute, Schema
from pffl.data.silo import Rows
from pffl.errors import Problems, UsageError
from pffl.numerics import sigmoid
from pffl.typing import FloatArray, IntArray

BLOCK = 1 << 15
SIGNAL = 2.0
KINDS = ("number", "flag", "count")
# Of each kind: factor, offset, smallest and largest value, centre and spread.
_UNITS = (
    (15.0, 40.5, 0.0, 99.0, 40.0, 15.0),
    (1.0, 0.5, 0.0, 1.0, 0.3, 0.5),
    (2.0, 1.0, 0.0, 9.0, 1.0, 1.5),
)


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
    split_seed: int | None = None,
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
    seed, split_seed
        The same seed, the same rows and silos; by default also the same split.
    """
    attributes = _attributes(groups)
    total = int(np.prod([len(attribute.values) for attribute in attributes]))
    sizes = _per_group(group_sizes, 0.5 ** np.arange(total))
    hardness = _per_group(group_hardness, np.linspace(0, 0.5, total))
    with Problems("synthetic", UsageError) as problems:
        check_whole(problems, rows=rows, silos=silos, features=features)
        if sizes.shape != (total,) or not (np.isfinite(sizes) & (sizes > 0)).all():
            problems.add(
                f"[wrong-value] 'group_sizes' must be {total} positive numbers, one "
                "per group"
            )
        if hardness.shape != (total,) or not ((hardness >= 0) & (hardness <= 1)).all():
            problems.add(
                f"[wrong-value] 'group_hardness' must be {total} numbers in [0, 1]"
            )
        check_shares(problems, group_conflict=group_conflict, label_noise=label_noise)
        if not (np.isfinite(heterogeneity) and heterogeneity >= 0):
            problems.add(
                f"[wrong-value] 'heterogeneity' must be ≥ 0. Got {heterogeneity} "
                "instead."
            )
        check_choice(problems, "task", task, ("classification", "regression"))
        if classes < 2:
            problems.add(
                f"[wrong-value] 'classes' must be at least 2. Got {classes} instead."
            )
        if rows < silos:
            problems.add(f"[too-few-rows] {rows} rows are too few for {silos} silos")
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
    names = tuple(f"{KINDS[j % 3]} {j // 3 + 1}" for j in range(features))
    schema = Schema(names, attributes, labels, "synthetic label")
    return Federation.from_rows(
        schema,
        drawn,
        silo,
        silo_names(silos),
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        name=f"synthetic ({rows:,} rows, {silos:,} silos, {total} groups)",
        synthetic=True,
        seed=seed if split_seed is None else split_seed,
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


def _per_group(
    given: Sequence[float] | None, default: NDArray[np.floating]
) -> FloatArray:
    return np.asarray(default if given is None else given, dtype=np.float64)


@dataclass(frozen=True)
class World:
    """What the rows are drawn from: weights per group, shifts and mixes per silo."""

    weights: FloatArray  # (groups, features, outputs)
    scale: FloatArray  # (groups,): how much of the signal survives
    shift: FloatArray  # (silos, features)
    mix: FloatArray  # (silos, groups): cumulative shares
    classes: int
    label_noise: float


def draw_rows(
    generator: np.random.Generator,
    world: World,
    silo: IntArray,
    dtype: np.dtype[np.floating],
) -> Rows:
    """Draw block by block: the largest scratch array has `BLOCK` rows."""
    rows, features = len(silo), world.shift.shape[1]
    inputs = np.empty((rows, features), dtype=dtype)
    y = np.empty(rows)
    group = _draw_groups(generator, world, silo)
    shift = world.shift.astype(np.float32)
    for start in range(0, rows, BLOCK):
        part = slice(start, min(start + BLOCK, rows))
        z = generator.standard_normal((part.stop - start, features), dtype=np.float32)
        z += shift[silo[part]]
        _to_units(z, inputs[part])
        y[part] = _draw_labels(generator, world, z, group[part])
    return Rows(inputs, y, group)


def _to_units(z: NDArray[np.float32], out: NDArray[np.floating]) -> None:
    """Turn standard numbers into ages, flags and counts, and `z` into what they say."""
    turns = [_UNITS[j % len(KINDS)] for j in range(z.shape[1])]
    factor, offset, low, high, centre, spread = np.array(turns, dtype=np.float32).T
    z *= factor
    z += offset
    np.floor(z, out=z)
    np.clip(z, low, high, out=z)
    out[:] = z
    z -= centre
    z /= spread


def _draw_groups(
    generator: np.random.Generator, world: World, silo: IntArray
) -> IntArray:
    """Group of each row from its silo's mix; each group has at least one member."""
    group = np.empty(len(silo), dtype=np.int64)
    for start in range(0, len(silo), BLOCK):
        part = slice(start, min(start + BLOCK, len(silo)))
        u = generator.random(part.stop - start)
        group[part] = (u[:, None] >= world.mix[silo[part], :-1]).sum(axis=1)
    return fill_empty(group, world.mix.shape[1])


def _draw_labels(
    generator: np.random.Generator,
    world: World,
    z: NDArray[np.float32],
    group: IntArray,
) -> FloatArray:
    scores: FloatArray = np.einsum("ij,ijc->ic", z, world.weights[group])
    scores *= world.scale[group, None]
    if world.classes == 0:
        noise = generator.standard_normal(len(z))
        return np.asarray(scores[:, 0] + world.label_noise * noise)
    if world.classes == 2:
        label = generator.random(len(z)) < sigmoid(scores[:, 0])
    else:
        # The largest of score + Gumbel noise is a draw from the softmax.
        label = (scores + generator.gumbel(size=scores.shape)).argmax(axis=1)
    codes = label.astype(np.float64)
    noisy = generator.random(len(z)) < world.label_noise
    codes[noisy] = generator.integers(world.classes, size=int(noisy.sum()))
    return codes


def draw_weights(
    generator: np.random.Generator,
    groups: int,
    features: int,
    classes: int,
    conflict: float,
) -> FloatArray:
    """Unit weights: a common direction, turned group by group by up to 90°."""
    shape = (features, classes if classes > 2 else 1)
    common = _unit(generator.standard_normal(shape))
    own = np.stack([_unit(generator.standard_normal(shape)) for _ in range(groups)])
    angle = 0.5 * np.pi * conflict * np.arange(groups) / max(1, groups - 1)
    turned = np.cos(angle)[:, None, None] * common + np.sin(angle)[:, None, None] * own
    return np.asarray(turned / np.linalg.norm(turned, axis=1, keepdims=True))


def _unit(v: FloatArray) -> FloatArray:
    return np.asarray(v / np.linalg.norm(v, axis=0, keepdims=True))


def draw_mix(
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


def draw_silos(
    generator: np.random.Generator, rows: int, silos: int, heterogeneity: float
) -> IntArray:
    """Silo of each row, in order; sizes log-normal, each silo at least one row."""
    share = np.exp(heterogeneity * generator.standard_normal(silos))
    cuts = np.rint(np.cumsum(share / share.sum()) * (rows - silos)).astype(np.int64)
    sizes = 1 + np.diff(cuts, prepend=0)
    return np.repeat(np.arange(silos), sizes)
