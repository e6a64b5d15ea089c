"""Train one model over data that stays in silos, under a bound for every group.

Names are loaded when they are first used, so that ``import pffl`` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pffl import constraints as constraints
    from pffl import datasets as datasets
    from pffl import figures as figures
    from pffl import methods as methods
    from pffl import metrics as metrics
    from pffl import models as models
    from pffl._audit import audit as audit
    from pffl._certify import certify as certify
    from pffl._feasible import feasible as feasible
    from pffl._monitor import monitor as monitor
    from pffl._report.page import report as report
    from pffl._solve import solve as solve
    from pffl.constraints import BoundedGroupLoss as BoundedGroupLoss
    from pffl.constraints import (
        ConditionalBoundedGroupLoss as ConditionalBoundedGroupLoss,
    )
    from pffl.constraints import MinMax as MinMax
    from pffl.constraints import PerSilo as PerSilo
    from pffl.data import Federation as Federation
    from pffl.errors import PFFLError as PFFLError
    from pffl.estimators import FairClassifier as FairClassifier
    from pffl.estimators import FairRegressor as FairRegressor
    from pffl.experiments.comparison import compare as compare
    from pffl.external import solve_loaders as solve_loaders
    from pffl.models.predictor import Predictor as Predictor
    from pffl.prepare import Options as Options
    from pffl.privacy.terms import Privacy as Privacy
    from pffl.runs import load as load
    from pffl.solution import Solution as Solution
    from pffl.verification import verify as verify

__version__ = "0.3.0"

#: Where each public name lives.
_HOMES = {
    "BoundedGroupLoss": "constraints",
    "ConditionalBoundedGroupLoss": "constraints",
    "FairClassifier": "estimators",
    "FairRegressor": "estimators",
    "Federation": "data",
    "MinMax": "constraints",
    "Options": "prepare",
    "Privacy": "privacy.terms",
    "PFFLError": "errors",
    "PerSilo": "constraints",
    "Predictor": "models.predictor",
    "Solution": "solution",
    "audit": "_audit",
    "certify": "_certify",
    "compare": "experiments.comparison",
    "feasible": "_feasible",
    "load": "runs",
    "monitor": "_monitor",
    "report": "_report.page",
    "solve": "_solve",
    "solve_loaders": "external",
    "verify": "verification",
}

#: Modules that are public as they are.
_MODULES = ("constraints", "datasets", "figures", "methods", "metrics", "models")

__all__ = ["__version__", *_MODULES, *_HOMES]


def __getattr__(name: str) -> object:
    """Load a public name."""
    if name in _MODULES:
        return import_module(f"pffl.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'pffl' has no attribute '{name}'")
    value: object = getattr(import_module(f"pffl.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
