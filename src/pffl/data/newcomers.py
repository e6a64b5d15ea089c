"""Categories that are new to a model: what becomes of them, and how many there were."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pffl.data.checks import listing
from pffl.errors import DataError
from pffl.typing import FloatArray

Unseen = Literal["refuse", "ignore", "most_frequent"]


@dataclass(frozen=True)
class Stand:
    """The code that stands for newcomers of one column; −1 is none of the known ones.

    `found` counts them.
    """

    code: int
    name: str | None
    found: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, eq=False)
class Newcomers:
    """What becomes of categories that were not there in training.

    Parameters
    ----------
    rule
        An error, none of the known ones, or the most frequent one.
    frequency
        Of each input, where the most frequent one is asked for; see `frequencies`.
    stands
        Who stood for them, in each column that was asked about.
    """

    rule: Unseen = "refuse"
    frequency: FloatArray | None = None
    stands: dict[str, Stand] = field(default_factory=dict)

    def stand(self, column: str, values: tuple[str, ...], start: int) -> Stand | None:
        """Return who stands for newcomers of a column, whose inputs begin at `start`.

        None where they are refused.
        """
        if self.rule == "refuse":
            return None
        if column not in self.stands:
            self.stands[column] = self._chosen(column, values, start)
        return self.stands[column]

    def _chosen(self, column: str, values: tuple[str, ...], start: int) -> Stand:
        if self.rule == "ignore":
            return Stand(-1, None)
        known = self.frequency
        shares = np.zeros(1) if known is None else known[start : start + len(values)]
        if not shares.any():
            raise DataError(
                f"[unscaled-inputs] column '{column}': the model's inputs were not "
                "scaled, so nobody knows its most frequent value: `unseen='ignore'` "
                "takes none"
            )
        code = int(shares.argmax())
        return Stand(code, values[code])

    def remarks(self) -> list[str]:
        """Say what was done, with counts."""
        out = []
        for column, stand in self.stands.items():
            if stand.found:
                new = listing(f"'{v}' ({n:,})" for v, n in stand.found.most_common())
                read = "no value" if stand.name is None else f"'{stand.name}'"
                out.append(f"column '{column}': new values, taken as {read}: {new}")
        return out


def frequencies(mean: FloatArray, scale: FloatArray) -> FloatArray:
    """Return how frequent inputs of 0 and 1 were, in order at least, from a scaling.

    A scaling about 0 has √share for a scale, and 1 where there was none; one that does
    nothing tells nothing.
    """
    return mean if mean.any() else np.where(scale == 1.0, 0.0, scale)
