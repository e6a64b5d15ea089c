"""Losses of groups, and a scorer of the worst one for scikit-learn.

    GridSearchCV(clf, grid, scoring=worst_group_loss_scorer)
        .fit(X, y, sensitive_features=A)

The scorer asks for `sensitive_features` where scikit-learn routes metadata
(``sklearn.set_config(enable_metadata_routing=True)``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pffl.data.columns import encode_values
from pffl.data.federation import named_columns
from pffl.errors import DataError, UsageError, wrong
from pffl.models.external import SMALLEST
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

Loss: TypeAlias = Literal["log", "squared"]


def group_losses(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: object,
    loss: Loss = "log",
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> pd.DataFrame:
    """Return a table of the groups: rows, weight and mean loss of each.

    Parameters
    ----------
    y_true
        Labels, or numbers.
    y_pred
        Probabilities, shape (n,) of the last of two classes or (n, classes); numbers
        for the squared loss.
    sensitive_features
        A vector, a DataFrame, a mapping from name to vector; several are crossed.
    loss
        "log", or "squared" for a numeric target.
    labels
        The classes, in the order of `y_pred`. Default: the sorted labels of `y_true`.
    sample_weight
        Weight of each row. Default: 1.

    Examples
    --------
    >>> group_losses([0, 1, 1], [0.5, 0.5, 1.0], sensitive_features=["a", "a", "b"])
           rows  weight      loss
    group
    a         2     2.0  0.693147
    b         1     1.0  0.000000
    """
    import pandas as pd

    if loss not in ("log", "squared"):
        raise UsageError(wrong("loss", "group_losses", "'log' or 'squared'", loss))
    true, predicted = np.asarray(y_true), np.asarray(y_pred, float)
    weight = np.ones(len(true)) if sample_weight is None else np.asarray(sample_weight)
    columns = named_columns(sensitive_features, len(true))
    shapes = [values.shape for values in (weight, *columns.values())]
    if len(predicted) != len(true) or {*shapes} != {true.shape}:
        shapes += [predicted.shape]
        raise DataError("wrong-shape:group-losses", shape=true.shape, shapes=shapes)
    if not (weight >= 0).all():
        raise DataError("bad-weights:group-losses")
    if loss == "log":
        each = _log_losses(true, predicted, labels)
    else:
        each = np.square(true - predicted.reshape(true.shape))
    coded = [
        encode_values(values, f"sensitive_features '{name}'")
        for name, values in columns.items()
    ]
    table = pd.DataFrame({"rows": 1, "weight": weight, "loss": weight * each})
    found = table.groupby([pd.Series(codes) for _, codes in coded]).sum()
    found["loss"] /= found["weight"].where(found["weight"] > 0)
    keys = [np.atleast_1d(key) for key in found.index]
    names = [
        " × ".join(own[code] for (own, _), code in zip(coded, key, strict=True))
        for key in keys
    ]
    return found.set_axis(pd.Index(names, name="group"))


def worst_group_loss(y_true: ArrayLike, y_pred: ArrayLike, **options: Any) -> float:
    """Return the largest mean loss of a group; options as for `group_losses`."""
    return float(group_losses(y_true, y_pred, **options)["loss"].max())


def _log_losses(
    true: NDArray[Any], proba: FloatArray, labels: ArrayLike | None
) -> FloatArray:
    """Return minus the logarithm of the probability of each label."""
    import pandas as pd

    classes = np.unique(true) if labels is None else np.asarray(labels)
    if proba.ndim == 1:
        proba = np.stack([1.0 - proba, proba], axis=1)
    if proba.shape != (wanted := (len(true), len(classes))):
        raise DataError("wrong-shape:log-losses", shape=proba.shape, wanted=wanted)
    if not ((proba >= 0) & (proba <= 1)).all():
        raise DataError("bad-probabilities:log-losses")
    codes = pd.Index(classes).get_indexer(pd.Index(true))
    if (codes < 0).any():
        found, known = np.unique(true[codes < 0])[:5].tolist(), classes.tolist()
        raise DataError("unknown-label:log-losses", found=found, known=known)
    return np.abs(np.log(np.clip(proba[np.arange(len(true)), codes], SMALLEST, 1.0)))


class GroupScorer:
    """Minus the loss of the worst group, so that larger is better.

    It takes an estimator, rows and labels, as scikit-learn's own scorers do, and
    `sensitive_features`, which metadata routing brings along. Unlike `make_scorer`, it
    knows the estimator's classes: a fold may lack some of them.
    """

    def __call__(self, estimator: Any, X: Any, y: Any, **given: Any) -> float:
        """Return minus the worst group's loss."""
        if given.get("sensitive_features") is None:
            raise UsageError("needs-groups", self=self)
        if not hasattr(estimator, "predict_proba"):
            return -worst_group_loss(y, estimator.predict(X), loss="squared", **given)
        proba, classes = estimator.predict_proba(X), estimator.classes_
        return -worst_group_loss(y, proba, labels=classes, **given)

    def get_metadata_routing(self) -> Any:
        """Ask for sensitive features and sample weights."""
        from sklearn.utils.metadata_routing import MetadataRequest

        requests = MetadataRequest(owner=repr(self))
        for name in ("sensitive_features", "sample_weight"):
            requests.score.add_request(param=name, alias=True)
        return requests

    def __repr__(self) -> str:
        return "worst_group_loss_scorer"


worst_group_loss_scorer = GroupScorer()
