"""Several rows per person, from a table with an id to its verified certificate."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.data import DataWarning
from tests.inside import Judged, conclude, mean

OPTIONS = {
    "label": "y",
    "group": "sex",
    "silos": 3,
    "random_state": 0,
    "test_fraction": 0.4,
}


def table(rows: int) -> pd.DataFrame:
    """Draw 150 people with so many rows each, which are much alike."""
    rng = np.random.default_rng(0)
    x, sex = rng.normal(size=150), rng.integers(2, size=150)
    y = (x + 0.5 * sex + rng.normal(size=150) > 0).astype(int)
    frame = pd.DataFrame({"id": np.arange(150), "x": x, "sex": sex, "y": y})
    frame = frame.loc[np.repeat(np.arange(150), rows)]
    frame["z"] = rng.normal(size=len(frame))
    frame["sex"] = np.where(frame["sex"] == 1, "f", "m")
    return frame.reset_index(drop=True)


@pytest.fixture(scope="module")
def run() -> pffl.Solution:
    with pytest.warns(DataWarning, match="in more than one silo"):
        federation = pffl.Federation.from_table(table(4), id="id", **OPTIONS)
    return pffl.solve(federation, pffl.BoundedGroupLoss(0.9), random_state=0)


def test_people_are_counted_and_rows_are_not(run):
    e = run.evidence
    people, rows = (f("count") for f in (e.heldout.of_people, e.heldout.of_cells))
    assert e.data.several
    np.testing.assert_array_equal(people * 4, rows)
    args = {"loss_bound": e.terms.loss_bound, "delta": 1 - e.terms.confidence}
    found = mean.upper_bounds(
        e.heldout.planned,
        np.array(e.heldout.logs)[..., 0],
        people,
        e.terms.loss_bound * e.heldout.of_people("tx"),
        **args,
    )
    np.testing.assert_allclose(Judged(e).heldout.upper, found)


def test_rates_have_no_bound(run):
    certificate = run.certificate
    assert not certificate.of_kind("holdout_error")[0].available
    assert all(one.error.upper is None for one in conclude(run.evidence).rates)
    assert certificate.of_kind("holdout")[0].available


@pytest.mark.filterwarnings("ignore:people are in more than one silo")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("secure_sum", [False, True])
def test_people_at_two_sites_are_counted_once_or_nothing_is_said(shared, secure_sum):
    """Under masks no site knows that a person has rows elsewhere, too."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(size=900), "sex": rng.choice(["f", "m"], 900)}
    )
    frame["ill"] = (frame["x"] > rng.normal(size=900)) * 1
    frame["who"] = np.arange(900) % 450
    frame["site"] = rng.integers(3, size=900) if shared else frame["who"] % 3
    rows = {"label": "ill", "group": "sex", "silo": "site", "id": "who"}
    solution = pffl.solve(frame, 0.69, secure_sum=secure_sum, random_state=0, **rows)
    word = solution.conclusions.verdicts["new_people"].word
    assert (word == "not measured") == (shared and secure_sum)
