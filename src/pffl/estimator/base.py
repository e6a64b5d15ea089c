"""What fair estimators share: constraint, training, verdict, certificate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from pffl._solve import solve
from pffl.certifying import Request
from pffl.constraints import CONSTRAINTS, Constraint, MinMax
from pffl.constraints.base import AUTO
from pffl.data.encoding import as_column, encode_values
from pffl.data.silo import Rows, as_inputs
from pffl.data.sparse import Matrix
from pffl.driver import drive
from pffl.engines import Local
from pffl.errors import NotMetError, UsageError, wrong
from pffl.estimator.rows import federation_of, held_out, known_groups, weights
from pffl.evidence.certificate import Certificate
from pffl.evidence.conclude import conclude
from pffl.evidence.looks import Look, Looks
from pffl.evidence.measure import Wanted, expected_rows, heldout_sample, reported
from pffl.evidence.record import Evidence, Missing, Sample
from pffl.flow import Flow
from pffl.methods import method_of
from pffl.methods.auto import Auto
from pffl.methods.base import Method
from pffl.metrics import codes_of
from pffl.models.base import Inputs
from pffl.models.linear import LinearModel
from pffl.models.scaled import Design
from pffl.prepare import Options, Weighting
from pffl.problem import Problem
from pffl.solution import Solution
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

Word: TypeAlias = Literal["auto", "smallest"]
Bound: TypeAlias = (
    float | Mapping[Any, float | Literal["auto"]] | Word | Constraint | None
)
Infeasible: TypeAlias = Literal["raise", "warn", "nearest"]
POLICIES = ("raise", "warn", "nearest")
#: Metadata that scikit-learn passes on to `fit` without being told to.
ROUTED = {"sensitive_features": True, "silos": True, "sample_weight": True}


class Fair(BaseEstimator):
    """What a classifier and a regressor share: constraint, training, certificate."""

    __metadata_request__fit: ClassVar = ROUTED
    __metadata_request__score: ClassVar = {"sample_weight": True}

    bound: Bound
    constraint: str | Constraint
    error_at_most: float | None
    l2: float | Literal["auto"]
    fit_intercept: bool
    method: Method | None
    multiplier_bound: float | None
    risk_weight: float
    weighting: Weighting
    infeasible: Infeasible
    confidence: float
    random_state: Any

    def _model(self, classes: int) -> LinearModel:
        raise NotImplementedError

    def _trained(self, X: Matrix, y: NDArray[Any], classes: int, **about: Any) -> None:
        """Solve for the bounds, and keep what came of it."""
        if self.infeasible not in POLICIES:
            name, wanted = type(self).__name__, f"one of {', '.join(POLICIES)}"
            raise UsageError(wrong("infeasible", name, wanted, self.infeasible))
        solution = solve(
            federation_of(X, y, self._names(), classification=classes > 0, **about),
            constraint_of(self),
            model=self._model(classes),
            method=self._method(),
            options=self._options(),
            seed=self._seed(),
        )
        self._judge(solution)
        self._keep(solution)

    def _names(self) -> list[str] | None:
        """Return what the inputs are called, where they have names."""
        known = hasattr(self, "feature_names_in_")
        return list(map(str, self.feature_names_in_)) if known else None

    def _method(self) -> Method:
        """Return the method, with its prices."""
        if self.method is None:
            return Auto(
                multiplier_bound=self.multiplier_bound, risk_weight=self.risk_weight
            )
        if self.multiplier_bound is not None or self.risk_weight != 1.0:
            raise UsageError(
                "[options-conflict] multiplier_bound and risk_weight are for the "
                f"default method: give them to {type(self.method).__name__} itself"
            )
        return method_of(self.method)

    def _options(self) -> Options:
        # What is impossible is found out where bounds are missed at an open price; at
        # a fixed one nobody asks unless told to.
        price = self._method().multiplier_bound
        return Options(
            weighting=self.weighting,
            empty_cells="remove",  # groups are crossed: not all of them have people
            confidence=self.confidence,
            l2="auto" if self.l2 == "auto" else None,
            error_at_most=self.error_at_most,
            baseline=False,
            least=price is not None,
        )

    def _seed(self) -> int:
        if self.random_state is None and self.method is None:
            return 0  # nothing is drawn
        return int(check_random_state(self.random_state).randint(2**31))

    def _judge(self, solution: Solution) -> None:
        """Raise or warn where a bound is missed; warn where training did not end."""
        status, told = solution.status, solution.message
        over = any((row.violation or 0.0) > 0 for row in solution.cell_results)
        unfinished = status in ("not converged", "diverged")
        if status in ("impossible", "not met", "not measured") or (unfinished and over):
            if self.infeasible == "raise":
                raise NotMetError(
                    f"[not-met] {told} (`infeasible='warn'` or 'nearest' keeps the "
                    "nearest model)"
                )
            if self.infeasible == "warn":
                warnings.warn(told, stacklevel=4)
        elif unfinished:
            warnings.warn(told, ConvergenceWarning, stacklevel=4)

    def _keep(self, solution: Solution) -> None:
        """Set the fitted attributes: plain numbers and texts, and the solution."""
        model = solution.model
        assert isinstance(model, LinearModel)  # noqa: S101 - `_model` made it
        # A constant for inputs at 0 would cost the digits of a year around 2000.
        self.mean_, self.coef_, self.score_at_mean_ = raw(model, solution.w)
        self.intercept_ = self.score_at_mean_ - self.coef_ @ self.mean_
        self.status_: str = solution.status
        self.message_ = solution.message
        self.converged_ = {"yes": True, "no": False}.get(solution.converged)
        self.gap_ = solution.gap
        self.n_iter_ = solution.rounds
        self.l2_ = model.l2
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
        self.looks_: list[dict[str, Any]] = []
        self.solution_ = solution

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
        """Say what holds for the model: on the training rows, and for unseen people.

        Parameters
        ----------
        X, y
            Rows that were not used in training, and that nothing was chosen by.
        sensitive_features, silos, sample_weight
            As for `fit`.
        confidence
            1 − δ of the statements on unseen people. Default: the estimator's.
        candidates
            As for `pffl.certify`. Certificates on the same rows are counted, in
            ``looks_``.
        weight_bound
            What no row's weight is above, seen or unseen, where rows have weights.
            Without it nothing is said of people not seen.
        """
        rows = self._rows(X, y, sensitive_features, sample_weight)
        evidence = self._measured(rows, silos, confidence, weight_bound)
        terms = replace(evidence.terms, candidates=candidates, later=0)
        known = Looks(own=tuple(Look(**one) for one in self.looks_))
        found = known.counted(replace(evidence, terms=terms))
        looks = known.own if (added := known.added(found)) is None else added
        self.looks_ = [asdict(one) for one in looks]
        return conclude(found).certificate

    def _rows(
        self, X: Any, y: Any, sensitive_features: object, sample_weight: object
    ) -> Rows:
        """Return rows in the codes of the training rows."""
        check_is_fitted(self)
        inputs, target = validate_data(
            self, X, y, reset=False, accept_sparse="csr", dtype=np.float64
        )
        schema, trained = self.solution_.schema, self.solution_.data
        if trained.weighted and sample_weight is None:
            raise UsageError(
                "[needs-weights] sample_weight is needed: the model was trained with "
                "weights (ones, where rows count alike)"
            )
        if schema.labels:
            target = codes_of(target, self.classes_)
        group = known_groups(schema, sensitive_features, len(target))
        return replace(
            Rows.of(inputs, target, group), weight=weights(sample_weight, len(target))
        )

    def _measured(
        self,
        rows: Rows,
        silos: object,
        confidence: float | None,
        weight_bound: float | None,
    ) -> Evidence:
        """Return the evidence of the training, with these rows as held-out ones."""
        solution: Solution = self.solution_
        shown = reported(solution.problem)
        here = held_out(solution.schema, rows, silos, shown)
        by_silo = np.array([len(silo) for silo in here.silos], dtype=np.float64)
        if self.weighting == "silos":
            by_silo = np.ones_like(by_silo)
        task = replace(shown.task, shares=by_silo / by_silo.sum())
        evidence = solution.evidence
        terms = evidence.terms
        if confidence is not None:
            terms = replace(terms, confidence=Options(confidence=confidence).confidence)
        terms = Request(weight_bound=weight_bound).terms(terms)
        wanted = Wanted(
            ("train",),
            heldout=("train",),
            loss_bound=terms.loss_bound,
            weighted=here.weighted,
            weight_bound=terms.weight_bound,
            confidence=terms.confidence,
        )
        flow = _looked(replace(shown, task=task), solution.w, wanted, evidence.seen)
        held, own = drive(Local(here), flow), here.fingerprint
        if isinstance(held, Sample) and own != evidence.data.fingerprint:
            held = replace(held, splits=["test"])  # otherwise they were trained on
        data = replace(
            evidence.data, overlap=None, splits={"test": own}, weighted=here.weighted
        )
        return replace(evidence, terms=terms, heldout=held, data=data)

    def _inputs(self, X: Any) -> Design:
        """Return the inputs, less their means."""
        inputs = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=np.float64
        )
        return Inputs(self.mean_, np.ones_like(self.mean_)).apply(as_inputs(inputs))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")


def constraint_of(estimator: Fair) -> Constraint | None:
    """Return what is promised to whom; None for the plain model."""
    bound, kind = estimator.bound, estimator.constraint
    name = type(estimator).__name__
    if isinstance(kind, Constraint):
        if bound is not None:
            raise UsageError(
                f"[bounds-mixed] {name}: give bounds in 'constraint' or in 'bound'"
            )
        return kind
    kinds = [one for one in CONSTRAINTS if one != MinMax.name]  # bound="smallest" is it
    if kind not in kinds:
        wanted = f"a constraint, or one of {', '.join(kinds)}"
        raise UsageError(wrong("constraint", name, wanted, kind))
    if bound is None or isinstance(bound, Constraint):
        return bound
    if bound == "smallest" and kind == "bgl":
        return MinMax()
    if isinstance(bound, str) and bound != AUTO:
        wanted = "a number, a mapping, a constraint, None, 'auto' or (of 'bgl') "
        raise UsageError(wrong("bound", name, f"{wanted}'smallest'", bound))
    plain = bound
    if isinstance(bound, Mapping):
        plain = {_text(key): value for key, value in bound.items()}
    made: Any = CONSTRAINTS[kind]
    found: Constraint = made(plain)
    return found


def _text(value: Any) -> str:
    """Return what a group is called by its value: 1.0 and 1 are the group 1."""
    ((name,), _) = encode_values(as_column([value]), "bound")
    return name


def _looked(
    shown: Problem, w: FloatArray, wanted: Wanted, seen: Sample
) -> Flow[Sample | Missing]:
    """Count the held-out rows, plan bets by the training rows, and look."""
    rows = yield from expected_rows(shown, wanted.present)
    return (yield from heldout_sample(shown, w, wanted, seen, rows))


def raw(model: LinearModel, w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return means of the raw inputs, coefficients, and the scores at the means."""
    table = w.reshape(model.n_outputs, model.n_columns)
    d = len(model.inputs.mean)
    constant = table[:, d] if model.intercept else np.zeros(len(table))
    scale, mean = model.target.scale, model.target.mean
    coef = table[:, :d] / model.inputs.scale
    return model.inputs.mean, scale * coef, scale * constant + mean
