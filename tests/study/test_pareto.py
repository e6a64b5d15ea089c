import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.inside import front


@given(
    arrays(
        float,
        st.tuples(st.integers(0, 25), st.just(2)),
        elements=st.sampled_from([0.0, 1.0, 2.0, 3.0, np.nan]),
    )
)
def test_front_is_what_nothing_beats(values):
    marked = front(values)
    known = ~np.isnan(values).any(axis=1)
    assert not marked[~known].any()
    for i in np.flatnonzero(known):
        beaten = any(
            (values[j] <= values[i]).all() and (values[j] < values[i]).any()
            for j in np.flatnonzero(known)
        )
        if marked[i]:
            assert not beaten
        elif not beaten:  # an equal row stands for it
            assert any(
                marked[j] and (values[j] == values[i]).all() for j in range(len(values))
            )
