"""Auto: the method that fits a problem, chosen once the census is in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pffl.errors import UsageError
from pffl.methods.base import PRICES, Grid, Method, check_parameters
from pffl.methods.exact import Exact
from pffl.methods.pffl import PFFL
from pffl.models.linear import LinearModel
from pffl.problem import Point, Problem
from pffl.questions import Question
from pffl.typing import FloatArray


@dataclass(frozen=True, kw_only=True)
class Auto(Method[Any]):
    """The method that fits: `Exact` for linear models, `PFFL` for others.

    Parameters
    ----------
    multiplier_bound, risk_weight
        B and β, see `Exact`.
    target_gap, max_rounds
        Of the method that is chosen; None for its own.
    warm_start
        A pair to start from, for methods that take one.
    """

    multiplier_bound: float | None = None
    risk_weight: float = 1.0
    target_gap: float | None = None
    max_rounds: int | None = None
    warm_start: Point | None = None
    name: ClassVar[str] = "auto"
    saddle: ClassVar[bool] = True
    steps_without_some: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"multiplier_bound": PRICES}

    def __post_init__(self) -> None:
        check_parameters(
            self,
            positive=("multiplier_bound", "target_gap"),
            nonnegative=("risk_weight",),
            counts=("max_rounds",),
            optional=("multiplier_bound", "target_gap", "max_rounds"),
        )

    def resolved(self, problem: Problem) -> tuple[Method[Any], str]:
        """Return the method that fits, with these parameters, and why it does."""
        given: dict[str, Any] = {"risk_weight": self.risk_weight}
        for name in ("multiplier_bound", "target_gap", "max_rounds"):
            if getattr(self, name) is not None:
                given[name] = getattr(self, name)
        if isinstance(problem.task.model, LinearModel):
            exact = Exact(**given, warm_start=self.warm_start)
            return exact, "the model is linear"
        if self.max_rounds is not None:
            raise UsageError(
                "'auto' takes PFFL for models that are not linear, which has "
                "dual_rounds and rounds_per_dual and no max_rounds: ask for PFFL"
            )
        return PFFL(**given), "the model is not linear"

    def init(self, problem: Problem, constants: Any = None) -> Any:
        """Start the method that fits."""
        return self.resolved(problem)[0].init(problem, constants)

    def setup(self, problem: Problem) -> Question[Any] | None:
        """Return what the method that fits asks before round 1."""
        return self.resolved(problem)[0].setup(problem)

    def question(self, problem: Problem, state: Any) -> Question[Any] | None:
        """Return what the method that fits asks next."""
        return self.resolved(problem)[0].question(problem, state)

    def step(self, problem: Problem, state: Any, total: Any) -> Any:
        """Return what a total does to the state of the method that fits."""
        return self.resolved(problem)[0].step(problem, state, total)

    def finish(self, problem: Problem, state: Any) -> Point:
        """Return the pair that the method that fits stands for."""
        return self.resolved(problem)[0].finish(problem, state)

    def multipliers(self, problem: Problem, state: Any) -> FloatArray:
        """Return the λ of the method that fits."""
        return self.resolved(problem)[0].multipliers(problem, state)

    def resumed(self, point: Point) -> Auto:
        """Return the method, to start from a pair."""
        return replace(self, warm_start=point)
