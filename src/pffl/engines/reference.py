"""The plain loop over silos: the truth that every other engine is tested against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.errors import FederationError, PFFLError
from pffl.models.base import Inputs
from pffl.questions import Census, CensusTotal, Question, Total, View, add_all


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
        question = Census(self.schema, split)
        answers = [question.answer(silo) for silo in self.federation.silos]
        return add_all(answers).in_order()

    def ask(self, question: Question) -> Any:
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
                    f"{type(question).__name__.lower()}: {error}"
                ) from error
        return add_all(answers)

    def ask_many(self, questions: Sequence[Question]) -> list[Total]:
        """Ask several questions, one after the other."""
        return [self.ask(question) for question in questions]

    def views(self, question: Question) -> list[View]:
        """Every silo's rows as the model sees them, scaled once per scaling."""
        model = question.task.model
        if self._inputs is not model.inputs:
            self._inputs, self._views = model.inputs, {}
        if question.split not in self._views:
            self._views[question.split] = [
                View.of(silo, self.schema, model, question.split)
                for silo in self.federation.silos
            ]
        asked = getattr(question, "silos", None)
        views = self._views[question.split]
        return views if asked is None else [views[k] for k in asked]
