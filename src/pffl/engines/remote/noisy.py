"""Sites elsewhere that add noise to all they answer: no exact census is asked of them.

Every site adds all of the noise to its own answer, since its server reads that: the sum
of K sites has √K times the noise of a secure sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pffl.engines.remote.engine import Remote, SitesMissing
from pffl.engines.remote.exchange import Exchange
from pffl.errors import PrivacyBudgetError, Refused
from pffl.parcel import Parcel
from pffl.questions import CensusTotal, Question
from pffl.questions.noised import Releasing
from pffl.wire import Answer, Verdict, question_body, read_total

EXCEEDED = "privacy budget"


class Noisy(Remote):
    """Ask sites for releases with noise, and for nothing else."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Say nothing of single sites."""
        return ()

    def _greeting(self) -> tuple[Question[Any], ...]:
        return ()

    def _body(self, question: Question[Any], index: int) -> Parcel:
        # All are told the same: no share of a single site is known.
        return question_body(question, 0)

    def _uncounted(self, splits: Iterable[str]) -> list[Question[Any]]:
        return []

    def _counted(self, split: str) -> CensusTotal:
        return None  # type: ignore[return-value]

    def _joined(self, index: int, answer: Answer) -> None:
        self._splits[index] = answer.splits

    def _admit(
        self, questions: Sequence[Question[Any]], index: int, answer: Answer
    ) -> list[Verdict]:
        """Read an answer; with noise any sum is possible, and none is judged."""
        if len(answer.bodies) != len(questions):
            raise Refused(f"{len(answer.bodies)} totals for {len(questions)} questions")
        out = []
        for body, question in zip(answer.bodies, questions, strict=True):
            if not isinstance(question, Releasing):
                raise Refused(f"{question.kind} is not released with noise")
            out.append(Verdict(read_total(body, question, index, self.schema.hash)[0]))
        return out

    def _demand(self, exchange: Exchange, asked: Sequence[int], needed: int) -> None:
        """Say whose budget is at its end, where that is why an answer is missing."""
        try:
            super()._demand(exchange, asked, needed)
        except SitesMissing as error:
            for name, reason in exchange.entry.refused:
                if EXCEEDED in reason:
                    raise PrivacyBudgetError(f"site '{name}': {reason}") from error
            raise
