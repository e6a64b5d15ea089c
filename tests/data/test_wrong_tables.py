"""Wrong and odd tables in Python: a code and a name, or the right numbers; one table.

The command line has its own (cli/test_wrong_input.py), files that are no tables theirs
(test_reading.py).
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.errors import PFFLError
from tests.data.tables import people
from tests.raising import raises


def put(column, value, rows=(3,)):
    """Put a value into some rows of a column."""
    return lambda f: f.assign(
        **{column: f[column].astype(object).where(~f.index.isin(rows), value)}
    )


def new(name, make):
    return lambda f: f.assign(**{name: [make(i) for i in range(len(f))]})


def same(f):
    return f


#: What is changed, keywords, the code (None: taken), and what is said in error or note.
CASES: dict[str, tuple[Any, dict[str, Any], str | None, str]] = {
    "no keywords": (same, {"label": None}, "wrong-keyword", "'label'"),
    "target=": (same, {"target": "hired"}, "wrong-keyword", "target"),
    "sensitive_features=": (same, {"sensitive_features": 1}, "wrong-keyword", "group"),
    "categorical=": (same, {"categorical": ["age"]}, "wrong-keyword", "columns"),
    "a list": (lambda f: f.to_numpy().tolist(), {}, "not-a-table", "list"),
    "a series": (lambda f: f["age"], {}, "not-a-table", "Series"),
    "an array": (lambda f: f.to_numpy(), {}, "not-a-table", "ndarray"),
    "None": (lambda f: None, {}, "not-a-table", "None"),
    "no rows": (lambda f: f[:0], {}, "no-rows", "no rows"),
    "two columns of one name": (
        lambda f: pd.concat([f, f[["age"]] + 1], axis=1),
        {}, "repeated-column", "'age'",
    ),
    "blanks around names": (
        lambda f: f.rename(columns={"age": " age "}), {}, None, "numbers: age",
    ),
    "numbers as names": (
        lambda f: f.rename(columns={"age": 7}), {"drop": ["7"]}, None, "income",
    ),
    "complex numbers": (new("z", lambda i: 1j * i), {}, None, "'z' has a diff"),
    "lists in cells": (new("z", lambda i: [i]), {}, "not-a-value", "'z'"),
    "dicts in cells": (new("z", lambda i: {"a": i}), {}, "not-a-value", "'z'"),
    "bytes": (new("z", lambda i: b"ab"[i % 2 :][:1]), {}, None, "z (2)"),
    "durations": (
        new("z", lambda i: pd.Timedelta(days=i)), {}, None, "'z' holds dates or times",
    ),
    "time zones": (
        new("z", lambda i: pd.Timestamp("2021-01-01", tz="UTC")), {}, None, "left out",
    ),
    "nullable numbers": (
        lambda f: put("age", pd.NA)(f).astype({"age": "Int64"}), {}, "missing-values",
        "'age': 1",
    ),
    "nullable truth": (
        lambda f: f.assign(hired=(f["hired"] == "yes").astype("boolean")), {}, None,
        "'False' → 0, 'True' → 1",
    ),
    "truth as label": (
        lambda f: f.assign(hired=f["hired"] == "yes"), {}, None, "'True' → 1",
    ),
    "a category that is never used": (
        lambda f: f.assign(sex=pd.Categorical(f["sex"], ["f", "m", "x"])), {}, None, "",
    ),
    "truth among numbers": (put("age", True), {}, "not-numbers", "'True' (row 3)"),
    "a missing text": (
        new("z", lambda i: None if i == 3 else f"w {i}"),
        {"columns": {"z": {"hash": 8}}}, "missing-values", "'z': 1",
    ),
    "an unknown branch": (
        same, {"columns": {"branch": {"values": ["north"]}}}, "unknown-category",
        "silo 'branch'",
    ),
    "nothing left": (
        same, {"drop": ["age", "income", "job"]}, "no-inputs", "no column",
    ),
    "infinity": (put("income", np.inf), {}, "not-finite", "'inf' (row 3)"),
    "a comma": (put("income", "1,5"), {}, "not-numbers", "'1,5' (row 3)"),
    "a full-width digit": (put("age", "４１x"), {}, "not-numbers", "'４１x'"),
    "label among the inputs": (same, {"inputs": ["hired"]}, "wrong-column", "hired"),
    "group by two names": (same, {"group": ["sex", "sex"]}, "wrong-column", "'sex'"),
    "weight that is the id": (
        same, {"weight": "age", "id": "age"}, "wrong-column", "'age'",
    ),
    "half a silo": (same, {"silo": None, "silos": 2.5}, "wrong-value", "silos"),
    "all rows tested": (same, {"test_fraction": 1.0}, "wrong-value", "test_fraction"),
    "alpha of 0": (
        same, {"silo": None, "silos": 3, "partition": ("dirichlet", "job", 0)},
        "wrong-value", "alpha",
    ),
    "a range upside down": (
        same, {"columns": {"age": {"range": [9, 1]}}}, "bad-column", "'age'",
    ),
    "a range of words": (
        same, {"columns": {"age": {"range": ["a", "b"]}}}, "wrong-value", "'age'",
    ),
    "values of a number": (
        same, {"columns": {"age": {"kind": "number", "values": [1]}}}, "bad-column", "",
    ),
    "declared twice over": (
        same, {"columns": {"job": {"values": ["clerk", "clerk"]}}}, "repeated-name", "",
    ),
    "a label declared as text": (
        same, {"columns": {"hired": {"hash": 8}}}, "bad-column", "'hired'",
    ),
    "a label that lacks a declared value": (
        same, {"columns": {"hired": {"values": ["yes", "perhaps"]}}},
        "unknown-category", "'no'",
    ),
    "the positive label, declared": (
        same, {"columns": {"hired": {"values": ["yes", "no"]}}}, None, "'no' → 1",
    ),
    "a number as label": (same, {"label": "income"}, "too-many-classes", "income"),
    "words as a target": (
        same, {"label": "job", "classification": False}, "not-numbers", "job",
    ),
    "shares of nothing": (
        same, {"test_fraction": 0.6, "validation_fraction": 0.5},
        "no-training-rows", "leave nothing",
    ),
    "a share that is none": (
        same, {"test_fraction": float("nan")}, "wrong-value", "test_fraction",
    ),
    "columns as a list": (same, {"columns": ["age"]}, "bad-column", "columns"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_wrong_is_refused_by_name_and_odd_is_said(name):
    change, more, code, said = CASES[name]
    options = {"label": "hired", "group": "sex", "silo": "branch", **more}
    options = {key: value for key, value in options.items() if value is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused = nullcontext() if code is None else raises(PFFLError, code, said)
        with refused:
            found = pffl.Federation.from_table(change(people()), **options)
    if code is None:
        assert said in "; ".join(found.notes)


def test_every_value_ends_where_it_belongs():
    """Whatever is taken is encoded as the plain table is."""
    plain = people()
    for change in (
        lambda f: f.astype({"age": str}),
        lambda f: f.astype({"age": "Int64", "job": "category"}),
        lambda f: f.rename(columns={"age": " age"}),
        lambda f: f.set_index(f.index[::-1]),
    ):
        options = {"label": "hired", "group": "sex", "silo": "branch"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one, two = (
                pffl.Federation.from_table(frame, **options)
                for frame in (plain, change(plain))
            )
        assert one.schema.features == two.schema.features
        np.testing.assert_array_equal(one.pooled().X, two.pooled().X)
        np.testing.assert_array_equal(one.pooled().y, two.pooled().y)
