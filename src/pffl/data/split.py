"""Share encoded rows out over silos and cut each silo into train and test, seeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from pffl.data.silo import Rows, Silo
from pffl.errors import Problems, UsageError
from pffl.typing import IntArray

Plan: TypeAlias = list[tuple[str, dict[str, IntArray]]]


def distribute(rows: Rows, plan: Plan) -> tuple[Silo, ...]:
    """Silos with the rows that the plan gives them.

    The rows are gathered once, split by split and silo by silo, and the silos hold
    views of that one copy: no second copy of the data is ever made.
    """
    splits = list(plan[0][1]) if plan else []
    wanted = [index[split] for split in splits for _, index in plan]
    if not wanted:
        return ()
    gathered = rows.take(np.concatenate(wanted))
    views: list[dict[str, Rows]] = [{} for _ in plan]
    start = 0
    for split in splits:
        for k, (_, index) in enumerate(plan):
            stop = start + len(index[split])
            views[k][split] = gathered.view(start, stop)
            start = stop
    return tuple(Silo(name, k, views[k]) for k, (name, _) in enumerate(plan))


def split_index(
    silo: IntArray,
    silo_names: Sequence[str],
    fractions: Mapping[str, float],
    *,
    drop_empty: bool = False,
    seed: int = 0,
) -> tuple[Plan, list[str]]:
    """Row numbers of each silo's splits, and the names of silos left out as empty.

    The generator of a silo is spawned from the seed and the silo's place, so that one
    silo's split does not depend on the others' sizes.
    """
    check_fractions(fractions)
    counts = np.bincount(silo, minlength=len(silo_names))
    members = np.split(np.argsort(silo, kind="stable"), np.cumsum(counts)[:-1])
    plan: Plan = []
    dropped = []
    for k, name in enumerate(silo_names):
        if drop_empty and not counts[k]:
            dropped.append(name)
            continue
        generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(k,)))
        parts = draw_parts(int(counts[k]), fractions, generator)
        plan.append((name, {split: members[k][part] for split, part in parts.items()}))
    return plan, dropped


def draw_parts(
    count: int, fractions: Mapping[str, float], generator: np.random.Generator
) -> dict[str, IntArray]:
    """Positions of ``train`` and of the named fractions, each in the given order.

    Sizes are rounded to the nearest row, but one row is always left for training.

    >>> parts = draw_parts(5, {"test": 0.2}, np.random.default_rng(0))
    >>> {name: len(part) for name, part in parts.items()}
    {'train': 4, 'test': 1}
    """
    shuffled = generator.permutation(count)
    parts: dict[str, IntArray] = {}
    start = 0
    for name, fraction in fractions.items():
        if fraction > 0:
            size = min(int(np.floor(fraction * count + 0.5)), max(0, count - 1 - start))
            parts[name] = np.sort(shuffled[start : start + size])
            start += size
    return {"train": np.sort(shuffled[start:]), **parts}


def split_rows(
    rows: Rows, fractions: Mapping[str, float], generator: np.random.Generator
) -> dict[str, Rows]:
    """Split at random into ``train`` and the named fractions; order is kept."""
    parts = draw_parts(len(rows), fractions, generator)
    return {name: rows.take(part) for name, part in parts.items()}


def check_fractions(fractions: Mapping[str, float]) -> None:
    """Refuse shares outside [0, 1), and shares that leave nothing to train on."""
    with Problems("split", UsageError) as problems:
        for name, value in fractions.items():
            if not 0 <= value < 1:
                problems.add(
                    f"'{name}_fraction' must be in [0, 1). Got {value} instead."
                )
        if sum(fractions.values()) >= 1:
            problems.add(f"{' and '.join(fractions)} leave nothing to train on")
