from __future__ import annotations

import json

import numpy as np

from pffl.data import TableEncoder
from pffl.errors import DataError, UsageError
from tests.data.tables import build, people
from tests.raising import raises


def test_several_protected_columns_stay_out_of_the_inputs():
    federation = build(group=["sex", "race"])
    assert len(federation.schema.groups) == 6
    assert not any(f.startswith(("sex", "race")) for f in federation.schema.features)


def test_options_are_checked_together():
    with raises(UsageError, "needs-silos") as caught:
        build(silos=3, missing="guess", partition="round", group=[])
    assert len(caught.value.codes) == 4
    with raises(UsageError, "needs-column", "COLUMN"):
        build(silo=None, silos=3, partition="quantile_bands")
    with raises(UsageError, "needs-silos", "silos="):
        build(silo=None, partition="dirichlet")
    for wrong in ({"id": "hired"}, {"id": "sex"}, {"group": "hired"}):
        with raises(DataError, "wrong-column", *wrong.values()):
            build(**wrong)
    known = ("'hird': did you mean 'hired'", "'sexx': did you mean 'sex'", "'zzz'")
    with raises(DataError, "missing-column", *known, "'age', 'income'"):
        build(label="hird", group="sexx", drop=["zzz"])


def test_new_rows_are_encoded_alike():
    frame = people()
    federation = build(frame, test_fraction=0.0)
    rows = federation.encoding.rows(frame[frame["branch"] == "north"])
    np.testing.assert_array_equal(rows.X, federation.silos[0].rows().X)
    np.testing.assert_array_equal(rows.group, federation.silos[0].rows().group)
    np.testing.assert_array_equal(
        federation.encoding.inputs(frame.drop(columns=["hired", "sex"]))[0],
        federation.encoding.rows(frame).X[0],
    )


def test_what_was_decided_is_kept_as_plain_data():
    frame = people().astype({"age": float})
    frame.loc[:2, ["age", "job"]] = None
    encoding = build(frame, missing="indicator").encoding
    plain = json.loads(json.dumps(encoding.as_dict()))
    told = {"name": "age", "kind": "number", "indicator": True}
    assert plain["columns"][0] == told
    again = TableEncoder.from_dict(plain)
    assert again == encoding
    np.testing.assert_array_equal(again.rows(frame).X, encoding.rows(frame).X)
    plain["columns"][0]["kind"] = "date"
    with raises(DataError, "wrong-value"):
        TableEncoder.from_dict(plain)


def test_new_rows_with_flaws_are_refused_in_one_message():
    federation = build()
    frame = people().astype({"age": object})
    frame.loc[0, "job"] = "king"
    frame.loc[1, "age"] = "old"
    frame.loc[2, "sex"] = None
    frame.loc[3, "hired"] = "perhaps"
    parts = ("'job'", "'king' (row 0)", "'old' (row 1)", "'sex': 1", "'perhaps'")
    with raises(DataError, "unknown-category", *parts):
        federation.encoding.rows(frame)
    with raises(DataError, "missing-column", "age", "hired"):
        federation.encoding.rows(people().drop(columns=["age", "hired"]))


def test_declared_values_leave_the_others_as_one():
    names = [f"z{k:02d}" for k in range(40) for _ in range(k)]
    frame = people(600).assign(zip=[names[i * 7 % len(names)] for i in range(600)])
    counts = frame["zip"].value_counts()
    kept = sorted(counts.index[counts >= 20])
    federation = build(frame, columns={"zip": {"values": kept}}, test_fraction=0.0)
    column = next(c for c in federation.encoding.columns if c.name == "zip")
    assert column.values == (*kept, "other")
    again = TableEncoder.from_dict(federation.encoding.as_dict())
    X = again.inputs(frame[:2].assign(zip=[kept[0], "never seen"]))
    names = again.schema.features
    assert X[0, names.index(f"zip={kept[0]}")] == X[1, names.index("zip=other")] == 1
    both = X[:, [names.index(f) for f in names if f.startswith("zip=")]]
    np.testing.assert_array_equal(both.sum(axis=1), 1)
    total = federation.pooled().X[:, names.index("zip=other")].sum()
    assert total == counts[counts < 20].sum()


def test_a_bad_cell_is_named_with_its_line(tmp_path):
    frame = people().astype({"income": str})
    frame.loc[119, "income"] = "12x"
    text = frame.to_csv(index=False)
    (tmp_path / "people.csv").write_text(text)
    with raises(DataError, "not-numbers", "12x", "1", "121"):
        build(tmp_path / "people.csv")
    text = text.replace("clerk", '"a\nclerk"').replace("age,", "\nage,", 1)
    (tmp_path / "people.csv").write_text(text)
    line = next(k for k, t in enumerate(text.split("\n"), start=1) if "12x" in t)
    assert line > 122
    with raises(DataError, "not-numbers", line):
        build(tmp_path / "people.csv")
