"""Models: linear ones in NumPy, networks in torch (extra)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pffl.models.base import Inputs as Inputs
from pffl.models.base import Model as Model
from pffl.models.base import Target as Target
from pffl.models.linear import LINEAR_MODELS as LINEAR_MODELS
from pffl.models.linear import HuberRegression as HuberRegression
from pffl.models.linear import LeastSquares as LeastSquares
from pffl.models.linear import LinearModel as LinearModel
from pffl.models.linear import LogisticRegression as LogisticRegression
from pffl.models.linear import SoftmaxRegression as SoftmaxRegression
from pffl.models.linear import rebuild as rebuild

if TYPE_CHECKING:
    from pffl.models.network import Network as Network
    from pffl.models.network import celeba_cnn as celeba_cnn
    from pffl.models.network import mlp as mlp


def __getattr__(name: str) -> object:
    """Load what needs torch when it is first used."""
    if name in ("Network", "celeba_cnn", "mlp"):
        return getattr(import_module("pffl.models.network"), name)
    raise AttributeError(f"module 'pffl.models' has no attribute '{name}'")
