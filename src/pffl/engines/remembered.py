"""An engine that asks no question twice: over machines every round costs seconds.

A method's last expansion is also what the gap needs, and a certificate measures what
`solve` has just measured. Sites are asked less, too, and have a budget of questions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pffl.engines.around import Around
from pffl.engines.base import Engine
from pffl.files import digest_arrays
from pffl.questions import Census, Curvature, Evaluate, Question, Total

MOST_BYTES = 256 << 20


class Remembered(Around):
    """Pass questions on to another engine, and keep the last answers.

    Training is not kept: no method asks for the same steps from the same w again.

    Parameters
    ----------
    engine
        Whom to ask.
    name
        What to call the data in results.
    most_bytes
        Of the answers that are kept.
    """

    def __init__(
        self, engine: Engine, *, name: str = "data", most_bytes: int = MOST_BYTES
    ) -> None:
        super().__init__(engine)
        self.name = name
        self._most = most_bytes
        self._known: dict[str, Total] = {}

    def ask(self, question: Question[Any]) -> Any:
        """Ask, unless the answer is known."""
        return self.ask_many([question])[0]

    def ask_many(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Ask those questions whose answers are not known."""
        keys = [_key(question) for question in questions]
        new = [
            place
            for place, key in enumerate(keys)
            if key is None or key not in self._known
        ]
        found: dict[int, Total] = {}
        if len(new) == 1:
            found[new[0]] = self.engine.ask(questions[new[0]])
        elif new:
            totals = self.engine.ask_many([questions[place] for place in new])
            found = dict(zip(new, totals, strict=True))
        answers = [
            found[place] if place in found else self._known[key]  # type: ignore[index]
            for place, key in enumerate(keys)
        ]
        for place, total in found.items():
            if (key := keys[place]) is not None:
                self._keep(key, total)
        return answers

    def _keep(self, key: str, total: Total) -> None:
        self._known[key] = total
        sizes = {key: _size(known) for key, known in self._known.items()}
        for oldest in list(self._known):
            if sum(sizes.values()) <= self._most:
                return
            del self._known[oldest], sizes[oldest]


def _key(question: Question[Any]) -> str | None:
    """Return a hash of all that the answer depends on; None for training."""
    if isinstance(question, Census):
        return f"census {question.split}"
    if isinstance(question, Evaluate):
        own: list[object] = [question.split, float(question.loss_bound)]
    elif isinstance(question, Curvature):
        own = [question.majorant, question.order, question.sharpness]
    else:
        return None
    task = question.task
    plain = [type(question).__name__, own, dict(task.model.describe())]
    inputs, cells = task.model.inputs, task.cells
    arrays = (question.w, task.shares, cells.membership, cells.silo)
    known = digest_arrays(*arrays, inputs.mean, inputs.scale)
    return json.dumps(plain, sort_keys=True, default=str) + known


def _size(total: Total) -> int:
    return sum(np.asarray(value).nbytes for value in vars(total).values())
