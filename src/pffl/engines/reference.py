"""The plain loop over silos: the truth that every other engine is tested against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.errors import FederationError, PFFLError
from pffl.models.base import Inputs, Model
from pffl.questions import Census, CensusTotal, Question, Total, View, add_all

T = TypeVar("T", bound=Total)


class Reference:
    """Ask one silo after the other, in this process."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self._inputs: Inputs | None = None
        self._views: dict[str, list[View]] = {}

    @property
    def schema(self) -> Schema:
        """What the silos agree on."""
        return self.federation.schema

    @property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the silos, in order."""
        return self.federation.silo_names

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that every silo has."""
        return self.federation.splits

    def census(self, split: str = "train") -> CensusTotal:
        """Ask for counts and feature sums."""
        return self.ask(Census(self.schema, split))

    def ask(self, question: Question[T]) -> T:
        """Ask every silo and add the answers."""
        answers = []
        for view in self.views(question):
            try:
                answers.append(question.answer(view))
            except PFFLError:
                raise
            except Exception as error:
                raise FederationError(
                    f"silo '{self.silo_names[view.index]}' failed to answer "
                    f"{question.kind}: {error}"
                ) from error
        return add_all(answers)

    def ask_many(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Ask several questions, one after the other."""
        return [self.ask(question) for question in questions]

    def views(self, question: Question[Any]) -> list[View]:
        """Every silo's rows as the model sees them, scaled once per scaling."""
        task = question.task
        if task is None:
            views = self._seen(None, question.split)
        else:
            if self._inputs is not task.model.inputs:
                self._inputs, self._views = task.model.inputs, {}
            if question.split not in self._views:
                self._views[question.split] = self._seen(task.model, question.split)
            views = self._views[question.split]
        return views if question.silos is None else [views[k] for k in question.silos]

    def _seen(self, model: Model | None, split: str) -> list[View]:
        return [
            View.of(silo, self.schema, model, split) for silo in self.federation.silos
        ]
