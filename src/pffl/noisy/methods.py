"""Methods that train from released sums: few rounds, each with noise.

Every round asks, at one w, for gradients and loss sums over disjoint sets of rows (or
one weighted sum of gradients), and all else is arithmetic on what came back.

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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pffl.flow import Flow, Round, ask, ask_all
from pffl.methods.base import Method
from pffl.methods.fedavg import FedAvg
from pffl.methods.pffl import PFFL
from pffl.methods.saddle import maximise_capped
from pffl.noisy.plan import Plan, blocks_of
from pffl.numerics import capped_softmax
from pffl.problem import Point, Problem
from pffl.queries import Noised, NoisedTotal
from pffl.queries.noised import Adding, unfolded
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


def settings_of(method: Method[Any]) -> Settings:
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


@dataclass(frozen=True, eq=False)
class Asking:
    """What a round asks with: the problem, the plan, and who adds noise."""

    problem: Problem
    plan: Plan
    adding: Adding

    def release(
        self,
        w: FloatArray,
        sets: FloatArray,
        *,
        split: str = "train",
        bets: FloatArray | None = None,
        noise: Mapping[str, float],
    ) -> Noised:
        """Return the query for some fields, each with its noise."""
        return Noised(
            self.problem.task,
            w,
            np.array([noise.get(name, 0.0) for name in Noised.fields]),
            sets=sets,
            loss_bound=self.plan.privacy.loss_bound,
            bets=np.zeros(0) if bets is None else bets,
            split=split,
            adding=self.adding,
        )


def train(
    problem: Problem, plan: Plan, adding: Adding, settings: Settings
) -> Flow[Trained]:
    """Train by the method of the plan."""
    asking = Asking(problem, plan, adding)
    steps: dict[str, Callable[[Asking, Settings], Flow[Trained]]] = {
        "exact": _by_models,
        "first-order": _by_models,
        "pffl": _by_steps,
        "fedavg": _by_steps,
    }
    return (yield from steps[plan.method](asking, settings))


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
    sets, member = blocks_of(problem.cells, problem.schema.n_atoms)
    people = np.maximum(sets @ problem.silo_weights.sum(axis=0), 1.0)
    p = problem.n_parameters
    if plan.method == "exact":
        bend = yield from _curvature(asking, sets)
    else:
        size = settings.curvature * plan.privacy.clip**2 / 4
        bend = size * people[:, None, None] * np.eye(p)
    model, w = Quadratic.none(bend), np.zeros(p)
    lam, rows = np.zeros(problem.n_cells), []
    noise = {"gradients": plan.noise("gradients"), "losses": plan.noise("losses")}
    noise = {name: times for name, times in noise.items() if times}
    for number in range(1, plan.rounds + 1):
        query = asking.release(w, sets, noise=noise)
        total: NoisedTotal = yield from ask(query)
        gradients = query.real(total, "gradients")
        losses = _losses(query, total, people)
        model = model.with_round(w, losses, gradients, float(number))
        rows.append(_round(problem, number, w, losses, people, member, lam))
        w, lam = _saddle(problem, model, member, people, lam)
    return Trained(Point(w, lam), tuple(rows))


def _losses(query: Noised, total: NoisedTotal, people: FloatArray) -> FloatArray:
    if "losses" not in query.asked_for:
        return np.zeros(len(people))
    return query.real(total, "losses")


def _curvature(asking: Asking, sets: FloatArray) -> Flow[FloatArray]:
    """Release Σ¼xxᵀ of each set, and lift it above every Hessian.

    The least eigenvalue of a symmetric matrix with noise σ in its upper triangle is
    above −σ(2√p + √2·z) but with probability e^{−z²/2}.
    """
    p, plan = asking.problem.n_parameters, asking.plan
    noise = {"curvatures": plan.noise("curvature")}
    query = asking.release(np.zeros(p), sets, noise=noise)
    total = yield from ask(query)
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
    sets, member = blocks_of(problem.cells, problem.schema.n_atoms)
    people = np.maximum(sets @ problem.silo_weights.sum(axis=0), 1.0)
    p, beta = problem.n_parameters, problem.risk_weight if fair else 1.0
    inside = member / np.maximum(member @ people, 1.0)[:, None]
    w, theta, rows = np.zeros(p), np.zeros(problem.n_cells), []
    mean, lam_mean, half = np.zeros(p), np.zeros(problem.n_cells), plan.rounds // 2
    losses = np.zeros(len(people))
    for number in range(1, plan.rounds + 1):
        lam = capped_softmax(theta, problem.multiplier_bound) if fair else theta * 0
        weights = beta / people.sum() + lam @ inside
        heaviest = float(weights.max())
        asked = [
            asking.release(
                w,
                (weights / heaviest)[None] @ sets,
                noise={"gradients": plan.noise("gradients")},
            )
        ]
        if fair:
            losing = {"losses": plan.noise("losses")}
            asked.append(asking.release(w, sets, noise=losing))
        totals = yield from ask_all(asked)
        gradient = heaviest * asked[0].real(totals[0], "gradients")[0]
        if fair:
            losses = asked[1].real(totals[1], "losses")
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
