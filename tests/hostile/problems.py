"""Random problems that try to make a sentence false: one number, one problem.

Inputs that are collinear, constant, of size 1e±10 or without a variance; cells of a
handful of rows, crossed and overlapping; targets from 1e-4 to 1e9; no ridge, no risk,
prices from 1e-3 to 1e6; bounds that are impossible, loose, or right at what is
possible; rows that count alike, or have weights. Everything is drawn with its number as
the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.hostile import judge
from tests.oracles import (
    Federation,
    Options,
    Part,
    Solved,
    attributes_of,
    cell_names,
    federation_of,
    people_of,
    pffl,
    solve,
)

INPUTS = (
    *("plain", "plain", "plain", "collinear", "twins", "constant", "huge", "tiny"),
    *("mixed", "cauchy", "flags", "far", "far", "separable"),
)
UNITS = (1.0, 1.0, 1e-4, 1e-2, 1e2, 1e4, 1e9)
RIDGES = (0.0, 1e-8, 1e-5, 1e-3, 1e-3)
BUDGETS = (None, None, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6)
FACTORS = (0.0, 0.1, 0.5, 0.8, 0.9, 0.97, 1.0, 1.01, 1.2, 3.0, 100.0)
EDGES = (-1e-2, -1e-4, -1e-6, -1e-8, 0.0, 1e-8, 1e-6, 1e-4)
KINDS = ("logistic", "least-squares", "huber", "softmax")
SHARES = (0.42, 0.22, 0.18, 0.18)
WEIGHTS = ("whole", "lognormal", "heavy", "small", "alike", "with the target")


@dataclass(frozen=True, eq=False)
class Hostile:
    """One problem, ready to be solved, and what it was made of."""

    number: int
    federation: Federation
    constraint: Any
    model: Any
    method: Any
    options: Options
    facts: dict[str, object]

    def solve(self) -> Solved:
        """Solve it with the product."""
        return solve(
            self.federation,
            self.constraint,
            model=self.model,
            method=self.method,
            options=self.options,
            random_state=self.number,
        )


def draw(number: int, **fixed: Any) -> Hostile:
    """Draw the problem with this number; some of its facts may be fixed."""
    rng = np.random.default_rng([12, number])
    facts: dict[str, Any] = {
        "kind": str(rng.choice(KINDS, p=SHARES)),
        "inputs": str(rng.choice(INPUTS)),
        "cells": str(
            rng.choice(
                ["groups", "crossed", "overlapping", "silos", "labels", "many"],
                p=[0.28, 0.2, 0.2, 0.14, 0.16, 0.02],
            )
        ),
        "rows": int(10 ** rng.uniform(1.6, 3.1)),
        "features": int(
            rng.choice([1, 2, 4, 8, 12, 40], p=[0.1, 0.2, 0.3, 0.2, 0.17, 0.03])
        ),
        "l2": float(rng.choice(RIDGES)),
        "beta": float(rng.choice([1.0, 1.0, 1.0, 1.0, 0.0, 0.1, 30.0])),
        "budget": BUDGETS[rng.integers(len(BUDGETS))],
        "unit": float(rng.choice(UNITS)),
        "offset": float(rng.choice([0.0, 3.0, 300.0])),
        "factor": float(rng.choice(FACTORS)),
        "edge": float(rng.choice(EDGES)) if rng.random() < 0.15 else None,
        "apart": bool(rng.random() < 0.4),
        "standardize": bool(rng.random() < 0.85),
        "silos": int(rng.choice([1, 2, 3, 5, 10])),
        "test": bool(rng.random() < 0.5),
        "method": "exact" if rng.random() < 0.94 else "pffl",
        "weighting": str(rng.choice(["silos", "rows"])),
        "delta": float(10 ** rng.uniform(-2.5, 1)),
        "none": rng.choice(4) if rng.random() < 0.2 else None,  # so that draws stay
        "range": bool(rng.random() < 0.3),
        "weights": None,
    } | fixed
    if rng.random() < 0.015:
        facts |= {"features": 300, "rows": 500} | fixed
    if facts["cells"] == "silos":
        facts["silos"] = int(fixed.get("silos", rng.choice([3, 10, 100])))
        facts["rows"] = max(facts["rows"], 6 * facts["silos"])
    if facts["cells"] == "many":
        facts["rows"] = max(facts["rows"], 1200)
    if facts["kind"] == "softmax":
        facts["features"] = min(facts["features"], 4 if facts["silos"] > 10 else 12)
    if facts["rows"] * facts["features"] > 4000 or facts["silos"] > 10:
        facts["edge"] = fixed.get("edge")
    federation = _federation(rng, facts)
    return Hostile(
        number,
        federation,
        _constraint(rng, federation, facts),
        _model(federation, facts),
        _method(rng, facts),
        _options(federation, facts),
        facts,
    )


def _inputs(rng: np.random.Generator, kind: str, n: int, d: int) -> np.ndarray:
    X = rng.normal(size=(n, d))
    if kind == "collinear" and d > 1:
        X[:, 1:] = X[:, :1] * rng.normal(size=d - 1) + 10 ** rng.uniform(
            -12, -3
        ) * rng.normal(size=(n, d - 1))
    elif kind == "twins" and d > 1:
        X[:, d // 2 :] = X[:, : d - d // 2]
    elif kind == "constant":
        X[:, 0] = rng.choice([0.0, 1.0, 1e7, 0.1])
    elif kind in ("huge", "tiny"):
        X *= 1e10 if kind == "huge" else 1e-10
    elif kind == "mixed":
        X *= 10.0 ** rng.uniform(-10, 10, size=d)
    elif kind == "cauchy":
        X = rng.standard_cauchy(size=(n, d))
    elif kind == "flags":
        X = (rng.random((n, d)) < rng.uniform(0.01, 0.6, size=d)).astype(float)
    elif kind == "far":  # milliseconds since 1970, and the like
        X = 1e5 * X + 1.7e12 * rng.choice([1.0, 1e-3, 1e-6])
    return X


def _federation(rng: np.random.Generator, facts: dict[str, Any]) -> Federation:
    n, d, kind = facts["rows"], facts["features"], facts["kind"]
    X = _inputs(rng, facts["inputs"], n, d)
    if facts["cells"] == "many":
        sizes = {"a": 20, "b": 10}
    else:
        names = ("a", "b", "c")[: int(rng.integers(1, 4))]
        sizes = {name: int(rng.integers(2, 5)) for name in names}
    codes = np.stack(
        [rng.choice(size, n, p=_skewed(rng, size)) for size in sizes.values()], axis=1
    )
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    Z = np.clip((X - np.median(X, axis=0)) / spread, -5, 5)
    bias = rng.normal(size=(3, 20))
    score = Z @ rng.normal(size=d) / np.sqrt(d) + sum(
        bias[j][codes[:, j]] for j in range(codes.shape[1])
    )
    y = _targets(rng, facts, score)
    silo = rng.choice(facts["silos"], n, p=_skewed(rng, facts["silos"]))
    silo[: facts["silos"]] = np.arange(facts["silos"])
    labels = {"logistic": 2, "softmax": 5}.get(kind, 0)
    held = np.zeros(n, dtype=bool)
    if facts["test"]:
        held = rng.random(n) < 0.25
        held[: max(facts["silos"], 5)] = False
    weight = _weights(rng, facts["weights"], y)
    silos = []
    for k in range(facts["silos"]):
        splits = {}
        for split, part in (("train", ~held), ("test", held)):
            mine = (silo == k) & part
            if split == "train" or facts["test"]:
                own = None if weight is None else weight[mine]
                splits[split] = Part(X[mine], y[mine], codes[mine], own)
        silos.append(splits)
    attributes = {
        name: [f"{name}{v}" for v in range(size)] for name, size in sizes.items()
    }
    return federation_of(silos, attributes, labels, f"hostile {facts['kind']}")


def _weights(
    rng: np.random.Generator, kind: str | None, y: np.ndarray
) -> np.ndarray | None:
    """Weights of a kind; none is drawn where there are none."""
    n = len(y)
    if kind == "whole":
        return rng.integers(1, 200, n).astype(float)
    if kind == "heavy":  # one row in twenty outweighs all others
        return np.where(rng.random(n) < 0.05, 1e6, rng.random(n) + 0.1)
    if kind == "small":
        return 1e-9 * rng.exponential(size=n) + 1e-12
    if kind == "alike":
        return np.full(n, 7.0)
    if kind == "with the target":
        return np.where(y > np.median(y), 5.0, 1.0) * rng.uniform(0.5, 1.0, n)
    return None if kind is None else rng.lognormal(0.0, 1.0, n)


def _skewed(rng: np.random.Generator, size: int) -> np.ndarray:
    share = 1e-3 + rng.dirichlet(np.full(size, rng.choice([0.5, 3.0])))
    return np.asarray(share / share.sum())


def _targets(
    rng: np.random.Generator, facts: dict[str, Any], score: np.ndarray
) -> np.ndarray:
    n, kind = len(score), facts["kind"]
    noise = 0.0 if facts["inputs"] == "separable" else rng.choice([0.3, 1.0, 3.0])
    score = score + noise * rng.normal(size=n)
    if kind == "logistic":
        y = (score > np.median(score)).astype(float)
        y[:2] = [0.0, 1.0]
    elif kind == "softmax":
        y = np.digitize(score, np.quantile(score, [0.2, 0.4, 0.6, 0.8])).astype(float)
        y[:5] = np.arange(5)
    else:
        if rng.random() < 0.15:
            score = score + rng.standard_cauchy(size=n)
        y = facts["unit"] * (score + facts["offset"])
    return np.asarray(y)


def _constraint(
    rng: np.random.Generator, federation: Federation, facts: dict[str, Any]
) -> Any:
    level = _level(federation, facts) * facts["factor"]
    state = rng.bit_generator.state
    drawn = _bounded(rng, federation, facts, level)
    if facts["edge"] is None:
        return drawn
    # The same cells again, with a bound right at the smallest that all can meet.
    facts["apart"], rng.bit_generator.state = False, state
    bare = judge.of_rows(federation, drawn, facts["kind"], _delta(facts))
    least = float(bare.smallest_excess(np.zeros(bare.parameters))[0])
    return _bounded(rng, federation, facts, max(0.0, least) * (1 + facts["edge"]))


def _bounded(
    rng: np.random.Generator,
    federation: Federation,
    facts: dict[str, Any],
    level: float,
) -> Any:
    names = attributes_of(federation)
    kind = facts["cells"]

    def spread(count: int) -> list[float]:
        return (level * rng.uniform(0.7, 1.5, size=count)).tolist()

    def groups(by: Any) -> Any:
        if not facts["apart"]:
            return pffl.BoundedGroupLoss(level, by=by)
        cells = cell_names(pffl.BoundedGroupLoss(0.0, by=by), federation)
        return pffl.BoundedGroupLoss(
            dict(zip(cells, spread(len(cells)), strict=True)), by=by
        )

    if kind == "silos":
        return pffl.PerSilo(level)
    if kind == "labels" and people_of(federation).labels:
        return pffl.ConditionalBoundedGroupLoss(level, by=names[0])
    if kind == "groups":
        return groups(names[0])
    if kind == "overlapping":
        first = groups(names[0])
        other = names[1] if len(names) > 1 else None
        second = pffl.PerSilo(level) if other is None else groups(other)
        both = first & second
        return both & groups(tuple(names)) if facts["rows"] % 2 else both
    return groups(tuple(names))


def _level(federation: Federation, facts: dict[str, Any]) -> float:
    """Mean loss of a constant model, roughly: what a bound is measured by."""
    rows = people_of(federation)
    y = rows.y
    if rows.labels:
        rate = np.bincount(y.astype(int)) / len(y)
        return float(-(rate[rate > 0] * np.log(rate[rate > 0])).sum())
    if facts["kind"] == "least-squares":
        return float(y.var())
    delta = _delta(facts)
    r = np.abs(y - np.median(y))
    return float(np.where(r <= delta, r**2, 2 * delta * r - delta**2).mean())


def _delta(facts: dict[str, Any]) -> float:
    """Huber's δ, in the target's units."""
    return float(facts["delta"] * facts["unit"])


def _options(federation: Federation, facts: dict[str, Any]) -> Options:
    ends = federation.weight_range
    heaviest = None if ends is None else 1.5 * ends[1]
    return Options(
        weighting=facts["weighting"], empty_cells="remove", weight_bound=heaviest
    )


def _model(federation: Federation, facts: dict[str, Any]) -> Any:
    plain = {"l2": facts["l2"], "standardize": facts["standardize"]}
    if not people_of(federation).labels and facts["range"]:
        parts = ("train", "test") if facts["test"] else ("train",)
        y = np.concatenate([people_of(federation, split).y for split in parts])
        plain["target_range"] = (float(y.min()), float(y.max()) + facts["unit"])
    if facts["kind"] == "huber":
        return pffl.HuberRegression(delta=_delta(facts), **plain)
    kinds = {
        "logistic": pffl.LogisticRegression,
        "softmax": pffl.SoftmaxRegression,
        "least-squares": pffl.LeastSquares,
    }
    return kinds[facts["kind"]](**plain)


def _method(rng: np.random.Generator, facts: dict[str, Any]) -> Any:
    if facts["method"] == "exact":
        return pffl.Exact(multiplier_bound=facts["budget"], risk_weight=facts["beta"])
    return pffl.PFFL(
        multiplier_bound=facts["budget"] or 10.0,
        risk_weight=facts["beta"] or 1.0,
        dual_rounds=int(rng.choice([1, 5, 30])),
        rounds_per_dual=int(rng.choice([1, 3])),
        local_steps=int(rng.choice([1, 5, 50])),
    )
