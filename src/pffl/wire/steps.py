"""The steps of a run under secure sums: what one message asks, and in which order.

Rows are counted before anything else is asked.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

from pffl.data.schema import Schema
from pffl.questions import Census, CensusTotal, Question
from pffl.wire.envelope import MOST_QUESTIONS

Asked: TypeAlias = Generator[list[Question[Any]], list[Any], list[Any]]


class Course:
    """Cuts the exchanges of a flow into steps.

    Parameters
    ----------
    schema, splits
        As agreed on.
    counting
        Whether rows are counted first; with noise nothing is told exactly.

    Attributes
    ----------
    census
        The frozen census of each split, once it was asked.
    """

    def __init__(
        self,
        schema: Schema,
        splits: Sequence[str],
        *,
        counting: bool = True,
    ) -> None:
        self.schema, self.splits = schema, tuple(splits)
        self.counting = counting
        self.census: dict[str, CensusTotal] = {}

    def steps(self, questions: Sequence[Question[Any]]) -> Asked:
        """Yield what each step asks, receive its totals; return one for each question.

        The first exchange of a run begins with the counts of all splits.
        """
        if self.counting:
            yield from self._counting()
        posed = [q for q in questions if not isinstance(q, Census)]
        found: dict[int, Any] = {}
        for first in range(0, len(posed), MOST_QUESTIONS):
            some = posed[first : first + MOST_QUESTIONS]
            totals = yield [*some]
            found |= {id(q): total for q, total in zip(some, totals, strict=True)}
        return [
            self.census[q.split] if isinstance(q, Census) else found[id(q)]
            for q in questions
        ]

    def _counting(self) -> Generator[list[Question[Any]], list[Any], None]:
        if not self.census:
            told = yield [Census(self.schema, split) for split in self.splits]
            self.census = dict(zip(self.splits, told, strict=True))
