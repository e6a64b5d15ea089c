"""ACS: drawn files in the Census's layouts, and real extracts beside the project."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pffl.datasets import acs
from pffl.errors import DataError, UsageError
from tests.datasets.acs_files import (
    YEARS,
    archive,
    header,
    member_name,
    persons,
    text,
    zip_file,
)
from tests.datasets.server import serve
from tests.inside import FIPS, RACES, SEXES, TASKS, archive_name
from tests.inside import datasets_acs as _acs
from tests.raising import raises

STATES = ("AL", "NY", "WY")
PEOPLE = {state: persons(state, 150) for state in STATES}


def number(person, column):
    """The value of a column; a missing one is NaN."""
    return float(person[column]) if person[column] else float("nan")


def value(person, column):
    """The value of a column; a missing one is 0."""
    return float(person[column] or 0)


KEPT = {
    ("employment", "folktables"): lambda p: True,
    ("employment", "filtered"): lambda p: 16 < number(p, "AGEP") < 90,
    ("income", "folktables"): lambda p: (
        number(p, "AGEP") > 16 and number(p, "PINCP") > 100 and number(p, "WKHP") > 0
    ),
    ("public_coverage", "folktables"): lambda p: (
        number(p, "AGEP") < 65 and number(p, "PINCP") <= 30_000
    ),
}
POSITIVE = {
    "employment": lambda p: p["ESR"] == "1",
    "income": lambda p: number(p, "PINCP") > 50_000,
    "public_coverage": lambda p: p["PUBCOV"] == "1",
}


EVERYONE = [person for state in STATES for person in PEOPLE[state]]


def folder(path, year=2018, states=STATES):
    for state in states:
        archive(path, year, state, PEOPLE[state])
    return path


@pytest.fixture(scope="module")
def zips(tmp_path_factory):
    """The archives of three states, 2018."""
    return folder(tmp_path_factory.mktemp("zips"))


@pytest.fixture(scope="module")
def whole(zips):
    return load(zips)


def load(path, *arguments, **keywords):
    keywords.setdefault("test_fraction", 0.0)
    return acs(*arguments, source=path, **keywords)


def inputs(federation):
    return dict(zip(federation.schema.features, federation.pooled().X.T, strict=True))


def one_hot(person, feature):
    """What a feature should be, from the person's line alone."""
    column, _, code = feature.partition("=")
    if feature == "AGEP²":
        return value(person, "AGEP") ** 2
    if not code:
        return value(person, column)
    return float(value(person, column) == float(code))


@pytest.mark.parametrize(("task", "filter"), TASKS)
def test_rows_labels_and_inputs_are_those_of_folktables(zips, task, filter):
    federation = load(zips, task, filter=filter)
    assert federation.silo_names == STATES
    features = federation.schema.features
    columns = [c for c in TASKS[task, filter].inputs if c != "RAC1P"]
    named = dict.fromkeys(f.partition("=")[0].rstrip("²") for f in features)
    assert list(named) == columns
    ranged = [f for f in features if f.startswith(("OCCP", "POBP"))]
    for silo in federation.silos:
        kept = [p for p in PEOPLE[silo.name] if KEPT[task, filter](p)]
        rows = silo.rows()
        np.testing.assert_array_equal(rows.y, [POSITIVE[task](p) for p in kept])
        for j, feature in enumerate(features):
            if feature not in ranged:
                own = [one_hot(p, feature) for p in kept]
                np.testing.assert_array_equal(rows.X[:, j], own)
        names = [federation.schema.groups[code] for code in rows.group]
        assert names == [RACES[int(p["RAC1P"])] for p in kept]
    # "Not asked" is a category only where it can occur.
    unasked = {"MIL=0", "SCHL=0", "MIG=0", "DREM=0", "DREM=2"}
    if task == "employment":
        assert unasked & set(features) == (unasked if filter == "folktables" else set())
        assert {"DREM=1", "ESP=0", "AGEP", "AGEP²"} <= set(features)


@pytest.mark.parametrize("task", ["employment", "income"])
def test_ranges_hold_what_is_written(zips, task):
    """Every input but an income has a range by its meaning: `--epsilon` is enough."""
    federation = load(zips, task)
    X, ranges = inputs(federation), federation.ranges
    assert set(X) == set(ranges)
    for name, (low, high) in ranges.items():
        assert low <= X[name].min() <= X[name].max() <= high
    assert (ranges["AGEP"], ranges["AGEP²"]) == ((0, 100), (0, 10_000))


@pytest.mark.parametrize("year", YEARS)
def test_layouts_of_all_years_give_the_same_persons(tmp_path, whole, year):
    federation = load(folder(tmp_path, year), year=year)
    for code in (0, 12, 17):
        relp = [value(p, "RELP") for p in EVERYONE]
        if year >= 2019:  # a boarder (11) is no longer told from a housemate (12)
            relp = [12.0 if known == 11 else known for known in relp]
        np.testing.assert_array_equal(
            inputs(federation)[f"RELP={code}"], np.array(relp) == code
        )
    assert str(year) in federation.name
    assert "450 persons read, 450 kept" in federation.notes[0]
    # Inputs depend on neither the year nor the states.
    one = load(tmp_path, year=year, states=["WY"])
    assert one.schema.features == whole.schema.features


def test_occupations_and_birthplaces_become_groups(zips):
    people = [p for p in EVERYONE if KEPT["income", "folktables"](p)]
    X = inputs(load(zips, "income"))
    jobs, born = ([int(p[c]) for p in people] for c in ("OCCP", "POBP"))
    for name, own in (
        ("OCCP=management", [10 <= job < 500 for job in jobs]),
        ("OCCP=sales", [job == 4760 for job in jobs]),
        ("OCCP=military", [job == 9830 for job in jobs]),
        ("POBP=United States", [b < 60 for b in born]),
        ("POBP=Northern America", [b == 301 for b in born]),
    ):
        np.testing.assert_array_equal(X[name], own)
    for region in ("OCCP", "POBP"):
        total = sum(x for name, x in X.items() if name.startswith(f"{region}="))
        np.testing.assert_array_equal(total, 1.0)


@pytest.mark.parametrize(
    ("group", "count"), [("race", 9), ("sex", 2), (("race", "sex"), 18)]
)
def test_the_protected_attribute_is_no_input_and_the_other_is(zips, group, count):
    federation = load(zips, group=group)
    columns = {name.partition("=")[0] for name in federation.schema.features}
    assert ("RAC1P" in columns) == (group == "sex")
    assert ("SEX" in columns) == (group == "race")
    assert len(federation.schema.groups) == count
    if group == "sex":
        words = [federation.schema.groups[g] for g in federation.pooled().group]
        assert words == [SEXES[int(p["SEX"])] for p in EVERYONE]


def test_one_file_of_all_states_agrees(tmp_path, whole):
    path = tmp_path / "psam_pusa.csv"
    path.write_bytes(text(2018, "AL", EVERYONE))
    assert load(path).fingerprint == whole.fingerprint
    assert load(path, states=["WY", "al"]).silo_names == ("AL", "WY")


def test_a_parquet_extract_agrees(tmp_path, whole):
    pytest.importorskip("pyarrow")
    columns = [*TASKS["employment", "folktables"].inputs, "ST", "ESR"]
    frame = pd.DataFrame([{c: number(p, c) for c in columns} for p in EVERYONE])
    frame["ESR1"] = (frame.pop("ESR") == 1).astype("int8")
    frame.to_parquet(tmp_path / "extract.parquet")
    extract = load(tmp_path / "extract.parquet")
    assert extract.fingerprint == whole.fingerprint
    assert "extract.parquet" in extract.name


def extract_csv(path, columns):
    rows = [[int(value(p, c)) for c in columns] for p in PEOPLE["NY"]]
    pd.DataFrame(rows, columns=columns).to_csv(path, index=False)
    return path


def test_what_an_extract_lacks_is_said(tmp_path):
    path = extract_csv(tmp_path / "ny.csv", ["AGEP", "SCHL", "SEX", "RAC1P", "ESR"])
    federation = load(path, filter="filtered", states=["NY"])
    assert federation.schema.features[-1] == "SEX=1"
    lacking = "MAR, DIS, ESP, MIG, CIT, MIL, ANC, NATIVITY, RELP, DEAR, DEYE, DREM, GCL"
    notes = " ".join(federation.notes)
    assert lacking in notes
    assert "PWGTP" in notes


def test_an_extract_needs_label_attribute_and_state(tmp_path):
    path = extract_csv(tmp_path / "a.csv", ["AGEP", "SEX", "RAC1P", "ESR"])
    with raises(DataError, "needs-states", "NY"):
        load(path)
    path = extract_csv(tmp_path / "b.csv", ["AGEP", "SEX"])
    with raises(DataError, "missing-column", "ESR", "RAC1P"):
        load(path, states=["NY"])


@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        ({"task": "wealth"}, "wrong-value", "task"),
        ({"filter": "strict"}, "wrong-value", "filter"),
        ({"task": "income", "filter": "filtered"}, "wrong-value", "folktables"),
        ({"people": 0}, "wrong-value", "people"),
        ({"group": "age"}, "unknown-group", "age"),
        ({"year": 2016}, "wrong-value", "2017"),
        ({"year": 2020}, "not-published", "2020"),
        ({"states": "NY"}, "wrong-value", "NY"),
        ({"states": ["NY", "ny"]}, "wrong-value", "states"),
        ({"states": []}, "wrong-value", "states"),
    ],
)
def test_requests_that_make_no_sense(tmp_path, wrong, code, said):
    with raises(UsageError, code, said):
        acs(**{"task": "employment", "source": tmp_path, **wrong})


def test_some_people_of_each_state(zips, whole):
    some = load(zips, people=60, test_fraction=0.25)
    assert [len(silo.rows()) for silo in some.silos] == [45, 45, 45]
    assert some.rows("test") == 45
    assert any("180 drawn" in note for note in some.notes)
    assert load(zips, people=60, test_fraction=0.25).fingerprint == some.fingerprint
    for drawn, own in zip(some.silos, whole.silos, strict=True):
        known = {row.tobytes() for row in own.rows().X}
        for split in ("train", "test"):
            assert {row.tobytes() for row in drawn.rows(split).X} <= known
    assert load(zips, people=10_000).fingerprint == whole.fingerprint


# ------------------------------------------------------------------------- wrong files

DATA = text(2018, "WY", PEOPLE["WY"])
LINES = DATA.splitlines(keepends=True)


def changed(column, value, line=3):
    """The file with one value replaced; lines are counted from 1."""
    lines = DATA.decode().splitlines()
    fields = lines[line - 1].split(",")
    fields[header(2018).index(column)] = value
    lines[line - 1] = ",".join(fields)
    return "\n".join(lines).encode()


RENAMED = DATA.replace(b"SCHL", b"EDUC", 1).replace(b",MAR,", b",MARITAL,", 1)
CHILDREN = text(2018, "WY", [{**p, "AGEP": "05"} for p in PEOPLE["WY"]])
WRONG = {
    "other columns": (RENAMED, "missing-column", "SCHL", "MAR"),
    "text": (changed("SCHL", "BA", line=9), "not-numbers", "position 7", "SCHL", "BA"),
    "no such code": (changed("SCHL", "77"), "unknown-category", "SCHL", "77 (1)"),
    "no code": (changed("RAC1P", ""), "unknown-category", "RAC1P", "0 (1)"),
    "below zero": (changed("AGEP", "-5"), "unknown-category", "AGEP", "-5 (1)"),
    "half": (changed("MAR", "1.5"), "unknown-category", "MAR", "1.5 (1)"),
    "of another state": (text(2018, "AL", persons("AL", 5)), "other-states", "WY"),
    "no such state": (changed("ST", "3"), "other-states", "3"),
    "of another year": (text(2019, "WY", persons("WY", 5)), "other-year", "2019"),
    "empty": (b"", "damaged-file"),
    "a header": (LINES[0], "no-rows"),
    "nobody passes": (CHILDREN, "no-rows"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused_with_the_place(tmp_path, name):
    data, code, *said = WRONG[name]
    zip_file(tmp_path / "csv_pwy.zip", {member_name("WY"): data})
    with raises(DataError, code, *said):
        load(tmp_path, filter="filtered" if name == "nobody passes" else "folktables")


def flipped(path):
    archive(path.parent, 2018, "WY", PEOPLE["WY"])
    data = bytearray(path.read_bytes())
    data[2100] ^= 0xFF
    path.write_bytes(bytes(data))


ARCHIVES = {
    "cut": lambda p: p.write_bytes(b"PK"),
    "flipped": flipped,
    "nobody": lambda p: zip_file(p, {"readme.txt": b"x"}),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_bad_archives_are_refused(tmp_path, name):
    ARCHIVES[name](tmp_path / "csv_pwy.zip")
    with raises(DataError, "damaged-file", "csv_pwy.zip"):
        load(tmp_path)
    with raises(DataError, "file-missing", "AL, NY"):
        load(tmp_path, states=["NY", "WY", "AL"])
    with raises(DataError, "file-missing"):
        load(tmp_path / "none")


# --------------------------------------------------------------------------- downloads


def path_of(state):
    return f"/2018/1-Year/{archive_name(state)}"


def test_downloaded_once_then_from_the_cache(tmp_path, zips, whole, monkeypatch):
    files = {path_of(s): (zips / archive_name(s)).read_bytes() for s in STATES}
    keywords = {"states": STATES, "cache_dir": tmp_path, "test_fraction": 0.0}
    with serve(files) as web:
        monkeypatch.setattr(_acs, "ADDRESS", web.address)
        first = acs(**keywords)
        assert first.fingerprint == acs(**keywords).fingerprint == whole.fingerprint
        assert len(web.requests) == len(STATES)
        with raises(DataError, "download-failed", "csv_pak.zip", "404"):
            acs(**{**keywords, "states": ["AK", "NY"]})
    assert [len(silo) for silo in first.silos] == [150, 150, 150]


# --------------------------------------------------------------------------- real files

SHARED = Path(__file__).parents[3] / "shared" / "data"
SMALL = SHARED / "acs_employment_2024_mini400_nopuma.parquet"
THERE = tuple(state for state in FIPS if state not in ("CA", "TX", "PR"))


def there(path):
    return pytest.mark.skipif(not path.is_file(), reason=f"no '{path.name}' here")


def race_by_state(federation):
    """Rows per state and race over all splits."""
    counts = np.zeros((len(federation), len(federation.schema.groups)), dtype=int)
    for split in federation.splits:
        rows = federation.pooled(split)
        np.add.at(counts, (rows.silo, rows.group), 1)
    return counts


@there(SMALL)
def test_400_people_of_each_state_2024():
    pytest.importorskip("pyarrow")
    federation = acs(source=SMALL, year=2024, filter="filtered")
    assert federation.silo_names == THERE
    assert race_by_state(federation).sum(axis=1).tolist() == [400] * 49
    lacking = "inputs that the source does not have: ESP, ANC, RELP, GCL"
    assert lacking in federation.notes
    assert federation.schema.n_features == 49
