"""Measure a model: what is asked of the silos after training, and facts of a run.

`measure` asks for all that is wanted of a pair and not known yet, whoever trained it;
`evidence_of` puts it together with what was declared. What is independent goes out
together.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from importlib.metadata import version
from operator import add
from typing import Any, Literal, TypeVar

import numpy as np

from pffl import __version__
from pffl.bounds.mean import Bets, Moments, plan
from pffl.constraints import EVERY_SILO, BoundedGroupLoss, Cells
from pffl.data.schema import Schema
from pffl.errors import DataError
from pffl.evidence import proofs
from pffl.evidence.figures import tolerance
from pffl.evidence.proofs import measure_gap
from pffl.evidence.record import (
    AT_HAND,
    NOT_ASKED,
    Before,
    Cell,
    Data,
    Declared,
    Evidence,
    Least,
    Missing,
    ModelFacts,
    Pair,
    Proofs,
    Sample,
    Sites,
    Training,
)
from pffl.flow import Flow, ask, ask_all, gather, given
from pffl.models.linear import LinearModel
from pffl.problem import Point, Problem
from pffl.queries import Census, Evaluate, EvaluateTotal
from pffl.queries.evaluate import COLUMNS, STAKES
from pffl.typing import FloatArray

UNSEARCHED = Missing("searched for where a bound is missed, or when asked for")
UNTRAINED = Missing("nothing is known of how the model was trained")
LARGEST = float(np.finfo(np.float64).max)
T = TypeVar("T")


@dataclass(frozen=True)
class Wanted:
    """What is to be measured.

    Attributes
    ----------
    splits
        Those that the silos have.
    heldout
        Those whose rows stand for unseen people; their sums are added.
    loss_bound
        M of the bounded predictor; None where it is to be chosen on training rows.
    weighted, weight_bound
        Whether held-out rows have weights, by the census of the training rows if None,
        and what no weight is above, s_max; None where that is not known.
    confidence
        Of the statements on unseen people, for which bets are planned.
    open_multipliers
        Whether B may be raised until the bounds are met.
    baseline
        Whether to also fit the model without bounds.
    smallest
        Whether to enclose how low all bounds can go together. None: where one is
        missed.
    lockstep
        Whether the model without bounds is trained with the one with them: that
        takes fewer messages, and more passes over the rows.
    """

    splits: tuple[str, ...]
    heldout: tuple[str, ...] = ("test",)
    loss_bound: float | None = None
    weighted: bool | None = None
    weight_bound: float | None = None
    confidence: float = 0.95
    open_multipliers: bool = False
    baseline: bool = True
    smallest: bool | None = None
    lockstep: bool = False

    @property
    def present(self) -> tuple[str, ...]:
        """The held-out splits that the silos have."""
        return tuple(s for s in dict.fromkeys(self.heldout) if s in self.splits)

    def wants_smallest(self, problem: Problem, seen: Sample) -> bool:
        """Whether to enclose how low bounds can go, given the training losses."""
        if self.smallest is not None or not problem.n_cells:
            return bool(self.smallest)
        bounds = problem.cells.bounds
        return bool((seen.own_means - bounds > tolerance(problem.scales, bounds)).any())

    def cap(self, problem: Problem) -> float:
        """Return M; infinite where the predictor is not bounded."""
        M = problem.task.model.loss_bound(self.loss_bound)
        return np.inf if M is None else M

    def weighs(self, problem: Problem) -> bool:
        """Whether some held-out rows count more than others."""
        return problem.weighted if self.weighted is None else self.weighted

    def heaviest(self, problem: Problem) -> float:
        """Return s_max; infinite where it, or M, is unknown, or rows are unweighted."""
        known = self.weight_bound is not None and np.isfinite(self.cap(problem))
        most = self.weight_bound if known and self.weighs(problem) else None
        return np.inf if most is None else most


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured of one pair: the parts of `Evidence` that ask queries."""

    seen: Sample
    heldout: Sample | Missing
    before: Before | Missing
    proofs: Proofs


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a pair before it is measured; None is asked for.

    Attributes
    ----------
    seen
        Sums over the training rows.
    rows
        How many held-out rows each cell has; missing where no bets are wanted.
    gap, least
        As in `Proofs`.
    free
        Weights of the model without bounds, or why they are missing.
    """

    seen: Sample | None = None
    rows: FloatArray | Missing | None = None
    gap: Pair | Missing | None = None
    least: Least | Missing | None = None
    free: FloatArray | Missing = NOT_ASKED

    @classmethod
    def nothing(cls, reason: Missing, **more: Any) -> Known:
        """Return what is known where nothing can be proved, for a reason."""
        return cls(gap=reason, least=reason, free=reason, **more)


def measure(
    problem: Problem,
    point: Point,
    wanted: Wanted,
    known: Known | None = None,
    *,
    asked: FloatArray | None = None,
    trained: bool = True,
) -> Flow[Measured]:
    """Ask all that is wanted of a pair and not known yet, in two messages.

    `asked` are the bounds that were asked for, where the problem has tighter ones. Of a
    model that was not `trained` here the rows given are the held-out ones.
    """
    known, w = known or Known(), point.w
    shown = reported(problem if asked is None else problem.with_bounds(asked))
    asked_of: list[Flow[Any]] = [given(known.seen), given(known.rows)]
    if trained and known.seen is None:
        asked_of[0] = training_sample(shown, w, wanted)
    if known.rows is None:
        asked_of[1] = expected_rows(shown, wanted.present)
    seen, rows = yield from gather(*asked_of)
    least = known.least or UNSEARCHED
    if known.least is None and trained and wanted.wants_smallest(problem, seen):
        least = yield from proofs.enclose(problem if problem.n_cells else shown)
    same = not isinstance(known.free, Missing) and np.array_equal(known.free, w)
    pair, held, before = yield from gather(
        gap_flow(problem, point, known.gap),
        heldout_sample(shown, w, wanted, seen if trained else None, rows),
        measure_before(shown, NOT_ASKED if same else known.free, wanted),
    )
    if not trained:
        if isinstance(held, Missing):
            raise DataError("no-test-rows", missing=held.missing)
        seen = held
    if same:  # no bound made a difference: nothing is asked twice
        before = unchanged(w, seen, held)
    return Measured(seen, held, before, Proofs(pair, least))


def unchanged(w: FloatArray, seen: Sample, held: Sample | Missing) -> Before:
    """Return the model without bounds, where it is the same as with them."""
    samples = {"train": seen.plain}
    if isinstance(held, Sample) and held.splits == ["test"]:
        samples["test"] = held.plain
    return Before(w.tolist(), samples)


def measure_before(
    shown: Problem, free: FloatArray | Missing, wanted: Wanted
) -> Flow[Before | Missing]:
    """Measure the model without bounds on the same cells, bounded the same way."""
    if isinstance(free, Missing):
        return (yield from given(free))
    M = np.inf if wanted.loss_bound is None else wanted.loss_bound
    splits = [split for split in ("train", "test") if split in wanted.splits]
    asked = [Evaluate(shown.task, free, split, M) for split in splits]
    totals = yield from ask_all(asked)
    pairs = zip(splits, totals, strict=True)
    return Before(free.tolist(), {s: sample([s], total) for s, total in pairs})


def gap_flow(
    problem: Problem, point: Point, found: Pair | Missing | None = None
) -> Flow[Pair | Missing]:
    """Measure the gap of a pair, unless it is known."""
    lam, most = point.multipliers, problem.multiplier_bound
    pair = found or proofs.unmeasurable(problem)
    if pair is None and not np.isfinite(point.w).all():
        return Missing("the model is not finite")
    if pair is None and ((lam < 0).any() or lam.sum() > most * (1 + 1e-12) + 1e-15):
        return Missing(
            "needs multipliers ≥ 0 whose sum is at most the multiplier bound"
        )
    if pair is None:
        pair = Pair.of((yield from measure_gap(problem, point)))
    if isinstance(pair, Pair) and not np.isfinite([pair.upper, pair.lower]).all():
        return Missing("the number could not be computed")
    return pair


def training_sample(shown: Problem, w: FloatArray, wanted: Wanted) -> Flow[Sample]:
    """Evaluate w on the training rows."""
    M, heaviest = wanted.cap(shown), wanted.heaviest(shown)
    asked = Evaluate(shown.task, w, "train", M, weight_bound=heaviest)
    total = yield from ask(asked)
    return sample(["train"], total)


def heldout_sample(
    shown: Problem,
    w: FloatArray,
    wanted: Wanted,
    seen: Sample | None,
    rows: FloatArray | Missing,
) -> Flow[Sample | Missing]:
    """Evaluate w on held-out rows, with bets that are planned before they are seen.

    They are planned from the training rows `seen`, where there are any, and from the
    number of held-out `rows` of each cell.
    """
    splits, M = wanted.present, wanted.cap(shown)
    if not splits:
        return Missing("needs test rows, and there are none")
    plan = _planned(shown, wanted, seen, rows)
    asked: dict[str, Any] = {"weight_bound": wanted.heaviest(shown)}
    if plan is not None:
        bets, levels = plan
        asked = {"bets": bets.gammas, "levels": levels}
        asked["weight_bound"] = wanted.heaviest(shown) if wanted.weighs(shown) else 1.0
    totals = yield from ask_all(
        [Evaluate(shown.task, w, split, M, **asked) for split in splits]
    )
    return sample(splits, reduce(add, totals), plan)


def _planned(
    shown: Problem, wanted: Wanted, seen: Sample | None, rows: FloatArray | Missing
) -> tuple[Bets, FloatArray] | None:
    """Plan bets and levels from losses on training rows; None where they need more.

    Losses need a bound, and weights, where there are any.
    """
    M, weighs, many = wanted.cap(shown), wanted.weighs(shown), shown.n_cells
    unknown = weighs and not np.isfinite(wanted.heaviest(shown))
    if not np.isfinite(M) or not many or isinstance(rows, Missing) or unknown:
        return None
    known: list[Moments | None] | None = None
    if seen is not None and weighs and seen.people:
        known = [seen.moments(z) for z in range(many)]
    elif seen is not None and not weighs:
        known = [
            Moments.alike(*pair, M) if np.isfinite(pair).all() else None
            for pair in zip(seen.means, seen.variances, strict=True)
        ]
    bounds, delta = shown.cells.bounds if weighs else None, 1.0 - wanted.confidence
    return plan(rows, delta=delta, loss_bound=M, known=known, bounds=bounds)


def sample(
    splits: Sequence[str],
    total: EvaluateTotal,
    planned: tuple[Bets, FloatArray] | None = None,
) -> Sample:
    """Return the sums of an `evaluate` total by name.

    `planned` are the bets and levels that were asked for.
    """
    plain = Sample(
        list(splits),
        total.risk,
        total.bounded_risk,
        total.share,
        columns(total.cells),
        columns(total.strata),
        people=_named(STAKES, total.people) if planned or total.people.any() else {},
    )
    if planned is None:
        return plain
    bets, levels = (planned[0].gammas, planned[0].weights), planned[1].tolist()
    plain = replace(plain, bets=bets[0].tolist(), bet_weights=bets[1].tolist())
    return replace(plain, levels=levels, logs=total.logs.tolist())


def _named(names: Sequence[str], table: FloatArray) -> dict[str, list[float]]:
    """Turn a table of sums, shape (n, columns), into lists by name."""
    return dict(zip(names, table.T.tolist(), strict=True))


def expected_rows(problem: Problem, splits: Sequence[str]) -> Flow[FloatArray]:
    """Count the rows of each cell in some splits: a census, and no look at a loss."""
    found = yield from ask_all([Census(problem.schema, split) for split in splits])
    counts = [problem.cells.totals(one.counts.astype(np.float64)) for one in found]
    return np.sum([np.zeros(problem.n_cells), *counts], axis=0)


def columns(table: FloatArray) -> dict[str, list[float]]:
    """Return the columns of `evaluate` by name."""
    out = _named(COLUMNS, table)
    # Squares beyond all numbers are left out: JSON has no infinity.
    out["loss_squared"] = [min(v, LARGEST) for v in out["loss_squared"]]
    return out


def reported(problem: Problem) -> Problem:
    """Return the problem; without any bound, with the groups as cells to report on."""
    if problem.n_cells:
        return problem
    cells = BoundedGroupLoss(0.0).cells(problem.schema, problem.silo_names)
    counts = problem.count(cells)
    kept = np.flatnonzero(counts)
    return replace(
        problem,
        task=replace(problem.task, cells=cells.take(kept)),
        counts=counts[kept],
        multiplier_bound=0.0,
    )


# Facts that need no query


def terms_of(
    problem: Problem,
    wanted: Wanted,
    weighting: Literal["silos", "rows"],
    target_gap: float | None = None,
    clipping: Literal["declared", "chosen", "clip", "range"] | None = "chosen",
    goal: Literal["loss", "error", "fnr", "fpr"] = "loss",
) -> Declared:
    """Return what was declared of a model, and its M."""
    weighted = wanted.weighted or problem.weighted
    return Declared(
        weighting,
        problem.risk_weight,
        problem.multiplier_bound,
        problem.radius,
        wanted.loss_bound,
        wanted.confidence,
        None if wanted.loss_bound is None else clipping,
        target_gap=target_gap,
        weight_bound=wanted.weight_bound if weighted else None,
        goal=goal,
    )


def evidence_of(
    data: Data,
    problem: Problem,
    point: Point,
    measured: Measured,
    terms: Declared,
    *,
    training: Training | Missing,
    promise: bool,
    minimax: bool,
    notes: Sequence[str] = (),
    aimed: FloatArray | None = None,
) -> Evidence:
    """Put together what was declared and what was measured."""
    access = problem.access
    return Evidence(
        promise=promise,
        minimax=minimax,
        data=data,
        model=model_facts(problem, point.w),
        terms=terms,
        groups=list(problem.schema.groups),
        labels=list(problem.schema.labels),
        cells=cell_facts(reported(problem), point.multipliers, aimed),
        training=training,
        seen=measured.seen,
        heldout=measured.heldout,
        before=measured.before,
        proofs=measured.proofs,
        notes=list(notes),
        versions=dict(versions()),
        sites=Sites(list(problem.silo_names), access.pooled, access.floor)
        if access.elsewhere
        else AT_HAND,
    )


@cache  # a comparison asks often, and metadata are slow to read
def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    others = {name: version(name) for name in ("numpy", "scipy", "daqp")}
    return {"python": platform.python_version(), "pffl": __version__, **others}


def cell_facts(
    problem: Problem, multipliers: FloatArray, aimed: FloatArray | None = None
) -> list[Cell]:
    """Say who belongs to each cell, by name; `aimed` are the solver's bounds."""
    cells, schema = problem.cells, problem.schema
    labels: tuple[str | None, ...] = schema.labels or (None,)
    strata = [(group, label) for group in schema.groups for label in labels]
    lam = multipliers if len(multipliers) == len(cells) else np.zeros(len(cells))
    if aimed is not None and len(aimed) != len(cells):
        aimed = None  # without bounds: groups are only reported on
    return [
        Cell(
            name,
            float(cells.bounds[z]),
            None if cells.everywhere[z] else problem.silo_names[cells.silo[z]],
            [strata[a] for a in np.flatnonzero(cells.membership[z])],
            float(lam[z]),
            float(problem.scales[z]),
            None if aimed is None or aimed[z] == cells.bounds[z] else float(aimed[z]),
        )
        for z, name in enumerate(cells.names)
    ]


def cells_of(evidence: Evidence, schema: Schema, silos: Sequence[str] = ()) -> Cells:
    """Return the cells that `cell_facts` describes, for these groups and silos."""
    labels: tuple[str | None, ...] = schema.labels or (None,)
    strata = [(group, label) for group in schema.groups for label in labels]
    places = [silos.index(c.silo) if c.silo else EVERY_SILO for c in evidence.cells]
    return Cells(
        evidence.names,
        evidence.bounds,
        np.array([[one in cell.of for one in strata] for cell in evidence.cells]),
        np.array(places),
    )


def model_facts(problem: Problem, w: FloatArray) -> ModelFacts:
    """Say what kind of model it is."""
    model = problem.task.model
    described = dict(model.describe())
    return ModelFacts(
        str(described.get("kind", type(model).__name__)),
        len(w),
        model.n_outputs,
        float(np.sqrt(w @ w)),
        model.l2,
        model.unit,
        bool(model.convex),
        isinstance(model, LinearModel),
        described,
        model.fingerprint(w),
    )
