"""A network from the command line: run, verify, report, run again."""

from __future__ import annotations

import numpy as np
import pytest

from pffl import Federation, runs
from pffl.data import Rows
from pffl.datasets import DATASETS
from tests.cli.helpers import pffl

FACES = ("faces", "--set", "data.clients=8", "--set", "data.size=12", "--seed", "1")
SHORT = (
    "--set",
    "method.dual_rounds=2",
    "--set",
    "method.rounds_per_dual=2",
    "--set",
    "method.step_size=0.05",
)
FILES = ("certificate.json", "report.html", "model.safetensors", "run.toml")


def faces(clients: int = 8, *, size: int = 12, random_state: int = 0) -> Federation:
    """Pictures of noise, brighter in the upper half where somebody smiles."""
    from tests.inside import datasets_celeba as module

    rng = np.random.default_rng(random_state)
    silo = np.repeat(np.arange(clients), 20)
    male, smiling = rng.integers(0, 2, clients)[silo], rng.integers(0, 2, len(silo))
    shown = rng.integers(0, 150, (len(silo), size, size, 3))
    shown[:, : size // 2] += 100 * smiling[:, None, None, None]
    rows = Rows.of(shown.reshape(len(silo), -1).astype(np.uint8), smiling, male)
    names = [f"person {k}" for k in range(clients)]
    schema = module.picture_schema(size, "Smiling", "Male")
    return Federation.from_rows(
        schema,
        rows,
        silo,
        names,
        test_fraction=0.3,
        name="faces",
        random_state=random_state,
    )


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global Network, Own
    pytest.importorskip("torch", reason="networks need the extra 'torch'")
    from pffl.models import Network
    from tests.models.networks import Own


@pytest.fixture(autouse=True)
def pictures(monkeypatch):
    """A data set of pictures that needs no file."""
    monkeypatch.setitem(DATASETS, "faces", faces)


@pytest.mark.parametrize(
    "model",
    [
        ("--model", "celeba_cnn", "--set", "model.width=2"),
        ("--model", "mlp", "--set", "model.hidden=[4]"),
    ],
    ids=["cnn", "mlp"],
)
def test_from_run_to_verified_certificate(model, tmp_path, capsys):
    run = tmp_path / "run"
    ended = pffl(capsys, "run", *FACES, *model, *SHORT, "--bound", "3", "--out", run)
    assert ended.code == 0, ended.err
    assert all((run / name).is_file() for name in FILES)
    verified = pffl(capsys, "verify", run / "certificate.json")
    assert verified.code == 0, verified.out
    page = tmp_path / "page.html"
    assert pffl(capsys, "report", run, "-o", page).code == 0
    assert "not Male" in page.read_text("utf-8")
    again = tmp_path / "again"
    assert pffl(capsys, "run", run / "run.toml", "--out", again).code == 0
    first, second = runs.read_run(run), runs.read_run(again)
    np.testing.assert_array_equal(first.w, second.w)
