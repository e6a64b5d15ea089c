"""The methods of the benchmark, and how another one is added.

An entry trains on one draw of a task and returns weights, one vector for each trial of
its grid: of standardised inputs, the intercept last. What it returns is measured, and
chosen among, by `run`. `budget` is how many gradients of every silo it may ask for;
None: train until it has converged, or for LONG. A method of yours:

    def mine(draw, budget):
        w = np.zeros(draw.inputs + 1)
        for _ in range(budget or LONG):
            w = w - 0.5 * np.mean([gradient(w, silo) for silo in draw.silos], axis=0)
        return [w]

    METHODS["mine"] = mine
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

import pffl
from pffl import methods
from pffl._solve import open_engine, setting_of
from pffl.driver import drive
from pffl.flow import gather, rounds
from pffl.methods import PFFL, Exact
from pffl.models import LogisticRegression
from pffl.prepare import prepare
from pffl.problem import Problem

L2 = 0.001
LONG = 300  # gradients of a method without a test of convergence
CONSTRAINTS = {
    "bgl": pffl.BoundedGroupLoss,
    "cbgl": pffl.ConditionalBoundedGroupLoss,
    "silos": pffl.PerSilo,
}
ROOM = (0.0, 0.25, 0.5, 0.75)  # bounds: from the least possible to FedAvg's own loss
Weights = Sequence[np.ndarray]
Train = Callable[["Draw", int | None], Weights]


class Part(NamedTuple):
    """Rows of one silo, or of one split: standardised inputs, the last of them 1."""

    X: np.ndarray
    y: np.ndarray
    group: np.ndarray
    silo: np.ndarray


class Draw:
    """One seed of a task: training rows, and the rows that models are measured on."""

    def __init__(self, federation: pffl.Federation, seed: int = 0) -> None:
        self.federation, self.seed = federation, seed
        self.inputs = federation.schema.n_features
        whole = federation.pooled("train")
        self.mean, spread = whole.X.mean(axis=0), whole.X.std(axis=0)
        self.scale = np.where(spread > 0, spread, 1.0)
        self.engine = open_engine(federation, "local")
        self._problems: dict[str, Problem] = {}

    def part(self, split: str) -> Part:
        """Return the rows of a split."""
        rows = self.federation.pooled(split)
        X = np.column_stack([(rows.X - self.mean) / self.scale, np.ones(len(rows.y))])
        return Part(X, rows.y, rows.group, rows.silo)

    @cached_property
    def silos(self) -> list[Part]:
        """Training rows of each silo."""
        whole = self.part("train")
        return [
            Part(*(column[whole.silo == k] for column in whole))
            for k in range(len(self.federation))
        ]

    def problem(self, notion: str) -> Problem:
        """Return the problem of a notion; callers set its bounds and prices."""
        if notion not in self._problems:
            flow = prepare(
                setting_of(self.engine), CONSTRAINTS[notion](0.6),
                LogisticRegression(l2=L2), Exact(multiplier_bound=1.0),
                pffl.Options(empty_cells="remove"), self.seed,
            )  # fmt: skip
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of bounds that are only tried
                self._problems[notion] = drive(self.engine, flow)[0]
        return self._problems[notion]

    def train(
        self, notion: str, trials: Sequence[tuple[Any, float]]
    ) -> list[np.ndarray]:
        """Train methods of pffl side by side, each with its bound."""
        flows = []
        for method, bound in trials:
            own = self.problem(notion)
            own = replace(
                own.with_bounds(np.full(own.n_cells, bound)),
                multiplier_bound=float(method.multiplier_bound or 0.0),
                risk_weight=float(method.risk_weight),
            )
            flows.append(rounds(own, method))
        return [run.point.w for run in drive(self.engine, gather(*flows))]

    def bounds(self, notion: str) -> list[float]:
        """Return bounds between the least that is possible and what FedAvg has."""
        free, least = self.train(
            notion,
            [(Exact(multiplier_bound=1.0), 1e3),
             (Exact(multiplier_bound=1.0, risk_weight=0.0), 0.0)],
        )  # fmt: skip
        train, worst = self.part("train"), []
        cells = {
            "bgl": train.group,
            "cbgl": 2 * train.group + train.y,
            "silos": train.silo,
        }[notion]
        for w in (free, least):
            z = train.X @ w
            losses = np.logaddexp(0, z) - train.y * z
            worst.append(max(losses[cells == c].mean() for c in np.unique(cells)))
        return [worst[1] + room * max(worst[0] - worst[1], 0.0) for room in ROOM]


METHODS: dict[str, Train] = {}


def of_pffl(name: str, notion: str, kind: Any, grid: Sequence[dict[str, Any]]) -> None:
    """Enter a method of pffl that takes no bound."""

    def train(draw: Draw, budget: int | None) -> Weights:
        built = [kind.within(budget or LONG, **point) for point in grid]
        return draw.train(notion, [(method, 0.6) for method in built])

    METHODS[name] = train


def bounded(name: str, notion: str) -> None:
    """Enter PFFL: solved if it may converge, else Algorithm 1."""

    def train(draw: Draw, budget: int | None) -> Weights:
        price = {"multiplier_bound": 20.0}
        method: Any = Exact(**price)
        if budget is not None:
            method = PFFL.within(budget, local_steps=1, rounds_per_dual=5, **price)
        return draw.train(notion, [(method, bound) for bound in draw.bounds(notion)])

    METHODS[name] = train


def fedavg(draw: Draw, budget: int | None) -> Weights:
    """FedAvg: solved if it may converge."""
    method: Any = Exact(multiplier_bound=1.0)
    return draw.train(
        "bgl", [(methods.FedAvg.within(budget) if budget else method, 1e3)]
    )


def minimax(draw: Draw, budget: int | None) -> Weights:
    """FedMinMax: solved if it may converge."""
    method: Any = Exact(multiplier_bound=1.0, risk_weight=0.0)
    if budget is not None:
        method = methods.FedMinMax.within(budget)
    return draw.train("bgl", [(method, 0.0)])


METHODS["fedavg"] = fedavg
of_pffl("weighted", "bgl", methods.GroupWeighted, [{}])
METHODS["fedminmax"] = minimax
bounded("pffl-bgl", "bgl")
bounded("pffl-cbgl", "cbgl")
bounded("pffl-silos", "silos")
of_pffl("afl", "silos", methods.AFL, [{}])
of_pffl("qffl", "silos", methods.QFFL, [{"q": q} for q in (0.1, 1.0, 5.0)])
of_pffl("fedfb", "bgl", methods.FedFB,
    [{"notion": n, "alpha": a} for n in ("dp", "eo") for a in (0.1, 1.0)])  # fmt: skip
of_pffl("fedfair", "bgl", methods.FedFair,
    [{"gap_bound": g} for g in (0.0, 0.05)])  # fmt: skip
of_pffl("fcfl", "bgl", methods.FCFL,
    [{"notion": n, "pooled": True} for n in ("dp", "eo")])  # fmt: skip
