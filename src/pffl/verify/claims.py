"""Check the claims on the rows at hand: gap, slack, impossibility, least bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pffl.certificates import Statement
from pffl.certify.basis import Basis
from pffl.typing import FloatArray
from pffl.verify.check import BOUNDS, SUMS, Check, same
from pffl.verify.least import least
from pffl.verify.plain import Plain

TOLERANCE = 1e-6  # a loss this little above its bound counts as met
#: What a lower bound may exceed an attained value by, relative to 1: rounding.
ROUNDING = 1e-10


@dataclass(frozen=True, eq=False)
class Case:
    """All that claims are checked against."""

    basis: Basis
    rows: Plain
    w: FloatArray
    multipliers: FloatArray

    @property
    def bounds(self) -> FloatArray:
        """ζ, shape (Z,)."""
        return self.basis.bounds

    def risk(self, w: FloatArray) -> float:
        """Return F(w)."""
        ridge = 0.5 * self.basis.model.l2 * float(w @ w)
        return float(self.rows.risk_weights @ self.rows.losses(w)) + ridge

    def plane(self, lam: FloatArray, zeta: FloatArray, at: FloatArray) -> float:
        """Return the least value, over the ball, of the plane of λᵀ(means − ζ)."""
        weights = self.rows.cell_weights(lam)
        value = float(weights @ self.rows.losses(at)) - float(lam @ zeta)
        g = self.rows.gradient(at, weights)
        return value - float(g @ at) - self.basis.radius * float(np.linalg.norm(g))

    def least(self, lam: FloatArray, zeta: FloatArray) -> float:
        """Return how low λᵀ(means − ζ) goes in the ball, by an independent search."""
        weights = self.rows.cell_weights(lam)
        found = least(self.rows, weights, radius=self.basis.radius)
        return found.value - float(lam @ zeta)


def gap(case: Case, statement: Statement) -> Iterator[Check]:
    """Measure the upper end again; search below the lower end."""
    basis, inputs = case.basis, statement.inputs
    worst = float((case.rows.means(case.w) - case.bounds).max(initial=0.0))
    upper = basis.risk_weight * case.risk(case.w)
    upper += basis.multiplier_bound * max(0.0, worst)
    yield same("gap: upper end", inputs["upper"], upper, tolerance=SUMS)
    weights = basis.risk_weight * case.rows.risk_weights
    weights = weights + case.rows.cell_weights(case.multipliers)
    ball = None if basis.modulus > 0 else basis.radius
    found = least(case.rows, weights, ridge=basis.modulus, radius=ball)
    value = found.value - float(case.multipliers @ case.bounds)
    yield _below("gap: lower end", inputs["lower"], value)


def empirical(case: Case, statement: Statement) -> Iterator[Check]:
    """Compute the slack again, and where its M comes from."""
    inputs: Mapping[str, Any] = statement.inputs
    tolerance = TOLERANCE if case.basis.trained else 0.0
    yield same("empirical: tolerance", inputs["tolerance"], tolerance)
    if inputs.get("slack") is None:
        return
    basis, M = case.basis, float(inputs["risk_bound"])
    slack = (basis.risk_weight * M + 2.0 * float(inputs["gap"])) / (
        basis.multiplier_bound
    )
    yield same("empirical: slack", inputs["slack"], slack, tolerance=SUMS)
    if inputs["risk_bound_from"] == "feasible model":
        model = np.asarray(inputs["feasible_model"], dtype=np.float64)
        worst = float((case.rows.means(model) - case.bounds).max())
        what = "empirical: the feasible model meets every bound"
        yield Check(what, "at most 0", worst, worst <= SUMS)
        found = case.risk(model)
    else:
        found = implied_risk(case)
    yield same("empirical: bound of the risk", M, found, tolerance=BOUNDS)


def implied_risk(case: Case) -> float:
    """Return the largest F of any model that meets all bounds, by a linear program.

    The losses of rows in one silo and one set of cells are one unknown sum.
    """
    from scipy.optimize import linprog

    rows, basis = case.rows, case.basis
    keys = np.column_stack([rows.silo, rows.members.T])
    kinds, place = np.unique(keys, axis=0, return_inverse=True)
    place = place.reshape(-1)
    price = np.zeros(len(kinds))
    price[place] = rows.risk_weights
    scale = float(price.max())
    answer = linprog(
        -price / scale,
        A_ub=kinds[:, 1:].T,
        b_ub=rows.counts * case.bounds,
        bounds=(0, None),
        method="highs",
    )
    value = np.inf if answer.fun is None else -float(answer.fun) * scale
    return value + 0.5 * basis.model.l2 * basis.radius**2


def infeasible(case: Case, statement: Statement) -> Iterator[Check]:
    """Check the witness: its plane, and a search that must stay above 0."""
    inputs: Mapping[str, Any] = statement.inputs
    lam = np.asarray(inputs["multipliers"], dtype=np.float64)
    at, stated = np.asarray(inputs["w"], dtype=np.float64), float(inputs["bound"])
    yield _simplex("infeasible: multipliers", lam)
    plane = case.plane(lam, case.bounds, at)
    yield same("infeasible: bound of the witness", stated, plane, tolerance=BOUNDS)
    found = case.least(lam, case.bounds)
    what = "infeasible: independent search for a model that meets all bounds"
    detail = "the smallest Σλr found over the ball; above 0, no model meets all"
    yield Check(what, "above 0", found, found > 0, detail)
    yield _below("infeasible: how far above", stated, found)


def attainable(case: Case, statement: Statement) -> Iterator[Check]:
    """Check both ends: one is proved by multipliers, the other attained by a model."""
    inputs: Mapping[str, Any] = statement.inputs
    lam = np.asarray(inputs["multipliers"], dtype=np.float64)
    model = np.asarray(inputs["model"], dtype=np.float64)
    at, cell = np.asarray(inputs["at"], dtype=np.float64), inputs["cell"]
    name = "smallest common bound" if cell is None else f"smallest bound of '{cell}'"
    length = float(np.linalg.norm(model))
    inside = length <= case.basis.radius * (1 + SUMS)
    yield Check(
        f"{name}: model inside the ball",
        f"at most {case.basis.radius:g}",
        length,
        inside,
    )
    means = case.rows.means(model)
    zeta = case.bounds.copy()
    if cell is None:
        yield _simplex(f"{name}: multipliers", lam)
        attained, zeta = float(means.max()), np.zeros(len(zeta))
    else:
        place = case.basis.names.index(str(cell))
        others = float(np.delete(means - zeta, place).max(initial=-np.inf))
        what = f"{name}: the other bounds are kept"
        yield Check(what, "at most 0", others, others <= SUMS)
        yield same(f"{name}: its own multiplier", float(lam[place]), 1.0)
        attained, zeta[place] = float(means[place]), 0.0
    yield same(f"{name}: upper end", inputs["upper"], attained, tolerance=SUMS)
    # The lower end is cut at 0 and at the upper end.
    plane = min(max(0.0, case.plane(lam, zeta, at)), attained)
    yield same(f"{name}: lower end", inputs["lower"], plane, tolerance=BOUNDS)
    found = case.least(lam, zeta)
    yield _below(f"{name}: lower end, by an independent search", inputs["lower"], found)


def _simplex(what: str, lam: FloatArray) -> Check:
    total = float(lam.sum())
    agrees = bool((lam >= 0).all()) and abs(total - 1.0) <= SUMS
    return Check(what, "≥ 0 with sum 1", total, agrees)


def _below(what: str, stated: object, found: float) -> Check:
    """A lower bound must not be above a value that is attained."""
    lower = float(stated)  # type: ignore[arg-type]
    agrees = lower <= found + ROUNDING * max(1.0, abs(found))
    detail = "nothing can be below the stated, and a model at the found was found"
    return Check(what, lower, found, agrees, "" if agrees else detail)
