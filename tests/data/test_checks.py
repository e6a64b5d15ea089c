from __future__ import annotations

from dataclasses import replace

import numpy as np

from pffl.data import Federation, Rows, Silo
from tests.data.tables import SCHEMA
from tests.data.tables import rows as drawn
from tests.inside import equal_people_rows


def test_equal_rows_are_counted():
    train, test = drawn(500), drawn(100, seed=1)
    assert equal_people_rows([train], [test]) == 0
    both = Rows.joined([test, train.take(slice(0, 7))])
    parts = [train.take(slice(0, 3)), train.take(slice(3, 500))]
    assert equal_people_rows(parts, [both, train.take(slice(9, 10))]) == 8


def test_people_on_both_sides_are_counted_by_their_ids():
    parts = {"train": drawn(50), "test": drawn(20, seed=1)}
    who = {"train": np.arange(50), "test": np.arange(48, 68)}
    known = {name: replace(parts[name], person=who[name]) for name in parts}
    federation = Federation(SCHEMA, (Silo("a", 0, known),))
    assert (federation.by_person, federation.overlap) == (True, 2)
    mixed = {"train": parts["train"], "test": known["test"]}
    assert not Federation(SCHEMA, (Silo("a", 0, mixed),)).by_person
    assert Federation(SCHEMA, (Silo("a", 0, {"train": drawn(9)}),)).overlap == 0
