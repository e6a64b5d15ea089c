"""A run in its directory: nothing in it contradicts anything else."""

from __future__ import annotations

import json
import shutil

import pytest

import pffl
from pffl import runs
from pffl.config import parse


def job(**settings):
    sections = {
        "data": {"name": "synthetic", "rows": 900, "silos": 3, "seed": 1},
        "constraint": {"kind": "bgl", "bound": 0.66},
        "run": {"seed": 1, "confidence": 0.99, **settings},
    }
    return parse(sections).build()


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    place = tmp_path_factory.mktemp("ended") / "run"
    with runs.lock(place) as held:
        runs.run(job(), held)
    return place


@pytest.fixture
def place(ended, tmp_path):
    return shutil.copytree(ended, tmp_path / "run")


def read(place, name):
    return json.loads((place / name).read_text("utf-8"))


def uppers(place):
    """What result.json and the certificate say of people not seen."""
    certificate = read(place, "certificate.json")
    kinds = {s["kind"]: s for s in certificate["statements"]}
    result = [cell["test_upper"] for cell in read(place, "result.json")["cells"]]
    return [result, [row["upper"] for row in kinds["holdout"]["per_cell"]]]


def test_a_run_leaves_everything_and_keeps_its_confidence(place):
    record = runs.read_run(place, require_verified=True)
    assert record.evidence.terms.confidence == 0.99
    names = {path.name for path in place.iterdir()}
    assert {"certificate.json", "report.html"} <= names
    result, certificate = uppers(place)
    assert result == certificate


def test_a_solution_and_its_directory_are_certified_alike(place):
    own = job()
    asked = own.spec.constraint
    solution = pffl.solve(
        own.federation, asked, options=own.spec.options, random_state=1
    )
    assert (
        pffl.certify(runs.read_run(place)).as_dict() == pffl.certify(solution).as_dict()
    )
