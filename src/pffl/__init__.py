"""Train one model over data that stays in silos, under a bound for every group."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pffl.certificates import Certificate as Certificate
from pffl.certify import certify as certify
from pffl.data import Federation as Federation
from pffl.errors import PFFLError as PFFLError
from pffl.fairness import BoundedGroupLoss as BoundedGroupLoss
from pffl.fairness import ConditionalBoundedGroupLoss as ConditionalBoundedGroupLoss
from pffl.fairness import MinMax as MinMax
from pffl.fairness import PerSilo as PerSilo
from pffl.methods import PFFL as PFFL
from pffl.methods import Exact as Exact
from pffl.methods import FedAvg as FedAvg
from pffl.models import HuberRegression as HuberRegression
from pffl.models import LeastSquares as LeastSquares
from pffl.models import LogisticRegression as LogisticRegression
from pffl.models import SoftmaxRegression as SoftmaxRegression
from pffl.preparation import Options as Options
from pffl.solution import Solution as Solution
from pffl.solve import solve as solve
from pffl.solve import solve_many as solve_many

if TYPE_CHECKING:
    from pffl import datasets as datasets
    from pffl.models import Network as Network

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load what is heavy when it is first used: `import pffl` stays light."""
    if name == "datasets":
        return import_module("pffl.datasets")
    if name == "Network":
        return import_module("pffl.models.network").Network
    raise AttributeError(f"module 'pffl' has no attribute '{name}'")
