"""Long vectors in evidence: packed, read back to the bit, and refused if damaged."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from pffl.errors import ArtefactError
from pffl.records import read
from tests.inside import LONG, Packed, Pair, kept, numbers_of
from tests.inside import evidence_verify as verify


def long_vector(share: float, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    numbers = generator.normal(size=3 * LONG) * 1e-7
    numbers[generator.random(len(numbers)) > share] = 0.0
    return numbers


def test_a_short_vector_stays_a_list():
    numbers = long_vector(1.0)[: LONG - 1]
    assert kept(numbers) == numbers.tolist()
    assert np.array_equal(numbers_of(kept(numbers)), numbers)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.9, 1.0])
def test_a_long_one_comes_back_to_the_bit_and_verify_reads_it(share):
    numbers = long_vector(share)
    one = Pair(1.0, 0.5, kept(numbers))
    text = json.dumps(asdict(one))
    again = read(Pair, text, source="evidence")
    assert again == one
    assert np.array_equal(numbers_of(again.at), numbers)
    alone = verify.unpacked(json.loads(text))
    assert np.array_equal(alone["at"], numbers)
    assert alone["upper"] == 1.0
    if share < 0.1:  # zeros cost nothing
        assert len(text) < 17 * np.count_nonzero(numbers) + 200


def test_a_damaged_one_is_refused():
    good = kept(long_vector(0.01))
    assert isinstance(good, Packed)
    bad = [
        {"length": 5},
        {"length": 1 << 40},
        {"places": None},
        {"places": good.values},
        {"places": "%%%"},
        {"values": "AAAA"},
        {"values": good.values[:-4] + "////"},
    ]
    for change in bad:
        plain = {"upper": 1.0, "lower": 0.0, "at": asdict(good) | change}
        with pytest.raises(ArtefactError):
            read(Pair, plain, source="evidence")
        with pytest.raises(ValueError, match=r"."):
            replace(good, **change)


def test_verify_reads_no_number_twice():
    good = kept(long_vector(0.01))
    one = np.array([1.0], "<f8").tobytes()
    bad = asdict(good) | {"values": base64.b64encode(one).decode()}
    with pytest.raises(ValueError, match="1 numbers at"):
        verify.unpacked({"at": bad})
