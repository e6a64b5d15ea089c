from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from pffl.datasets import compas
from pffl.errors import DataError, UsageError
from tests.datasets.compas_file import HEADER, compas_file, sha256
from tests.inside import cache_folder
from tests.inside import datasets_compas_FILE as FILE
from tests.inside import datasets_compas_read as read
from tests.raising import raises

DATA = compas_file(300)


@pytest.fixture
def given(tmp_path):
    """Keywords that load the drawn file."""
    path = tmp_path / "compas.csv"
    path.write_bytes(DATA)
    return {"source": path, "sha256": sha256(DATA)}


def drawn():
    return list(csv.DictReader(io.StringIO(DATA.decode())))


def test_filter_keeps_nine_of_ten(given):
    federation = compas(silos=3, seed=3, **given)
    assert federation.fingerprint == compas(silos=3, seed=3, **given).fingerprint
    assert federation.fingerprint != compas(silos=3, seed=4, **given).fingerprint
    assert federation.rows("train") + federation.rows("test") == 270
    assert federation.schema.labels == ("no recidivism", "recidivism")
    counts = [
        f"{name}_count" for name in ("juv_fel", "juv_misd", "juv_other", "priors")
    ]
    derived = ["felony", "log(1 + priors)", "under 25", "over 45"]
    assert federation.schema.features == ("age", *counts, *derived)


def test_values_are_as_recorded(given):
    federation = compas(silos=1, test_fraction=0.0, **given)
    rows = federation.silos[0].rows()
    people = [p for n, p in enumerate(drawn()) if n % 10]
    np.testing.assert_array_equal(rows.X[:, 0], [int(p["age"]) for p in people])
    np.testing.assert_array_equal(
        rows.X[:, 5], [p["c_charge_degree"] == "F" for p in people]
    )
    np.testing.assert_array_equal(rows.y, [int(p["two_year_recid"]) for p in people])
    np.testing.assert_array_equal(rows.group, [p["sex"] == "Male" for p in people])
    X = dict(zip(federation.schema.features, rows.X.T, strict=True))
    np.testing.assert_array_equal(X["under 25"], X["age"] < 25)
    np.testing.assert_array_equal(X["over 45"], X["age"] > 45)
    np.testing.assert_allclose(X["log(1 + priors)"], np.log1p(X["priors_count"]))


@pytest.mark.parametrize(
    ("group", "groups"), [("sex", 2), ("race", 3), (("sex", "race"), 6)]
)
def test_groups(given, group, groups):
    schema = compas(group=group, silos=2, **given).schema
    assert len(schema.groups) == groups
    assert not {"sex", "race"} & set(schema.features)


def test_names_and_birth_dates_never_leave_the_reader(given):
    table = read(given["source"])
    assert not {"name", "first", "last", "dob", "id"} & set(table)
    assert not any("secret" in value for column in table.values() for value in column)


def test_fedfb_preparation(given):
    federation = compas(preparation="fedfb", **given)
    people = drawn()
    assert federation.rows("train") == 210
    assert federation.rows("test") == 90
    assert federation.silo_names == ("scaled age > 0.1", "scaled age ≤ 0.1")
    assert federation.schema.labels == ("recidivism", "no recidivism")
    assert len(federation.schema.groups) == 4
    ages = np.array([int(p["age"]) for p in people], dtype=float)
    scaled = (ages - ages.min()) / (ages.max() - ages.min())
    older = federation.silos[0].rows()
    np.testing.assert_allclose(older.X[:, 0], scaled[:210][scaled[:210] > 0.1])
    labels = 1 - np.array([int(p["two_year_recid"]) for p in people])
    np.testing.assert_array_equal(older.y, labels[:210][scaled[:210] > 0.1])
    X = federation.pooled().X
    assert X.min() == 0
    assert X.max() == 1
    battery = federation.schema.features.index("c_charge_desc=Battery")
    theft = federation.schema.features.index("c_charge_desc=Theft, petty")
    assert set((X[:, battery] + X[:, theft]).tolist()) == {0.0, 1.0}
    assert not any("sex" in f or "race" in f for f in federation.schema.features)


def test_another_file_is_refused(given, tmp_path):
    with raises(DataError, "wrong-hash"):
        compas(source=given["source"])
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n")
    with raises(DataError, "missing-column"):
        compas(source=wrong, sha256=sha256(wrong.read_bytes()))
    wrong.write_text(",".join(HEADER) + "\n1,2\n")
    with raises(DataError, "bad-record", "2", "53"):
        compas(source=wrong, sha256=sha256(wrong.read_bytes()))


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"group": "age"}, "unknown-group"),
        ({"group": ()}, "repeated-name"),
        ({"group": ("sex", "sex")}, "repeated-name"),
        ({"group": ("sex", "job")}, "unknown-group"),
        ({"preparation": "mine"}, "wrong-value"),
    ],
)
def test_requests_that_make_no_sense(wrong, code):
    with raises(UsageError, code, *wrong):
        compas(**wrong)


@pytest.mark.skipif(
    not (cache_folder() / FILE.name).is_file(),
    reason="the real file is not in the cache",
)
def test_real_file_has_the_published_counts():
    federation = compas()
    assert federation.rows("train") + federation.rows("test") == 6172
    counts = np.zeros((2, 2), dtype=int)
    for split in federation.splits:
        pooled = federation.pooled(split)
        np.add.at(counts, (pooled.group, pooled.y.astype(int)), 1)
    assert counts.tolist() == [[762, 413], [2601, 2396]]
    assert min(len(np.unique(silo.rows().y)) for silo in federation.silos) == 2
    fedfb = compas(preparation="fedfb")
    assert fedfb.rows("train") == 5049
    assert fedfb.rows("test") == 2165
    assert fedfb.schema.n_features == 447
