"""The plain loop over silos: the truth that every other engine is tested against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pffl.data.federation import Federation
from pffl.errors import FederationError, PFFLError
from pffl.models.base import Inputs, Model
from pffl.questions import Question, Total, View, add_all

T = TypeVar("T", bound=Total)


@contextmanager
def naming(silo: str, question: Question[Any]) -> Iterator[None]:
    """Say which silo failed, where an error does not come from us (fault 40)."""
    try:
        yield
    except PFFLError:
        raise
    except Exception as error:
        raise FederationError(
            f"[silo-failed] silo '{silo}' failed to answer {question.kind}: {error}"
        ) from error


class Reference:
    """Ask one silo after the other, in this process."""

    notes: tuple[str, ...] = ()
    partial = False  # every round of training needs all silos
    pooled = 0  # silos are told apart

    def __init__(self, federation: Federation) -> None:
        self.federation, self.name = federation, federation.name
        self.schema, self.splits = federation.schema, federation.splits
        self.silo_names, self.encoding = federation.silo_names, federation.encoding
        self._inputs: Inputs | None = None
        self._views: dict[str, list[View]] = {}

    def ask(self, question: Question[T]) -> T:
        """Ask every silo and add the answers."""
        answers, views = [], self.views(question)
        for view in views:
            with naming(self.silo_names[view.index], question):
                answers.append(question.answer(view))
        total: T = question.pooled(add_all(answers), views)
        return total

    def ask_many(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Ask several questions, one after the other."""
        return [self.ask(question) for question in questions]

    def views(self, question: Question[Any]) -> list[View]:
        """Every silo's rows as the model sees them, scaled once per scaling."""
        if question.task is None:
            views = self._seen_by(None, question.split)
        else:
            model = question.task.model
            if self._inputs is None or not self._inputs.same(model.inputs):
                self._inputs, self._views = model.inputs, {}
            if question.split not in self._views:
                self._views[question.split] = self._seen_by(model, question.split)
            views = self._views[question.split]
        return views if question.silos is None else [views[k] for k in question.silos]

    def _seen_by(self, model: Model | None, split: str) -> list[View]:
        return [
            View.of(silo, self.schema, model, split) for silo in self.federation.silos
        ]
