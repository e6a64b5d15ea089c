"""Which rows belong to which cell: every constraint against a rule per row."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.constraints import Both, Cells
from pffl.data import Schema
from tests.helpers import make_federation, make_schema

SEX, RACE = ("f", "m"), ("p", "q", "r")
SCHEMA = make_schema(attributes=(("sex", SEX), ("race", RACE)))
FEDERATION = make_federation(3, schema=SCHEMA, sizes=(50, 30, 20))
POOLED = FEDERATION.pooled("train")
# Group codes count through race within sex: the rule is written out here once more.
row_sex = np.array(SEX)[POOLED.group // 3]
row_race = np.array(RACE)[POOLED.group % 3]
row_label = np.array(["class 0", "class 1"])[POOLED.y.astype(int)]


def cells_of(constraint) -> Cells:
    return constraint.cells(SCHEMA, FEDERATION.silo_names)


def masks(cells: Cells, schema: Schema = SCHEMA) -> np.ndarray:
    """Mark the pooled rows of each cell, as the silos would."""
    parts = []
    for silo in FEDERATION.silos:
        rows = silo.rows("train")
        parts.append(cells.of_silo(silo.index)[:, schema.strata(rows.group, rows.y)])
    return np.concatenate(parts, axis=1).astype(bool)


def assert_rows(constraint, rule) -> None:
    """Compare each cell's rows with `rule(name)`."""
    cells = cells_of(constraint)
    for name, mask in zip(cells.names, masks(cells), strict=True):
        assert mask.any()
        np.testing.assert_array_equal(mask, rule(name), err_msg=name)


BGL, CBGL = pffl.BoundedGroupLoss, pffl.ConditionalBoundedGroupLoss
NAMES = np.array(FEDERATION.silo_names)[POOLED.silo]


def crossed(sex, race):
    return (row_sex == sex) & (row_race == race)


@pytest.mark.parametrize(
    ("constraint", "many", "rule"),
    [
        (BGL(0.5, by="sex"), 2, lambda name: name == row_sex),
        (BGL(0.5, by="race"), 3, lambda name: name == row_race),
        (BGL(0.5), 6, lambda name: crossed(*name.split(" × "))),
        (BGL(0.5, by=("race", "sex")), 6, lambda n: crossed(*n.split(" × ")[::-1])),
        (
            CBGL(0.5, by="sex"),
            4,
            lambda n: (row_sex == n[0]) & (row_label == n.split(", ")[1]),
        ),
        (pffl.PerSilo(0.5), 3, lambda name: name == NAMES),
    ],
)
def test_cells_have_their_rows(constraint, many, rule):
    assert len(cells_of(constraint)) == many
    assert_rows(constraint, rule)
    np.testing.assert_array_equal(masks(cells_of(constraint)).sum(axis=0), 1)


@pytest.mark.parametrize("labels", [("class 1",), (1,), ("1",)])
def test_conditional_cells_of_some_labels_by_name_or_code(labels):
    constraint = pffl.ConditionalBoundedGroupLoss(0.5, labels=labels, by="sex")
    assert cells_of(constraint).names == ("f, class 1", "m, class 1")
    np.testing.assert_array_equal(
        masks(cells_of(constraint)).any(axis=0), row_label == "class 1"
    )


def test_overlapping_cells_keep_all_their_rows():
    sexes = pffl.BoundedGroupLoss(0.6, by="sex")
    races = pffl.BoundedGroupLoss(0.7, by="race")
    both = cells_of(sexes & races & pffl.PerSilo(0.9))
    assert len(both) == 2 + 3 + 3
    np.testing.assert_allclose(both.bounds, [0.6] * 2 + [0.7] * 3 + [0.9] * 3)
    np.testing.assert_array_equal(masks(both).sum(axis=0), 3)


def test_equal_names_of_two_constraints_are_told_apart():
    both = Both(pffl.BoundedGroupLoss(0.6, by="sex"), pffl.PerSilo(0.7))
    cells = both.cells(SCHEMA, ("f", "somewhere"))
    assert cells.names == ("sex: f", "m", "per-silo: f", "somewhere")


def test_attributes_with_equal_values_are_told_apart():
    schema = make_schema(
        attributes=(("veteran", ("no", "yes")), ("old", ("no", "yes")))
    )
    both = pffl.BoundedGroupLoss(0.6, by="veteran") & pffl.BoundedGroupLoss(
        0.6, by="old"
    )
    names = both.cells(schema, ("a",)).names
    assert len(set(names)) == len(names)


def test_totals_and_spread_are_sums_over_each_cells_rows():
    constraint = pffl.BoundedGroupLoss(0.5, by="sex") & pffl.PerSilo(0.5)
    cells, rng = cells_of(constraint), np.random.default_rng(0)
    values = rng.normal(size=len(POOLED.y))
    strata = SCHEMA.strata(POOLED.group, POOLED.y)
    by_silo = np.zeros((3, SCHEMA.n_strata))
    np.add.at(by_silo, (POOLED.silo, strata), values)
    member = masks(cells)
    np.testing.assert_allclose(cells.totals(by_silo), member @ values, atol=1e-12)
    weights = rng.normal(size=len(cells))
    per_row = cells.spread(weights, 3)[POOLED.silo, strata]
    np.testing.assert_allclose(per_row, weights @ member, atol=1e-12)
    taken = cells.take([4, 0])
    assert taken.names == (cells.names[4], cells.names[0])
    np.testing.assert_array_equal(masks(taken), member[[4, 0]])
