"""Bounds: one or many, by name, and all their problems at once."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.data import Attribute, Schema
from pffl.errors import DataError, UsageError
from tests.helpers import make_schema
from tests.inside import named
from tests.raising import raises

SCHEMA = make_schema()
CONSTRAINTS = [
    pffl.BoundedGroupLoss,
    pffl.ConditionalBoundedGroupLoss,
    pffl.PerSilo,
]


BGL, CBGL = pffl.BoundedGroupLoss, pffl.ConditionalBoundedGroupLoss
LABEL = SCHEMA.label_names[1]
MANY = tuple(f"site {n}" for n in range(5000))


@pytest.mark.parametrize(
    ("make", "code", "names"),
    [
        *[(kind, "needs-bound", ()) for kind in CONSTRAINTS],
        *[
            (lambda kind=kind, bad=bad: kind(bad), "wrong-value", (kind.__name__, bad))
            for kind in CONSTRAINTS
            for bad in (-0.1, float("nan"), float("inf"), "0.5", True, [0.5])
        ],
        (
            lambda: BGL({"f": -1.0, "m": float("nan")}),
            "wrong-value",
            ("2 problems", "bound of f", "bound of m"),
        ),
    ],
)
def test_a_bad_bound_is_refused_by_name(make, code, names):
    with raises(UsageError, code, *names):
        make()


@pytest.mark.parametrize(
    ("constraint", "silos", "code", "names"),
    [
        (BGL({"f": 0.5, "x": 0.5, "y": 0.5}), "a", "unknown-cell", "2xy"),
        (BGL({"women": 0.5}), "a", "unknown-cell", "fm"),
        (pffl.PerSilo({"a11": 0.5}), ("a1", "b"), "unknown-cell", ("a1",)),
        (pffl.PerSilo({"?": 0.5}), MANY, "unknown-cell", ("4,970",)),
        (CBGL({f"{LABEL}x": 0.5}), "a", "unknown-cell", (LABEL,)),
        (
            CBGL({"class 0": 0.3, "class 1": 0.4}, labels=("class 1",)),
            "a",
            "unknown-label",
            "0",
        ),
        (CBGL(0.5, labels=("class 2",)), "a", "unknown-label", "2"),
        (BGL({}), "a", "needs-bound", ()),
        (BGL({"f": 0.4, "sex=f": 0.3}), "a", "repeated-bound", ()),
    ],
)
def test_bounds_of_no_cell_are_refused_by_name(constraint, silos, code, names):
    with raises(UsageError, code, *names):
        constraint.cells(SCHEMA, silos)


def test_what_a_schema_does_not_have_is_refused():
    with raises(UsageError, "numeric-target"):
        CBGL(0.5).cells(make_schema(labels=0), ["a"])
    with raises(DataError, "unknown-group", "age"):
        BGL(0.5, by="age").cells(SCHEMA, ["a"])


def test_what_has_no_bound_is_no_cell():
    cells = pffl.BoundedGroupLoss({"m": 0.5}).cells(SCHEMA, ("a",))
    assert (cells.names, cells.unbounded) == (("m",), ("f",))
    whole = pffl.BoundedGroupLoss(0.5).cells(SCHEMA, ("a",))
    assert whole.unbounded == ()
    np.testing.assert_array_equal(cells.membership, whole.membership[1:])
    silos = pffl.PerSilo({"b": 0.2}).cells(SCHEMA, ("a", "b"))
    assert (silos.names, silos.silo.tolist()) == (("b",), [1])
    pair = pffl.BoundedGroupLoss({"m": 0.5, "f": 0.3}).cells(SCHEMA, ("a",))
    assert dict(zip(pair.names, pair.bounds, strict=True)) == {"f": 0.3, "m": 0.5}
    both = (pffl.BoundedGroupLoss({"m": 0.5}) & pffl.PerSilo({"b": 0.2})).cells(
        SCHEMA, ("a", "b")
    )
    assert (both.names, both.unbounded) == (("m", "b"), ("f", "a"))
    labels = pffl.ConditionalBoundedGroupLoss({"class 1": 0.4}).cells(SCHEMA, ("a",))
    assert labels.names == ("f, class 1", "m, class 1")
    assert labels.unbounded == ("f, class 0", "m, class 0")


CODED = Schema(
    ("x",),
    (Attribute("nonwhite", ("0", "1")), Attribute("sex", ("f", "m"))),
    ("0", "1"),
    "approve",
)


def test_bare_codes_are_named_with_their_columns():
    assert CODED.groups[:2] == ("nonwhite = 0 × f", "nonwhite = 0 × m")
    for values in (("0", "1"), ("False", "True"), ("no", "yes"), ("1.5", "-2e3")):
        assert named("old", values) == tuple(f"old = {value}" for value in values)
    for values in (("Female", "Male"), ("18-24", "25+"), ("f", "m"), ("NaN", "inf")):
        assert named("who", values) == values
    by_label = pffl.ConditionalBoundedGroupLoss(0.5, labels=(1,), by="nonwhite")
    assert by_label.cells(CODED, ()).names == (
        "nonwhite = 0, approve = 1",
        "nonwhite = 1, approve = 1",
    )


@pytest.mark.parametrize(
    "name", ["nonwhite = 1", "nonwhite=1", "1", " 1 ", "nonwhite =1"]
)
def test_a_group_is_found_by_its_name_or_by_its_value(name):
    cells = pffl.BoundedGroupLoss({name: 0.46}, by="nonwhite").cells(CODED, ())
    assert cells.names == ("nonwhite = 1",)
    assert cells.bounds.tolist() == [0.46]


def test_conditional_bounds_per_label_or_per_cell():
    by_label = pffl.ConditionalBoundedGroupLoss({"class 0": 0.3, "class 1": 0.4})
    cells = by_label.cells(SCHEMA, ("a",))
    assert dict(zip(cells.names, cells.bounds, strict=True)) == {
        "f, class 0": 0.3,
        "m, class 0": 0.3,
        "f, class 1": 0.4,
        "m, class 1": 0.4,
    }
    bounds = {"f, class 1": 0.1, "m, class 1": 0.2}
    by_cell = pffl.ConditionalBoundedGroupLoss(bounds, labels=("class 1",))
    assert list(by_cell.cells(SCHEMA, ("a",)).bounds) == [0.1, 0.2]


def test_constraints_describe_themselves_in_plain_words():
    both = pffl.BoundedGroupLoss(0.6, by="sex") & pffl.PerSilo({"a": 0.1})
    assert both.describe() == {
        "kind": "both",
        "of": [
            {"kind": "bgl", "bound": 0.6, "by": ["sex"]},
            {"kind": "per-silo", "bound": {"a": 0.1}, "by": None},
        ],
    }
    conditional = pffl.ConditionalBoundedGroupLoss(0.6, labels=(1,))
    assert conditional.describe()["labels"] == [1]
    assert pffl.MinMax().describe() == {"kind": "minmax", "bound": None, "by": None}
