"""`audit`: a model from elsewhere, measured and certified without training.

The silos answer `evaluate`, and nothing else is asked. What the model's makers did is
not known, so nothing is stated about gaps, multipliers or slack; the rest holds for
the rows given and for new people, as for any other model.

A model is anything with ``predict_proba`` (or ``predict``, for numbers), a table of its
probabilities, a table of coefficients, or one of ours. Of the first two its outputs
become the inputs of the rows.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from pffl._certify import chosen_among, overlap_of
from pffl._solve import open_engine, prepared, setting_of
from pffl.bounds.checks import whole
from pffl.config import (
    APART,
    SPEC,
    DataSource,
    RunSpec,
    about_section,
    constraint_sections,
    dumps,
    set_apart,
)
from pffl.constraints import AUTO, Constraint, settled
from pffl.data.columns import TableEncoder, as_column, encode_values
from pffl.data.federation import Federation
from pffl.data.read import read_table, require
from pffl.data.schema import Schema
from pffl.data.table import TableOptions
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import ArtefactError, DataError, Problems, UsageError, wrong
from pffl.evidence.conclude import Conclusions
from pffl.evidence.figures import named
from pffl.evidence.looks import Looks
from pffl.evidence.measure import (
    UNTRAINED,
    Known,
    Wanted,
    evidence_of,
    measure,
    terms_of,
)
from pffl.evidence.rates import with_scores
from pffl.evidence.record import Evidence, Missing
from pffl.methods.auto import Auto
from pffl.models.base import Inputs, Model
from pffl.models.external import Probabilities
from pffl.models.linear import LeastSquares, LogisticRegression, SoftmaxRegression
from pffl.models.predictor import PROBABILITY, Predictor, read_model
from pffl.prepare import Options
from pffl.problem import Point
from pffl.queries.evaluate import IMPOSSIBLE
from pffl.records import read_toml
from pffl.runs import (
    CERTIFICATE,
    MODEL,
    RESULT,
    RunDirectory,
    read_evidence,
    read_run,
)
from pffl.solution import Result
from pffl.text import few
from pffl.typing import FloatArray

OURS = Missing("the certificate of its run speaks of them")
UNKNOWN = (
    "it is unknown whether the model was trained on these rows: if it was, they "
    "say nothing about new people"
)
PRIVATE = (
    "the model was trained with a privacy budget, and its run keeps no fingerprint of "
    "its rows: if these are its training rows, these figures are exact and outside of "
    "its budget"
)
LEFT_OUT = (
    "the model was trained on these data: only the rows that its run held out are used"
)
ROUNDING = 1e-12  # of 1 − p, where p was written with few digits
INPUT = "predicted probability"
Clipping: TypeAlias = Literal["declared", "clip", "range"] | None


@dataclass(frozen=True, eq=False)
class Audited:
    """A model from elsewhere.

    Attributes
    ----------
    model, w
        The model, with its scaling, and its parameters.
    trained_on
        Fingerprint of the data it was trained on, if known.
    notes
        What was assumed on reading it.
    loss_bound
        M, if its own predictor keeps probabilities so far from 0 that no loss is above
        it.
    looks
        Certificates of the run that made it: this one comes after them.
    evidence
        What that run measured, if known.
    ours
        Whether `pffl` trained it: then `loss_bound` is that of its predictor.
    """

    model: Model
    w: FloatArray
    trained_on: str | None = None
    notes: tuple[str, ...] = ()
    loss_bound: float | None = None
    looks: Looks = field(default_factory=Looks)
    evidence: Evidence | None = None
    ours: bool = False

    @classmethod
    def of(cls, predictor: Predictor) -> Audited:
        """Return a model of ours."""
        model, w, M = predictor.model, predictor.w, predictor.loss_bound
        return cls(model, w, predictor.fingerprint, loss_bound=M, ours=True)

    @classmethod
    def by_probabilities(
        cls, federation: Federation, notes: tuple[str, ...] = ()
    ) -> Audited:
        """Return the model whose probabilities are the inputs of these rows."""
        blank = Probabilities()
        model = blank.bind(federation.schema, blank.inputs)
        return cls(model, model.start(0), notes=notes)


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Result):
    """What an audit found: the model, and the evidence that all of it follows from."""

    audited: Audited
    preparation: TableEncoder
    evidence: Evidence

    @cached_property
    def predictor(self) -> Predictor:  # type: ignore[override]
        """The model as it was measured: bounded, on tables like that of its rows."""
        e = self.evidence
        cells = e.cells if e.promise else []
        return Predictor(
            self.preparation,
            self.audited.model,
            self.audited.w,
            None if e.terms.clipping == "range" else e.terms.loss_bound,
            self.audited.trained_on,
            cells=tuple(cell.cell for cell in cells),
            bounds=np.array([cell.bound for cell in cells]),
            multipliers=np.zeros(len(cells)),
        )

    @property
    def looks(self) -> Looks:
        """Certificates of the run that made the model."""
        return self.audited.looks


def audit(
    audited: Any,
    federation: Federation | Engine | None = None,
    constraint: Constraint | None = None,
    *,
    X: object = None,
    y: object = None,
    sensitive_features: object = None,
    silos: object = None,
    sample_weight: object = None,
    name: str = "data",
    promise: bool = True,
    splits: tuple[str, ...] | None = None,
    options: Options | None = None,
    clip: float | None = None,
    p_min: float | None = None,
    threshold: float | None = None,
    candidates: int = 1,
) -> Audit:
    """Certify a model that was not trained here: nothing is trained.

    Parameters
    ----------
    audited
        The model: on a federation, a `Solution` or what `pffl.load` read; on rows,
        anything with ``predict_proba`` (or ``predict``, for numbers), or the
        probabilities themselves, of the last label in order or of all.
    federation
        The silos, or an engine that reaches them; or else the rows:
    X, y, sensitive_features
        The model's own inputs, as it takes them; labels; protected attributes.
    silos, sample_weight, name
        Of these rows, as for `Federation.from_arrays`.
    constraint
        The cells and their bounds; None to report on every group without bounds.
    promise
        Whether the bounds count; otherwise the cells are only reported on.
    splits
        The rows to use. Default: all; of data that the model is known to have been
        trained on, those that were held out.
    options
        Confidence, and what to do with empty cells.
    clip
        Audit the model with its probabilities kept within ``clip`` and ``1 − clip`` (of
        several classes: mixed, so that none is below), under that name.
    p_min
        Declare that the model's own probabilities are never below ``p_min``, of no
        class: then its loss is at most −log p_min. Say it without a look at these rows;
        a row with one outside is refused. Without `clip` and `p_min` the loss of new
        people is not certified, as nothing bounds it; error rates are.
    threshold
        The probability above which people are selected, of two classes. Default: the
        model's own, or 0.5.
    candidates
        As for `certify`.

    Returns
    -------
    Audit
        It has what a `Solution` has, but for rounds.

    Raises
    ------
    UsageError
        There are no rows, or two kinds of them; `clip` or `p_min` is out of range.
    DataError
        Rows and model do not fit, or the rows cannot be used; a probability is outside
        the declared range.

    Examples
    --------
    >>> import numpy as np, pffl
    >>> rng = np.random.default_rng(0)
    >>> y, group = rng.integers(0, 2, 300), rng.choice(["a", "b"], 300)
    >>> probabilities = 0.2 + 0.6 * y  # of the last label
    >>> found = pffl.audit(probabilities, y=y, sensitive_features=group)
    >>> found.certificate.verdicts["test"]["verdict"]
    'no bounds'
    """
    settings = options or Options()
    if federation is None:
        rows = {"y": y, "sensitive_features": sensitive_features, "silo": silos}
        rows |= {"sample_weight": sample_weight, "name": name}
        audited, federation = outputs_of(audited, X, rows)
    engine = open_engine(federation, "local")
    audited, here = _bound(audited, engine.schema), engine.federation
    data, own = setting_of(engine).data, audited.trained_on
    chosen = _splits(engine, splits, own)
    if threshold is not None:
        audited = replace(audited, model=deciding(audited.model, threshold))
    model, M, clipping = _limited(audited, clip, p_min)
    method = Auto(risk_weight=0.0)  # its prices play no part: nothing is trained
    counted = replace(settings, certify=True)  # rates may be bounded, too
    problem, said = prepared(engine, constraint, None, method, counted, 0)
    task = replace(problem.task, model=model)
    problem = replace(problem, task=task, risk_weight=1.0, multiplier_bound=0.0)
    notes = [*said, *audited.notes]
    e = audited.evidence
    hidden = np.isfinite(audited.model.inputs.longest) if e is None else e.noise
    if hidden:
        notes.append(PRIVATE)
    elif own is None:
        notes.append(UNKNOWN)
    elif splits is None and len(chosen) < len(engine.splits):
        notes.append(LEFT_OUT)
    if clipping != "clip":
        notes += _checked(audited, engine, chosen, p_min)
    wanted = Wanted(
        engine.splits,
        heldout=chosen,
        loss_bound=M,
        weighted=data.weighted,
        weight_bound=settings.weight_bound,
        confidence=settings.confidence,
    )
    point = Point(audited.w, np.zeros(problem.n_cells))
    flow = measure(problem, point, wanted, Known.nothing(UNTRAINED), trained=False)
    measured = drive(engine, flow)
    candidates *= 1 if e is None else max(1, chosen_among(e, data, chosen))
    goal: Any = "loss" if constraint is None else constraint.goal
    terms = terms_of(problem, wanted, settings.weighting, clipping=clipping, goal=goal)
    if "train" in chosen:  # rows that are judged may not tell what weights there are
        data = replace(data, weights=None)
    overlap = None if own is None else overlap_of(here, chosen, own)
    evidence = evidence_of(
        replace(data, trained_on=own, overlap=overlap),
        problem,
        point,
        measured,
        replace(terms, candidates=int(whole("candidates", candidates, least=1))),
        training=UNTRAINED if own is None else OURS,
        promise=promise and constraint is not None and not constraint.minimax,
        minimax=False,
        notes=notes,
    )
    evidence = with_scores(audited.looks.counted(evidence), here, model, audited.w)
    who = [f"all figures are those of {who}"] if (who := named(evidence)) else []
    notes = [*evidence.notes, *who, *Conclusions(evidence).remarks]
    return Audit(audited, engine.encoding, replace(evidence, notes=notes))


def deciding(model: Model, threshold: float) -> Any:
    """Return a model of two classes with another threshold."""
    if model.n_classes != 2 or not hasattr(model, "threshold"):
        raise UsageError("[wrong-model] a threshold is for two classes")
    if not 0 < threshold < 1:
        wanted = "a number between 0 and 1"
        raise UsageError(wrong("threshold", "audit", wanted, threshold))
    made: Any = model
    return replace(made, threshold=threshold)


def _limited(
    audited: Audited, clip: float | None, p_min: float | None
) -> tuple[Model, float | None, Clipping]:
    """Return the model that is measured, M, and how it was found; never from rows."""
    model, asked = audited.model, clip if clip is not None else p_min
    if asked is None:
        M = audited.loss_bound
        if audited.ours or model.n_classes:
            return model, model.loss_bound(M), None if M is None else "declared"
        M = next(iter(model.loss_bounds), None)  # a range was declared with the model
        return model, M, None if M is None else "range"
    if None not in (clip, p_min) or audited.loss_bound is not None:
        why = "they exclude each other"
        if audited.loss_bound is not None:
            why = "this model already keeps its own probabilities within limits"
        raise UsageError(f"[options-conflict] 'clip' and 'p_min': {why}")
    if not 0 < asked * model.n_classes < 1:
        name, classes = "p_min" if clip is None else "clip", max(2, model.n_classes)
        raise UsageError(
            f"[wrong-value] '{name}' must be above 0 and below 1/{classes}, for "
            f"{classes} classes; got {asked:g}"
        )
    if clip is None:
        model = copy(model)
        object.__setattr__(model, "as_is", True)
    return model, -math.log(asked), "range" if clip is None else "clip"


def _checked(
    audited: Audited, engine: Engine, splits: Sequence[str], p_min: float | None
) -> list[str]:
    """Refuse predictions outside the declared range; count probabilities of 0."""
    model, w, here = audited.model, audited.w, engine.federation
    ends = None if model.n_classes else getattr(model, "target_range", None)
    if here is None:
        if p_min is not None:
            raise UsageError(
                "[needs-rows] a declared range is checked on rows, and these are "
                "elsewhere: use `clip=P`"
            )
        return []
    outside = never = 0
    for rows in (silo.rows(split) for silo in here.silos for split in splits):
        X = model.inputs.apply(rows.X)
        if ends is not None and not audited.ours:
            values = model.predict_values(w, X)
            outside += int(((values < ends[0]) | (values > ends[1])).sum())
        if p_min is not None:
            low = model.predict_proba(w, X) < p_min - ROUNDING
            outside += int(low.any(axis=1).sum())
        elif model.n_classes and audited.loss_bound is None:
            never += int((model.losses(w, X, rows.y) >= IMPOSSIBLE).sum())
    if outside:
        raise DataError(
            f"[outside-range] {outside:,} rows have a prediction outside the declared "
            "range, so that nothing is certified: declare one that holds, or audit the "
            "clipped model (`clip=P`)"
        )
    zero = (
        f"{never:,} rows had a probability of 0 for what happened: their loss is "
        "infinite, and the mean loss that is shown is less than the true one"
    )
    return [zero] if never else []


def _bound(audited: Any, schema: Schema) -> Audited:
    """Return a model that the inputs of these data fit."""
    match audited:
        case Audited():
            return audited
        case Result():
            own = _bound(audited.predictor, schema)
            return replace(own, evidence=audited.evidence)
        case Predictor() if audited.schema.features == schema.features:
            return Audited.of(audited)
        case Predictor():
            raise DataError(
                "[other-inputs] the model and the data have different inputs"
            )
    raise UsageError(
        f"[needs-rows] a {type(audited).__name__} has its own inputs: audit it on "
        "rows, pffl.audit(model, X=X, y=y, sensitive_features=A)"
    )


def _splits(
    engine: Engine, asked: tuple[str, ...] | None, trained_on: str | None
) -> tuple[str, ...]:
    """Return the splits to use; refuse those that there are not."""
    there, here = engine.splits, engine.federation
    for split in asked or ():
        if split not in there:
            raise UsageError(
                f"[unknown-split] no split '{split}': there are {list(there)}"
            )
    own = here is not None and here.fingerprint == trained_on
    held = tuple(split for split in there if split != "train")
    return asked if asked is not None else held if own and held else there


# Anything that predicts, in Python


def outputs_of(
    model: Any, X: object, rows: dict[str, Any]
) -> tuple[Audited, Federation]:
    """Return rows with a model's outputs as their inputs, and the model of these.

    `rows` has the keywords of `Federation.from_arrays`: labels, groups, silos, weights.
    """
    if rows["y"] is None or rows["sensitive_features"] is None:
        raise UsageError(
            "[needs-rows] a model is audited on a federation, or on rows: give X (its "
            "inputs), y and sensitive_features"
        )
    by_class = callable(getattr(model, "predict_proba", None))
    if by_class or callable(getattr(model, "predict", None)):
        if X is None:
            raise UsageError(
                "[needs-rows] an estimator is audited on its inputs: give X, too"
            )
    elif X is not None:
        raise UsageError(
            f"[no-predictions] {type(model).__name__} has neither predict_proba nor "
            "predict; probabilities themselves are given without X"
        )
    if X is None or by_class:
        given = model.predict_proba(X) if by_class else model
        classes = getattr(model, "classes_", None) if by_class else None
        values, names, notes = _by_class(given, rows["y"], classes)
        federation = _with_inputs(values, names, rows, classification=True)
        return Audited.by_probabilities(federation, notes), federation
    if as_column(rows["y"]).dtype.kind not in "iuf":
        raise DataError(
            f"[no-predictions] {type(model).__name__} has no predict_proba, and y has "
            "classes: a loss needs probabilities"
        )
    values, names = np.asarray(model.predict(X), dtype=np.float64), ["prediction"]
    values = values.reshape(len(values), -1)
    federation = _with_inputs(values, names, rows, classification=False)
    same = LeastSquares(0.0, inputs=Inputs(np.zeros(1), np.ones(1)), n_outputs=1)
    return Audited(same, np.array([1.0, 0.0])), federation


def _with_inputs(
    values: FloatArray, names: list[str], rows: dict[str, Any], *, classification: bool
) -> Federation:
    """Return rows in one split; that two have the same output says nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Federation.from_arrays(
            values,
            **rows,
            features=names,
            classification=classification,
            test_fraction=0.0,
        )


def _by_class(
    given: object, y: object, classes: object
) -> tuple[FloatArray, list[str], tuple[str, ...]]:
    """Return probabilities in the order of labels, of two classes the second's.

    Also names of these columns, and notes.
    """
    values = np.asarray(given, dtype=np.float64)
    labels, codes = encode_values(as_column(y), "label")
    if values.ndim not in (1, 2) or len(values) != len(codes):
        raise DataError(
            f"[wrong-shape] {values.shape} probabilities for {len(codes):,} rows of y"
        )
    values = values.reshape(len(values), -1)
    note = f"the probabilities are taken in the order {', '.join(labels)}"
    if values.shape[1] == 1 and len(labels) == 2:
        note = f"the probabilities are taken as those of '{labels[1]}'"
    if classes is not None:
        names, order = encode_values(as_column(classes), "classes_")
        if names != labels:
            raise DataError(
                f"[other-labels] the model has the classes {list(names)}, y has "
                f"{list(labels)}: leave out rows of other classes, or audit rows that "
                "have them all"
            )
        values = values[:, np.argsort(order)]
    if values.shape[1] not in (len(labels), 1 if len(labels) == 2 else 0):
        raise DataError(
            f"[wrong-shape] {values.shape[1]} columns of probabilities for "
            f"{len(labels)} classes"
        )
    _check_probabilities(values, labels)
    notes = () if classes is not None else (note,)
    return values[:, -1:] if len(labels) == 2 else values, _inputs(labels), notes


def _inputs(labels: Sequence[str]) -> list[str]:
    """Name the inputs that probabilities become."""
    return [INPUT] if len(labels) == 2 else [f"{INPUT}: {label}" for label in labels]


def _check_probabilities(values: FloatArray, names: Sequence[str]) -> None:
    """Refuse numbers that are no probabilities, of one class or of all."""
    with Problems("predictions", DataError) as problems:
        for name, column in zip(names[-values.shape[1] :], values.T, strict=True):
            if bad := int((~((column >= 0) & (column <= 1))).sum()):
                problems.add(
                    f"[bad-probabilities] column '{name}': {bad:,} values are not in "
                    "[0, 1]"
                )
        off = int((np.abs(values.sum(axis=1) - 1.0) > 1e-3).sum())
        if values.shape[1] > 1 and off and not problems.found:
            problems.add(
                f"[bad-probabilities] {off:,} rows whose probabilities do not add up "
                "to 1"
            )


# A table of probabilities


def with_probabilities(
    table: str | os.PathLike[str],
    predictions: str | os.PathLike[str],
    options: Mapping[str, Any],
    *,
    id: str | None = None,
    column: str | None = None,
) -> Federation:
    """Build the federation of a table, with predicted probabilities as its inputs.

    Parameters
    ----------
    table
        The rows: a CSV or Parquet file.
    predictions
        A table with one row per row of `table`, in the same order or joined by `id`:
        the probability of the positive class, or one column per class named after it.
    options
        What `Federation.from_table` takes besides the table.
    id
        Column of both tables that says who a row is about.
    column
        Column of `predictions` with the probability.
    """
    import pandas as pd

    frame, predicted = read_table(table)[0], read_table(predictions)[0]
    with warnings.catch_warnings():  # the inputs of the table are not used
        warnings.simplefilter("ignore")
        whole = Federation.from_table(frame, **{**options, "missing": "indicator"})
    labels = whole.schema.labels
    if not labels:
        raise DataError(
            "[numeric-target] probabilities need classes, and the label is a number"
        )
    predicted = _in_order(frame, predicted, id)
    chosen = _columns(list(map(str, predicted)), labels, column)
    numbers = [pd.to_numeric(predicted[name], errors="coerce") for name in chosen]
    values = np.column_stack(numbers).astype(np.float64)
    _check_probabilities(values, chosen)
    names = _inputs(labels)
    values = values[:, -len(names) :]
    inputs = ("columns", "drop", "inputs", "missing")
    others = {key: value for key, value in options.items() if key not in inputs}
    roles = {v for v in others.values() if isinstance(v, str)} | {*others["group"]}
    others["drop"] = [str(name) for name in frame if name not in roles]
    joined = frame.assign(**dict(zip(names, values.T, strict=True)))
    with warnings.catch_warnings():  # that rows have the same output says nothing
        warnings.simplefilter("ignore")
        made = Federation.from_table(joined, **others)
    # That predictions tell of the label is what they are for.
    notes = [n for n in made.notes if not n.startswith(f"column '{INPUT}")]
    if len(chosen) == 1:
        notes.append(
            f"predictions: column '{chosen[0]}' is taken as the probability of "
            f"'{labels[1]}'"
        )
    return replace(made, notes=tuple(notes), name=Path(table).stem)


def _in_order(frame: Any, predicted: Any, id: str | None) -> Any:
    """Return the predictions in the order of the rows."""
    if id is not None:
        for what, one in (("the data", frame), ("the predictions", predicted)):
            require([id], list(one.columns), what)
        if twice := int(predicted[id].duplicated().sum()):
            raise DataError(
                f"[repeated-id] '{id}' is not unique in the predictions: {twice} repeat"
            )
        by_id = predicted.set_index(predicted[id].astype(str))
        return by_id.reindex(frame[id].astype(str)).reset_index(drop=True)
    if len(predicted) != len(frame):
        raise DataError(
            f"[wrong-length] {len(predicted):,} predictions for {len(frame):,} rows: "
            "give one per row in the same order, or name the column that joins them "
            "(--id)"
        )
    for name in predicted.columns.intersection(frame.columns):
        differ = frame[name].astype(str) != predicted[name].astype(str)
        if differ.any():
            raise DataError(
                f"[other-order] column '{name}' of the predictions differs from that "
                f"of the data in {differ.sum():,} rows: the order is another one "
                f"(--id {name} joins by it)"
            )
    return predicted


def _columns(there: list[str], labels: Sequence[str], column: str | None) -> list[str]:
    """Return the columns with the probabilities, in the order of the classes."""
    written = [f"{PROBABILITY}_{label}" for label in labels]  # by pffl predict
    by_class = list(labels), written, written[-1:]
    known = ([column or PROBABILITY], *(by_class if column is None else ()))
    for names in known:
        if {*names} <= {*there} and len(names) in (len(labels), 3 - len(labels)):
            return names
    raise DataError(
        f"[missing-column] the predictions have the columns {there}; needed: "
        f"'{column or PROBABILITY}' for two classes, or one for each of {list(labels)}"
    )


# A table of coefficients


def read_coefficients(path: str | os.PathLike[str], schema: Schema) -> Audited:
    """Read a linear model for these data: a row per input, by its name.

    The first column has names; the others are coefficients of raw inputs, and in a row
    (intercept) the constant: `coef` for a number or for the second of two classes, else
    one column per class, named after it.
    """
    import pandas as pd

    frame, labels = read_table(path)[0], schema.labels
    names = [str(name).strip() for name in frame.iloc[:, 0]]
    table = frame.iloc[:, 1:].apply(pd.to_numeric, errors="coerce").set_axis(names)
    wanted = ["coef"] if len(labels) < 3 else list(labels)
    with Problems(f"'{path}'", DataError) as problems:
        if unknown := sorted({*names} - {*schema.features, "(intercept)"}):
            problems.add(
                f"[other-inputs] the data do not have the inputs {unknown}: they have "
                f"{few(list(schema.features), 20)}"
            )
        if len({*names}) < len(names):
            problems.add("[repeated-name] an input is named twice")
        if not np.isfinite(table).all(axis=None):
            problems.add("[not-numbers] some coefficients are not finite numbers")
        if {*map(str, table)} != {*wanted}:
            problems.add(
                f"[other-labels] the columns must be {wanted}; they are {list(table)}"
            )
    rows = [*schema.features, "(intercept)"]
    w = table[wanted].reindex(rows, fill_value=0.0).to_numpy().T
    kind = {0: LeastSquares, 2: LogisticRegression}.get(len(labels), SoftmaxRegression)
    model = kind(0.0, inputs=Inputs.identity(schema.n_features), n_outputs=len(w))
    notes = [f"the coefficients are those of '{labels[1]}'"] if len(labels) == 2 else []
    if unused := [name for name in schema.features if name not in names]:
        notes.append(f"inputs that the model does not use: {', '.join(unused)}")
    return Audited(model, w.reshape(-1), notes=tuple(notes))


# Files


def open_model(
    path: Path, source: DataSource, id: str | None = None, column: str | None = None
) -> tuple[Audited, Federation]:
    """Read a model from elsewhere, and open the data that it is to be measured on.

    Parameters
    ----------
    path
        A run directory, a model.safetensors, coefficients, or a table of predicted
        probabilities.
    source
        The data.
    id, column
        Of predictions: the column that joins them to rows, and the one to use.
    """
    if not path.exists():
        raise ArtefactError(f"[file-missing] '{path}' does not exist")
    if path.is_dir() or path.suffix == ".safetensors":
        predictor = read_model(path / MODEL if path.is_dir() else path)
        ours, table = ("path", APART), source.values.get("path")
        if not isinstance(table, str):
            federation = source.open()
        else:  # a table is read as the one that the model was trained on
            given: Any = {k: v for k, v in source.values.items() if k not in ours}
            federation = Federation.alike(
                table,
                predictor.preparation,
                TableOptions(**given),
                name=source.name,
            )
            federation = set_apart(federation, source.values)
        return _ours(path, predictor, federation.schema), federation
    told, first = (f"the model audited: '{path.name}'",), read_table(path)[0].columns
    if str(first[0]).lower() in ("feature", "features", "name"):
        federation = source.open()
        audited = read_coefficients(path, federation.schema)
        return replace(audited, notes=told + audited.notes), federation
    options: dict[str, Any] = dict(source.values)
    table = options.pop("path", None)
    if not isinstance(table, str):
        raise UsageError(
            "[needs-rows] predicted probabilities are joined to the rows of a table: "
            "give the data as a CSV or Parquet file"
        )
    known = options.get("id") if id is None else id
    joined = known if known in first else id
    options.pop(APART, None)
    federation = with_probabilities(table, path, options, id=joined, column=column)
    federation = set_apart(federation, source.values)
    return Audited.by_probabilities(federation, told), federation


def _in_numbers(constraint: Any, folder: Path, predictor: Predictor) -> Any:
    """Return a run's constraint with the bounds that its run chose for "auto"."""
    if AUTO not in str(constraint):
        return constraint
    if isinstance(constraint, Mapping):
        found = zip(predictor.cells, predictor.bounds.tolist(), strict=True)
        return {**constraint, "bound": dict(found)}
    run: Any = read_evidence(folder).training
    bounds = [settled(part.get("bound"), run.choice.bound) for part in constraint]
    return [{**p, "bound": bound} for p, bound in zip(constraint, bounds, strict=True)]


def as_trained(model: Path, sections: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in what a model of ours knows of a table: label, groups, silos, bounds.

    Parameters
    ----------
    model
        A run directory or a file of a predictor; of other models nothing is known.
    sections
        A run file, of which some is not said.
    """
    out = {**sections}
    given: Any = out.get("data", {})
    if not (model.is_dir() or model.suffix == ".safetensors"):
        return out
    folder = model if model.is_dir() else model.parent
    whole = (model.is_dir() or model.name == MODEL) and (folder / SPEC).is_file()
    run = read_toml(folder / SPEC) if whole else {}
    first: dict[str, Any] = dict(run.get("data", {}))
    predictor = read_model(folder / MODEL if model.is_dir() else model)
    if "path" in given:
        if first.pop("path", None) is None:
            known = predictor.preparation
            groups = [attribute.name for attribute in known.schema.attributes]
            first = {"label": known.label, "group": groups}
            first |= {} if known.schema.labels else {"classification": False}
        first.pop("name", None)
        out["data"] = {**first, **given}
    elif first.get("name", "") == given.get("name"):
        out["data"] = {**first, **given}
    if not out.get("constraint") and "constraint" in run:
        out["constraint"] = _in_numbers(run["constraint"], folder, predictor)
    return out


def _ours(path: Path, predictor: Predictor, schema: Schema) -> Audited:
    """Return a model that was saved here; of a run also what it was trained on."""
    directory = path if path.is_dir() else path.parent
    if predictor.schema.features != schema.features:
        raise DataError("[other-inputs] the model and the data have different inputs")
    if predictor.schema.labels != schema.labels:
        raise DataError("[other-labels] the model and the data have different labels")
    audited = Audited.of(predictor)
    if not (directory / RESULT).is_file():
        return audited
    record = read_run(directory)
    facts: Any = record.result.get("data", {})
    notes = tuple(f"not verified: {text}." for text in record.mismatches)
    return replace(
        audited,
        trained_on=facts.get("fingerprint"),
        notes=notes,
        looks=Looks(own=record.looks.own),
        evidence=record.evidence if (directory / CERTIFICATE).is_file() else None,
    )


def save_audit(found: Audit, spec: RunSpec, place: RunDirectory) -> None:
    """Write what was found, and the run file that opens the same data again."""
    from pffl._report.page import write_report

    promised = spec.constraint if found.evidence.promise else None
    sections = {
        **spec.data.sections(place.directory),
        "constraint": constraint_sections(promised),
        "run": {"engine": spec.settings.engine, **asdict(spec.options)},
        "about": about_section(spec.about),
    }
    found = replace(found, evidence=replace(found.evidence, about=spec.about))
    place.save(found, dumps(sections))
    write_report(place, found.conclusions)
