"""Ask the silos for what a certificate stands on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pffl.certificates._checks import positive, probability, whole
from pffl.certify.basis import Basis, CellFacts, ModelFacts, Sample, columns
from pffl.certify.subject import Subject
from pffl.errors import UsageError
from pffl.models.linear import LinearModel
from pffl.questions import Evaluate, EvaluateTotal
from pffl.questions.evaluate import COLUMNS


@dataclass(frozen=True)
class Request:
    """What is asked of a certificate.

    Attributes
    ----------
    confidence, candidates, fresh_split
        As in `Basis`.
    splits
        The splits whose rows stand for unseen people; their sums are added.
    feature_bound
        As in `Basis`.
    target_gap
        A gap to plan rounds for.
    cell
        A cell whose smallest attainable bound is wanted.
    """

    confidence: float = 0.95
    candidates: int = 1
    fresh_split: bool = False
    splits: tuple[str, ...] = ("test",)
    feature_bound: float | None = None
    target_gap: float | None = None
    cell: str | None = None

    def __post_init__(self) -> None:
        probability("confidence", self.confidence)
        whole("candidates", self.candidates, least=1)
        for name in ("feature_bound", "target_gap"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))

    def check(self, subject: Subject) -> None:
        """Refuse splits and cells that there are not."""
        there = subject.engine.splits
        absent = [s for s in self.splits if s not in there and s != "test"]
        if absent:
            raise UsageError(f"no split '{absent[0]}': there are {list(there)}")
        names = subject.problem.cells.names
        if self.cell is not None and self.cell not in names:
            raise UsageError(f"no cell '{self.cell}': there are {list(names)}")


def basis_for(subject: Subject, request: Request) -> Basis:
    """Measure the model on the rows, and write down what was declared."""
    request.check(subject)
    problem, engine = subject.problem, subject.engine
    held = tuple(s for s in request.splits if s in engine.splits)
    training = "train" if subject.trained else "rows"
    wanted = {training: ("train",) if subject.trained else held}
    heldout = None
    if held:
        heldout = training if not subject.trained else "+".join(held)
        wanted[heldout] = held
    here = subject.federation
    return Basis(
        trained=subject.trained,
        promise=subject.promise,
        minimax=subject.minimax,
        stopped=subject.stopped,
        data=getattr(engine, "name", "data") if here is None else here.name,
        silos=len(engine.silo_names),
        other_data=subject.other_data,
        weighting=subject.weighting,
        model=model_facts(subject),
        risk_weight=problem.risk_weight,
        multiplier_bound=problem.multiplier_bound,
        radius=problem.radius,
        multipliers=[float(number) for number in subject.point.multipliers],
        loss_bound=subject.loss_bound,
        feature_bound=request.feature_bound,
        confidence=request.confidence,
        candidates=request.candidates,
        fresh_split=request.fresh_split,
        overlap=_overlap(subject, held),
        groups=list(problem.schema.groups),
        labels=list(problem.schema.labels),
        cells=cell_facts(subject),
        samples={name: sample(subject, splits) for name, splits in wanted.items()},
        training=training,
        heldout=heldout,
    )


def sample(subject: Subject, splits: Sequence[str]) -> Sample:
    """Add the sums of some splits."""
    cap = np.inf if subject.loss_bound is None else subject.loss_bound
    first, *others = (
        subject.engine.ask(
            Evaluate(subject.problem.task, subject.point.w, split, loss_bound=cap)
        )
        for split in splits
    )
    total: EvaluateTotal = sum(others, first)
    return Sample(
        list(splits),
        total.risk / total.share if total.share > 0 else 0.0,
        columns(COLUMNS, total.cells),
        columns(COLUMNS, total.atoms),
    )


def model_facts(subject: Subject) -> ModelFacts:
    """Say what kind of model it is."""
    model, w = subject.problem.task.model, subject.point.w
    return ModelFacts(
        str(model.describe().get("kind", type(model).__name__)),
        len(w),
        getattr(model, "n_outputs", 1),
        float(np.sqrt(w @ w)),
        model.l2,
        bool(model.convex),
        isinstance(model, LinearModel),
    )


def cell_facts(subject: Subject) -> list[CellFacts]:
    """Say who belongs to each cell, by name."""
    problem = subject.problem
    cells, schema = problem.cells, problem.schema
    labels: tuple[str | None, ...] = schema.labels or (None,)
    atoms = [(group, label) for group in schema.groups for label in labels]
    return [
        CellFacts(
            name,
            float(cells.bounds[z]),
            None if cells.everywhere[z] else problem.silo_names[cells.silo[z]],
            [atoms[a] for a in np.flatnonzero(cells.membership[z])],
        )
        for z, name in enumerate(cells.names)
    ]


def _overlap(subject: Subject, splits: Sequence[str]) -> int | None:
    found = [subject.overlap(split) for split in splits]
    known = [number for number in found if number is not None]
    return sum(known) if known and len(known) == len(found) else None
