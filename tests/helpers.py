"""Small federations, problems and queries."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

import pffl
from pffl.data import Attribute, Federation, Rows, Schema, Silo
from pffl.engines import Reference
from pffl.methods import PFFL
from pffl.prepare import Options
from pffl.problem import Problem
from pffl.queries import Evaluate, Train, Witness
from tests.driving import prepare
from tests.oracles import MODELS
from tests.saddle import Oracle


def make_schema(
    *,
    features: int = 3,
    labels: int = 2,
    attributes: Sequence[tuple[str, Sequence[str]]] = (("sex", ("f", "m")),),
) -> Schema:
    """Name `features` inputs, the attributes, and `labels` classes (0: a number)."""
    return Schema(
        tuple(f"x{j}" for j in range(features)),
        tuple(Attribute(name, tuple(values)) for name, values in attributes),
        tuple(f"class {c}" for c in range(labels)),
    )


def make_rows(
    rng: np.random.Generator,
    schema: Schema,
    n: int,
    *,
    shift: float = 0.0,
    dtype: Any = np.float64,
) -> Rows:
    """Draw rows whose label depends on the inputs and a little on the group."""
    d, labels = schema.n_features, len(schema.labels)
    X = rng.normal(size=(n, d)) * (1 + np.arange(d)) + shift
    group = rng.integers(len(schema.groups), size=n)
    score = X @ np.linspace(1.0, -0.5, d) / (1 + d) + 0.6 * group
    noise = rng.normal(size=n)
    if labels == 0:
        y = score + noise
    elif labels == 2:
        y = (score + 1.5 * noise > 0.5).astype(float)
    else:
        y = np.clip(np.floor(score + noise + labels / 2), 0, labels - 1)
    return Rows.of(X.astype(dtype), y, group)


def make_federation(
    seed: int = 0,
    *,
    sizes: Sequence[int] = (40, 25, 60),
    test: Sequence[int] | int = 15,
    schema: Schema | None = None,
    labels: int = 2,
    dtype: Any = np.float64,
    heterogeneity: float = 0.5,
) -> Federation:
    """Draw a federation with silos of the given sizes."""
    rng = np.random.default_rng(seed)
    schema = schema or make_schema(labels=labels)
    tests = [test] * len(sizes) if isinstance(test, int) else test
    silos = []
    for k, (train_rows, test_rows) in enumerate(zip(sizes, tests, strict=True)):
        shift = heterogeneity * rng.normal()
        splits = {
            split: make_rows(rng, schema, n, shift=shift, dtype=dtype)
            for split, n in (("train", train_rows), ("test", test_rows))
        }
        silos.append(Silo(f"site {k}", k, splits))
    return Federation(schema, tuple(silos), name="test")


def without_zeros(federation: Federation) -> Federation:
    """The same rows, compressed."""
    from scipy.sparse import csr_array

    def packed(rows: Rows) -> Rows:
        X = Rows.of(csr_array(rows.X), rows.y, rows.group).X
        return replace(rows, X=X)

    silos = [
        replace(silo, splits={s: packed(r) for s, r in silo.splits.items()})
        for silo in federation.silos
    ]
    return from_silos(federation, silos)


def from_silos(federation: Federation, silos: Sequence[Silo]) -> Federation:
    """Return a federation of other silos with the same schema, numbered anew."""
    numbered = tuple(replace(silo, index=k) for k, silo in enumerate(silos))
    return replace(federation, silos=numbered)


def repartition(federation: Federation, silo_of_row: np.ndarray) -> Federation:
    """Return the same rows, the training rows shared out anew."""
    pooled = {split: federation.pooled(split) for split in federation.splits}
    rows = {s: Rows.of(p.X, p.y, p.group) for s, p in pooled.items()}
    silos = []
    for k, name in enumerate(np.unique(silo_of_row)):
        train = rows["train"].take(np.flatnonzero(silo_of_row == name))
        nobody = np.arange(len(rows["test"])) if k == 0 else np.arange(0)
        silos.append(
            Silo(f"part {k}", k, {"train": train, "test": rows["test"].take(nobody)})
        )
    return replace(federation, silos=tuple(silos))


def make_problem(
    engine: Reference,
    constraint: Any,
    *,
    model: Any = None,
    beta: float = 1.0,
    budget: float = 5.0,
    options: Options | None = None,
    seed: int = 0,
) -> Problem:
    """Ask the census and build the problem, without warnings of small cells."""
    method = PFFL(risk_weight=beta, multiplier_bound=budget)
    settings = options or Options()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "cells with fewer than 10")
        return prepare(engine, constraint, model, method, settings, seed)[0]


def draw_multipliers(rng: np.random.Generator, problem: Problem) -> np.ndarray:
    """Draw λ ≥ 0 with Σλ ≤ B, on the boundary now and then."""
    lam = rng.dirichlet(np.ones(problem.n_cells + 1))
    lam = lam[:-1] / (1 if rng.random() < 0.7 else max(1 - lam[-1], 1e-9))
    return problem.multiplier_bound * lam


def train_query(
    problem: Problem,
    w: np.ndarray,
    lam: np.ndarray,
    *,
    steps: Sequence[float] = (0.1,),
    **changes: Any,
) -> Train:
    """Build the query that asks for local steps on G(·; λ)."""
    return Train(
        problem.task,
        w,
        problem.risk_weight,
        problem.cell_weights(lam),
        np.asarray(steps, dtype=float),
        **changes,
    )


def evaluate_query(task: Any, w: np.ndarray, split: str = "test") -> Evaluate:
    """Ask for all that `evaluate` can tell of a model: bets with it."""
    if task.model.n_classes == 0:
        return Evaluate(task, w, split, task.model.loss_bound() or np.inf)
    bets = np.linspace(0.1, 0.95, 3 * len(task.cells)).reshape(-1, 3)
    return Evaluate(task, w, split, 1.5, bets)


def witness_query(
    problem: Problem, w: np.ndarray, lam: np.ndarray, *, risk_weight: float = 0.7
) -> Witness:
    """Build the query for a plane below βF + λᵀr, its slopes moved along −w/3."""
    weights = problem.cell_weights(lam)
    return Witness(problem.task, w, risk_weight, weights, -w / 3)


def assert_same_total(a: Any, b: Any, tolerance: float) -> None:
    """Compare two totals field by field, relative to each field's size."""
    assert type(a) is type(b)
    for field in fields(a):
        x, y = np.asarray(getattr(a, field.name)), np.asarray(getattr(b, field.name))
        assert x.shape == y.shape, field.name
        if x.dtype.kind == "U":
            assert x == y, field.name
            continue
        scale = max(1.0, float(np.abs(y).max(initial=0.0)))
        np.testing.assert_allclose(
            x, y, rtol=0, atol=tolerance * scale, err_msg=field.name
        )


def group_masks(federation: Federation, split: str = "train") -> np.ndarray:
    """Mark the rows of each group, shape (groups, n)."""
    group = federation.pooled(split).group
    return np.array([group == a for a in range(len(federation.schema.groups))])


def setting(kind="logistic", *, seed=0, sizes=(40, 7, 90), weighting="silos", **prices):
    """Return a federation, an engine, a problem, its oracle and a random (w, λ)."""
    cls, labels = MODELS[kind]
    federation = make_federation(seed, sizes=sizes, labels=labels)
    engine = Reference(federation)
    options = Options(weighting=weighting)
    problem = make_problem(
        engine,
        pffl.BoundedGroupLoss(0.4) & pffl.PerSilo(0.6),
        model=cls(l2=0.02),
        options=options,
        **prices,
    )
    silo = federation.pooled("train").silo
    cells = np.concatenate(
        [group_masks(federation), [silo == k for k in range(len(sizes))]]
    )
    oracle = Oracle.of(
        federation,
        cells,
        [0.4, 0.4] + [0.6] * len(sizes),
        kind=kind,
        l2=0.02,
        weighting=weighting,
        **prices,
    )
    rng = np.random.default_rng(seed + 1)
    w = rng.normal(size=problem.n_parameters)
    return federation, engine, problem, oracle, w, draw_multipliers(rng, problem)
