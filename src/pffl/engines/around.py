"""What every engine around another one passes on as it is."""

from __future__ import annotations

from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.engines.base import Engine


class Around:
    """An engine that has another one answer; subclasses do the asking."""

    name = "data"
    federation: Federation | None = None

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def schema(self) -> Schema:
        """What the silos agree on."""
        return self.engine.schema

    @property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the silos, in order."""
        return self.engine.silo_names

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that every silo has."""
        return self.engine.splits

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks of the engine inside."""
        return self.engine.notes

    @property
    def partial(self) -> bool:
        """Whether a round of training may do without some of the silos."""
        return self.engine.partial
