"""The shipped schema of certificate.json, with the evidence in it.

``python -m tests.evidence.test_schemas`` writes it anew.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

import pffl
from pffl.errors import ArtefactError
from pffl.files import plain
from pffl.solution import Solution
from tests.helpers import make_federation
from tests.inside import Certificate, Evidence, conclude, evidence, statements
from tests.raising import raises


def bare(schema: Any) -> Any:
    """A schema without titles, words and defaults."""
    if isinstance(schema, list):
        return [bare(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = ("title", "default", "description")
    return {
        key: {name: bare(one) for name, one in part.items()}
        if key in ("properties", "$defs")
        else bare(part)
        for key, part in schema.items()
        if key not in left_out or not isinstance(part, str | int | list | type(None))
    }


def generated() -> dict[str, Any]:
    schema = bare(TypeAdapter(Certificate).json_schema())
    inner = bare(TypeAdapter(Evidence).json_schema())
    schema["$defs"] |= inner.pop("$defs")
    for part, module in ((schema, statements), (inner, evidence)):
        marks = {"format": module.FORMAT, "version": module.VERSION}
        consts = {key: {"const": mark} for key, mark in marks.items()}
        part["properties"] = {**consts, **part["properties"]}
    schema["properties"] |= {"figures": {"type": "object"}, "evidence": inner}
    for part in (schema, inner):
        part["required"] = list(part["properties"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def shipped() -> dict[str, Any]:
    place = files("pffl.evidence").joinpath("schemas", "certificate.json")
    found: dict[str, Any] = json.loads(place.read_text("utf-8"))
    return found


def test_what_is_shipped_is_what_the_code_writes():
    assert shipped() == generated()


def valid(value: Any, schema: Any) -> bool:
    jsonschema = pytest.importorskip("jsonschema")
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


@pytest.fixture(scope="module")
def solved() -> list[Solution]:
    return [
        pffl.solve(make_federation(5), pffl.BoundedGroupLoss(bound), random_state=0)
        for bound in (0.68, 0.4)
    ]


def test_real_files_are_valid(solved):
    schema = shipped()
    for solution in solved:
        whole = conclude(solution.evidence).certified()
        value = json.loads(json.dumps(plain(whole)))
        inner = value["evidence"]
        assert valid(value, schema)
        for more in ({"more": 1}, {"version": 0}):
            assert not valid({**value, **more}, schema)
            assert not valid({**value, "evidence": {**inner, **more}}, schema)


def test_evidence_is_read_back_and_read_strictly(solved):
    for solution in solved:
        written = json.loads(json.dumps(plain(solution.evidence.as_dict())))
        assert Evidence.from_dict(written) == solution.evidence
        again = Evidence.from_dict(written).as_dict()
        assert json.dumps(again) == json.dumps(solution.evidence.as_dict())
    less = {key: part for key, part in written.items() if key != "terms"}
    for changed, code, *named in (
        ({**written, "more": 1}, "unknown-key", "'more'"),
        ({**written, "seen": {**written["seen"], "more": 1}}, "unknown-key", "seen.m"),
        ({**written, "promise": "yes"}, "wrong-value", "'promise'"),
        ({**written, "version": 99}, "other-format"),
        ({**written, "cells": written["cells"][:1]}, "bad-evidence"),
        (less, "missing-key", "terms"),
    ):
        with raises(ArtefactError, code, *named):
            Evidence.from_dict(changed)


if __name__ == "__main__":
    here = Path(__file__).parents[2] / "src" / "pffl" / "evidence" / "schemas"
    text = json.dumps(generated(), indent=1, ensure_ascii=False)
    (here / "certificate.json").write_text(text + "\n", "utf-8")
