"""Trackers against the real packages: what they log is what the solution says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import pffl
from pffl.callbacks import Callback
from pffl.errors import UsageError
from pffl.integrations import MLflow, TensorBoard, Tracker, WandB
from pffl.integrations.tracker import keys
from pffl.reports.card import seal
from tests.helpers import make_federation

FILES = {"certificate.json", "card.md", "model.safetensors", "report.html"}


def run(*callbacks: Callback) -> pffl.Solution:
    return pffl.solve(
        make_federation(3),
        pffl.BoundedGroupLoss(0.68),
        method=pffl.PFFL(dual_rounds=3, rounds_per_dual=1),
        seed=0,
        callbacks=callbacks,
        gap_every=2,
        about=pffl.About(owner="Unit 7"),
    )


def series(solution: pffl.Solution, column: str) -> list[tuple[int, float]]:
    rows = solution.history[["round", column]].dropna()
    return [(int(r), float(v)) for r, v in rows.itertuples(index=False)]


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow_keeps_rounds_outcome_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    try:
        solution = run(MLflow())
        assert mlflow.active_run() is None
        client = mlflow.MlflowClient()
        place = client.get_experiment_by_name("Default").experiment_id
        (kept,) = client.search_runs([place])
        check_mlflow(client, kept, solution)
        with mlflow.start_run() as mine:
            run(MLflow())
            assert mlflow.active_run().info.run_id == mine.info.run_id
        again = client.get_run(mine.info.run_id).data
        assert again.metrics == kept.data.metrics
    finally:
        mlflow.set_tracking_uri(None)


def check_mlflow(client: Any, kept: Any, solution: pffl.Solution) -> None:
    names = solution.problem.cells.names
    columns = {"risk": "risk", "worst_violation": "worst_violation"}
    columns |= {f"loss/{name}": f"loss: {name}" for name in names}
    columns |= {f"multiplier/{name}": f"multiplier: {name}" for name in names}
    for key, column in columns.items():
        found = client.get_metric_history(kept.info.run_id, key)
        pairs = sorted((one.step, one.value) for one in found)
        assert pairs == series(solution, column)
    data = kept.data
    assert data.metrics["train/risk"] == pytest.approx(solution.train.risk)
    assert data.metrics["gap"] == pytest.approx(solution.gap)
    assert data.params["method.kind"] == "pffl"
    assert data.tags["pffl.status"] == solution.status
    assert data.tags["pffl.certificate_sha256"] == seal(solution.certificate)
    assert {one.path for one in client.list_artifacts(kept.info.run_id)} == FILES


def test_tensorboard_reads_back_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import (
        EventAccumulator,
    )
    from tensorboard.util import tensor_util

    folder = tmp_path / "board"
    solution = run(TensorBoard(folder))
    events = EventAccumulator(str(folder)).Reload()

    def written(tag: str) -> list[tuple[int, float]]:
        return [
            (e.step, float(tensor_util.make_ndarray(e.tensor_proto)))
            for e in events.Tensors(tag)
        ]

    name = solution.problem.cells.names[0]
    for tag, column in (("risk", "risk"), (f"loss/{name}", f"loss: {name}")):
        expected = series(solution, column)
        assert [step for step, _ in written(tag)] == [step for step, _ in expected]
        assert [v for _, v in written(tag)] == pytest.approx([v for _, v in expected])
    ((step, risk),) = written("outcome/train/risk")
    assert (step, risk) == (solution.rounds, pytest.approx(solution.train.risk))
    assert {one.name for one in folder.iterdir()} >= {*FILES, "outcome.json"}
    outcome = json.loads((folder / "outcome.json").read_text("utf-8"))
    assert outcome["words"]["status"] == solution.status
    assert "| Owner | Unit 7 |" in (folder / "card.md").read_text("utf-8")
    assert len(pffl.load(folder / "model.safetensors").w) == len(solution.w)


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    solution = run(WandB(mode="offline", project="trial"))
    (kept,) = Path("wandb").glob("offline-run-*/run-*.wandb")
    content = kept.read_bytes()
    told = (
        solution.status,
        "train/risk",
        "worst_violation",
        seal(solution.certificate),
    )
    assert all(word.encode() in content for word in [*told, "model.safetensors"])


@pytest.mark.parametrize(
    ("make", "package"),
    [(MLflow, "mlflow"), (lambda: TensorBoard("x"), "tensorboard"), (WandB, "wandb")],
)
def test_a_missing_package_is_named(
    make: Any, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.summary", None)
    with pytest.raises(UsageError, match=f"pip install {package}"):
        make()


def test_names_of_cells_become_keys_that_differ() -> None:
    names = ["a/b", "a:b", "Frau × „x“", "", "..", "é" * 300, "é" * 301]
    found = keys(names)
    assert len(set(found)) == len(names)
    assert all(len(key) <= 110 and "/" not in key and key.strip(". ") for key in found)


def test_a_tracker_of_ones_own_and_a_callback_hear_of_the_end() -> None:
    heard: list[str] = []

    class Mine(Tracker):
        def record(self, numbers: Any, step: int) -> None:
            heard.append("round")

        def conclude(self, outcome: Any, folder: Path) -> None:
            heard.append(outcome.words["status"])

    class Plain(Callback):
        def solved(self, solution: pffl.Solution) -> None:
            heard.append(solution.evidence.about.owner or "")

    found = run(Mine(), Plain())
    assert heard == [*["round"] * len(found.rows), found.status, "Unit 7"]
