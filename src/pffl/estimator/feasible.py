"""The smallest bound that all groups can meet together, for arrays."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import validate_data

from pffl._solve import solve
from pffl.constraints import Constraint
from pffl.errors import UsageError
from pffl.estimator.base import constraint_of
from pffl.estimator.classifier import FairClassifier
from pffl.estimator.regressor import FairRegressor
from pffl.estimator.rows import federation_of
from pffl.methods.auto import Auto
from pffl.text import up


def feasible_bound(
    X: Any,
    y: Any,
    *,
    sensitive_features: object = None,
    silos: object = None,
    sample_weight: object = None,
    estimator: FairClassifier | FairRegressor | None = None,
) -> float:
    """Return the smallest bound that the losses of all groups can meet together.

    Parameters
    ----------
    X, y, sensitive_features, silos, sample_weight
        As for `FairClassifier.fit`.
    estimator
        Whose model and constraint it is asked for; its bound plays no part. Default:
        `FairRegressor` for numbers that are not whole, else `FairClassifier`.

    Returns
    -------
    float
        The bound, rounded up: it can be kept.

    Raises
    ------
    UsageError
        The estimator has a constraint of its own instead of the name of one.
    DataError
        The rows cannot be used: lengths differ, one label, missing values.

    Examples
    --------
    >>> import numpy as np, pffl
    >>> rng = np.random.default_rng(0)
    >>> X, group = rng.normal(size=(400, 2)), rng.choice(["a", "b"], 400)
    >>> y = X[:, 0] + rng.logistic(size=400) > 0
    >>> least = pffl.feasible_bound(X, y, sensitive_features=group)
    >>> pffl.FairClassifier(bound=least).fit(X, y, sensitive_features=group).status_
    'met'
    """
    numeric = str(type_of_target(y)).startswith("continuous")
    asked = estimator or (FairRegressor() if numeric else FairClassifier())
    given = asked.get_params(deep=False)
    if any(isinstance(given.get(key), Constraint) for key in ("bound", "constraint")):
        raise UsageError(
            "[wrong-constraint] feasible_bound takes a constraint by its name, such "
            "as 'bgl': for others there is pffl.feasible(Federation.from_arrays(…), "
            "constraint)"
        )
    classifies = isinstance(asked, FairClassifier)
    own = clone(asked)
    own.bound, own.l2 = 0.0, 0.0
    X, y = validate_data(
        own, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=not classifies
    )
    classes = len(np.unique(y)) if classifies else 0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "a bound of 0")
        solution = solve(
            federation_of(
                X,
                y,
                own._names(),
                classification=classifies,
                sensitive_features=sensitive_features,
                silos=silos,
                sample_weight=sample_weight,
            ),
            constraint_of(own),
            model=own._model(classes),
            method=Auto(multiplier_bound=1.0, risk_weight=0.0),  # minimax
            options=replace(own._options(), least=False),
            seed=0,
        )
    return float(up(max(row.train_loss for row in solution.cell_results), digits=5))
