"""Networks that a run file names: sizes from the data, and the way back to a file."""

from __future__ import annotations

import pytest

from pffl.config import parse
from pffl.errors import UsageError
from pffl.methods import PFFL
from tests.helpers import make_schema
from tests.inside import RECIPES, section_of
from tests.raising import raises


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global mlp, Own
    pytest.importorskip("torch", reason="networks need the extra 'torch'")
    from pffl.models import mlp
    from tests.models.networks import Own


def read(table):
    spec = parse({"data": {"name": "synthetic"}, "model": table})
    return spec.model, spec.method


@pytest.mark.parametrize(
    ("labels", "loss", "outputs"),
    [(2, None, 2), (3, None, 3), (0, None, 1), (2, "binary", 1), (0, "squared", 1)],
)
def test_sizes_and_loss_come_from_the_data(labels, loss, outputs):
    table = {"kind": "mlp", "hidden": [5, 4], "l2": 0.1, "batch_norm": True}
    recipe, method = read(table if loss is None else {**table, "loss": loss})
    assert isinstance(method, PFFL)
    model = recipe.build(make_schema(features=7, labels=labels))
    assert model.describe()["architecture"] == {
        "name": "mlp",
        "inputs": 7,
        "hidden": [5, 4],
        "outputs": outputs,
        "batch_norm": True,
    }
    expected = loss or ("cross_entropy" if labels else "squared")
    assert model.describe()["loss"] == expected
    assert model.l2 == 0.1


def test_pictures_have_their_size_or_are_none():
    recipe, _ = read({"kind": "celeba_cnn", "width": 4, "dtype": "float64"})
    model = recipe.build(make_schema(features=16 * 16 * 3))
    assert model.describe()["architecture"]["size"] == 16
    assert model.describe()["dtype"] == "float64"
    with raises(UsageError, "wrong-shape", "767"):
        recipe.build(make_schema(features=16 * 16 * 3 - 1))


@pytest.mark.parametrize("kind", RECIPES)
def test_a_file_written_from_a_model_asks_for_it_again(kind):
    schema = make_schema(features=12 * 12 * 3)
    model = read({"kind": kind, "l2": 0.3, "standardize": True})[0].build(schema)
    section = section_of(model)
    assert section["kind"] == kind
    assert read(section)[0].build(schema).describe() == model.describe()
