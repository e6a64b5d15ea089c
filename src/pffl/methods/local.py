"""Local training: what silos do in a round, and what the server makes of it.

All that is beyond a method's paper is here, so that the method reads like its paper.

FedAvg (McMahan et al. 2017): J local steps, weighted mean of the updates.
FedProx (Li et al. 2020): the same with a proximal term (`proximal`).
FedAvgM, FedAdam, FedYogi (Hsu et al. 2019; Reddi et al. 2021): the mean update is a
pseudo-gradient for a server optimiser (`server`).
Partial participation: each round asks a random fraction of the silos, and the update
is scaled by K/n, so its expectation is that of all silos.
Drift correction (SCAFFOLD, Karimireddy et al. 2020; FedLin, Mitra et al. 2021): local
steps on silos that differ lead each to its own optimum, and their mean is not that of
all. Each local gradient loses the silo's own at the last round's w and gains that of
all silos there, so that at the optimum no silo moves. Silos keep nothing: that w, its
weights and its gradient come with the next query.
Steps by mass (`by_mass`; Agnostic FedAvg, Ro et al. 2021): under bounds a silo of few
groups has a heavy objective, and steps that suit FedAvg are too long for it. It takes
them shorter by what its rows weigh, and its update counts that much more.
Step sizes come from constants of the problem, so that defaults need no tuning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar

import numpy as np

from pffl.constraints import Cells
from pffl.errors import UsageError
from pffl.methods.base import Count, Method, NonNegative, Positive, Share
from pffl.models.linear import LinearModel
from pffl.problem import Point, Problem, upper_value
from pffl.queries import Expand, ExpandTotal, Query, Task, Train, TrainTotal
from pffl.queries.expand import POWER
from pffl.typing import FloatArray

STABLE = 1.9  # steps of less than 2/L do not diverge
MAX_DUAL_MOVE = 10.0  # of a θ in one step: λ changes e^10 times at most
SECOND_MOMENT_DECAY = 0.99  # β₂ of Adam and Yogi
MIN_SCALE = 1e-3  # τ of Adam and Yogi
ANSWER_ROUNDS = 25  # until losses have answered to a step of their weights
UNTUNED_STEP = 0.1  # η_w where neither the user nor the model's curvature says anything

Iterate = Literal["average", "recent", "last", "best"]
#: Round t counts t^power: all equal, or hardly any but the last eighth.
POWERS: dict[str, int] = {"average": 0, "recent": 7}

R = TypeVar("R")
#: A part of a method: it asks, and returns what came of it.
Part: TypeAlias = Generator[Query[Any], Any, R]


@dataclass(frozen=True, kw_only=True)
class LocalTraining(Method):
    """A method with local training, and the parameters that all of them share.

    Parameters
    ----------
    local_steps
        J.
    step_size
        η_w; None takes 1/L for the current weights, from one `expand` of order 0.
    batch_size
        Rows per local step; None for all.
    proximal
        FedProx's weight; 0 is FedAvg.
    drift_correction
        Whether local gradients are corrected by the last round's, so that more than one
        local step does not lead silos that differ astray. A round sends two vectors of
        w's length more and receives one, and costs a silo a gradient more (on batches:
        twice the gradients, and one over all rows).
    by_mass
        Whether a silo's steps are divided by what its rows weigh in its objective, and
        its update counts as much more, so that no λ makes steps longer. None: for
        models that are not convex, whose step sizes no curvature limits; unless drift
        is corrected. It needs a risk (β > 0) where drift is corrected.
    participation
        Fraction of silos asked in each round.
    server, server_step_size, server_momentum
        What the server does with the mean update: "mean" adds it; "momentum", "adam"
        and "yogi" smooth it.
    """

    local_steps: Count = 5
    step_size: Positive | None = None
    batch_size: Count | None = None
    proximal: NonNegative = 0.0
    drift_correction: bool = False
    by_mass: bool | None = None
    participation: Share = 1.0
    server: Literal["mean", "momentum", "adam", "yogi"] = "mean"
    server_step_size: Positive = 1.0
    server_momentum: NonNegative = 0.9
    weighs_updates: ClassVar[bool] = False  # silos by anything else than their p_k

    def __post_init__(self) -> None:
        super().__post_init__()
        for parameter in ("drift_correction", "by_mass"):
            if getattr(self, parameter) and self.weighs_updates:
                raise UsageError(
                    "wrong-parameter:localtraining",
                    name=type(self).__name__,
                    parameter=parameter,
                )

    def normalizes(self, problem: Problem) -> bool:
        """Whether silos' steps are divided by their mass."""
        if self.by_mass is not None:
            return self.by_mass
        free = not (self.drift_correction or self.weighs_updates)
        return free and not problem.task.model.convex

    def silos(self, problem: Problem, round: int) -> tuple[int, ...] | None:
        """Draw the silos asked in a round, by their places; None for all."""
        many = len(problem.task.shares)
        # Rounded to the nearest; Python's own rounds halves to even.
        chosen = max(1, int(np.floor(self.participation * many + 0.5)))
        if chosen >= many:
            return None
        sequence = np.random.SeedSequence(problem.seed, spawn_key=(round,))
        drawn = np.random.default_rng(sequence).choice(many, chosen, replace=False)
        return tuple(sorted(drawn.tolist()))


@dataclass(frozen=True, kw_only=True)
class Descent(LocalTraining):
    """Rounds of local training, all equal.

    Parameters
    ----------
    rounds
        T.
    local_steps, step_size, batch_size, …
        J, η_w and the rest, see `LocalTraining`.
    """

    rounds: Count = 200
    queries_per_round: ClassVar[int] = 1

    @property
    def planned_rounds(self) -> int:
        """Queries of all rounds."""
        return self.queries_per_round * self.rounds

    @classmethod
    def within(cls, budget: int, **parameters: Any) -> Self:
        """Build it with as many rounds of J steps as the budget allows."""
        steps = int(parameters.get("local_steps", cls.local_steps))
        return cls(**{**parameters, "rounds": max(1, budget // steps)})


@dataclass(frozen=True, kw_only=True)
class DescentAscent(Descent):
    """min_w max_{λ ∈ simplex} Σ_z λ_z L_z(w) + (ρ/2)‖w‖², a gradient of each a round.

    AFL over silos, FedMinMax over cells.

    Parameters
    ----------
    dual_step_size
        η_λ; None takes √(2/T)/‖L‖ and then, for convex models, what the losses'
        answers to the last steps of λ allow. A step that is too long makes λ jump from
        corner to corner for ever.
    ridge
        ρ; None for the model's μ, 0 for none, as in the papers.
    """

    local_steps: Count = 1
    rounds: Count = 1000
    dual_step_size: Positive | None = None
    ridge: NonNegative | None = None

    def decay(self, problem: Problem) -> float:
        """Weight of (·/2)‖w‖²."""
        return problem.mu if self.ridge is None else self.ridge


@dataclass(frozen=True, eq=False)
class Objective:
    """What a round descends: βF + Σ_z c_z Σ_{i∈z} ℓ_i, and a ridge.

    Attributes
    ----------
    task
        Model, cells z and silo weights p_k.
    cell_weights
        c_z.
    risk_weight
        β.
    ridge
        Weight of (ridge/2)‖w‖²; None for βμ.
    smoothness
        L, where it is not that of the plain risk.
    loss_power
        q of q-FFL.
    """

    task: Task
    cell_weights: FloatArray
    risk_weight: float
    ridge: float | None = None
    smoothness: float | None = None
    loss_power: float = 0.0


class Trainer:
    """Local training of one run: its state, apart from the method's.

    Parameters
    ----------
    problem, method
        What is solved, and how silos train.
    weighed
        The problem whose curvature step sizes are taken from; None for the plain risk:
        a minimax constraint would set its β to 0.
    cells
        Sets of rows that the method weighs besides the constraint's cells.

    Attributes
    ----------
    task
        The problem's, with those sets behind its cells.
    done
        Rounds of training so far.
    silos
        Those asked in the last round, by their places; None for all.
    sent, reached
        The w that was sent last, and βF + B·max(0, max r) there.
    curvatures
        L of F and of each set of rows that is weighed; None where it is not asked for.
    anchor
        The last round's w, weights of cells, and gradient, by which drift is corrected.
    """

    def __init__(
        self,
        problem: Problem,
        method: LocalTraining,
        weighed: Problem | None = None,
        cells: Cells | None = None,
    ) -> None:
        self.problem, self.method = problem, method
        self.weighed = weighed or replace(problem, risk_weight=1.0)
        self.task = problem.task if cells is None else problem.with_cells(cells)
        self.by_mass = method.normalizes(problem)
        self.done = 0
        self.silos: tuple[int, ...] | None = None
        self.sent, self.reached = problem.start(), np.inf
        self.curvatures: FloatArray | None = None
        self.anchor: tuple[FloatArray, FloatArray, FloatArray] | None = None
        self._momentum = self._second = np.zeros_like(self.sent)
        self._weighed: tuple[FloatArray, Objective] | None = None

    def tune(self) -> Part[None]:
        """Ask how much losses curve at most, where η_w needs it."""
        linear = isinstance(self.problem.task.model, LinearModel)
        if linear and self.method.step_size is None:
            own = self.weighed
            total = yield Expand(own.task, self.sent, 0, typical=typical(own))
            self.curvatures = curvatures(own, total)

    def round(self, w: FloatArray, lam: FloatArray) -> Part[tuple[FloatArray, Any]]:
        """Descend G(·; λ) for a round; return the next w, and r at the w sent.

        r is NaN for cells that no silo reported.
        """
        problem = self.problem
        if self._weighed is None or self._weighed[0] is not lam:
            self._weighed = lam, self._lagrangian(lam)
        after, total = yield from self.descend(w, self._weighed[1])
        r = problem.violation_among(total.cell_losses, self.silos)
        self.reached = upper_value(problem.risk(w, total), r, problem)
        return after, r

    def _lagrangian(self, lam: FloatArray) -> Objective:
        """Return G(·; λ), and its L."""
        problem, found, L = self.problem, self.curvatures, None
        if found is not None:
            of = smoothness_by_mass if self.by_mass else smoothness
            L = of(found, problem, lam)
        weights = problem.cell_weights(lam)
        return Objective(problem.task, weights, problem.risk_weight, smoothness=L)

    def weighing(
        self,
        row_weights: FloatArray,
        L: float | None = None,
        shares: FloatArray | None = None,
    ) -> Objective:
        """Return Σ_i c_i ℓ_i + (μ/2)‖w‖², with c_i by the method's own sets of rows.

        `shares` replaces the p_k.
        """
        task = self.task if shares is None else replace(self.task, shares=shares)
        weights = np.append(np.zeros(self.problem.n_cells), row_weights)
        return Objective(task, weights, 0.0, self.problem.mu, L)

    def smoothness(self, weights: FloatArray) -> float | None:
        """Return L of Σ_z weight × mean loss of z and the ridge; None if not known.

        The sets z are those of `weighed`, a problem without risk (`Problem.over`).
        """
        if self.curvatures is None:
            return None
        return smoothness(self.curvatures, self.weighed, weights) + self.problem.mu

    def descend(
        self, w: FloatArray, objective: Objective
    ) -> Part[tuple[FloatArray, TrainTotal]]:
        """Descend an objective for a round; return the next w, and what came back."""
        total: TrainTotal = yield self.query(w, objective)
        silos, many = self.silos, len(self.problem.task.shares)
        scale = 1 / total.share if silos is None else many / len(silos)
        update = total.update * scale
        if self.by_mass:
            mass, times = float(total.powers[0]), 1.0
            if silos:
                rows, times = self._rows, many / len(silos)
                own = float(np.abs(objective.cell_weights) @ rows)
                mass = objective.risk_weight + own  # Σ p_k M_k of all silos
            update = total.update * (times / mass if mass > 0 else 0.0)
        after = self.move(w, update)
        if self.method.drift_correction:
            self.anchor = (w, objective.cell_weights, total.gradient * scale)
        n = self.problem.task.model.n_trained
        if n < len(w):  # statistics are averaged, whatever the server does
            mean = w[n:] + total.update[n:] / total.powers[0]
            after = np.concatenate([after[:n], mean])
        return after, total

    def query(self, w: FloatArray, objective: Objective) -> Train:
        """Return a round of training."""
        method, problem = self.method, self.problem
        if self.by_mass and method.drift_correction and not objective.risk_weight > 0:
            raise UsageError("parameters-conflict", name=type(method).__name__)
        anchor, anchor_weights, anchor_gradient = self.anchor or (np.zeros(0),) * 3
        self.sent, self.silos = w, method.silos(problem, self.done)
        return Train(
            objective.task,
            w,
            objective.risk_weight,
            objective.cell_weights,
            np.full(method.local_steps, self.step_size(objective)),
            method.batch_size,
            method.proximal,
            problem.seed,
            self.done,
            objective.ridge,
            objective.loss_power,
            method.drift_correction,
            anchor,
            anchor_weights,
            anchor_gradient,
            self.by_mass,
            self.silos,
        )

    def step_size(self, objective: Objective) -> float:
        """η_w of the local steps on an objective, where L is known or not."""
        if self.method.step_size is not None:
            return self.method.step_size
        L = objective.smoothness or self._plain_smoothness
        return UNTUNED_STEP if L is None else 1.0 / L

    @cached_property
    def _plain_smoothness(self) -> float | None:
        """L of the plain risk, where it is known."""
        if self.curvatures is None:
            return None
        own = self.weighed
        return smoothness(self.curvatures, own, np.zeros(own.n_cells))

    @cached_property
    def _rows(self) -> FloatArray:
        """What the rows of each set weigh."""
        return self.problem.count(self.task.cells)

    def move(self, w: FloatArray, update: FloatArray) -> FloatArray:
        """Apply the server optimiser to a mean update; the round is over."""
        self.done += 1
        eta, beta = self.method.server_step_size, self.method.server_momentum
        server = self.method.server
        if server == "mean":
            return w + eta * update
        if server == "momentum":
            self._momentum = beta * self._momentum + update
            return w + eta * self._momentum
        self._momentum = beta * self._momentum + (1 - beta) * update
        square, v, keep = update**2, self._second, SECOND_MOMENT_DECAY
        if server == "adam":
            self._second = keep * v + (1 - keep) * square
        else:
            self._second = v - (1 - keep) * square * np.sign(v - square)
        return w + eta * self._momentum / (np.sqrt(self._second) + MIN_SCALE)


class Averages:
    """Means of w and λ over rounds, in which round t counts t^power times."""

    def __init__(self, power: int = 0) -> None:
        self.power, self.round, self.total = power, 0, 0.0
        self.w = self.multipliers = np.zeros(())

    def add(self, w: FloatArray, lam: FloatArray) -> None:
        """Count one more round."""
        self.round += 1
        count = float(self.round) ** self.power
        self.total += count
        self.w, self.multipliers = self.w + count * w, self.multipliers + count * lam

    def point(self) -> Point:
        """Return the means."""
        return Point(self.w / self.total, self.multipliers / self.total)


class Last:
    """The last pair; of a trainer, the one that was sent with the smallest value.

    That is βF + B·max(0, max r).
    """

    def __init__(self, best_of: Trainer | None = None) -> None:
        self.trainer, self.value = best_of, np.inf

    def add(self, w: FloatArray, lam: FloatArray) -> None:
        """Take one more round, or the w that was sent in it if it is better."""
        if self.trainer is not None and self.trainer.reached < self.value:
            self.value, self.pair = self.trainer.reached, (self.trainer.sent, lam)
        elif not np.isfinite(self.value):
            self.pair = (w, lam)

    def point(self) -> Point:
        """Return the pair."""
        return Point(*self.pair)


def kept_iterate(trainer: Trainer, kind: Iterate) -> Averages | Last:
    """Return what a run is to return, which sees every round."""
    if kind in POWERS:
        return Averages(POWERS[kind])
    return Last(trainer if kind == "best" else None)


class DualStep:
    """η of the multipliers' ascent: fixed, or what r's answers to its steps allow.

    It begins with √(log(Z+1)/E)/max|r|, which minimises the dual term
    B·log(Z+1)/(η_θ E) + η_θ ρ² B of the corrected Theorem 1. For convex models it then
    is what Malitsky and Mishchenko (2020) allow: half of the last move of θ over the
    change of r with it, and little more than the last η.

    Parameters
    ----------
    rounds, step_size
        E, and η_θ; None finds one.
    problem
        What is solved.
    length
        How long a move v from θ is, as λ(θ) sees it.
    """

    caution = 0.5  # part of the step that their answer allows

    def __init__(
        self,
        rounds: int,
        step_size: float | None,
        problem: Problem,
        length: Callable[[FloatArray, FloatArray], float],
    ) -> None:
        self.rounds, self.size, self.length = rounds, step_size, length
        self.fixed = step_size is not None or not problem.task.model.convex
        self.growth = 1.0  # how many times the η before it was
        self.before: FloatArray | None = None  # θ and r of the last step

    def first(self, r: FloatArray) -> float:
        """Return η where nothing has answered yet."""
        rho = max(float(np.abs(r).max(initial=0.0)), 1e-6)
        return math.sqrt(math.log(len(r) + 1) / self.rounds) / rho

    def largest(self, r: FloatArray) -> float:
        """Return the largest η."""
        return MAX_DUAL_MOVE / max(float(np.abs(r).max(initial=0.0)), 1e-12)

    def __call__(self, theta: FloatArray, r: FloatArray) -> float:
        """Return η; a cell that no silo reported has the r that it had."""
        if len(r) and np.isnan(r).all():
            return 0.0
        known = np.zeros_like(r) if self.before is None else self.before[1]
        now = np.stack([theta, np.where(np.isnan(r), known, r)])
        last, before, self.before = self.size, self.before, now
        if last is None:
            self.size = self.first(now[1])
        elif not self.fixed and before is not None and last:
            moved, answer = (self.length(before[0], v) for v in now - before)
            longer = math.sqrt(1.0 + self.growth) * last
            if moved > 0 and answer > 0:
                longer = min(longer, self.caution * moved / answer)
            self.size = min(longer, self.largest(now[1]))
            self.growth = self.size / last
        return self.size or 0.0


class WeightStep(DualStep):
    """η_λ of weights on a simplex, looked at when losses have answered to the last."""

    caution = 0.2  # w is still on its way

    def __init__(self, method: DescentAscent, problem: Problem) -> None:
        super().__init__(
            method.rounds,
            method.dual_step_size,
            problem,
            lambda _, v: float(np.linalg.norm(v)),
        )
        self.calls = 0

    def first(self, r: FloatArray) -> float:
        """√2, the width of the simplex, over all rounds."""
        return math.sqrt(2 / self.rounds) / max(float(np.linalg.norm(r)), 1e-6)

    def largest(self, r: FloatArray) -> float:
        """Return a step across the whole simplex."""
        return 1.0 / max(float(np.ptp(r)), 1e-12)

    def __call__(self, theta: FloatArray, r: FloatArray) -> float:
        """Return η_λ after a round at these weights, with the losses at the w sent."""
        self.calls += 1
        if self.size is None or self.calls % ANSWER_ROUNDS == 1:
            return super().__call__(theta, r)
        return self.size


# Step sizes that need no tuning: from how losses curve, and from how they answered.
# η_w = 1/L, with L from one `expand` of order 0: a number per cell. η_θ has no such
# constant without Hessians: how far r moved with its last step bounds the next.


def curvatures(problem: Problem, total: ExpandTotal) -> FloatArray:
    """Return L of F and of each r_z, over all silos and in any one, shape (2, 1 + Z).

    In a silo it is that of its part of G_k, per unit of β and λ_z.
    """
    found = np.stack(
        [total.curvatures, typical(problem) * total.peaks ** (1.0 / POWER)]
    )
    found[:, 1:] /= problem.counts
    found[:, 0] += problem.mu
    return found


def typical(problem: Problem) -> FloatArray:
    """Return what L of F and of each cell's sum is about in a silo, shape (1 + Z,).

    Under secure sums powers of it must fit fixed point: it is then what it would be if
    rows were of one size, and a silo had all of the cell.
    """
    unit = np.full(1 + problem.n_cells, problem.unit)
    if problem.task.pool is None:
        return unit
    size = float(np.square(problem.column_sizes).sum() / problem.masses.sum())
    return unit * size * np.append(1.0, problem.counts)


def smoothness(
    curvatures: FloatArray, problem: Problem, multipliers: FloatArray
) -> float:
    """Return L for which steps of 1/L are safe, for G(·; λ) and for every silo's G_k.

    βL_F + Σλ_z L_z bounds the largest eigenvalue of ∇²G over all silos together. A silo
    in which the weighted cells are over-represented curves more than the average by the
    ratio of its weight Σ_i c_i/p_k to the mean one, β + Σλ. That silos' inputs may
    differ in scale, too, is what the second row bounds: no G_k curves more, and steps
    below 2/L_k do not diverge. λ may be of any sign.
    """
    lam = np.abs(multipliers)
    whole, local = curvatures @ np.append(problem.risk_weight, lam)
    return max(float(whole) * concentration(problem, lam), float(local) / STABLE)


def smoothness_by_mass(
    curvatures: FloatArray, problem: Problem, multipliers: FloatArray
) -> float:
    """Return L for steps that every silo divides by its own mass.

    That mass is the ratio by which `smoothness` allows for silos in which weighted
    cells are over-represented, and is divided out there. What is left is the mean
    curvature by unit of weight; and of a silo's risk, whose inputs may differ in scale.
    """
    lam = np.abs(multipliers)
    whole = float(curvatures[0] @ np.append(problem.risk_weight, lam))
    mean = whole / (problem.risk_weight + float(lam.sum()))
    return max(mean, float(curvatures[1, 0]) / STABLE)


def concentration(problem: Problem, multipliers: FloatArray) -> float:
    """Largest ratio of a silo's weight Σ_i c_i/p_k to the mean β + Σλ; at least 1."""
    beta = problem.risk_weight
    per_row = problem.cells.spread(
        problem.cell_weights(multipliers), len(problem.silo_counts)
    )
    masses = beta + (per_row * problem.silo_weights).sum(axis=1) / problem.task.shares
    return max(1.0, float(masses.max()) / (beta + float(multipliers.sum())))
