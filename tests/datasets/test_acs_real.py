"""Real extracts, where they lie beside the project; counts as their README has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pffl.datasets import acs
from tests.inside import FIFTY_STATES, FIPS, RACES

SHARED = Path(__file__).parents[3] / "shared" / "data"
WHOLE = SHARED / "acs_employment_2024_48st_dc.parquet"
SMALL = SHARED / "acs_employment_2024_mini400_nopuma.parquet"
NEW_YORK = SHARED / "folk_employment_NY_2018.csv"
STATES = tuple(
    state
    for state in FIPS
    if state in (*FIFTY_STATES, "DC") and state not in ("CA", "TX")
)
RACE_COUNTS = [1635381, 206209, 21938, 1529, 3189, 103534, 3116, 83266, 182621]


def there(path):
    return pytest.mark.skipif(not path.is_file(), reason=f"no '{path.name}' here")


def race_by_state(federation):
    """Rows per state and race over all splits."""
    counts = np.zeros((len(federation), len(federation.schema.groups)), dtype=int)
    for split in federation.splits:
        rows = federation.pooled(split)
        np.add.at(counts, (rows.silo, rows.group), 1)
    return counts


@there(NEW_YORK)
def test_new_york_2018():
    federation = acs(source=NEW_YORK, states=["NY"], filter="filtered")
    assert federation.rows("train") == 16_000
    assert federation.rows("test") == 4_000
    assert federation.silo_names == ("NY",)
    assert federation.schema.groups == tuple(RACES.values())
    counts = race_by_state(federation)[0].tolist()
    assert counts == [14212, 2436, 48, 2, 25, 1739, 8, 1028, 502]
    assert "inputs that the source does not have: GCL" in federation.notes
    y = np.concatenate([federation.pooled(split).y for split in federation.splits])
    assert y.mean() == 0.57485


@there(SMALL)
def test_400_people_of_each_state_2024():
    pytest.importorskip("pyarrow")
    federation = acs(source=SMALL, year=2024, filter="filtered")
    assert federation.silo_names == STATES
    assert race_by_state(federation).sum(axis=1).tolist() == [400] * 49
    lacking = "inputs that the source does not have: ESP, ANC, RELP, GCL"
    assert lacking in federation.notes
    assert federation.schema.n_features == 49


@pytest.mark.slow
@there(WHOLE)
def test_all_people_of_2024():
    pytest.importorskip("pyarrow")
    federation = acs(source=WHOLE, year=2024, filter="filtered")
    assert federation.rows("train") + federation.rows("test") == 2_240_783
    assert federation.silo_names == STATES
    counts = race_by_state(federation)
    assert federation.schema.groups == tuple(RACES.values())
    assert counts.sum(axis=0).tolist() == RACE_COUNTS
    assert (counts == 0).sum() == 14
    assert (counts < 10).sum() - (counts == 0).sum() == 46
    inputs = federation.silos[0].rows().X.base
    assert inputs.nbytes == 2_240_783 * 49 * 8
