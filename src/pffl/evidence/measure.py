"""Measure a model: every question after training is asked here, and asked once.

`fit` trains and measures; `measure` measures a pair that came from elsewhere. What is
independent goes out together: training, the same model without bounds, and the smallest
bound that is possible, are three parts of one conversation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from pffl.bounds.empirical import example_weights, implied_risk, with_ridge
from pffl.bounds.logsum import Bets, plan_bets
from pffl.bounds.plan import local_smoothness
from pffl.bounds.uniform import loss_bound_linear, softmax_loss_bound
from pffl.constraints.base import Cells
from pffl.constraints.group_loss import BoundedGroupLoss
from pffl.evidence import proofs
from pffl.evidence.evidence import (
    Before,
    Cell,
    Least,
    Missing,
    Model,
    Pair,
    Plan,
    Proofs,
    Sample,
)
from pffl.evidence.training import TOLERANCE
from pffl.flow import (
    Flow,
    Run,
    ask_all,
    given,
    iterate,
    stage,
    together,
    unless_interrupted,
)
from pffl.methods.base import Method
from pffl.methods.exact import Exact
from pffl.models.base import Model as AnyModel
from pffl.models.linear import LinearModel
from pffl.problem import Point, Problem
from pffl.questions import Census, Evaluate, EvaluateTotal
from pffl.questions.evaluate import COLUMNS
from pffl.typing import FloatArray

LARGEST = float(np.finfo(np.float64).max)
T = TypeVar("T")
COUNTS = ("count", "correct", "positive")
CLASSIFIERS = {"logistic": (0.25, 1.0), "softmax": (0.5, float(np.sqrt(2.0)))}


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
        M of the bounded predictor.
    baseline
        Whether to also fit the model without bounds.
    least, excess
        Whether to enclose the smallest bound that all cells can meet, and what bounds
        that differ must rise by; or what is already known of it.
    cells
        Cells whose own smallest bound is wanted.
    lockstep
        Whether what is independent of training goes out with it; not where rounds of
        training may do without some silos, as all else needs every one.
    """

    splits: tuple[str, ...]
    heldout: tuple[str, ...] = ("test",)
    loss_bound: float | None = None
    baseline: bool = True
    least: bool | Least = True
    excess: bool | Least = True
    cells: tuple[str, ...] = ()
    lockstep: bool = True


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured of one pair: the parts of `Evidence` that ask questions."""

    seen: Sample
    heldout: Sample | Missing
    before: Before | Missing
    proofs: Proofs


def fit(
    problem: Problem, method: Method[Any], wanted: Wanted, *, gap_every: int = 0
) -> Flow[tuple[Run, Measured]]:
    """Train, and measure what came of it."""
    shown = reported(problem)
    training = stage("training", _fitted(problem, shown, method, wanted, gap_every))
    others = (
        stage("before", _spared(_before(problem, shown, wanted))),
        stage("least", _spared(_least(shown, wanted))),
        stage("excess", _spared(_excess(problem, wanted))),
    )
    if wanted.lockstep:
        found, before, least, excess = yield from together(training, *others)
    else:
        found = yield from training
        before, least, excess = yield from together(*others)
    run, pair, samples = found
    if run.stopped != "interrupted" and proofs.INTERRUPTED in (before, least, excess):
        raise KeyboardInterrupt  # the model is whole, what is known of it is not
    proved = _proofs(problem, samples["train"], pair, least, excess, run.stopped)
    held = _heldout(samples, wanted)
    return run, Measured(samples["train"], held, before, proved)


def _spared(flow: Flow[T | Missing]) -> Flow[T | Missing]:
    return unless_interrupted(flow, proofs.INTERRUPTED)


def measure(
    problem: Problem, point: Point, wanted: Wanted, *, trained: bool = True
) -> Flow[Measured]:
    """Measure a pair; of a model from elsewhere (not `trained`) nothing is proved."""
    shown = reported(problem)
    nothing = Missing("nothing is known of how the model was trained")
    if not trained:
        samples = yield from stage("samples", _samples(shown, point.w, wanted))
        held = _heldout(samples, wanted)
        proved = Proofs(nothing, nothing, nothing)
        return Measured(_added(samples, wanted.heldout), held, nothing, proved)
    (pair, samples), least, excess = yield from together(
        stage("pair", _pair(problem, shown, point, wanted)),
        stage("least", _least(shown, wanted)),
        stage("excess", _excess(problem, wanted)),
    )
    proved = _proofs(problem, samples["train"], pair, least, excess, None)
    lowest = []
    for cell in wanted.cells:
        place = problem.cells.names.index(cell)
        flow = proofs.find_lowest(problem, place)
        lowest.append((yield from stage(f"lowest {place}", flow)))
    held, unknown = _heldout(samples, wanted), Missing("not asked for")
    return Measured(samples["train"], held, unknown, replace(proved, lowest=lowest))


def _fitted(
    problem: Problem,
    shown: Problem,
    method: Method[Any],
    wanted: Wanted,
    gap_every: int,
) -> Flow[tuple[Run, Pair | Missing, dict[str, Sample]]]:
    """Run the method; then ask about the pair it ends with."""
    run = yield from iterate(
        problem,
        method,
        gap_every=0 if proofs.without_hessians(problem) else gap_every,
        gauge=proofs.gauge,
        watched=True,
    )
    pair: Pair | Missing | None = None
    if run.stopped == "diverged":
        pair = Missing("the run diverged")
    elif run.bounds is not None:
        upper, lower, at = run.bounds
        pair = _finite(Pair(upper, lower, at.tolist()))
    found, samples = yield from _pair(problem, shown, run.point, wanted, pair)
    return run, found, samples


def _pair(
    problem: Problem,
    shown: Problem,
    point: Point,
    wanted: Wanted,
    known: Pair | Missing | None = None,
) -> Flow[tuple[Pair | Missing, dict[str, Sample]]]:
    """Measure the gap, unless it is known, and the losses on every split."""
    flow: Flow[Pair | Missing]
    none = known or proofs.without_hessians(problem) or _unusable(problem, point)
    flow = given(none) if none is not None else proofs.measure_gap(problem, point)
    found, samples = yield from together(
        stage("gap", flow), stage("samples", _samples(shown, point.w, wanted))
    )
    return _finite(found), samples


def _finite(pair: Pair | Missing) -> Pair | Missing:
    """Return the ends of a gap; none where one of them is no number."""
    if isinstance(pair, Pair) and not np.isfinite([pair.upper, pair.lower]).all():
        return Missing("the number could not be computed")
    return pair


def _unusable(problem: Problem, point: Point) -> Missing | None:
    """Say why λ is not a pair's multiplier; None if it is."""
    lam, most = point.multipliers, problem.multiplier_bound
    if not np.isfinite(point.w).all():
        return Missing("the model is not finite")
    if (lam < 0).any() or lam.sum() > most * (1 + 1e-12) + 1e-15:
        return Missing(
            "needs multipliers ≥ 0 whose sum is at most the multiplier bound"
        )
    return None


def _samples(shown: Problem, w: FloatArray, wanted: Wanted) -> Flow[dict[str, Sample]]:
    """Evaluate w on training, held-out and test rows."""
    names = ("train", "test", *wanted.heldout)
    splits = [s for s in dict.fromkeys(names) if s in wanted.splits]
    cap = shown.task.model.loss_bound(wanted.loss_bound) or np.inf
    asked = [Evaluate(shown.task, w, split, cap) for split in splits]
    totals = yield from ask_all(asked)
    return {s: sample([s], total) for s, total in zip(splits, totals, strict=True)}


def sample(
    splits: Sequence[str], total: EvaluateTotal, bets: Bets | None = None
) -> Sample:
    """Return the sums of an `evaluate` total by name; `bets` as they were asked for."""
    plain = Sample(
        list(splits),
        total.risk,
        total.bounded_risk,
        total.share,
        columns(total.cells),
        columns(total.atoms),
    )
    if bets is None:
        return plain
    return replace(
        plain,
        bets=bets.gammas.tolist(),
        bet_weights=bets.weights.tolist(),
        below=total.below.tolist(),
        above=total.above.tolist(),
    )


def expected_rows(problem: Problem, splits: Sequence[str]) -> Flow[FloatArray]:
    """Count the rows of each cell in some splits: a census, and no look at a loss."""
    found = yield from ask_all([Census(problem.schema, split) for split in splits])
    counts = [problem.cells.totals(one.counts.astype(np.float64)) for one in found]
    return np.sum([np.zeros(problem.n_cells), *counts], axis=0)


def planned(seen: Sample, rows: FloatArray, *, loss_bound: float, delta: float) -> Bets:
    """Plan bets for so many held-out rows per cell, from losses on training rows."""
    return plan_bets(
        rows,
        delta=delta,
        mean=seen.means,
        variance=seen.variances,
        loss_bound=loss_bound,
    )


def columns(table: FloatArray) -> dict[str, list[float]]:
    """Turn a table of sums, shape (n, columns), into lists by name."""
    out = {
        name: [int(v) if name in COUNTS else float(v) for v in table[:, j]]
        for j, name in enumerate(COLUMNS)
    }
    # Nothing is said of a square that is beyond all numbers, and JSON has no infinity.
    out["loss_squared"] = [min(v, LARGEST) for v in out["loss_squared"]]
    return out


def _added(samples: Mapping[str, Sample], splits: Sequence[str]) -> Sample:
    """Add the sums of some splits."""
    first, *others = (samples[s] for s in splits if s in samples)
    for other in others:
        first = Sample(
            [*first.splits, *other.splits],
            first.risk + other.risk,
            first.bounded_risk + other.bounded_risk,
            first.share + other.share,
            {k: _sums(v, other.cells[k]) for k, v in first.cells.items()},
            {k: _sums(v, other.atoms[k]) for k, v in first.atoms.items()},
            first.bets,
            first.bet_weights,
            _tables(first.below, other.below),
            _tables(first.above, other.above),
        )
    return first


def _sums(one: list[float], other: list[float]) -> list[float]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _tables(one: list[list[float]], other: list[list[float]]) -> list[list[float]]:
    """Add log-sums of two splits, which were asked for with the same bets."""
    return [_sums(a, b) for a, b in zip(one, other, strict=True)]


def _heldout(samples: Mapping[str, Sample], wanted: Wanted) -> Sample | Missing:
    if not any(split in samples for split in wanted.heldout):
        return Missing("needs held-out rows, and there are none")
    return _added(samples, wanted.heldout)


def _before(problem: Problem, shown: Problem, wanted: Wanted) -> Flow[Before | Missing]:
    """Fit the model without bounds, and measure it on the same cells."""
    if not (wanted.baseline and problem.n_cells):
        return Missing("not asked for")
    if (why := proofs.without_hessians(problem)) is not None:
        return why
    free = replace(
        problem,
        task=replace(problem.task, cells=Cells.none(problem.schema)),
        counts=np.zeros(0),
        risk_weight=1.0,
    )
    run = yield from iterate(free, Exact())
    if run.stopped is not None:
        return proofs.INTERRUPTED
    samples = yield from _samples(shown, run.point.w, wanted)
    return Before(run.point.w.tolist(), samples)


def _least(problem: Problem, wanted: Wanted) -> Flow[Least | Missing]:
    """Enclose the smallest bound that all cells can meet together."""
    if isinstance(wanted.least, Least):
        return wanted.least
    if not (wanted.least and problem.n_cells):
        return Missing("not asked for")
    if (why := proofs.without_hessians(problem)) is not None:
        return why
    return (yield from proofs.find_least(common(problem)))


def common(problem: Problem) -> Problem:
    """Return the problem with all bounds 0: r is then the mean loss."""
    return problem.with_bounds(np.zeros(problem.n_cells))


def _excess(problem: Problem, wanted: Wanted) -> Flow[Least | Missing]:
    """Enclose what bounds that differ must rise by; of equal ones `least` tells."""
    if isinstance(wanted.excess, Least):
        return wanted.excess
    if not (wanted.excess and problem.n_cells):
        return Missing("not asked for")
    if float(np.ptp(problem.cells.bounds)) == 0:
        return Missing("the bounds are equal")
    if (why := proofs.without_hessians(problem)) is not None:
        return why
    return (yield from proofs.find_least(problem))


def _proofs(
    problem: Problem,
    seen: Sample,
    pair: Pair | Missing,
    least: Least | Missing,
    excess: Least | Missing,
    stopped: str | None,
) -> Proofs:
    """Put together what was proved; what bounds imply is asked where one is missed."""
    if problem.n_cells and float(np.ptp(problem.cells.bounds)) == 0:
        excess = least
    if stopped is not None:
        excess = Missing("the run did not finish")
    missed = stopped is None and violated(problem, seen)
    implied = implied_risk_of(problem) if missed else None
    return Proofs(pair, least, excess, implied_risk=implied)


def violated(problem: Problem, seen: Sample) -> bool:
    """Whether a bound is not met on the training rows."""
    if not problem.n_cells:
        return False
    return float((seen.uncut_means - problem.cells.bounds).max()) > TOLERANCE


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


def implied_risk_of(problem: Problem) -> float | None:
    """Bound F over the ball for every model that meets all bounds; None if none.

    Rows that sites withhold are in F, and no bound speaks of them.
    """
    if problem.withheld:
        return None
    counts = problem.silo_counts
    silos, atoms = counts.shape
    member = np.stack([problem.cells.of_silo(k) for k in range(silos)], axis=1)
    weights = example_weights(problem.task.shares, counts.sum(axis=1))
    implied = implied_risk(
        counts.reshape(-1).astype(np.float64),
        np.repeat(weights, atoms),
        member.reshape(problem.n_cells, -1).astype(np.float64),
        problem.cells.bounds,
    )
    if implied is None:
        return None
    return with_ridge(implied, l2=problem.mu, radius=problem.radius)


# Facts that need no question


def cell_facts(problem: Problem, multipliers: FloatArray) -> list[Cell]:
    """Say who belongs to each cell, by name."""
    cells, schema = problem.cells, problem.schema
    labels: tuple[str | None, ...] = schema.labels or (None,)
    atoms = [(group, label) for group in schema.groups for label in labels]
    lam = multipliers if len(multipliers) == len(cells) else np.zeros(len(cells))
    return [
        Cell(
            name,
            float(cells.bounds[z]),
            None if cells.everywhere[z] else problem.silo_names[cells.silo[z]],
            [atoms[a] for a in np.flatnonzero(cells.membership[z])],
            float(lam[z]),
        )
        for z, name in enumerate(cells.names)
    ]


def model_facts(problem: Problem, w: FloatArray) -> Model:
    """Say what kind of model it is."""
    model = problem.task.model
    described = dict(model.describe())
    return Model(
        str(described.get("kind", type(model).__name__)),
        len(w),
        model.n_outputs,
        float(np.sqrt(w @ w)),
        model.l2,
        model.unit,
        bool(model.convex),
        isinstance(model, LinearModel),
        described,
        model_fingerprint(model, w),
    )


def model_fingerprint(model: AnyModel, w: FloatArray) -> str:
    """SHA-256 of a model: its kind, its scaling, that of its target, its weights."""
    plain = json.dumps(dict(model.describe()), sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(plain.encode())
    target = np.array([model.target.mean, model.target.scale])
    for array in (model.inputs.mean, model.inputs.scale, target, w):
        numbers = np.ascontiguousarray(array, dtype="<f8")
        digest.update(f"\0{len(numbers)}\0".encode())
        digest.update(numbers.tobytes())
    return digest.hexdigest()


def plan_constants(
    problem: Problem, model: Model, longest_input: float | None, local_steps: int
) -> Plan | Missing:
    """Return the constants of a plan: how many rounds Algorithm 1 needs at most.

    They are worst cases over all multipliers with Σλ ≤ B and all models of the ball:

        L  =  β(l + μ) + B·l·h          l = X²/4 (logistic), X²/2 (softmax)
        𝒢  =  (β + B·h)·s·X + βμR       s = 1, √2: the steepest slope of a loss
        Γ  ≤  (β + B)·log C             what w = 0 pays
        ρ  =  the largest loss on the ball, or the largest bound

    with X the length of the longest input and h the largest weight m_kz/(m_z p_k) of a
    cell in a silo's own objective.
    """
    if not model.convex:
        return proofs.without_hessians(problem) or Missing("needs convexity")
    if model.kind not in CLASSIFIERS:
        return Missing("needs a logistic or softmax regression")
    if problem.modulus <= 0 or problem.multiplier_bound <= 0:
        return Missing(
            "needs a ridge term, a risk weight and a multiplier bound above 0"
        )
    if longest_input is None:
        return Missing("needs a bound on the length of the inputs (feature_bound)")
    X, (curve, slope) = longest_input, CLASSIFIERS[model.kind]
    R, B, beta = problem.radius, problem.multiplier_bound, problem.risk_weight
    parts = silo_parts(problem)
    heaviest = float((parts / problem.task.shares[:, None]).max())
    smoothness = local_smoothness(
        curve * X * X,
        parts,
        problem.task.shares,
        risk_weight=beta,
        l2=problem.mu,
        multiplier_bound=B,
    )
    classes = max(2, model.outputs)
    several = model.kind == "softmax"
    worst = softmax_loss_bound(R, X, classes) if several else loss_bound_linear(R, X)
    return Plan(
        X,
        heaviest,
        smoothness,
        problem.modulus,
        (beta + B * heaviest) * slope * X + problem.modulus * R,
        2.0 * R,
        (beta + B) * float(np.log(classes)),
        max(worst, float(problem.cells.bounds.max(initial=0.0))),
        local_steps,
    )


def silo_parts(problem: Problem) -> FloatArray:
    """Return m_kz/m_z: each silo's part of each cell, shape (K, Z)."""
    silos = range(len(problem.silo_counts))
    counts = problem.silo_counts
    rows = [problem.cells.of_silo(k) @ counts[k] / problem.counts for k in silos]
    return np.asarray(rows, dtype=np.float64)
