from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save as save_tensors

import pffl
from pffl import runs
from pffl.driver import SPEC, Log
from pffl.errors import ArtefactError
from pffl.files import json_text
from pffl.tensors import judge
from tests.raising import raises

FILES = {
    "certificate.json",
    "history.csv",
    "looks.jsonl",
    "manifest.json",
    "model.safetensors",
    "result.json",
    "run.toml",
}


@pytest.fixture(scope="module")
def federation() -> pffl.Federation:
    return pffl.datasets.synthetic(400, silos=2, random_state=0)


@pytest.fixture(scope="module")
def solution(federation: pffl.Federation) -> pffl.Solution:
    return pffl.solve(federation, pffl.BoundedGroupLoss(0.7), random_state=0)


def visible(directory: Path) -> set[str]:
    return {name for name in os.listdir(directory) if not name.startswith(".")}


def test_what_is_saved_is_loaded(solution, federation, tmp_path):
    place = runs.save(solution, tmp_path / "a" / "b", "seed = 1\n")
    assert visible(place) == FILES
    record = runs.read_run(place)
    assert record.verified
    assert record.as_dict() == json.loads(json_text(solution.as_dict()))
    assert record.spec_text == "seed = 1\n"
    assert record.predictor.schema == solution.schema
    assert record.predictor.cells == solution.problem.cells.names
    assert np.array_equal(record.w, solution.w)
    assert np.array_equal(record.predictor.multipliers, solution.multipliers)
    assert np.array_equal(
        record.predictor.inputs.mean, solution.problem.task.model.inputs.mean
    )
    X = federation.pooled("test").X
    assert np.array_equal(record.predictor.predict_proba(X), solution.predict_proba(X))


def test_a_run_replaces_a_stopped_one_with_all_that_belonged_to_it(solution, tmp_path):
    with runs.lock(tmp_path) as held:
        (tmp_path / SPEC).write_text("")
        held.save(solution, "")
        held.add("certificate.json", b"{}\n")
    (tmp_path / "my notes.txt").write_text("keep")
    assert runs.read_run(tmp_path).verified
    with runs.lock(tmp_path, unfinished=True) as held:
        held.save(solution, "second = true\n")
        Log(tmp_path).remove()
    assert visible(tmp_path) == {*FILES, "my notes.txt"}
    again = runs.read_run(tmp_path)
    assert again.verified
    assert again.spec_text != ""


def test_directories_are_numbered_and_unused_ones_vanish(solution, tmp_path):
    with runs.lock(runs.make_next(tmp_path, "My data/../x")) as held:
        assert held.directory.parent == tmp_path
        held.save(solution, "")
    with (
        pytest.raises(ZeroDivisionError),
        runs.lock(runs.make_next(tmp_path, "My data/../x")) as second,
    ):
        raise ZeroDivisionError
    assert second.directory != held.directory
    assert os.listdir(tmp_path) == [held.directory.name]


FORMAT = "pffl run directory"
MANIFESTS = (
    ("[]", "wrong-value"),
    ("not json", "not-json"),
    ('{"format": "other", "version": 1, "files": {}}', "other-format"),
    (f'{{"format": "{FORMAT}", "version": 99, "files": {{}}}}', "other-format"),
    (
        f'{{"format": "{FORMAT}", "version": 1, "files": {{"../x": "0"}}}}',
        "outside-directory",
    ),
)


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        *(("manifest.json", *one) for one in MANIFESTS),
        ("model.safetensors", None, "file-missing"),
        ("manifest.json", None, "no-run"),
    ],
)
def test_what_is_no_run_is_refused(solution, tmp_path, name, text, code):
    runs.save(solution, tmp_path)
    (tmp_path / name).unlink()
    if text is not None:
        (tmp_path / name).write_text(text)
    with raises(ArtefactError, code):
        runs.read_run(tmp_path)
    if name == "manifest.json":  # nor is it overwritten
        with raises(ArtefactError, "file-exists" if text is None else code):
            runs.save(solution, tmp_path)


def test_the_same_run_gives_the_same_bytes(solution, federation, tmp_path):
    again = pffl.solve(federation, pffl.BoundedGroupLoss(0.7), random_state=0)
    content = [
        (runs.save(s, tmp_path / str(i)) / "model.safetensors").read_bytes()
        for i, s in enumerate((solution, again))
    ]
    assert content[0] == content[1]


def test_runs_of_the_first_version_are_refused_by_name(solution, tmp_path):
    path = runs.save(solution, tmp_path) / "model.safetensors"
    arrays = judge(path.read_bytes())[1]
    metadata = {"format": "pffl model", "version": "1"}
    path.write_bytes(save_tensors(arrays, metadata=metadata))
    with raises(ArtefactError, "old-model-file", "pffl 0.2 or before"):
        runs.read_run(tmp_path)
