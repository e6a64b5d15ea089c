"""Methods that train from released sums: few rounds, each with noise.

Every round asks, at one w, for gradients and loss sums over disjoint blocks of strata
(`expand`), or for one step on all rows (`train`); all else is arithmetic on what came
back.

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

from pffl.flow import Flow, Round, ask
from pffl.methods.base import Method
from pffl.methods.fedavg import FedAvg
from pffl.methods.pffl import PFFL
from pffl.methods.saddle import maximise_capped
from pffl.numerics import capped_softmax
from pffl.privacy.plan import Plan
from pffl.problem import Point, Problem
from pffl.queries import Adding, Expand, ReleasedSums, Train
from pffl.queries.fields import unfolded
from pffl.queries.release import Releasable, blocks_of
from pffl.typing import BoolArray, FloatArray

SURE = 3.0  # z of the curvature's noise
CURVATURE = 0.25  # h·4/clip² of Noisy FirstOrder, of a row whose length is the clip
STEP = 0.5  # η of gradient steps
DUAL_STEP = 2.0  # η_θ
INNER = 30  # steps of the small problem's own search


@dataclass(frozen=True)
class Settings:
    """What is an input of a method with noise; nothing of it is found on rows.

    Attributes
    ----------
    curvature
        h of Noisy FirstOrder, per row, as a part of clip²/4.
    step, dual_step
        η and η_θ of DP-PFFL and DP-FedAvg.
    """

    curvature: float = CURVATURE
    step: float = STEP
    dual_step: float = DUAL_STEP


def settings_of(method: Method) -> Settings:
    """Return a method's own steps, where it has any."""
    if isinstance(method, PFFL):
        return Settings(
            step=method.step_size or STEP,
            dual_step=method.dual_step_size or DUAL_STEP,
        )
    if isinstance(method, FedAvg):
        return Settings(step=method.step_size or STEP)
    return Settings()


@dataclass(frozen=True, eq=False)
class Trained:
    """What a method with noise ends with."""

    point: Point
    history: tuple[Round, ...]


R = TypeVar("R", bound=Releasable[Any])


@dataclass(frozen=True, eq=False)
class Asking:
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

    @property
    def loss_bound(self) -> float:
        """M."""
        return self.plan.privacy.loss_bound


def train(asking: Asking, settings: Settings) -> Flow[Trained]:
    """Train by the method of the plan."""
    steps: dict[str, Callable[[Asking, Settings], Flow[Trained]]] = {
        "exact": _by_models,
        "first-order": _by_models,
        "pffl": _by_steps,
        "fedavg": _by_steps,
    }
    return (yield from steps[asking.plan.method](asking, settings))


@dataclass(frozen=True, eq=False)
class Quadratic:
    """L + gᵀw + ½wᵀHw for each set of rows: means of models of several rounds."""

    value: FloatArray  # (k,)
    slope: FloatArray  # (k, p)
    bend: FloatArray  # (k, p, p)
    weight: float = 0.0

    @classmethod
    def none(cls, bend: FloatArray) -> Quadratic:
        """Return the mean of no models."""
        k, p = bend.shape[:2]
        return cls(np.zeros(k), np.zeros((k, p)), bend)

    def with_round(
        self, w: FloatArray, losses: FloatArray, gradients: FloatArray, weight: float
    ) -> Quadratic:
        """Return the mean with the models of one more round, at w."""
        bent = self.bend @ w
        slope = gradients - bent
        value = losses - gradients @ w + 0.5 * bent @ w
        total = self.weight + weight
        new = weight / total
        return replace(
            self,
            value=(1 - new) * self.value + new * value,
            slope=(1 - new) * self.slope + new * slope,
            weight=total,
        )

    def weighed(self, weights: FloatArray) -> tuple[Any, Any, Any]:
        """Return Σ weight_b of value, slope and bend, for one or many weights."""
        return (
            weights @ self.value,
            weights @ self.slope,
            np.tensordot(weights, self.bend, axes=1),
        )


def _by_models(asking: Asking, settings: Settings) -> Flow[Trained]:
    """Noisy Exact and Noisy FirstOrder: see the module."""
    problem, plan = asking.problem, asking.plan
    sets, member = blocks_of(problem.cells)
    people = np.maximum(sets @ problem.silo_weights.sum(axis=0), 1.0)
    p = problem.n_parameters
    if plan.method == "exact":
        bend = yield from _curvature(asking)
    else:
        size = settings.curvature * plan.privacy.clip**2 / 4
        bend = size * people[:, None, None] * np.eye(p)
    model, w = Quadratic.none(bend), np.zeros(p)
    lam, rows = np.zeros(problem.n_cells), []
    given: dict[str, Any] = {
        "named": {"gradients": "gradients", "losses": "losses"},
        "loss_bound": asking.loss_bound,
    }
    for number in range(1, plan.rounds + 1):
        query = asking.query(Expand, problem.task, w, **given)
        total: Any = yield from ask(query)
        gradients = query.real(total, "gradients")
        losses = _losses(query, total, people)
        model = model.with_round(w, losses, gradients, float(number))
        rows.append(_round(problem, number, w, losses, people, member, lam))
        w, lam = _saddle(problem, model, member, people, lam)
    return Trained(Point(w, lam), tuple(rows))


def _losses(
    query: Releasable[Any], total: ReleasedSums, people: FloatArray
) -> FloatArray:
    if "losses" not in query.asked_for:
        return np.zeros(len(people))
    return query.real(total, "losses")


def _curvature(asking: Asking) -> Flow[FloatArray]:
    """Release Σ¼xxᵀ of each block, and lift it above every Hessian.

    The least eigenvalue of a symmetric matrix with noise σ in its upper triangle is
    above −σ(2√p + √2·z) but with probability e^{−z²/2}.
    """
    p, task = asking.problem.n_parameters, asking.problem.task
    named = {"curvatures": "curvature"}
    query = asking.query(Expand, task, np.zeros(p), 2, named=named)
    total: Any = yield from ask(query)
    sigma = query.deviation("curvatures", asking.adding)
    lift = sigma * (2 * math.sqrt(p) + math.sqrt(2) * SURE)
    found = unfolded(query.real(total, "curvatures"), p) + lift * np.eye(p)
    values, vectors = np.linalg.eigh(found)
    kept = np.maximum(values, 1e-9 * np.abs(values).max())
    return np.einsum("kij,kj,klj->kil", vectors, kept, vectors)


def _saddle(
    problem: Problem,
    model: Quadratic,
    member: BoolArray,
    people: FloatArray,
    lam: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Minimise βF + (βμ/2)‖w‖² + B·max(0, max r) of quadratic models."""
    beta, B, p = problem.risk_weight, problem.multiplier_bound, problem.n_parameters
    ones = np.ones(len(people)) / people.sum()
    inside = member / np.maximum(member @ people, 1.0)[:, None]
    cells = model.weighed(inside)
    risk = model.weighed(ones)
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

    w, r, bend = best(lam)
    for _ in range(INNER if z else 0):
        jacobian = cells[1] + cells[2] @ w
        matrix = jacobian @ np.linalg.solve(bend, jacobian.T)
        there = maximise_capped(matrix, r, lam, B, z)
        if there is None or np.allclose(there, lam, rtol=1e-9, atol=1e-12):
            break
        value, step = dual(lam, w, r), 1.0
        while step > 1e-4:
            tried = lam + step * (there - lam)
            found = best(tried)
            if dual(tried, found[0], found[1]) >= value:
                break
            step /= 2
        else:
            break
        lam, (w, r, bend) = tried, found
    return w, lam


def _by_steps(asking: Asking, settings: Settings) -> Flow[Trained]:
    """DP-PFFL and DP-FedAvg: one gradient step a round; the mean of the later half."""
    problem, plan = asking.problem, asking.plan
    fair = plan.method == "pffl" and problem.n_cells > 0
    sets, member = blocks_of(problem.cells)
    people = np.maximum(sets @ problem.silo_weights.sum(axis=0), 1.0)
    p, beta = problem.n_parameters, problem.risk_weight if fair else 1.0
    inside = member / np.maximum(member @ people, 1.0)[:, None]
    w, theta, rows = np.zeros(p), np.zeros(problem.n_cells), []
    mean, lam_mean, half = np.zeros(p), np.zeros(problem.n_cells), plan.rounds // 2
    given: dict[str, Any] = {
        "named": {"gradient": "gradients", "losses": "losses" if fair else ""},
        "loss_bound": asking.loss_bound,
        "people": float(people.sum()),
    }
    counted = np.maximum(member @ people, 1.0)
    for number in range(1, plan.rounds + 1):
        lam = capped_softmax(theta, problem.multiplier_bound) if fair else theta * 0
        step = (beta, lam / counted, np.ones(1))
        query = asking.query(Train, problem.task, w, *step, **given)
        total: Any = yield from ask(query)
        gradient = query.heaviest * query.real(total, "gradient")
        losses = _losses(query, total, people)
        if fair:
            r = inside @ losses - problem.cells.bounds
            theta = theta + settings.dual_step * r
        rows.append(_round(problem, number, w, losses, people, member, lam))
        # In units of the heaviest weight: the step is as long as the sum is steep.
        size = settings.step / (beta + float(lam.sum()))
        w = w - size * (gradient + beta * problem.mu * w)
        if number > half:
            mean, lam_mean = mean + w, lam_mean + lam
    many = plan.rounds - half
    return Trained(Point(mean / many, lam_mean / many), tuple(rows))


def _round(
    problem: Problem,
    number: int,
    w: FloatArray,
    losses: FloatArray,
    people: FloatArray,
    member: BoolArray,
    lam: FloatArray,
) -> Round:
    """Return a round of the history, by released figures."""
    risk = float(losses.sum() / people.sum()) + problem.ridge(w)
    r = (member @ losses) / np.maximum(member @ people, 1.0) - problem.cells.bounds
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
