"""Models: linear ones in NumPy, networks in torch (extra)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from pffl.errors import UsageError
from pffl.models.base import Inputs as Inputs
from pffl.models.base import Model as Model
from pffl.models.linear import HuberRegression as HuberRegression
from pffl.models.linear import LeastSquares as LeastSquares
from pffl.models.linear import LinearModel as LinearModel
from pffl.models.linear import LogisticRegression as LogisticRegression
from pffl.models.linear import SoftmaxRegression as SoftmaxRegression
from pffl.numerics import is_number

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


def rebuild(described: object, *, parameters: int, module: object = None) -> Model:
    """Return the unbound model that a `describe()` stands for; refuse anything else.

    Only names of our own tables are looked up: no code is ever loaded, and a network
    that would not have exactly so many `parameters` is refused before memory is given
    to it. One with a module of the user's own needs that `module`, which must be what
    was described.
    """
    values = dict(described) if isinstance(described, Mapping) else {}
    kind = values.pop("kind", None)
    unknown = UsageError(f"no model of this version is described by {described!r}")
    if not all(_is_plain(name, values[name]) for name in values):
        raise unknown
    if kind == "network":
        architecture, dtype = (
            values.pop("architecture", None),
            values.pop("dtype", None),
        )
        if module is None:
            build = import_module("pffl.models.architectures").build
            module = build(architecture, dtype, parameters=parameters)
        network: Model = import_module("pffl.models.network").Network(module)
        expected = {"kind", "architecture", "dtype", *values}
    elif isinstance(kind, str) and kind in LINEAR_MODELS:
        network = LINEAR_MODELS[kind]()
        expected = {"kind", *values}
    else:
        raise unknown
    if set(network.describe()) != expected:
        raise unknown
    model: Model = replace(network, **values)  # type: ignore[type-var]
    if kind == "network" and model.describe() != described:
        raise UsageError(f"the module given is not what is described: {described!r}")
    return model


def _is_plain(name: object, value: object) -> bool:
    """Whether a parameter has the type that `describe` gives it."""
    if name in ("intercept", "standardize"):
        return isinstance(value, bool)
    if name in ("l2", "delta"):
        return is_number(value)
    return True
