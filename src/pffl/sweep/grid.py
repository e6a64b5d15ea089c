"""Which points a sweep visits: notion × bound × multiplier bound."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pffl.constraints.base import Constraint
from pffl.constraints.conditional import ConditionalBoundedGroupLoss
from pffl.constraints.group_loss import BoundedGroupLoss
from pffl.constraints.per_silo import PerSilo
from pffl.errors import UsageError

NOTIONS: dict[str, Callable[[float], Constraint]] = {
    "bgl": BoundedGroupLoss,
    "cbgl": ConditionalBoundedGroupLoss,
    "cbgl-y1": lambda bound: ConditionalBoundedGroupLoss(bound, labels=(1,)),
    "cbgl-y0": lambda bound: ConditionalBoundedGroupLoss(bound, labels=(0,)),
    "per-silo": PerSilo,
}

PAPER_MULTIPLIER_BOUNDS = (0.1, 0.5, 1.0, 5.0, 10.0, 100.0, 200.0, 500.0)
PAPER_BOUNDS: dict[str, dict[str, tuple[float, ...]]] = {
    "compas": {
        "bgl": (0.0, 0.1, 0.3, 0.5, 0.7),
        "cbgl-y1": (0.0, 0.1, 0.3, 0.5, 0.7),
        "cbgl-y0": (0.0, 0.1, 0.3, 0.5),
    },
    "acs": {
        "bgl": (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
        "cbgl-y1": (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
        "cbgl-y0": (0.0, 0.1, 0.3, 0.5, 0.7),
    },
    "celeba": {
        "bgl": (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
        "cbgl-y1": (0.0, 0.05, 0.1, 0.2, 0.3, 0.5),
        "cbgl-y0": (0.0, 0.05, 0.1, 0.15, 0.2),
    },
}


@dataclass(frozen=True)
class GridPoint:
    """One configuration."""

    notion: str
    bound: float
    multiplier_bound: float

    def __post_init__(self) -> None:
        if self.notion not in NOTIONS:
            raise UsageError(f"no notion '{self.notion}': there are {sorted(NOTIONS)}")
        if not (np.isfinite(self.bound) and self.bound >= 0):
            raise UsageError(f"a bound must be ≥ 0. Got {self.bound!r} instead.")
        if not (np.isfinite(self.multiplier_bound) and self.multiplier_bound > 0):
            raise UsageError(
                "a multiplier bound must be > 0. "
                f"Got {self.multiplier_bound!r} instead."
            )

    @property
    def constraint(self) -> Constraint:
        """The constraint of this point."""
        return NOTIONS[self.notion](self.bound)


def paper_grid(data: str, notions: Sequence[str] | None = None) -> list[GridPoint]:
    """Return the hyper-parameter grid of the paper for one of its data sets."""
    if data not in PAPER_BOUNDS:
        raise UsageError(
            f"the paper has no grid for '{data}': it has {sorted(PAPER_BOUNDS)}; give "
            "--bounds and --multiplier-bounds"
        )
    bounds = PAPER_BOUNDS[data]
    return [
        point
        for notion in (notions or tuple(bounds))
        for point in full_grid(
            [notion], bounds.get(notion, bounds["bgl"]), PAPER_MULTIPLIER_BOUNDS
        )
    ]


def full_grid(
    notions: Sequence[str],
    bounds: Sequence[float],
    multiplier_bounds: Sequence[float],
) -> list[GridPoint]:
    """Return every combination."""
    combinations = itertools.product(notions, bounds, multiplier_bounds)
    return [GridPoint(*combination) for combination in combinations]


def random_grid(
    notions: Sequence[str],
    bounds: tuple[float, float],
    multiplier_bounds: tuple[float, float],
    *,
    number: int,
    seed: int,
) -> list[GridPoint]:
    """Draw points: bounds evenly, multiplier bounds evenly in their logarithm."""
    rng = np.random.default_rng(seed)
    low, high = np.log(multiplier_bounds)
    return [
        GridPoint(
            str(rng.choice(list(notions))),
            float(rng.uniform(*bounds)),
            float(np.exp(rng.uniform(low, high))),
        )
        for _ in range(number)
    ]
