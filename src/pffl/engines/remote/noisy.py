"""Sites elsewhere that add noise to all they answer: no exact census is asked of them.

Every site adds all of the noise to its own answer, since its server reads that: the sum
of K sites has √K times what is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pffl.engines.remote.engine import Remote
from pffl.errors import Refused
from pffl.parcel import Parcel
from pffl.queries import CensusTotal, Query
from pffl.wire import Answer, Verdict, query_body


class Noisy(Remote):
    """Ask sites for releases with noise, and for nothing else."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Say nothing of single sites."""
        return ()

    def _greeting(self) -> tuple[Query[Any], ...]:
        return ()

    def _body(self, query: Query[Any], index: int) -> Parcel:
        # All are told the same: no share of a single site is known.
        return query_body(query, 0)

    def _uncounted(self, splits: Iterable[str]) -> list[Query[Any]]:
        return []

    def _counted(self, split: str) -> CensusTotal:
        return None  # type: ignore[return-value]

    def _joined(self, index: int, answer: Answer) -> None:
        self._splits[index] = answer.splits

    def _judge(
        self, query: Query[Any], index: int, total: Any, withheld: int
    ) -> Verdict:
        """Judge nothing: with noise any sum is possible."""
        if not query.released:
            raise Refused(f"[not-under-noise] {query.kind} is not released with noise")
        return Verdict(total)
