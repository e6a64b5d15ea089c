from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pffl.data import Federation, Silo

ROWS = 10_000


def entropy(*shares):
    found = np.array([s for s in shares if s > 0])
    return float(-(found * np.log(found)).sum())


def told(frame, **options):
    keep = {"label": "y", "group": "sex", "test_fraction": 0.0, **options}
    federation = Federation.from_table(frame, **keep)
    return {one.column: one for one in federation.tell()}


def people(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.random(rows) < 0.3
    flip = rng.random(rows) < 0.1
    return pd.DataFrame(
        {
            "noisy": np.where(y ^ flip, "a", "b"),
            "score": y + rng.normal(0, 0.5, rows),
            "noise": rng.normal(size=rows),
            "number": rng.permutation(rows) * 3 + 1.5,
            "place": [f"p{k}" for k in rng.integers(0, 90, rows)],
            "sex": rng.choice(["f", "m"], rows),
            "y": y.astype(int),
        }
    )


def test_shares_are_those_of_information_theory():
    found = told(people())
    p, e = 0.3, 0.1
    seen_a = p * (1 - e) + (1 - p) * e
    joint = (p * (1 - e), p * e, (1 - p) * e, (1 - p) * (1 - e))
    known = entropy(*joint) - entropy(seen_a, 1 - seen_a)
    assert found["noisy"].label == pytest.approx(
        1 - known / entropy(p, 1 - p), abs=0.02
    )

    # Of a normal score, by integration.
    grid = np.linspace(-4, 5, 200_001)
    one, zero = (np.exp(-2 * (grid - m) ** 2) * np.sqrt(2 / np.pi) for m in (1.0, 0.0))
    both = p * one + (1 - p) * zero
    share = p * one / both
    left = -(share * np.log(share) + (1 - share) * np.log1p(-share))
    known = float((left * both).sum() * (grid[1] - grid[0]))
    assert found["score"].label == pytest.approx(
        1 - known / entropy(p, 1 - p), abs=0.02
    )


def test_columns_that_only_tell_rows_apart_tell_nothing():
    found = told(people())
    for column in ("noise", "number", "place"):
        assert found[column].label < 0.01
        assert found[column].attributes[0] < 0.01
    small = told(people(60).drop(columns=["place", "number"]))
    assert small["noise"].label < 0.3


@pytest.mark.parametrize("leak", ["code", "number", "threshold"])
def test_what_gives_the_label_away_is_noted(leak):
    frame = people(2_000).drop(columns=["place", "number"])
    y, rng = frame["y"], np.random.default_rng(1)
    frame["leak"] = {
        "code": np.where(y == 1, "approved", "rejected"),
        "number": y * 5.0 + rng.normal(0, 0.01, len(y)),
        "threshold": np.where(y == 1, 1, -1) * rng.exponential(size=len(y)),
    }[leak]
    with pytest.warns(UserWarning, match="'leak' gives the label 'y'"):
        Federation.from_table(frame, label="y", group="sex")


def test_a_numeric_label_is_told_by_its_variance():
    rng = np.random.default_rng(0)
    x = rng.normal(size=ROWS)
    frame = pd.DataFrame(
        {"x": x, "noise": rng.normal(size=ROWS), "sex": rng.choice(["f", "m"], ROWS)}
    )
    frame["y"] = 1e6 * (x + rng.normal(size=ROWS))
    found = told(frame, classification=False)
    assert found["x"].label == pytest.approx(0.5, abs=0.02)
    assert found["noise"].label < 0.01


def test_no_held_out_row_is_looked_at():
    frame = people(500).drop(columns=["place", "number"])
    federation = Federation.from_table(frame, label="y", group="sex", silos=3)
    turned = tuple(
        Silo(
            silo.name,
            silo.index,
            {
                **silo.splits,
                "test": replace(silo.rows("test"), X=-7 * silo.rows("test").X),
            },
        )
        for silo in federation.silos
    )
    assert replace(federation, silos=turned).tell() == federation.tell()


def test_missing_numbers_can_tell():
    frame = people(2_000).drop(columns=["place", "number"])
    frame.loc[frame["y"] == 1, "noise"] = None
    with pytest.warns(UserWarning, match="column 'noise' gives the label"):
        found = told(frame, missing="indicator")
    assert found["noise"].label > 0.99
