"""A small table of people, as a user would bring one."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pffl.data import Attribute, Federation, Rows, Schema, Silo


def people(rows=120, seed=0):
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": generator.integers(18, 70, rows),
            "income": generator.normal(3e4, 1e4, rows).round(2),
            "job": generator.choice(["clerk", "nurse", "smith"], rows),
            "sex": generator.choice(["f", "m"], rows),
            "race": generator.choice(["a", "b", "c"], rows),
            "branch": generator.choice(["north", "south"], rows),
            "hired": generator.choice(["no", "yes"], rows),
        }
    )


def build(frame=None, **changes):
    """A federation of that table, by its branches."""
    options = {"label": "hired", "group": "sex", "silo": "branch", **changes}
    return Federation.from_table(people() if frame is None else frame, **options)


SCHEMA = Schema(("age", "income"), (Attribute("sex", ("f", "m")),), ("no", "yes"))


def rows(count=6, seed=0):
    generator = np.random.default_rng(seed)
    return Rows.of(
        generator.normal(size=(count, 2)),
        np.arange(count) % 2,
        generator.integers(0, 2, count),
    )


def silo(name="one", index=0, count=6, test=0):
    splits = {"train": rows(count, seed=index)}
    if test:
        splits["test"] = rows(test, seed=100 + index)
    return Silo(name, index, splits)
