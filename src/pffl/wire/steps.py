"""The steps of a run under secure sums: what one message asks, and in which order.

Server and sites work this out alike, from what was agreed on and from the totals. Rows
are counted before anything else is asked: first who has how many of which kind, which
says what nobody is told of, then the census without that.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

from pffl.data.schema import Schema
from pffl.errors import Refused
from pffl.questions import Census, CensusTotal, Presence, Question
from pffl.typing import BoolArray
from pffl.wire.envelope import MOST_QUESTIONS

Asked: TypeAlias = Generator[list[Question[Any]], list[Any], list[Any]]


class Course:
    """Cuts the exchanges of a flow into steps.

    Parameters
    ----------
    schema, splits, floor
        As agreed on.
    counting
        Whether rows are counted first; with noise nothing is told exactly.

    Attributes
    ----------
    hidden
        Which atoms nobody is told of, by split, once that is known.
    census
        The frozen census of each split, once it was asked.
    """

    def __init__(
        self,
        schema: Schema,
        splits: Sequence[str],
        floor: int,
        *,
        counting: bool = True,
    ) -> None:
        self.schema, self.splits, self.floor = schema, tuple(splits), floor
        self.counting = counting
        self.hidden: dict[str, BoolArray] = {}
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
        if self.floor > 1 and not self.hidden:
            asked = [Presence(self.schema, split, self.floor) for split in self.splits]
            told = yield [*asked]
            self.hidden = {
                q.split: total.hidden(q.floor)
                for q, total in zip(asked, told, strict=True)
            }
        if not self.census:
            told = yield [Census(self.schema, split) for split in self.splits]
            for split, census in zip(self.splits, told, strict=True):
                shown = census.counts[0][self.hidden[split]] if self.hidden else []
                if any(shown) or census.rows[0] != census.counts.sum():
                    raise Refused(
                        f"the census of {split} rows counts some that nobody is told of"
                    )
            self.census = dict(zip(self.splits, told, strict=True))
