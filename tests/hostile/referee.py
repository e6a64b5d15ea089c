"""What the judge holds against a solution: each complaint is a false statement."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tests.hostile import words
from tests.hostile.judge import Judge, judge_of
from tests.hostile.problems import Hostile
from tests.oracles import Solved

CROSSED = 1.001e-4  # of a bound: what the predictor's limits may add to a loss
TOLERANCE = 1e-6  # of the bound, or of a constant model's loss: what `met` overlooks


@dataclass(eq=False)
class Case:
    """A solution, its judge, and what the judge found out so far."""

    solution: Solved
    judge: Judge
    found: Finding
    hostile: Hostile | None = None

    @property
    def names(self) -> list[str]:
        """Of the cells."""
        return self.solution.names

    @cached_property
    def means(self) -> np.ndarray:
        """Mean own loss of each cell: training rows are judged by it."""
        return self.judge.means(self.judge.losses(self.solution.w))

    def shipped_means(self, other: Judge) -> np.ndarray:
        """Mean loss of each cell of other rows under the predictor that is shipped."""
        return shipped(self.solution, other)

    def shipped_losses(self, other: Judge) -> np.ndarray:
        """Loss of each of other rows under the predictor that is shipped."""
        return shipped_losses(self.solution, other)

    @cached_property
    def noise(self) -> np.ndarray:
        """What the product's double sums may hide of a cell's mean loss."""
        size = np.abs(self.judge.bounds) + self.means.astype(float)
        return 1e-12 * size + 1e-14 * self.judge.constants().astype(float)

    def blur(self, w: object) -> float:
        """What doubles may hide of a mean loss where weights are long."""
        judge, v = self.judge, np.abs(np.asarray(w, dtype=float))
        longest = (np.abs(judge.double) @ v.reshape(judge.loss.outputs, -1).T).max()
        slopes = np.abs(judge.loss.slopes(judge.scores(w), judge.y)).max()
        return float(1e-15 * len(v) * longest * slopes)

    @cached_property
    def tolerance(self) -> np.ndarray:
        """What `met` may overlook, if it says so."""
        scale = np.minimum(self.judge.constants().astype(float), self.judge.bounds)
        return TOLERANCE * scale

    def least(self, bounds: np.ndarray) -> tuple[float, float]:
        """The smallest max_z (loss_z − bound_z) known, and ‖w‖ of the model."""
        shape = tuple(np.round(bounds - bounds.max(), 15))
        if shape not in self._known:
            bare = self.judge.with_bounds(bounds - bounds.max())
            worst, w = bare.smallest_excess(self.solution.w)
            self._known[shape] = float(worst), float(np.sqrt(w @ w))
        worst, length = self._known[shape]
        return worst - float(bounds.max()), length

    @cached_property
    def _known(self) -> dict[tuple[float, ...], tuple[float, float]]:
        return {}


@dataclass
class Finding:
    """One problem, solved and judged."""

    number: int
    status: str = ""
    complaints: list[str] = field(default_factory=list)
    gap: float = float("nan")
    true_gap: float = float("nan")
    rounds: int = 0
    facts: dict[str, object] = field(default_factory=dict)


def examine(hostile: Hostile) -> Finding:
    """Solve a problem and look for a false statement."""
    solution = hostile.solve()
    found = Finding(
        hostile.number, solution.status, rounds=solution.rounds, facts=hostile.facts
    )
    judge = judge_of(solution, hostile.federation, "train")
    case = Case(solution, judge, found, hostile)
    for look in LOOKS:
        found.complaints += [f"{look.__name__}: {text}" for text in look(case)]
    return found


def shipped(solution: Solved, judge: Judge) -> np.ndarray:
    """Mean loss of each cell under the predictor that is shipped."""
    return judge.means(shipped_losses(solution, judge))


def shipped_losses(solution: Solved, judge: Judge) -> np.ndarray:
    """Loss of each row under the predictor that is shipped."""
    scores = judge.scores(solution.w)
    M, span = solution.loss_bound, solution.target_range
    return judge.loss.bounded(scores, judge.y, M, span)


def gap(case: Case) -> list[str]:
    """The printed gap is at least the true one, and λ is one that is allowed."""
    solution, judge = case.solution, case.judge
    stated, radius, lam = solution.gap, solution.gap_radius, solution.multipliers
    if stated is None or radius is None:
        return []
    out = []
    if (lam < 0).any() or lam.sum() > judge.budget * (1 + 1e-12):
        out.append(f"Σλ = {lam.sum()} with B = {judge.budget}")
    aimed = judge.with_bounds(solution.aimed)
    true = aimed.true_gap(solution.w, lam, radius=radius)
    case.found.gap, case.found.true_gap = stated, float(true)
    # The judge's own sums err by no more than this.
    top = float(abs(aimed.upper(solution.w)))
    own = 1e-17 * (top + judge.budget * float(abs(judge.bounds).max(initial=0.0)))
    if true > stated + own:
        out.append(f"{stated:.3g} is stated, and is {float(true):.3g} at least")
    return out


def met(case: Case) -> list[str]:
    """`met` is true of the model, up to what it says; what is shipped does not cross.

    The shipped predictor is above no bound that is met, by more than 1e-4 of it.
    """
    solution, judge = case.solution, case.judge
    if not solution.has_bounds:
        return []
    excess = (case.means - judge.bounds).astype(float)
    z = int(excess.argmax())
    stands = f"{excess[z]:.3g} above {judge.bounds[z]:.3g}"
    if solution.status == "met":
        if (excess > case.tolerance + case.noise).any():
            return [stands]
        if (excess > case.noise).any() and not solution.says_tolerance:
            return [f"{stands}, which the sentence does not say"]
        kept = case.shipped_means(judge).astype(float)
        if (kept > judge.bounds * (1 + CROSSED) + case.noise).any():
            return [f"{kept} is shipped, with bounds {judge.bounds}"]
    elif excess[z] < -case.noise.max() and solution.status in (
        *("impossible", "not met"),
    ):
        return [f"{solution.status}, but {stands}"]
    return []


def infeasible(case: Case) -> list[str]:
    """`infeasible` is false if any model keeps all bounds."""
    solution, judge = case.solution, case.judge
    if solution.status != "impossible":
        return []
    reach = solution.reach
    worst, length = case.least(judge.bounds)
    if worst <= 0 and length <= reach:
        return [f"a model has {-worst:.3g} of room, ‖w‖ = {length:.3g}"]
    if solution.witness is None:
        return ["without a witness"]
    lam = solution.witness
    if (lam < 0).any() or not np.isclose(lam.sum(), 1.0):
        return [f"a witness of {lam.sum()}"]
    v = judge.best_response(lam, solution.w, beta=0.0, radius=reach)
    value, length = float(judge.value(v, lam, 0.0)), float(np.sqrt(v @ v))
    return [f"λᵀr = {value:.3g} at ‖w‖ = {length:.3g}"] if value <= 0 else []


def smallest(case: Case) -> list[str]:
    """No model beats a smallest bound, and one attains its upper end."""
    out = []
    for name, least in case.solution.enclosures.items():
        offsets = least.offsets
        at, length = case.least(offsets)
        own = float(case.judge.with_bounds(offsets).violation(least.model).max())
        noise = 1e-12 * (abs(own) + float(np.abs(offsets).max()))
        noise += float(case.noise.max()) + case.blur(least.model)
        if at < least.lower - 1e-18 * abs(at) and length <= least.reach:
            out.append(f"{name} {least.lower:.9g} is beaten by {at:.9g}")
        if own > least.upper + noise:
            out.append(f"{name} {least.upper:.9g} is not attained: {own:.9g}")
        if least.lower > least.upper:
            out.append(f"{name} {least.lower} > {least.upper}")
    return out


LOOKS = (
    *(gap, met, infeasible, smallest),
    *(words.sentence, words.certificate),
    *(words.heldout, words.feasible),
)
