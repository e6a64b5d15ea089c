"""A run with noise, as a flow: census, training, and two measurements.

Every query is a release of the plan (`Plan`): the same queries as without
noise, whose sums are added in whole numbers (`queries.release`). Nothing else is asked
of the rows, and nothing that is not released enters what follows.

**DP-PFFL, DP-FedAvg** are `methods.pffl` and `methods.fedavg` themselves, with one step
a round on all rows: the weighted sum of gradients is one release whose Δ is the clip
times the largest weight. The mean over the later half of the rounds is returned.

**Noisy Exact.** Once, H_b = Σ¼xxᵀ of each set b, plus z·σ·√p·I, which no Hessian of a
logistic loss is above. Then T rounds: with the means of the quadratic models

    q_t(w) = L_t + g_tᵀ(w − w_t) + ½(w − w_t)ᵀH(w − w_t)

of F and of each r_z over the rounds so far, later ones with more weight, the next w
minimises βF + (βμ/2)‖w‖² + B·max(0, max_z r_z) of the models: the saddle point of a
small one. The mean over rounds takes most of the noise of single rounds off.

**Noisy FirstOrder.** The same with H_b = h·n_b·I, h an input: no curvature is released.
For many inputs, where the noise of p²/2 numbers is more than they are worth.

**The plan** says which releases there are, and what each costs. It is fixed before the
first query, from what was declared and from the public schema: no
figure of the rows enters it. Each release has a part of μ²; parts add up to 1, so that
all releases about a training row together are μ-GDP, μ from (ε, δ). Held-out rows are
other people, and have a budget of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from pffl.constraints import Cells, Constraint
from pffl.data.checks import listing
from pffl.data.columns import TableEncoder
from pffl.data.schema import Schema
from pffl.errors import DataError, UsageError
from pffl.evidence.figures import possible
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
from pffl.flow import Flow, Round, ask, observe
from pffl.methods.base import Method
from pffl.methods.saddle import maximise_capped
from pffl.models.base import Model
from pffl.models.linear import LogisticRegression, SoftmaxRegression, default_model
from pffl.prepare import Counted, Options, Setting, prepare, with_missing
from pffl.privacy.discrete import Source, secret_source, seeded_source
from pffl.privacy.terms import Privacy
from pffl.problem import Point, Problem
from pffl.queries import (
    Adding,
    Census,
    CensusTotal,
    Evaluate,
    Expand,
    Train,
    TrainTotal,
)
from pffl.queries.evaluate import COLUMNS
from pffl.queries.expand import unfolded
from pffl.queries.release import Releasable, blocks_of, refuse
from pffl.queries.validation import MIN_SITES
from pffl.solution import Solution
from pffl.typing import FloatArray

WIDE = 40  # parameters: beyond, the noise of a curvature is larger than itself
BETS = 3  # on held-out rows
SPREAD = 0.05  # of a loss / M, about: bets are planned by it
ROUNDS = {"exact": 5, "first-order": 15, "pffl": 30, "fedavg": 30}
#: Parts of μ²: people and inputs counted, curvature, gradients and losses of all
#: rounds, then losses and errors of the model that is shipped; 0: not released.
TRAINING = (
    *("counts", "inputs", "curvature", "gradients", "losses"),
    *("final losses", "final errors"),
)
PARTS: Mapping[str, Mapping[str, float]] = {
    method: {name: part for name, part in zip(TRAINING, parts, strict=True) if part}
    for method, parts in {
        "exact": (0.03, 0.07, 0.15, 0.55, 0.08, 0.10, 0.02),
        "first-order": (0.03, 0.07, 0.0, 0.70, 0.08, 0.10, 0.02),
        "pffl": (0.03, 0.07, 0.0, 0.66, 0.12, 0.10, 0.02),
        "fedavg": (0.03, 0.07, 0.0, 0.78, 0.0, 0.10, 0.02),
    }.items()
}
HELDOUT = {"counts": 0.2, "losses": 0.3, "errors": 0.1, "logs": 0.4}


@dataclass(frozen=True)
class Release:
    """Sums that are released some `times`: `part` of μ² is for all of them together.

    Attributes
    ----------
    noise
        Standard deviation in multiples of what one person adds, for each time.
    """

    name: str
    split: str
    times: int
    part: float
    mu: float

    @property
    def noise(self) -> float:
        """What has Σ 1/noise² = part of μ², over all times."""
        return math.sqrt(self.times) / self.mu


@dataclass(frozen=True)
class Plan:
    """All releases of a run, in order, and what they come to.

    Attributes
    ----------
    method
        Which of the methods with noise it is.
    rounds
        T.
    releases
        In the order in which they are made.
    low, high, longest
        Ranges of the inputs, and the length of their (u, u²).
    """

    privacy: Privacy
    method: str
    rounds: int
    releases: tuple[Release, ...]
    low: FloatArray
    high: FloatArray
    longest: float

    def noise(self, name: str, split: str = "train") -> float:
        """Return the noise of a release, in multiples of what a person adds; or 0."""
        mine = (one for one in self.releases if (one.name, one.split) == (name, split))
        return next((one.noise for one in mine), 0.0)

    def mu(self, split: str) -> float:
        """μ of all releases about rows of a split."""
        mine = [one for one in self.releases if one.split == split]
        return math.sqrt(math.fsum(one.mu**2 for one in mine))

    def lines(self) -> list[str]:
        """Say what will be released, before anything is."""
        terms = self.privacy
        out = [
            f"privacy: ε = {terms.epsilon:g}, δ = {terms.delta:g} for each person of "
            f"the training rows (μ = {self.mu('train'):.4g}), rows shortened to "
            f"{terms.clip:g}, losses up to {terms.loss_bound:g}; {self.method}, "
            f"{self.rounds} rounds"
        ]
        for one in self.releases:
            often = f"{one.times} × " if one.times > 1 else ""
            out.append(
                f"  {often}{one.name} of {one.split} rows: {one.part:.0%} of the "
                f"budget, noise {one.noise:.3g} × what a person adds at most"
            )
        if any(one.split != "train" for one in self.releases):
            out.append(
                f"  held-out rows are other people, with ε = {terms.epsilon:g} of "
                f"their own (μ = {terms.mu:.4g})"
            )
        return out


def plan_of(
    privacy: Privacy,
    method: Method,
    schema: Schema,
    encoding: TableEncoder,
    *,
    parameters: int,
    heldout: bool,
    bounds: bool = True,
) -> Plan:
    """Return the plan of a run; refuse what is not available under noise."""
    name = name_of(method, parameters)
    low, high, columns = ranges_of(privacy, schema, encoding)
    rounds = privacy.rounds or ROUNDS[name]
    parts = dict(PARTS[name])
    if not bounds and name != "fedavg":
        parts["gradients"] += parts.pop("losses", 0.0)
    often = dict.fromkeys(("gradients", "losses"), rounds)
    releases = []
    for split, shares in (("train", parts), ("test", HELDOUT if heldout else {})):
        for what, part in shares.items():
            times = often.get(what, 1) if split == "train" else 1
            mu = privacy.mu * math.sqrt(part)
            releases.append(Release(what, split, times, part, mu))
    longest = math.sqrt(2.0 * columns)
    return Plan(privacy, name, rounds, tuple(releases), low, high, longest)


def name_of(method: Method, parameters: int) -> str:
    """Return which of the methods with noise a method stands for."""
    name = method.name
    if name == "auto":
        return "exact" if parameters <= WIDE else "first-order"
    if name not in PARTS:
        raise UsageError(
            "not-under-noise:name-of", name=name, parts=", ".join(sorted(PARTS))
        )
    steps = getattr(method, "local_steps", None)
    if steps not in (None, 1) and steps != type(method)().local_steps:
        refuse("several local steps (what one person changes has no bound)")
    if getattr(method, "batch_size", None) is not None:
        refuse("batches (linear models are trained on all rows)")
    return name


def ranges_of(
    privacy: Privacy, schema: Schema, encoding: TableEncoder
) -> tuple[FloatArray, FloatArray, int]:
    """Return what each input is between, and how many columns they come from.

    A category's inputs are 0 but for one, and one that says that a number is missing
    is 0 or 1; every other input needs a range that was known beforehand.
    """
    low, high = np.zeros(schema.n_features), np.ones(schema.n_features)
    place, columns, unknown, used = 0, 0, [], set()
    for column in encoding.columns:
        if column.kind == "text":
            refuse(f"'{column.name}' is a text; leave it out, or make numbers of it")
        for name in column.features:
            coded = column.kind == "category" or name != column.name  # 0 or 1
            if name in privacy.ranges and not coded:
                low[place], high[place] = privacy.ranges[name]
                used.add(name)
            elif not coded:
                unknown.append(name)
            place += 1
        columns += 1 if column.kind == "category" else len(column.features)
    strange = sorted(set(privacy.ranges) - used)
    if strange:
        raise UsageError("unknown-column", strange=", ".join(map(repr, strange)))
    if unknown:
        shown = ", ".join(f"'{name}'" for name in unknown[:8])
        more = f" and {len(unknown) - 8} more" * (len(unknown) > 8)
        raise UsageError(
            "needs-ranges:ranges-of", shown=shown, more=more, unknown=unknown[0]
        )
    return low, high, columns


def bets_of(people: FloatArray, noise: float, delta: float) -> FloatArray:
    """Return bets γ for cells of about n test people, noise allowed for.

    Each minimises (log 1/δ + s²/2 + s)/(nγ) + γv/2 with s = noise·√J·|log(1 − γ)|, as
    the width of the bound is about that: for the smallest cell, for the largest, and
    between. Everything here is planned or was released before.
    """
    tried = np.geomspace(1e-3, 0.9, 200)
    s = noise * math.sqrt(BETS) * -np.log1p(-tried)
    found = []
    for n in (max(1.0, float(people.min())), max(1.0, float(people.max()))):
        width = (math.log(1 / delta) + s**2 / 2 + s) / (n * tried) + tried * SPREAD / 2
        found.append(float(tried[np.argmin(width)]))
    low, high = min(found), max(found)
    return np.array([0.8 * low, math.sqrt(low * high), min(0.9, 1.25 * high)])


MIN_COUNT = 4.0  # deviations of its noise: a cell of fewer people is refused
MIN_WIDTH = 2.0  # deviations of its noise: no variance of an input is taken for less
LIFT = 3.0  # z of the curvature's noise
CURVATURE = 0.25  # h·4/clip² of Noisy FirstOrder, of a row whose length is the clip
STEP_SIZE, DUAL_STEP_SIZE = 0.5, 2.0  # η and η_θ of gradient steps
SADDLE_STEPS = 30  # of the small problem's own search
EXACT = Missing("not available under noise: it needs exact sums")
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
        refuse("the method 'exact' for more than two classes: use first-order")
    clipped: Model = replace(bare, input_bound=privacy.clip)  # type: ignore[type-var]
    return plan, clipped


def _refuse(
    setting: Setting, constraint: Constraint | None, model: Model, options: Options
) -> None:
    """Refuse, by name, all that cannot be done soundly with noise."""
    if model.name == "network":
        refuse("networks; use opacus inside your own Flower app")
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
        "a path of models to certify (each would have to be paid)": options.certify,
        "empty_cells = 'remove' (which cells are empty is not released)": (
            options.empty_cells != "refuse"
        ),
        "the smallest bound": options.smallest_bound,
        "a selection rate": options.selection_rate is not None,
        "sample weights": setting.data.weighted,
    }
    if found := [what for what, there in refused.items() if there]:
        refuse("; ".join(found))


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
        raise UsageError("too-few-sites:sharing", min_sites=MIN_SITES, sites=sites)
    if not 1 <= privacy.colluding < sites:
        raise UsageError(
            "wrong-colluding",
            colluding=privacy.colluding,
            sites=sites,
            sites_2=sites - 1,
        )
    source = None if privacy.noise_seed is None else _source(privacy, site)
    return Adding(source, sites, True, privacy.colluding)


def _source(privacy: Privacy, *site: str) -> Source:
    seed = privacy.noise_seed
    if seed is None:
        return secret_source()
    return seeded_source("pffl noise", seed, *filter(None, site))


# The run


@dataclass(eq=False)
class Releasing:
    """What is asked with: the plan, who adds noise; and each Δ that was asked for.

    `sensitivities` are by the plan's name of a release, and its split; `counts` are
    the released people of each stratum, as they came.
    """

    plan: Plan
    adding: Adding
    sensitivities: dict[tuple[str, str], float] = field(default_factory=dict)
    counts: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __call__(self, query: R, named: Mapping[str, str], **more: Any) -> R:
        """Return a query for some fields, each with the noise of a planned release."""
        plan, split = self.plan, query.split
        noise = [plan.noise(named.get(name, ""), split) for name in query.releasable]
        query = replace(query, noise=np.array(noise), adding=self.adding, **more)
        for name, part in query.parts.items():
            self.sensitivities[named[name], split] = part.sensitivity
        return query

    def deviation(self, query: Releasable[Any], name: str) -> float:
        """Return the standard deviation of what is added to a field, by all."""
        return query.deviation(name, self.adding)


def run(
    setting: Setting,
    constraint: Constraint | None,
    plan: Plan,
    model: Model,
    method: Method,
    options: Options,
    seed: int,
    adding: Adding,
) -> Flow[Solution]:
    """Ask every release of the plan, and put together what came back."""
    releasing, M = Releasing(plan, adding), plan.privacy.loss_bound
    by_rows = replace(options, weighting="rows")
    one = replace(setting, silo_names=(f"all {len(setting.silo_names)} silos",))
    counting = _census(one, constraint, releasing)
    problem, said = yield from prepare(
        one, constraint, model, method, by_rows, seed, counting=counting
    )
    shown, held = reported(problem), None
    if not shown.n_cells:  # by the released counts no group has anyone in it
        raise DataError(
            "too-few-people:refuse-small",
            names="all groups",
            least=MIN_COUNT * plan.noise("counts"),
            min_count=MIN_COUNT,
        )
    if plan.method in ("exact", "first-order"):
        point, rounds = yield from _by_models(releasing, problem)
    else:
        point, rounds = yield from _by_rounds(releasing, problem, method)
    seen = yield from _train_figures(releasing, shown, point.w)
    if "test" in setting.splits:
        delta = 1 - options.confidence
        held = yield from _test_figures(releasing, shown, point.w, delta)
    test: Sample | Missing = Missing("needs held-out rows, and there are none")
    if held is not None:
        test = sample("test", held, shown, M)
    proofs = Proofs(unmeasurable(problem) or EXACT, EXACT)
    wanted = Wanted(
        setting.splits,
        loss_bound=M,
        weighted=setting.data.weighted,
        confidence=options.confidence,
    )
    evidence = evidence_of(
        private_data(setting.data),
        problem,
        point,
        Measured(sample("train", seen, shown, M), test, EXACT, proofs),
        terms_of(problem, wanted, "rows", clipping="declared"),
        training=Training(
            {**method.describe(), "kind": plan.method, "rounds": plan.rounds},
            {} if constraint is None else dict(constraint.describe()),
            seed,
            plan.rounds,
            None,
            {},
            0.0,
        ),
        promise=problem.n_cells > 0,
        minimax=False,
        notes=[*said, *_notes(plan, adding)],
    )
    evidence = replace(
        evidence,
        privacy=_account(releasing, seen, held, setting.data.by_person),
        sites=Missing("under noise nothing is known of single sites"),
    )
    return Solution.of(point, problem, rounds, evidence, setting.encoding)


def private_data(data: Data) -> Data:
    """Return what may be said of rows besides releases: no figure, no hash of them."""
    return Data(data.name, data.silos, data.schema, data.synthetic)


def _notes(plan: Plan, adding: Adding) -> list[str]:
    out = [
        "all figures of rows were released with noise, counts too; the risk weighs "
        "rows equally, as what single silos have is not told"
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


# Counting


def _census(
    setting: Setting, constraint: Constraint | None, releasing: Releasing
) -> Flow[Counted]:
    """Release a census, and return it as that of one silo, with what noise allows."""
    plan, schema = releasing.plan, setting.schema
    query = releasing(
        Census(schema, low=plan.low, high=plan.high, longest=plan.longest),
        {"counts": "counts", "features": "inputs"},
    )
    total: Any = yield from ask(query)
    releasing.counts = found = query.real(total, "counts")
    if constraint is not None:
        cells = constraint.cells(schema, setting.silo_names)
        _refuse_small(cells, found, releasing.deviation(query, "counts"))
    counts = np.maximum(np.rint(found), 0.0)
    people = max(1.0, float(counts.sum()))
    first, second = np.split(query.real(total, "features"), 2)
    marked = np.clip(first[schema.gaps[1]], 0.0, people - 1.0)
    first, second = with_missing(schema, people, marked, first, second)
    off = releasing.deviation(query, "features") / people
    mean = np.clip(first / people, 0.0, 1.0)
    spread = np.clip(second / people - mean**2, min(MIN_WIDTH * off, 0.25), 0.25)
    wide = plan.high - plan.low
    at, variance = plan.low + wide * mean, wide**2 * spread
    strata, none = len(counts), np.zeros((1, 0))
    targets = np.zeros((1, strata, 0))
    census = CensusTotal(
        np.array([int(people)]),
        counts.astype(np.int64)[None],
        np.array([people]),
        counts[None],
        none,
        targets,
        people * at,
        people * (variance + at**2),
        np.zeros(1, np.int64),
    )
    # About the means: Σx² − (Σx)²/n would lose the digits of a small variance.
    centre, zero = np.append(0.0, at), np.zeros_like(at)
    return Counted(census, centre, none, targets, zero, people * variance)


def _refuse_small(cells: Cells, counts: FloatArray, noise: float) -> None:
    """Refuse cells whose released count is not far above its noise."""
    least = MIN_COUNT * noise * np.sqrt(cells.membership.sum(axis=1))
    small = np.flatnonzero(cells.membership @ counts < least)
    if len(small):
        names = listing([cells.names[z] for z in small])
        raise DataError(
            "too-few-people:refuse-small",
            names=names,
            least=least[small].max(),
            min_count=MIN_COUNT,
        )


# Training: a method hears what was released as the total that it would have heard


def _by_rounds(
    releasing: Releasing, problem: Problem, method: Any
) -> Flow[tuple[Point, list[Round]]]:
    """DP-PFFL and DP-FedAvg: one step a round; the mean of the later half."""
    many, fair = releasing.plan.rounds, releasing.plan.method == "pffl"
    own: dict[str, Any] = {"rounds": many}
    if fair:
        step = method.dual_step_size or DUAL_STEP_SIZE
        own = {"dual_rounds": many, "rounds_per_dual": 1, "dual_step_size": step}
        own["iterate"] = "last"
    own |= {"local_steps": 1, "by_mass": True}
    chosen = replace(method, step_size=method.step_size or STEP_SIZE, **own)
    steps, value = chosen.run(problem), None
    points, rounds = list[Point](), list[Round]()
    while len(points) < many:
        signal = steps.send(value)
        if isinstance(signal, Round):
            points.append(signal.point or problem.start_point())
            value = None
            continue
        if not isinstance(signal, Train):
            refuse("what the method asks besides its steps")
        named = {"gradient": "gradients", "losses": "losses" if fair else ""}
        given = {"loss_bound": releasing.plan.privacy.loss_bound}
        people = float(problem.masses.sum())
        query = releasing(signal, named, people=people, **given)
        value = _step(problem, query, (yield from ask(query)))
        rounds.append(_row(problem, query, value, len(rounds) + 1))
    later = points[many // 2 :]
    w = np.mean([p.w for p in later], axis=0)
    return Point(w, np.mean([p.multipliers for p in later], axis=0)), rounds


def _step(problem: Problem, query: Train, total: Any) -> TrainTotal:
    """Return a released gradient as one step of all rows, not divided by a mass."""
    gradient = query.heaviest * query.real(total, "gradient")
    losses = _set_sums(problem, query, total, "losses")
    in_cells = query.cell_weights * problem.counts
    mass = query.risk_weight + float(in_cells.sum())
    update = -query.step_sizes[0] * (gradient + query.ridge_weight * query.w)
    powers = np.array([mass, 0.0])
    return TrainTotal(update, 1.0, float(losses[0]), losses[1:], powers, np.zeros(0))


def _set_sums(
    problem: Problem, query: Releasable[Any], total: Any, name: str
) -> FloatArray:
    """Return F's mean and cells' sums of a field that is released by block.

    0 where it is not asked for.
    """
    member = blocks_of(problem.cells)[1].astype(np.float64)
    if name not in query.parts:
        return np.zeros(1 + len(member))
    found = query.real(total, name)
    mean = found.sum(axis=0, keepdims=True) / problem.masses.sum()
    return np.concatenate([mean, np.tensordot(member, found, axes=1)])


def _row(problem: Problem, query: Any, total: Any, number: int) -> Round:
    """Return a round of the history, by released figures."""
    found = observe(problem, replace(query, noise=np.zeros(0)), total)
    return replace(found or Round(), number=number)


def _by_models(
    releasing: Releasing, problem: Problem
) -> Flow[tuple[Point, list[Round]]]:
    """Noisy Exact and Noisy FirstOrder: see the module."""
    plan, terms = releasing.plan, releasing.plan.privacy
    p, z = problem.n_parameters, problem.n_cells
    # H of F and of each r: of cells of CURVATURE × clip²/4 per person, or as released.
    bend = np.tile(CURVATURE * terms.clip**2 / 4 * np.eye(p), (1 + z, 1, 1))
    if plan.method == "exact":
        bend = yield from _curvature(releasing, problem)
    bend[0] += problem.mu * np.eye(p)
    # Means over rounds of L, g of the models L + gᵀw + ½wᵀHw.
    value, slope, weight = np.zeros(1 + z), np.zeros((1 + z, p)), 0.0
    w, lam, rounds = np.zeros(p), np.zeros(z), list[Round]()
    named, M = {"gradients": "gradients", "losses": "losses"}, terms.loss_bound
    for number in range(1, plan.rounds + 1):
        asked = Expand(problem.task, w)
        query = releasing(asked, named, loss_bound=M)
        released: Any = yield from ask(query)
        losses = _set_sums(problem, query, released, "losses")
        gradients = _set_sums(problem, query, released, "gradients")
        total = asked.total(losses=losses, gradients=gradients)
        at = problem.expand(w, total)
        here = np.append(at.risk, at.violation)
        slopes = np.vstack([at.risk_gradient, at.jacobian])
        bent, weight = bend @ w, weight + number
        new = number / weight
        slope = (1 - new) * slope + new * (slopes - bent)
        value = (1 - new) * value + new * (here - slopes @ w + 0.5 * bent @ w)
        row = _row(problem, query, total, number)
        rounds.append(replace(row, multipliers=lam))
        w, lam = _saddle(problem, value, slope, bend, lam)
    return Point(w, lam), rounds


def _curvature(releasing: Releasing, problem: Problem) -> Flow[FloatArray]:
    """Release Σ¼xxᵀ of each block, lifted above every Hessian; return that of means.

    The least eigenvalue of a symmetric matrix with noise σ in its upper triangle is
    above −σ(2√p + √2·z) but with probability e^{−z²/2}.
    """
    p = problem.n_parameters
    query = Expand(problem.task, np.zeros(p), 2)
    query = releasing(query, {"curvatures": "curvature"})
    total: Any = yield from ask(query)
    sigma = releasing.deviation(query, "curvatures")
    lift = sigma * (2 * math.sqrt(p) + math.sqrt(2) * LIFT)
    found = unfolded(query.real(total, "curvatures"), p) + lift * np.eye(p)
    values, vectors = np.linalg.eigh(found)
    kept = np.maximum(values, 1e-9 * np.abs(values).max())
    above = np.einsum("kij,kj,klj->kil", vectors, kept, vectors)
    member = blocks_of(problem.cells)[1].astype(np.float64)
    inside = np.vstack([np.ones(len(above)), member])
    people = np.append(problem.masses.sum(), problem.counts)
    return np.asarray(np.tensordot(inside / people[:, None], above, axes=1))


def _saddle(
    problem: Problem,
    value: FloatArray,
    slope: FloatArray,
    bend: FloatArray,
    lam: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Minimise βF + B·max(0, max r) of quadratic models of F, ridge included, and r."""
    beta, z = problem.risk_weight, problem.n_cells

    def best(lam: FloatArray) -> tuple[Any, Any, Any]:
        """Return w(λ), the models there, and H of the Lagrangian."""
        weights = np.append(beta, lam)
        total = np.tensordot(weights, bend, axes=1)
        w = -np.linalg.solve(total, weights @ slope)
        found = value + slope @ w + 0.5 * np.einsum("i,zij,j->z", w, bend, w)
        return w, found, total

    w, found, total = best(lam)
    for _ in range(SADDLE_STEPS if z else 0):
        jacobian = slope[1:] + bend[1:] @ w
        matrix = jacobian @ np.linalg.solve(total, jacobian.T)
        B = problem.multiplier_bound
        there = maximise_capped(matrix, found[1:], lam, B, z)
        if there is None or np.allclose(there, lam, rtol=1e-9, atol=1e-12):
            break
        before, step = float(np.append(beta, lam) @ found), 1.0
        while step > 1e-4:
            tried = lam + step * (there - lam)
            next_w, next_found, next_total = best(tried)
            if np.append(beta, tried) @ next_found >= before:
                break
            step /= 2
        else:
            break
        lam, w, found, total = tried, next_w, next_found, next_total
    return w, lam


# Measuring


def _train_figures(
    releasing: Releasing, problem: Problem, w: FloatArray
) -> Flow[Figures]:
    """Release losses and correct predictions of training rows, per stratum."""
    M = releasing.plan.privacy.loss_bound
    named = {"losses": "final losses", "correct": "final errors"}
    query = releasing(Evaluate(problem.task, w, "train", M), named)
    total: Any = yield from ask(query)
    return Figures(
        releasing.counts.tolist(),
        query.real(total, "losses").tolist(),
        query.real(total, "correct").tolist(),
        releasing.plan.noise("counts") * math.sqrt(releasing.adding.total),
        releasing.deviation(query, "losses"),
    )


def _test_figures(
    releasing: Releasing, problem: Problem, w: FloatArray, delta: float
) -> Flow[Figures]:
    """Release figures of test rows, per stratum, and log-sums of blocks.

    Bets are planned from the counts of training rows and from how many are held out in
    all: no more may be known of held-out people than what says nothing of their losses.
    """
    plan, adding = releasing.plan, releasing.adding
    M = plan.privacy.loss_bound
    named = {"counts": "counts", "losses": "losses", "correct": "errors"}
    query = releasing(Evaluate(problem.task, w, "test", M), named)
    total: Any = yield from ask(query)
    people, trained = query.real(total, "counts"), releasing.counts
    share = max(1.0, float(people.sum())) / max(1.0, float(trained.sum()))
    many = problem.cells.membership @ trained * share
    spread = plan.noise("logs", "test") * math.sqrt(adding.total)
    bets = bets_of(many, spread, delta)
    every = np.tile(bets, (problem.n_cells, 1))
    asked = Evaluate(problem.task, w, "test", M, bets=every)
    betting = releasing(asked, {"logs": "logs"})
    found: Any = yield from ask(betting)
    member = blocks_of(problem.cells)[1].astype(np.float64)
    off = np.sqrt(member.sum(axis=1))[:, None] * betting.log_deviations(adding)
    return Figures(
        people.tolist(),
        query.real(total, "losses").tolist(),
        query.real(total, "correct").tolist(),
        releasing.deviation(query, "counts"),
        releasing.deviation(query, "losses"),
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
