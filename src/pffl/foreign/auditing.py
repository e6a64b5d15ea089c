"""`audit`: a model from elsewhere, measured and certified without training.

The silos answer `evaluate`, and nothing else is asked. What the model's makers did is
not known, so nothing is said about gaps, multipliers or slack; what is said holds for
the rows given and for unseen people, as for any other model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from pffl._solve import open_engine, prepared, setting_of
from pffl.certifying import Request, chosen_among, overlap_of
from pffl.constraints import Constraint
from pffl.data.encoding import TableEncoding
from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import DataError, UsageError
from pffl.evidence.certificate import Certificate
from pffl.evidence.conclude import Conclusions, conclude
from pffl.evidence.judged import Judged, named
from pffl.evidence.looks import Looks
from pffl.evidence.measure import (
    UNTRAINED,
    Known,
    Wanted,
    evidence_of,
    measure,
    terms_of,
)
from pffl.evidence.record import Data, Evidence, Missing
from pffl.evidence.verdicts import remarks
from pffl.foreign.at_hand import People, at_hand
from pffl.foreign.coefficients import Coefficients
from pffl.methods.auto import Auto
from pffl.models.base import Model
from pffl.models.predictor import Predictor
from pffl.prepare import Options
from pffl.problem import Point
from pffl.queries.stakes import IMPOSSIBLE
from pffl.solution import Solution
from pffl.typing import FloatArray

OURS = Missing("the certificate of its own run speaks of them")
UNKNOWN = (
    "nobody could check that the model was not trained on these rows: if it was, they "
    "say nothing about people not seen"
)
PRIVATE = (
    "the model was trained with a privacy budget, and its run keeps no fingerprint of "
    "its rows: if these are its training rows, these figures are exact and outside of "
    "its budget"
)
ROUNDING = 1e-12  # of 1 − p, where p was written with few digits
Clipping: TypeAlias = Literal["declared", "clip", "range"] | None
LEFT_OUT = (
    "the model was trained on these data: only the rows that its run held out are used"
)


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

    def chosen_among(self, data: Data, splits: Sequence[str]) -> int:
        """Return among how many models the run chose it by some of these rows."""
        if self.evidence is None:
            return 1
        return chosen_among(self.evidence, data, splits)


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found: the model, and the evidence that all of it follows from."""

    audited: Audited
    encoding: TableEncoding
    evidence: Evidence

    @property
    def predictor(self) -> Predictor:
        """The model as it was measured: bounded, on tables like that of its rows."""
        e = self.evidence
        cells = e.cells if e.promise else []
        return Predictor(
            self.encoding,
            self.audited.model,
            self.audited.w,
            None if e.terms.clipping == "range" else e.terms.loss_bound,
            self.audited.trained_on,
            cells=tuple(cell.cell for cell in cells),
            bounds=np.array([cell.bound for cell in cells]),
            multipliers=np.zeros(len(cells)),
        )

    @cached_property
    def conclusions(self) -> Conclusions:
        """Every figure, verdict and statement that follows from the evidence."""
        return conclude(self.evidence)

    @property
    def certificate(self) -> Certificate:
        """Everything that is claimed of the model, with its grounds."""
        return self.conclusions.certificate

    def __repr__(self) -> str:
        return str(self.certificate)

    def _repr_html_(self) -> str:
        return self.certificate._repr_html_()


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
    candidates: int = 1,
) -> Audit:
    """Certify a model that was not trained here: nothing is trained.

    Parameters
    ----------
    audited
        The model: on a federation, `Coefficients`, `Audited`, a `Solution` or what
        `pffl.load` read; on rows, anything with ``predict_proba`` (or ``predict``, for
        numbers), or the probabilities themselves, of the last label in order or of all.
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
    candidates
        As for `certify`.

    Returns
    -------
    Audit
        Its ``certificate`` and ``evidence``; `pffl.report`, `pffl.card` and `pffl.save`
        take it.

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
        people = People(X, y, sensitive_features, silos, sample_weight, name)
        model, w, notes, federation = at_hand(audited, people)
        audited = Audited(model, w, notes=notes)
    engine = open_engine(federation, "local")
    setting = setting_of(engine)
    audited = _bound(audited, engine.schema)
    method = Auto(risk_weight=0.0)  # its prices play no part: nothing is trained
    problem, said = prepared(engine, constraint, None, method, settings, 0)
    problem = replace(
        problem,
        task=replace(problem.task, model=audited.model),
        risk_weight=1.0,
        multiplier_bound=0.0,
    )
    chosen, data = _splits(engine, splits, audited.trained_on), setting.data
    if "train" in chosen:  # rows that are judged may not tell what weights there are
        data = replace(data, weights=None)
    model, M, clipping = _limited(audited, clip, p_min)
    problem = replace(problem, task=replace(problem.task, model=model))
    told = _told(audited, splits, chosen, engine)
    if clipping != "clip":
        told += _checked(audited, engine, chosen, p_min)
    wanted = Wanted(
        engine.splits,
        heldout=chosen,
        loss_bound=M,
        weighted=data.weighted,
        weight_bound=settings.weight_bound,
        confidence=settings.confidence,
    )
    point = Point(audited.w, np.zeros(problem.n_cells))
    nothing = Known.nothing(UNTRAINED)
    flow = measure(problem, point, wanted, nothing, trained=False)
    measured = drive(engine, flow)
    if (many := audited.chosen_among(setting.data, chosen)) > 1:
        candidates *= many
    request = Request(candidates=candidates)
    own = audited.trained_on
    evidence = evidence_of(
        replace(
            data,
            trained_on=own,
            overlap=None if own is None else overlap_of(engine.federation, chosen, own),
        ),
        problem,
        point,
        measured,
        request.terms(terms_of(problem, wanted, settings.weighting, clipping=clipping)),
        training=UNTRAINED if own is None else OURS,
        promise=promise and constraint is not None and not constraint.minimax,
        minimax=False,
        notes=[*said, *audited.notes, *told],
    )
    evidence = audited.looks.counted(evidence)
    who = [f"all figures are those of {name}"] if (name := named(evidence)) else []
    told = [*evidence.notes, *who, *remarks(Judged(evidence))]
    return Audit(audited, engine.encoding, replace(evidence, notes=told))


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
    name = "clip" if clip is not None else "p_min"
    if None not in (clip, p_min) or audited.loss_bound is not None:
        why = "they exclude each other"
        if audited.loss_bound is not None:
            why = "this model already keeps its own probabilities within limits"
        raise UsageError(f"[options-conflict] 'clip' and 'p_min': {why}")
    if not 0 < asked * model.n_classes < 1:
        classes = max(2, model.n_classes)
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


def _told(
    audited: Audited,
    asked: tuple[str, ...] | None,
    used: tuple[str, ...],
    engine: Engine,
) -> list[str]:
    """Say what is not known of the rows, and which of them were left out."""
    e = audited.evidence
    hidden = np.isfinite(audited.model.inputs.longest)
    if e.noise is not None if e is not None else hidden:
        return [PRIVATE]
    if audited.trained_on is None:
        return [UNKNOWN]
    return [LEFT_OUT] if asked is None and len(used) < len(engine.splits) else []


def _bound(audited: Any, schema: Schema) -> Audited:
    """Return a model that the inputs of these data fit."""
    match audited:
        case Audited():
            return audited
        case Coefficients():
            model, w, notes = audited.bind(schema)
            return Audited(model, w, notes=notes)
        case Solution():
            own = _bound(audited.predictor, schema)
            return replace(own, evidence=audited.evidence)
        case Predictor() if audited.schema.features == schema.features:
            return Audited.of(audited)
        case Predictor():
            raise DataError(
                "[other-inputs] the model and the data have different inputs"
            )
    raise UsageError(
        f"[needs-rows] a {type(audited).__name__} has inputs of its own: audit it on "
        "rows, pffl.audit(model, X=X, y=y, sensitive_features=A)"
    )


def _splits(
    engine: Engine, asked: tuple[str, ...] | None, trained_on: str | None
) -> tuple[str, ...]:
    """Return the splits to use; refuse those that there are not."""
    there, here = engine.splits, engine.federation
    if asked is not None:
        absent = [split for split in asked if split not in there]
        if absent:
            raise UsageError(
                f"[unknown-split] no split '{absent[0]}': there are {list(there)}"
            )
        return asked
    own = here is not None and here.fingerprint == trained_on
    held = tuple(split for split in there if split != "train")
    return held if own and held else there
