"""A run directory, certified again: nothing in it contradicts anything else."""

from __future__ import annotations

import json
import shutil

import pytest

import pffl
from pffl import running, runs
from pffl.certifying import Request
from pffl.config import parse
from pffl.engines import Local
from pffl.errors import ArtefactError, UsageError
from tests.raising import raises


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
        running.run(job(), held)
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
    record = runs.load(place, require_verified=True)
    assert record.evidence.terms.confidence == 0.99
    names = {path.name for path in place.iterdir()}
    assert {"evidence.json", "certificate.json", "report.html"} <= names
    result, certificate = uppers(place)
    assert result == certificate
    before = (place / "certificate.json").read_bytes()
    again, path = running.recertify(record, Request())
    assert (again.confidence, path) == (0.99, place / "certificate.json")
    assert path.read_bytes() == before


def test_another_confidence_is_said_everywhere(place):
    first = uppers(place)
    running.recertify(runs.load(place), Request(confidence=0.9))
    record = runs.load(place, require_verified=True)
    assert record.evidence.terms.confidence == 0.9
    assert record.result["confidence"] == 0.9
    assert read(place, "certificate.json")["confidence"] == 0.9
    result, certificate = uppers(place)
    assert result == certificate
    assert all(new < old for new, old in zip(result, first[0], strict=True))
    page = (place / "report.html").read_text("utf-8")
    assert pffl.report(place) == page


def test_new_queries_need_the_rows(place):
    record = runs.load(place)
    with raises(UsageError, "needs-data"):
        running.recertify(record, Request(cell="A"))
    engine = Local(job().federation)
    certificate, _ = running.recertify(record, Request(cell="A"), engine)
    assert len(certificate.of_kind("attainable")) == 2
    again = runs.load(place, require_verified=True)
    assert again.result["gap"] < 1e-8
    assert again.evidence.seen == record.evidence.seen
    assert again.result["cells"] == record.result["cells"]


def test_other_rows_get_files_of_their_own(place):
    own = {p.name: p.read_bytes() for p in place.iterdir() if p.suffix == ".json"}
    record, engine = runs.load(place), Local(job().federation)
    _, path = running.recertify(record, Request(splits=("train",)), engine)
    assert path.name == "certificate-train.json"
    assert (place / "evidence-train.json").is_file()
    for name in ("result.json", "evidence.json", "certificate.json"):
        assert (place / name).read_bytes() == own[name]
    assert runs.load(place).verified


@pytest.mark.parametrize("name", ["evidence.json", "model.safetensors"])
def test_fault_74_edited_evidence_is_not_certified(place, name):
    content = (place / name).read_bytes()
    (place / name).write_bytes(content.replace(b"0.66", b"0.76"))
    if (place / name).read_bytes() == content:
        (place / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with raises(ArtefactError, "changed-file", name):
        running.recertify(runs.load(place), Request())


def test_a_solution_and_its_directory_are_certified_alike(place):
    own = job()
    solution = pffl.solve(own.federation, own.constraint, options=own.options, seed=1)
    assert pffl.certify(runs.load(place)).as_dict() == pffl.certify(solution).as_dict()


def test_fault_87_what_was_given_to_the_run_is_the_certificates(tmp_path):
    given = {"confidence": 0.9}
    with runs.lock(tmp_path / "run") as held:
        running.run(job(**given), held, report=False)
    record, engine = runs.load(tmp_path / "run"), Local(job().federation)
    for request in (Request(), Request(target_gap=1e-3), Request(splits=("train",))):
        running.recertify(record, request, engine)
        names = ["evidence.json", "evidence-train.json"][: 1 + bool(request.splits)]
        for name in names:
            terms = read(tmp_path / "run", name)["terms"]
            assert {key: terms[key] for key in given} == given
    held_out = runs.load(tmp_path / "run").evidence.heldout
    assert held_out == record.evidence.heldout
