"""A torch module as a model: its w, its losses, its local steps."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import approx_fprime

import pffl
from pffl.config import parse
from pffl.errors import ArtefactError, DataError, UsageError
from pffl.methods import PFFL
from pffl.models import Inputs, LeastSquares, LogisticRegression
from tests.helpers import make_federation, make_schema
from tests.inside import RECIPES, Step, read_model, section_of, write_model
from tests.raising import raises

LABELS = {"cross_entropy": 3, "binary": 2, "squared": 0}
LOSSES = list(LABELS)


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global torch, nn, celeba_cnn, mlp, Network, MODULES, Own, network
    pytest.importorskip("torch", reason="networks need the extra 'torch'")
    import torch
    from torch import nn

    from pffl.models import celeba_cnn, mlp
    from tests.inside import Network
    from tests.models.networks import MODULES, Own, network


def draw(loss, seed=0, n=23, features=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, features))
    y = 2 * rng.normal(size=n)
    if LABELS[loss]:
        y = rng.integers(LABELS[loss], size=n).astype(float)
    return rng, X, y, rng.uniform(0, 2, n)


def bound(module, features=3, **options):
    model = Network(module, **{"standardize": False, **options})
    return model.bind(make_schema(features=features), Inputs.identity(features))


def plain_step(size=0.1, w=None, **changes):
    settings = {"ridge": 0.0, "proximal": 0.0, "anchor": w, "key": (0, 0, 0, 0)}
    return Step(size, **{**settings, **changes})


# Losses and predictions


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_agrees_with_differences(loss):
    model = network(loss)
    rng, X, y, weights = draw(loss, 1)
    w = rng.normal(size=model.n_parameters)
    losses, gradient = model.losses_and_gradient(w, X, y, weights)
    np.testing.assert_allclose(losses, model.losses(w, X, y), rtol=1e-12)
    numeric = approx_fprime(w, lambda v: weights @ model.losses(v, X, y), 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-5)


# The vector w


def test_w_holds_trained_parameters_first_then_what_is_averaged():
    module = Own()
    model = bound(module, initial="given")
    w = model.start(0)
    trained = [p for p in module.parameters() if p.requires_grad]
    rest = [*module.frozen.parameters(), module.shift]
    flat = torch.cat([t.detach().reshape(-1) for t in [*trained, *rest]])
    np.testing.assert_array_equal(w, flat.double().numpy())
    assert model.n_trained == sum(p.numel() for p in trained)
    assert model.n_parameters == len(w)
    other = w + np.arange(len(w))
    state = model.state_dict(other)
    again = Own()
    again.load_state_dict(state)
    np.testing.assert_allclose(again.shift.numpy(), other[-8:], rtol=1e-6)
    np.testing.assert_array_equal(
        Network(again, initial="given").start(0), other.astype(np.float32)
    )


def test_the_start_is_drawn_from_the_seed_and_nothing_else_is_touched():
    module = mlp(3, (4,), 2, batch_norm=True)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model = bound(module, standardize=True)
    starts = [model.start(seed) for seed in (0, 0, 1)]
    _, X, y, weights = draw("binary", 4)
    w = model.local_step(starts[0], X, y, weights, plain_step(w=starts[0]))
    model.losses(w, X, y)
    np.testing.assert_array_equal(torch.rand(3).numpy(), expected.numpy())
    np.testing.assert_array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name].numpy())
    assert module.training
    # Running statistics start at mean 0 and variance 1.
    np.testing.assert_array_equal(starts[0][model.n_trained :], [0] * 4 + [1] * 4)


# Inputs


# Local steps


def reference_training(module, X, y, weights, sizes):
    """Train as torch's own users do; return the state dict."""
    module.train()
    for size in sizes:
        z = module(torch.tensor(X))
        losses = nn.functional.cross_entropy(
            z, torch.tensor(y).long(), reduction="none"
        )
        (losses * torch.tensor(weights)).sum().backward()
        for parameter in module.parameters():
            parameter.data -= size * parameter.grad
            parameter.grad = None
    return module.state_dict()


@pytest.mark.parametrize("kind", ["dense", "batch norm", "convolution"])
def test_local_steps_are_those_of_torch(kind):
    module = MODULES[kind]().double()
    model = bound(module, initial="given")
    _, X, y, weights = draw("binary", 5)
    w = model.start(0)
    for size in (0.1, 0.05, 0.2):
        w = model.local_step(w, X, y, weights, plain_step(size, w))
    expected = reference_training(module, X, y, weights, (0.1, 0.05, 0.2))
    for name, tensor in model.state_dict(w).items():
        if tensor.is_floating_point():
            np.testing.assert_allclose(
                tensor.numpy(), expected[name].numpy(), rtol=1e-10
            )


def test_statistics_move_by_the_batch_and_by_nothing_else():
    module = mlp(3, (4,), 2, batch_norm=True).double()
    model = bound(module)
    _, X, y, weights = draw("binary", 6)
    w, n = model.start(0), model.n_trained
    anchor = w + 1.0
    moved = model.local_step(
        w, X, y, weights, plain_step(0.1, anchor, ridge=3.0, proximal=2.0)
    )
    hidden = X @ w[:12].reshape(4, 3).T + w[12:16]
    np.testing.assert_allclose(moved[n : n + 4], 0.1 * hidden.mean(axis=0))
    np.testing.assert_allclose(moved[n + 4 :], 0.9 + 0.1 * hidden.var(axis=0, ddof=1))
    free = model.local_step(w, X, y, weights, plain_step(0.1, w))
    pulled = free[:n] - 0.1 * (3.0 * w[:n] + 2.0 * (w[:n] - anchor[:n]))
    np.testing.assert_allclose(moved[:n], pulled, rtol=1e-12)
    np.testing.assert_array_equal(moved[n:], free[n:])
    # Evaluation leaves them alone.
    _, gradient = model.losses_and_gradient(w, X, y, weights)
    np.testing.assert_array_equal(gradient[n:], 0.0)


def test_fault_16_a_batch_of_one_row_keeps_the_statistics():
    model = bound(mlp(3, (4,), 2, batch_norm=True).double())
    w, n = model.start(0), model.n_trained
    moved = model.local_step(
        w, np.ones((1, 3)), np.ones(1), np.ones(1), plain_step(w=w)
    )
    np.testing.assert_array_equal(moved[n:], w[n:])
    assert not np.array_equal(moved[:n], w[:n])
    # … and the next batch moves them again.
    _, X, y, weights = draw("binary")
    assert not np.array_equal(
        model.local_step(w, X, y, weights, plain_step(w=w))[n:], w[n:]
    )


@pytest.mark.parametrize("kind", ["dropout", "hidden dropout"])
def test_dropout_is_drawn_from_the_key_of_the_step(kind):
    model = bound(MODULES[kind]())
    _, X, y, weights = draw("binary")
    w = model.start(0)
    keys = [(0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0), (1, 0, 0, 0)]
    found = [
        model.local_step(w, X, y, weights, plain_step(w=w, key=key)) for key in keys
    ]
    np.testing.assert_array_equal(found[0], found[1])
    assert len({v.tobytes() for v in found}) == 4
    np.testing.assert_array_equal(model.losses(w, X, y), model.losses(w, X, y))


# Refusals


def bound_to(labels, build, loss):
    model = Network(build(), loss)
    return model.bind(make_schema(labels=labels), Inputs.identity(3))


MANY = {"loss": "hinge", "l2": -1.0, "initial": "zero"}
MANY |= {"device": "abacus", "standardize": "yes"}


def test_wrong_parameters_are_refused_by_name():
    with raises(UsageError, "wrong-value", "6", *MANY):
        Network("cnn", **MANY)
    with raises(UsageError, "no-parameters"):
        Network(nn.Linear(2, 2).requires_grad_(False))
    with raises(UsageError, "mixed-types"):
        Network(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
    for build in (lambda: mlp(0, (3, -1), True), lambda: celeba_cnn(8.5)):
        with raises(UsageError, "wrong-value"):
            build()


@pytest.mark.parametrize(
    ("loss", "labels", "shape", "error", "name"),
    [
        ("cross_entropy", 0, (3, 1), DataError, "'squared'"),
        ("binary", 3, (3, 1), DataError, "'cross_entropy'"),
        ("squared", 2, (3, 1), DataError, "'binary'"),
        ("cross_entropy", 3, (3, 2), UsageError, "(2, 3)"),
        ("binary", 2, (3, 2), UsageError, "(2, 1)"),
        ("cross_entropy", 3, (4, 3), UsageError, "3"),
    ],
)
def test_rows_that_do_not_fit_are_refused(loss, labels, shape, error, name):
    code = "wrong-model" if error is DataError else "wrong-shape"
    with raises(error, code, name):
        bound_to(labels, lambda: mlp(shape[0], (), shape[1]), loss)


# Architectures, and what a file can hold


def test_the_cnn_is_leafs():
    module = celeba_cnn()
    shapes = [tuple(p.shape) for p in module.parameters() if p.ndim > 1]
    assert shapes == [(32, 3, 3, 3), *[(32, 32, 3, 3)] * 3, (2, 6 * 6 * 32)]
    kinds = [type(layer).__name__ for layer in module[1:5]]
    assert kinds == ["Conv2d", "BatchNorm2d", "MaxPool2d", "ReLU"]
    # A row holds colours last; the first channel of the first block sees red.
    rows = torch.zeros(2, 12, 12, 3)
    rows[0, ..., 0] = 255.0
    small = celeba_cnn(12, width=1).eval()
    with torch.no_grad():
        for layer in small:
            if isinstance(layer, nn.Conv2d):
                layer.weight.zero_()
                layer.weight[:, 0, 1, 1] = 1.0
                layer.bias.zero_()
        small[-1].weight.fill_(1.0)
        small[-1].bias.zero_()
        out = small(rows.reshape(2, -1))
    np.testing.assert_allclose(out[0].numpy(), 1.0, rtol=1e-4)
    np.testing.assert_allclose(out[1].numpy(), 0.0, atol=1e-6)


ARCHITECTURES = {
    "mlp": (lambda: mlp(3, (4, 2), 2, batch_norm=True), 3),
    "linear": (lambda: mlp(3, (), 2).double(), 3),
    "cnn": (lambda: celeba_cnn(12, width=2), 432),
}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_network_is_rebuilt_from_its_description(kind):
    build, features = ARCHITECTURES[kind]
    schema, inputs = make_schema(features=features), Inputs.identity(features)
    model = Network(build(), l2=0.1, initial="given").bind(schema, inputs)
    described = model.describe()
    again = pffl.models.rebuild(described, parameters=model.n_parameters)
    again = again.bind(schema, inputs)
    assert again.describe() == described
    w = model.start(0) + 0.1
    X, y = np.ones((4, features)), np.zeros(4)
    np.testing.assert_array_equal(again.losses(w, X, y), model.losses(w, X, y))


def test_descriptions_of_anything_else_are_refused():
    model = network("cross_entropy")
    good = dict(model.describe())
    size = model.n_parameters
    wide = {"name": "mlp", "inputs": 3, "hidden": [1 << 20] * 900, "outputs": 2}
    for changes in (
        {"architecture": {"name": "own module", "class": "Own"}},
        {"architecture": {"name": "os.system"}},
        {"architecture": "mlp"},
        {"architecture": {**wide, "batch_norm": False}},  # 10¹⁵ numbers
        {"architecture": {**wide, "hidden": [1] * 1001}},
        {"architecture": {**wide, "hidden": "4"}},
        {"architecture": {**wide, "inputs": 3.5}},
        {"architecture": {**wide, "size": 3}},
        {"dtype": "object"},
        {"loss": "hinge"},
        {"l2": "little"},
        {"l2": True},
        {"standardize": 1},
        {"device": "cuda"},
        {"kind": "forest"},
    ):
        with pytest.raises(UsageError):
            pffl.models.rebuild({**good, **changes}, parameters=size)
    for junk in (None, [], "network", {"kind": ["network"]}, {}):
        with raises(UsageError, "unknown-model"):
            pffl.models.rebuild(junk, parameters=size)
    with raises(UsageError, "wrong-architecture", size, size + 1):
        pffl.models.rebuild(good, parameters=size + 1)
    own = Network(Own()).describe()["architecture"]
    assert own == {"name": "own module", "class": "Own"}


def test_without_torch_the_extra_is_named_and_the_rest_works():
    code = """
import sys
sys.modules["torch"] = None
import pffl, pffl.models
for name in ("pffl.models.Network", "pffl.models.mlp", "pffl.models.celeba_cnn"):
    try:
        eval(name)
    except pffl.PFFLError as error:
        assert "pip install 'pffl[torch]'" in str(error), error
    else:
        raise SystemExit(name)
people = pffl.datasets.synthetic(200, silos=2)
pffl.solve(people, pffl.BoundedGroupLoss(1.0), random_state=0)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


# From data to verdict: the same run as a linear model

FEW = {"dual_rounds": 4, "rounds_per_dual": 5, "local_steps": 2, "step_size": 0.1}


def zeros(features, outputs=1):
    """Return a dense layer of doubles that starts at 0, as linear models do."""
    layer = nn.Linear(features, outputs).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    return layer


PAIRS = {
    "logistic": (LogisticRegression, "binary", 2),
    "least squares": (LeastSquares, "squared", 0),
}


@pytest.mark.parametrize("engine", ["local", "reference"])
@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_torch_model_and_the_numpy_one_give_the_same_run(pair, batch_size, engine):
    linear, loss, labels = PAIRS[pair]
    federation = make_federation(2, sizes=(40, 25, 60, 12), labels=labels)
    method = PFFL(
        dual_rounds=5,
        rounds_per_dual=4,
        local_steps=3,
        step_size=0.02,
        dual_step_size=1.0,
        batch_size=batch_size,
        proximal=0.1,
        multiplier_bound=3.0,
        iterate="average",
        drift_correction=batch_size is not None,
        by_mass=batch_size is None,
        target_gap=1e-12,
    )
    constraint = pffl.BoundedGroupLoss(0.5) & pffl.PerSilo(0.7)
    models = (linear(l2=0.01), Network(zeros(3), loss, l2=0.01, initial="given"))
    numpy_run, torch_run = (
        pffl.solve(
            federation,
            constraint,
            model=m,
            method=method,
            random_state=4,
            engine=engine,
        )
        for m in models
    )
    np.testing.assert_allclose(torch_run.w, numpy_run.w, atol=1e-10)
    np.testing.assert_allclose(torch_run.multipliers, numpy_run.multipliers, atol=1e-10)
    left_out = ("round", "gap", "seconds", "worst_cell")
    columns = [c for c in numpy_run.history if c not in left_out]
    trained = numpy_run.history["gap"].isna()  # a network's gap is never looked at
    np.testing.assert_allclose(
        torch_run.history[columns], numpy_run.history[columns][trained], atol=1e-9
    )
    assert torch_run.test.error == numpy_run.test.error
    for a, b in zip(torch_run.cell_results, numpy_run.cell_results, strict=True):
        assert a.test_loss == pytest.approx(b.test_loss, abs=1e-9)
    assert torch_run.gap is None


def test_a_network_is_saved_and_read_back(tmp_path):
    federation = make_federation(1)
    solution = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(0.9),
        model=Network(mlp(3, (4,), 2, batch_norm=True)),
        method=PFFL(**FEW),
        random_state=0,
    )
    path = tmp_path / "model.safetensors"
    path.write_bytes(write_model(solution.predictor))
    saved = read_model(path)
    X = federation.silos[0].rows("test").X
    np.testing.assert_array_equal(saved.predict_proba(X), solution.predict_proba(X))
    own = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(0.9),
        model=Network(Own()),
        method=PFFL(**FEW),
        random_state=0,
    )
    path.write_bytes(write_model(own.predictor))
    with raises(ArtefactError, "bad-model-file"):
        read_model(path)
    saved = read_model(path, module=Own())
    np.testing.assert_array_equal(saved.predict_proba(X), own.predict_proba(X))
    for other in (mlp(3, (4,), 2), Own().double(), nn.Linear(3, 2)):
        with raises(ArtefactError, "bad-model-file"):
            read_model(path, module=other)
    with raises(ArtefactError, "bad-model-file", "w"):
        read_model(path, module=Own(outputs=2, hidden=9))


# As a run file names them: sizes from the data, and the way back to a file


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
