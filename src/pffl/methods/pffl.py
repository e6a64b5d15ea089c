"""PFFL: Algorithm 1 of *Fair Federated Learning via Bounded Group Loss*.

Shengyuan Hu, Zhiwei Steven Wu, Virginia Smith. Corrected as docs/paper.md says.

    1      θ ← 0, w ← 0
    2      for e = 1 … E:                                       dual rounds
    3          λ_z ← B e^{θ_z} / (1 + Σ e^θ)                    numerics.capped_softmax
    4          for t = 1 … T:                                   rounds per dual round
    5-10           each silo: J steps of size η_w on G_k(·; λ)  queries.train
                   w ← w + Σ p_k Δ_k / Σ p_k
    11             w̄, λ̄ ← averages over all E·T rounds
    13         θ ← θ + η_θ r(w)
    15     return (w̄, λ̄)

w are the model's parameters, λ_z ≥ 0 the multiplier of the bound ζ_z on cell z and
r_z(w) = (mean loss of z) − ζ_z its violation. Silo k descends its part G_k of
G(w; λ) = βF(w) + λᵀr(w), with F the mean loss over silos, and p_k is its weight.

`run` is a generator: each `yield from trainer.round(w, λ)` sends w and λ to the silos
and receives the sums of their updates and losses, from which the next w and r follow;
`yield Round(…)` tells whoever watches which pair would be returned now.

Unless `dual_split` is set, r in line 13 is taken at the w that was sent in the last of
the T rounds: it comes with the same reply, and no extra round is spent on it.

Beyond the paper, each by its own parameter: what silos and server do (`local.Trainer`),
averages in which later rounds count more (line 11), an η_θ that follows how r answered
(line 13, `local.DualStep`), violations of rows that w is not trained on (line 13), and
an end as soon as the gap of (w̄, λ̄), which `flow.rounds` measures now and then, is
small enough. docs/methods.md, 2 has the settings that converge fastest.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from pffl.flow import Round, Start, Steps
from pffl.methods.base import MULTIPLIER_BOUNDS, Count, Grid, NonNegative, Positive
from pffl.methods.local import (
    DualStep,
    Iterate,
    LocalTraining,
    Part,
    Trainer,
    kept_iterate,
)
from pffl.models.linear import LinearModel
from pffl.numerics import capped_softmax
from pffl.problem import Problem
from pffl.queries import Evaluate
from pffl.typing import FloatArray

FIRST_GAP = 10  # fewest rounds before the first gap, and between two
GAP_SPACING = 1.5  # each gap comes after this many times the rounds of the last


@dataclass(frozen=True, kw_only=True)
class PrimalDual(LocalTraining):
    """The parameters of Algorithm 1, for cells of any kind.

    Parameters
    ----------
    multiplier_bound, risk_weight
        B and β.
    dual_rounds, rounds_per_dual
        E and T.
    dual_step_size
        η_θ; None takes one from the scale of r after the first dual round and then, for
        convex models, what r's answers to the last steps allow.
    """

    multiplier_bound: Positive = 10.0
    risk_weight: NonNegative = 1.0
    dual_rounds: Count = 100
    rounds_per_dual: Count = 10
    dual_step_size: Positive | None = None

    @classmethod
    def within(cls, budget: int, **parameters: Any) -> Self:
        """Build it with as many dual rounds as a budget of local steps allows."""
        steps = int(parameters.get("local_steps", cls.local_steps))
        inner = int(parameters.get("rounds_per_dual", cls.rounds_per_dual))
        return cls(**{**parameters, "dual_rounds": max(1, budget // (steps * inner))})

    @property
    def planned_rounds(self) -> int:
        """E·T."""
        return self.dual_rounds * self.rounds_per_dual


@dataclass(frozen=True, kw_only=True)
class PFFL(PrimalDual):
    """Algorithm 1, as printed: λ begins at B/(Z+1) for every cell.

    So an inactive bound changes the iterates, and less the longer it stays inactive.

    Parameters
    ----------
    multiplier_bound, risk_weight, dual_rounds, rounds_per_dual, dual_step_size
        B, β, E, T and η_θ, see `PrimalDual`.
    target_gap
        Gap ν, in parts of β + Σλ and of the losses' unit, at which it counts as
        converged. Linear models end there: the gap is measured now and then, by an
        `expand` of all silos.
    iterate
        What to return: the paper's "average" over all rounds (guaranteed for convex
        models); a mean in which round t counts t⁷ times, so that the last eighth
        decides ("recent"); the "last"; or the "best" (smallest βF + B·max(0, max r) on
        training rows). None takes the recent for convex models, whose gap is measured
        whatever it is; for others the best, or the last where rounds ask some silos
        only, so that the best would be the luckiest draw.
    dual_split
        The rows whose violations move λ: None for the training rows of the last round,
        as in the paper. A network fits its own rows better than others: "validation"
        takes rows that it is not trained on, by one more query a dual round.
    local_steps, step_size, batch_size, …
        J, η_w and the rest of the local training, see `LocalTraining`.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> method = PFFL(multiplier_bound=5.0, dual_rounds=100, rounds_per_dual=3)
    >>> bounds = pffl.BoundedGroupLoss(0.68)
    >>> solution = pffl.solve(people, bounds, method=method, random_state=0)
    >>> solution.status, solution.rounds
    ('met', 309)
    """

    target_gap: Positive = 1e-2
    iterate: Iterate | None = None
    dual_split: str | None = None
    name: ClassVar[str] = "pffl"
    saddle: ClassVar[bool] = True
    grid: ClassVar[Grid] = {
        "multiplier_bound": MULTIPLIER_BOUNDS,
        "iterate": ("recent", "average"),
    }

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Algorithm 1 of Hu, Wu and Smith (corrections: docs/paper.md)."""
        trainer = Trainer(problem, self, problem)
        yield from trainer.tune()  # step sizes
        theta, w = np.zeros(problem.n_cells), problem.start()  # line 1
        averages = kept_iterate(trainer, self.returned(problem))
        length = partial(mirror_length, bound=problem.multiplier_bound)
        dual_step = DualStep(self.dual_rounds, self.dual_step_size, problem, length)
        for _ in range(self.dual_rounds):  # line 2
            lam = capped_softmax(theta, problem.multiplier_bound)  # line 3
            for _ in range(self.rounds_per_dual):  # line 4
                w, r = yield from trainer.round(
                    w, lam
                )  # lines 5 to 10; r is of the w sent
                averages.add(w, lam)  # line 11
                yield Round(averages.point())
            if self.dual_split is not None:
                r = yield from violation_on(problem, w, self.dual_split)
            theta = theta + dual_step(theta, r) * np.nan_to_num(r)  # line 13
        return averages.point()  # line 15

    def returned(self, problem: Problem) -> Iterate:
        """Which iterate is returned."""
        if self.iterate is not None or problem.task.model.convex:
            return self.iterate or "recent"
        return "best" if self.silos(problem, 0) is None else "last"

    def normalizes(self, problem: Problem) -> bool:
        """Whether silos divide their steps by the weight of their rows.

        With `by_mass` unset: as `LocalTraining` says, but not where the paper's average
        or a step size is asked for.
        """
        free = self.by_mass is None and problem.risk_weight > 0
        convex = problem.task.model.convex
        ours = self.step_size is None and self.iterate != "average"
        return (free and (ours or not convex)) or super().normalizes(problem)

    @property
    def planned_rounds(self) -> int:
        """At most E·T, and those that measure gaps, or violations on other rows."""
        on_others = 0 if self.dual_split is None else self.dual_rounds
        return super().planned_rounds + len(self._gap_rounds) + on_others

    def gap_rounds(self, problem: Problem) -> Container[int]:
        """Rounds after which the gap is measured: linear models, all silos asked."""
        linear = isinstance(problem.task.model, LinearModel)
        whole = self.silos(problem, 0) is None
        return self._gap_rounds if linear and whole else ()

    @property
    def _gap_rounds(self) -> tuple[int, ...]:
        """Ends of dual rounds: FIRST_GAP apart at first, then ever further."""
        found, inner = [0], self.rounds_per_dual
        while found[-1] < self.dual_rounds * inner:
            wait = math.ceil((GAP_SPACING - 1.0) * found[-1])
            found.append(found[-1] + math.ceil(max(FIRST_GAP, wait) / inner) * inner)
        return tuple(found[1:-1])


def mirror_length(theta: FloatArray, v: FloatArray, bound: float) -> float:
    """Return √vᵀDv with D = ∂λ/∂θ: how far λ moves with θ, relative to λ."""
    lam = capped_softmax(theta, bound)
    return math.sqrt(max(0.0, float(lam @ v**2) - float(lam @ v) ** 2 / bound))


def violation_on(problem: Problem, w: FloatArray, split: str) -> Part[FloatArray]:
    """Ask for r on the rows of a split; NaN for cells without rows there."""
    total = yield Evaluate(problem.task, w, split)
    rows = total.column("weight", of="cells")[: problem.n_cells]
    losses = total.column("loss", of="cells")[: problem.n_cells]
    means = np.full_like(rows, np.nan)
    np.divide(losses, rows, out=means, where=rows > 0)
    return means - problem.cells.bounds
