"""Models from elsewhere: measured and certified without training.

The silos answer `evaluate`, and nothing else is asked. What the model's makers did is
not known, so nothing is said about gaps, multipliers or slack; what is said holds for
the rows given and for unseen people, as for any other model.

A model is known by the coefficients of a linear one, such as scikit-learn's,

JSON    {"features": [...], "coef": [...], "intercept": 0.1, "classes": ["no", "yes"]}
npz     arrays of the same names
CSV     columns feature, coef and a row (intercept); for several classes one column
        per class, named after it, instead of coef

(`classes` is optional; so are `mean` and `scale` of a scaler in front of the model, one
number per feature; scikit-learn's own names, coef_, feature_names_in_, …, will do), or
by its probabilities alone, one row of them per person.
"""

from __future__ import annotations

import json
import os
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pffl.certifying import Request, overlap_of
from pffl.constraints.base import Constraint
from pffl.data.federation import Federation
from pffl.data.reading import read_table
from pffl.data.schema import Schema
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import ArtefactError, DataError, Problems, UsageError
from pffl.evidence.certificate import Certificate
from pffl.evidence.evidence import Evidence, Missing
from pffl.evidence.measure import Wanted, measure
from pffl.evidence.verdict import certificate as certificate_of
from pffl.fitting import trials
from pffl.methods.exact import Exact
from pffl.models.base import Inputs, Model
from pffl.models.linear import (
    LeastSquares,
    LinearModel,
    LogisticRegression,
    SoftmaxRegression,
)
from pffl.preparation import Options
from pffl.problem import Point
from pffl.solving import (
    evidence_of,
    open_engine,
    prepared,
    setting_of,
    terms_of,
)
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd


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
    """

    model: Model
    w: FloatArray
    trained_on: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found: the model, and the evidence that all of it follows from."""

    audited: Audited
    schema: Schema
    evidence: Evidence

    @cached_property
    def certificate(self) -> Certificate:
        """Everything that is claimed of the model, with its grounds."""
        return certificate_of(self.evidence)

    def __repr__(self) -> str:
        return str(self.certificate)

    def _repr_html_(self) -> str:
        return self.certificate._repr_html_()


def audit(
    audited: Audited | Coefficients,
    federation: Federation | Engine,
    constraint: Constraint | None = None,
    *,
    promise: bool = True,
    splits: tuple[str, ...] | None = None,
    options: Options | None = None,
    candidates: int = 1,
    fresh_split: bool = False,
) -> Audit:
    """Certify a model on the rows of a federation.

    Parameters
    ----------
    audited
        The model.
    federation
        The silos, or an engine that reaches them.
    constraint
        The cells and their bounds; None to report on every group without bounds.
    promise
        Whether the bounds count; otherwise the cells are only reported on.
    splits
        The rows to use. Default: all; of data that the model is known to have been
        trained on, those that were held out.
    options
        Loss bound, confidence, and what to do with empty cells.
    candidates, fresh_split
        As for `certify`.
    """
    settings = options or Options()
    engine = open_engine(federation, "local")
    setting = setting_of(engine)
    if isinstance(audited, Coefficients):
        model, w, notes = audited.bind(engine.schema)
        audited = Audited(model, w, notes=notes)
    method = Exact(risk_weight=0.0)  # its prices play no part: nothing is trained
    problem, said = prepared(engine, constraint, None, method, settings, 0)
    problem = replace(
        problem,
        task=replace(problem.task, model=audited.model),
        risk_weight=1.0,
        multiplier_bound=0.0,
    )
    chosen = _splits(engine, splits, audited.trained_on)
    # Fixed beforehand: there are no training rows to choose it on.
    M = settings.loss_bound
    if M is None and engine.schema.labels:
        M = max(LOSS_BOUND, trials(len(engine.schema.labels))[0])
    M = audited.model.loss_bound(M)
    wanted = Wanted(
        engine.splits, heldout=chosen, loss_bound=M, confidence=settings.confidence
    )
    point = Point(audited.w, np.zeros(problem.n_cells))
    measured = drive(engine, measure(problem, point, wanted, trained=False))
    request = Request(candidates=candidates, fresh_split=fresh_split)
    own = audited.trained_on
    evidence = evidence_of(
        replace(
            setting.data,
            trained_on=own,
            overlap=None if own is None else overlap_of(engine.federation, chosen, own),
        ),
        problem,
        point,
        measured,
        request.terms(
            replace(
                terms_of(problem, settings, method, wanted.loss_bound),
                clipping=None if M is None else "declared",
                target_gap=None,
            )
        ),
        training=Missing("nothing is known of how the model was trained"),
        promise=promise and constraint is not None and not constraint.minimax,
        minimax=False,
        notes=[*said, *audited.notes],
    )
    return Audit(audited, engine.schema, evidence)


def _splits(
    engine: Engine, asked: tuple[str, ...] | None, trained_on: str | None
) -> tuple[str, ...]:
    """Return the splits to use; refuse those that there are not."""
    there, here = engine.splits, engine.federation
    if asked is not None:
        absent = [split for split in asked if split not in there]
        if absent:
            raise UsageError(f"no split '{absent[0]}': there are {list(there)}")
        return asked
    own = here is not None and here.fingerprint == trained_on
    held = tuple(split for split in there if split != "train")
    return held if own and held else there


# Coefficients

LOSS_BOUND = 5.0  # M, unless another is declared
LARGEST = 256 << 20  # bytes of a file, unpacked
INTERCEPTS = ("(intercept)", "intercept", "intercept_", "(Intercept)")
KEYS = ("features", "coef", "intercept", "classes", "mean", "scale")
ALIASES = {"feature_names_in": "features", "feature": "features"}


@dataclass(frozen=True, eq=False)
class Coefficients:
    """A linear model by the names of its inputs.

    Attributes
    ----------
    features, coef, intercept
        Names, coefficients, shape (outputs, features), and constants, shape (outputs,).
    classes
        The class of each output (of two classes: both, the positive one last); or None.
    mean, scale
        Of each feature, taken off and divided by before the model.
    """

    features: tuple[str, ...]
    coef: FloatArray
    intercept: FloatArray
    classes: tuple[str, ...] | None
    mean: FloatArray
    scale: FloatArray

    def bind(self, schema: Schema) -> tuple[LinearModel, FloatArray, tuple[str, ...]]:
        """Return the model for these data, its parameters, and notes."""
        unknown = [f"'{name}'" for name in self.features if name not in schema.features]
        if unknown:
            there = ", ".join(schema.features[:20])
            raise DataError(
                f"the model has inputs that the data have not: {', '.join(unknown)}; "
                f"there are {there}{', …' if schema.n_features > 20 else ''}"
            )
        notes = []
        unused = [name for name in schema.features if name not in self.features]
        if unused:
            notes.append(f"inputs that the model does not use: {', '.join(unused)}")
        coef, intercept = self._by_label(schema)
        if schema.labels and self.classes is None:
            order = ", ".join(schema.labels)
            notes.append(f"the model names no classes: taken to be {order}, in order")
        place = [schema.features.index(name) for name in self.features]
        rows = np.zeros((len(coef), schema.n_features + 1))
        rows[:, place], rows[:, -1] = coef, intercept
        mean, scale = np.zeros(schema.n_features), np.ones(schema.n_features)
        mean[place], scale[place] = self.mean, self.scale
        kind = _kind(schema)
        model = kind(0.0, inputs=Inputs(mean, scale), n_outputs=len(coef))
        return model, rows.reshape(-1), tuple(notes)

    def _by_label(self, schema: Schema) -> tuple[FloatArray, FloatArray]:
        """Return the outputs in the order of the label codes."""
        labels, classes = schema.labels, self.classes
        outputs = len(self.coef)
        wanted = 1 if len(labels) <= 2 else len(labels)
        if outputs != wanted:
            raise DataError(
                f"the model has {outputs} outputs; '{schema.target}' needs {wanted}"
            )
        if classes is None or not labels:
            return self.coef, self.intercept
        if sorted(classes) != sorted(labels):
            raise DataError(
                f"the model has the classes {list(classes)}, the data {list(labels)}"
            )
        if len(labels) == 2:
            sign = 1.0 if classes[1] == labels[1] else -1.0
            return sign * self.coef, sign * self.intercept
        order = [classes.index(label) for label in labels]
        return self.coef[order], self.intercept[order]


def _kind(schema: Schema) -> type[LinearModel]:
    if not schema.labels:
        return LeastSquares
    return LogisticRegression if len(schema.labels) == 2 else SoftmaxRegression


def read_coefficients(path: str | os.PathLike[str]) -> Coefficients:
    """Read coefficients from a JSON, npz or CSV file; refuse what is none."""
    place = Path(path)
    try:
        size = place.stat().st_size
        if size > LARGEST:
            raise ArtefactError(f"'{place}' is too large for coefficients")
        if place.suffix == ".npz":
            found = _npz(place)
        elif place.suffix == ".json":
            found = json.loads(place.read_text("utf-8"))
        else:
            found = _csv(place)
    except (OSError, ValueError, RecursionError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise ArtefactError(f"'{place}' has no coefficients: {error}") from error
    if not isinstance(found, Mapping):
        raise ArtefactError(f"'{place}' has no coefficients: it is not a mapping")
    return parse(found, str(place))


def parse(found: Mapping[str, Any], source: str) -> Coefficients:
    """Check names and shapes; all problems at once."""
    given = {_name(str(key)): value for key, value in found.items()}
    with Problems(f"'{source}'", ArtefactError) as problems:
        for key in ("features", "coef"):
            if given.get(key) is None:
                problems.add(f"no '{key}'")
        unknown = [key for key in given if key not in KEYS]
        if unknown:
            problems.add(f"unknown {unknown}; known are {list(KEYS)}")
    names = tuple(str(name) for name in np.atleast_1d(given["features"]).tolist())
    d = len(names)
    with Problems(f"'{source}'", ArtefactError) as problems:
        coef = np.atleast_2d(_numbers(given, "coef", problems))
        if coef.shape[-1] != d or coef.ndim != 2:
            problems.add(f"'coef' has the shape {coef.shape} for {d} features")
        if len(set(names)) != d:
            problems.add("a feature is named twice")
        intercept = np.atleast_1d(_numbers(given, "intercept", problems, 0.0))
        if intercept.shape == (1,):
            intercept = np.repeat(intercept, len(coef))
        mean = np.atleast_1d(_numbers(given, "mean", problems, np.zeros(d)))
        scale = np.atleast_1d(_numbers(given, "scale", problems, np.ones(d)))
        for key, array, shape in (
            ("intercept", intercept, (len(coef),)),
            ("mean", mean, (d,)),
            ("scale", scale, (d,)),
        ):
            if array.shape != shape:
                problems.add(f"'{key}' has the shape {array.shape}, not {shape}")
        if (scale <= 0).any():
            problems.add("a 'scale' is not positive")
    return Coefficients(names, coef, intercept, _classes(given), mean, scale)


def _name(key: str) -> str:
    plain = key.strip().rstrip("_")
    return ALIASES.get(plain, plain)


def _numbers(
    given: Mapping[str, Any], key: str, problems: Problems, default: Any = None
) -> FloatArray:
    value = given.get(key)
    try:
        array = np.asarray(default if value is None else value, dtype=np.float64)
    except (TypeError, ValueError):
        problems.add(f"'{key}' is not made of numbers")
        return np.zeros(0)
    if not np.isfinite(array).all():
        problems.add(f"'{key}' holds numbers that are not finite")
    return array


def _classes(given: Mapping[str, Any]) -> tuple[str, ...] | None:
    found = given.get("classes")
    if found is None:
        return None
    values = np.atleast_1d(np.asarray(found)).tolist()
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    return tuple(str(value) for value in whole)


def _npz(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
            raise ArtefactError(f"'{path}' is too large for coefficients")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _csv(path: Path) -> dict[str, Any]:
    frame, _ = read_table(path)
    first, *others = (str(name) for name in frame.columns)
    names = frame[first].astype(str).str.strip()
    constant = names.isin(INTERCEPTS)
    columns = [name for name in others if name not in ("mean", "scale")]
    out: dict[str, Any] = {
        "features": names[~constant].tolist(),
        "coef": frame.loc[~constant, columns].to_numpy(dtype=np.float64).T,
    }
    if constant.any():
        out["intercept"] = frame.loc[constant, columns].to_numpy(dtype=np.float64)[0]
    if len(columns) > 1:
        out["classes"] = columns
    for name in ("mean", "scale"):
        if name in others:
            out[name] = frame.loc[~constant, name].to_numpy(dtype=np.float64)
    return out


# Probabilities

SMALLEST = 1e-15  # a probability of 0 counts as this, as in scikit-learn
COLUMN = "probability"
INPUT = "predicted probability"


@dataclass(frozen=True, eq=False)
class Probabilities(Model):
    """A model whose inputs are its outputs: ``ℓ = −log(probability of the label)``.

    One input is the probability of the positive class; several are the probabilities
    of all classes, in the order of their codes. It has no parameters.
    """

    inputs: Inputs = field(default_factory=lambda: Inputs.identity(1))
    l2: float = 0.0
    name: ClassVar[str] = "probabilities"

    @property
    def n_parameters(self) -> int:
        """There are none."""
        return 0

    def bind(self, schema: Schema, inputs: Inputs) -> Self:
        """Return this model for these probabilities, unscaled."""
        return type(self)(Inputs.identity(schema.n_features))

    def start(self, seed: int) -> FloatArray:
        """Return no parameters."""
        return np.zeros(0)

    def losses(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return minus the logarithm of each label's probability."""
        chosen = self.predict_proba(w, X)[np.arange(len(y)), y.astype(np.int64)]
        return -np.log(np.clip(chosen, SMALLEST, 1.0))

    def losses_and_gradient(
        self, w: FloatArray, X: FloatArray, y: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Refuse: there is nothing to train."""
        raise UsageError("a model known by its probabilities cannot be trained")

    def classes(self, w: FloatArray, X: FloatArray) -> FloatArray | None:
        """Return the class with the largest probability."""
        if X.shape[1] == 1:
            return np.asarray(X[:, 0] > 0.5, dtype=np.float64)
        return np.asarray(X.argmax(axis=1), dtype=np.float64)

    def predict_proba(self, w: FloatArray, X: FloatArray) -> FloatArray:
        """Return the probabilities, shape (n, classes)."""
        return np.stack([1 - X[:, 0], X[:, 0]], axis=1) if X.shape[1] == 1 else X

    @property
    def n_classes(self) -> int:
        """Number of classes: two for one probability."""
        return max(2, len(self.inputs.mean))

    @property
    def clips(self) -> bool:
        """Of two classes, as a logistic regression does."""
        return self.n_classes == 2

    def predict_values(self, w: FloatArray, X: FloatArray) -> FloatArray:
        """Refuse: probabilities are not numbers of a target."""
        raise UsageError("a model known by its probabilities predicts classes")

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        return {"kind": self.name}


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
    frame, _ = read_table(table)
    labels = Federation.from_table(frame, **options).schema.labels
    if not labels:
        raise DataError("probabilities need classes, and the label is a number")
    predicted, _ = read_table(predictions)
    predicted = _in_order(frame, predicted, id, column)
    known = set(frame.columns) - {COLUMN, column}
    chosen = _columns([n for n in predicted.columns if n not in known], labels, column)
    values = _probabilities(predicted, chosen)
    names = [INPUT] if len(chosen) == 1 else [f"{INPUT}: {n}" for n in labels]
    joined = frame.assign(**{n: values[:, j] for j, n in enumerate(names)})
    with warnings.catch_warnings():
        # One input is often the same for two people: that is no sign of anything.
        warnings.simplefilter("ignore")
        made = Federation.from_table(joined, **_but_inputs(options), features=names)
    # That predictions tell of the label is what they are for.
    told = tuple(n for n in made.notes if not n.startswith(f"column '{INPUT}"))
    return replace(made, notes=told)


def _but_inputs(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that do not speak of inputs."""
    inputs = ("features", "categorical", "drop", "include_protected", "missing")
    return {key: value for key, value in options.items() if key not in inputs}


def _in_order(
    frame: pd.DataFrame, predicted: pd.DataFrame, id: str | None, column: str | None
) -> pd.DataFrame:
    """Bring the predictions into the order of the rows."""
    if id is None:
        if len(predicted) != len(frame):
            raise DataError(
                f"{len(predicted):,} predictions for {len(frame):,} rows: give one per "
                "row in the same order, or name the column that joins them (--id)"
            )
        _refuse_other_order(frame, predicted, column)
        return predicted
    with Problems("predictions", DataError) as problems:
        for what, table in (("data", frame), ("predictions", predicted)):
            if id not in table.columns:
                problems.add(f"the {what} have no column '{id}'")
            elif what == "predictions" and table[id].duplicated().any():
                twice = int(table[id].duplicated().sum())
                problems.add(f"'{id}' is not unique in the predictions: {twice} repeat")
    by_id = predicted.set_index(predicted[id].astype(str))
    wanted = frame[id].astype(str)
    absent = wanted[~wanted.isin(by_id.index)]
    if len(absent):
        some = ", ".join(absent.head(3))
        raise DataError(f"no prediction for {len(absent):,} rows: {some}, …")
    return by_id.loc[list(wanted)].reset_index(drop=True)


def _refuse_other_order(
    frame: pd.DataFrame, predicted: pd.DataFrame, column: str | None
) -> None:
    """Refuse predictions that repeat a column of the data with other values."""
    for name in predicted.columns:
        if name not in frame.columns or name in (COLUMN, column):
            continue
        differ = int((frame[name].astype(str) != predicted[name].astype(str)).sum())
        if differ:
            raise DataError(
                f"column '{name}' of the predictions differs from that of the data in "
                f"{differ:,} rows: the order is another one (--id {name} joins by it)"
            )


def _columns(
    names: Sequence[object], labels: Sequence[str], column: str | None
) -> list[str]:
    """Return the columns with the probabilities, in the order of the classes."""
    there = [str(name) for name in names]
    if column is not None:
        if column not in there:
            raise DataError(f"the predictions have no column '{column}': {there}")
        return [column]
    if all(label in there for label in labels):
        return [labels[1]] if len(labels) == 2 else list(labels)
    if len(labels) == 2 and COLUMN in there:
        return [COLUMN]
    if len(labels) == 2 and len(there) == 1:
        return there
    need = f"one column per class: {list(labels)}"
    if len(labels) == 2:
        need = f"a column '{COLUMN}' (or name it: --probability), or {need}"
    raise DataError(f"the predictions have the columns {there}; needed: {need}")


def _probabilities(predicted: pd.DataFrame, names: Sequence[str]) -> FloatArray:
    """Return the probabilities, or refuse what is none."""
    import pandas as pd

    values = np.column_stack(
        [
            pd.to_numeric(predicted[name], errors="coerce").to_numpy(dtype=np.float64)
            for name in names
        ]
    )
    with Problems("predictions", DataError) as problems:
        for j, name in enumerate(names):
            good = (values[:, j] >= 0) & (values[:, j] <= 1)
            if not good.all():
                bad = int((~good).sum())
                problems.add(f"column '{name}': {bad:,} values are not in [0, 1]")
        if len(names) > 1 and not problems.found:
            off = int((np.abs(values.sum(axis=1) - 1.0) > 1e-3).sum())
            if off:
                problems.add(f"{off:,} rows whose probabilities do not add up to 1")
    return values
