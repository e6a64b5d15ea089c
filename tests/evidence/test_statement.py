"""Statements never claim what they cannot; certificates survive JSON and bad names."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.inside import Assumption, Certificate, Statement

GOOD = Assumption("The loss is convex.", "checked")
BAD = Assumption("needs convexity", "failed")


def statement(**changes: object) -> Statement:
    parts: dict[str, object] = {
        "kind": "gap",
        "text": "The gap is 0.01.",
        "value": 0.01,
        "holds": True,
        "assumptions": (GOOD,),
        "figures": {"radius": np.float64(2.0), "w": np.arange(3), "cell": "a"},
        "per_cell": ({"cell": "F", "loss": 0.5, "holds": True},),
    }
    return Statement(**{**parts, **changes})  # type: ignore[arg-type]


def certificate(**changes: object) -> Certificate:
    parts: dict[str, object] = {
        "verdicts": {
            "training": {"verdict": "met", "sentence": "Every bound is met."},
            "test": {"verdict": "not measured", "sentence": "No rows."},
            "new_people": {"verdict": "not measured", "sentence": "No rows."},
        },
        "date": None,
        "data": "people",
        "groups": ("F", "M"),
        "bounds": (0.6, 0.6),
        "confidence": 0.95,
        "statements": (statement(), Statement("holdout", "no rows", available=False)),
        "fingerprints": {"data": "ab12", "model": "cd34"},
        "notes": ("One cell was withheld.",),
    }
    return Certificate(**{**parts, **changes})  # type: ignore[arg-type]


def test_a_failed_assumption_takes_every_number_away():
    out = statement(assumptions=(GOOD, BAD))
    assert (out.value, out.holds, out.per_cell) == (None, None, None)
    assert not out.available
    assert "0.01" not in json.dumps(out.as_dict())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_non_finite_number_is_not_available(value):
    out = statement(value=value)
    assert not out.available
    assert out.holds is None


def test_hostile_names_do_nothing():
    name = "<script>alert(1)</script>\x1b[2J\u202eevil\"'&" + "x" * 10_000
    row = {"cell": name, "<b>": 0.5, "holds": True}
    out = certificate(
        statements=(statement(text=name, per_cell=(row,)),),
        data=name,
        notes=(name,),
        fingerprints={name: name},
    )
    html = out._repr_html_()
    assert "<script" not in html
    assert "<b>" not in html
    for text in (html, str(out)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "👩\u200d💻" in str(certificate(data="group 👩\u200d💻"))


def test_what_is_required():
    out = certificate()
    assert out.holds("gap")
    assert not out.holds("holdout")
    assert not out.holds("absent")
    assert not certificate(statements=(statement(), statement(holds=None))).holds("gap")
    assert [s.kind for s in out.of_kind("gap")] == ["gap"]


def test_an_upper_bound_in_a_table_is_rounded_up():
    row = {"cell": "F", "loss": 0.12345612, "upper": 0.62000001, "holds": True}
    text = str(certificate(statements=(statement(per_cell=(row,)),)))
    assert " 0.6201 " in text
    assert "0.123456 " in text
