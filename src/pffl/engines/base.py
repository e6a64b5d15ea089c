"""An engine asks a query of every silo and returns the total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from pffl.data.columns import TableEncoding
from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.queries import Query, Total

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
    def encoding(self) -> TableEncoding:
        """How the silos' tables became rows, and new ones will."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the silos, for the result."""

    @property
    def pooled(self) -> int:
        """How many sites answer as one silo, under secure sums; 0 if none do."""

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
