"""How the notions relate: CBGL implies BGL, and minimax is BGL at (0, 1, 0)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.methods import Exact
from tests.helpers import group_masks, make_federation, make_schema
from tests.saddle import Oracle

SCHEMA = make_schema(attributes=(("group", ("a", "b", "c")),))


@settings(max_examples=100)
@given(
    losses=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 1), st.floats(0, 10)),
        min_size=1,
        max_size=40,
    ),
    slack=st.floats(0, 1),
)
def test_cbgl_implies_bgl_at_the_expected_bound(losses, slack):
    # ζ_y: what the losses reach, and a little more. Then group a's mean loss is at
    # most E[ζ_y | a], and at most E[ζ_y] when labels are spread alike.
    group, y, loss = (np.array(column) for column in zip(*losses, strict=True))
    silos = ("one",)
    conditional = pffl.ConditionalBoundedGroupLoss(0.0).cells(SCHEMA, silos)
    groups = pffl.BoundedGroupLoss(0.0).cells(SCHEMA, silos)
    sums = np.zeros((1, SCHEMA.n_strata))
    counts = np.zeros((1, SCHEMA.n_strata))
    stratum = SCHEMA.strata(group, y.astype(float))
    np.add.at(sums[0], stratum, loss)
    np.add.at(counts[0], stratum, 1)
    cell_counts = conditional.totals(counts)
    means = conditional.totals(sums) / np.maximum(cell_counts, 1)
    label_of_cell = np.array([name.endswith("class 1") for name in conditional.names])
    zeta = np.array(
        [means[label_of_cell == label].max() + slack for label in (False, True)]
    )
    assert (means <= zeta[label_of_cell.astype(int)]).all()
    for a, (total, rows) in enumerate(
        zip(groups.totals(sums), groups.totals(counts), strict=True)
    ):
        if rows:
            expected = np.mean([zeta[label] for label in y[group == a]])
            assert total / rows <= expected + 1e-12


def test_a_model_that_meets_cbgl_meets_bgl():
    federation = make_federation(2, sizes=(80, 120, 60))
    zeta = {"class 0": 0.75, "class 1": 0.72}
    method = Exact(multiplier_bound=200)
    solution = pffl.solve(
        federation,
        pffl.ConditionalBoundedGroupLoss(zeta),
        method=method,
        random_state=0,
    )
    assert solution.status == "met"
    oracle = Oracle.of(federation, group_masks(federation), [0.0, 0.0])
    labels = federation.pooled("train").y
    for mask, loss in zip(oracle.cells, oracle.violation(solution.w), strict=True):
        share = labels[mask].mean()
        assert loss <= share * zeta["class 1"] + (1 - share) * zeta["class 0"] + 1e-6


MINMAX_BGL = {"multiplier_bound": 1.0, "risk_weight": 0.0}


@pytest.mark.filterwarnings("ignore:a bound of 0")
def test_minmax_is_bgl_at_0_1_0_for_exact():
    federation = make_federation(4, sizes=(80, 50))
    minmax = pffl.solve(federation, pffl.MinMax(), method=Exact(), random_state=1)
    bgl = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(0),
        method=Exact(**MINMAX_BGL),
        random_state=1,
    )
    assert minmax.status == "no bounds"
    assert bgl.status == "impossible"
    np.testing.assert_array_equal(minmax.w, bgl.w)
    np.testing.assert_array_equal(minmax.multipliers, bgl.multipliers)
    assert minmax.gap == bgl.gap
    # Nothing beats it, says an independent solver.
    oracle = Oracle.of(
        federation, group_masks(federation), [0, 0], beta=0.0, budget=1.0
    )
    value, _ = oracle.saddle(radius=100)
    assert oracle.upper(minmax.w) == pytest.approx(value, abs=1e-6)
    assert max(row.train_loss for row in minmax.cell_results) == pytest.approx(
        value, abs=1e-6
    )
