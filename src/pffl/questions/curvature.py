"""`curvature` (linear models): value, gradient and Hessian of F and of each cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pffl.errors import UsageError
from pffl.models.linear import LinearModel
from pffl.questions.base import Task, View
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class CurvatureTotal:
    """Sums over silos: of p_k × silo means for F (no ridge), of losses for cells."""

    risk: float
    risk_gradient: FloatArray
    risk_hessian: FloatArray
    cell_losses: FloatArray
    cell_gradients: FloatArray
    cell_hessians: FloatArray

    def __add__(self, other: CurvatureTotal) -> CurvatureTotal:
        return CurvatureTotal(
            self.risk + other.risk,
            self.risk_gradient + other.risk_gradient,
            self.risk_hessian + other.risk_hessian,
            self.cell_losses + other.cell_losses,
            self.cell_gradients + other.cell_gradients,
            self.cell_hessians + other.cell_hessians,
        )


@dataclass(frozen=True, eq=False)
class Curvature:
    """Ask for second-order expansions at `w`.

    With `majorant`, Hessians are upper bounds that hold at every w (for step sizes).
    """

    task: Task
    w: FloatArray
    majorant: bool = False
    split: ClassVar[str] = "train"

    def answer(self, view: View) -> CurvatureTotal:
        """Answer for one silo, one cell after the other."""
        model = linear(self.task)
        share = self.task.shares[view.index] / len(view)
        losses = model.losses(self.w, view.X, view.y)
        member = self.task.cells.of_silo(view.index)[:, view.atom]
        gradients, hessians = zip(
            *(
                (
                    model.losses_and_gradient(self.w, view.X, view.y, weights)[1],
                    model.hessian(self.w, view.X, weights, majorant=self.majorant),
                )
                for weights in (np.full(len(view), share), *member)
            ),
            strict=True,
        )
        p = model.n_parameters
        return CurvatureTotal(
            float(share * losses.sum()),
            gradients[0],
            hessians[0],
            member @ losses,
            np.reshape(gradients[1:], (-1, p)),
            np.reshape(hessians[1:], (-1, p, p)),
        )


def linear(task: Task) -> LinearModel:
    """Return the task's model, which must be a linear one."""
    if not isinstance(task.model, LinearModel):
        raise UsageError(
            f"{type(task.model).__name__} has no curvature to ask for: use the method "
            "PFFL, which needs gradients only"
        )
    return task.model
