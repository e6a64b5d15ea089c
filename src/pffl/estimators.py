"""Models under bounds as scikit-learn estimators: linear ones, and any other.

    clf = FairClassifier(bound=0.62).fit(X, y, sensitive_features=A)
    clf.predict(X_new), clf.group_loss_
    clf.certificate(X_test, y_test, sensitive_features=A_test)

Groups are needed for training and for certificates, never for predictions. All rows
given to `fit` are trained on. A saved estimator holds arrays, numbers and texts only:
``evidence_`` is the evidence of the training as JSON, which `certificate` starts from.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pffl._any_estimator import fit_bounded
from pffl._solve import prepared, solve
from pffl.constraints import AUTO, CONSTRAINTS, Constraint, MinMax
from pffl.data.columns import TableEncoder, as_column, encode_values
from pffl.data.federation import Federation, as_weights, name_of, named_columns
from pffl.data.rows import as_csr, as_inputs, is_sparse
from pffl.driver import drive
from pffl.engines import Local
from pffl.errors import DataError, NotMetError, UsageError, wrong
from pffl.evidence.conclude import conclude
from pffl.evidence.looks import Look, Looks
from pffl.evidence.measure import Wanted, cells_of, heldout_sample
from pffl.evidence.record import Evidence, Missing, Sample
from pffl.evidence.statements import Certificate
from pffl.methods.auto import Auto
from pffl.methods.base import Method
from pffl.models.base import Inputs, Model
from pffl.models.external import Probabilities
from pffl.models.linear import (
    HuberRegression,
    LeastSquares,
    LinearModel,
    LogisticRegression,
    NumericModel,
    SoftmaxRegression,
)
from pffl.models.scaled import Design
from pffl.prepare import Options, Weighting
from pffl.solution import Solution
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

Bound: TypeAlias = (
    float
    | Mapping[Any, float | Literal["auto"]]
    | Literal["auto", "smallest"]
    | Constraint
    | None
)
Infeasible: TypeAlias = Literal["raise", "warn", "nearest"]
POLICIES = ("raise", "warn", "nearest")
ONLY_SILO = "all"  # of rows that are in none
LABEL = "its label"  # of a row of a certificate, besides its groups
SHARE = 0.3  # of the rows: what bounds on rates are certified by


@dataclass(eq=False, repr=False)
class _Fair(BaseEstimator):
    """What a classifier and a regressor share: constraint, training, certificate."""

    # Metadata that scikit-learn passes on without being told to.
    __metadata_request__fit: ClassVar = {
        "sensitive_features": True,
        "silos": True,
        "sample_weight": True,
    }
    __metadata_request__score: ClassVar = {"sample_weight": True}

    bound: Bound = None
    _: KW_ONLY
    constraint: str = "bgl"
    l2: float = 1e-3
    fit_intercept: bool = True
    method: Method | str | None = None
    weighting: Weighting = "silos"
    infeasible: Infeasible = "raise"
    confidence: float = 0.95
    estimator: Any = None
    dual_rounds: int = 12
    random_state: Any = None

    def _classes(self, y: NDArray[Any]) -> int:
        """Return how many classes there are, and remember them; 0 for numbers."""
        raise NotImplementedError

    def _model(self, classes: int) -> LinearModel:
        """Return the linear model to train."""
        raise NotImplementedError

    def _outputs_of(self, fitted: Any, X: Any) -> FloatArray:
        """Return what losses are computed from, of a fitted estimator."""
        raise NotImplementedError

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
            Inputs (numbers; sparse ones stay sparse), and labels or numbers.
        sensitive_features
            The groups: a vector, a DataFrame of several columns (crossed), a mapping
            from name to vector. Default: everyone is in one group.
        silos
            Where each row lives. Default: all rows are in one silo.
        sample_weight
            How much each row counts, ≥ 0: a weight of 2 is as good as a second row.
        """
        import pandas as pd

        if self.infeasible not in POLICIES:
            name, wanted = type(self).__name__, f"one of {', '.join(POLICIES)}"
            raise UsageError(wrong("infeasible", name, wanted, self.infeasible))
        target = name_of(y, "label")
        X, y = self._checked(X, y)
        weight = _weights(sample_weight, len(y))
        classes = self._classes(y if weight is None else y[weight > 0])
        features, linear = getattr(self, "feature_names_in_", None), True
        if self.estimator is not None:  # it takes the rows as they are
            features, linear = None, False
        federation = Federation.from_arrays(
            X if linear else np.arange(len(y))[:, None],
            pd.Series(y, name=target),
            sensitive_features=sensitive_features,
            silo=np.full(len(y), ONLY_SILO) if silos is None else silos,
            sample_weight=weight,
            features=None if features is None else list(map(str, features)),
            classification=classes > 0,
            test_fraction=0.0,
        )
        drawn = self.random_state is not None or self.method is not None
        seed = check_random_state(self.random_state).randint(2**31) if drawn else 0
        options = Options(
            weighting=self.weighting,
            empty_cells="remove",  # groups are crossed: not all of them have rows
            confidence=self.confidence,
            selection_rate=getattr(self, "selection_rate", None),
            baseline=False,
        )
        if linear:
            solution = self._fit_linear(federation, classes, options, seed)
        else:
            solution = self._fit_any(X, y, federation, options, seed)
        self._judge(solution)
        self.status_: str = solution.status
        self.message_ = solution.message
        self.converged_ = {"yes": True, "no": False}.get(solution.converged)
        self.gap_ = solution.gap
        self.n_iter_ = solution.rounds
        self.loss_bound_ = solution.loss_bound
        self.cells_ = [
            {
                "cell": row.cell,
                "rows": row.count,
                "bound": row.bound,
                "loss": row.train_loss,
                "multiplier": row.multiplier,
            }
            for row in solution.cell_results
        ]
        self.encoding_: dict[str, Any] = solution.predictor.preparation.as_dict()
        self.evidence_ = json.dumps(solution.evidence.as_dict())
        self.looks_: list[dict[str, Any]] = []
        self.solution_ = solution
        return self

    def _fit_linear(
        self, federation: Federation, classes: int, options: Options, seed: int
    ) -> Solution:
        """Solve for a linear model, and keep it for raw inputs."""
        if hasattr(self, "threshold_"):  # of an earlier fit
            del self.threshold_
        constraint = self._constraint()
        if constraint is not None and constraint.goal != "loss":
            federation = federation.with_calibration(SHARE, random_state=seed)
            options = replace(options, certify=True, baseline=True)
        solution = solve(
            federation,
            constraint,
            model=self._model(classes),
            method=self.method,
            options=options,
            random_state=seed,
        )
        model = solution.model
        assert isinstance(model, LinearModel)  # noqa: S101 - `_model` made it
        table = solution.w.reshape(model.n_outputs, model.n_columns)
        d, scale = len(model.inputs.mean), model.target.scale
        constant = table[:, d] if model.intercept else np.zeros(len(table))
        # A constant for inputs at 0 would cost the digits of a year around 2000.
        self.mean_, first = model.inputs.mean, ... if classes else 0
        self.coef_ = (scale * table[:, :d] / model.inputs.scale)[first]
        self.score_at_mean_ = (scale * constant + model.target.mean)[first]
        self.intercept_ = self.score_at_mean_ - self.coef_ @ self.mean_
        if isinstance(model, LogisticRegression):
            self.threshold_: float = model.threshold
        return solution

    def _fit_any(
        self,
        X: Any,
        y: NDArray[Any],
        federation: Federation,
        options: Options,
        seed: int,
    ) -> Solution:
        """Fit `estimator` under the bounds, and keep its fits."""
        constraint, own, name = self._constraint(), type(self)(), type(self).__name__
        others = ("method", "l2", "fit_intercept", "selection_rate")
        given = [n for n in others if vars(self).get(n) != vars(own).get(n)]
        if constraint is not None and constraint.goal != "loss":
            given.append(f"constraint '{constraint.name}'")
        if given:
            raise UsageError(
                "options-conflict:fit-any",
                given=", ".join(given),
                name=type(self.estimator).__name__,
            )
        if constraint is not None and constraint.open:
            raise UsageError("auto-refused:fit-any")
        if not (isinstance(self.dual_rounds, Integral) and self.dual_rounds >= 1):
            wanted = "a whole number ≥ 1"
            raise UsageError(wrong("dual_rounds", name, wanted, self.dual_rounds))
        self.estimators_: list[Any]
        self.estimators_, solution = fit_bounded(
            self.estimator,
            (X, y, federation),
            constraint,
            self._plain(),
            self._outputs_of,
            replace(options, weighting="rows"),
            rounds=int(self.dual_rounds) if constraint is not None else 1,
            seed=seed,
        )
        return solution

    def _plain(self) -> tuple[Model, FloatArray]:
        """Return the trained model for `_scaled`, from fitted attributes alone."""
        many = len(getattr(self, "classes_", ()))
        model: Any = self._model(many)
        if self.estimator is not None and many:
            inputs = Inputs.identity(1 if many == 2 else many)
            cut = getattr(self, "threshold", 0.5)
            return Probabilities(inputs, threshold=cut), np.zeros(0)
        if self.estimator is not None:
            one = Inputs.identity(1)
            return replace(model, l2=0.0, intercept=False, inputs=one), np.ones(1)
        scores = np.atleast_1d(self.score_at_mean_)
        w = np.column_stack([np.atleast_2d(self.coef_), scores]).reshape(-1)
        plain = {"l2": 0.0, "intercept": True, "n_outputs": len(scores)}
        inputs = Inputs(self.mean_, np.ones_like(self.mean_))
        return replace(model, inputs=inputs, **plain), w

    def _checked(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return rows to fit on; another estimator checks its inputs itself."""
        if self.estimator is None:
            numeric = isinstance(self, RegressorMixin)
            return validate_data(
                self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=numeric
            )
        validate_data(self, X, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        X = X if hasattr(X, "iloc") or is_sparse(X) else np.asarray(X)
        return as_csr(X) if is_sparse(X) else X, y

    def _constraint(self) -> Constraint | None:
        """Return what is bounded; None for the plain model."""
        bound, kind, name = self.bound, self.constraint, type(self).__name__
        kinds = [one for one in CONSTRAINTS if one != MinMax.name]  # it is "smallest"
        if kind not in kinds:
            wanted = f"one of {', '.join(kinds)}"
            raise UsageError(wrong("constraint", name, wanted, kind))
        if bound is None or isinstance(bound, Constraint):
            return bound
        if bound == "smallest" and kind == "bgl":
            return MinMax()
        if isinstance(bound, str) and bound != AUTO:
            wanted = "a number, a mapping, a constraint, None, 'auto' or (of 'bgl') "
            raise UsageError(wrong("bound", name, f"{wanted}'smallest'", bound))
        plain: Any = bound
        if isinstance(bound, Mapping):  # 1.0 and 1 are the group 1
            keys = [encode_values(as_column([key]), "bound")[0][0] for key in bound]
            plain = dict(zip(keys, bound.values(), strict=True))
        made: Any = CONSTRAINTS[kind]
        found: Constraint = made(plain)
        return found

    def _judge(self, solution: Solution) -> None:
        """Raise or warn where a bound is missed; warn where training did not end."""
        status, message = solution.status, solution.message
        over = any((row.violation or 0.0) > 0 for row in solution.cell_results)
        unfinished = status in ("not converged", "diverged")
        new = solution.certificate.verdicts["new_people"]
        uncertified = solution.conclusions.asked and new["verdict"] != "certified"
        if uncertified and status == "met":
            message = str(new["sentence"])
        missed = status in ("impossible", "not met", "not measured") or uncertified
        if missed or (unfinished and over):
            if self.infeasible == "raise":
                raise NotMetError("not-met", message=message)
            if self.infeasible == "warn":
                warnings.warn(message, stacklevel=4)
        elif unfinished:
            warnings.warn(message, ConvergenceWarning, stacklevel=4)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is saved: not the `Solution`, whose classes are ours."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "solution_"}

    @property
    def group_loss_(self) -> pd.DataFrame:
        """Rows, bound, mean training loss and multiplier of each group (cell)."""
        import pandas as pd

        check_is_fitted(self)
        return pd.DataFrame(self.cells_).set_index("cell")

    @property
    def multipliers_(self) -> pd.Series:
        """λ of each group (cell): what a tighter bound would cost."""
        return self.group_loss_["multiplier"]

    def certificate(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: object = None,
        silos: object = None,
        sample_weight: object = None,
        confidence: float | None = None,
        candidates: int = 1,
        weight_bound: float | None = None,
    ) -> Certificate:
        """Say what holds for the model: on the training rows, and for new people.

        Parameters
        ----------
        X, y
            Rows that were not used in training, and that nothing was chosen by.
        sensitive_features, silos, sample_weight
            As for `fit`.
        confidence
            1 − δ of the statements on new people. Default: the estimator's.
        candidates
            As for `pffl.certify`. Certificates on the same rows are counted, in
            ``looks_``.
        weight_bound
            What no row's weight is above, where rows have weights. Without it nothing
            is stated of new people.
        """
        import pandas as pd

        check_is_fitted(self)
        inputs, target = self._scaled(X), as_column(y)
        if self.estimator is None:
            inputs, target = validate_data(
                self, X, y, reset=False, accept_sparse="csr", dtype=np.float64
            )
        evidence = Evidence.from_dict(json.loads(self.evidence_))
        if evidence.data.weighted and sample_weight is None:
            raise UsageError("needs-weights")
        own = TableEncoder.from_dict(self.encoding_)
        groups = [attribute.name for attribute in own.attributes]
        given = named_columns(sensitive_features, len(target))
        unnamed = isinstance(sensitive_features, list | np.ndarray)
        if unnamed and len(given) == len(groups):
            given = dict(zip(groups, given.values(), strict=True))
        if {*given} != {*groups}:
            raise DataError("other-groups", what=[*given], groups=groups)
        weight = _weights(sample_weight, len(target))
        bare = replace(own, columns=(), label=LABEL, weight=None)
        rows = bare.rows(pd.DataFrame({**given, LABEL: target}))
        silo = np.full(len(target), ONLY_SILO) if silos is None else as_column(silos)
        names, codes = encode_values(silo, "silos")
        here = Federation.from_rows(
            own.schema,
            replace(rows, X=as_inputs(inputs), weight=weight),
            codes,
            names,
            test_fraction=0.0,
            encoding=own,
            learnt_from=False,
        )
        terms = evidence.terms
        asked = Options(  # which refuses what cannot be
            confidence=terms.confidence if confidence is None else confidence,
            weight_bound=terms.weight_bound if weight_bound is None else weight_bound,
        )
        terms = replace(
            terms,
            candidates=candidates,
            later=0,
            confidence=asked.confidence,
            weight_bound=asked.weight_bound,
        )
        found = self._measured(here, replace(evidence, terms=terms))
        known = Looks(own=tuple(Look(**one) for one in self.looks_))
        found = known.counted(found)
        self.looks_ = [asdict(one) for one in known.added(found)]
        return conclude(found).certificate

    def _measured(self, here: Federation, evidence: Evidence) -> Evidence:
        """Return the evidence of the training, with these rows as test rows.

        Bets are planned by the training rows.
        """
        confined = {cell.silo for cell in evidence.cells if cell.silo is not None}
        if confined and confined != {*here.silo_names}:
            raise DataError(
                "other-silos",
                confined=sorted(confined)[:5],
                silo_names=here.silo_names[:5],
            )
        own, (model, w) = here.fingerprint, self._plain()
        data = replace(
            evidence.data, overlap=None, splits={"test": own}, weighted=here.weighted
        )
        terms, cells = evidence.terms, cells_of(evidence, here.schema, here.silo_names)
        engine, options = Local(here), Options(weighting=terms.weighting)
        problem = prepared(engine, None, None, Auto(), options, 0)[0]
        problem = replace(
            problem,
            task=replace(problem.task, model=model, cells=cells),
            counts=cells.totals(problem.silo_weights),
        )
        wanted = Wanted(
            here.splits,
            heldout=here.splits,
            loss_bound=terms.loss_bound,
            weighted=here.weighted,
            weight_bound=terms.weight_bound,
            confidence=terms.confidence,
        )
        held: Sample | Missing = drive(
            engine, heldout_sample(problem, w, wanted, evidence.seen, problem.rows)
        )
        if isinstance(held, Sample) and own != data.fingerprint:
            held = replace(held, splits=["test"])  # otherwise they were trained on
        return replace(evidence, data=data, heldout=held)

    def _scaled(self, X: Any) -> Design:
        """Return inputs less their means, or the mean outputs of the estimators."""
        if self.estimator is not None:
            validate_data(self, X, reset=False, skip_check_array=True)
            outputs = [self._outputs_of(one, X) for one in self.estimators_]
            return np.asarray(np.mean(outputs, axis=0))
        inputs = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=np.float64
        )
        return self._plain()[0].inputs.apply(as_inputs(inputs))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "status_")


@dataclass(eq=False, repr=False)
class FairClassifier(ClassifierMixin, _Fair):
    """A classifier with a bound on the mean log loss of every group.

    It is logistic or softmax regression, or any `estimator`.

    Parameters
    ----------
    bound
        The largest mean log loss of a group: one number, or a mapping from group to
        number (groups that it does not name are not bounded); "smallest" makes the
        largest group loss as small as possible; "auto" chooses a number on training
        rows that are set aside; None is the plain model. Or a constraint, such as
        ``BoundedGroupLoss(0.6, by="sex")``.
    constraint
        What is bounded: "bgl" groups, "cbgl" groups and labels, "per-silo" silos; the
        rates "error", "fnr" and "fpr" of new people, for which `fit` sets 30 % of the
        rows apart, to certify by (`pffl.constraints.ErrorRate`, linear models).
    l2
        μ of the ridge term (μ/2)‖w‖² on standardised inputs.
    fit_intercept
        Whether there is a constant. Without one, inputs are scaled but not centred.
    threshold
        Of two classes: `predict` says the second one where its probability is above.
    selection_rate
        Instead of a threshold: the share of training rows that are predicted to be of
        the second class; ``threshold_`` has what was found. Of linear models.
    method
        Or its name. Default: the one that fits, see `Auto`.
    weighting
        Of silos in the risk: "silos" counts all equally, "rows" by their rows.
    infeasible
        Where the bounds are missed: "raise" an error, "warn", or keep the "nearest"
        model without a word (``status_`` has it).
    confidence
        Of a `certificate`.
    estimator
        Another classifier, such as ``HistGradientBoostingClassifier()``: it has
        `predict_proba`, and its `fit` takes `sample_weight`. It is fitted again and
        again with other weights, and the mean of its last fits is shipped. The verdict
        on training rows is of rows that a fit has not seen (cross-fitting). Rows of
        all silos count equally, and `l2`, `fit_intercept` and `method` do not apply.
    dual_rounds
        How often weights are changed. Each time costs two fits on half the rows.
    random_state
        Seed, for methods that draw and for the halves of the rows.

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
    gap_, converged_, n_iter_, loss_bound_
        Duality gap, whether it is under its target, rounds, M.
    estimators_
        The fits whose mean is shipped, where `estimator` is given; then there is no
        ``coef_``, ``intercept_``, ``mean_`` and ``score_at_mean_``.
    evidence_
        The evidence of the training, a JSON text.
    solution_
        The `Solution`: report, files. It is not saved with the estimator.

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

    _: KW_ONLY
    threshold: float = 0.5
    selection_rate: float | None = None

    def _classes(self, y: NDArray[Any]) -> int:
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise DataError("one-class:classes", classes=self.classes_.tolist()[0])
        return len(self.classes_)

    def _model(self, classes: int) -> LinearModel:
        if classes == 2:
            cut = getattr(self, "threshold_", self.threshold)
            return LogisticRegression(self.l2, self.fit_intercept, threshold=cut)
        if self.threshold != 0.5:
            raise UsageError("wrong-model:model")
        return SoftmaxRegression(self.l2, self.fit_intercept)

    def _outputs_of(self, fitted: Any, X: Any) -> FloatArray:
        own, many = fitted.predict_proba(X), len(self.classes_)
        p = np.zeros((len(own), many))  # half the rows may lack a class
        p[:, np.searchsorted(self.classes_, fitted.classes_)] = own
        return p[:, 1:] if many == 2 else p

    @available_if(lambda self: self.estimator is None)
    def decision_function(self, X: Any) -> FloatArray:
        """Return scores: of the last of two classes, or one per class."""
        check_is_fitted(self)
        model, w = self._plain()
        assert isinstance(model, LinearModel)  # noqa: S101 - there is no other
        return model.scores(w, self._scaled(X))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return class probabilities, bounded as certified."""
        check_is_fitted(self)
        model, w = self._plain()
        M = np.inf if self.loss_bound_ is None else self.loss_bound_
        return model.bounded_proba(w, self._scaled(X), M)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels, in their own type."""
        check_is_fitted(self)
        model, w = self._plain()
        codes = np.asarray(model.classes(w, self._scaled(X)), dtype=np.int64)
        return np.asarray(self.classes_[codes])


@dataclass(eq=False, repr=False)
class FairRegressor(RegressorMixin, _Fair):
    """A regressor with a bound on the mean loss of every group.

    It is linear regression, or any `estimator`.

    Parameters
    ----------
    bound
        The largest mean loss of a group, in the target's unit squared; otherwise as
        for `FairClassifier`.
    constraint, l2, fit_intercept, method, weighting
        As for `FairClassifier`.
    loss
        "squared", or "huber": r² up to `delta`, then 2δ|r| − δ².
    delta
        δ of the Huber loss, in the target's unit.
    target_range
        Ends between which all targets lie. Predictions are kept there; certificates
        on unseen people need it.
    infeasible, confidence, estimator, dual_rounds, random_state
        As for `FairClassifier`; an estimator has `predict`.

    Attributes
    ----------
    coef_, intercept_
        As of scikit-learn's linear regressions, for raw inputs.
    mean_, score_at_mean_
        The inputs' means, and the prediction there.
    status_, message_, group_loss_, multipliers_, gap_, converged_, n_iter_
        As of `FairClassifier`; so are ``loss_bound_`` and ``solution_``.

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
    >>> least = pffl.FairRegressor("smallest").fit(X, y, sensitive_features=group)
    >>> bound = 1.02 * least.group_loss_["loss"].max()
    >>> pffl.FairRegressor(bound).fit(X, y, sensitive_features=group).status_
    'met'
    """

    _: KW_ONLY
    loss: Literal["squared", "huber"] = "squared"
    delta: float = 1.0
    target_range: tuple[float, float] | None = None

    def _classes(self, y: NDArray[Any]) -> int:
        return 0

    def _model(self, classes: int) -> NumericModel:
        l2, ends = self.l2, self.target_range
        if self.loss == "squared":
            return LeastSquares(l2, self.fit_intercept, target_range=ends)
        if self.loss != "huber":
            wanted = "'squared' or 'huber'"
            raise UsageError(wrong("loss", type(self).__name__, wanted, self.loss))
        return HuberRegression(
            l2, self.fit_intercept, target_range=ends, delta=self.delta
        )

    def _outputs_of(self, fitted: Any, X: Any) -> FloatArray:
        return np.asarray(fitted.predict(X), dtype=np.float64).reshape(-1, 1)

    def predict(self, X: Any) -> FloatArray:
        """Return numbers, kept within the limits of the shipped predictor."""
        check_is_fitted(self)
        model, w = self._plain()
        values = model.predict_values(w, self._scaled(X))
        if self.loss_bound_ is None:
            return values
        return values.clip(*self._model(0).limits(self.loss_bound_))


def _weights(sample_weight: object, rows: int) -> FloatArray | None:
    """Return the weight of each row; None without weights."""
    if sample_weight is None:
        return None
    values = as_column(sample_weight)
    if values.shape != (rows,):
        raise DataError("wrong-shape:weights", shape=values.shape, rows=rows)
    return as_weights(values)
