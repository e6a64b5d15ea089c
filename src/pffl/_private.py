"""A run with noise, as a flow: census, training, and two measurements.

Every query is a release of the plan (`privacy.plan`): the same queries as without
noise, whose sums are added in whole numbers (`queries.release`). Nothing else is asked
of the rows, and nothing that is not released enters what follows.

**Noisy Exact.** Once, H_b = Σ¼xxᵀ of each set b, plus z·σ·√p·I, which no Hessian of a
logistic loss is above. Then T rounds: with the means q_b of the quadratic models

    q_b,t(w) = L_b,t + g_b,tᵀ(w − w_t) + ½(w − w_t)ᵀH_b(w − w_t)

over the rounds so far, later ones with more weight, the next w minimises
βF + (βμ/2)‖w‖² + B·max(0, max_z r_z) of the models: the saddle point of a small one.
The mean over rounds takes most of the noise of single rounds off.

**Noisy FirstOrder.** The same with H_b = h·n_b·I, h an input: no curvature is released.
For many inputs, where the noise of p²/2 numbers is more than they are worth.

**DP-PFFL, DP-FedAvg.** Algorithm 1 and gradient descent, one step a round: the weighted
sum of gradients is one release whose Δ is the clip times the largest weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from pffl.constraints import Cells, Constraint
from pffl.data.checks import listing
from pffl.driver import Meter
from pffl.errors import DataError, UsageError
from pffl.evidence.figures import fieller, possible
from pffl.evidence.measure import Measured, Wanted, evidence_of, reported, terms_of
from pffl.evidence.proofs import unmeasurable
from pffl.evidence.record import (
    Data,
    Figures,
    Missing,
    Noise,
    Proofs,
    Released,
    Sample,
    Training,
)
from pffl.flow import Flow, Round, ask
from pffl.methods.base import Method
from pffl.methods.saddle import maximise_capped
from pffl.models.base import Model
from pffl.models.linear import LogisticRegression, SoftmaxRegression, default_model
from pffl.numerics import capped_softmax
from pffl.prepare import Counted, Options, Setting, begin, with_missing
from pffl.privacy.discrete import Source, secret_source, seeded_source
from pffl.privacy.plan import BETS, Plan, bets_of, plan_of
from pffl.privacy.terms import Privacy
from pffl.problem import Point, Problem
from pffl.queries import Adding, Census, CensusTotal, Evaluate, Expand, Train
from pffl.queries.evaluate import COLUMNS
from pffl.queries.fields import unfolded
from pffl.queries.release import Releasable, blocks_of
from pffl.queries.validation import MIN_SITES
from pffl.solution import Solution
from pffl.typing import FloatArray

MIN_COUNT = 4.0  # deviations of its noise: a cell of fewer people is refused
NEAR_END = 0.005  # of a range: a mean that near an end is named
MIN_WIDTH = 2.0  # deviations of its noise: no variance of an input is taken for less
LIFT = 3.0  # z of the curvature's noise
CURVATURE = 0.25  # h·4/clip² of Noisy FirstOrder, of a row whose length is the clip
STEP_SIZE, DUAL_STEP_SIZE = 0.5, 2.0  # η and η_θ of gradient steps
SADDLE_STEPS = 30  # of the small problem's own search
SIZES = (300, 1_000, 3_000, 10_000, 30_000, 100_000)  # of a cell, for forecasts
TYPICAL_LOSS = 0.6  # by which the noise of a count matters
NOT_AVAILABLE = "not available under noise"
EXACT = Missing(f"{NOT_AVAILABLE}: it needs exact sums")
R = TypeVar("R", bound=Releasable[Any])


# Before the first release


def planned(
    setting: Setting,
    constraint: Constraint | None,
    model: Model | None,
    method: Method,
    options: Options,
    privacy: Privacy,
) -> tuple[Plan, Model]:
    """Return the plan of a run, and the model with its clip; refuse what has none."""
    bare = model or default_model(setting.schema)
    _refuse(setting, constraint, bare, options)
    features, outputs = setting.schema.n_features, len(setting.schema.labels)
    width = features + bool(getattr(bare, "intercept", True))
    plan = plan_of(
        privacy,
        method,
        setting.schema,
        setting.encoding,
        parameters=width * (outputs if outputs > 2 else 1),
        heldout="test" in setting.splits,
        bounds=constraint is not None,
    )
    if plan.method == "exact" and outputs > 2:
        raise UsageError(
            f"[not-under-noise] the method 'exact' is {NOT_AVAILABLE} for more than "
            "two classes: use first-order"
        )
    clipped: Model = replace(bare, input_bound=privacy.clip)  # type: ignore[type-var]
    return plan, clipped


def _refuse(
    setting: Setting, constraint: Constraint | None, model: Model, options: Options
) -> None:
    """Refuse, by name, all that cannot be done soundly with noise."""
    if model.framework == "torch":
        raise UsageError(
            "[not-under-noise] networks cannot be trained with a privacy budget here: "
            "use opacus inside your own Flower app"
        )
    linear = isinstance(model, LogisticRegression | SoftmaxRegression)
    one_silo = auto = minimax = False
    if constraint is not None:
        cells = constraint.cells(setting.schema, setting.silo_names)
        one_silo, auto = not cells.everywhere.all(), constraint.open
        minimax = constraint.minimax
    refused = {
        f"the model {type(model).__name__} (only logistic and softmax)": not linear,
        "standardize = false": linear and not getattr(model, "standardize", True),
        "minimax constraints": minimax,
        "bounds for single silos": one_silo,
        "bound = 'auto' (each trial would have to be paid)": auto,
        "l2 = 'auto' (each trial would have to be paid)": options.l2 == "auto",
        "a path of models to certify (each would have to be paid)": options.certify,
        "empty_cells = 'remove' (which cells are empty is not released)": (
            options.empty_cells != "refuse"
        ),
        "the smallest bound": options.smallest_bound,
        "sample weights": setting.data.weighted,
    }
    if found := [what for what, there in refused.items() if there]:
        raise UsageError(f"[not-under-noise] {NOT_AVAILABLE}: {'; '.join(found)}")


def adding_of(setting: Setting, privacy: Privacy, *, shared: bool) -> Adding:
    """Say who adds noise, and how much each: a share inside a secure sum, or all."""
    sites = setting.access.pooled or len(setting.silo_names)
    return sharing(sites, privacy) if shared else Adding(_source(privacy), sites)


def sharing(sites: int, privacy: Privacy, site: str = "") -> Adding:
    """Say how the sites of a secure sum share noise; of `site`, with its own seed.

    Without one each draws from its secrets of the run. A site sees the totals, and
    knows its own noise: so at least one of them is not counted on.
    """
    if sites < MIN_SITES:
        raise UsageError(
            f"[too-few-sites] a secure sum needs {MIN_SITES} sites or more, and "
            f"there are {sites}"
        )
    if not 1 <= privacy.colluding < sites:
        raise UsageError(
            f"[wrong-colluding] colluding = {privacy.colluding}, and inside a secure "
            f"sum of {sites} sites it is from 1 to {sites - 1}: every site sees the "
            "totals and can take its own noise off, and somebody's must be left"
        )
    source = None if privacy.noise_seed is None else _source(privacy, site)
    return Adding(source, sites, True, privacy.colluding)


def _source(privacy: Privacy, *site: str) -> Source:
    seed = privacy.noise_seed
    if seed is None:
        return secret_source()
    return seeded_source("pffl noise", seed, *filter(None, site))


def margins(
    plan: Plan, cells: Cells, adding: Adding, confidence: float
) -> list[dict[str, str]]:
    """Return what noise adds to the mean training loss of a cell, by its size.

    How many people a cell has is not looked up: that would tell of them.
    """
    from scipy.special import ndtri

    strata = int(cells.membership.sum(axis=1).max()) if len(cells) else 1
    z = float(-ndtri((1 - confidence) / (2 * max(1, len(cells)))))
    M, root = plan.privacy.loss_bound, math.sqrt(adding.total * strata)
    s, t = plan.noise("final losses") * M * root, plan.noise("counts") * root
    out = []
    for people in SIZES:
        high = fieller(TYPICAL_LOSS * people, people, s, t, z, M)[1]
        margin = f"{high - TYPICAL_LOSS:.4f}" if high < M else "none"
        out.append({"people of a group": f"{people:,}", "margin": margin})
    return out


# The run


@dataclass(frozen=True, eq=False)
class Releasing:
    """What is asked with: the problem, the plan, who adds noise; and each Δ asked for.

    `sensitivities` are by the plan's name of a release, and its split.
    """

    problem: Problem
    plan: Plan
    adding: Adding
    sensitivities: dict[tuple[str, str], float] = field(default_factory=dict)

    def query(
        self,
        kind: Callable[..., R],
        *given: Any,
        named: Mapping[str, str],
        split: str = "train",
        **more: Any,
    ) -> R:
        """Return a query for some fields, each with the noise of a planned release."""
        fields: tuple[str, ...] = kind.releasable  # type: ignore[attr-defined]
        noise = [self.plan.noise(named.get(name, ""), split) for name in fields]
        query = kind(*given, noise=np.array(noise), adding=self.adding, **more)
        for name, part in query.parts.items():
            self.sensitivities[named[name], split] = part.sensitivity
        return query

    def evaluate(
        self, w: FloatArray, split: str, named: Mapping[str, str], **more: Any
    ) -> Evaluate:
        """Return a query for figures of w, per stratum."""
        more["loss_bound"] = self.plan.privacy.loss_bound
        asked = (self.problem.task, w, split)
        return self.query(Evaluate, *asked, named=named, split=split, **more)


def run(
    setting: Setting,
    constraint: Constraint | None,
    plan: Plan,
    model: Model,
    method: Method,
    options: Options,
    seed: int,
    adding: Adding,
    *,
    curvature: float = CURVATURE,
) -> Flow[Solution]:
    """Ask every release of the plan, and put together what came back.

    `curvature` is h of Noisy FirstOrder, per row, as a part of clip²/4.
    """
    meter = Meter()
    by_rows, notes = replace(options, weighting="rows"), list[str]()

    def released() -> Flow[tuple[Problem, Point, list[Round], Measured, Noise]]:
        one = replace(setting, silo_names=(f"all {len(setting.silo_names)} silos",))
        census = Census(
            setting.schema,
            noise=np.array([plan.noise("counts"), plan.noise("inputs")]),
            low=plan.low,
            high=plan.high,
            longest=plan.longest,
            adding=adding,
        )
        cells = Cells.none(setting.schema)
        if constraint is not None:
            cells = constraint.cells(setting.schema, one.silo_names)
        counts = np.zeros(0)

        def counting() -> Flow[Counted]:
            nonlocal counts
            total: Any = yield from ask(census)
            counts = census.real(total, "counts")
            _refuse_small(cells, counts, census.deviation("counts", adding))
            off = census.deviation("features", adding) if census.noise[1] else 0.0
            return _as_census(setting, plan, census, total, off)

        problem, said = yield from begin(
            one, constraint, model, method, by_rows, seed, counting=counting()
        )
        notes.extend([*said, *_notes(plan, adding), *_at_ends(plan, problem)])
        releasing = Releasing(problem, plan, adding)
        for name, called in (("counts", "counts"), ("features", "inputs")):
            if name in census.parts:
                delta = census.parts[name].sensitivity
                releasing.sensitivities[called, "train"] = delta
        if plan.method in ("exact", "first-order"):
            point, rounds = yield from _by_models(releasing, curvature)
        else:
            point, rounds = yield from _by_steps(releasing, method)
        shown = reported(problem)
        releasing = replace(releasing, problem=shown)
        off = census.deviation("counts", adding)
        seen = yield from _train_figures(releasing, point.w, counts, off)
        train, held = sample("train", seen, shown, plan.privacy.loss_bound), None
        test: Sample | Missing = Missing("needs held-out rows, and there are none")
        if "test" in setting.splits:
            delta = 1 - options.confidence
            held = yield from _test_figures(releasing, point.w, counts, delta)
            test = sample("test", held, shown, plan.privacy.loss_bound)
        proofs = Proofs(unmeasurable(problem) or EXACT, EXACT, EXACT)
        measured = Measured(train, test, EXACT, proofs)
        noise = _account(releasing, seen, held, setting.data.by_person)
        return problem, point, rounds, measured, noise

    problem, point, rounds, measured, noise = yield from meter.watch(released())
    wanted = Wanted(
        setting.splits,
        loss_bound=plan.privacy.loss_bound,
        weighted=setting.data.weighted,
        confidence=options.confidence,
    )
    evidence = evidence_of(
        replace(private_data(setting.data), card={}),
        problem,
        point,
        measured,
        terms_of(problem, wanted, "rows", clipping="declared"),
        training=Training(
            {**method.describe(), "kind": plan.method, "rounds": plan.rounds},
            {} if constraint is None else dict(constraint.describe()),
            seed,
            plan.rounds,
            None,
            meter.cost,
            0.0,
        ),
        promise=problem.n_cells > 0,
        minimax=False,
        notes=notes,
    )
    evidence = replace(
        evidence,
        data=replace(evidence.data, card=None),
        privacy=noise,
        sites=Missing("under noise nothing is known of single sites"),
    )
    encoding = setting.encoding
    return Solution(
        point.w, point.multipliers, problem, tuple(rounds), evidence, encoding
    )


def private_data(data: Data) -> Data:
    """Return what may be said of rows beside releases: no figure, no hash of them."""
    return Data(data.name, data.silos, data.schema, data.synthetic)


def _notes(plan: Plan, adding: Adding) -> list[str]:
    out = [
        "all figures of rows were released with noise, counts too; the risk weighs "
        "rows alike, as what single silos have is not told"
    ]
    if plan.privacy.repeatable:
        out.append(
            "a seed repeats the noise: this is an experiment, and nothing is private"
        )
    if adding.sites > 1 and not adding.shared:
        out.append(
            f"no secure sum: each of {adding.sites} sites adds all of the noise, so "
            f"that their sum has {math.sqrt(adding.sites):.3g} times what is needed "
            "(secure_sum = true)"
        )
    if adding.shared:
        enough = adding.sites - adding.colluding
        out.append(
            f"{adding.sites} sites share the noise inside secure sums, and the noise "
            f"of {enough} of them is all that is needed"
        )
    if plan.method in ("pffl", "fedavg"):
        out.append("with noise a round is one gradient step on all rows")
    return out


def _at_ends(plan: Plan, problem: Problem) -> list[str]:
    """Name inputs whose released mean is at an end of its range: it may be wrong."""
    if not plan.noise("inputs"):
        return []
    mean, found = problem.task.model.inputs.mean, []
    u = (mean - plan.low) / (plan.high - plan.low)
    for j in np.flatnonzero((u < NEAR_END) | (u > 1 - NEAR_END)).tolist():
        low, high = float(plan.low[j]), float(plan.high[j])
        if (low, high) != (0.0, 1.0):  # most categories are rare
            lower = u[j] < NEAR_END
            where, rather = ("lower", "narrower") if lower else ("upper", "wider")
            found.append(
                f"'{problem.schema.features[j]}' stands at the {where} end of its "
                f"range, {low:g} to {high:g}: a {rather} one would let it count"
            )
    return found


# Counting


def _as_census(
    setting: Setting, plan: Plan, query: Census, total: Any, noise: float
) -> Counted:
    """Return a released census as that of one silo, with what its noise allows.

    `noise` is the deviation of the sums of inputs.
    """
    counts = np.maximum(np.rint(query.real(total, "counts")), 0.0)
    people = max(1.0, float(counts.sum()))
    mean, spread = plan.uniform
    if "features" in query.asked_for:
        first, second = np.split(query.real(total, "features"), 2)
        marked = np.clip(first[setting.schema.gaps[1]], 0.0, people - 1.0)
        first, second = with_missing(setting.schema, people, marked, first, second)
        off = noise / people
        mean = np.clip(first / people, 0.0, 1.0)
        spread = np.clip(second / people - mean**2, min(MIN_WIDTH * off, 0.25), 0.25)
    wide = plan.high - plan.low
    at, variance = plan.low + wide * mean, wide**2 * spread
    strata, none = len(counts), np.zeros((1, 0))
    census = CensusTotal(
        np.array([int(people)]),
        counts.astype(np.int64)[None],
        np.array([people]),
        counts[None],
        none,
        np.zeros((1, strata, 0)),
        people * at,
        people * (variance + at**2),
        np.zeros(1, np.int64),
    )
    # About the means: Σx² − (Σx)²/n would lose the digits of a small variance.
    centre, zero = np.append(0.0, at), np.zeros_like(at)
    targets = np.zeros((1, strata, 0))
    return Counted(census, centre, none, targets, zero, people * variance)


def _refuse_small(cells: Cells, counts: FloatArray, noise: float) -> None:
    """Refuse cells whose released count is not far above its noise."""
    least = MIN_COUNT * noise * np.sqrt(cells.membership.sum(axis=1))
    small = np.flatnonzero(cells.membership @ counts < least)
    if len(small):
        names = listing([cells.names[z] for z in small])
        raise DataError(
            f"[too-few-people] too few people for this ε: {names} (a released count "
            f"below {least[small].max():.0f}, {MIN_COUNT:g} times its noise): a "
            "larger ε, or larger groups"
        )


# Training


@dataclass(frozen=True, eq=False)
class Blocks:
    """Disjoint sets of strata that are in the same cells.

    `member` says which block is in which cell; `people` and `counted` are the released
    people of each block and cell.
    """

    problem: Problem
    member: FloatArray
    people: FloatArray
    counted: FloatArray

    @classmethod
    def of(cls, problem: Problem) -> Blocks:
        """Return the blocks of a problem."""
        sets, member = blocks_of(problem.cells)
        people = np.maximum(sets @ problem.silo_weights.sum(axis=0), 1.0)
        inside = member.astype(np.float64)
        return cls(problem, inside, people, np.maximum(inside @ people, 1.0))

    def losses(self, query: Releasable[Any], total: Any) -> FloatArray:
        """Return the released losses of each block; 0 where none are asked for."""
        if "losses" not in query.asked_for:
            return np.zeros(len(self.people))
        return query.real(total, "losses")

    def round(
        self, number: int, w: FloatArray, losses: FloatArray, lam: FloatArray
    ) -> Round:
        """Return a round of the history, by released figures."""
        problem = self.problem
        risk = float(losses.sum() / self.people.sum()) + problem.ridge(w)
        r = self.member @ losses / self.counted - problem.cells.bounds
        excess = max(0.0, float(r.max(initial=0.0)))
        upper = problem.risk_weight * risk + problem.multiplier_bound * excess
        return Round(
            multipliers=lam,
            number=number,
            risk=risk,
            violation=r,
            upper=upper,
            problem=problem,
        )


def _by_models(
    releasing: Releasing, curvature: float
) -> Flow[tuple[Point, list[Round]]]:
    """Noisy Exact and Noisy FirstOrder: see the module."""
    problem, plan, terms = releasing.problem, releasing.plan, releasing.plan.privacy
    blocks, p = Blocks.of(problem), problem.n_parameters
    if plan.method == "exact":
        bend = yield from _curvature(releasing)
    else:
        size = curvature * terms.clip**2 / 4
        bend = size * blocks.people[:, None, None] * np.eye(p)
    # Means over rounds of L, g of the models L + gᵀw + ½wᵀHw of each block.
    value, slope, weight = np.zeros(len(bend)), np.zeros((len(bend), p)), 0.0
    w, lam, rounds = np.zeros(p), np.zeros(problem.n_cells), []
    named = {"gradients": "gradients", "losses": "losses"}
    for number in range(1, plan.rounds + 1):
        query = releasing.query(
            Expand, problem.task, w, named=named, loss_bound=terms.loss_bound
        )
        total: Any = yield from ask(query)
        gradients, losses = query.real(total, "gradients"), blocks.losses(query, total)
        bent, weight = bend @ w, weight + number
        new = number / weight
        slope = (1 - new) * slope + new * (gradients - bent)
        here = losses - gradients @ w + 0.5 * bent @ w
        value = (1 - new) * value + new * here
        rounds.append(blocks.round(number, w, losses, lam))
        w, lam = _saddle(blocks, value, slope, bend, lam)
    return Point(w, lam), rounds


def _curvature(releasing: Releasing) -> Flow[FloatArray]:
    """Release Σ¼xxᵀ of each block, and lift it above every Hessian.

    The least eigenvalue of a symmetric matrix with noise σ in its upper triangle is
    above −σ(2√p + √2·z) but with probability e^{−z²/2}.
    """
    p, task = releasing.problem.n_parameters, releasing.problem.task
    named = {"curvatures": "curvature"}
    query = releasing.query(Expand, task, np.zeros(p), 2, named=named)
    total: Any = yield from ask(query)
    sigma = query.deviation("curvatures", releasing.adding)
    lift = sigma * (2 * math.sqrt(p) + math.sqrt(2) * LIFT)
    found = unfolded(query.real(total, "curvatures"), p) + lift * np.eye(p)
    values, vectors = np.linalg.eigh(found)
    kept = np.maximum(values, 1e-9 * np.abs(values).max())
    return np.einsum("kij,kj,klj->kil", vectors, kept, vectors)


def _saddle(
    blocks: Blocks,
    value: FloatArray,
    slope: FloatArray,
    bend: FloatArray,
    lam: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Minimise βF + (βμ/2)‖w‖² + B·max(0, max r) of quadratic models."""
    problem = blocks.problem
    beta, B, p = problem.risk_weight, problem.multiplier_bound, problem.n_parameters
    ones = np.ones(len(blocks.people)) / blocks.people.sum()
    inside = blocks.member / blocks.counted[:, None]
    cells = inside @ value, inside @ slope, np.tensordot(inside, bend, axes=1)
    risk = ones @ value, ones @ slope, np.tensordot(ones, bend, axes=1)
    ridge = beta * problem.mu * np.eye(p)
    z = len(inside)

    def best(lam: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return w(λ), r there, and H of the Lagrangian."""
        bend = beta * risk[2] + ridge + np.tensordot(lam, cells[2], axes=1)
        w = -np.linalg.solve(bend, beta * risk[1] + lam @ cells[1])
        r = cells[0] + cells[1] @ w + 0.5 * np.einsum("i,zij,j->z", w, cells[2], w)
        return w, r - problem.cells.bounds, bend

    def dual(lam: FloatArray, w: FloatArray, r: FloatArray) -> float:
        own = beta * (risk[0] + risk[1] @ w + 0.5 * w @ risk[2] @ w)
        return float(own + 0.5 * w @ ridge @ w + lam @ r)

    w, r, total = best(lam)
    for _ in range(SADDLE_STEPS if z else 0):
        jacobian = cells[1] + cells[2] @ w
        matrix = jacobian @ np.linalg.solve(total, jacobian.T)
        there = maximise_capped(matrix, r, lam, B, z)
        if there is None or np.allclose(there, lam, rtol=1e-9, atol=1e-12):
            break
        before, step = dual(lam, w, r), 1.0
        while step > 1e-4:
            tried = lam + step * (there - lam)
            found = best(tried)
            if dual(tried, found[0], found[1]) >= before:
                break
            step /= 2
        else:
            break
        lam, (w, r, total) = tried, found
    return w, lam


def _by_steps(releasing: Releasing, method: Method) -> Flow[tuple[Point, list[Round]]]:
    """DP-PFFL and DP-FedAvg: one gradient step a round; the mean of the later half."""
    problem, plan = releasing.problem, releasing.plan
    fair = plan.method == "pffl" and problem.n_cells > 0
    step_size = getattr(method, "step_size", None) or STEP_SIZE
    dual_step_size = getattr(method, "dual_step_size", None) or DUAL_STEP_SIZE
    blocks, p = Blocks.of(problem), problem.n_parameters
    beta = problem.risk_weight if fair else 1.0
    w, theta, rounds = np.zeros(p), np.zeros(problem.n_cells), []
    mean, lam_mean, half = np.zeros(p), np.zeros(problem.n_cells), plan.rounds // 2
    given: dict[str, Any] = {
        "named": {"gradient": "gradients", "losses": "losses" if fair else ""},
        "loss_bound": plan.privacy.loss_bound,
        "people": float(blocks.people.sum()),
    }
    for number in range(1, plan.rounds + 1):
        lam = capped_softmax(theta, problem.multiplier_bound) if fair else theta * 0
        weights = (beta, lam / blocks.counted, np.ones(1))
        query = releasing.query(Train, problem.task, w, *weights, **given)
        total: Any = yield from ask(query)
        gradient = query.heaviest * query.real(total, "gradient")
        losses = blocks.losses(query, total)
        if fair:
            r = blocks.member @ losses / blocks.counted - problem.cells.bounds
            theta = theta + dual_step_size * r
        rounds.append(blocks.round(number, w, losses, lam))
        # In units of the heaviest weight: the step is as long as the sum is steep.
        size = step_size / (beta + float(lam.sum()))
        w = w - size * (gradient + beta * problem.mu * w)
        if number > half:
            mean, lam_mean = mean + w, lam_mean + lam
    many = plan.rounds - half
    return Point(mean / many, lam_mean / many), rounds


# Measuring


def _train_figures(
    releasing: Releasing, w: FloatArray, counts: FloatArray, off: float
) -> Flow[Figures]:
    """Release losses and correct predictions of training rows, per stratum."""
    named = {"losses": "final losses", "correct": "final errors"}
    query = releasing.evaluate(w, "train", named)
    total: Any = yield from ask(query)
    return Figures(
        counts.tolist(),
        query.real(total, "losses").tolist(),
        query.real(total, "correct").tolist(),
        off,
        query.deviation("losses", releasing.adding),
    )


def _test_figures(
    releasing: Releasing, w: FloatArray, trained: FloatArray, delta: float
) -> Flow[Figures]:
    """Release figures of test rows, per stratum, and log-sums of blocks.

    Bets are planned from the counts of training rows and from how many are held out in
    all: no more may be known of held-out people than what says nothing of their losses.
    """
    problem, adding = releasing.problem, releasing.adding
    named = {"counts": "counts", "losses": "losses", "correct": "errors"}
    query = releasing.evaluate(w, "test", named)
    total: Any = yield from ask(query)
    people = query.real(total, "counts")
    share = max(1.0, float(people.sum())) / max(1.0, float(trained.sum()))
    many = problem.cells.membership @ trained * share
    spread = releasing.plan.noise("logs", "test") * math.sqrt(adding.total)
    bets = bets_of(many, spread, delta)
    every = np.tile(bets, (problem.n_cells, 1))
    betting = releasing.evaluate(w, "test", {"logs": "logs"}, bets=every)
    found: Any = yield from ask(betting)
    member = blocks_of(problem.cells)[1].astype(np.float64)
    off = np.sqrt(member.sum(axis=1))[:, None] * betting.log_deviations(adding)
    return Figures(
        people.tolist(),
        query.real(total, "losses").tolist(),
        query.real(total, "correct").tolist(),
        query.deviation("counts", adding),
        query.deviation("losses", adding),
        bet_weights=[1 / BETS] * BETS,
        logs=(member @ betting.log_sums(found)).tolist(),
        log_deviation=off.tolist(),
        bets=bets.tolist(),
    )


def sample(split: str, found: Figures, shown: Problem, most: float) -> Sample:
    """Return released figures as the sums of a split, made possible ones.

    Squares are not released: they stand for the largest that they can be.
    """
    count, loss, correct = possible(found, most)
    cells, many = shown.cells, shown.schema.n_labels
    positive = np.where(np.arange(len(count)) % many == 1, correct, count - correct)
    if many != 2:
        positive = np.zeros_like(count)
    columns = {
        "count": count,
        "loss": loss,
        "loss_squared": most * loss,
        "bounded_loss": loss,
        "bounded_loss_squared": most * loss,
        "correct": correct,
        "positive": positive,
        "weight": count,
    }
    strata = {name: columns[name].tolist() for name in COLUMNS}
    sums = {name: (cells.membership @ columns[name]).tolist() for name in COLUMNS}
    risk = float(loss.sum()) / max(1.0, float(count.sum()))
    return Sample([split], risk, risk, 1.0, sums, strata)


def _account(
    releasing: Releasing, seen: Figures, held: Figures | None, by_id: bool
) -> Noise:
    """Write down what was declared, released and spent, each Δ as it was asked."""
    plan, adding, terms = releasing.plan, releasing.adding, releasing.plan.privacy
    releases = []
    for one in plan.releases:
        delta = releasing.sensitivities.get((one.name, one.split))
        if delta is not None:
            sigma, mu = one.noise * delta, math.sqrt(one.times) / one.noise
            whole = sigma * math.sqrt(adding.total)
            line = (one.name, one.split, one.times, mu, delta, sigma, whole)
            releases.append(Released(*line))
    return Noise(
        terms.epsilon,
        terms.delta,
        plan.mu("train"),
        None if held is None else terms.epsilon,
        None if held is None else plan.mu("test"),
        terms.clip,
        terms.loss_bound,
        terms.repeatable,
        adding.sites,
        adding.shared,
        adding.colluding,
        releases,
        seen,
        held,
        {name: list(ends) for name, ends in terms.ranges.items()},
        by_id,
    )
