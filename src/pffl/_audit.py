"""`audit`: a model from elsewhere, measured and certified without training.

The silos answer `evaluate`, and nothing else is asked. What the model's makers did is
not known, so nothing is stated about gaps, multipliers or slack; the rest holds for
the rows given and for new people, as for any other model.

A model is one of ours, a table of coefficients, or known by its outputs: anything with
``predict_proba`` (or ``predict``, for numbers), or a table of probabilities. Outputs
become the inputs of the rows, which begin with their own numbers as the only input.
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

from pffl import config, runs
from pffl._certify import chosen_among, overlap_of
from pffl._solve import open_engine, prepared, setting_of
from pffl.bounds.checks import whole
from pffl.constraints import AUTO, Constraint, settled
from pffl.data.columns import as_column, encode_values
from pffl.data.federation import Federation
from pffl.data.read import read_table, require
from pffl.data.table import TableOptions
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import ArtefactError, DataError, Problems, UsageError, wrong
from pffl.evidence import measure as measuring
from pffl.evidence.conclude import Conclusions
from pffl.evidence.figures import named
from pffl.evidence.looks import Looks
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
    """A model to audit.

    Attributes
    ----------
    predictor
        The model: its `fingerprint` is that of the data it was trained on, if known.
    ours
        Whether `pffl` trained it: then `loss_bound` is that of its predictor.
    notes
        What was assumed on reading it.
    looks
        Certificates of the run that made it: this one comes after them.
    evidence
        What that run measured, if known.
    """

    predictor: Predictor
    ours: bool = False
    notes: tuple[str, ...] = ()
    looks: Looks = field(default_factory=Looks)
    evidence: Evidence | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Result):
    """What an audit found: the model, and the evidence that all of it follows from."""

    audited: Audited
    evidence: Evidence

    @cached_property
    def predictor(self) -> Predictor:  # type: ignore[override]
        """The model as it was measured: bounded, on tables like that of its rows."""
        e = self.evidence
        cells = e.cells if e.promise else []
        return replace(
            self.audited.predictor,
            loss_bound=None if e.terms.clipping == "range" else e.terms.loss_bound,
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
    known, here = _fitting(audited, engine), engine.federation
    predictor, e, data = known.predictor, known.evidence, setting_of(engine).data
    own, w, chosen = predictor.fingerprint, predictor.w, splits or engine.splits
    if splits is None and here is not None and here.fingerprint == own:
        chosen = tuple(s for s in engine.splits if s != "train") or chosen
    if threshold is not None:
        decides: Any = predictor.model
        has_one = hasattr(decides, "threshold") and decides.n_classes == 2
        if not (has_one and 0 < threshold < 1):
            allowed = "a number between 0 and 1, for two classes (no networks)"
            raise UsageError(wrong("threshold", "audit", allowed, threshold))
        decides = replace(decides, threshold=threshold)
        known = replace(known, predictor=replace(predictor, model=decides))
    model, M, clipping = _limited(known, clip, p_min)
    method = Auto(risk_weight=0.0)  # its prices play no part: nothing is trained
    counted = replace(settings, certify=True)  # rates may be bounded, too
    problem, said = prepared(engine, constraint, None, method, counted, 0)
    task = replace(problem.task, model=model)
    problem = replace(problem, task=task, risk_weight=1.0, multiplier_bound=0.0)
    notes = [*said, *known.notes]
    if np.isfinite(model.inputs.longest) if e is None else e.noise:
        notes.append(PRIVATE)
    elif own is None:
        notes.append(UNKNOWN)
    elif splits is None and len(chosen) < len(engine.splits):
        notes.append(LEFT_OUT)
    if clipping != "clip":
        notes += _checked(known, engine, chosen, p_min)
    wanted = measuring.Wanted(
        engine.splits,
        heldout=chosen,
        loss_bound=M,
        weighted=data.weighted,
        weight_bound=settings.weight_bound,
        confidence=settings.confidence,
    )
    point, nothing = Point(w, np.zeros(problem.n_cells)), measuring.UNTRAINED
    before = measuring.Known.nothing(nothing)
    flow = measuring.measure(problem, point, wanted, before, trained=False)
    measured = drive(engine, flow)
    candidates *= 1 if e is None else max(1, chosen_among(e, data, chosen))
    goal: Any = "loss" if constraint is None else constraint.goal
    terms = measuring.terms_of(
        problem, wanted, settings.weighting, clipping=clipping, goal=goal
    )
    if "train" in chosen:  # rows that are judged may not tell what weights there are
        data = replace(data, weights=None)
    overlap = None if own is None else overlap_of(here, chosen, own)
    evidence = measuring.evidence_of(
        replace(data, trained_on=own, overlap=overlap),
        problem,
        point,
        measured,
        replace(terms, candidates=int(whole("candidates", candidates, least=1))),
        training=nothing if own is None else OURS,
        promise=promise and constraint is not None and not constraint.minimax,
        minimax=False,
        notes=notes,
    )
    evidence = with_scores(known.looks.counted(evidence), here, model, w)
    who = [f"all figures are those of {who}"] if (who := named(evidence)) else []
    notes = [*evidence.notes, *who, *Conclusions(evidence).remarks]
    return Audit(known, replace(evidence, notes=notes))


def _fitting(given: Any, engine: Engine) -> Audited:
    """Return a model for the inputs of these data, read as they are."""
    if isinstance(given, Result):
        given = Audited(given.predictor, ours=True, evidence=given.evidence)
    elif isinstance(given, Predictor):
        given = Audited(given, ours=True)
    elif not isinstance(given, Audited):
        raise UsageError("needs-rows:fitting", name=type(given).__name__)
    own, schema = given.predictor.schema, engine.schema
    if own.features != schema.features:
        raise DataError("other-inputs:fitting")
    if own.labels != schema.labels:
        raise DataError("other-labels:fitting")
    read = replace(given.predictor, preparation=engine.encoding)
    return replace(given, predictor=read)


def _limited(
    audited: Audited, clip: float | None, p_min: float | None
) -> tuple[Model, float | None, Clipping]:
    """Return the model that is measured, M, and how it was found; never from rows."""
    model, M = audited.predictor.model, audited.predictor.loss_bound
    asked = clip if clip is not None else p_min
    if asked is None:
        if audited.ours or model.n_classes:
            return model, model.loss_bound(M), None if M is None else "declared"
        M = next(iter(model.loss_bounds), None)  # a range was declared with the model
        return model, M, None if M is None else "range"
    if None not in (clip, p_min) or M is not None:
        raise UsageError("options-conflict:limited")
    if not 0 < asked * model.n_classes < 1:
        name, classes = "p_min" if clip is None else "clip", max(2, model.n_classes)
        raise UsageError("wrong-value:limited", name=name, classes=classes, asked=asked)
    if clip is None:
        model = copy(model)
        object.__setattr__(model, "as_is", True)
    return model, -math.log(asked), "range" if clip is None else "clip"


def _checked(
    audited: Audited, engine: Engine, splits: Sequence[str], p_min: float | None
) -> list[str]:
    """Refuse predictions outside the declared range; count probabilities of 0."""
    own, here = audited.predictor, engine.federation
    model, w = own.model, own.w
    ends = None if model.n_classes else getattr(model, "target_range", None)
    if here is None:
        if p_min is not None:
            raise UsageError("needs-rows:checked")
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
        elif model.n_classes and own.loss_bound is None:
            never += int((model.losses(w, X, rows.y) >= IMPOSSIBLE).sum())
    if outside:
        raise DataError("outside-range:checked", outside=outside)
    zero = (
        f"{never:,} rows had a probability of 0 for what happened: their loss is "
        "infinite, and the mean loss that is shown is less than the true one"
    )
    return [zero] if never else []


# Known by its outputs


def outputs_of(
    model: Any, X: object, rows: dict[str, Any]
) -> tuple[Audited, Federation]:
    """Return rows with a model's outputs as their inputs, and the model of these.

    `rows` has the keywords of `Federation.from_arrays`: labels, groups, silos, weights.
    """
    by_class = callable(getattr(model, "predict_proba", None))
    numeric = not by_class and callable(getattr(model, "predict", None))
    absent = rows["y"] is None or rows["sensitive_features"] is None
    if absent or (by_class or numeric) != (X is not None):
        raise UsageError("needs-rows:outputs-of")
    target = as_column(rows["y"])
    if numeric and target.dtype.kind not in "iuf":
        raise DataError("no-predictions", name=type(model).__name__)
    labels = () if numeric else encode_values(target, "label")[0]
    classes = getattr(model, "classes_", None) if by_class else None
    names, order = ((), None) if classes is None else encode_values(classes, "classes_")
    if classes is not None and names != labels:
        raise DataError("other-labels:outputs-of", names=names, labels=labels)
    numbered = Federation.from_arrays(
        np.arange(len(target))[:, None],
        **rows,
        classification=not numeric,
        test_fraction=0.0,
    )
    predict = model.predict_proba if by_class else model.predict if numeric else None
    values = np.asarray(model if predict is None else predict(X), dtype=np.float64)
    if numeric:
        here = numbered.with_inputs(values.reshape(len(target), -1), ["prediction"])
        same = LeastSquares(0.0, inputs=Inputs.identity(1), n_outputs=1)
        return Audited(Predictor(here.encoding, same, np.array([1.0, 0.0]))), here
    if order is not None:
        return with_probabilities(numbered, values[:, np.argsort(order)], len(target))
    note = f"the probabilities are taken in the order {', '.join(labels)}"
    if values.shape[1:] in ((), (1,)):
        note = f"the probabilities are taken as those of '{labels[-1]}'"
    return with_probabilities(numbered, values, len(target), note)


def with_probabilities(
    numbered: Federation, values: FloatArray, rows: int, *notes: str
) -> tuple[Audited, Federation]:
    """Return rows with probabilities as inputs, and the model of these.

    `values` are in the order of labels, or of two classes the second one's.
    """
    labels, shape = numbered.schema.labels, values.shape
    if shape not in [(rows, len(labels)), *[(rows,), (rows, 1)] * (len(labels) == 2)]:
        wanted = rows, len(labels)
        raise DataError("wrong-shape:with-probabilities", shape=shape, wanted=wanted)
    values = values.reshape(rows, -1)
    good = ((values >= 0) & (values <= 1)).all(axis=1)
    if values.shape[1] > 1:
        good &= np.abs(values.sum(axis=1) - 1.0) <= 1e-3
    if bad := int((~good).sum()):
        raise DataError("bad-probabilities:with-probabilities", bad=bad)
    names, many = [f"{INPUT}: {name}" for name in labels], values.shape[1]
    if len(labels) == 2:
        values, names, many = values[:, -1:], [INPUT], 1
    here = numbered.with_inputs(values, names)
    model = Probabilities(Inputs.identity(many))
    return Audited(Predictor(here.encoding, model, np.zeros(0)), notes=notes), here


def join_probabilities(
    table: str | os.PathLike[str], predicted: Any, options: Mapping[str, Any]
) -> tuple[Audited, Federation]:
    """Return the rows of a table with predicted probabilities as inputs.

    Parameters
    ----------
    table
        The rows: a CSV or Parquet file.
    predicted
        A frame with a row per row of `table`, joined by the id if it has one, or else
        in the same order: a column ``probability`` of the second of two classes, or one
        per class, called by its name or as `pffl predict` does.
    options
        What `Federation.from_table` takes besides the table.
    """
    import pandas as pd

    frame = read_table(table)[0]
    predicted = _in_order(frame, predicted, options.get("id"))
    given = {**options, "drop": (), "inputs": (), "columns": {}, "missing": "refuse"}
    roles = TableOptions(**given).mentioned
    given["drop"] = [str(name) for name in frame if name not in roles]
    known = {k: v for k, v in options.get("columns", {}).items() if k in roles}
    given["columns"] = {**known, INPUT: {"kind": "number"}}
    with warnings.catch_warnings():  # numbers of rows say nothing
        warnings.simplefilter("ignore")
        joined = frame.assign(**{INPUT: np.arange(len(frame))})
        numbered = Federation.from_table(joined, **given)
    labels, there = numbered.schema.labels, list(map(str, predicted))
    if not labels:
        raise DataError("numeric-target:join-probabilities")
    forms = [PROBABILITY], [*labels], [f"{PROBABILITY}_{label}" for label in labels]
    names = next((form for form in forms if {*form} <= {*there}), None)
    if names is None:
        one, *others = forms
        raise DataError("missing-column:join", there=there, one=one, others=others)
    notes = [n for n in numbered.notes if not n.startswith(f"column '{INPUT}")]
    if len(names) == 1:
        notes.append(
            f"predictions: column '{names[0]}' is taken as the probability of "
            f"'{labels[-1]}'"
        )
    numbered = replace(numbered, notes=tuple(notes), name=Path(table).stem)
    values = predicted[names].apply(pd.to_numeric, errors="coerce").to_numpy(float)
    return with_probabilities(numbered, values, len(frame))


def _in_order(frame: Any, predicted: Any, id: str | None) -> Any:
    """Return the predictions in the order of the rows."""
    if id in predicted:
        require([str(id)], list(frame.columns), "the data")
        if twice := int(predicted[id].duplicated().sum()):
            raise DataError("repeated-id", id=id, twice=twice)
        by_id = predicted.set_index(predicted[id].astype(str))
        return by_id.reindex(frame[id].astype(str)).reset_index(drop=True)
    if len(predicted) != len(frame):
        sizes = len(predicted), len(frame)
        raise DataError("wrong-length:in-order", n=sizes[0], rows=sizes[1])
    for name in predicted.columns.intersection(frame.columns):
        differ = frame[name].astype(str) != predicted[name].astype(str)
        if differ.any():
            raise DataError("other-order:in-order", name=name, differ=differ.sum())
    return predicted


# Files


def read_coefficients(frame: Any, rows: Federation, name: str = "table") -> Audited:
    """Read a linear model for these data: a row per input, by its name.

    The first column has names; the others are coefficients of raw inputs, and in a row
    (intercept) the constant: `coef` for a number or for the second of two classes, else
    one column per class, named after it.
    """
    import pandas as pd

    schema, labels = rows.schema, rows.schema.labels
    names = [str(name).strip() for name in frame.iloc[:, 0]]
    table = frame.iloc[:, 1:].apply(pd.to_numeric, errors="coerce").set_axis(names)
    wanted = ["coef"] if len(labels) < 3 else list(labels)
    with Problems(f"'{name}'", DataError) as problems:
        if unknown := sorted({*names} - {*schema.features, "(intercept)"}):
            there = few(list(schema.features), 20)
            problems.add("other-inputs:read-coefficients", unknown=unknown, there=there)
        if len({*names}) < len(names):
            problems.add("repeated-name:read-coefficients")
        if not np.isfinite(table).all(axis=None):
            problems.add("not-numbers:read-coefficients")
        if {*(found := list(map(str, table)))} != {*wanted}:
            problems.add("other-labels:read-coefficients", wanted=wanted, found=found)
    inputs = [*schema.features, "(intercept)"]
    w = table[wanted].reindex(inputs, fill_value=0.0).to_numpy().T
    kind = {0: LeastSquares, 2: LogisticRegression}.get(len(labels), SoftmaxRegression)
    model = kind(0.0, inputs=Inputs.identity(schema.n_features), n_outputs=len(w))
    notes = [f"the coefficients are those of '{labels[1]}'"] if len(labels) == 2 else []
    if unused := [name for name in schema.features if name not in names]:
        notes.append(f"inputs that the model does not use: {', '.join(unused)}")
    return Audited(Predictor(rows.encoding, model, w.reshape(-1)), notes=tuple(notes))


def is_ours(path: Path) -> bool:
    """Whether a path is that of a run directory or of a predictor's file."""
    return path.is_dir() or path.suffix == ".safetensors"


def open_model(path: Path, source: config.DataSource) -> tuple[Audited, Federation]:
    """Read a model from elsewhere, and open the data that it is to be measured on.

    Parameters
    ----------
    path
        A run directory, a model.safetensors, coefficients, or a table of predicted
        probabilities.
    source
        The data.
    """
    if not path.exists():
        raise ArtefactError("file-missing:open-model", path=path)
    apart = ("path", config.APART)
    given: Any = {k: v for k, v in source.values.items() if k not in apart}
    table: Any = source.values.get("path")
    if is_ours(path):
        audited = _saved(path)
        if table is None:
            return audited, source.open()
        federation = Federation.alike(  # as the one that the model was trained on
            table,
            audited.predictor.preparation,
            TableOptions(**given),
            name=source.name,
        )
        return audited, config.set_apart(federation, source.values)
    told, frame = (f"the model audited: '{path.name}'",), read_table(path)[0]
    if str(frame.columns[0]).lower() in ("feature", "features", "name"):
        federation = source.open()
        audited = read_coefficients(frame, federation, str(path))
        return replace(audited, notes=told + audited.notes), federation
    if table is None:
        raise UsageError("needs-rows:open-model")
    audited, federation = join_probabilities(table, frame, given)
    federation = config.set_apart(federation, source.values)
    return replace(audited, notes=told), federation


def _saved(path: Path) -> Audited:
    """Read a model of ours; of a run also what it measured."""
    folder = runs.run_of(path)
    predictor = read_model(path if folder is None else folder / runs.MODEL)
    if folder is None or not (folder / runs.RESULT).is_file():
        return Audited(predictor, ours=True)
    record = runs.read_run(folder)
    notes = tuple(f"not verified: {text}." for text in record.mismatches)
    looks, known = Looks(own=record.looks.own), (folder / runs.CERTIFICATE).is_file()
    evidence = record.evidence if known else None
    return Audited(predictor, True, notes, looks, evidence)


def as_trained(path: Path, sections: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in what a model of ours knows of a table: label, groups, silos, bounds.

    Parameters
    ----------
    path
        A run directory or a file of a predictor; of other models nothing is known.
    sections
        A run file, of which some is not said.
    """
    out, given = {**sections}, dict(sections.get("data", {}))
    if not is_ours(path):
        return out
    folder = runs.run_of(path)
    spec = None if folder is None else folder / config.SPEC
    run = read_toml(spec) if spec is not None and spec.is_file() else {}
    known = dict(run.get("data", {}))
    if "path" in given and "path" not in known:
        own = read_model(path if folder is None else folder / runs.MODEL).preparation
        groups = [attribute.name for attribute in own.attributes]
        known = {"label": own.label, "group": groups}
        known |= {} if own.labels else {"classification": False}
    elif "path" not in given and known.get("name", "") != given.get("name"):
        known = {}
    plain = {k: v for k, v in known.items() if k not in ("path", "name")}
    out["data"] = {**plain, **given}
    if out.get("constraint") or folder is None or "constraint" not in run:
        return out
    out["constraint"] = asked = run["constraint"]
    if AUTO in str(asked):  # with the number that the run chose
        training: Any = runs.read_evidence(folder).training
        parts = [asked] if isinstance(asked, Mapping) else asked
        bounds = [settled(part.get("bound"), training.choice.bound) for part in parts]
        parts = [{**p, "bound": b} for p, b in zip(parts, bounds, strict=True)]
        out["constraint"] = parts[0] if isinstance(asked, Mapping) else parts
    return out


def save_audit(found: Audit, spec: config.RunSpec, place: runs.RunDirectory) -> None:
    """Write what was found, and the run file that opens the same data again."""
    from pffl._report.page import write_report

    promised = spec.constraint if found.evidence.promise else None
    sections = {
        **spec.data.sections(place.directory),
        "constraint": config.constraint_sections(promised),
        "run": {"engine": spec.settings.engine, **asdict(spec.options)},
        "about": asdict(spec.about),
    }
    found = replace(found, evidence=replace(found.evidence, about=spec.about))
    place.save(found, config.dumps(sections))
    write_report(place, found.conclusions)
