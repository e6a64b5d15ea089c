from __future__ import annotations

from dataclasses import replace

import numpy as np

from pffl.data import Federation, Rows, Silo
from tests.data.tables import SCHEMA
from tests.data.tables import rows as drawn
from tests.inside import leaked_rows, row_hashes, shared_ids


def discrete(count, seed=0, values=3):
    rng = np.random.default_rng(seed)
    X, group = rng.integers(0, values, (count, 2)), rng.integers(0, 2, count)
    return Rows.of(X, np.arange(count) % 2, group)


def test_leaks_are_what_chance_does_not_explain():
    train, test = drawn(500), drawn(100, seed=1)
    assert leaked_rows([train], [test]) == (0, 0)
    assert leaked_rows([train], [Rows.joined([test, train.take(slice(0, 7))])])[0] == 7
    assert leaked_rows([discrete(500)], [discrete(100, seed=1)])[0] == 0
    # About one row in 20 has a twin by chance, in train and between train and test.
    train, test = discrete(5_000, values=170), discrete(2_000, seed=1, values=170)
    assert np.isin(row_hashes([test]), row_hashes([train])).sum() > 50
    assert leaked_rows([train], [test])[0] == 0
    both = Rows.joined([test, train.take(slice(0, 300))])
    assert leaked_rows([train], [both])[0] >= 300


def test_rows_in_two_silos_are_counted():
    one, other = drawn(300), drawn(200, seed=1)
    assert leaked_rows([one, other], []) == leaked_rows([one], []) == (0, 0)
    twice = Rows.joined([other, one.take(slice(0, 5))])
    assert leaked_rows([one, twice], []) == (0, 10)
    assert shared_ids(np.array([1, 2, 2, 3, 1]), np.array([0, 0, 0, 1, 1])) == 2


def test_hashes_do_not_depend_on_how_rows_are_cut():
    rows = drawn(1_000)
    cut = [rows.take(slice(*ends)) for ends in ((0, 1), (1, 400), (400, 1_000))]
    np.testing.assert_array_equal(row_hashes([rows]), row_hashes(cut))
    assert len(set(row_hashes([rows]).tolist())) == 1_000
    zeros = [Rows.of([[zero, 1.0]], [0], [0]) for zero in (0.0, -0.0)]
    assert row_hashes(zeros[:1]) == row_hashes(zeros[1:])


def test_people_on_both_sides_are_counted_by_their_ids():
    parts = {"train": drawn(50), "test": drawn(20, seed=1)}
    who = {"train": np.arange(50), "test": np.arange(48, 68)}
    known = {name: replace(parts[name], person=who[name]) for name in parts}
    federation = Federation(SCHEMA, (Silo("a", 0, known),))
    assert (federation.by_person, federation.overlap) == (True, 2)
    mixed = {"train": parts["train"], "test": known["test"]}
    assert not Federation(SCHEMA, (Silo("a", 0, mixed),)).by_person
    assert Federation(SCHEMA, (Silo("a", 0, {"train": drawn(9)}),)).overlap == 0
