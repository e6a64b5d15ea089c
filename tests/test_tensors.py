import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from pffl.errors import Malformed
from pffl.tensors import HEADER, Parcel, pack, unpack
from tests.raising import raises

ARRAYS = st.dictionaries(
    st.text("abcxyz_", min_size=1, max_size=8),
    st.sampled_from([np.float64, np.float32, np.int64, np.uint8]).flatmap(
        lambda kind: arrays_of.arrays(
            kind, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
        )
    ),
    max_size=5,
)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


def safetensors(table, data=b""):
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + data


def table(**entries):
    return {"__metadata__": {HEADER: "{}"}, **entries}


def entry(dtype="F64", shape=(1,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@given(st.dictionaries(st.text(max_size=5), PLAIN, max_size=4), ARRAYS)
@settings(max_examples=200, deadline=None)
def test_what_is_unpacked_is_what_was_packed(header, arrays):
    content = pack(Parcel(header, arrays))
    again = unpack(content)
    assert dict(again.header) == header
    assert set(again.arrays) == set(arrays)
    for name, array in arrays.items():
        assert again.arrays[name].dtype == array.dtype
        assert again.arrays[name].shape == array.shape
        assert again.arrays[name].tobytes() == array.tobytes()
    assert pack(again) == content


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "bad-frame"),
        (b"\x80\x04K\x01.", "bad-frame"),
        ((2**63).to_bytes(8, "little"), "bad-frame"),
        (safetensors({}), "bad-frame"),
        (safetensors({"__metadata__": {HEADER: "{}", "more": ""}}), "bad-frame"),
        (safetensors({"__metadata__": {HEADER: 3}}), "bad-frame"),
        (safetensors({"__metadata__": {HEADER: "[1]"}}), "wrong-value"),
        (safetensors({"__metadata__": {HEADER: '{"a": NaN}'}}), "not-json"),
        (safetensors({"__metadata__": {HEADER: "[" * 10_000}}), "not-json"),
        (safetensors(table(x=entry(shape=(10**9,)))), "bad-frame"),
        (safetensors(table(x=entry(shape=(0, 2**62), offsets=(0, 0)))), "bad-array"),
        (safetensors(table(x=entry(shape=(1,) * 9)), bytes(8)), "bad-array"),
        (safetensors(table(x=entry("F16", (4,))), bytes(8)), "bad-array"),
        (safetensors(table(x=entry(), y=entry()), bytes(8)), "bad-frame"),
        (safetensors(table(x=entry(offsets=(8, 16))), bytes(16)), "bad-frame"),
        (safetensors(table(x=entry()), bytes(9)), "bad-frame"),
        (
            safetensors(
                table(**{str(i): entry(shape=(0,), offsets=(0, 0)) for i in range(999)})
            ),
            "too-many-arrays",
        ),
    ],
)
def test_anything_else_is_refused_with_the_reason(content, code):
    with raises(Malformed, code):
        unpack(content)


def test_a_parcel_larger_than_accepted_is_refused_before_it_is_read():
    content = pack(Parcel({}, {"x": np.zeros(1000)}))
    with raises(Malformed, "too-large", "1,000"):
        unpack(content, largest=1000)


def test_ten_thousand_mutations_raise_nothing_else():
    arrays = {
        "x": np.arange(6.0).reshape(2, 3),
        "n": np.array(3),
        "e": np.zeros((0, 2)),
    }
    content = pack(Parcel({"a": [1, 2.5, "é"], "b": None}, arrays))
    draw, read = np.random.default_rng(0), 0
    for _ in range(10_000):
        mutated = bytearray(content)
        for _ in range(draw.integers(1, 5)):
            mutated[draw.integers(len(mutated))] = draw.integers(256)
        try:
            unpack(bytes(mutated[: draw.integers(len(mutated)) or None]))
            read += 1
        except Malformed:
            pass
    assert read < 10_000
