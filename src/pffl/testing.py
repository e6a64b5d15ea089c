"""What any method or constraint owes, ours or another package's, as checks to run.

    check_method(MyMethod(rounds=5))        # or with a KitSetting of your own
    check_optimum(MyMethod(rounds=500, local_steps=1), lambda sample, w: …)
    check_constraint(MyConstraint(0.6))

Each raises an AssertionError that says what is broken. `METHOD_CHECKS` and
`CONSTRAINT_CHECKS` hold the single checks, for tests that are to name them. The way to
write a method or a constraint is in CONTRIBUTING.md.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pffl._solve import prepared
from pffl.constraints import CONSTRAINTS, BoundedGroupLoss, Cells, Constraint
from pffl.data import Attribute, Federation, Rows, Schema, Silo
from pffl.driver import drive
from pffl.engines import Engine, Local, Reference
from pffl.flow import rounds
from pffl.methods import METHODS, Exact, Method
from pffl.models.base import Model
from pffl.models.scaled import Design
from pffl.prepare import Options, Weighting
from pffl.problem import Point, Problem
from pffl.queries import Evaluate, Query
from pffl.typing import FloatArray, IntArray

CLOSE = 1e-6  # two ways to the same model may differ by so much
MOVED = 1e-4  # a model that did not move by so much did not move
FIXED = {"step_size": 0.1, "dual_step_size": 0.5}
BOUND = BoundedGroupLoss(0.6, by="sex")


def sample_federation(
    seed: int = 0, *, sizes: Sequence[int] = (40, 25, 60), labels: int = 2
) -> Federation:
    """Draw silos that differ, with two attributes; 0 `labels` for a numeric target."""
    rng = np.random.default_rng(seed)
    schema = Schema(
        ("x0", "x1", "x2"),
        (Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))),
        tuple(f"class {c}" for c in range(labels)),
    )

    def draw(n: int, shift: float) -> Rows:
        X = rng.normal(size=(n, 3)) + shift
        group = np.arange(n) % 4  # everyone is everywhere
        score = X @ [1.0, -0.5, 0.2] + 0.6 * (group > 1) + 1.5 * rng.normal(size=n)
        top = max(labels, 1) - 1
        y = np.clip(np.floor(score + labels / 2), 0, top) if labels else score
        return Rows.of(X, y, group)

    silos = []
    for k, n in enumerate(sizes):
        shift = 0.5 * rng.normal()
        splits = {"train": draw(n, shift), "test": draw(12, shift)}
        silos.append(Silo(f"site {k}", k, splits))
    return Federation(schema, tuple(silos), name="sample")


@dataclass(frozen=True, kw_only=True)
class KitSetting:
    """Where a method or a constraint is tried.

    Attributes
    ----------
    federation
        The rows.
    constraint
        The cells, and their bounds.
    model
        The model; None for what the labels ask for.
    """

    federation: Federation = field(default_factory=sample_federation)
    constraint: Constraint = BOUND
    model: Model | None = None

    def problem(
        self, engine: Engine, method: Method, weighting: Weighting = "rows"
    ) -> Problem:
        """Ask the census, and build the problem."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "cells with fewer than 10|a bound of 0")
            options = Options(weighting=weighting)
            return prepared(engine, self.constraint, self.model, method, options, 0)[0]

    def run(
        self,
        method: Method,
        *,
        engine: type[Reference] = Local,
        weighting: Weighting = "rows",
    ) -> Point:
        """Run a method to its end."""
        asker = engine(self.federation)
        problem = self.problem(asker, method, weighting)
        return drive(asker, rounds(problem, method)).point

    def rows(self, method: Method) -> PlainRows:
        """Put the training rows in one place."""
        problem = self.problem(Reference(self.federation), method, "silos")
        rows = self.federation.pooled("train")
        X = problem.task.model.inputs.apply(rows.X)
        return PlainRows(problem, X, rows.y, rows.group, rows.silo)

    def with_silos(self, silos: Sequence[Silo]) -> KitSetting:
        """Return the setting with other silos, numbered anew."""
        numbered = tuple(replace(silo, index=k) for k, silo in enumerate(silos))
        return replace(self, federation=replace(self.federation, silos=numbered))


def check_method(method: Method, setting: KitSetting | None = None) -> None:
    """Run a method through all of `METHOD_CHECKS`; give it few rounds.

    Parameters
    ----------
    setting
        Rows, cells with bounds and model to try it on; by default those of
        `sample_federation`, every sex's loss under 0.6, and what the labels ask for.
    """
    for check in METHOD_CHECKS:
        check(method, setting or KitSetting())


def is_declared(method: Method, setting: KitSetting) -> None:
    """It is a frozen dataclass that its plain form describes in full."""
    _declared(method, METHODS, Method)


def follows_from_totals(method: Method, setting: KitSetting) -> None:
    """Told the same totals again, it asks the same and ends at the same bits.

    So a run that was stopped resumes (`Log`). Nor does it change a total, ask more
    than it planned, or end with numbers that are not finite.
    """
    engine, heard = Reference(setting.federation), list[tuple[Any, Any, bytes]]()
    problem = setting.problem(engine, method)

    def tell(queries: Sequence[Query[Any]]) -> list[Any]:
        totals = engine.ask_many(queries)
        heard.append((queries, totals, _bits(totals)))
        return totals

    def tell_again(queries: Sequence[Query[Any]]) -> list[Any]:
        known, totals, _ = next(told, ((), [], b""))
        same = [q.digest for q in queries] == [q.digest for q in known]
        _demand(same, method, "told the same totals again, it asks something else")
        return totals

    first, second = (SimpleNamespace(ask_many=ask) for ask in (tell, tell_again))
    whole = drive(cast(Engine, first), rounds(problem, method))
    same = all(_bits(totals) == before for _, totals, before in heard)
    _demand(same, method, "it changes a total that it is given")
    told = iter(heard)
    again = drive(cast(Engine, second), rounds(problem, method))
    same = _bits(again.point) == _bits(whole.point)
    _demand(same, method, "told the same totals again, it ends elsewhere")
    planned, asked = method.planned_rounds, whole.rounds
    few = planned is None or asked <= planned + 1  # one before the first, for steps
    _demand(few, method, f"it asked {asked} queries, and planned {planned}")
    finite = bool(np.isfinite(whole.point.w).all())
    _demand(finite, method, "it ends with numbers that are not finite")


def ignores_order(method: Method, setting: KitSetting) -> None:
    """The order of silos does not matter."""
    silos = setting.federation.silos
    turned = setting.with_silos([*silos[1:], silos[0]])
    _same(method, setting.run(method), turned.run(method), "the order of silos matters")


def hears_every_silo(method: Method, setting: KitSetting) -> None:
    """Other labels in one silo, the first or the last, give another model."""
    steady, silos = _fixed(method), setting.federation.silos
    before = setting.run(steady).w
    for k, silo in enumerate(silos):
        rows = silo.rows("train")
        turned = {**silo.splits, "train": replace(rows, y=rows.y.max() - rows.y)}
        others = [*silos[:k], replace(silo, splits=turned), *silos[k + 1 :]]
        after = setting.with_silos(others).run(steady).w
        heard = float(np.abs(after - before).max()) > MOVED
        _demand(heard, method, f"other labels in silo {k} change nothing: is it lost?")


def runs_on_every_engine(method: Method, setting: KitSetting) -> None:
    """The fast engine and the plain loop give the same model."""
    fast, plain = (setting.run(method, engine=engine) for engine in (Local, Reference))
    _same(method, fast, plain, "the engines Local and Reference disagree")


METHOD_CHECKS: tuple[Callable[[Method, KitSetting], None], ...] = (
    is_declared,
    follows_from_totals,
    ignores_order,
    hears_every_silo,
    runs_on_every_engine,
)


@dataclass(frozen=True, eq=False)
class PlainRows:
    """All training rows in one place, for formulas that know nothing of silos' answers.

    Attributes
    ----------
    problem
        β, B, bounds and μ.
    X, y, group, silo
        The rows, inputs as the model sees them.
    """

    problem: Problem
    X: Design
    y: FloatArray
    group: IntArray
    silo: IntArray

    def losses(self, w: FloatArray) -> FloatArray:
        """ℓ_i(w)."""
        return self.problem.task.model.losses(w, self.X, self.y)

    def means(self, w: FloatArray) -> FloatArray:
        """Mean loss of each cell."""
        losses, cells = self.losses(w), self.problem.cells
        return np.array(
            [losses[self.members(cells, z)].mean() for z in range(len(cells))]
        )

    def risk(self, w: FloatArray) -> float:
        """F(w), with the ridge."""
        losses, shares = self.losses(w), self.problem.task.shares
        means = [losses[self.silo == k].mean() for k in range(len(shares))]
        return float(shares @ means) + self.ridge(w)

    def ridge(self, w: FloatArray) -> float:
        """(μ/2)‖w‖²."""
        return 0.5 * self.problem.mu * float(w @ w)

    def saddle(self, w: FloatArray) -> float:
        """βF(w) + B·max(0, max r(w))."""
        worst = float((self.means(w) - self.problem.cells.bounds).max(initial=0.0))
        problem = self.problem
        return problem.risk_weight * self.risk(w) + problem.multiplier_bound * worst

    def members(self, cells: Cells, z: int) -> NDArray[np.bool_]:
        """Which rows are in a cell."""
        stratum = self.problem.schema.strata(self.group, self.y)
        here = cells.silo[z] < 0 or self.silo == cells.silo[z]
        return cells.membership[z][stratum] & here


def check_optimum(
    method: Method,
    value: Callable[[PlainRows, FloatArray], float],
    *,
    tolerance: float = 1e-3,
    setting: KitSetting | None = None,
) -> None:
    """Check that a method comes within `tolerance` of the minimum of a function of w.

    Parameters
    ----------
    value
        What the method is to minimise, written down from the rows (`PlainRows`); every
        silo counts the same.
    setting
        As for `check_method`.
    """
    from scipy.optimize import minimize

    setting = setting or KitSetting()
    rows, w = setting.rows(method), setting.run(method, weighting="silos").w
    best = np.array(w)
    for solver in ("BFGS", "Nelder-Mead", "Powell"):
        found = minimize(lambda v: value(rows, v), best, method=solver)
        best = found.x if found.fun < value(rows, best) else best
    left = value(rows, w) - value(rows, best)
    told = f"it ends {left:.3g} above a model found by {solver}, beyond {tolerance:g}"
    _demand(left <= tolerance, method, told)


def check_constraint(
    constraint: Constraint, federation: Federation | None = None
) -> None:
    """Run a constraint through all of `CONSTRAINT_CHECKS`."""
    for check in CONSTRAINT_CHECKS:
        check(constraint, federation or sample_federation())


def is_described(constraint: Constraint, federation: Federation) -> None:
    """It is a frozen dataclass, and its plain form makes the same cells."""
    again = _declared(constraint, CONSTRAINTS, Constraint)
    same = _bits(_cells(again, federation)) == _bits(_cells(constraint, federation))
    _demand(same, constraint, "built from its plain form it has other cells")


def cells_come_from_the_schema(constraint: Constraint, federation: Federation) -> None:
    """Cells are the same each time, have bounds and members, and follow silos."""
    schema, names = federation.schema, federation.silo_names
    cells = _cells(constraint, federation)
    bounds, member, silo, Z = cells.bounds, cells.membership, cells.silo, len(cells)
    positive = (bounds >= 0).all() and np.isfinite(bounds).all()
    table = member.dtype == np.bool_ and member.shape == (Z, schema.n_strata)
    known = (silo >= -1) & (silo < len(names))
    for holds, what in (
        (_bits(_cells(constraint, federation)) == _bits(cells), "its cells differ"),
        (positive and bounds.shape == (Z,), "bounds are not numbers ≥ 0, one a cell"),
        (table, "its membership is not a table of truth values"),
        (len(set(cells.names)) == Z, "two cells have one name"),
        (member.any(axis=1).all(), "a cell has no strata"),
        (known.all(), "a cell is of a silo that there is not"),
    ):
        _demand(bool(holds), constraint, what)
    turned = constraint.cells(schema, names[::-1])
    place = [turned.names.index(name) for name in cells.names]
    last = np.where(silo < 0, silo, len(names) - 1 - silo)
    same = _bits(turned.take(place)) == _bits(replace(cells, silo=last))
    _demand(same, constraint, "its cells depend on the order of silos")


def sums_are_pooled(constraint: Constraint, federation: Federation) -> None:
    """Counts and losses over silos are those of the rows in one place."""
    setting = KitSetting(federation=federation, constraint=constraint)
    rows = setting.rows(Exact(max_rounds=3))
    w = np.linspace(-0.4, 0.5, rows.problem.n_parameters)
    losses, cells = rows.losses(w), rows.problem.cells
    member = [rows.members(cells, z) for z in range(len(cells))]
    count = np.array([float(m.sum()) for m in member])
    loss = np.array([losses[m].sum() for m in member])
    counted = bool((count == rows.problem.counts).all())
    _demand(counted, constraint, "the census counts other rows than its cells have")
    for engine in (Reference(federation), Local(federation)):
        total = engine.ask(Evaluate(rows.problem.task, w, "train"))
        same = np.array_equal(total.column("count", of="cells"), count)
        same = same and np.allclose(total.column("loss", of="cells"), loss, rtol=1e-12)
        name = type(engine).__name__
        _demand(same, constraint, f"{name} adds up other sums than the rows")


def is_solved(constraint: Constraint, federation: Federation) -> None:
    """Exact finds the saddle point of a convex problem under it."""
    fixed = (constraint.risk_weight, constraint.multiplier_bound)
    told = "it is minimax, and fixes no risk_weight and multiplier_bound"
    _demand(not constraint.minimax or None not in fixed, constraint, told)
    setting = KitSetting(federation=federation, constraint=constraint)
    check_optimum(Exact(), PlainRows.saddle, tolerance=1e-6, setting=setting)


CONSTRAINT_CHECKS: tuple[Callable[[Constraint, Federation], None], ...] = (
    is_described,
    cells_come_from_the_schema,
    sums_are_pooled,
    is_solved,
)


def _demand(holds: bool, owner: object, what: str) -> None:
    if not holds:
        raise AssertionError(f"{type(owner).__name__}: {what}")


def _declared(owner: Any, registry: Any, base: type[Any]) -> Any:
    """Demand a frozen dataclass that its plain form says all of; return it built again.

    The registry must know its name right. A file holds no None, so a parameter that is
    None is left out.
    """
    kind = type(owner)
    name = inspect.getattr_static(kind, "name", None)
    frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    for holds, what in (
        (isinstance(owner, base), f"it does not derive from {base.__name__}"),
        (frozen, "it is not a frozen dataclass"),
        (isinstance(name, str) and bool(name), "it has no name"),
        (registry.get(name, kind) is kind, f"'{name}' is the name of another class"),
    ):
        _demand(holds, owner, what)
    plain = dict(owner.describe())
    _demand(plain.pop("kind", None) == name, owner, "its kind is not its name")
    again = kind(**{k: v for k, v in plain.items() if v is not None})
    same = again.describe() == owner.describe() and _values(again) == _values(owner)
    _demand(same, owner, "built from its plain form it is another one")
    return again


def _values(owner: Any) -> dict[str, object]:
    """Parameters that a file can hold."""
    values = {f.name: getattr(owner, f.name) for f in fields(owner) if f.repr}
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    held = (int, float, str, list, Mapping)
    return {k: v for k, v in plain.items() if isinstance(v, held)}


def _bits(value: Any) -> bytes:
    """Every number of a state or a total, to the last bit."""
    if is_dataclass(value):
        return b"".join(_bits(getattr(value, f.name)) for f in fields(value))
    if isinstance(value, list | tuple):
        return b"".join(map(_bits, value))
    plain = value is None or isinstance(value, bool | int | float | str | np.generic)
    if not (plain or isinstance(value, np.ndarray)):
        raise AssertionError(f"{type(value).__name__} is not plain data")
    return repr(value).encode() if plain else value.tobytes()


def _fixed(method: Method, **more: int) -> Method:
    """Return the method with steps that do not depend on how rows are shared out."""
    known = {f.name for f in fields(method)}  # type: ignore[arg-type]
    return replace(method, **{k: v for k, v in {**FIXED, **more}.items() if k in known})  # type: ignore[type-var]


def _same(method: Method, one: Point, other: Point, what: str) -> None:
    """Demand that two pairs are one, and that the model moved at all."""
    pairs = ((one.w, other.w), (one.multipliers, other.multipliers))
    apart = max(float(np.abs(a - b).max(initial=0.0)) for a, b in pairs)
    _demand(apart <= CLOSE, method, f"{what} (by {apart:.3g})")
    _demand(float(np.abs(one.w).max()) > MOVED, method, "the model did not move")


def _cells(constraint: Constraint, federation: Federation) -> Cells:
    return constraint.cells(federation.schema, federation.silo_names)
