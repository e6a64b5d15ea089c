"""`audit`: a model from elsewhere, measured and certified without training.

The silos answer `evaluate`, and nothing else is asked. What the model's makers did is
not known, so nothing is said about gaps, multipliers or slack; what is said holds for
the rows given and for unseen people, as for any other model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from pffl.certifying import Request, chosen_among, overlap_of
from pffl.constraints.base import Constraint
from pffl.data.encoding import TableEncoding
from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import DataError, UsageError
from pffl.evidence.advice import remarks
from pffl.evidence.certificate import Certificate
from pffl.evidence.consistency import consistent
from pffl.evidence.evidence import Data, Evidence, Missing
from pffl.evidence.looks import Looks
from pffl.evidence.measure import UNTRAINED, Wanted, measure
from pffl.evidence.verdict import certificate as certificate_of
from pffl.foreign.at_hand import People, at_hand
from pffl.foreign.coefficients import Coefficients
from pffl.methods.auto import Auto
from pffl.models.base import Model
from pffl.models.predictor import Predictor
from pffl.preparation import Options
from pffl.problem import Point
from pffl.solution import Solution
from pffl.solving import evidence_of, open_engine, prepared, setting_of, terms_of
from pffl.typing import FloatArray

OURS = Missing("the certificate of its own run speaks of them")
LOSS_BOUND = 5.0  # M, unless another is declared
UNKNOWN = (
    "nobody could check that the model was not trained on these rows: if it was, they "
    "say nothing about people not seen"
)
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
        M, if its probabilities are kept so far from 0 that no loss is above it.
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
            e.terms.loss_bound,
            self.audited.trained_on,
            cells=tuple(cell.cell for cell in cells),
            bounds=np.array([cell.bound for cell in cells]),
            multipliers=np.zeros(len(cells)),
        )

    @cached_property
    def certificate(self) -> Certificate:
        """Everything that is claimed of the model, with its grounds."""
        return certificate_of(self.evidence)

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
        Loss bound, confidence, and what to do with empty cells.
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
        There are no rows, or two kinds of them.
    DataError
        Rows and model do not fit, or the rows cannot be used.

    Examples
    --------
    >>> import numpy as np, pffl
    >>> rng = np.random.default_rng(0)
    >>> y, group = rng.integers(0, 2, 300), rng.choice(["a", "b"], 300)
    >>> probabilities = 0.2 + 0.6 * y  # of the last label
    >>> found = pffl.audit(probabilities, y=y, sensitive_features=group)
    >>> found.certificate.verdict
    'unbounded'
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
    # Fixed beforehand: there are no training rows to choose it on.
    M = settings.loss_bound
    if M is None:
        M = audited.loss_bound
    if M is None and not audited.ours:
        least = LOSS_BOUND if engine.schema.labels else 0.0
        M = next((M for M in audited.model.loss_bounds if least <= M), None)
    M = audited.model.loss_bound(M)
    wanted = Wanted(
        engine.splits,
        heldout=chosen,
        loss_bound=M,
        weighted=data.weighted,
        weight_bound=settings.weight_bound,
        confidence=settings.confidence,
    )
    point = Point(audited.w, np.zeros(problem.n_cells))
    measured = drive(engine, measure(problem, point, wanted, trained=False))
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
        request.terms(
            replace(
                terms_of(data, problem, settings, method, wanted.loss_bound),
                clipping=None if M is None else "declared",
                target_gap=None,
            )
        ),
        training=UNTRAINED if own is None else OURS,
        promise=promise and constraint is not None and not constraint.minimax,
        minimax=False,
        notes=[*said, *audited.notes, *_told(own, splits, chosen, engine.splits)],
    )
    evidence = consistent(audited.looks.counted(evidence), own=False)
    told = [*evidence.notes, *remarks(evidence)]
    return Audit(audited, engine.encoding, replace(evidence, notes=told))


def _told(
    trained_on: str | None,
    asked: tuple[str, ...] | None,
    used: tuple[str, ...],
    there: tuple[str, ...],
) -> list[str]:
    """Say what is not known of the rows, and which of them were left out."""
    if trained_on is None:
        return [UNKNOWN]
    return [LEFT_OUT] if asked is None and len(used) < len(there) else []


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
