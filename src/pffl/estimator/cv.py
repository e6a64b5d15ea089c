"""A fair classifier whose bound and ridge are chosen on validation folds.

    1  bounds from the smallest that is possible to the worst group's loss without any
    2  for each bound and each l2, and each fold: train on the other folds; a bound that
       is impossible there leaves the nearest model
    3  of those whose error on the folds is within `error_at_most`, or within a point of
       the smallest error without a bound, the one with the smallest loss of the worst
       group on the folds is taken
    4  train on all rows

It is the rule of ``bound="auto"``, with every row in one of the folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from pffl.choosing import POINT, Ways, pick
from pffl.constraints.base import AUTO
from pffl.data.schema import Schema
from pffl.data.sparse import Matrix
from pffl.driver import drive
from pffl.engines import Local
from pffl.errors import DataError, NotMetError, UsageError, wrong
from pffl.estimator.base import Infeasible, constraint_of
from pffl.estimator.classifier import FairClassifier
from pffl.estimator.rows import federation_of, weights
from pffl.evidence.evidence import Trial
from pffl.methods.base import Method
from pffl.metrics import attributes_of, log_losses, named_columns
from pffl.preparation import Weighting
from pffl.solving import noted, setting_of
from pffl.text import up, words
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

L2S = (1e-1, 1e-2, 1e-3, 1e-4)
CELLS = ("bgl", "cbgl")


class FairClassifierCV(FairClassifier):
    """A `FairClassifier` that chooses its bound and its l2 on validation folds.

    Parameters
    ----------
    bounds
        The bounds to try, in this order; None is one, too. Default: eight, from the
        worst group's loss without a bound down to the smallest that is possible.
    l2s
        The values of l2 to try.
    cv
        Folds, as in scikit-learn; of a number, all groups and labels are spread evenly.
    error_at_most
        The largest error on the folds. Default: a point above the smallest that was
        found without a bound.
    n_jobs
        Processes, as in scikit-learn.
    constraint
        "bgl" or "cbgl".
    fit_intercept, method, multiplier_bound, risk_weight, weighting, loss_bound
        As for `FairClassifier`; so are `infeasible`, `confidence`, `random_state`.

    Attributes
    ----------
    bound_, l2_
        What was chosen.
    looked_at_
        All that was looked at: error, worst group's loss and its name on the folds.

    Raises
    ------
    UsageError
        By `fit`: parameters that do not fit together.
    DataError
        By `fit` and `predict`: rows that cannot be used, all that is wrong with them.
    NotMetError
        By `fit`: nothing that was tried is within the error allowed, or the bounds are
        missed, and `infeasible` is "raise".

    Examples
    --------
    >>> import numpy as np, pffl
    >>> rng = np.random.default_rng(0)
    >>> X, group = rng.normal(size=(400, 2)), rng.choice(["a", "b"], 400)
    >>> y = X[:, 0] + rng.logistic(size=400) > 0
    >>> clf = pffl.FairClassifierCV(bounds=[None, 0.68], l2s=[0.01], cv=2)
    >>> clf = clf.fit(X, y, sensitive_features=group)
    >>> len(clf.looked_at_), clf.l2_
    (2, 0.01)
    """

    def __init__(
        self,
        bounds: Sequence[float | None] | None = None,
        *,
        l2s: Sequence[float] = L2S,
        cv: Any = 5,
        error_at_most: float | None = None,
        n_jobs: int | None = None,
        constraint: str = "bgl",
        fit_intercept: bool = True,
        method: Method[Any] | None = None,
        multiplier_bound: float | None = None,
        risk_weight: float = 1.0,
        weighting: Weighting = "silos",
        loss_bound: float | None = None,
        infeasible: Infeasible = "raise",
        confidence: float = 0.95,
        random_state: Any = None,
    ) -> None:
        self.bounds = bounds
        self.l2s = l2s
        self.cv = cv
        self.error_at_most = error_at_most
        self.n_jobs = n_jobs
        self.constraint = constraint
        self.fit_intercept = fit_intercept
        self.method = method
        self.multiplier_bound = multiplier_bound
        self.risk_weight = risk_weight
        self.weighting = weighting
        self.loss_bound = loss_bound
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
        """Choose on validation folds, then train on all rows; see `FairClassifier`."""
        name = type(self).__name__
        kind = self.constraint
        if kind not in CELLS:
            raise UsageError(wrong("constraint", name, "'bgl' or 'cbgl'", kind))
        if not len(self.l2s):
            raise UsageError(wrong("l2s", name, "one number or more", self.l2s))
        inputs, labels = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64
        )
        check_classification_targets(labels)
        rows = Rows.of(inputs, labels, sensitive_features, silos, sample_weight)
        given = {"sensitive_features": sensitive_features, "silos": silos}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit on all rows will warn
            points = [(b, l2) for b in self._bounds(rows) for l2 in self.l2s]
            trials = self._trials(rows, points)
        best, limit = self._picked(points, trials)
        own = self._one(*points[best]).set_params(infeasible=self.infeasible)
        own.fit(X, y, **given, sample_weight=sample_weight)
        self._take(own)
        self.bound_ = points[best][0]
        self.trials_ = [
            {
                "bound": bound,
                "l2": l2,
                "error": trial.error,
                "worst_loss": trial.worst,
                "worst_group": trial.cell,
                "chosen": place == best,
            }
            for place, ((bound, l2), trial) in enumerate(
                zip(points, trials, strict=True)
            )
        ]
        self.solution_ = noted(own.solution_, [self._told(trials[best], limit)])
        return self

    @property
    def looked_at_(self) -> pd.DataFrame:
        """All that was looked at: what each bound and l2 did on the folds."""
        import pandas as pd

        check_is_fitted(self)
        return pd.DataFrame(self.trials_)

    def _one(self, bound: Any, l2: float) -> FairClassifier:
        """Return the classifier with one bound and one l2."""
        shared = self.get_params(deep=False)
        own = {k: v for k, v in shared.items() if k in FairClassifier().get_params()}
        more = {"bound": bound, "l2": l2, "infeasible": "nearest"}
        return FairClassifier(**{**own, "error_at_most": None, **more})

    def _take(self, own: FairClassifier) -> None:
        """Take over what was fitted."""
        for name, value in vars(own).items():
            if name.endswith("_"):
                setattr(self, name, value)

    def _bounds(self, rows: Rows) -> list[float | None]:
        """Return the bounds to try; first without any."""
        if self.bounds is not None:
            return list(dict.fromkeys([None, *self.bounds]))
        auto = self._one(AUTO, self.l2s[0])
        engine = Local(
            federation_of(
                rows.X,
                rows.y,
                self._names(),
                classification=True,
                sensitive_features=rows.sensitive_features,
                silos=rows.silos,
                sample_weight=rows.weight,
            )
        )
        constraint = constraint_of(auto)
        assert constraint is not None  # noqa: S101 - it is "auto"
        model = auto._model(len(rows.classes))
        ways = Ways(constraint, model, auto._method(), auto._options(), 0)
        return [None, *drive(engine, ways.path(setting_of(engine)))]

    def _trials(
        self, rows: Rows, points: Sequence[tuple[float | None, float]]
    ) -> list[Trial]:
        """Measure every point on the folds, all of them together."""
        cell, names = rows.cells(str(self.constraint))
        labels, codes = np.unique(rows.y, return_inverse=True)
        atoms = rows.group * len(labels) + codes
        folds = list(check_cv(self.cv, atoms, classifier=True).split(rows.X, atoms))
        jobs = [
            delayed(_sums)(self._one(*point), rows, cell, len(names), *fold)
            for point in points
            for fold in folds
        ]
        sums = np.array(Parallel(n_jobs=self.n_jobs)(jobs))
        pooled = sums.reshape(len(points), len(folds), 3, -1).sum(axis=1)
        out = []
        for (bound, _), (loss, wrong_, weight) in zip(points, pooled, strict=True):
            seen = np.flatnonzero(weight)
            means = loss[seen] / weight[seen]
            worst = int(means.argmax())
            error = float(wrong_.sum() / weight.sum())
            out.append(Trial(bound, float(means[worst]), names[seen[worst]], error))
        return out

    def _picked(
        self, points: Sequence[tuple[float | None, float]], trials: Sequence[Trial]
    ) -> tuple[int, float]:
        """Return the place of the trial that is taken, and the largest error."""
        free = [t.error for t in trials if t.bound is None]
        limit = self.error_at_most
        if limit is None:
            limit = min(free) + POINT
        best = pick(trials, limit)
        if best is None:
            least = min(trials, key=lambda trial: trial.error)
            raise NotMetError(
                f"no bound has an error of at most {words(limit)} on the folds: the "
                f"smallest is {words(least.error)}; `error_at_most={up(least.error)}` "
                "would let that one be chosen"
            )
        return best, limit

    def _told(self, taken: Trial, limit: float) -> str:
        """Say what was chosen, by what, and on which rows."""
        bound = "no bound" if taken.bound is None else f"bound = {taken.bound:.5g}"
        tried = len({row["bound"] for row in self.trials_} - {None})
        return (
            f"{bound} and l2 = {self.l2_:g} were chosen on validation folds of the "
            f"training rows, of {tried:,} bounds and {len(self.l2s):,} values of l2: "
            f"within an error of {words(limit)} it has the smallest worst loss, "
            f"{words(taken.worst)} of '{taken.cell}'; no held-out row was looked at"
        )


class Rows(NamedTuple):
    """Training rows as they were given, checked."""

    X: Matrix
    y: NDArray[Any]
    classes: NDArray[Any]
    sensitive_features: dict[str, NDArray[Any]] | None
    group: IntArray
    names: tuple[str, ...]
    silos: NDArray[Any] | None
    weight: FloatArray | None

    @classmethod
    def of(
        cls,
        X: Matrix,
        y: NDArray[Any],
        sensitive_features: object,
        silos: object,
        sample_weight: object,
    ) -> Rows:
        """Check what goes with the rows."""
        columns = None
        if sensitive_features is not None:
            columns = named_columns(sensitive_features)
        attributes, codes = attributes_of(columns, len(y))
        schema = Schema((), attributes, ())
        weight, places = weights(sample_weight, len(y)), None
        if silos is not None:
            places = np.asarray(silos)
            if places.shape != y.shape:
                raise DataError(f"silos has the shape {places.shape}, not {y.shape}")
        group = schema.combine(codes)
        classes = np.unique(y if weight is None else y[weight > 0])
        if len(classes) < 2:
            raise DataError(
                "two classes are needed, and all rows are of one class: "
                f"{classes.tolist()[0]!r}"
            )
        return cls(X, y, classes, columns, group, schema.groups, places, weight)

    def take(self, index: IntArray) -> Rows:
        """Return some of the rows."""
        columns = self.sensitive_features
        return self._replace(
            X=self.X[index],
            y=self.y[index],
            sensitive_features=None
            if columns is None
            else {name: values[index] for name, values in columns.items()},
            group=self.group[index],
            silos=None if self.silos is None else self.silos[index],
            weight=None if self.weight is None else self.weight[index],
        )

    def cells(self, constraint: str) -> tuple[IntArray, list[str]]:
        """Return the cell of each row, and what the cells are called."""
        if constraint == "bgl":
            return self.group, list(self.names)
        labels = [str(label) for label in self.classes.tolist()]
        codes = np.searchsorted(self.classes, self.y)  # others have no weight
        cell = self.group * len(labels) + codes.clip(max=len(labels) - 1)
        return cell, [f"{name}, {label}" for name in self.names for label in labels]


def _sums(
    own: FairClassifier,
    rows: Rows,
    cell: IntArray,
    cells: int,
    train: IntArray,
    test: IntArray,
) -> FloatArray:
    """Train on some rows; return losses, errors and weights of others, per cell."""
    if rows.weight is not None:
        test = test[rows.weight[test] > 0]
    some, others = rows.take(train), rows.take(test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = clone(own).fit(
            some.X,
            some.y,
            sensitive_features=some.sensitive_features,
            silos=some.silos,
            sample_weight=some.weight,
        )
    if len(fitted.classes_) < len(rows.classes):
        raise DataError(
            f"a fold is without {len(rows.classes) - len(fitted.classes_)} of the "
            f"classes {rows.classes.tolist()}: fewer folds, or more rows, are needed"
        )
    s = np.ones(len(test)) if others.weight is None else others.weight
    losses = log_losses(others.y, fitted.predict_proba(others.X), rows.classes)
    wrong_ = fitted.predict(others.X) != others.y
    return np.stack(
        [np.bincount(cell[test], s * part, cells) for part in (losses, wrong_, 1.0)]
    )
