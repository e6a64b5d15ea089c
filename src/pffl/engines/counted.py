"""An engine that counts what the silos are asked: rounds, numbers sent, gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from pffl.engines.around import Around
from pffl.engines.base import Engine
from pffl.questions import CensusTotal, Evaluate, Question, Total, Train

BYTES = 8  # of a number


@dataclass
class Bill:
    """What a run has cost.

    Attributes
    ----------
    rounds
        Questions asked of the federation, the census left out.
    gradients
        Full passes over a silo's rows that compute a gradient, per silo: a local step
        on a batch counts as its share of the rows.
    sent, received
        Bytes from and to the server, all silos together; Hessians as triangles.
    """

    rounds: int = 0
    gradients: float = 0.0
    sent: int = 0
    received: int = 0


class Counted(Around):
    """Pass everything on to another engine, and keep a bill."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.bill = Bill()
        self._rows = 0.0

    def census(self, split: str = "train") -> CensusTotal:
        """Pass on; not billed."""
        total = self.engine.census(split)
        self._rows = float(total.rows.mean())
        return total

    def ask(self, question: Question[Any]) -> Any:
        """Pass on, and bill."""
        total = self.engine.ask(question)
        self._charge(question, total)
        return total

    def ask_many(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Pass on, and bill each."""
        totals = self.engine.ask_many(questions)
        for question, total in zip(questions, totals, strict=True):
            self._charge(question, total)
        return totals

    def _charge(self, question: Question[Any], total: Total) -> None:
        asked = question.silos
        silos = len(self.silo_names) if asked is None else len(asked)
        self.bill.rounds += 1
        self.bill.sent += silos * BYTES * numbers(question)
        self.bill.received += silos * BYTES * numbers(total)
        self.bill.gradients += self._gradients(question)

    def _gradients(self, question: Question[Any]) -> float:
        """Gradients per silo."""
        if isinstance(question, Train):
            batch = question.batch_size
            share = 1.0 if batch is None else min(1.0, batch / max(self._rows, 1.0))
            return len(question.step_sizes) * share
        return 0.0 if isinstance(question, Evaluate) else 1.0


def numbers(message: object) -> int:
    """How many numbers a request or a total holds, without the agreed task."""
    count = 0
    for field in fields(message):  # type: ignore[arg-type]
        value = getattr(message, field.name)
        if isinstance(value, np.ndarray):
            triangle = value.ndim >= 2 and "hessian" in field.name
            p = value.shape[-1]
            count += (
                value.size // p**2 * (p * (p + 1) // 2)
                if triangle and p
                else (0 if triangle else value.size)
            )
        elif isinstance(value, int | float):
            count += 1
    return count
