"""COMPAS and Adult, from made-up files in the official layouts."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.datasets import adult, compas
from pffl.errors import DataError, UsageError
from reproduction import fedfb
from tests.datasets.server import is_cached
from tests.golden import people as golden
from tests.golden.people import sha256
from tests.inside import ADULT_FILES, cache_folder, read_adult, read_compas
from tests.raising import raises

TOLD = {"name": "secret, Jo", "dob": "1970-01-01"}  # what never leaves the reader


def defendants():
    """Made-up COMPAS, each tenth of them outside the filter for another reason."""
    table = pd.read_csv(io.BytesIO(golden.compas_file(300)), dtype=str)
    table["days_b_screening_arrest"] = "-1"
    flaws = {"days_b_screening_arrest": "31", "is_recid": "-1", "c_charge_degree": "O"}
    for k, (name, value) in enumerate({**flaws, "score_text": "N/A"}.items()):
        table.loc[10 * k :: 40, name] = value
    repeated = pd.DataFrame({"priors_count": "99"}, index=table.index)
    return pd.concat([table.assign(**TOLD), repeated], axis=1)


TABLE = defendants()
DATA = TABLE.to_csv(index=False).encode()
PEOPLE = TABLE.iloc[:, :-1][np.arange(300) % 10 > 0]
FILES = dict(zip(("adult.data", "adult.test"), golden.adult_files(300), strict=True))
LINES = "\n".join(data.decode().replace(".\n", "\n") for data in FILES.values())
CENSUS = pd.read_csv(
    io.StringIO(LINES), names=golden.ADULT, skipinitialspace=True, comment="|"
)


@pytest.fixture
def given(tmp_path):
    """Keywords that load the made-up file of COMPAS."""
    path = tmp_path / "compas.csv"
    path.write_bytes(DATA)
    return {"source": path, "sha256": sha256(DATA)}


@pytest.fixture
def load(tmp_path):
    """Load the made-up files of Adult, the first of them changed."""

    def loaded(change=lambda data: data, **keywords):
        files = {**FILES, "adult.data": change(FILES["adult.data"])}
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        own = tuple(map(sha256, files.values()))
        return adult(**{"source": tmp_path, "sha256": own, **keywords})

    return loaded


def inputs(federation):
    rows = federation.pooled().X.T
    return dict(zip(federation.schema.features, rows, strict=True))


def test_compas_values_are_as_recorded(given):
    federation = compas(silos=1, test_fraction=0.0, **given)
    rows, X = federation.silos[0].rows(), inputs(federation)
    for name in ("age", "juv_fel_count", "priors_count"):
        np.testing.assert_array_equal(X[name], PEOPLE[name].astype(int))
    np.testing.assert_array_equal(X["felony"], PEOPLE["c_charge_degree"] == "F")
    np.testing.assert_array_equal(rows.y, PEOPLE["two_year_recid"] == "1")
    np.testing.assert_array_equal(rows.group, PEOPLE["sex"] == "Male")
    np.testing.assert_array_equal(X["under 25"], X["age"] < 25)
    np.testing.assert_array_equal(X["over 45"], X["age"] > 45)
    np.testing.assert_allclose(X["log(1 + priors)"], np.log1p(X["priors_count"]))
    assert len(X) == 9
    assert set(federation.ranges) == set(X)
    seen = read_compas(given["source"])
    assert not {*TOLD, "id"} & set(seen)
    assert not any("secret" in value for column in seen.values() for value in column)


def test_the_preparation_of_fedfb(given):
    federation = fedfb.compas(**given)
    assert (federation.rows("train"), federation.rows("test")) == (210, 90)
    assert len(federation.schema.groups) == 4
    ages = TABLE["age"].to_numpy(float)[:210]
    scaled = (ages - ages.min()) / (ages.max() - ages.min())
    older = federation.silos[0].rows()
    labels = TABLE["two_year_recid"].to_numpy()[:210] == "0"
    assert len(older) == (scaled > 0.1).sum()
    np.testing.assert_array_equal(older.y, labels[scaled > 0.1])


@pytest.mark.skipif(not is_cached(), reason="the real file is not in the cache")
def test_the_real_file_has_the_published_counts():
    federation = compas()
    counts = np.zeros((2, 2), dtype=int)
    for split in federation.splits:
        pooled = federation.pooled(split)
        np.add.at(counts, (pooled.group, pooled.y.astype(int)), 1)
    assert counts.tolist() == [[762, 413], [2601, 2396]]
    prepared = fedfb.compas()
    assert (prepared.rows("train"), prepared.rows("test")) == (5049, 2165)
    assert prepared.schema.n_features == 447


@pytest.mark.skipif(
    not (cache_folder() / "adult.data").is_file(), reason="Adult is not in the cache"
)
def test_the_real_files_of_adult_have_the_published_counts():
    assert adult(test_fraction=0.0).rows("train") == 32_561 + 16_281


def test_adult_values_are_as_recorded(load):
    federation = load(silos=1, test_fraction=0.0)
    X, rows = inputs(federation), federation.silos[0].rows()
    np.testing.assert_array_equal(X["age"], CENSUS["age"])
    for value in ("Sales", "?"):  # what is unknown is a category, and is counted
        np.testing.assert_array_equal(
            X[f"occupation={value}"], CENSUS["occupation"] == value
        )
    np.testing.assert_array_equal(rows.y, CENSUS["income"] == ">50K")
    np.testing.assert_array_equal(rows.group, CENSUS["sex"] == "Male")
    assert str(int((CENSUS == "?").sum().sum())) in federation.notes[0]
    assert {name for name in X if "=" not in name} == set(federation.ranges)


@pytest.mark.parametrize(
    ("group", "groups"), [("sex", 2), ("race", 3), (("sex", "race"), 6)]
)
def test_the_protected_attribute_is_no_input(load, given, group, groups):
    federation = load(group=group, silos=2)
    columns = {name.partition("=")[0] for name in federation.schema.features}
    assert len(federation.schema.groups) == groups
    assert ("sex" in columns, "race" in columns) == (group == "race", group == "sex")
    assert not {"fnlwgt", "education-num"} & columns
    schema = compas(group=group, silos=2, **given).schema
    assert len(schema.groups) == groups
    assert not {"sex", "race"} & set(schema.features)


def test_silos_are_seeded(load):
    first, again, other = (load(silos=4, random_state=k) for k in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint


def test_a_model_takes_the_raw_table(load, tmp_path):
    federation = load(silos=2, test_fraction=0.0)
    solution = pffl.solve(federation, None, random_state=0)
    raw = read_adult(tmp_path / "adult.data")
    rows = federation.encoding.rows(raw)
    np.testing.assert_array_equal(
        solution.predict_proba(raw), solution.predict_proba(rows.X)
    )
    assert set(solution.predict(raw)) <= {"<=50K", ">50K"}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"group": "age"}, "unknown-group"),
        ({"group": ()}, "unknown-group"),
        ({"group": ("sex", "sex")}, "unknown-group"),
        ({"test_fraction": 2.0}, "wrong-value"),
    ],
)
def test_requests_of_both_that_make_no_sense(given, load, wrong, code):
    for ask in (lambda **own: compas(**{**given, **own}), load):
        with raises(UsageError, code, *wrong):
            ask(**wrong)


def test_other_editions_are_refused_unless_their_hash_is_given(given, load):
    with raises(DataError, "wrong-hash"):
        compas(source=given["source"])
    with raises(DataError, "wrong-hash", "adult.data"):
        load(sha256=None)
    assert [file.sha256[:8] for file in ADULT_FILES] == ["5b002646", "a2a9044b"]


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (b"a,b\n1,2\n", "missing-column", "and 4 more"),
        (DATA + b"1\n" + DATA[-300:], "bad-record", "line 302: 1"),
        (b"", "empty-file", "wrong.csv"),
    ],
)
def test_tables_that_are_not_compas(tmp_path, data, code, said):
    (tmp_path / "wrong.csv").write_bytes(data)
    with raises(DataError, code, said):
        compas(source=tmp_path / "wrong.csv", sha256=sha256(data))


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda data: data[:-40], "unknown-category", "income"),
        (lambda data: data.replace(b"\n", b",1\n", 1), "bad-record", "16"),
        (lambda data: data.replace(b">50K", b"rich"), "unknown-category", "rich"),
        (lambda data: b"x" + data, "not-numbers", "age"),
    ],
)
def test_tables_that_are_not_adult(load, change, code, said):
    with raises(DataError, code, said):
        load(change)
