"""The shipped schemas of evidence.json, result.json and certificate.json.

``python -m tests.evidence.test_schemas`` writes them anew.
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
from tests.inside import (
    Certificate,
    Evidence,
    Result,
    certificate,
    conclude,
    evidence,
    evidence_conclude,
)
from tests.raising import raises

KINDS: dict[str, tuple[type[Any], str, int]] = {
    "evidence": (Evidence, evidence.FORMAT, evidence.VERSION),
    "result": (Result, evidence_conclude.RESULT, evidence_conclude.RESULT_VERSION),
    "certificate": (Certificate, certificate.FORMAT, certificate.VERSION),
}


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


def generated(name: str) -> dict[str, Any]:
    kind, form, version = KINDS[name]
    schema = bare(TypeAdapter(kind).json_schema())
    if name == "certificate":  # the other two schemas say what these are
        inside = {key: {"type": "object"} for key in certificate.INSIDE}
        schema["properties"] |= inside
    marks = {"format": {"const": form}, "version": {"const": version}}
    schema["properties"] = {**marks, **schema["properties"]}
    schema["required"] = list(schema["properties"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def shipped(name: str) -> dict[str, Any]:
    place = files("pffl.evidence").joinpath("schemas", f"{name}.json")
    found: dict[str, Any] = json.loads(place.read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", KINDS)
def test_what_is_shipped_is_what_the_code_writes(name):
    assert shipped(name) == generated(name)


def valid(value: Any, schema: Any) -> bool:
    jsonschema = pytest.importorskip("jsonschema")
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


@pytest.fixture(scope="module")
def solved() -> list[Solution]:
    return [
        pffl.solve(make_federation(5), pffl.BoundedGroupLoss(bound), seed=0)
        for bound in (0.68, 0.4)
    ]


@pytest.mark.parametrize("name", KINDS)
def test_real_files_are_valid(name, solved):
    schema = shipped(name)
    for solution in solved:
        whole = {
            "evidence": solution.evidence.as_dict(),
            "result": solution.as_dict(),
            "certificate": conclude(solution.evidence).certified(),
        }[name]
        value = json.loads(json.dumps(plain(whole)))
        assert valid(value, schema)
        assert not valid({**value, "more": 1}, schema)
        assert not valid({**value, "version": 0}, schema)


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
    here.mkdir(exist_ok=True)
    for name in KINDS:
        text = json.dumps(generated(name), indent=1, ensure_ascii=False)
        (here / f"{name}.json").write_text(text + "\n", "utf-8")
