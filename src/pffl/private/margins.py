"""What a budget is worth before anything is released: margins for cells of any size.

How many people a cell has is not looked up, since that would tell of them: the table is
by size, and the reader knows about how large the groups are. A margin is what is added
to a cell's mean loss so that it holds noise and all, on training rows; the smallest ε
is the one at which so much room below the bound would be enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pffl.constraints import Cells
from pffl.evidence.figures import fieller
from pffl.privacy.plan import Plan
from pffl.privacy.terms import Privacy

SIZES = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
ROOMS = (0.01, 0.05)
EPSILONS = np.geomspace(0.05, 64.0, 60)
TYPICAL = 0.6  # a mean loss, by which the noise of a count matters


def margin(
    plan: Plan, people: int, atoms: int, cells: int, *, confidence: float, total: float
) -> float:
    """Return what noise adds to the mean training loss of a cell, all cells together.

    `atoms` is how many (group, label)s the cell is made of, `total` how many times the
    variance that is needed is added in all.
    """
    from scipy.special import ndtri

    z = float(-ndtri((1 - confidence) / (2 * max(1, cells))))
    root = math.sqrt(total * atoms)
    M = plan.privacy.loss_bound
    s, t = plan.noise("final losses") * M * root, plan.noise("counts") * root
    high = fieller(TYPICAL * people, people, s, t, z, M)[1]
    return high - TYPICAL


def smallest_epsilon(
    plans: Sequence[Plan],
    people: int,
    room: float,
    atoms: int,
    cells: int,
    *,
    confidence: float,
    total: float,
) -> float | None:
    """Return the smallest ε at which a margin is no larger than the room; or None.

    `plans` are those of rising ε.
    """
    for plan in plans:
        found = margin(plan, people, atoms, cells, confidence=confidence, total=total)
        if found <= room:
            return plan.privacy.epsilon
    return None


def table(
    make: Callable[[Privacy], Plan],
    privacy: Privacy,
    cells: Cells,
    *,
    confidence: float,
    total: float,
) -> list[dict[str, str]]:
    """Return margins, and the smallest ε for some rooms, by the size of a cell."""
    plan, many = make(privacy), max(1, len(cells))
    plans = [make(replace(privacy, epsilon=e)) for e in EPSILONS.tolist()]
    atoms = int(cells.membership.sum(axis=1).max()) if len(cells) else 1
    out = []
    for people in SIZES:
        sure = {"confidence": confidence, "total": total}
        wide = margin(plan, people, atoms, many, **sure)
        row = {
            "people of a cell": f"{people:,}",
            "margin": f"{wide:.4f}" if wide < privacy.loss_bound - TYPICAL else "none",
        }
        for room in ROOMS:
            least = smallest_epsilon(plans, people, room, atoms, many, **sure)
            row[f"ε for {room:g} of room"] = "–" if least is None else f"{least:.2g}"
        out.append(row)
    return out
