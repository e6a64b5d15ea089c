"""Models: linear ones in NumPy, networks in torch (extra)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from pffl.errors import UsageError
from pffl.models.base import Inputs as Inputs
from pffl.models.base import Model as Model
from pffl.models.huber import HuberRegression as HuberRegression
from pffl.models.linear import LeastSquares as LeastSquares
from pffl.models.linear import LinearModel as LinearModel
from pffl.models.linear import LogisticRegression as LogisticRegression
from pffl.models.linear import SoftmaxRegression as SoftmaxRegression

if TYPE_CHECKING:
    from pffl.models.architectures import celeba_cnn as celeba_cnn
    from pffl.models.architectures import mlp as mlp
    from pffl.models.network import Network as Network

LINEAR_MODELS: dict[str, type[LinearModel]] = {
    model.name: model
    for model in (LogisticRegression, SoftmaxRegression, LeastSquares, HuberRegression)
}

_WITH_TORCH = {
    "Network": "pffl.models.network",
    "celeba_cnn": "pffl.models.architectures",
    "mlp": "pffl.models.architectures",
}


def __getattr__(name: str) -> object:
    """Load what needs torch when it is first used."""
    if name in _WITH_TORCH:
        return getattr(import_module(_WITH_TORCH[name]), name)
    raise AttributeError(f"module 'pffl.models' has no attribute '{name}'")


def rebuild(described: object) -> Model:
    """Return the unbound model that a `describe()` stands for; refuse anything else.

    Only names of our own tables are looked up, and no code is ever loaded. A network
    with a module of the user's own cannot be rebuilt without that module.
    """
    if not isinstance(described, Mapping) or not isinstance(described.get("kind"), str):
        raise UsageError(f"no model of this version is described by {described!r}")
    values = {str(key): value for key, value in described.items() if key != "kind"}
    kind = str(described["kind"])
    if kind == "network":
        architecture, dtype = (
            values.pop("architecture", None),
            values.pop("dtype", None),
        )
        module = import_module("pffl.models.architectures").build(architecture, dtype)
        return _construct(import_module("pffl.models.network").Network, values, module)
    if kind not in LINEAR_MODELS:
        raise UsageError(f"no model '{kind}': there are {[*LINEAR_MODELS, 'network']}")
    switches = {"intercept", "standardize"}
    if not all(isinstance(values.get(name, True), bool) for name in switches):
        raise UsageError(f"no model of this version is described by {described!r}")
    return _construct(LINEAR_MODELS[kind], values)


def _construct(make: type, values: Mapping[str, object], *first: object) -> Model:
    try:
        model: Model = make(*first, **values)
    except TypeError as error:
        raise UsageError(
            f"no model of this version is described by {dict(values)!r}"
        ) from error
    return model
