from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest

import pffl
from pffl import run_directory
from pffl.errors import ArtefactError
from pffl.files import json_text

FILES = {
    "history.csv",
    "manifest.json",
    "model.safetensors",
    "result.json",
    "spec.toml",
}


@pytest.fixture(scope="module")
def federation() -> pffl.Federation:
    return pffl.datasets.synthetic(400, silos=2, seed=0)


@pytest.fixture(scope="module")
def solution(federation: pffl.Federation) -> pffl.Solution:
    return pffl.solve(federation, pffl.BoundedGroupLoss(0.7), seed=0)


def visible(directory: Path) -> set[str]:
    return {name for name in os.listdir(directory) if not name.startswith(".")}


def test_what_is_saved_is_loaded(
    solution: pffl.Solution, federation: pffl.Federation, tmp_path: Path
) -> None:
    place = run_directory.save(solution, tmp_path / "a" / "b", "seed = 1\n")
    assert visible(place) == FILES
    record = run_directory.load(place, require_verified=True)
    assert record.verified
    assert record.result == json.loads(json_text(solution.as_dict()))
    assert record.spec_text == "seed = 1\n"
    assert record.schema == solution.schema
    assert record.saved.cells == solution.problem.cells.names
    assert np.array_equal(record.w, solution.w)
    assert np.array_equal(record.multipliers, solution.multipliers)
    assert np.array_equal(record.inputs.mean, solution.problem.task.model.inputs.mean)
    X = federation.pooled("test").X
    assert np.array_equal(record.saved.predict_proba(X), solution.predict_proba(X))


@pytest.mark.parametrize(
    "model",
    [
        pffl.SoftmaxRegression(l2=0.1),
        pffl.LogisticRegression(standardize=False, intercept=False),
    ],
)
def test_other_models(
    model: pffl.LogisticRegression, federation: pffl.Federation, tmp_path: Path
) -> None:
    solution = pffl.solve(federation, None, model=model, seed=0)
    run_directory.save(solution, tmp_path)
    record = run_directory.load(tmp_path)
    assert record.model.describe() == model.describe()
    X = federation.pooled("test").X
    assert np.array_equal(record.saved.predict_proba(X), solution.predict_proba(X))


def test_result_has_the_fields_of_the_contract(
    solution: pffl.Solution, tmp_path: Path
) -> None:
    run_directory.save(solution, tmp_path)
    result = json.loads((tmp_path / "result.json").read_text("utf-8"))
    assert {
        *("status", "message", "method", "constraint", "seed", "rounds", "gap"),
        *("cells", "train", "test", "witness", "smallest_bound", "versions"),
    } <= set(result)
    assert {
        *("cell", "bound", "count", "train_loss", "violation", "multiplier"),
        *("test_loss", "test_count", "test_upper"),
    } <= set(result["cells"][0])
    for split in ("train", "test"):
        assert {"risk", "error", "worst_cell_loss", "dp_gap", "eo_gap"} <= set(
            result[split]
        )


def test_history_has_a_line_per_round(solution: pffl.Solution, tmp_path: Path) -> None:
    run_directory.save(solution, tmp_path)
    with open(tmp_path / "history.csv", newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == len(solution.rows)
    assert float(lines[-1]["risk"]) == solution.rows[-1].risk
    for line, row in zip(lines, solution.rows, strict=True):
        assert line["gap"] == ("" if row.gap is None else repr(row.gap))


def test_numbers_that_are_not_finite_become_null() -> None:
    text = json_text({"a": np.float64("inf"), "b": [float("nan"), 1]})
    assert json.loads(text) == {"a": None, "b": [None, 1]}


def test_a_run_replaces_an_earlier_one_with_all_that_belonged_to_it(
    solution: pffl.Solution, tmp_path: Path
) -> None:
    with run_directory.claim(tmp_path) as claimed:
        claimed.save(solution, "")
        claimed.add("certificate.json", b"{}\n")
    (tmp_path / "my notes.txt").write_text("keep")
    assert run_directory.load(tmp_path).verified
    run_directory.save(solution, tmp_path, "second = true\n")
    assert visible(tmp_path) == {*FILES, "my notes.txt"}
    assert run_directory.load(tmp_path, require_verified=True).spec_text != ""


def test_directories_are_numbered_and_unused_ones_vanish(
    solution: pffl.Solution, tmp_path: Path
) -> None:
    with run_directory.claim_next(tmp_path, "My data/../x") as claimed:
        assert claimed.directory.parent == tmp_path
        claimed.save(solution, "")
    with (
        pytest.raises(ZeroDivisionError),
        run_directory.claim_next(tmp_path, "My data/../x") as second,
    ):
        raise ZeroDivisionError
    assert second.directory != claimed.directory
    assert os.listdir(tmp_path) == [claimed.directory.name]


def test_a_directory_that_was_there_stays(tmp_path: Path) -> None:
    with run_directory.claim(tmp_path):
        assert os.listdir(tmp_path)
    assert os.listdir(tmp_path) == []


def test_foreign_files_are_not_touched(solution: pffl.Solution, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ArtefactError, match=r"not empty.*thesis\.txt"):
        run_directory.save(solution, tmp_path)
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_not_a_run_directory(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="not a run directory"):
        run_directory.load(tmp_path)


@pytest.mark.parametrize(
    "manifest",
    [
        "[]",
        "{}",
        "not json",
        '{"format": "other", "version": 1, "files": {}}',
        '{"format": "pffl run directory", "version": 99, "files": {}}',
        '{"format": "pffl run directory", "version": 1, "files": {"../x": "0"}}',
    ],
)
def test_a_manifest_that_is_none(
    solution: pffl.Solution, tmp_path: Path, manifest: str
) -> None:
    run_directory.save(solution, tmp_path)
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(ArtefactError, match=r"manifest\.json"):
        run_directory.load(tmp_path)
    with pytest.raises(ArtefactError, match=r"manifest\.json"):
        run_directory.save(solution, tmp_path)


@pytest.mark.parametrize("name", ["result.json", "model.safetensors"])
def test_a_directory_without_its_result_is_incomplete(
    solution: pffl.Solution, tmp_path: Path, name: str
) -> None:
    run_directory.save(solution, tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ArtefactError, match=f"incomplete: no {name}"):
        run_directory.load(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", '{"status": NaN}', "x", "[" * 100_000])
def test_a_result_that_is_none(
    solution: pffl.Solution, tmp_path: Path, text: str
) -> None:
    run_directory.save(solution, tmp_path)
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(ArtefactError, match=r"result\.json"):
        run_directory.load(tmp_path)
