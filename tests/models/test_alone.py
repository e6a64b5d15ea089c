"""A network on each example by itself: against a plain loop over examples."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from pffl.data.schema import Attribute, Schema  # noqa: E402
from pffl.errors import UsageError  # noqa: E402
from pffl.models import alone  # noqa: E402
from pffl.models.base import Inputs  # noqa: E402
from pffl.models.network import Network  # noqa: E402

FEATURES = 16
SCHEMA = Schema(
    tuple(f"x{i}" for i in range(FEATURES)),
    (Attribute("sex", ("f", "m")),),
    ("no", "yes"),
)


class Centred(nn.Module):
    """Takes the mean of its batch off: with others in the batch, rows are mixed."""

    def forward(self, x):
        return x - x.mean(0) if len(x) > 1 else x


def dense(outputs: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 7), nn.Tanh(), nn.Linear(7, outputs))


def pictures() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 2),
    )


def normed() -> nn.Module:
    frozen = nn.Linear(FEATURES, FEATURES)
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
    return nn.Sequential(
        frozen, nn.LayerNorm(FEATURES), nn.Dropout(0.0), nn.Linear(FEATURES, 2)
    )


def bound(module: nn.Module, loss: str = "cross_entropy") -> Network:
    scaling = Inputs(np.full(FEATURES, 0.5), np.full(FEATURES, 2.0))
    return Network(module, loss).bind(SCHEMA, scaling)


def rows(many: int = 23, seed: int = 0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(many, FEATURES)) * 3
    return X, random.integers(0, 2, many).astype(float)


def gradients(model: Network, w, X, y, clip: float) -> np.ndarray:
    found = [part for _, part in alone.gradients(model, w, X, y, clip)]
    return np.concatenate(found)


def plainly(model: Network, w, X, y, clip: float) -> np.ndarray:
    """Example by example: backward, the length of its gradient, shortened."""
    out = []
    for x, label in zip(X, y, strict=True):
        replica = model.replica
        replica.load(w)
        module = replica.evaluating()
        inputs = torch.tensor((x - 0.5) / 2.0)[None].to(model._dtype)
        z = module(inputs)
        if model.loss == "binary":
            target = torch.tensor([label], dtype=z.dtype)
            loss = nn.functional.binary_cross_entropy_with_logits(z[:, 0], target)
        else:
            loss = nn.functional.cross_entropy(z, torch.tensor([int(label)]))
        module.zero_grad()
        loss.backward()
        parts = [p.grad.reshape(-1) for p in module.parameters() if p.requires_grad]
        own = torch.cat(parts).double().numpy()
        out.append(own * min(1.0, clip / max(np.linalg.norm(own), 1e-300)))
    return np.array(out)


NETWORKS = {
    "dense": (dense, "cross_entropy"),
    "one score": (lambda: dense(1), "binary"),
    "pictures": (pictures, "cross_entropy"),
    "frozen and normed": (normed, "cross_entropy"),
    "float64": (lambda: dense().double(), "cross_entropy"),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("clip", [0.3, 2.0, 1e6])
def test_each_gradient_is_the_plain_one_shortened(name, clip):
    make, loss = NETWORKS[name]
    torch.manual_seed(0)
    model = bound(make(), loss)
    alone.check(model)
    w, (X, y) = model.start(3), rows()
    found, expected = gradients(model, w, X, y, clip), plainly(model, w, X, y, clip)
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert (np.linalg.norm(found, axis=1) <= clip).all()
    losses, classes = alone.losses_and_classes(model, w, X, y)
    both = model.losses_and_classes(w, X, y)
    assert losses == pytest.approx(both[0], rel=1e-5, abs=1e-6)
    assert np.array_equal(classes, both[1])


def test_a_batch_shortened_as_a_whole_is_another_thing():
    """The oracle tells a clip per batch from a clip per example."""
    model, (X, y) = bound(dense()), rows()
    w = model.start(0)
    batch = plainly(model, w, X, y, np.inf).sum(axis=0)
    batch *= min(1.0, 0.3 / np.linalg.norm(batch))
    assert np.linalg.norm(gradients(model, w, X, y, 0.3).sum(axis=0) - batch) > 0.3


def test_nobody_changes_what_another_adds():
    """Also in a module that takes the mean of its batch off."""
    model, (X, y) = bound(nn.Sequential(Centred(), dense())), rows()
    w = model.start(1)
    losses = alone.losses_and_classes(model, w, X, y)[0]
    slopes = gradients(model, w, X, y, 2.0)
    X[0] = 1e3
    assert np.array_equal(alone.losses_and_classes(model, w, X, y)[0][1:], losses[1:])
    assert np.array_equal(gradients(model, w, X, y, 2.0)[1:], slopes[1:])
    # Together they would: that is why each is by itself.
    mixed = model.losses_and_classes(w, X, y)[0]
    assert not np.allclose(mixed[1:], losses[1:])


@pytest.mark.parametrize("name", ["dense", "pictures"])
def test_on_the_grid_nobody_moves_another(name):
    """Whoever stands before them, and however many: kernels change last digits only."""
    make, loss = NETWORKS[name]
    model, (X, y) = bound(make(), loss), rows(300)
    w, moved, worst = model.start(0), 0, 0.0
    whole = gradients(model, w, X, y, 2.0)
    for cut in (1, 7, 64, 130):
        part = gradients(model, w, X[cut:], y[cut:], 2.0)
        worst = max(worst, float(np.abs(part - whole[cut:]).max()))
        moved += int((np.rint(part * 2**24) != np.rint(whole[cut:] * 2**24)).sum())
    assert worst < 1e-13
    assert moved == 0


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("wild", [np.nan, np.inf, 1e30, -1e38])
def test_no_gradient_is_longer_than_the_clip(kind, wild):
    module = dense().double() if kind is np.float64 else dense()
    model, (X, y) = bound(module), rows()
    X[3, 2] = wild
    for scale in (1.0, 1e30, 1e300 if kind is np.float64 else 1e38):
        with np.errstate(all="ignore"):
            w = model.start(0) * scale
        found = gradients(model, w, X, y, 1.5)
        assert np.isfinite(found).all()
        assert (np.linalg.norm(found, axis=1) <= 1.5 * (1 + 1e-12)).all()


LAYERS = {
    "BatchNorm1d": lambda: nn.BatchNorm1d(FEATURES),
    "Dropout": lambda: nn.Dropout(0.2),
    "LSTM": lambda: nn.LSTM(FEATURES, FEATURES),
    "SyncBatchNorm": lambda: nn.SyncBatchNorm(FEATURES),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_refused_by_name(name):
    module = nn.Sequential(dense(FEATURES), LAYERS[name]())
    model = Network(nn.Sequential(module, nn.Linear(FEATURES, 2)))
    with pytest.raises(UsageError, match=rf"layer '0\.1' \({name}\)"):
        alone.check(model)


def test_running_statistics_are_refused_whatever_the_layer():
    module = nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.InstanceNorm2d(1, track_running_stats=True),
        nn.Flatten(),
        nn.Linear(16, 2),
    )
    with pytest.raises(UsageError, match="running statistics"):
        alone.check(bound(module))


def test_what_cannot_be_mapped_is_refused():
    class Branching(nn.Module):
        def forward(self, x):
            return x if bool(x.sum() > 0) else -x

    with pytest.raises(UsageError, match="cannot map over examples"):
        alone.check(bound(nn.Sequential(Branching(), dense())))

    class Drawing(nn.Module):
        def forward(self, x):
            return nn.functional.dropout(x, 0.5, training=True)

    with pytest.raises(UsageError, match="cannot map over examples"):
        alone.check(bound(nn.Sequential(Drawing(), dense())))
