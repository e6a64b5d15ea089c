"""q-FFL: silos with a larger loss count more, the larger q.

Tian Li, Maziar Sanjabi, Ahmad Beirami, Virginia Smith. *Fair Resource Allocation in
Federated Learning*, 2020: Algorithm 2 (q-FedAvg); with J = 1, Algorithm 1 (q-FedSGD).

    min_w  Σ_k p_k/(q+1) · f_k(w)^{q+1}              f_k: mean loss of silo k

    1  w ← 0
    2  for t = 1 … T:
    3      silo k: w_k ← J steps of size η = 1/L on f_k, from w;  F_k ← f_k(w)
    4      Δw_k ← (w − w_k)/η                          J = 1: the gradient ∇f_k(w)
    5      D_k ← F_k^q Δw_k;   h_k ← q F_k^{q−1}‖Δw_k‖² + (1/η) F_k^q
    6      w ← w − Σ_k p_k D_k / Σ_k p_k h_k
    7  return w

The paper samples silos with probability p_k and adds D_k and h_k without weights; here
all silos reply (or a fraction, drawn evenly) and p_k weighs them, which has the same
expectations. The totals carry Σ p_k F_k^q (w_k − w), Σ p_k F_k^q and
Σ p_k q F_k^{q−1}‖w_k − w‖², so that line 6 is  w + update / (powers₀ + powers₁/η).
The ridge term is weight decay of the local steps: it is not part of F_k.
q = 0 is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pffl.flow import Round, Start, Steps
from pffl.methods.base import Count, Grid, NonNegative
from pffl.methods.fedavg import FedAvg
from pffl.methods.local import Objective, Trainer
from pffl.problem import Point, Problem


@dataclass(frozen=True, kw_only=True)
class QFFL(FedAvg):
    """q-FedAvg; with ``local_steps=1`` q-FedSGD.

    Parameters
    ----------
    q
        How much a silo's loss counts: 0 is FedAvg, large q approaches AFL.
    rounds
        T.
    local_steps, step_size, batch_size, …
        J, η and the rest of the local training, see `LocalTraining`.
    """

    q: NonNegative = 1.0
    rounds: Count = 300
    name: ClassVar[str] = "qffl"
    ignores_cells: ClassVar[bool] = True
    weighs_updates: ClassVar[bool] = True
    grid: ClassVar[Grid] = {"q": (1.0, 0.1, 5.0)}

    def run(self, problem: Problem, start: Start | None = None) -> Steps:
        """Algorithm 2; its local objective is that of FedAvg."""
        none = np.zeros(problem.n_cells)
        risk = Objective(problem.task, none, risk_weight=1.0, loss_power=self.q)
        trainer, w = Trainer(problem, self), problem.start()  # line 1
        yield from trainer.tune()
        for _ in range(self.rounds):  # line 2
            total = yield trainer.query(w, risk)  # lines 3 to 5
            eta = trainer.step_size(risk)
            h = total.powers[0] + total.powers[1] / eta  # η Σ p_k h_k
            w = trainer.move(w, total.update / h)  # line 6
            yield Round(Point(w, none))
        return Point(w, none)  # line 7
