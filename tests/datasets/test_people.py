"""COMPAS and Adult, from drawn files in the official layouts."""

from __future__ import annotations

import csv
import io

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.datasets import adult, compas
from pffl.errors import DataError, UsageError
from reproduction import fedfb
from tests.datasets.compas_file import HEADER, compas_file, is_cached, sha256
from tests.inside import (
    ADULT_COLUMNS,
    ADULT_FILES,
    cache_folder,
    read_adult,
    read_compas,
)
from tests.raising import raises

DATA = compas_file(300)
DEFENDANTS = list(csv.DictReader(io.StringIO(DATA.decode())))


@pytest.fixture
def given(tmp_path):
    """Keywords that load the drawn file of COMPAS."""
    path = tmp_path / "compas.csv"
    path.write_bytes(DATA)
    return {"source": path, "sha256": sha256(DATA)}


def inputs(federation, split="train"):
    rows = federation.pooled(split).X.T
    return dict(zip(federation.schema.features, rows, strict=True))


def test_compas_values_are_as_recorded(given):
    """Nine of ten are within ProPublica's filter."""
    federation = compas(silos=1, test_fraction=0.0, **given)
    rows, X = federation.silos[0].rows(), inputs(federation)
    people = [p for n, p in enumerate(DEFENDANTS) if n % 10]
    for name in ("age", "juv_fel_count", "priors_count"):
        np.testing.assert_array_equal(X[name], [int(p[name]) for p in people])
    felony = [p["c_charge_degree"] == "F" for p in people]
    np.testing.assert_array_equal(X["felony"], felony)
    np.testing.assert_array_equal(rows.y, [int(p["two_year_recid"]) for p in people])
    np.testing.assert_array_equal(rows.group, [p["sex"] == "Male" for p in people])
    np.testing.assert_array_equal(X["under 25"], X["age"] < 25)
    np.testing.assert_array_equal(X["over 45"], X["age"] > 45)
    np.testing.assert_allclose(X["log(1 + priors)"], np.log1p(X["priors_count"]))
    assert len(X) == 9
    assert federation.schema.labels == ("no recidivism", "recidivism")
    assert set(federation.ranges) == set(X)


def test_names_and_birth_dates_never_leave_the_reader(given):
    table = pd.DataFrame(read_compas(given["source"]))
    assert not {"name", "first", "last", "dob", "id"} & set(table)
    assert not table.apply(lambda column: column.str.contains("secret")).any(axis=None)


def test_the_preparation_of_fedfb(given):
    federation = fedfb.compas(**given)
    assert (federation.rows("train"), federation.rows("test")) == (210, 90)
    assert federation.schema.labels == ("recidivism", "no recidivism")
    assert len(federation.schema.groups) == 4
    ages = np.array([int(p["age"]) for p in DEFENDANTS], dtype=float)
    scaled = (ages - ages.min()) / (ages.max() - ages.min())
    older = federation.silos[0].rows()
    np.testing.assert_allclose(older.X[:, 0], scaled[:210][scaled[:210] > 0.1])
    labels = 1 - np.array([int(p["two_year_recid"]) for p in DEFENDANTS])
    np.testing.assert_array_equal(older.y, labels[:210][scaled[:210] > 0.1])
    X = inputs(federation)
    described = X["c_charge_desc=Battery"] + X["c_charge_desc=Theft, petty"]
    assert set(described.tolist()) == {0.0, 1.0}
    assert not any("sex" in name or "race" in name for name in X)


@pytest.mark.skipif(not is_cached(), reason="the real file is not in the cache")
def test_the_real_file_has_the_published_counts():
    federation = compas()
    counts = np.zeros((2, 2), dtype=int)
    for split in federation.splits:
        pooled = federation.pooled(split)
        np.add.at(counts, (pooled.group, pooled.y.astype(int)), 1)
    assert counts.tolist() == [[762, 413], [2601, 2396]]
    assert min(len(np.unique(silo.rows().y)) for silo in federation.silos) == 2
    prepared = fedfb.compas()
    assert (prepared.rows("train"), prepared.rows("test")) == (5049, 2165)
    assert prepared.schema.n_features == 447


@pytest.mark.skipif(
    not (cache_folder() / "adult.data").is_file(), reason="Adult is not in the cache"
)
def test_the_real_files_of_adult_have_the_published_counts():
    federation = adult(test_fraction=0.0)
    assert federation.rows("train") == 32_561 + 16_281


# -------------------------------------------------------------------------------- Adult

SCHOOLS = ("HS-grad", "Bachelors", "Doctorate")
VALUES = {
    "workclass": ("Private", "State-gov", "?"),
    "marital-status": ("Divorced", "Never-married"),
    "occupation": ("Sales", "Tech-support", "?", "Exec-managerial"),
    "relationship": ("Husband", "Wife"),
    "race": ("White", "Black", "Other"),
    "sex": ("Female", "Male"),
    "capital-gain": ("0", "2174"),
    "native-country": ("United-States", "?"),
    "income": ("<=50K", ">50K"),
}
ENDS = {"age": (17, 91), "fnlwgt": (10_000, 900_000), "hours-per-week": (1, 99)}


def people(count, seed):
    rng = np.random.default_rng(seed)
    out = []
    for n in range(count):
        drawn = {name: str(rng.choice(values)) for name, values in VALUES.items()}
        drawn |= {name: str(rng.integers(*ends)) for name, ends in ENDS.items()}
        school = {"education": SCHOOLS[n % 3], "education-num": "9"}
        out.append({**drawn, **school, "capital-loss": "0"})
    return out


def text(rows, *, test=False):
    """As published: comment and full stops in the test file, an empty last line."""
    lines = ["|1x3 Cross validator"] if test else []
    lines += [", ".join(row[c] for c in ADULT_COLUMNS) + "." * test for row in rows]
    return ("\n".join(lines) + "\n\n").encode()


TRAIN, TEST = people(200, 0), people(100, 1)
FILES = {"adult.data": text(TRAIN), "adult.test": text(TEST, test=True)}


@pytest.fixture
def load(tmp_path):
    """Load the drawn files, the first of them changed."""

    def loaded(change=lambda data: data, **keywords):
        files = {**FILES, "adult.data": change(FILES["adult.data"])}
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        own = tuple(map(sha256, files.values()))
        return adult(**{"source": tmp_path, "sha256": own, **keywords})

    return loaded


def test_adult_values_are_as_recorded(load):
    federation = load(silos=1, test_fraction=0.0)
    everyone, X, rows = TRAIN + TEST, inputs(federation), federation.silos[0].rows()
    np.testing.assert_array_equal(X["age"], [int(p["age"]) for p in everyone])
    for value in VALUES["occupation"]:
        own = [p["occupation"] == value for p in everyone]
        np.testing.assert_array_equal(X[f"occupation={value}"], own)
    np.testing.assert_array_equal(rows.y, [p["income"] == ">50K" for p in everyone])
    np.testing.assert_array_equal(rows.group, [p["sex"] == "Male" for p in everyone])
    # What is unknown is a category, and is counted.
    names = ("workclass", "occupation", "native-country")
    assert {f"{name}=?" for name in names} <= set(X)
    unknown = sum(p[name] == "?" for p in everyone for name in names)
    assert str(unknown) in federation.notes[0]
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
    everybody = {row.tobytes() for row in federation.pooled().X}
    assert {row.tobytes() for row in rows.X} <= everybody
    np.testing.assert_array_equal(
        solution.predict_proba(raw), solution.predict_proba(rows.X)
    )
    assert set(solution.predict(raw)) <= {"<=50K", ">50K"}


# -------------------------------------------------------------------------- wrong input

REQUESTS = [
    ({"group": "age"}, "unknown-group"),
    ({"group": ()}, "unknown-group"),
    ({"group": ("sex", "sex")}, "unknown-group"),
    ({"group": ("sex", "job")}, "unknown-group"),
    ({"test_fraction": 2.0}, "wrong-value"),
]


@pytest.mark.parametrize(("wrong", "code"), REQUESTS)
def test_requests_of_both_that_make_no_sense(given, load, wrong, code):
    with raises(UsageError, code, *wrong):
        compas(**{**given, **wrong})
    with raises(UsageError, code, *wrong):
        load(**wrong)


def test_other_editions_are_refused_unless_their_hash_is_given(given, load):
    load()
    with raises(DataError, "wrong-hash"):
        compas(source=given["source"])
    with raises(DataError, "wrong-hash", "adult.data"):
        load(sha256=None)
    assert [file.sha256[:8] for file in ADULT_FILES] == ["5b002646", "a2a9044b"]


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (b"a,b\n1,2\n", "missing-column", ["'age'", "and 4 more"]),
        (",".join(HEADER).encode() + b"\n1,2\n", "bad-record", ["line 2: 2", "53"]),
        (DATA + b"1\n" + DATA[-300:], "bad-record", ["line 302: 1"]),
        (b"", "empty-file", ["wrong.csv"]),
    ],
)
def test_tables_that_are_not_compas(tmp_path, data, code, said):
    (tmp_path / "wrong.csv").write_bytes(data)
    with raises(DataError, code, *said):
        compas(source=tmp_path / "wrong.csv", sha256=sha256(data))


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda data: data[:-40], "unknown-category", "income"),
        (lambda data: data.replace(b"\n", b",1\n", 1), "bad-record", "16"),
        (lambda data: data[:-1] + b"1," + data, "bad-record", "line 201"),
        (lambda data: data.replace(b">50K", b"rich"), "unknown-category", "rich"),
        (lambda data: b"x" + data, "not-numbers", "age"),
    ],
)
def test_tables_that_are_not_adult(load, change, code, said):
    with raises(DataError, code, said):
        load(change)
