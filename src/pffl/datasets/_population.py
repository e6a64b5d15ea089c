"""The population that synthetic rows are drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pffl.data.partition import fill_empty
from pffl.data.silo import Rows
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
