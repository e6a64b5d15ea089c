"""What the frozen tests know of the product: every access to an object of ours.

Oracles, hostile problems, coverage tests and attacks are frozen (`tests/frozen.py`):
they import names of the product from here and from nowhere else. When the product
changes, this module is edited and they are not. A name, its signature and what it
returns stay as they are.
"""

# ruff: noqa: F401 — names are here to be imported by others.
from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

import pffl as front
from pffl import constraints, driver, files, methods, models, runs
from pffl.constraints import Cells
from pffl.data import Attribute, Federation, Rows, Schema, Silo
from pffl.engines import Local, Reference
from pffl.errors import ArtefactError, PrivacyBudgetError, UsageError
from pffl.models import (
    Inputs,
    LeastSquares,
    LinearModel,
    LogisticRegression,
    SoftmaxRegression,
    Target,
)
from pffl.prepare import Options
from pffl.problem import Point, Problem, upper_value
from pffl.queries import Census, Evaluate, Expand, Task, Train, View, Witness
from tests import inside
from tests.bounds import uniform
from tests.driving import iterate, measure, prepare
from tests.driving import least as enclose_least
from tests.inside import Source as NoiseSource
from tests.inside import bets_of as noisy_bets
from tests.inside import bounds_rates as rates
from tests.inside import fieller as noisy_mean_ends
from tests.inside import mean as mean_bounds
from tests.inside import noisy_plan_BETS as NOISY_BETS


class Names:
    """Public names, wherever they are now: ``pffl.Exact`` of a frozen test."""

    def __getattr__(self, name: str) -> Any:
        homes = (front, methods, models, constraints)
        return getattr(next(home for home in homes if hasattr(home, name)), name)


pffl = Names()

MODELS = {
    "logistic": (LogisticRegression, 2),
    "softmax": (SoftmaxRegression, 3),
    "least-squares": (LeastSquares, 0),
}

# ---------------------------------------------------------------- bounds on means


def plan_bets(
    counts: Any,
    *,
    delta: float,
    mean: Any = None,
    variance: Any = None,
    loss_bound: Any,
) -> Any:
    """Plan bets for rows that count alike, from mean and variance of training rows."""
    known = None
    if mean is not None and variance is not None:
        shape = np.atleast_1d(counts).shape
        pairs = zip(*(np.broadcast_to(a, shape) for a in (mean, variance)), strict=True)
        known = [
            inside.Moments.alike(*pair, loss_bound) if np.isfinite(pair).all() else None
            for pair in pairs
        ]
    bound = {"delta": delta, "loss_bound": loss_bound}
    return mean_bounds.plan(counts, known=known, **bound)[0]


def _upper(bets: Any, below: Any, counts: Any, loss_bound: float, delta: float) -> Any:
    bound = {"loss_bound": loss_bound, "delta": delta}
    return mean_bounds.upper(bets, below, counts, **bound)


def _lower(bets: Any, above: Any, counts: Any, loss_bound: float, delta: float) -> Any:
    return loss_bound - _upper(bets, above, counts, loss_bound, delta)


def _lower_bounds(
    bets: Any, above: Any, counts: Any, totals: Any, *, loss_bound: float, delta: float
) -> Any:
    """Turn losses round: the mean of M − ℓ is at most so much."""
    left = np.maximum(loss_bound * np.asarray(counts) - np.asarray(totals), 0.0)
    bound = {"loss_bound": loss_bound, "delta": delta}
    found = mean_bounds.upper_bounds(bets, above, counts, left, **bound)
    return np.maximum(loss_bound - found, 0.0)


def _rows_needed(
    bound: float, *, mean: float, variance: float, loss_bound: float, delta: float
) -> int | None:
    known = inside.Moments.alike(mean, variance, loss_bound)
    given = {"loss_bound": loss_bound, "delta": delta, "weighted": False}
    found: int | None = mean_bounds.rows_needed(bound, known=known, **given)
    return found


def _weighted_plan(
    counts: Any,
    *,
    delta: float,
    moments: Any = None,
    seen: Any = None,
    bounds: Any,
    loss_bound: float,
) -> Any:
    known = None
    if moments is not None and seen is not None:
        known = [inside.Moments.of(*pair) for pair in zip(moments, seen, strict=True)]
    given = {"delta": delta, "loss_bound": loss_bound, "bounds": bounds}
    return mean_bounds.plan(counts, known=known, **given)


def _weighted_upper(
    bets: Any, levels: Any, sums: Any, *, counts: Any, loss_bound: float, delta: float
) -> Any:
    bound = {"loss_bound": loss_bound, "delta": delta, "levels": levels}
    return mean_bounds.upper(bets, sums, counts, **bound)


def _weighted_rows_needed(
    bound: float, *, moments: Any, loss_bound: float, delta: float
) -> int | None:
    given = {"loss_bound": loss_bound, "delta": delta, "weighted": True}
    found: int | None = mean_bounds.rows_needed(bound, known=moments, **given)
    return found


holdout = SimpleNamespace(chernoff_upper=mean_bounds.chernoff_upper)
#: The bound on means for rows that count alike.
logsum = SimpleNamespace(
    Bets=mean_bounds.Bets,
    BETS=mean_bounds.BETS,
    PLANNED=mean_bounds.PLANNED,
    plan_bets=plan_bets,
    upper=_upper,
    lower=_lower,
    upper_bounds=mean_bounds.upper_bounds,
    lower_bounds=_lower_bounds,
    rows_needed=_rows_needed,
)
#: The same for rows with weights.
weighted = SimpleNamespace(
    Moments=inside.Moments,
    plan=_weighted_plan,
    upper=_weighted_upper,
    rows_needed=_weighted_rows_needed,
)

# ------------------------------------------------------------------- rows and cells


class People(NamedTuple):
    """The rows of one split, over all silos."""

    X: np.ndarray
    y: np.ndarray
    group: np.ndarray  # code
    silo: np.ndarray  # code
    weight: np.ndarray
    groups: tuple[str, ...]
    labels: tuple[str, ...]  # none where the target is a number
    silos: tuple[str, ...]


class Part(NamedTuple):
    """Rows of one silo and split, to make a federation of."""

    X: np.ndarray
    y: np.ndarray  # codes of labels, or numbers
    codes: np.ndarray  # of each attribute, shape (n, attributes)
    weight: np.ndarray | None = None


def federation_of(
    silos: Sequence[Mapping[str, Part]],
    attributes: Mapping[str, Sequence[str]],
    labels: int,
    name: str = "",
) -> Federation:
    """Make a federation of plain arrays: the parts of each silo, by split."""
    width = silos[0]["train"].X.shape[1]
    schema = Schema(
        tuple(f"x{j}" for j in range(width)),
        tuple(Attribute(one, tuple(values)) for one, values in attributes.items()),
        tuple(f"class {c}" for c in range(labels)),
    )
    made = []
    for k, parts in enumerate(silos):
        splits = {}
        for split, part in parts.items():
            inputs = inside.as_inputs(part.X) if issparse(part.X) else part.X
            rows = Rows.of(inputs, part.y, schema.combine(part.codes))
            splits[split] = replace(rows, weight=part.weight)
        made.append(Silo(f"site {k}", k, splits))
    return Federation(schema, tuple(made), name=name)


def people_of(federation: Federation, split: str = "train") -> People:
    """Read all rows of a split, silo after silo."""
    X, y, group, silo = federation.pooled(split)
    weight = np.concatenate([one.rows(split).weights for one in federation.silos])
    schema, names = federation.schema, tuple(one.name for one in federation.silos)
    return People(X, y, group, silo, weight, schema.groups, schema.labels, names)


def with_groups(federation: Federation, silo: int, group: Any) -> Federation:
    """Give the training rows of one silo other groups."""
    silos = list(federation.silos)
    rows = silos[silo].rows("train")
    splits = {**silos[silo].splits, "train": Rows.of(rows.X, rows.y, group)}
    silos[silo] = replace(silos[silo], splits=splits)
    return replace(federation, silos=tuple(silos))


def with_attribute(
    federation: Federation,
    name: str,
    values: Sequence[str],
    draw: Callable[[int], np.ndarray],
) -> Federation:
    """Give everyone a further attribute; `draw(n)` gives the codes of n rows."""
    old = federation.schema
    attributes = (*old.attributes, Attribute(name, tuple(values)))
    schema = Schema(old.features, attributes, old.labels)
    silos = []
    for silo in federation.silos:
        splits = {
            split: Rows.of(rows.X, rows.y, len(values) * rows.group + draw(len(rows)))
            for split, rows in silo.splits.items()
        }
        silos.append(replace(silo, splits=splits))
    return Federation(schema, tuple(silos))


def attributes_of(federation: Federation) -> list[str]:
    """Names of the protected attributes."""
    return [attribute.name for attribute in federation.schema.attributes]


def cells_of(constraint: Any, federation: Federation) -> np.ndarray:
    """Who of the training rows is in which cell of a constraint, shape (Z, n)."""
    _, y, group, silo = federation.pooled("train")
    names = tuple(one.name for one in federation.silos)
    drawn = constraint.cells(federation.schema, names)
    stratum = federation.schema.strata(group, y)
    inside = drawn.membership[:, stratum].astype(bool)
    return inside & ((drawn.silo[:, None] == -1) | (drawn.silo[:, None] == silo))


def cell_names(constraint: Any, federation: Federation) -> tuple[str, ...]:
    """Names of the cells that a constraint makes."""
    return tuple(constraint.cells(federation.schema, ()).names)


# ------------------------------------------------------------------------- a whole run


def enclosure(found: Any) -> Any:
    """A smallest bound, or a smallest excess over `offsets`, from both sides.

    `reach` is ‖w‖ up to which the lower end is proved, `everywhere` whether it speaks
    of all models, `slope` what of the lower end rounding took per ‖w‖; `multipliers`
    are those of the proof, and `model` attains the upper end.
    """
    arrays = {name: np.asarray(getattr(found, name)) for name in ("offsets", "model")}
    arrays["multipliers"] = np.asarray(found.multipliers)
    same = ("lower", "upper", "reach", "everywhere", "slope")
    return SimpleNamespace(**arrays, **{name: getattr(found, name) for name in same})


def _reach(run: Any) -> float:
    number = r"(-?\d[\d.,]*(?:e[+-]?\d+)?)"
    found = re.search(rf"length (?:at most|up to) {number}", run.message)
    return np.inf if found is None else float(found[1].rstrip(".,").replace(",", ""))


def _gap_radius(run: Any) -> float | None:
    pair = run.evidence.proofs.gap
    if not isinstance(pair, inside.Pair):
        return None
    return np.inf if pair.radius is None else float(pair.radius)


def _enclosures(run: Any) -> dict[str, Any]:
    found = vars(run.evidence.proofs)
    known = {n: one for n, one in found.items() if isinstance(one, inside.Least)}
    return {name: enclosure(one) for name, one in known.items()}


def _target(run: Any) -> tuple[float, float]:
    found = getattr(run.model, "target", None)
    return (0.0, 1.0) if found is None else (found.mean, found.scale)


def _target_range(run: Any) -> tuple[float, float] | None:
    model, M = run.model, run.evidence.terms.loss_bound
    kept = isinstance(model, inside.NumericModel) and M is not None
    return model.limits(M) if kept else None


def _witness(run: Any) -> np.ndarray | None:
    return None if run.witness is None else np.array(list(run.witness.values()))


#: What a judge reads of a run, by name.
READ: dict[str, Callable[[Any], Any]] = {
    "w": lambda run: np.asarray(run.w),
    "multipliers": lambda run: np.asarray(run.multipliers),
    "converged": lambda run: run.as_dict()["converged"],
    "questions": lambda run: tuple(
        int(run.training.queries[name]) for name in ("asked", "distinct")
    ),
    # What its verdict on training rows says.
    "says_impossible": lambda run: "No " in run.message.replace("Not ", ""),
    "says_tolerance": lambda run: "tolerance" in run.message,
    "says_gap": lambda run: "gap" in run.message,
    "says_more_rounds": lambda run: "max_rounds" in run.message,
    "says_rounding": lambda run: "Rounding hides the rest" in run.message,
    "reach": _reach,  # ‖w‖ up to which it speaks of models (∞: of all)
    # What was proved.
    "gap_radius": _gap_radius,  # ‖w‖ up to which the gap holds; None: none was proved
    "enclosures": _enclosures,  # of smallest bounds, in common and in excess
    "witness": _witness,  # weights of the cells that prove infeasibility
    # What was declared.
    "has_bounds": lambda run: bool(run.evidence.promise),
    "names": lambda run: list(run.evidence.names),
    "bounds": lambda run: np.asarray(run.evidence.bounds),
    "aimed": lambda run: np.asarray(run.evidence.aimed),  # ζ, as the solver had it
    "cells": lambda run: [(cell.of, cell.silo) for cell in run.evidence.cells],
    "weighting": lambda run: run.evidence.terms.weighting,
    "risk_weight": lambda run: run.evidence.terms.risk_weight,
    "multiplier_bound": lambda run: run.evidence.terms.multiplier_bound,
    "loss_bound": lambda run: run.evidence.terms.loss_bound,  # M of what is shipped
    "upper_on_test": lambda run: run.cells["test_upper"].to_numpy(dtype=float),
    # The model: kind, loss, scaling.
    "kind": lambda run: run.model.name,
    "outputs": lambda run: run.model.n_outputs,
    "delta": lambda run: run.model.describe().get("delta", 1.0),  # Huber's
    "target": _target,  # mean and scale of a numeric one
    "target_range": _target_range,  # within which predictions of numbers are kept
    "ridge": lambda run: float(run.model.l2 * run.model.unit),  # μ
    "intercept": lambda run: run.model.intercept,
    "input_mean": lambda run: np.asarray(run.model.inputs.mean),
    "input_scale": lambda run: np.asarray(run.model.inputs.scale),
    "scaled": lambda run: lambda X: np.asarray(run.model.inputs.apply(X)),
}


class Solved:
    """A run, as a judge reads it: what was declared, and what came out."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def __getattr__(self, name: str) -> Any:
        return READ[name](self.raw) if name in READ else getattr(self.raw, name)


def solve(*args: Any, **kwargs: Any) -> Solved:
    """Call `pffl.solve`."""
    return Solved(front.solve(*args, **kwargs))


def main(arguments: Sequence[str]) -> None:
    """Run the command line; it ends with SystemExit."""
    from pffl.cli import main

    main([*map(str, arguments)])


Said = namedtuple(
    "Said", "status converged loss_bound bounds test_losses test_uppers certified"
)


def said_in(seen: Any) -> Said:
    """Read what `pffl run --json` printed."""
    found = seen.json
    cells = [[c["bound"], c["test_loss"], c["test_upper"]] for c in found["cells"]]
    bounds, losses, uppers = np.array(cells, dtype=float).T
    first = (found["status"], found["converged"], found["loss_bound"])
    word = found["verdicts"]["new_people"]["verdict"]
    certified = {"certified": True, "not certified": False}.get(word)
    return Said(*first, bounds, losses, uppers, certified)


def says_no_model(seen: Any) -> bool:
    """Whether a command says that no model can meet the bounds."""
    return "no linear model" in " ".join(seen.out.split()).lower()


def smallest_in(seen: Any) -> float:
    """Read the smallest common bound that `pffl feasible --json` printed."""
    return float(seen.json["common"][1])


def model_of(place: Path) -> Any:
    """Load the model of a run directory."""
    return inside.read_model(place / "model.safetensors")


def edit_run(place: Path, what: str) -> str:
    """Change one thing that a run says, make the hashes fit, and name the file."""
    path = place / "result.json"
    result = json.loads(path.read_text("utf-8"))
    if what == "test_upper":
        result["cells"][0]["test_upper"] = 0.59
    elif what == "message":
        result["message"] = "Every bound is met by far."
    elif what == "error":
        result["test"]["error"] = 0.01
    elif what == "status":
        result["status"] = "met" if result["status"] != "met" else "not met"
    path.write_text(json.dumps(result), "utf-8")
    _rehash(place)
    return "result"


def edit_report(place: Path) -> str:
    """Change a figure that the page shows, make the hashes fit, and name the file."""
    page = place / "report.html"
    text = page.read_text("utf-8")
    first = json.loads((place / "result.json").read_text("utf-8"))["cells"][0]
    shown = f"{first['test_upper']:.4f}"[:5]
    assert shown in text
    page.write_text(text.replace(shown, "0.123"), "utf-8")
    _rehash(place)
    return "report"


def _rehash(place: Path) -> None:
    """Write the manifest anew, as someone would who edited a file."""
    manifest = json.loads((place / "manifest.json").read_text("utf-8"))
    for name in manifest["files"]:
        manifest["files"][name] = files.digest((place / name).read_bytes())
    (place / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def refuse_hessians(monkeypatch: Any) -> None:
    """Make every engine in this process fail if it is asked for Hessians."""
    plain = Local.ask_many

    def ask_many(self: Local, queries: Any) -> Any:
        assert not any(isinstance(one, Expand) and one.order == 2 for one in queries)
        return plain(self, queries)

    monkeypatch.setattr(Local, "ask_many", ask_many)


# --------------------------------------------------------------- parts of a training


Terms = SimpleNamespace


def terms_of(problem: Problem) -> Terms:
    """Read the terms of a problem, as plain numbers; `unit` is that of the losses."""
    model = problem.task.model
    target = getattr(model, "target", None) or Target(0.0, 1.0)
    same = ("risk_weight", "multiplier_bound", "unit")
    return Terms(
        kind=model.name,
        outputs=model.n_outputs,
        parameters=problem.n_parameters,
        delta=getattr(model, "delta", np.inf),
        target_mean=target.mean,
        target_scale=target.scale,
        input_mean=np.asarray(model.inputs.mean),
        input_scale=np.asarray(model.inputs.scale),
        ridge=problem.mu,
        bounds=np.asarray(problem.cells.bounds),
        shares=np.asarray(problem.task.shares),
        **{name: getattr(problem, name) for name in same},
    )


def on_raw_inputs(
    model: LinearModel, schema: Schema, target: tuple[float, float]
) -> LinearModel:
    """Bind a model to inputs as they are, and to mean and scale of a target."""
    bound = model.bind(schema, Inputs.identity(schema.n_features))
    return bound if schema.labels else bound.with_target(Target(*target))


def duals_of(model: LinearModel, z: Any, y: Any, shift: Any) -> tuple[Any, Any, Any]:
    """Slopes u near ∂ℓ(z) moved by `shift`, −ℓ*(u), and the size of its terms."""
    return model.duals(z, y, shift)


def losses_and_slopes(model: LinearModel, z: Any, y: Any) -> tuple[Any, Any]:
    """ℓ and ∂ℓ/∂z at scores."""
    return model.score_losses_and_slopes(z, y)


def losses_at(model: LinearModel, z: Any, y: Any) -> Any:
    """ℓ at scores."""
    return model.score_losses(z, y)


def without_bounds(problem: Problem) -> Problem:
    """Return the same problem with all bounds at 0."""
    return problem.with_bounds(np.zeros(problem.n_cells))


def smallest_common_bound(engine: Any, problem: Problem) -> Any:
    """Enclose how low the bounds can go together."""
    return enclosure(enclose_least(engine, problem))


def support_of(
    engine: Any, problem: Problem, w: Any, lam: Any, v: Any
) -> inside.Support:
    """Ask for a plane below λᵀr with bounds 0: slopes at w, moved along v."""
    weights = problem.cell_weights(lam)
    total = engine.ask(Witness(problem.task, w, 0.0, weights, v))
    return inside.support(
        total.value,
        total.residual,
        total.sizes,
        multipliers=lam,
        bounds=np.zeros(len(lam)),
        outputs=problem.task.model.n_outputs,
    )


def measured_at(
    engine: Any, problem: Problem, w: Any, *, hessians: bool, sparse: bool = True
) -> Any:
    """F, r and their gradients at w, each with what rounding can do to it.

    `sparse=False` charges sparse rows as dense ones.
    """
    query = Expand(problem.task, w, 2 if hessians else 1)
    at = problem.expand(w, engine.ask(query))
    errors = (problem if sparse else replace(problem, stored=0)).errors(at)
    return SimpleNamespace(
        risk=at.risk,
        violation=at.violation,
        gradients=[at.risk_gradient, *at.jacobian],
        risk_error=errors.risk,
        violation_error=errors.violation,
        gradient_errors=errors.gradients,
    )


def ask_census(engine: Any, split: str = "train") -> Any:
    """Count the rows of a split; counts are by silo first."""
    schema = engine.schema
    found = engine.ask(Census(schema, split))
    counts = found.counts.reshape(-1, len(schema.groups), max(1, len(schema.labels)))
    sums = {"sums": found.feature_sums, "squares": found.feature_squares}
    return SimpleNamespace(counts=counts, **sums)


def ask_steps(
    engine: Any, problem: Problem, w: Any, lam: Any, sizes: Any, **more: Any
) -> Any:
    """Ask every silo for steps of these sizes on G(·; λ) from w."""
    weights = problem.cell_weights(lam)
    steps = np.asarray(sizes, dtype=float)
    query = Train(problem.task, w, problem.risk_weight, weights, steps, **more)
    total = engine.ask(query)
    known = {"update": total.update, "risk": problem.risk(w, total)}
    return SimpleNamespace(**known, violation=problem.violation(total.cell_losses))


def ask_expansion(engine: Any, problem: Problem, w: Any) -> Any:
    """Ask for the second-order expansion at w; `gradients` are those of the cells."""
    at = problem.expand(w, engine.ask(Expand(problem.task, w, 2)))
    same = ("risk", "violation", "risk_gradient", "risk_hessian", "hessians")
    known = {name: getattr(at, name) for name in same}
    return SimpleNamespace(**known, gradients=at.jacobian)


def ask_evaluation(
    engine: Any, problem: Problem, w: Any, M: float, bets: np.ndarray
) -> Any:
    """Evaluate w on training rows.

    Sums over the rows of each cell, and of each (group, label): `count`, `loss`,
    `bounded` (the loss of the predictor bounded by M), `correct` and `positive`; and of
    each cell and bet γ, Σ log(1 − γ · bounded loss/M).
    """
    total = engine.ask(Evaluate(problem.task, w, "train", M, bets=bets))
    columns = {name: name for name in ("count", "loss", "correct", "positive")}
    columns["bounded"] = "bounded_loss"
    shape = (len(engine.schema.groups), -1)
    cells = {name: total.column(of, of="cells") for name, of in columns.items()}
    strata = {name: total.column(of).reshape(shape) for name, of in columns.items()}
    return SimpleNamespace(cells=cells, strata=strata, logs=total.logs[..., 0])


def train(engine: Any, problem: Problem, method: Any) -> Any:
    """Run a method to its end: w, multipliers and rounds."""
    run = iterate(engine, problem, method)
    return SimpleNamespace(**vars(run.point), rounds=run.rounds)


def trained(
    federation: Federation,
    constraint: Any,
    method: Any,
    *,
    l2: float,
    weighting: str = "silos",
) -> Any:
    """Train a logistic regression by the rounds of one method, and by nothing else."""
    engine = Local(federation, threads=1)
    model, options = LogisticRegression(l2=l2), Options(weighting=weighting)
    problem, _ = prepare(engine, constraint, model, method, options, 0)
    return train(engine, problem, method)


def gap_of(engine: Any, problem: Problem, w: Any, lam: Any) -> float:
    """Measure the gap of a pair."""
    return float(measure(engine, problem, Point(w, lam)).gap)


def solver_rounds(engine: Any, problem: Problem, method: Any) -> Iterator[Any]:
    """Run Exact or FirstOrder round by round.

    Yield the pair that would be returned now and its ends, rounding charged; where the
    lower end was taken; the best ends without rounding.
    """
    state = method.initial(problem, None)
    while not method.finished(state):
        total = engine.ask(method.query(problem, state))
        state = method.step(problem, state, total)
        end = state.ending
        upper, lower, at, _ = end.bounds
        yield SimpleNamespace(
            **vars(end.best),
            **{"upper": upper, "lower": lower, "proved_at": at, "iterate": state.w},
            best_upper=state.unit * state.upper,
            best_lower=state.unit * state.lower,
            gap=end.rounded_gap,
        )


# ----------------------------------------------------------------------------- noise


def draw_discrete(square: int, source: NoiseSource) -> int:
    """One draw of the discrete Gaussian with σ² = square, on any grid."""
    return inside.discrete._draw(square, math.isqrt(square) + 1, source)


def noisy_gradients(
    X: np.ndarray,
    stratum: np.ndarray,
    ws: np.ndarray,
    noise: float,
    *,
    center: float,
    longest: float,
) -> np.ndarray:
    """Release Σ∇ℓ(w) of each of four strata with noise, for each w.

    Logistic losses of one input less `center`, rows of at most `longest`; labels are
    stratum mod 2. `noise` is in lengths of the longest row; below 0.01 there is
    nearly none.
    """
    schema = Schema(("x",), (Attribute("sex", ("f", "m")),), ("no", "yes"))
    inputs = Inputs(np.full(1, center), np.ones(1))
    model = LogisticRegression(input_bound=longest).bind(schema, inputs)
    task = Task(model, Cells.none(schema), np.ones(1))
    labels = (stratum % 2).astype(float)
    view = View(0, model.inputs.apply(X), labels, stratum)
    adding = inside.Adding(inside.seeded_source("window", noise))
    names = tuple(f"stratum {a}" for a in range(4))
    cells = Cells(
        names, np.ones(4), np.eye(4, dtype=bool), np.full(4, inside.EVERY_SILO)
    )
    task, only = replace(task, cells=cells), np.array([0.0, noise, 0])
    _, blocks = inside.blocks_of(cells)  # in some order
    out = []
    for w in ws:
        query = Expand(task, w, noise=only, adding=adding)
        total = query.answer(view)
        if noise > 0.01:
            total = query.pooled(total, [view])
        out.append(blocks @ query.real(total, "gradients"))
    return np.array(out)


def noisy_upper(
    logs: np.ndarray, deviations: np.ndarray, bets: np.ndarray, n: float, delta: float
) -> float:
    """At most the mean of losses in [0, 1], from log-sums with noise; n is certain."""
    weights, none = [1 / len(bets)] * len(bets), (0.0, 0.0)
    figures = inside.Figures([], [], [], *none, [], [], bets.tolist(), weights)
    return inside.log_sum_upper(logs.tolist(), deviations.tolist(), figures, n, delta)


# ------------------------------------------------------------------- runs on the disk

#: A run of the command line that takes some seconds; `--out` is left to the caller.
LONG_RUN = (
    *("run", "synthetic", "--set", "data.rows=900", "--silos", "3", "--seed", "1"),
    *("--method", "pffl", "--bound", "0.6"),
    *("--set", "method.batch_size=20", "--set", "method.dual_rounds=60"),
)


def resuming(place: str) -> tuple[str, ...]:
    """Arguments that go on with a stopped run."""
    return ("run", "--resume", place)


def start_command(*arguments: object, cwd: Path, **more: Any) -> Popen[str]:
    """Start the command line in a process of its own."""
    code = (sys.executable, "-c", "from pffl.cli import main; main()")
    pipes = {"stdout": PIPE, "stderr": PIPE, "text": True}
    return Popen([*code, *map(str, arguments)], cwd=cwd, **pipes, **more)


def end_command(process: Popen[str]) -> tuple[int, str, str]:
    """Wait for its end: exit code, output, errors."""
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def has_checkpoint(place: Path) -> bool:
    """Whether a run has saved something."""
    return (place / driver.LOG).exists()


def is_unfinished(place: Path) -> bool:
    """Whether a run was stopped before its end."""
    return (place / driver.SPEC).exists()


def damage_checkpoint(place: Path, damage: Callable[[bytes], bytes]) -> None:
    """Change the bytes that were saved last."""
    path = place / driver.LOG
    path.write_bytes(damage(path.read_bytes()))


def finished_run(place: Path) -> dict[str, Any]:
    """Everything that a run directory says, times left out."""
    record = runs.read_run(place)
    assert record.verified
    known = dict(record.as_dict())
    known.pop("seconds")
    history = (place / "history.csv").read_text("utf-8").splitlines()
    column = history[0].split(",").index("seconds")
    lines = [line.split(",") for line in history]
    return {
        "result": known,
        "history": [line[:column] + line[column + 1 :] for line in lines],
        "w": record.w.tobytes(),
        "multipliers": record.predictor.multipliers.tobytes(),
        "files": sorted(p.name for p in place.iterdir() if p.name[0] != "."),
    }


def save_run(solution: Any, place: Path, run_file: str) -> None:
    """Save a solution where another one may stand."""
    with runs.lock(place, finished=True) as held:
        held.save(solution, run_file)


def run_is_whole(place: Path) -> bool:
    """Whether all files of a run directory are those of its manifest."""
    return bool(runs.read_run(place).verified)


def fill_disk(monkeypatch: Any, when: str) -> None:
    """Make every write, or every rename, fail as on a full disk."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = {"write": "pffl.files.write_through", "rename": "pffl.files.os.replace"}
    monkeypatch.setattr(target[when], full)
    monkeypatch.setattr("pffl.driver.os.fsync", full)  # what is appended is forced, too


def __getattr__(name: str) -> object:
    """Other names of the product, as tests/inside.py finds them."""
    return getattr(inside, name)
