"""An engine asks a query of every silo and returns the total.

`Reference` is the plain loop: the truth that every other engine is tested against.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from pffl.data.columns import TableEncoder
from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.errors import FederationError, PFFLError
from pffl.models.base import Model
from pffl.queries import Query, Total, View, add_all

T = TypeVar("T", bound=Total)


class Engine(Protocol):
    """Where the silos are, and how they are asked.

    `solve` and every method use nothing else, so the same run works in one process
    and over machines.
    """

    @property
    def name(self) -> str:
        """What the data are called."""

    @property
    def federation(self) -> Federation | None:
        """The rows themselves, where they are in this process."""

    @property
    def encoding(self) -> TableEncoder:
        """How the silos' tables became rows, and new ones will."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the silos, for the result."""

    @property
    def pooled(self) -> int:
        """How many sites answer as one silo, under secure sums; 0 if none do."""

    @property
    def floor(self) -> int:
        """Fewest people of a group that a site counts, under secure sums."""

    @property
    def schema(self) -> Schema:
        """What the silos agree on."""

    @property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the silos, in order."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that every silo has."""

    def ask(self, query: Query[T]) -> T:
        """Ask every silo and add the answers."""

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask several queries of any kinds at once: one total for each, in order."""


@contextmanager
def naming(silo: str, query: Query[Any]) -> Iterator[None]:
    """Say which silo failed, where an error does not come from us (fault 40)."""
    try:
        yield
    except PFFLError:
        raise
    except Exception as error:
        raise FederationError(
            "silo-failed", silo=silo, kind=query.kind, error=error
        ) from error


class Reference:
    """Ask one silo after the other, in this process."""

    notes: tuple[str, ...] = ()
    pooled, floor = 0, 1  # silos are kept apart, and all are counted

    def __init__(self, federation: Federation) -> None:
        self.federation, self.name = federation, federation.name
        self.schema, self.splits = federation.schema, federation.splits
        self.silo_names, self.encoding = federation.silo_names, federation.encoding
        self._seen_scaling = ""
        self._views: dict[str, list[View]] = {}

    def ask(self, query: Query[T]) -> T:
        """Ask every silo and add the answers."""
        answers, views = [], self.views(query)
        for view in views:
            with naming(self.silo_names[view.index], query):
                answers.append(query.answer(view))
        total: T = query.pooled(add_all(answers), views)
        return total

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask several queries, one after the other."""
        return [self.ask(query) for query in queries]

    def views(self, query: Query[Any]) -> list[View]:
        """Every silo's rows as the model sees them, scaled once per scaling."""
        if query.task is None:
            views = self._seen_by(None, query.split)
        else:
            model = query.task.model
            if self._seen_scaling != query.task.scaling:
                self._seen_scaling, self._views = query.task.scaling, {}
            if query.split not in self._views:
                self._views[query.split] = self._seen_by(model, query.split)
            views = self._views[query.split]
        return views if query.silos is None else [views[k] for k in query.silos]

    def _seen_by(self, model: Model | None, split: str) -> list[View]:
        return [
            View.of(silo, self.schema, model, split) for silo in self.federation.silos
        ]
