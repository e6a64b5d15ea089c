from __future__ import annotations

import hashlib
from importlib import import_module

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.datasets import adult
from pffl.errors import DataError, UsageError
from tests.datasets.server import serve
from tests.inside import FILES, RemoteFile
from tests.inside import datasets_adult_COLUMNS as COLUMNS
from tests.inside import datasets_adult_read as read
from tests.raising import raises

JOBS = ("Sales", "Tech-support", "?", "Exec-managerial")
SCHOOLS = ("HS-grad", "Bachelors", "Doctorate")


VALUES = {
    "workclass": ("Private", "State-gov", "?"),
    "marital-status": ("Divorced", "Never-married"),
    "occupation": JOBS,
    "relationship": ("Husband", "Wife"),
    "race": ("White", "Black", "Other"),
    "sex": ("Female", "Male"),
    "capital-gain": ("0", "2174"),
    "native-country": ("United-States", "?"),
    "income": ("<=50K", ">50K"),
}


def people(count, seed):
    rng = np.random.default_rng(seed)
    out = []
    for n in range(count):
        drawn = {name: str(rng.choice(values)) for name, values in VALUES.items()}
        numbers = {
            "age": (17, 91),
            "fnlwgt": (10_000, 900_000),
            "hours-per-week": (1, 99),
        }
        drawn |= {name: str(rng.integers(*ends)) for name, ends in numbers.items()}
        drawn |= {
            "education": SCHOOLS[n % 3],
            "education-num": "9",
            "capital-loss": "0",
        }
        out.append(drawn)
    return out


TRAIN, TEST = people(200, 0), people(100, 1)


def text(rows, *, test=False):
    """As published: comment and full stops in the test file, an empty last line."""
    stop = "." if test else ""
    lines = ["|1x3 Cross validator"] if test else []
    lines += [", ".join(row[c] for c in COLUMNS) + stop for row in rows]
    return ("\n".join(lines) + "\n\n").encode()


DATA = (text(TRAIN), text(TEST, test=True))
HASHES = tuple(hashlib.sha256(data).hexdigest() for data in DATA)


@pytest.fixture
def given(tmp_path):
    """Keywords that load the drawn files."""
    for file, data in zip(FILES, DATA, strict=True):
        (tmp_path / file.name).write_bytes(data)
    return {"source": tmp_path, "sha256": HASHES}


def inputs(federation, split="train"):
    return dict(
        zip(federation.schema.features, federation.pooled(split).X.T, strict=True)
    )


def test_values_are_as_recorded(given):
    federation = adult(partition="equal", silos=1, test_fraction=0.0, **given)
    everyone, X, rows = TRAIN + TEST, inputs(federation), federation.silos[0].rows()
    np.testing.assert_array_equal(X["age"], [int(p["age"]) for p in everyone])
    for value in JOBS:
        own = [p["occupation"] == value for p in everyone]
        np.testing.assert_array_equal(X[f"occupation={value}"], own)
    np.testing.assert_array_equal(rows.y, [p["income"] == ">50K" for p in everyone])
    np.testing.assert_array_equal(rows.group, [p["sex"] == "Male" for p in everyone])
    assert federation.schema.labels == ("<=50K", ">50K")
    # What is unknown is a category, and is counted.
    names = ("workclass", "occupation", "native-country")
    assert {f"{name}=?" for name in names} <= set(federation.schema.features)
    unknown = sum(p[name] == "?" for p in everyone for name in names)
    assert str(unknown) in federation.notes[0]


@pytest.mark.parametrize(
    ("group", "groups"), [("sex", 2), ("race", 3), (("sex", "race"), 6)]
)
def test_the_protected_attribute_is_no_input(given, group, groups):
    federation = adult(group=group, silos=2, **given)
    assert len(federation.schema.groups) == groups
    columns = {name.partition("=")[0] for name in federation.schema.features}
    assert ("sex" in columns) == (group == "race")
    assert ("race" in columns) == (group == "sex")
    assert not {"fnlwgt", "education-num"} & columns


def test_silos(given):
    four = adult(silos=4, seed=1, **given)
    assert len(four) == 4
    assert four.fingerprint == adult(silos=4, seed=1, **given).fingerprint
    assert four.fingerprint != adult(silos=4, seed=2, **given).fingerprint
    assert len(adult(partition="equal", silos=7, **given)) == 7
    by_school = adult(partition="education", **given)
    assert by_school.silo_names == ("Bachelors", "Doctorate", "HS-grad")
    two = adult(partition="doctorate", test_fraction=0.0, **given)
    assert two.silo_names == ("doctorate", "no doctorate")
    assert [len(silo) for silo in two.silos] == [99, 201]
    X = inputs(two)
    np.testing.assert_array_equal(X["education=Doctorate"], two.pooled().silo == 0)


def test_the_official_split(given):
    federation = adult(
        partition="education", split="official", validation_fraction=0.1, **given
    )
    assert federation.splits == ("train", "validation", "test")
    assert federation.rows("train") + federation.rows("validation") == 200
    assert federation.rows("test") == 100
    ages = sorted(inputs(federation, "test")["age"].tolist())
    assert ages == sorted(float(p["age"]) for p in TEST)


@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        ({"partition": "zodiac"}, "wrong-value", "partition"),
        ({"split": "half"}, "wrong-value", "split"),
        ({"group": "age"}, "unknown-group", "age"),
        ({"group": ()}, "repeated-name", "group"),
        ({"sha256": "abc"}, "wrong-value", "sha256"),
        ({"test_fraction": 2.0}, "wrong-value", "test_fraction"),
        (
            {"split": "official", "validation_fraction": 1.0},
            "wrong-value",
            "validation",
        ),
    ],
)
def test_requests_that_make_no_sense(given, wrong, code, said):
    with raises(UsageError, code, said):
        adult(**{**given, **wrong})


def test_official_files_only_unless_told_otherwise(given):
    with raises(DataError, "wrong-hash", "adult.data", "256"):
        adult(source=given["source"])
    assert FILES[0].sha256.startswith("5b002646")
    assert FILES[1].sha256.startswith("a2a9044b")


def reload(given, change):
    """Load with the training file changed."""
    data = change(DATA[0])
    (given["source"] / "adult.data").write_bytes(data)
    own = (hashlib.sha256(data).hexdigest(), HASHES[1])
    return adult(source=given["source"], sha256=own)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda data: data[:-40], "bad-record", "line 200"),
        (lambda data: data.replace(b">50K", b"rich"), "unknown-label", "rich"),
        (lambda d: d.replace(b" Female,", b" ?,", 1), "missing-values", "'sex': 1"),
        (lambda data: b"x" + data, "not-numbers", "age"),
    ],
)
def test_wrong_files(given, change, code, said):
    with raises(DataError, code, said):
        reload(given, change)


def test_windows_line_ends_and_byte_order_marks(given):
    whole = adult(**given).fingerprint
    again = reload(given, lambda d: b"\xef\xbb\xbf" + d.replace(b"\n", b"\r\n"))
    assert again.fingerprint == whole


def test_downloaded_once(tmp_path, monkeypatch):
    module = import_module("pffl.datasets.adult")
    files = {f"/{file.name}": data for file, data in zip(FILES, DATA, strict=True)}
    with serve(files) as web:
        own = tuple(
            RemoteFile(file.name, own, f"{web.address}/{file.name}")
            for file, own in zip(FILES, HASHES, strict=True)
        )
        monkeypatch.setattr(module, "FILES", own)
        with raises(DataError, "wrong-count", "adult.data", "200", "32561"):
            adult(cache_dir=tmp_path)
        monkeypatch.setattr(module, "ROWS", (200, 100))
        first = adult(cache_dir=tmp_path, route="official")
        assert adult(cache_dir=tmp_path).fingerprint == first.fingerprint
        assert len(web.requests) == 2


def test_a_model_takes_the_raw_table(given):
    federation = adult(partition="equal", silos=2, test_fraction=0.0, **given)
    solution = pffl.solve(federation, None, seed=0)
    raw = pd.DataFrame(read(given["source"] / "adult.data"))
    rows = federation.encoding.rows(raw)
    assert federation.encoding.schema == federation.schema
    everybody = {row.tobytes() for row in federation.pooled().X}
    assert {row.tobytes() for row in rows.X} <= everybody
    np.testing.assert_array_equal(
        solution.predict_proba(raw), solution.predict_proba(rows.X)
    )
    assert set(solution.predict(raw)) <= {"<=50K", ">50K"}
