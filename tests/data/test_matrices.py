"""The encoder's matrices are those that version 0.2 made, entry for entry."""

from __future__ import annotations

import json

from tests.data.matrices import RECORDED, record


def test_every_recorded_matrix_is_made_again():
    known, found = json.loads(RECORDED.read_text()), record()
    assert found.keys() == known.keys()
    assert [name for name in known if found[name] != known[name]] == []
