"""Ranges of inputs under noise: which are needed, and where they come from."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.errors import UsageError
from pffl.privacy import Privacy
from tests.inside import ranges_of
from tests.raising import raises


def table(rows: int = 4000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.uniform(18, 90, rows)
    return pd.DataFrame(
        {
            "age": np.where(rng.random(rows) < 0.2, np.nan, age),
            "town": rng.choice(["a", "b", "c"], rows),
            "sex": rng.choice(["f", "m"], rows),
            "site": rng.choice(["x", "y", "z"], rows),
            "hired": np.where(age + 20 * rng.normal(size=rows) > 50, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def people():
    return pffl.Federation.from_table(
        table(), label="hired", group="sex", silo="site", missing="indicator"
    )


def test_a_missing_number_has_an_input_that_is_0_or_1(people):
    low, high, columns = ranges_of(
        Privacy(1.0, ranges={"age": (18.0, 90.0)}), people.schema, people.encoding
    )
    ends = dict(zip(people.schema.features, zip(low, high, strict=True), strict=True))
    assert ends["age"] == (18.0, 90.0)
    assert ends["age=missing"] == (0.0, 1.0)
    assert ends["town=a"] == ends["town=c"] == (0.0, 1.0)
    assert columns == 3  # age, whether it is missing, town
    with raises(UsageError, "needs-ranges", "age"):
        ranges_of(Privacy(1.0), people.schema, people.encoding)
    with raises(UsageError, "unknown-column", "age=missing"):
        ranges_of(
            Privacy(1.0, ranges={"age": (18, 90), "age=missing": (0, 1)}),
            people.schema,
            people.encoding,
        )
