"""The whole run with noise, as a flow: census, training, and two measurements.

Every query of it is a release of the plan. Nothing else is asked of the rows, and
nothing that is not released enters what follows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pffl.constraints import Cells, Constraint
from pffl.data.checks import listing
from pffl.errors import DataError, UsageError
from pffl.evidence.figures import possible
from pffl.evidence.measure import Measured, reported
from pffl.evidence.proofs import unmeasurable
from pffl.evidence.record import Data, Figures, Missing, Noise, Proofs, Released, Sample
from pffl.flow import Flow, ask
from pffl.methods.base import Method
from pffl.models.base import Model
from pffl.models.linear import LogisticRegression, SoftmaxRegression, default_model
from pffl.prepare import Counted, Options, Setting, begin, with_missing
from pffl.privacy.plan import BETS, Plan, bets_of, plan_of
from pffl.privacy.terms import Privacy
from pffl.private.training import Asking, Settings, Trained, settings_of, train
from pffl.problem import Problem
from pffl.queries import Adding, Census, CensusTotal, Evaluate
from pffl.queries.evaluate import COLUMNS
from pffl.queries.release import blocks_of
from pffl.typing import FloatArray

FEW = 4.0  # deviations of its noise: a cell of fewer people is refused
END = 0.005  # of a range: a mean that near an end is said aloud
WIDTH = 2.0  # deviations of its noise: no variance of an input is taken for less
NOT_AVAILABLE = "not available under noise"
EXACT = Missing(f"{NOT_AVAILABLE}: it needs exact sums")


@dataclass(frozen=True, eq=False)
class NoisyRun:
    """What came of a run with noise."""

    problem: Problem
    trained: Trained
    measured: Measured
    noise: Noise
    plan: Plan
    notes: tuple[str, ...]


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
    found = []
    if not isinstance(model, LogisticRegression | SoftmaxRegression):
        found.append(f"the model {type(model).__name__} (only logistic and softmax)")
    elif not model.standardize:
        found.append("standardize = false")
    if constraint is not None:
        cells = constraint.cells(setting.schema, setting.silo_names)
        if constraint.minimax:
            found.append("minimax constraints")
        if not cells.everywhere.all():
            found.append("bounds for single silos")
        if constraint.open:
            found.append("bound = 'auto' (each trial would have to be paid)")
    if options.l2 == "auto":
        found.append("l2 = 'auto' (each trial would have to be paid)")
    if options.certify:
        found.append("a path of models to certify (each would have to be paid)")
    if options.empty_cells != "refuse":
        found.append("empty_cells = 'remove' (which cells are empty is not released)")
    if options.smallest_bound:
        found.append("the smallest bound")
    if setting.data.weighted:
        found.append("sample weights")
    if found:
        raise UsageError(f"[not-under-noise] {NOT_AVAILABLE}: {'; '.join(found)}")


def run(
    setting: Setting,
    constraint: Constraint | None,
    plan: Plan,
    model: Model,
    method: Method,
    options: Options,
    seed: int,
    adding: Adding,
    settings: Settings | None = None,
) -> Flow[NoisyRun]:
    """Ask every release of the plan, and put together what came back."""
    one = replace(setting, silo_names=(f"all {len(setting.silo_names)} silos",))
    sensitivities: dict[tuple[str, str], float] = {}
    tally = _census(setting, plan, adding)
    for name, told in (("counts", "counts"), ("features", "inputs")):
        if name in tally.parts:
            sensitivities[told, "train"] = tally.parts[name].sensitivity
    by_rows = replace(options, weighting="rows")
    counts: list[float] = []
    cells = Cells.none(setting.schema)
    if constraint is not None:
        cells = constraint.cells(setting.schema, one.silo_names)
    counting = _counted(setting, plan, tally, adding, counts, cells)
    problem, notes = yield from begin(
        one, constraint, model, method, by_rows, seed, counting=counting
    )
    asking = Asking(problem, plan, adding, sensitivities)
    trained = yield from train(asking, settings or settings_of(method))
    shown = reported(problem)
    asking = replace(asking, problem=shown)
    seen = yield from _seen(asking, trained.point.w, tally, counts)
    held = None
    if "test" in setting.splits:
        held = yield from _heldout(
            asking, trained.point.w, np.array(counts), 1 - options.confidence
        )
    by_id = setting.data.by_person
    noise = _noise(plan, sensitivities, seen, held, adding, by_id)
    measured = Measured(
        sample("train", seen, shown, plan.privacy.loss_bound),
        Missing("needs held-out rows, and there are none")
        if held is None
        else sample("test", held, shown, plan.privacy.loss_bound),
        EXACT,
        Proofs(unmeasurable(problem) or EXACT, EXACT, EXACT),
    )
    said = (*notes, *_notes(plan, adding), *_at_ends(plan, problem))
    return NoisyRun(problem, trained, measured, noise, plan, said)


def _notes(plan: Plan, adding: Adding) -> tuple[str, ...]:
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
    return tuple(out)


def _at_ends(plan: Plan, problem: Problem) -> list[str]:
    """Name inputs whose released mean is at an end of its range: it may be wrong."""
    if not plan.noise("inputs"):
        return []
    mean, found = problem.task.model.inputs.mean, []
    u = (mean - plan.low) / (plan.high - plan.low)
    for j in np.flatnonzero((u < END) | (u > 1 - END)).tolist():
        low, high = float(plan.low[j]), float(plan.high[j])
        if (low, high) != (0.0, 1.0):  # most categories are rare
            where, rather = ("lower", "narrower") if u[j] < END else ("upper", "wider")
            found.append(
                f"'{problem.schema.features[j]}' stands at the {where} end of its "
                f"range, {low:g} to {high:g}: a {rather} one would let it count"
            )
    return found


def private_data(data: Data) -> Data:
    """Return what may be said of rows beside releases: no figure, no hash of them."""
    return Data(data.name, data.silos, data.schema, data.synthetic)


# Counting


def _census(setting: Setting, plan: Plan, adding: Adding) -> Census:
    return Census(
        setting.schema,
        noise=np.array([plan.noise("counts"), plan.noise("inputs")]),
        low=plan.low,
        high=plan.high,
        longest=plan.longest,
        adding=adding,
    )


def _counted(
    setting: Setting,
    plan: Plan,
    tally: Census,
    adding: Adding,
    found: list[float],
    cells: Cells,
) -> Flow[Counted]:
    """Ask the census; return it as that of one silo, with what its noise allows.

    `found` gets the counts as they were released.
    """
    total: Any = yield from ask(tally)
    found[:] = tally.real(total, "counts").tolist()
    _refuse_small(cells, np.array(found), tally.deviation("counts", adding))
    counts = np.maximum(np.rint(tally.real(total, "counts")), 0.0)
    people = max(1.0, float(counts.sum()))
    mean, spread = plan.uniform
    if "features" in tally.asked_for:
        first, second = np.split(tally.real(total, "features"), 2)
        marked = np.clip(first[setting.schema.gaps[1]], 0.0, people - 1.0)
        first, second = with_missing(setting.schema, people, marked, first, second)
        off = tally.deviation("features", adding) / people
        mean = np.clip(first / people, 0.0, 1.0)
        spread = np.clip(second / people - mean**2, min(WIDTH * off, 0.25), 0.25)
    wide = plan.high - plan.low
    at, variance = plan.low + wide * mean, wide**2 * spread
    atoms, none = len(counts), np.zeros((1, 0))
    census = CensusTotal(
        np.array([int(people)]),
        counts.astype(np.int64)[None],
        np.array([people]),
        counts[None],
        none,
        np.zeros((1, atoms, 0)),
        people * at,
        people * (variance + at**2),
        np.zeros(1, np.int64),
    )
    # About the means: Σx² − (Σx)²/n would lose the digits of a small variance.
    centre = np.append(0.0, at)
    zero = np.zeros_like(at)
    return Counted(
        census, centre, none, np.zeros((1, atoms, 0)), zero, people * variance
    )


def _refuse_small(cells: Cells, counts: FloatArray, noise: float) -> None:
    """Refuse cells whose released count is not far above its noise."""
    least = FEW * noise * np.sqrt(cells.membership.sum(axis=1))
    small = np.flatnonzero(cells.membership @ counts < least)
    if len(small):
        names = listing([cells.names[z] for z in small])
        raise DataError(
            f"[too-few-people] too few people for this ε: {names} (a released count "
            f"below {least[small].max():.0f}, {FEW:g} times its noise): a larger ε, "
            "or larger groups"
        )


# Measuring


def _seen(
    asking: Asking, w: FloatArray, tally: Census, counts: list[float]
) -> Flow[Figures]:
    """Release losses and correct predictions of training rows, per atom."""
    named = {"losses": "final losses", "correct": "final errors"}
    query = _evaluation(asking, w, "train", named)
    total: Any = yield from ask(query)
    return Figures(
        counts,
        query.real(total, "losses").tolist(),
        query.real(total, "correct").tolist(),
        tally.deviation("counts", asking.adding),
        query.deviation("losses", asking.adding),
    )


def _heldout(
    asking: Asking, w: FloatArray, trained: FloatArray, delta: float
) -> Flow[Figures]:
    """Release figures of held-out rows, per atom, and log-sums of blocks.

    Bets are planned from the counts of training rows and from how many are held out in
    all: no more may be known of held-out people than what says nothing of their losses.
    """
    problem, adding = asking.problem, asking.adding
    named = {"counts": "counts", "losses": "losses", "correct": "errors"}
    query = _evaluation(asking, w, "test", named)
    total: Any = yield from ask(query)
    people = query.real(total, "counts")
    figures = Figures(
        people.tolist(),
        query.real(total, "losses").tolist(),
        query.real(total, "correct").tolist(),
        query.deviation("counts", adding),
        query.deviation("losses", adding),
        bet_weights=[1 / BETS] * BETS,
    )
    share = max(1.0, float(people.sum())) / max(1.0, float(trained.sum()))
    many = problem.cells.membership @ trained * share
    spread = asking.plan.noise("logs", "test") * math.sqrt(adding.total)
    bets = bets_of(many, spread, delta)
    every = np.tile(bets, (problem.n_cells, 1))
    betting = _evaluation(asking, w, "test", {"logs": "logs"}, bets=every)
    told: Any = yield from ask(betting)
    member = blocks_of(problem.cells)[1].astype(np.float64)
    off = np.sqrt(member.sum(axis=1))[:, None] * betting.log_deviations(adding)
    return replace(
        figures,
        logs=(member @ betting.log_sums(told)).tolist(),
        log_deviation=off.tolist(),
        bets=bets.tolist(),
    )


def _evaluation(
    asking: Asking, w: FloatArray, split: str, named: dict[str, str], **more: Any
) -> Evaluate:
    return asking.query(
        Evaluate,
        asking.problem.task,
        w,
        split,
        named=named,
        split=split,
        loss_bound=asking.loss_bound,
        **more,
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
    atoms = {name: columns[name].tolist() for name in COLUMNS}
    sums = {name: (cells.membership @ columns[name]).tolist() for name in COLUMNS}
    people = max(1.0, float(count.sum()))
    risk = float(loss.sum()) / people
    return Sample([split], risk, risk, 1.0, sums, atoms)


# The account


def _noise(
    plan: Plan,
    sensitivities: Mapping[tuple[str, str], float],
    seen: Figures,
    held: Figures | None,
    adding: Adding,
    by_id: bool,
) -> Noise:
    """Write down what was declared, released and spent."""
    terms = plan.privacy
    spent, other = plan.mu("train"), plan.mu("test") if held is not None else None
    return Noise(
        terms.epsilon,
        terms.delta,
        spent,
        None if held is None else terms.epsilon,
        other,
        terms.clip,
        terms.loss_bound,
        terms.repeatable,
        adding.sites,
        adding.shared,
        adding.colluding,
        _releases(plan, sensitivities, adding),
        seen,
        held,
        {name: list(ends) for name, ends in terms.ranges.items()},
        by_id,
    )


def _releases(
    plan: Plan, sensitivities: Mapping[tuple[str, str], float], adding: Adding
) -> list[Released]:
    """Return what was released, with the Δ of each as it was asked."""
    out, root = [], math.sqrt(adding.total)
    for one in plan.releases:
        delta = sensitivities.get((one.name, one.split))
        if delta is not None:
            sigma, mu = one.noise * delta, math.sqrt(one.times) / one.noise
            line = (one.name, one.split, one.times, mu, delta, sigma, sigma * root)
            out.append(Released(*line))
    return out
