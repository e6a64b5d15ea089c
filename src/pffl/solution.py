"""The result of a run: a model, what it promises, and the numbers behind it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from pffl.callbacks import Round
from pffl.constraints.metrics import Metrics
from pffl.data.schema import Schema
from pffl.data.silo import as_inputs
from pffl.errors import DataError, NotMetError, UsageError
from pffl.problem import Problem
from pffl.typing import FloatArray
from pffl.verdict import Status

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class CellResult:
    """One cell's row of the verdict table.

    `test_upper` bounds the mean loss of unseen people; the losses `before` are those of
    the same model fitted without bounds.
    """

    cell: str
    bound: float
    count: int
    train_loss: float
    violation: float
    multiplier: float
    test_loss: float | None
    test_count: int
    test_upper: float | None
    before_train_loss: float | None = None
    before_test_loss: float | None = None


@dataclass(frozen=True, eq=False)
class Solution:
    """A trained model with its verdict.

    Attributes
    ----------
    status, message
        The verdict, in a word and in a sentence.
    w, multipliers
        Parameters and λ.
    gap
        Measured duality gap ν of the pair; None for models that are not convex.
    slack
        (βM + 2ν)/B, where it was needed and an M is known.
    rounds
        Rounds of the method.
    measuring_rounds
        Further rounds spent on measuring the gap and on feasibility.
    confidence, loss_bound
        What the `test_upper` of the cells stands for: the mean loss of unseen people,
        each loss counted up to `loss_bound`, holds for all cells at once.
    witness
        Where infeasible: λ that proves it.
    smallest_bound
        Where infeasible: the smallest common bound that is possible and that the same
        run would meet (or what to add to all bounds, if they differ).
    """

    status: Status
    message: str
    w: FloatArray
    multipliers: FloatArray
    gap: float | None
    slack: float | None
    rounds: int
    measuring_rounds: int
    seconds: float
    cell_results: tuple[CellResult, ...]
    train: Metrics
    test: Metrics | None
    rows: tuple[Round, ...]
    problem: Problem
    schema: Schema
    silo_names: tuple[str, ...]
    method: Mapping[str, object]
    constraint: Mapping[str, object]
    weighting: str
    seed: int
    data: Mapping[str, object]
    confidence: float
    loss_bound: float | None
    witness: Mapping[str, float] | None = None
    smallest_bound: float | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether every bound was met."""
        return self.status == "met"

    def or_raise(self) -> Solution:
        """Return self if every bound was met, and raise the message otherwise."""
        if not self.ok:
            raise NotMetError(self.message)
        return self

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Per cell: bound, count, losses, violation, multiplier, upper bound."""
        import pandas as pd

        names = [f.name for f in fields(CellResult)]
        rows = [vars(row) for row in self.cell_results]
        return pd.DataFrame(rows, columns=names).set_index("cell")

    @cached_property
    def history(self) -> pd.DataFrame:
        """Per round: risk, worst cell, violation, gap, seconds, λ and loss of cells."""
        import pandas as pd

        return pd.DataFrame(self.history_rows())

    def history_rows(self) -> list[dict[str, object]]:
        """Return the history as plain rows."""
        names, bounds = self.problem.cells.names, self.problem.cells.bounds
        out: list[dict[str, object]] = []
        for row in self.rows:
            known = np.nan_to_num(row.violation, nan=-np.inf)
            worst = int(known.argmax()) if np.isfinite(known).any() else None
            out.append(
                {
                    "round": row.number,
                    "risk": row.risk,
                    "worst_cell": None if worst is None else names[worst],
                    "worst_violation": None
                    if worst is None
                    else float(row.violation[worst]),
                    "upper": row.upper,
                    "gap": row.gap,
                    "seconds": row.seconds,
                    **{
                        f"loss: {name}": float(r + b)
                        for name, r, b in zip(names, row.violation, bounds, strict=True)
                    },
                    **{
                        f"multiplier: {name}": float(lam)
                        for name, lam in zip(names, row.multipliers, strict=True)
                    },
                }
            )
        return out

    def _repr_html_(self) -> str:
        """Show the verdict in a notebook; every text is escaped."""
        from pffl.certificates._render import element

        keys = ["cell", "count", "bound", "before_train_loss", "train_loss"]
        keys += ["multiplier", "test_loss", "test_upper"]
        cells = sorted(self.cell_results, key=lambda row: -row.violation)
        splits = {"train": self.train, "test": self.test}
        return element(
            "solution",
            f"Solution: {self.status}",
            [self.message, *self.notes],
            [{key: getattr(row, key) for key in keys} for row in cells],
            [
                {"split": split, **found.as_dict()}
                for split, found in splits.items()
                if found is not None
            ],
        )

    def predict_proba(self, X: object) -> FloatArray:
        """Class probabilities for raw (unscaled) features."""
        return self.problem.task.model.predict_proba(self.w, self._inputs(X))

    def predict(self, X: object) -> np.ndarray:
        """Label names, or numbers, for raw (unscaled) features."""
        model, inputs = self.problem.task.model, self._inputs(X)
        codes = model.classes(self.w, inputs)
        if codes is None:
            return model.predict_values(self.w, inputs)
        return np.asarray(self.schema.labels)[codes.astype(np.int64)]

    def metric_frame(
        self,
        X: object,
        y: object,
        *,
        sensitive_features: object,
        metrics: object = None,
    ) -> object:
        """Return a fairlearn `MetricFrame` of the predictions for some rows.

        Parameters
        ----------
        X, y
            Raw (unscaled) features, and labels by name (or numbers).
        sensitive_features, metrics
            As for fairlearn; the metric is the accuracy by default, or the mean squared
            error of a numeric target.
        """
        try:
            from fairlearn.metrics import MetricFrame
        except ImportError as error:
            raise UsageError(
                "a MetricFrame needs fairlearn: pip install fairlearn"
            ) from error
        from sklearn.metrics import accuracy_score, mean_squared_error

        default = accuracy_score if self.schema.labels else mean_squared_error
        return MetricFrame(
            metrics=default if metrics is None else metrics,
            y_true=y,
            y_pred=self.predict(X),
            sensitive_features=sensitive_features,
        )

    def _inputs(self, X: object) -> FloatArray:
        columns = getattr(X, "columns", None)
        if columns is not None:
            X = X[list(self.schema.features)]  # type: ignore[index]
        inputs = as_inputs(X)
        expected = self.schema.n_features
        if inputs.ndim != 2 or inputs.shape[1] != expected:
            raise DataError(
                f"inputs have shape {inputs.shape}, expected (rows, {expected}): "
                f"{', '.join(self.schema.features[:8])}"
                + (", …" if expected > 8 else "")
            )
        bad = int((~np.isfinite(inputs)).any(axis=1).sum())
        if bad:
            raise DataError(f"{bad} rows have missing or infinite inputs")
        return self.problem.task.model.inputs.apply(inputs)

    def as_dict(self) -> dict[str, object]:
        """Return what `result.json` holds."""
        return {
            "status": self.status,
            "message": self.message,
            "method": dict(self.method),
            "constraint": dict(self.constraint),
            "model": dict(self.problem.task.model.describe()),
            "weighting": self.weighting,
            "seed": self.seed,
            "rounds": self.rounds,
            "measuring_rounds": self.measuring_rounds,
            "seconds": round(self.seconds, 3),
            "gap": self.gap,
            "slack": self.slack,
            "cells": [dict(vars(row)) for row in self.cell_results],
            "train": self.train.as_dict(),
            "test": None if self.test is None else self.test.as_dict(),
            "confidence": self.confidence,
            "loss_bound": self.loss_bound,
            "radius": self.problem.radius,
            "witness": None if self.witness is None else dict(self.witness),
            "smallest_bound": self.smallest_bound,
            "data": dict(self.data),
            "notes": list(self.notes),
            "versions": versions(),
        }


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    names = ("pffl", "numpy", "scipy", "daqp")
    return {"python": platform.python_version(), **{n: version(n) for n in names}}
