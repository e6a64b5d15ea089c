"""A trained linear model as a fitted scikit-learn pipeline.

Its first step is the `TableEncoder` that trained the model. The second fills in what is
missing and subtracts means. The last is scikit-learn's own linear model, fitted by
hand, with coefficients in the units of the raw inputs and bounded predictions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline

from pffl.data.columns import Unseen
from pffl.data.rows import Matrix
from pffl.models.export.coefficients import RawForm
from pffl.models.scaled import filled
from pffl.numerics import bounded_probabilities, log_softmax, sigmoid
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from pffl.models.predictor import Predictor


class Centre(TransformerMixin, BaseEstimator):
    """Give missing inputs their values, and subtract means. It learns nothing.

    Parameters
    ----------
    mean
        What is subtracted from each input; sparse rows stay so where it is 0.
    fill, gaps
        As for `pffl.models.Inputs`.
    """

    def __init__(self, mean: FloatArray, fill: FloatArray, gaps: IntArray) -> None:
        self.mean, self.fill, self.gaps = mean, fill, gaps

    def fit(self, X: object = None, y: object = None) -> Centre:
        """Return itself: there is nothing to learn."""
        return self

    def transform(self, X: Matrix) -> Matrix:
        """Return the inputs, filled and centred."""
        X = filled(X, self.gaps, self.fill)
        if isinstance(X, np.ndarray):
            return np.asarray(X - self.mean)
        from scipy.sparse import csr_array

        n, places = X.shape[0], np.flatnonzero(self.mean)
        stored = np.tile(self.mean[places], n), np.tile(places, n)
        ends = np.arange(n + 1) * len(places)
        return X - csr_array((*stored, ends), shape=X.shape)

    def get_feature_names_out(self, input_features: object = None) -> object:
        """Return the names that came in."""
        return input_features

    def __sklearn_is_fitted__(self) -> bool:
        return True


class BoundedLogisticRegression(LogisticRegression):
    """Logistic regression whose loss is at most `loss_bound`, for everybody.

    Probabilities of two classes are clipped to [e⁻ᴹ, 1 − e⁻ᴹ]; those of more are mixed,
    p′ = (1 − C·e⁻ᴹ)p + e⁻ᴹ. Scores and predicted classes are as without.

    Parameters
    ----------
    loss_bound
        M; None: probabilities are left as they are.
    C, max_iter
        As for scikit-learn's; of use only where a clone is fitted anew.
    """

    def __init__(
        self, *, loss_bound: float | None = None, C: float = 1.0, max_iter: int = 100
    ) -> None:
        # Raw units differ by powers of ten: only a second-order solver does not mind.
        super().__init__(C=C, max_iter=max_iter, solver="newton-cholesky")
        self.loss_bound = loss_bound

    def predict_proba(self, X: object) -> FloatArray:
        """Return class probabilities, in the order of `classes_`."""
        z = self.decision_function(X)
        if z.ndim == 1:
            p = np.stack([sigmoid(-z), sigmoid(z)], axis=1)
        else:
            p = np.exp(log_softmax(z))
        M = self.loss_bound
        return p if M is None else bounded_probabilities(p, M)

    def predict_log_proba(self, X: object) -> FloatArray:
        """Return their logarithms."""
        return np.log(self.predict_proba(X))


class BoundedLinearRegression(LinearRegression):
    """Linear regression whose predictions are kept within `limits`.

    Parameters
    ----------
    limits
        Smallest and largest prediction; None: they are left as they are.
    fit_intercept
        As for scikit-learn's; of use only where a clone is fitted anew.
    """

    def __init__(
        self, *, limits: tuple[float, float] | None = None, fit_intercept: bool = True
    ) -> None:
        super().__init__(fit_intercept=fit_intercept)
        self.limits = limits

    def predict(self, X: object) -> FloatArray:
        """Return numbers within the limits."""
        values: FloatArray = super().predict(X)
        return values if self.limits is None else values.clip(*self.limits)


def pipeline_of(predictor: Predictor, unseen: Unseen | None = None) -> Pipeline:
    """Return the fitted pipeline: raw tables in, the same predictions out."""
    form = RawForm.of(predictor, "an export to scikit-learn")
    encoder = predictor.preparation.encoder
    mean, intercept = form.mean, form.intercept
    if encoder.keeps_sparse:  # only numbers are centred, all else is in the intercept
        numbers = np.zeros(len(mean), dtype=bool)
        for column in form.columns:
            numbers[form.spans[column.name]] = column.kind in ("number", "date")
        mean = np.where(numbers, mean, 0.0)
        intercept = form.shifted(np.flatnonzero(~numbers))
    classes, inputs = predictor.classes, predictor.inputs
    model: LogisticRegression | LinearRegression
    if len(classes):
        model = BoundedLogisticRegression(loss_bound=predictor.loss_bound)
        model.classes_, model.n_iter_ = classes, np.zeros(1, dtype=np.int32)
        model.coef_, model.intercept_ = form.coefficients, intercept
    else:
        model = BoundedLinearRegression(limits=form.limits)
        model.coef_, model.intercept_ = form.coefficients[0], float(intercept[0])
    model.n_features_in_ = len(mean)
    columns = encoder if unseen is None else replace(encoder, unseen=unseen)
    centre = Centre(mean, inputs.fill, inputs.gaps)
    return Pipeline([("columns", columns), ("centre", centre), ("model", model)])
