"""A linear classifier under a bound for every group."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pffl.constraints import Constraint
from pffl.data.federation import name_of
from pffl.errors import DataError
from pffl.estimator.base import Bound, Fair, Infeasible
from pffl.estimator.rows import weights
from pffl.methods.base import Method
from pffl.models.base import Inputs
from pffl.models.linear import LinearModel, LogisticRegression, SoftmaxRegression
from pffl.prepare import Weighting
from pffl.typing import FloatArray


class FairClassifier(ClassifierMixin, Fair):
    """Logistic or softmax regression with a bound on the mean loss of every group.

    Parameters
    ----------
    bound
        The largest mean log loss of a group: one number, or a mapping from group to
        number (groups that it does not name are not bounded); "smallest" makes the
        largest group loss as small as possible; "auto" chooses a number on training
        rows that are set aside; None is the plain model. Or a constraint, such as
        ``BoundedGroupLoss(0.6, by="sex")``.
    constraint
        What is bounded: "bgl" groups, "cbgl" groups and labels, "per-silo" silos; or a
        constraint with its bounds.
    error_at_most
        For a bound that is "auto": the largest error that it may lead to. Default: a
        point above that of the plain model.
    l2
        μ of the ridge term (μ/2)‖w‖² on standardised inputs, or "auto".
    fit_intercept
        Whether there is a constant. Without one, inputs are scaled but not centred.
    method
        Default: the one that fits, see `Auto`.
    multiplier_bound, risk_weight
        B and β. None leaves B open: it grows until the bounds are met or impossible.
    weighting
        Of silos in the risk: "silos" counts all alike, "rows" by their rows.
    infeasible
        Where the bounds are missed: "raise" an error, "warn", or keep the "nearest"
        model without a word (``status_`` has it).
    confidence
        Of a `certificate`.
    random_state
        Seed, for methods that draw.

    Attributes
    ----------
    coef_, intercept_, classes_
        As of scikit-learn's linear classifiers, for raw inputs.
    mean_, score_at_mean_
        The inputs' means, and the scores there: what predictions are computed from.
    status_, message_
        The verdict on the training rows, in a word and in a sentence.
    group_loss_, multipliers_
        Tables of the groups.
    gap_, converged_, n_iter_, loss_bound_, l2_
        Duality gap, whether it is under its target, rounds, M, μ.
    solution_
        The `Solution`: evidence, report, files. It holds no rows.

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
    >>> X, group = rng.normal(size=(600, 2)), rng.choice(["a", "b"], 600, p=[0.2, 0.8])
    >>> slope = np.where(group == "a", -0.5, 1.5)
    >>> y = slope * X[:, 0] + X[:, 1] + rng.logistic(size=600) > 0
    >>> clf = pffl.FairClassifier(bound=0.66).fit(X, y, sensitive_features=group)
    >>> clf.status_, bool(clf.group_loss_["loss"].max() <= 0.66 + 1e-6)
    ('met', True)
    >>> clf.predict_proba(X[:2]).shape  # no groups are needed
    (2, 2)
    """

    def __init__(
        self,
        bound: Bound = None,
        *,
        constraint: str | Constraint = "bgl",
        error_at_most: float | None = None,
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
        """Train on all rows.

        Parameters
        ----------
        X, y
            Inputs (numbers; sparse ones stay sparse) and labels.
        sensitive_features
            The groups: a vector, a DataFrame of several columns (crossed), a mapping
            from name to vector. Default: everyone is in one group.
        silos
            Where each row lives. Default: all rows are in one silo.
        sample_weight
            How much each row counts, ≥ 0: a weight of 2 is as good as a second row.
        """
        target = name_of(y, "label")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        given = weights(sample_weight, len(y))
        self.classes_ = np.unique(y if given is None else y[given > 0])
        if len(self.classes_) < 2:
            raise DataError(
                "[one-class] two classes are needed, and all rows are of one class: "
                f"{self.classes_.tolist()[0]!r}"
            )
        self._trained(
            X,
            y,
            len(self.classes_),
            target=target,
            sensitive_features=sensitive_features,
            silos=silos,
            sample_weight=given,
        )
        return self

    def _model(self, classes: int) -> LinearModel:
        kind = LogisticRegression if classes == 2 else SoftmaxRegression
        return kind(1e-3 if self.l2 == "auto" else self.l2, self.fit_intercept)

    def decision_function(self, X: Any) -> FloatArray:
        """Return scores: of the last of two classes, or one per class."""
        model, w = self._plain()
        return model.scores(w, self._inputs(X))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return class probabilities, bounded as certified."""
        model, w = self._plain()
        M = np.inf if self.loss_bound_ is None else self.loss_bound_
        return model.bounded_proba(w, self._inputs(X), M)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels, in their own type."""
        model, w = self._plain()
        codes = model.classes(w, self._inputs(X))
        assert codes is not None  # noqa: S101 - of a classifier
        return np.asarray(self.classes_[codes.astype(np.int64)])

    def _plain(self) -> tuple[LinearModel, FloatArray]:
        """Return the model for `_inputs`, from the fitted attributes alone."""
        check_is_fitted(self)
        outputs, d = self.coef_.shape
        kind = LogisticRegression if outputs == 1 else SoftmaxRegression
        w = np.column_stack([self.coef_, self.score_at_mean_]).reshape(-1)
        return kind(0.0, inputs=Inputs.identity(d), n_outputs=outputs), w
