"""A linear regression under a bound for every group."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from pffl.constraints import Constraint
from pffl.data.federation import name_of
from pffl.errors import UsageError, wrong
from pffl.estimator.base import Bound, Fair, Infeasible
from pffl.estimator.rows import weights
from pffl.methods.base import Method
from pffl.models.linear import (
    HuberRegression,
    LeastSquares,
    LinearModel,
    NumericModel,
)
from pffl.prepare import Weighting
from pffl.typing import FloatArray


class FairRegressor(RegressorMixin, Fair):
    """Linear regression with a bound on the mean loss of every group.

    Parameters
    ----------
    bound
        The largest mean loss of a group, in the target's unit squared; otherwise as
        for `FairClassifier`.
    constraint, l2, fit_intercept, method, multiplier_bound, risk_weight, weighting
        As for `FairClassifier`.
    error_at_most
        For a bound that is "auto": the largest mean loss that it may lead to. Default:
        1 % above that of the plain model.
    loss
        "squared", or "huber": r² up to `delta`, then 2δ|r| − δ².
    delta
        δ of the Huber loss, in the target's unit.
    target_range
        Ends between which all targets lie. Predictions are kept there; certificates
        on unseen people need it.
    infeasible, confidence, random_state
        As for `FairClassifier`.

    Attributes
    ----------
    coef_, intercept_
        As of scikit-learn's linear regressions, for raw inputs.
    mean_, score_at_mean_
        The inputs' means, and the prediction there.
    status_, message_, group_loss_, multipliers_, gap_, converged_, n_iter_
        As of `FairClassifier`; so are ``loss_bound_``, ``l2_`` and ``solution_``.

    Raises
    ------
    UsageError
        By `fit`: parameters that do not fit together.
    DataError
        By `fit` and `predict`: rows that cannot be used, all that is wrong with them.
    NotMetError
        By `fit`: the bounds are missed, and `infeasible` is "raise".

    Examples
    --------
    >>> import numpy as np, pffl
    >>> rng = np.random.default_rng(0)
    >>> X, group = rng.normal(size=(400, 2)), rng.choice(["a", "b"], 400)
    >>> y = X[:, 0] * np.where(group == "a", 1.0, 2.0) + rng.normal(size=400)
    >>> least = pffl.feasible_bound(X, y, sensitive_features=group)
    >>> model = pffl.FairRegressor(bound=1.02 * least)
    >>> model.fit(X, y, sensitive_features=group).status_
    'met'
    """

    def __init__(
        self,
        bound: Bound = None,
        *,
        constraint: str | Constraint = "bgl",
        error_at_most: float | None = None,
        loss: Literal["squared", "huber"] = "squared",
        delta: float = 1.0,
        target_range: tuple[float, float] | None = None,
        l2: float | Literal["auto"] = 1e-3,
        fit_intercept: bool = True,
        method: Method | None = None,
        multiplier_bound: float | None = None,
        risk_weight: float = 1.0,
        weighting: Weighting = "silos",
        infeasible: Infeasible = "raise",
        confidence: float = 0.95,
        random_state: Any = None,
    ) -> None:
        self.bound = bound
        self.constraint = constraint
        self.error_at_most = error_at_most
        self.loss = loss
        self.delta = delta
        self.target_range = target_range
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.method = method
        self.multiplier_bound = multiplier_bound
        self.risk_weight = risk_weight
        self.weighting = weighting
        self.infeasible = infeasible
        self.confidence = confidence
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: object = None,
        silos: object = None,
        sample_weight: object = None,
    ) -> Self:
        """Train on all rows; `y` are numbers, the rest is as for `FairClassifier`."""
        target = name_of(y, "label")
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True
        )
        self._trained(
            X,
            y,
            0,
            target=target,
            sensitive_features=sensitive_features,
            silos=silos,
            sample_weight=weights(sample_weight, len(y)),
        )
        for name in ("coef_", "intercept_", "score_at_mean_"):
            setattr(self, name, getattr(self, name)[0])
        return self

    def _model(self, classes: int) -> LinearModel:
        l2, ends = 1e-3 if self.l2 == "auto" else self.l2, self.target_range
        if self.loss == "squared":
            return LeastSquares(l2, self.fit_intercept, target_range=ends)
        if self.loss != "huber":
            wanted = "'squared' or 'huber'"
            raise UsageError(wrong("loss", type(self).__name__, wanted, self.loss))
        return HuberRegression(
            l2, self.fit_intercept, target_range=ends, delta=self.delta
        )

    def predict(self, X: Any) -> FloatArray:
        """Return numbers, kept within the limits of the shipped predictor."""
        check_is_fitted(self)
        values = self._inputs(X) @ self.coef_ + self.score_at_mean_
        if self.loss_bound_ is None:
            return values
        model = self._model(0)
        assert isinstance(model, NumericModel)  # noqa: S101 - it has no classes
        return values.clip(*model.limits(self.loss_bound_))
