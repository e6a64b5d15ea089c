"""`audit`: measure and certify a model that was not trained here, without training.

The silos answer `evaluate`, and nothing else is asked. What the model's makers did is
not known, so nothing is said about gaps, multipliers or slack; what is said holds for
the rows given and for unseen people, as for any other model.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from pffl.audit.coefficients import Coefficients as Coefficients
from pffl.audit.coefficients import read_coefficients as read_coefficients
from pffl.audit.probabilities import Probabilities as Probabilities
from pffl.audit.probabilities import with_probabilities as with_probabilities
from pffl.certificates import Certificate
from pffl.certify import Request, Subject, certify_subject
from pffl.constraints.base import Constraint
from pffl.data.federation import Federation
from pffl.engines.base import Engine
from pffl.errors import UsageError
from pffl.methods.exact import Exact
from pffl.models.base import Model
from pffl.preparation import LOSS_BOUND, Options, open_engine, prepare
from pffl.problem import Point
from pffl.typing import FloatArray


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
    multipliers
        None: λ of somebody else's run mean nothing here.
    """

    model: Model
    w: FloatArray
    trained_on: str | None = None
    notes: tuple[str, ...] = field(default=())
    multipliers: FloatArray = field(default_factory=lambda: np.zeros(0))


def audit(
    audited: Audited,
    federation: Federation | Engine,
    constraint: Constraint | None = None,
    *,
    promise: bool = True,
    splits: tuple[str, ...] | None = None,
    options: Options | None = None,
    candidates: int = 1,
    fresh_split: bool = False,
) -> Certificate:
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
    method = Exact(risk_weight=0.0)  # its prices play no part: nothing is trained
    problem, notes = prepare(engine, constraint, None, method, settings, 0)
    problem = replace(
        problem,
        task=replace(problem.task, model=audited.model),
        risk_weight=1.0,
        multiplier_bound=0.0,
    )
    labels = bool(engine.schema.labels)
    minimax = constraint is not None and constraint.minimax
    subject = Subject(
        engine,
        problem,
        Point(audited.w, np.zeros(problem.n_cells)),
        settings.weighting,
        settings.loss_bound or (LOSS_BOUND if labels else None),
        promise=promise and constraint is not None and not minimax,
        trained=False,
        recorded=audited.trained_on,
        notes=(*notes, *audited.notes),
    ).with_cells()
    request = Request(
        confidence=settings.confidence,
        candidates=candidates,
        fresh_split=fresh_split,
        splits=chosen_splits(subject, splits),
    )
    return certify_subject(subject, request)


def chosen_splits(subject: Subject, asked: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the splits to use; refuse those that there are not."""
    there = subject.engine.splits
    if asked is not None:
        absent = [split for split in asked if split not in there]
        if absent:
            raise UsageError(f"no split '{absent[0]}': there are {list(there)}")
        return asked
    here = subject.federation
    own = here is not None and here.fingerprint == subject.recorded
    held = tuple(split for split in there if split != "train")
    return held if own and held else there
