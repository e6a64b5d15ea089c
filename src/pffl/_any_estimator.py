"""Bounds for any estimator: Algorithm 1 with the estimator as best response.

    λ ← 0
    repeat   fit on each half of the rows, with weights c_i(λ); predict the other half
             λ ← [λ + η r]₊ within Σλ ≤ B       r from predictions of rows not fitted on
    ship     the mean of fits on all rows, for the λ of the last rounds

A flexible model meets any bound on its own rows, so violations are measured on rows
that it was not fitted on. Log loss and squared loss are convex in the prediction: the
loss of a mean of predictions is at most the mean of their losses, row by row. Which
rounds are averaged is chosen by the cross-fitted losses, and so is M. A bound that is
never exceeded leaves λ at 0, and the estimator is the one fitted without bounds.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from pffl._solve import prepared, setting_of
from pffl.constraints import Constraint
from pffl.data.federation import Federation
from pffl.driver import drive
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.evidence import measure as measuring
from pffl.evidence.rates import with_scores
from pffl.evidence.record import Missing, Sample, Training
from pffl.files import digest_arrays
from pffl.fit import shipped_sample
from pffl.flow import Round
from pffl.methods.ascent import Ascent, example_weights, rank
from pffl.methods.pffl import PFFL
from pffl.models.base import Model
from pffl.prepare import Options
from pffl.problem import Point, Problem, upper_value
from pffl.solution import Solution
from pffl.typing import FloatArray, IntArray

CROSS_FITTED = (
    "losses on training rows are cross-fitted: each row is predicted by estimators "
    "that were fitted on the other half of the rows. The shipped predictor is the mean "
    "of estimators fitted on all rows"
)
NO_GAP = Missing("the fits of an estimator have no duality gap, and prove nothing")
LARGEST_MULTIPLIER = 20.0  # B
#: Outputs of a fitted estimator, shape (n, columns of the model).
Predict: TypeAlias = Callable[[Any, Any], FloatArray]


def fit_bounded(
    estimator: Any,
    rows_given: tuple[Any, Any, Federation],
    constraint: Constraint | None,
    outputs_model: tuple[Model, FloatArray],
    predict: Predict,
    options: Options,
    *,
    rounds: int,
    seed: int = 0,
) -> tuple[list[Any], Solution]:
    """Fit an estimator under bounds; return the fits whose mean output is shipped.

    Parameters
    ----------
    rows_given
        X and y, as the estimator takes them; and the same rows as a federation of
        groups, labels and weights, with their numbers as the only input.
    outputs_model
        The model and w that turn outputs of the estimator into losses.
    predict
        Called with a fitted estimator and rows: its outputs.
    rounds
        Dual rounds. Each fits the estimator on both halves of the rows.
    """
    started, method = time.monotonic(), PFFL(multiplier_bound=LARGEST_MULTIPLIER)
    (X, y, base), (model, w) = rows_given, outputs_model
    rows = _Rows.of(base, len(y), seed)
    empty = np.zeros((len(y), len(model.inputs.mean)))
    problem, notes = prepared(
        Local(rows.with_outputs(empty)), constraint, model, method, options, seed
    )
    problem = replace(problem, task=replace(problem.task, model=model))  # unscaled
    shown = measuring.reported(problem)  # without bounds, all groups
    wanted = measuring.Wanted(
        ("train",), weighted=base.weighted, confidence=options.confidence
    )

    def fitted(weight: FloatArray, places: IntArray) -> Any:
        own = clone(estimator)
        return own.fit(
            _take(X, places), y[places], **_weight_argument(own, weight[places])
        )

    def sample_of(outputs: FloatArray) -> tuple[float | None, Sample]:
        engine = Local(rows.with_outputs(outputs))
        return drive(engine, shipped_sample(shown, w, wanted))

    ascent = Ascent.begin(problem, None) if problem.n_cells else None
    history: list[Round] = []
    crossed: list[FloatArray] = []
    for number in range(1, rounds + 1):
        lam = np.zeros(0) if ascent is None else ascent.multipliers
        if history and np.array_equal(lam, history[-1].multipliers):
            break  # the same weights give the same fits
        weight, outputs = rows.weights(problem, lam), empty.copy()
        for fold in (0, 1):
            one = fitted(weight, rows.outside(fold))
            outputs[rows.inside(fold)] = predict(one, _take(X, rows.inside(fold)))
        _, seen = sample_of(outputs)
        risk, r = seen.risk / seen.share, _violation(seen, problem)
        crossed.append(outputs)
        history.append(
            Round(
                multipliers=lam,
                number=number,
                risk=risk,
                violation=r,
                upper=upper_value(risk, r, problem),
                seconds=time.monotonic() - started,
                loss=float(np.nanmax(seen.own_means, initial=risk)),
                planned=rounds,
                problem=problem,
            )
        )
        ascent = None if ascent is None else ascent.after(r)
    minimax = constraint is not None and constraint.minimax
    tails = [sample_of(np.mean(crossed[t:], axis=0)) for t in range(len(crossed))]
    values = [
        rank(problem, one.risk / one.share, _violation(one, problem), minimax=minimax)
        for _, one in tails
    ]
    first = values.index(min(values))
    M, seen = tails[first]
    lam = np.mean([row.multipliers for row in history[first:]], axis=0)
    everyone = np.flatnonzero(rows.stratum >= 0)
    estimators = [
        fitted(rows.weights(problem, row.multipliers), everyone)
        for row in history[first:]
    ]
    engine = Local(rows.with_outputs(np.mean(crossed[first:], axis=0)))
    declared = replace(wanted, loss_bound=M)
    point = Point(w, lam)
    known = replace(measuring.Known.nothing(NO_GAP, seen=seen), free=NO_GAP)
    measured = drive(engine, measuring.measure(problem, point, declared, known))
    plain = Local(rows.with_outputs(crossed[0]))
    before = drive(plain, measuring.measure_before(shown, w, declared))
    data = setting_of(engine).data
    training = Training(
        {
            "kind": "any_estimator",
            "estimator": type(estimator).__name__,
            "rounds": rounds,
            "averaged": len(estimators),
            "multiplier_bound": problem.multiplier_bound,
            "risk_weight": problem.risk_weight,
        },
        {} if constraint is None else dict(constraint.describe()),
        seed,
        len(history),
        None,
        {"asked": len(history), "distinct": len(history), "messages": 0},
        time.monotonic() - started,
    )
    shipped = np.mean([predict(one, X) for one in estimators], axis=0)
    evidence = measuring.evidence_of(
        replace(data, trained_on=data.fingerprint),
        problem,
        point,
        measured,
        measuring.terms_of(problem, declared, options.weighting),
        training=training,
        promise=constraint is not None and not minimax,
        minimax=minimax,
        notes=[*notes, CROSS_FITTED],
    )
    # It has no weights of ours: it is known by what it predicts.
    facts = replace(evidence.model, fingerprint=digest_arrays(shipped))
    evidence = replace(evidence, model=facts)
    scored = with_scores(evidence, engine.federation, model, w)
    evidence = replace(scored, before=before)  # outputs are of one model
    solution = Solution.of(point, problem, history, evidence, engine.encoding)
    return estimators, solution


@dataclass(frozen=True, eq=False)
class _Rows:
    """Where each row is: its silo, stratum and fold; −1 for rows of weight 0."""

    base: Federation
    silo: IntArray
    stratum: IntArray
    weight: FloatArray
    fold: IntArray

    @classmethod
    def of(cls, base: Federation, many: int, seed: int) -> _Rows:
        """Draw folds: half of each stratum's rows, as nearly as can be."""
        silo, stratum = np.full((2, many), -1)
        weight = np.zeros(many)
        for k, one in enumerate(base.silos):
            rows = one.splits["train"]
            places = np.asarray(rows.X)[:, 0].astype(np.int64)
            silo[places], weight[places] = k, rows.weights
            codes = rows.y if base.schema.labels else 0 * rows.y
            stratum[places] = rows.group * base.schema.n_labels + codes
        order = np.random.default_rng(seed).permutation(many)
        order = order[np.argsort(stratum[order], kind="stable")]
        fold = np.empty(many, dtype=np.int64)
        fold[order] = np.arange(many) % 2
        fold[stratum < 0] = -1
        return cls(base, silo, stratum, weight, fold)

    def inside(self, fold: int) -> IntArray:
        """Return the rows of a fold."""
        return np.flatnonzero(self.fold == fold)

    def outside(self, fold: int) -> IntArray:
        """Return the rows of the other one."""
        return np.flatnonzero(self.fold == 1 - fold)

    def weights(self, problem: Problem, multipliers: FloatArray) -> FloatArray:
        """Return c_i(λ) of each row, in parts of its mean, times its own weight."""
        table = example_weights(problem, multipliers).reshape(len(self.base.silos), -1)
        return np.asarray(table[self.silo, self.stratum] * self.weight)

    def with_outputs(self, outputs: FloatArray) -> Federation:
        """Return the federation with outputs of estimators as inputs."""
        names = [f"output {j + 1}" for j in range(outputs.shape[1])]
        return self.base.with_inputs(outputs, names)


def _violation(seen: Sample, problem: Problem) -> FloatArray:
    """Return r of the cells that have bounds."""
    bounds = problem.cells.bounds
    return np.asarray(seen.own_means - bounds if problem.n_cells else bounds)


def _take(X: Any, places: IntArray) -> Any:
    """Return some rows, of a frame or an array."""
    return X.iloc[places] if hasattr(X, "iloc") else X[places]


def _weight_argument(estimator: Any, weight: FloatArray) -> dict[str, FloatArray]:
    """Return the argument of `fit` that carries weights."""
    own, name = estimator, "sample_weight"
    while isinstance(own, Pipeline):
        step, own = own.steps[-1]
        name = f"{step}__{name}"
    if "sample_weight" not in inspect.signature(own.fit).parameters:
        raise UsageError("no-weights:weight-argument", name=type(own).__name__)
    return {name: weight}
