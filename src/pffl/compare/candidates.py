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

LOCAL_STEPS = 5
ROUNDS_PER_DUAL = 10
DEFAULT_BUDGET = 1500

Value = float | int | str
Parameters = Mapping[str, Value]


@dataclass(frozen=True)
class Candidate:
    """A method in a comparison.

    Attributes
    ----------
    name
        Its name in `METHODS`.
    fixed
        Parameters that are always set.
    grid
        Values to try when tuning, the first of each is the default.
    """

    name: str
    fixed: Parameters
    grid: Mapping[str, tuple[Value, ...]]

    def build(self, budget: int, chosen: Parameters) -> Any:
        """Return the method, with as many rounds as the budget of gradients allows."""
        kind = METHODS[self.name]
        known = {field.name for field in fields(kind)}
        parameters = {**self.fixed, **chosen}
        steps = int(parameters.get("local_steps", LOCAL_STEPS))
        if "local_steps" in known and self.name not in ONE_STEP:
            parameters["local_steps"] = steps
        else:
            steps = 1
        if "dual_rounds" in known and "rounds_per_dual" in known:
            inner = int(parameters.setdefault("rounds_per_dual", ROUNDS_PER_DUAL))
            parameters["dual_rounds"] = max(1, budget // (steps * inner))
        elif "stage_one_rounds" in known:
            parameters["stage_one_rounds"] = max(1, 2 * budget // 3)
            parameters["stage_two_rounds"] = max(1, budget // 3)
        elif "rounds" in known:
            parameters["rounds"] = max(1, budget // steps)
        return kind(**{k: v for k, v in parameters.items() if k in known})

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


ONE_STEP = ("fedminmax", "afl", "fedfair", "fcfl")
PRICES = (10.0, 1.0, 100.0)

CANDIDATES: dict[str, Candidate] = {
    candidate.name: candidate
    for candidate in (
        Candidate("fedavg", {}, {"server_step_size": (1.0, 0.5, 1.5)}),
        Candidate("group-weighted", {}, {"server_step_size": (1.0, 0.5, 1.5)}),
        Candidate(
            "pffl", {}, {"multiplier_bound": PRICES, "iterate": ("average", "last")}
        ),
        Candidate("exact", {}, {"multiplier_bound": PRICES}),
        Candidate("local-bgl", {}, {"multiplier_bound": PRICES}),
        Candidate("fedminmax", {}, {}),
        Candidate("afl", {}, {}),
        Candidate("qffl", {}, {"q": (1.0, 0.1, 5.0)}),
        Candidate("fedfb", {}, {"alpha": (0.1, 0.05, 0.5, 1.0)}),
        Candidate("fedfair", {}, {}),
        Candidate("fcfl", {}, {}),
        Candidate("fairfed", {}, {}),
        Candidate("fairgrad", {}, {}),
        Candidate("reductions", {}, {"multiplier_bound": PRICES}),
        Candidate("pooled", {}, {}),
    )
}


def chosen_candidates(names: tuple[str, ...] | None) -> list[Candidate]:
    """Return the candidates asked for, FedAvg first; all that exist if None."""
    if names is None:
        return [c for name, c in CANDIDATES.items() if name in METHODS]
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise UsageError(f"no methods {unknown}: there are {sorted(METHODS)}")
    return [CANDIDATES.get(name, Candidate(name, {}, {})) for name in names]
