"""A model that somebody else's code trains, under bounds: λ, the best iterate, the end.

Whoever carries the training (a strategy of Flower's, a loop in torch) sends w and a
weight for each example, and brings back loss sums of the model that was sent. Here is
what all of them share: the steps of λ (`methods.ascent`), which model is kept, and the
final measurement, after which the model is judged as every other is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from pffl._solve import noted, prepared, setting_of
from pffl.constraints.base import Constraint
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import Problems, UsageError, wrong
from pffl.evidence.measure import (
    Known,
    Measured,
    Wanted,
    evidence_of,
    measure,
    terms_of,
)
from pffl.evidence.record import Missing, Settling, Training
from pffl.fit import shipped_sample
from pffl.flow import Flow, Round
from pffl.methods.ascent import Ascent, example_weights
from pffl.methods.pffl import PFFL
from pffl.models.reported import Reported
from pffl.numerics import bounded_probabilities, is_number
from pffl.prepare import Options
from pffl.problem import Point, Problem, upper_value
from pffl.solution import Solution
from pffl.text import up, words
from pffl.typing import FloatArray

Kept: TypeAlias = Literal["best", "average", "last"]
Groups: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
SWING = 0.05  # of a cell's scale, or of all weight: what swings by more is not settled
UNMEASURED = Missing(
    "needs gradients of all losses, and of somebody else's model there are only sums"
)
ONCE = Missing("one model was trained: train without bounds to compare")
OWN_SEEDS = (
    "the model was trained by code of its own, by its own seeds: a run with the same "
    "settings may end in another model"
)


@dataclass(frozen=True)
class Bounding:
    """What is promised, and how λ moves.

    Attributes
    ----------
    constraint
        What is promised to whom.
    multiplier_bound, risk_weight, dual_step_size
        B, β and η of λ; None finds one.
    iterate
        The model that is kept.
    options
        Confidence, loss bound, empty cells.
    """

    constraint: Constraint
    multiplier_bound: float = 10.0
    risk_weight: float = 1.0
    dual_step_size: float | None = None
    iterate: Kept = "best"
    options: Options = field(default_factory=Options)

    def checked(self, owner: str) -> Bounding:
        """Refuse wrong settings, all at once; rows count alike in all of them."""
        constraint: object = self.constraint
        iterate, step = self.iterate, self.dual_step_size
        with Problems(owner, UsageError) as problems:
            if not isinstance(constraint, Constraint):
                problems.add(wrong("constraint", owner, "a constraint", constraint))
            elif constraint.open:
                problems.add(
                    "[auto-refused] bound = 'auto' needs rows at hand: give a number"
                )
            if iterate not in get_args(Kept):
                one = f"one of {', '.join(get_args(Kept))}"
                problems.add(wrong("iterate", owner, one, iterate))
            if step is not None and not (is_number(step) and step > 0):
                problems.add(wrong("dual_step_size", owner, "> 0", step))
        return replace(self, options=replace(self.options, weighting="rows"))

    @property
    def method(self) -> PFFL:
        """Algorithm 1 with these prices."""
        B, beta = self.multiplier_bound, self.risk_weight
        return PFFL(multiplier_bound=B, risk_weight=beta)


def named(
    groups: Groups, labels: Sequence[str] | None, owner: str
) -> tuple[list[tuple[str, list[str]]], list[str]]:
    """Return attributes with their values, and labels; refuse what are no names."""
    attributes = groups if isinstance(groups, Mapping) else {"group": groups}
    with Problems(owner, UsageError) as problems:
        if any(isinstance(values, str) for values in attributes.values()):
            problems.add(
                "[wrong-value] `groups=` are a list of names, or a mapping to such"
            )
        if isinstance(labels, str) or (labels is not None and len(labels) < 2):
            problems.add(
                "[wrong-value] `labels=` are two names or more, or None for a number"
            )
    listed = [(str(n), [str(v) for v in values]) for n, values in attributes.items()]
    return listed, [] if labels is None else [str(label) for label in labels]


@dataclass
class Outside:
    """Where a run stands; `sent` and `reached` are the models before and after a round.

    Attributes
    ----------
    problem, model, rounds, begun
        What is solved, the model, rounds that are planned, and when it began.
    ascent, multipliers
        The steps of λ, and the λ that is in use.
    best
        The model to keep so far, with what it is worth.
    diverged
        Whether a loss or a model was not finite.
    """

    bounding: Bounding
    problem: Problem
    model: Reported
    ascent: Ascent
    rounds: int
    begun: float
    notes: list[str]
    sent: FloatArray
    reached: FloatArray
    multipliers: FloatArray
    history: list[Round] = field(default_factory=list)
    best: tuple[tuple[bool, float], FloatArray, FloatArray] | None = None
    total: FloatArray | None = None
    multiplier_sum: FloatArray | None = None
    summed: int = 0
    diverged: bool = False

    @classmethod
    def begin(
        cls,
        bounding: Bounding,
        engine: Engine,
        model: Reported,
        first: FloatArray,
        rounds: int,
        begun: float,
    ) -> Outside:
        """Ask the census, and start at the arrays given."""
        problem, notes = prepared(
            engine, bounding.constraint, model, bounding.method, bounding.options, 0
        )
        ascent = Ascent.begin(problem, bounding.dual_step_size)
        at = (first, first, ascent.multipliers)
        return cls(bounding, problem, model, ascent, rounds, begun, list(notes), *at)

    @property
    def minimax(self) -> bool:
        """Whether the worst cell is made as good as possible, without bounds."""
        return self.bounding.constraint.minimax

    def weights(self) -> tuple[FloatArray, FloatArray]:
        """Take λ into use; return weights by silo, and those of a silo not known."""
        problem = self.problem
        lam = self.ascent.multipliers
        everywhere = np.where(problem.cells.everywhere, lam, 0.0)
        self.multipliers = lam
        return example_weights(problem, lam), example_weights(problem, everywhere)[0]

    def step(
        self,
        counts: FloatArray,
        losses: FloatArray,
        number: int,
        others: tuple[FloatArray, FloatArray] | None = None,
    ) -> None:
        """Take sums by silo and atom: r at the model that was sent, and the next λ.

        `others` are counts and losses of rows that the model is not trained on: where
        there are any, λ moves by their violations.
        """
        problem = self.problem
        r = self.violation(counts, losses)
        risk = float(losses.sum() / max(counts.sum(), 1.0))
        if not (np.isfinite(losses).all() and np.isfinite(self.sent).all()):
            self.diverged = True
            return
        upper = upper_value(risk, r, problem)
        seconds = time.monotonic() - self.begun
        largest = float(np.nanmax(r + problem.cells.bounds, initial=risk))
        row = Round(
            multipliers=self.multipliers,
            number=number,
            risk=risk,
            violation=r,
            upper=upper,
            seconds=seconds,
            loss=largest,
            planned=self.rounds,
            problem=problem,
        )
        self.history.append(row)
        reached = self.worth(risk, r)
        if not np.isnan(reached[1]) and (self.best is None or reached < self.best[0]):
            self.best = (reached, self.sent, self.multipliers)
        self.ascent = self.ascent.after(
            r if others is None else self.violation(*others)
        )

    def violation(self, counts: FloatArray, losses: FloatArray) -> FloatArray:
        """Return r from sums by silo and atom; NaN for cells without rows."""
        cells = self.problem.cells
        many, sums = cells.totals(counts), cells.totals(losses)
        means = np.full(len(many), np.nan)
        np.divide(sums, many, out=means, where=many > 0)
        return np.asarray(means - cells.bounds)

    def worth(self, risk: float, violation: FloatArray) -> tuple[bool, float]:
        """Return whether a bound is missed, and βF + B·max(0, max r); less is best."""
        met = bool((violation <= 0).all())
        return not (met or self.minimax), upper_value(risk, violation, self.problem)

    def reach(self, w: FloatArray, number: int) -> None:
        """Take the model after a round; average those of the last half of them."""
        self.reached = w
        if self.bounding.iterate != "average" or 2 * number <= self.rounds:
            return
        lam = self.multipliers
        self.total = w if self.total is None else self.total + w
        before = self.multiplier_sum
        self.multiplier_sum = lam if before is None else before + lam
        self.summed += 1

    def settling(self) -> Settling:
        """Say how far losses and weights swung over the last half of the rounds."""
        last = self.history[-((len(self.history) + 1) // 2) :]
        scales = self.problem.scales
        if len(last) < 2:
            return Settling(len(last), [None] * len(scales), SWING)
        losses = np.array([row.violation for row in last]) / scales
        lam = np.array([row.multipliers for row in last])
        shares = lam / (self.problem.risk_weight + lam.sum(axis=1, keepdims=True))
        jumps = np.sqrt(np.square(np.diff(losses, axis=0)).mean(axis=0))
        known = [
            [float(one) if np.isfinite(one) else None for one in row]
            for row in (losses.std(axis=0), jumps)
        ]
        weights = shares.std(axis=0).tolist()
        return Settling(len(last), known[0], SWING, known[1], weights)

    def concluded(
        self,
        engine: Engine,
        described: Mapping[str, Any],
        messages: int,
        notes: Sequence[str] = (),
    ) -> Solution:
        """Measure the model, and put together what is known of it."""
        bounding, setting = self.bounding, setting_of(engine)
        wanted = Wanted(
            setting.splits,
            weighted=False,
            confidence=bounding.options.confidence,
        )
        w, lam, M, measured = drive(engine, concluding(self, wanted))
        problem, constraint = self.problem, bounding.constraint
        terms = terms_of(
            problem, replace(wanted, loss_bound=M), bounding.options.weighting
        )
        B, beta = problem.multiplier_bound, problem.risk_weight
        prices = {"multiplier_bound": B, "risk_weight": beta}
        steps = {"dual_step_size": bounding.dual_step_size, "iterate": bounding.iterate}
        training = Training(
            {**described, "rounds": self.rounds, **prices, **steps},
            dict(constraint.describe()),
            0,
            len(self.history),
            "diverged" if self.diverged else None,
            {"asked": messages, "distinct": messages, "messages": messages},
            time.monotonic() - self.begun,
            settling=self.settling(),
        )
        evidence = evidence_of(
            replace(setting.data, trained_on=setting.data.fingerprint),
            problem,
            Point(w, lam),
            measured,
            terms,
            training=training,
            promise=not constraint.minimax,
            minimax=constraint.minimax,
            notes=[
                *self.notes,
                OWN_SEEDS,
                *told_of(M),
                *noise_of(training.settling, problem.cells.names),
                *notes,
            ],
        )
        rows = tuple(self.history)
        solution = Solution(w, lam, problem, rows, evidence, engine.encoding)
        return noted(solution, engine.notes)


def concluding(
    run: Outside, wanted: Wanted
) -> Flow[tuple[FloatArray, FloatArray, float | None, Measured]]:
    """Choose the model, M on training rows, and measure held-out rows once, at last."""
    problem, kept = run.problem, run.bounding.iterate
    w, lam = run.reached, run.multipliers
    if kept == "average" and run.total is not None and run.multiplier_sum is not None:
        w, lam = run.total / run.summed, run.multiplier_sum / run.summed
        w = run.model.vector(run.model.arrays(w))  # in the arrays' own types
    if not np.isfinite(w).all() and run.best is not None:
        run.diverged, (_, w, lam) = True, run.best
    M, seen = yield from shipped_sample(problem, w, wanted)
    own = run.worth(seen.risk / seen.share, seen.own_means - problem.cells.bounds)
    if kept == "best" and run.best is not None and run.best[0] < own:
        _, w, lam = run.best
        M, seen = yield from shipped_sample(problem, w, wanted)
    nothing = replace(Known.nothing(UNMEASURED, seen=seen), free=ONCE)
    flow = measure(problem, Point(w, lam), replace(wanted, loss_bound=M), nothing)
    return w, lam, M, (yield from flow)


def told_of(M: float | None) -> list[str]:
    """Say what predictor speaks on held-out rows, and for people not seen."""
    if M is None:
        return []
    return [
        "what is said of held-out rows and of people not seen is said of the model "
        "with its probabilities kept so far from 0 that no loss is above "
        f"{words(M)} (pffl.external.bounded does it)"
    ]


def noise_of(found: Settling | None, names: Sequence[str]) -> list[str]:
    """Say whose losses are noisy from round to round, if it is more than a little."""
    if found is None or not any(found.noisy):
        return []
    swing = [
        s or 0.0 if noise else 0.0
        for s, noise in zip(found.swing, found.noisy, strict=True)
    ]
    z = int(np.argmax(swing))
    return [
        f"in the last {found.rounds:,} rounds the mean loss of '{names[z]}' moved to "
        f"and fro by {up(swing[z])} of what a constant guess loses (its standard "
        "deviation), while the weights of the cells stood still: noise of the "
        "training, which a smaller learning rate or larger batches would lessen"
    ]


def bounded(probabilities: Any, loss_bound: float) -> FloatArray:
    """Return class probabilities kept so far from 0 that no loss is above a bound.

    Parameters
    ----------
    probabilities
        Of all classes, shape (n, classes).
    loss_bound
        M, as ``solution.loss_bound`` says.

    Examples
    --------
    >>> bounded([[0.001, 0.999]], 3.0).round(3).tolist()
    [[0.05, 0.95]]
    """
    own = np.asarray(probabilities, dtype=np.float64)
    return bounded_probabilities(own, loss_bound, clip=own.shape[1] == 2)
