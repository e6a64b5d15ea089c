"""Columns that look protected are no inputs, unless they are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import pffl
from tests.cli.helpers import Command


def loans(rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "Gender": rng.choice(["f", "m"], rows),
            "Ethnicity": rng.choice(["a", "b", "c"], rows),
            "Marital-Status": rng.choice(["single", "married"], rows),
            "Religion": rng.choice(["x", "y"], rows),
            "income": rng.normal(size=rows),
            "terrace": rng.normal(size=rows),
        }
    )
    return frame.assign(approved=(frame["income"] + rng.normal(size=rows) > 0) * 1)


APART = ("Ethnicity", "Marital-Status", "Religion")


def test_they_are_left_out_and_named() -> None:
    people = pffl.Federation.from_table(loans(), label="approved", group="Gender")
    assert set(people.schema.features) == {"income", "terrace"}
    (named,) = (note for note in people.notes if "Ethnicity" in note)
    assert all(repr(name) in named for name in APART)


def test_the_command_line_leaves_them_out_too(command: Command) -> None:
    loans().to_csv("loans.csv", index=False)
    given = ("loans.csv", "--label", "approved", "--group", "Gender", "--bound", "0.7")
    assert command("run", *given, "--out", "one").code == 0
    assert "Ethnicity" in Path("one/card.md").read_text()
    more = ("--set", "data.inputs=Religion", "--out", "two")
    assert command("run", *given, *more).code == 0
    names = [pffl.load(place).schema.features for place in ("one", "two")]
    assert list(names[0]) == ["income", "terrace"]
    assert set(names[1]) - set(names[0]) == {"Religion=x", "Religion=y"}
