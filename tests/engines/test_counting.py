"""The census of many silos at once against that of one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pffl.engines import Local, Reference
from pffl.engines.local import counting
from pffl.questions import Census
from tests.helpers import from_silos, make_federation, make_schema

SIZES = (7, 1, 130, 1, 1, 64, 3, 40)
TESTS = (0, 2, 0, 0, 5, 1, 0, 3)


def weighted(federation, seed=0):
    """The same rows with weights, some of them 0."""
    rng = np.random.default_rng(seed)
    silos = []
    for silo in federation.silos:
        splits = {
            split: replace(
                rows,
                weight=np.append(1.5, rng.choice([0.0, 0.25, 3.0], len(rows) - 1))
                if len(rows)
                else np.zeros(0),
            )
            for split, rows in silo.splits.items()
        }
        silos.append(replace(silo, splits=splits))
    return from_silos(federation, silos)


@pytest.mark.parametrize("labels", [2, 3, 0])
@pytest.mark.parametrize("weigh", [False, True])
@pytest.mark.parametrize("numbers", [1, 90, 2**21])  # silos alone, some, all at once
def test_counts_many_silos_as_one_by_one(monkeypatch, labels, weigh, numbers):
    monkeypatch.setattr(counting, "NUMBERS", numbers)
    schema = make_schema(labels=labels)
    federation = make_federation(3, sizes=SIZES, test=TESTS, schema=schema)
    if weigh:
        federation = weighted(federation)
    for split in ("train", "test"):
        question = Census(schema, split)
        fast, plain = (
            Local(federation).ask(question),
            Reference(federation).ask(question),
        )
        for name, of in question.total_type.declared.items():
            mine, theirs = getattr(fast, name), getattr(plain, name)
            if of.dtype is np.float64:
                np.testing.assert_allclose(mine, theirs, rtol=1e-13, atol=1e-12)
            else:
                np.testing.assert_array_equal(mine, theirs)
            assert np.shape(mine) == np.shape(theirs)
