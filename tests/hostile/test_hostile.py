"""Hundreds of random problems, and no false sentence: see `problems` and `referee`.

The whole is slow; what it found is in benchmarks/hostile.md, written by
`python -m tests.hostile.record`.
"""

from __future__ import annotations

import warnings

import pytest

from tests.hostile import problems, referee
from tests.hostile.record import PROBLEMS, STEP, examine_many

#: Of every kind, each small enough to be solved and judged in a moment.
QUICK = {
    f"{kind}, {inputs}, {cells}": {
        "kind": kind,
        "inputs": inputs,
        "cells": cells,
        "rows": 50,
        "features": 2,
        "silos": 3,
        "method": "exact",
    }
    for kind, inputs, cells in (
        *((kind, "plain", "overlapping") for kind in problems.KINDS),
        *((kind, "far", "groups") for kind in problems.KINDS),
        *((kind, "collinear", "crossed") for kind in problems.KINDS),
        *((kind, "mixed", "silos") for kind in problems.KINDS),
        *((kind, "cauchy", "groups") for kind in problems.KINDS),
        *((kind, "separable", "crossed") for kind in problems.KINDS),
        *((kind, "constant", "overlapping") for kind in problems.KINDS),
        *((kind, "flags", "labels") for kind in ("logistic", "softmax")),
        *((kind, "tiny", "groups") for kind in problems.KINDS),
        *((kind, "huge", "groups") for kind in problems.KINDS),
    )
}


@pytest.mark.parametrize("name", QUICK)
def test_no_false_sentence(name: str) -> None:
    number = list(QUICK).index(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = referee.examine(problems.draw(10_000 + number, **QUICK[name]))
    assert not found.complaints, (found.status, found.facts, found.complaints)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, PROBLEMS, STEP))
def test_no_false_sentence_in_any_of_many(first: int) -> None:
    for found in examine_many(range(first, first + STEP)):
        assert not found.complaints, (found.status, found.facts, found.complaints)
