"""How inputs are scaled under noise: by released sums, or by their ranges alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.privacy import Privacy
from tests.helpers import make_federation
from tests.inside import ranges_of
from tests.noisy.test_running import ranges_for, solve
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


def test_ranges_are_free_and_tell_nothing_of_rows():
    data = make_federation(0, sizes=(1500,) * 3, test=700)
    paid, first = solve(data, "exact")
    free, second = solve(data, "exact", scaling="ranges")
    names = [r.name for r in free.evidence.privacy.releases if r.split == "train"]
    assert "inputs" not in names
    assert "features" not in second[0].asked_for
    assert "features" in first[0].asked_for
    # The same budget, and gradients with less noise.
    assert free.evidence.privacy.mu == pytest.approx(paid.evidence.privacy.mu)
    sigma = {
        name: next(
            r.sigma for r in found.evidence.privacy.releases if r.name == "gradients"
        )
        for name, found in (("paid", paid), ("free", free))
    }
    assert sigma["free"] == pytest.approx(sigma["paid"] * (0.55 / 0.62) ** 0.5)
    # Other rows, other noise: the same scaling.
    other = make_federation(7, sizes=(900,) * 3, test=700)
    again, third = solve(other, "exact", scaling="ranges", noise_seed=5)
    scalings = [
        next(q for q in asked if q.kind == "expand").task.model.inputs
        for asked in (second, third)
    ]
    assert np.array_equal(scalings[0].mean, scalings[1].mean)
    assert np.array_equal(scalings[0].scale, scalings[1].scale)
    assert again.status in ("met", "not met", "not decided")


def test_data_may_come_with_ranges():
    """Those that are given go before those of the data."""
    data = make_federation(0, sizes=(1500,) * 3, test=700)
    wide = replace(data, ranges=ranges_for(data))
    name = str(data.schema.features[0])
    privacy = Privacy(4.0, noise_seed=1, ranges={name: (-3.0, 3.0)})
    for given in (wide, Local(wide.keyed())):
        bound = pffl.BoundedGroupLoss(0.69)
        found = pffl.solve(
            given, bound, method="exact", random_state=0, privacy=privacy
        )
        stated = found.evidence.privacy.ranges
        assert stated == {
            **{k: list(v) for k, v in ranges_for(data).items()},
            name: [-3.0, 3.0],
        }


def test_a_range_that_is_wrong_is_said_aloud():
    """From released means alone: all values are at an end, or beyond."""
    data = make_federation(0, sizes=(1500,) * 3, test=700)
    first, second, *_ = map(str, data.schema.features)
    wrong = {**ranges_for(data), first: (-90.0, -50.0), second: (-5.0, 9e4)}
    found, asked = solve(data, "exact", ranges=wrong)
    right, again = solve(data, "exact")
    about = [n for n in found.evidence.notes if n not in right.evidence.notes]
    for name, ends in ((first, ("-90", "-50")), (second, ("-5", "90000"))):
        (note,) = (n for n in about if f"'{name}'" in n)
        assert all(end in note for end in ends)
    # What is said costs nothing: the same queries are asked.
    assert [type(q) for q in asked] == [type(q) for q in again]
