"""One draw of a data set: models are trained on it, and measured on held-out rows.

`pffl.solve` proves and certifies a model. A study needs thousands of models and only
their errors and losses, so a `Bench` counts the rows once and asks for nothing else.
Nothing is chosen here: every model is measured on validation and on test rows, and
`claims` chooses on the first and reports the second.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import pffl
from pffl import methods
from pffl._solve import open_engine, setting_of
from pffl.driver import drive
from pffl.flow import Flow, Run, Start, ask_all, gather, rounds
from pffl.methods import PFFL, Exact
from pffl.models import LogisticRegression
from pffl.prepare import prepare
from pffl.problem import Point, Problem
from pffl.queries import Evaluate, EvaluateTotal
from reproduction import optimum

L2 = 0.001  # of every model, unless the ridge is searched
LEAST_ROWS = 30  # groups with fewer validation or test rows do not count as the worst
SPLITS = ("validation", "test")
CONSTRAINTS = {
    "bgl": pffl.BoundedGroupLoss,
    "cbgl": pffl.ConditionalBoundedGroupLoss,
    "cbgl-y1": lambda bound: pffl.ConditionalBoundedGroupLoss(bound, labels=(1,)),
    "cbgl-y0": lambda bound: pffl.ConditionalBoundedGroupLoss(bound, labels=(0,)),
    "silos": pffl.PerSilo,
}
UNIT = 100_000  # rows hold whole numbers, in parts of 1/UNIT
Row = list[int]  # validation error, validation measure, test error, test measure


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model: its run, and what was counted on validation and test rows."""

    run: Run
    totals: tuple[EvaluateTotal, EvaluateTotal]

    def row(self, measure: str = "worst") -> Row:
        """Return error and a measure on validation rows, then on test rows.

        "worst" is the largest mean loss of the constraint's groups; "dp" the largest
        difference between groups' rates of positive predictions, and "eo" the same
        among rows whose label is positive.
        """
        errors, sums, counts = [], [], []
        for total in self.totals:
            count, correct = total.column("count"), total.column("correct")
            errors.append(1 - correct.sum() / count.sum())
            if measure == "worst":
                sums.append(total.column("loss", of="cells"))
                counts.append(total.column("count", of="cells"))
            else:
                labels = slice(1, 2) if measure == "eo" else slice(0, 2)
                positive = total.column("positive").reshape(-1, 2)[:, labels]
                sums.append(positive.sum(axis=1))
                counts.append(count.reshape(-1, 2)[:, labels].sum(axis=1))
        enough = np.min(counts, axis=0) >= LEAST_ROWS
        means = [s[enough] / c[enough] for s, c in zip(sums, counts, strict=True)]
        values = [np.max(m) if measure == "worst" else np.ptp(m) for m in means]
        return whole([errors[0], values[0], errors[1], values[1]])


def whole(numbers: Iterable[float]) -> Row:
    """Return numbers as a record keeps them."""
    return [round(float(number) * UNIT) for number in numbers]


def logistic(l2: float) -> Any:
    """Return the model of all studies but CelebA's network."""
    return LogisticRegression(l2=l2)


class Bench:
    """One draw of the data, with what is known of it before training."""

    def __init__(
        self,
        federation: pffl.Federation,
        seed: int,
        model: Callable[[float], Any] = logistic,
        solver: Any = Exact,
    ) -> None:
        self.federation, self.seed = federation, seed
        self.model, self.solver = model, solver
        self.engine = open_engine(federation, "local")
        self._problems: dict[tuple[str, float], Problem] = {}

    @cached_property
    def setting(self) -> Any:
        """What is known of the silos."""
        return setting_of(self.engine)

    def problem(self, notion: str, l2: float = L2) -> Problem:
        """Return the problem of a notion; its bounds and prices are set by callers."""
        if (notion, l2) not in self._problems:
            flow = prepare(
                self.setting,
                CONSTRAINTS[notion](0.6),
                self.model(l2),
                PFFL(),
                pffl.Options(empty_cells="remove"),
                self.seed,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of bounds that are only tried
                self._problems[notion, l2] = drive(self.engine, flow)[0]
        return self._problems[notion, l2]

    def worst_training_loss(self, notion: str, model: Model) -> float:
        """Return the largest mean training loss of a notion's groups."""
        problem = self.problem(notion)
        total = drive(
            self.engine, ask_all([Evaluate(problem.task, model.run.point.w, "train")])
        )[0]
        return float((total.column("loss", of="cells") / problem.counts).max())

    # Solved

    def fedavg(self, notion: str, l2: float = L2) -> Model:
        """Solve what FedAvg descends."""
        return self._optimum(notion, methods.FedAvg(), l2)

    def weighted(self, notion: str, l2: float = L2) -> Model:
        """Solve what group-weighted FedAvg descends."""
        return self._optimum(notion, methods.GroupWeighted(), l2)

    def local(self, notion: str, points: Iterable[tuple[float, float]]) -> list[Model]:
        """Solve local bounds at pairs (bound, multiplier bound), each from the last."""
        models: list[Model] = []
        for bound, price in points:
            start = models[-1].run.point.w if models else None
            method = methods.LocalBGL(multiplier_bound=price)
            models.append(self._optimum(notion, method, L2, bound, start))
        return models

    def _optimum(
        self,
        notion: str,
        method: Any,
        l2: float,
        bound: float = 0.6,
        start: np.ndarray | None = None,
    ) -> Model:
        problem = self.priced(notion, l2, bound, method.multiplier_bound)
        flow = optimum.solved(problem, method, start)
        return drive(self.engine, self._measured(problem, flow))

    def exact(
        self,
        notion: str,
        points: Iterable[tuple[float, float]],
        *,
        l2: float = L2,
    ) -> list[Model]:
        """Solve PFFL at pairs (bound, multiplier bound), each from the last one."""
        models: list[Model] = []
        start = None
        for bound, price in points:
            problem = self.priced(notion, l2, bound, price)
            flow = rounds(problem, self.solver(multiplier_bound=price), start=start)
            models.append(drive(self.engine, self._measured(problem, flow)))
            start = Start.of(models[-1].run, problem)
        return models

    def grid(
        self, notion: str, bounds: Sequence[float], prices: Sequence[float]
    ) -> tuple[list[tuple[float, float]], list[Model]]:
        """Solve PFFL on a grid; problems with the same solution are solved once.

        All bounds below the smallest possible one give the same model at the same
        price; and so do all prices above the sum of the multipliers. Returns the pairs
        (bound, multiplier bound) that were solved, too.
        """
        pairs: list[tuple[float, float]] = []
        models: list[Model] = []
        least = self.worst_training_loss(notion, self.exact(notion, [(0.0, 500.0)])[0])
        low = [bound for bound in bounds if bound < least - 0.01]
        for bound in (*low[-1:], *(b for b in bounds if b not in low)):
            for price in prices:
                pairs.append((bound, price))
                models += self.exact(notion, pairs[-1:])
                if models[-1].run.point.multipliers.sum() < 0.99 * price:
                    break
        return pairs, models

    def minimax(self, notion: str) -> Model:
        """Solve what FedMinMax descends: the largest loss, at (β, B, ζ) = (0, 1, 0)."""
        problem = replace(self.priced(notion, L2, 0.0, 1.0), risk_weight=0.0)
        method = Exact(multiplier_bound=1.0, risk_weight=0.0)
        return drive(self.engine, self._measured(problem, rounds(problem, method)))

    # Trained

    def trained(
        self, notion: str, trained: Sequence[Any], bounds: Any = 0.6
    ) -> list[Model]:
        """Train methods side by side, with a bound for each or one for all."""
        flows = []
        each = np.broadcast_to(bounds, len(trained))
        for method, bound in zip(trained, each, strict=True):
            price = method.multiplier_bound or 0.0
            problem = self.priced(notion, L2, float(bound), price)
            problem = replace(problem, risk_weight=method.risk_weight)
            flows.append(self._measured(problem, rounds(problem, method)))
        return list(drive(self.engine, gather(*flows)))

    def priced(
        self, notion: str, l2: float, bound: float, price: float | None
    ) -> Problem:
        """Return the problem of a notion at one bound for all groups, and B."""
        problem = self.problem(notion, l2)
        bounds = np.full(problem.n_cells, float(bound))
        return replace(
            problem.with_bounds(bounds), multiplier_bound=float(price or 0.0)
        )

    def _measured(self, problem: Problem, flow: Flow[Run]) -> Flow[Model]:
        run: Run = yield from flow
        asked = [Evaluate(problem.task, run.point.w, split) for split in SPLITS]
        totals = yield from ask_all(asked)
        return Model(run, (totals[0], totals[1]))

    # Without training

    def constant(self, notion: str) -> Row:
        """Return the row of saying the training rows' rate to everybody."""
        if self.model is not logistic:
            return Bench(self.federation, self.seed).constant(notion)
        problem = self.problem(notion)
        labels = problem.silo_counts.sum(axis=0).reshape(-1, 2).sum(axis=0)
        w = np.zeros(problem.n_parameters)
        w[-1] = np.log(labels[1] / labels[0])  # the intercept
        asked = [Evaluate(problem.task, w, split) for split in SPLITS]
        validation, test = drive(self.engine, ask_all(asked))
        point = Point(w, np.zeros(problem.n_cells))
        return Model(Run(point), (validation, test)).row()


def in_two_groups(federation: pffl.Federation, first: str) -> pffl.Federation:
    """Return the federation with one group against all others."""
    schema = federation.schema
    place = schema.groups.index(first)

    def narrower(rows: Any) -> Any:
        return replace(rows, group=(rows.group != place).astype(np.int64))

    attribute = replace(schema.attributes[0], values=(first, f"not {first}"))
    return _changed(federation, replace(schema, attributes=(attribute,)), narrower)


def _changed(
    federation: pffl.Federation, schema: Any, change: Callable[[Any], Any]
) -> pffl.Federation:
    silos = [
        replace(s, splits={split: change(rows) for split, rows in s.splits.items()})
        for s in federation.silos
    ]
    return pffl.Federation(schema, silos, federation.name)
