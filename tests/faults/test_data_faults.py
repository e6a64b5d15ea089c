"""The data rows of the fault table, numbered alike."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pffl.data import DataWarning, Federation, Rows, Silo
from pffl.errors import DataError
from tests.data.tables import SCHEMA, build, people, rows, silo
from tests.raising import raises


def test_fault_01_silo_without_rows():
    empty = [Silo(name, k, {"train": rows(0)}) for k, name in ((1, "b"), (2, "c"))]
    with raises(DataError, "no-training-rows", "b, c"):
        Federation(SCHEMA, (silo("a"), *empty))
    given = (SCHEMA, rows(4), np.array([0, 2, 2, 0]), ("a", "b", "c"))
    kept = Federation.from_rows(*given)
    assert kept.silo_names == ("a", "c")
    assert kept.notes == ("dropped silos without rows: b",)
    assert [s.index for s in kept.silos] == [0, 1]


def test_fault_05_one_label_in_a_silo_is_fine_in_all_is_not():
    one = Rows(np.zeros((2, 2)), np.array([1.0, 1.0]), np.array([0, 1]))
    alone = Silo("a", 0, {"train": one})
    assert len(Federation(SCHEMA, (alone, silo("b", 1)))) == 2
    with raises(DataError, "one-class", "yes"):
        Federation(SCHEMA, (alone,))
    with raises(DataError, "one-class", "hired"):
        build(people().assign(hired="yes"))


def test_fault_06_nan_in_inputs():
    bad, worse = rows(5, seed=1), rows(5, seed=2)
    bad.X[1, 0] = np.nan
    bad.X[2:4, 1] = -np.inf
    worse.X[0, 0] = np.inf
    silos = (silo("a"), Silo("b", 1, {"train": bad}), Silo("c", 2, {"train": worse}))
    told = ("'b', train", "'age' (1), 'income' (2)", "'c', train")
    with raises(DataError, "not-finite", *told) as caught:
        Federation(SCHEMA, silos)
    assert "silo 'a'" not in str(caught.value)


def test_fault_07_missing_group_value():
    frame = people()
    frame.loc[[3, 8], "sex"] = None
    with raises(DataError, "missing-values", "'sex': 2", "columns="):
        build(frame)
    known = {"sex": {"values": ["f", "m", "missing"]}}
    kept = build(frame, columns=known, test_fraction=0.0)
    assert kept.schema.attributes[0].values == ("f", "m", "missing")
    assert kept.rows() == len(frame)
    assert (kept.pooled().group == 2).sum() == 2
    with raises(DataError, "missing-values", "1"):
        Federation.from_arrays(
            np.zeros((2, 1)), [0, 1], sensitive_features=["f", None], silo=[0, 0]
        )


@pytest.mark.parametrize(
    ("no", "yes"), [(-1, 1), (1, 2), (False, True), ("bad", "good"), (0.0, 1.0)]
)
def test_fault_09_label_values_are_mapped(no, yes):
    frame = people()
    frame["hired"] = np.where(frame["hired"] == "yes", yes, no)
    federation = build(frame, test_fraction=0.0)
    shown = [str(int(v)) if isinstance(v, float) else str(v) for v in (no, yes)]
    assert federation.schema.labels == tuple(shown)
    assert federation.pooled().y.sum() == (frame["hired"] == yes).sum()


def test_fault_09_different_mapping_between_silos():
    frame = people()
    code = {("north", "no"): 0, ("north", "yes"): 1, ("south", "no"): 1}
    pairs = zip(frame["branch"], frame["hired"], strict=True)
    frame["hired"] = [code.get(pair, 2) for pair in pairs]
    with raises(DataError, "silos-differ", "'north' ['0', '1']"):
        build(frame)
    assert build(frame, columns={"hired": {"values": [0, 1, 2]}}).schema.labels == (
        "0",
        "1",
        "2",
    )


def test_fault_12_protected_attribute_among_the_inputs():
    with pytest.warns(DataWarning, match="among the inputs: 'sex'"):
        assert "sex=f" in build(people(), inputs=["sex"]).schema.features
    assert "sex=f" not in build(people()).schema.features


def test_fault_13_constant_and_identifier_columns():
    frame = people().assign(
        always=7,
        who=lambda d: [f"person {i}" for i in d.index],
        number=lambda d: d.index + 1000,
    )
    with pytest.warns(DataWarning) as caught:
        features = build(frame).schema.features
    told = sorted(str(w.message).split("'")[1] for w in caught)
    assert told == ["number", "who"]
    assert {"always", "number"} <= set(features)
    assert not any(f.startswith("who") for f in features)


def test_fault_14_duplicate_silo_names():
    with raises(DataError, "repeated-name", "a, b"):
        Federation(SCHEMA, tuple(silo(n, k) for k, n in enumerate("aabbc")))


def test_fault_15_same_rows_in_train_and_test_or_in_two_silos():
    frame = people(300)
    doubled = pd.concat([frame, frame[:8]], ignore_index=True)
    who = [*range(300), *range(8)]
    federation = build(doubled.assign(who=who), id="who", random_state=2)
    assert federation.by_person
    assert federation.overlap == 0
    assert "who" not in federation.schema.features
    turn = {"north": "south", "south": "north"}
    other = frame[:5].assign(branch=frame["branch"][:5].map(turn))
    both = pd.concat([frame, other]).assign(who=[*range(300), *range(5)])
    with pytest.warns(DataWarning, match="in more than one silo .5 more"):
        build(both, id="who", test_fraction=0.0)
