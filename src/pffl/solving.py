"""`solve`: from a federation and a constraint to a model with a verdict.

`solving` is the whole run as a flow, from the census to the last proof; `solve` drives
it with an engine, `solve_many` drives many of them side by side.
"""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np

from pffl.bounds.checks import positive, probability, whole
from pffl.callbacks import Callback
from pffl.checkpoint import Checkpoint, identity
from pffl.constraints.base import EVERY_SILO, Cells, Constraint
from pffl.data.checks import repeated_rows
from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.driver import Cost, drive, drive_many
from pffl.engines import DEPLOYED, ENGINES
from pffl.engines.base import Engine
from pffl.errors import DataError, UsageError
from pffl.evidence.certificate import Certificate
from pffl.evidence.evidence import Data, Evidence, Missing, Terms, Training
from pffl.evidence.measure import (
    Measured,
    Wanted,
    cell_facts,
    fit,
    measure,
    model_facts,
    plan_constants,
    reported,
)
from pffl.evidence.verdict import certificate as certificate_of
from pffl.flow import Billed, Clock, Flow, Identified, ask, stage
from pffl.methods.base import Method
from pffl.methods.exact import Exact
from pffl.methods.pffl import PFFL
from pffl.models.base import Model
from pffl.models.linear import LinearModel
from pffl.preparation import (
    LOSS_BOUND,
    Options,
    Setting,
    default_model,
    prepare,
    prices,
    reprice,
    shares,
    withholds,
)
from pffl.problem import Point, Problem
from pffl.questions import Census, Task
from pffl.solution import Solution
from pffl.typing import FloatArray

FLOOR = 10  # counts below it are withheld in reports
MOST_SILOS = 200  # for which counts are reported one by one
BLOCK = 1 << 16  # rows scaled at a time


def solve(
    federation: Federation | Engine,
    constraint: Constraint | None,
    *,
    model: Model | None = None,
    method: Method[Any] | None = None,
    engine: str = "local",
    options: Options | None = None,
    seed: int | None = None,
    callbacks: Sequence[Callback] = (),
    gap_every: int = 0,
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
) -> Solution:
    """Train one model under a bound per cell, and say how far the promise holds.

    Parameters
    ----------
    federation
        The silos; or an engine that reaches them.
    constraint
        What is promised to whom; None for plain risk minimisation.
    model
        Default: logistic, softmax or least squares, as the labels ask for.
    method
        Default: `Exact` for linear models, `PFFL` for others.
    engine
        "local" or "reference", if a federation is given.
    options
        Silo weights, norm ball, confidence; see `Options`.
    seed
        Seed of the run; drawn and recorded if None.
    callbacks, gap_every
        Shown between rounds; see `flow.iterate`.
    checkpoint
        A directory in which to save where the run stands. If the same run was stopped
        there, by an interruption, an error or a crash, it goes on, and ends as if it
        had not been; the seed may be left out. The files go away once the run is
        finished; those of a `Checkpoint` stay, until its owner removes them.
    """
    asker = open_engine(federation, engine)
    keeper = (
        checkpoint
        if checkpoint is None or isinstance(checkpoint, Checkpoint)
        else Checkpoint(checkpoint)
    )
    saved = keeper.saved() if keeper is not None and seed is None else None
    seed = saved[0] if saved else secrets.randbits(32) if seed is None else int(seed)
    flow = solving(
        setting_of(asker),
        constraint,
        model=model,
        method=method,
        options=options,
        seed=seed,
        gap_every=gap_every,
    )
    found = drive(asker, flow, callbacks=callbacks, keeper=keeper)
    solution = _noted(found, asker)
    finished = solution.status != "interrupted"
    if keeper is not None and keeper is not checkpoint and finished:
        keeper.remove()
    return solution


def solving(
    setting: Setting,
    constraint: Constraint | None,
    *,
    model: Model | None = None,
    method: Method[Any] | None = None,
    options: Options | None = None,
    seed: int = 0,
    gap_every: int = 0,
) -> Flow[Solution]:
    """Solve, as a flow: census, training, every measurement."""
    settings, bare = options or Options(), model or default_model(setting.schema)
    chosen = default_method(bare) if method is None else method
    problem, notes = yield from prepare(
        setting, constraint, bare, chosen, settings, seed
    )
    yield Identified(
        identity(
            setting.data,
            problem,
            constraint,
            chosen,
            options=settings,
            gap_every=gap_every,
        )
    )
    wanted = Wanted(
        setting.splits,
        loss_bound=loss_bound_of(setting, settings),
        baseline=settings.baseline,
        least=settings.least,
        excess=constraint is None or not constraint.minimax,
        lockstep=not setting.partial,
    )
    flow = fitted(setting, problem, constraint, chosen, settings, wanted, gap_every)
    solution = yield from flow
    return replace(solution, evidence=replace(solution.evidence, notes=[*notes]))


def fitted(
    setting: Setting,
    problem: Problem,
    constraint: Constraint | None,
    method: Method[Any],
    options: Options,
    wanted: Wanted,
    gap_every: int = 0,
) -> Flow[Solution]:
    """Train one prepared problem and measure it."""
    run, measured = yield from fit(problem, method, wanted, gap_every=gap_every)
    cost: Cost = yield Billed()
    seconds: float = yield Clock()
    training = Training(
        dict(method.describe()),
        {} if constraint is None else dict(constraint.describe()),
        problem.seed,
        run.rounds,
        run.stopped,
        {
            "asked": cost.asked,
            "distinct": cost.distinct,
            "messages": cost.messages,
        },
        seconds,
    )
    minimax = constraint is not None and constraint.minimax
    evidence = evidence_of(
        replace(setting.data, trained_on=setting.data.fingerprint),
        problem,
        run.point,
        measured,
        terms_of(problem, options, wanted),
        training=training,
        promise=problem.n_cells > 0 and not minimax,
        minimax=minimax,
    )
    return Solution(run.point.w, run.point.multipliers, problem, run.history, evidence)


def evidence_of(
    data: Data,
    problem: Problem,
    point: Point,
    measured: Measured,
    terms: Terms,
    *,
    training: Training | Missing,
    promise: bool,
    minimax: bool,
    notes: Sequence[str] = (),
) -> Evidence:
    """Put together what was declared and what was measured."""
    shown = reported(problem)
    return Evidence(
        promise=promise,
        minimax=minimax,
        data=replace(data, card=data.card or data_card(data, problem)),
        model=model_facts(problem, point.w),
        terms=terms,
        groups=list(problem.schema.groups),
        labels=list(problem.schema.labels),
        cells=cell_facts(shown, point.multipliers),
        training=training,
        seen=measured.seen,
        heldout=measured.heldout,
        before=measured.before,
        proofs=measured.proofs,
        notes=list(notes),
        versions=dict(versions()),
    )


def terms_of(problem: Problem, options: Options, wanted: Wanted) -> Terms:
    """Return what was declared for a run."""
    return Terms(
        options.weighting,
        problem.risk_weight,
        problem.multiplier_bound,
        problem.radius,
        wanted.loss_bound,
        options.confidence,
    )


def loss_bound_of(setting: Setting, options: Options) -> float | None:
    """Return M: as declared, or 3 for classifiers."""
    return options.loss_bound or (LOSS_BOUND if setting.schema.labels else None)


def _noted(solution: Solution, engine: Engine) -> Solution:
    """Add what the engine came to know of the silos on the way."""
    notes = list(dict.fromkeys([*engine.notes, *solution.evidence.notes]))
    return replace(solution, evidence=replace(solution.evidence, notes=notes))


def solve_many(
    federation: Federation | Engine,
    points: Sequence[tuple[Constraint, Method[Any]]],
    *,
    model: Model | None = None,
    engine: str = "local",
    options: Options | None = None,
    seed: int = 0,
) -> list[Solution]:
    """Solve many (constraint, method) points at once: one pass over the rows a round.

    The constraints must have the same cells; bounds and the methods' parameters differ.
    """
    if not points:
        return []
    settings, asker = options or Options(), open_engine(federation, engine)
    setting = setting_of(asker)
    bare = model or default_model(asker.schema)
    first, notes = drive(
        asker, prepare(setting, points[0][0], bare, points[0][1], settings, seed)
    )
    names = set(points[0][0].cells(asker.schema, asker.silo_names).names)
    problems = [_repriced(setting, first, names, *point) for point in points]
    flows = [
        fitted(
            setting,
            problem,
            constraint,
            method,
            settings,
            Wanted(
                setting.splits,
                loss_bound=loss_bound_of(setting, settings),
                baseline=settings.baseline,
                least=settings.least,
                excess=not constraint.minimax,
                lockstep=not setting.partial,
            ),
        )
        for problem, (constraint, method) in zip(problems, points, strict=True)
    ]
    named = [stage(str(number), flow) for number, flow in enumerate(flows)]
    solutions = drive_many(asker, named)
    noted = [
        replace(one, evidence=replace(one.evidence, notes=[*notes]))
        for one in solutions
    ]
    return [_noted(solution, asker) for solution in noted]


def _repriced(
    setting: Setting,
    first: Problem,
    names: set[str],
    constraint: Constraint,
    method: Method[Any],
) -> Problem:
    """Return the first problem with another point's bounds and prices."""
    cells = constraint.cells(setting.schema, setting.silo_names)
    if set(cells.names) != names:
        raise UsageError("the constraints of a stack must have the same cells")
    kept = [cells.names.index(name) for name in first.cells.names]
    return reprice(first, cells.bounds[kept], *prices(constraint, method))


def default_method(model: Model) -> Method[Any]:
    """Return `Exact` where it applies, `PFFL` elsewhere."""
    return Exact() if isinstance(model, LinearModel) else PFFL()


def open_engine(federation: Federation | Engine, engine: str) -> Engine:
    """Return the named engine for a federation, or the engine itself."""
    if not isinstance(federation, Federation):
        return federation
    if engine == DEPLOYED:
        raise UsageError(
            "the engine 'flower' reaches rows that are elsewhere: pffl run --engine "
            "flower, or pffl.flower.server_app"
        )
    if engine not in ENGINES:
        raise UsageError(f"no engine '{engine}': there are {sorted(ENGINES)}")
    return ENGINES[engine](federation)


def setting_of(engine: Engine) -> Setting:
    """Say what is known of the silos that an engine reaches."""
    here = engine.federation
    data = Data(
        engine.name, len(engine.silo_names), engine.schema.hash, None
    )  # rows that are elsewhere: not known whether they are synthetic
    if here is not None:
        data = replace(
            data,
            name=here.name,
            synthetic=here.synthetic,
            fingerprint=here.fingerprint,
            notes=list(here.notes),
            overlap=here.overlap if "test" in here.splits else None,
        )
    return Setting(
        engine.schema, engine.silo_names, engine.splits, engine.partial, data
    )


def prepared(
    engine: Engine,
    constraint: Constraint | None,
    model: Model | None,
    method: Method[Any],
    options: Options,
    seed: int,
) -> tuple[Problem, tuple[str, ...]]:
    """Ask an engine for the census, and build the problem; also return notes."""
    setting = setting_of(engine)
    problem, notes = drive(
        engine, prepare(setting, constraint, model, method, options, seed)
    )
    return problem, (*engine.notes, *notes)


def data_card(data: Data, problem: Problem) -> dict[str, Any] | None:
    """Rows per silo and group, small ones withheld; None for very many silos.

    No totals stand beside the counts, so a single withheld one cannot be recovered. Of
    silos that are elsewhere only totals are shown: what one of them has is its own.
    """
    silos: Sequence[str] = problem.silo_names
    schema = problem.schema
    shape = (len(silos), len(schema.groups), schema.n_labels)
    counts = problem.silo_counts.reshape(shape).sum(axis=2)
    if data.fingerprint is None:
        silos, counts = [f"all {len(silos)} silos"], counts.sum(axis=0, keepdims=True)
    if len(silos) > MOST_SILOS:
        return None
    return {
        "silos": list(silos),
        "groups": list(schema.groups),
        "rows": [
            [n if n == 0 or n >= FLOOR else None for n in r] for r in counts.tolist()
        ],
        "floor": FLOOR,
    }


@cache  # a sweep asks often, and metadata are slow to read
def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    names = ("pffl", "numpy", "scipy", "daqp")
    return {"python": platform.python_version(), **{n: version(n) for n in names}}


# Measuring again: other rows, another confidence, a single cell


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of a certificate; None leaves what the run declared.

    Attributes
    ----------
    confidence, candidates, fresh_split, feature_bound, target_gap
        As in `evidence.Terms`.
    splits
        The splits whose rows stand for unseen people; their sums are added.
    cell
        A cell whose smallest attainable bound is wanted, the others' bounds kept.
    """

    confidence: float | None = None
    candidates: int | None = None
    fresh_split: bool | None = None
    splits: tuple[str, ...] | None = None
    feature_bound: float | None = None
    target_gap: float | None = None
    cell: str | None = None

    def __post_init__(self) -> None:
        if self.confidence is not None:
            probability("confidence", self.confidence)
        if self.candidates is not None:
            whole("candidates", self.candidates, least=1)
        for name in ("feature_bound", "target_gap"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))

    def terms(self, terms: Terms) -> Terms:
        """Return the terms with what was asked for."""
        names = ("confidence", "candidates", "fresh_split", "feature_bound")
        asked = {name: getattr(self, name) for name in (*names, "target_gap")}
        return replace(terms, **{k: v for k, v in asked.items() if v is not None})

    @property
    def needs_rows(self) -> bool:
        """Whether it takes more than the sums that evidence holds."""
        more = (self.splits, self.cell, self.feature_bound, self.target_gap)
        return any(part is not None for part in more)


class Certifiable(Protocol):
    """A model and what was measured of it: a `Solution`, or a run directory."""

    @property
    def evidence(self) -> Evidence:
        """All that was declared and measured."""

    @property
    def model(self) -> Model:
        """The model, bound to its schema and scaling."""

    @property
    def w(self) -> FloatArray:
        """Its parameters."""

    @property
    def multipliers(self) -> FloatArray:
        """λ of each cell."""


def certify(
    solution: Certifiable,
    federation: Federation | Engine | None = None,
    *,
    confidence: float | None = None,
    candidates: int | None = None,
    fresh_split: bool | None = None,
    split: str | None = None,
    feature_bound: float | None = None,
    target_gap: float | None = None,
    cell: str | None = None,
) -> Certificate:
    """Say what holds for a model: on the training rows, for unseen people, at best.

    A number is stated only where its assumptions hold; otherwise the statement says
    "not available" and why. Without further wishes it is ``solution.certificate``.

    Parameters
    ----------
    solution
        What `solve` returned, or a run directory that `pffl.load` has read.
    federation
        The silos, or an engine that reaches them, where something new is to be
        measured. Other data than the model was trained on are measured, too, and
        labelled "other data".
    confidence
        1 − δ of the statements on unseen people. Default: as the run declared.
    candidates, fresh_split
        How many models were compared on the held-out rows before this one was chosen:
        δ is shared among them, unless the split is a fresh one.
    split
        The rows that stand for unseen people.
    feature_bound
        A bound on the length of everyone's scaled inputs (with the constant 1), for
        the statement from the training rows alone.
    target_gap
        A duality gap to judge by, and to plan rounds for.
    cell
        A cell whose smallest attainable bound is wanted, the others' bounds kept.
    """
    request = Request(
        confidence=confidence,
        candidates=candidates,
        fresh_split=fresh_split,
        splits=None if split is None else (split,),
        feature_bound=feature_bound,
        target_gap=target_gap,
        cell=cell,
    )
    engine = None if federation is None else open_engine(federation, "local")
    return certificate_of(examine(solution, engine, request))


def examine(solution: Certifiable, engine: Engine | None, request: Request) -> Evidence:
    """Return the evidence for a request: the same sums, or measured on these rows."""
    evidence = solution.evidence
    terms = request.terms(evidence.terms)
    prints = None if engine is None else setting_of(engine).data.fingerprint
    same = engine is None or (
        prints is not None and prints == evidence.data.fingerprint
    )
    if same and not request.needs_rows:
        return replace(evidence, terms=terms)
    if engine is None:
        raise UsageError("this asks for more than the run measured: give the data, too")
    require_schema(engine, evidence.data.schema)
    setting = setting_of(engine)
    heldout = request.splits or ("test",)
    names = evidence.names
    absent = [s for s in heldout if s not in engine.splits and s != "test"]
    if absent:
        raise UsageError(f"no split '{absent[0]}': there are {list(engine.splits)}")
    if request.cell is not None and request.cell not in names:
        raise UsageError(f"no cell '{request.cell}': there are {list(names)}")
    here = problem_of(engine, evidence, solution.model)
    point = Point(solution.w, solution.multipliers)
    wanted = Wanted(
        engine.splits,
        heldout=heldout,
        loss_bound=terms.loss_bound,
        baseline=False,
        excess=not evidence.minimax,
        cells=() if request.cell is None or not evidence.promise else (request.cell,),
    )
    measured = drive(engine, measure(here, point, wanted))
    recorded = evidence.data.trained_on
    longest = longest_input(engine.federation, here)
    data = replace(
        setting.data,
        trained_on=recorded,
        longest_input=longest,
        overlap=overlap_of(engine.federation, heldout, recorded),
    )
    proofs = measured.proofs
    if terms.target_gap is not None:
        X = longest if terms.feature_bound is None else terms.feature_bound
        steps = _local_steps(evidence)
        plan = plan_constants(reported(here), evidence.model, X, steps)
        proofs = replace(proofs, plan=plan)
    return evidence_of(
        data,
        here,
        point,
        replace(
            measured,
            proofs=proofs,
            before=evidence.before if same else Missing("not asked for"),
        ),
        terms,
        training=evidence.training,
        promise=evidence.promise,
        minimax=evidence.minimax,
        notes=evidence.notes,
    )


def _local_steps(evidence: Evidence) -> int:
    run = evidence.training
    steps = 1 if isinstance(run, Missing) else run.method.get("local_steps")
    return steps if isinstance(steps, int) and steps >= 1 else 1


def overlap_of(
    here: Federation | None, splits: Sequence[str], recorded: str | None
) -> int | None:
    """Rows of the splits that were trained on; None if nobody can know."""
    if here is None or (recorded is not None and recorded != here.fingerprint):
        return None
    found = 0
    for split in splits:
        if split == "train":
            found += here.rows("train")
        elif split == "test":
            found += here.overlap
        elif split in here.splits:
            found += repeated_rows(
                [silo.rows("train") for silo in here.silos],
                [silo.rows(split) for silo in here.silos],
            )
    return found


def require_schema(engine: Engine, known: str) -> None:
    """Refuse rows with other inputs, groups or labels than the model knows."""
    if engine.schema.hash != known:
        raise DataError(
            "these data have other inputs, groups or labels than the model was "
            f"trained with (schema {engine.schema.hash[:12]}, not {known[:12]}): it "
            "says nothing about them"
        )


def problem_of(engine: Engine, evidence: Evidence, model: Model) -> Problem:
    """Return the problem that evidence is of, on the rows of these silos."""
    schema, terms, run = engine.schema, evidence.terms, evidence.training
    cells = cells_of(evidence, schema, engine.silo_names)
    census = drive(engine, ask(Census(schema, "train")))
    counts = cells.totals(census.counts.astype(np.float64))
    empty = [cells.names[z] for z in np.flatnonzero(counts == 0)]
    if empty:
        raise DataError(f"no training rows in any silo for {', '.join(empty)}")
    return Problem(
        Task(model, cells, shares(census, terms.weighting)),
        schema,
        engine.silo_names,
        counts,
        census.counts,
        terms.risk_weight,
        terms.multiplier_bound,
        terms.radius,
        0 if isinstance(run, Missing) else run.seed,
        withholds(census),
    )


def cells_of(evidence: Evidence, schema: Schema, silos: Sequence[str]) -> Cells:
    """Return the cells of a run, for silos that have the same schema."""
    if not (evidence.promise or evidence.minimax):
        return Cells.none(schema)
    confined = [cell.silo for cell in evidence.cells if cell.silo is not None]
    absent = [silo for silo in confined if silo not in silos]
    if absent:
        raise DataError(
            "the cells are silos, and these data have other silos: "
            f"{list(silos)[:5]}, not {absent[:5]}"
        )
    labels: tuple[str | None, ...] = schema.labels or (None,)
    atoms = [(group, label) for group in schema.groups for label in labels]
    return Cells(
        evidence.names,
        evidence.bounds,
        np.array([[atom in cell.of for atom in atoms] for cell in evidence.cells]),
        np.array(
            [
                EVERY_SILO if cell.silo is None else silos.index(cell.silo)
                for cell in evidence.cells
            ]
        ),
    )


def longest_input(federation: Federation | None, problem: Problem) -> float | None:
    """Return the largest length of a training row as the model sees it.

    None where the rows are out of reach.
    """
    if federation is None:
        return None
    model = problem.task.model
    longest = 0.0
    for silo in federation.silos:
        X = silo.rows("train").X
        for start in range(0, len(X), BLOCK):
            rows = model.inputs.apply(X[start : start + BLOCK])
            longest = max(longest, float(np.einsum("ij,ij->i", rows, rows).max()))
    intercept = isinstance(model, LinearModel) and model.intercept
    return float(np.sqrt(longest + intercept))
