"""The methods of a comparison: how each is built, and what may be tuned.

All get the same number of gradients per silo, `budget`: methods with local steps take
them in rounds of J, the others one a round. Each has a small grid; a tuned comparison
tries the same number of its points for every method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from pffl.errors import UsageError
from pffl.methods import METHODS
from pffl.methods.base import Grid, Method

DEFAULT_BUDGET = 1500

Parameters = Mapping[str, float | int | str]


@dataclass(frozen=True)
class Candidate:
    """A method in a comparison.

    Attributes
    ----------
    name
        Its name in `METHODS`.
    grid
        Values to try when tuning, the first of each is the default.
    """

    name: str
    grid: Grid

    def build(self, budget: int, chosen: Parameters) -> Method[Any]:
        """Return the method, with as many rounds as the budget of gradients allows."""
        kind = METHODS[self.name]
        known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
        return kind.within(budget, **{k: v for k, v in chosen.items() if k in known})

    def trials(self, number: int, seed: int) -> list[Parameters]:
        """Return so many points of the grid: the default, then drawn without repeat."""
        names = list(self.grid)
        shape = tuple(len(self.grid[name]) for name in names)
        total = int(np.prod(shape))
        order = 1 + np.random.default_rng(seed).permutation(total - 1)
        picked = [0, *order[: number - 1].tolist()]
        return [
            {
                name: self.grid[name][int(i)]
                for name, i in zip(names, np.unravel_index(flat, shape), strict=True)
            }
            for flat in picked
        ]


def chosen_candidates(names: tuple[str, ...] | None) -> list[Candidate]:
    """Return the candidates asked for, FedAvg first; all that exist if None."""
    names = tuple(METHODS) if names is None else names
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise UsageError(f"no methods {unknown}: there are {sorted(METHODS)}")
    return [Candidate(name, METHODS[name].grid) for name in names]
