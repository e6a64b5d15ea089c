"""JSON schemas of run files, results and certificates: editors complete by them."""

from __future__ import annotations

import json
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import pffl
from pffl.config import json_schema, parse
from tests.cli.helpers import SMALL

#: Those that are shipped as files; of run files it is made of the models.
SHIPPED = ("result", "certificate", "evidence")


def schema(name):
    if name == "run":
        return json_schema()
    place = files("pffl.evidence").joinpath("schemas", f"{name}.json")
    return json.loads(place.read_text("utf-8"))


def problems(text):
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schema("run"))
    return [error.message for error in validator.iter_errors(tomllib.loads(text))]


@pytest.mark.parametrize("name", [*SHIPPED, "run"])
def test_every_schema_is_one(name):
    jsonschema = pytest.importorskip("jsonschema")
    found = schema(name)
    jsonschema.validators.validator_for(found).check_schema(found)


GOOD = """
data = { path = "people.csv", label = "hired", group = ["sex"] }
model = { l2 = "auto" }
constraint = [
    { kind = "bgl", bound = 0.6, by = "sex" },
    { kind = "cbgl", bound = { "a, yes" = 0.7 } },
]
method = { kind = "pffl", dual_rounds = 20 }
run = { seed = 7, confidence = 0.9 }
about = { owner = "Unit 7", date = "2026-11-17" }
"""


def test_a_run_file_is_valid_and_read():
    assert problems(GOOD) == []
    parse(tomllib.loads(GOOD))


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ("seed = 7", "sed = 7"),
        ("dual_rounds = 20", "dual_round = 20"),
        ("confidence = 0.9", 'confidence = "much"'),
        ("about =", "abaut ="),
        ("bound = 0.6", "bounds = 0.6"),
        ('l2 = "auto"', 'l2 = "much"'),
        ('label = "hired"', "label = 1"),
    ],
)
def test_what_pffl_refuses_an_editor_marks(change, to):
    text = GOOD.replace(change, to)
    assert problems(text)
    with pytest.raises(pffl.PFFLError):
        parse(tomllib.loads(text))


def test_a_method_of_another_package_is_not_marked():
    assert problems('[method]\nkind = "tilted"\ntilt = 2.0\n') == []


def test_run_files_that_runs_leave_are_valid(command):
    asked = ("run", *SMALL, "--bound=2", "--certify", "--out=here")
    assert command(*asked).code == 0
    assert problems(Path("here/run.toml").read_text("utf-8")) == []
