"""`PFFLStrategy`: a native Flower strategy, for those who have a Flower app already.

A Flower round carries one question of the method. The training half takes `train`
(Algorithm 1, FedAvg, …) and `query.curvature` (Exact), the evaluation half `evaluate`.
The census, which comes before the first round, and the measurements on which the
verdict stands, which come after the last, go through the same Grid, outside the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from logging import INFO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from pffl.callbacks import Callback, Round
from pffl.constraints.base import Constraint
from pffl.data.schema import Schema
from pffl.engines.flower.grid import GridTransport, messages_of, reply_of
from pffl.engines.remembered import Remembered
from pffl.engines.remote import Remote
from pffl.errors import UsageError
from pffl.flower._handover import Asked, Ended, Handover
from pffl.methods.base import Method
from pffl.models.base import Model
from pffl.preparation import Options
from pffl.problem import Problem
from pffl.solution import Solution
from pffl.solve import solve
from pffl.wire import Policy, read_request
from pffl.wire.envelope import SEVERAL

WEIGHTS = "w"
ROUNDS = 10_000  # at most, unless the caller says how many


class Finished(Exception):
    """The method is done before Flower's rounds are."""


class PFFLStrategy(Strategy):
    """Train under a bound for every group, inside a Flower app.

    Parameters
    ----------
    schema, silos
        What the sites agree on, and their names, in order.
    constraint, model, method, options, seed
        As for `pffl.solve`.
    policy
        Deadlines, quorum, limits; see `pffl.wire.Policy`.

    Attributes
    ----------
    solution
        After `start`: what `solve` would have returned, with w̄, λ̄ and the verdict.
    """

    def __init__(
        self,
        schema: Schema,
        silos: Sequence[str],
        constraint: Constraint | None,
        *,
        model: Model | None = None,
        method: Method[Any] | None = None,
        options: Options | None = None,
        policy: Policy | None = None,
        seed: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.schema = schema
        self.silos = tuple(silos)
        self.constraint = constraint
        self.model = model
        self.method = method
        self.options = options
        self.policy = policy or Policy()
        self.seed = seed
        self.callbacks = tuple(callbacks)
        self.solution: Solution | None = None
        self._limit = _Limit()
        self._result = Result()
        self._handover: Handover | None = None
        self._sent: dict[str, Message] = {}  # by address

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run Flower's loop until the method is done, or for `num_rounds`.

        Parameters
        ----------
        grid
            What Flower gives to a ServerApp.
        initial_arrays
            Must be left out: a method starts where it starts.
        num_rounds
            Rounds at most; default: as many as the method needs.
        timeout
            Seconds to wait for replies; default: the policy's.
        train_config, evaluate_config
            Not used: a question holds all that a site needs.
        evaluate_fn
            As for every strategy; is given the iterate that comes next.

        Returns
        -------
        Result
            `arrays` is the last iterate that was sent; the model is ``solution.w``.
        """
        if initial_arrays is not None or train_config or evaluate_config:
            raise UsageError(
                "PFFLStrategy starts where its method starts, and a question holds all "
                "that a site needs: leave initial_arrays and configurations out"
            )
        rounds = ROUNDS if num_rounds is None else num_rounds
        self._limit, self._result = _Limit(rounds), Result()
        transport = GridTransport(grid)
        handover = Handover(transport.addresses, self._solve)
        self._handover = handover
        try:
            self._serve(transport, until=("train", "curvature", "evaluate", SEVERAL))
            first = handover.next()
            if isinstance(first, Asked):
                seconds = self.policy.seconds if timeout is None else timeout
                self._result.arrays = _weights(first) or ArrayRecord()
                self._loop(grid, rounds, seconds, evaluate_fn)
            self._serve(transport)
        finally:
            handover.close()
            self._handover = None
        return self._result

    def summary(self) -> None:
        """Log what is trained, and for whom."""
        method = "default" if self.method is None else type(self.method).__name__
        bound = None if self.constraint is None else self.constraint.describe()
        log(INFO, "\t├──> Silos: %s", ", ".join(self.silos))
        log(INFO, "\t├──> Method: %s", method)
        log(INFO, "\t└──> Constraint: %s", bound)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the method's question, unless it is one of evaluation."""
        self._limit.now = server_round
        if isinstance(self._pending, Ended) or self._limit.over:
            raise Finished
        return self._messages(kinds=("census", "train", "curvature", SEVERAL))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Give the replies to the method; return the iterate that it asks at next."""
        if not self._sent:
            return None, None
        answered = self._deliver(replies)
        pending = self._pending
        if isinstance(pending, Asked) and not self._limit.over:
            self._result.arrays = _weights(pending) or self._result.arrays
        metrics = MetricRecord({"silos": answered, **self._limit.metrics})
        self._result.train_metrics_clientapp[server_round] = metrics
        return self._result.arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the method's question, if it is one of evaluation."""
        return self._messages(kinds=("evaluate",))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Give the replies to the method."""
        if not self._sent:
            return None
        metrics = MetricRecord({"silos": self._deliver(replies)})
        self._result.evaluate_metrics_clientapp[server_round] = metrics
        return metrics

    @property
    def _pending(self) -> Asked | Ended:
        if self._handover is None:
            raise UsageError("a PFFLStrategy runs by its method `start` only")
        return self._handover.next()

    def _solve(self, transport: Handover) -> Solution:
        engine = Remote(transport, self.schema, self.silos, policy=self.policy)
        return solve(
            Remembered(engine),
            self.constraint,
            model=self.model,
            method=self.method,
            options=self.options,
            seed=self.seed,
            callbacks=[*self.callbacks, self._limit],
        )

    def _loop(
        self,
        grid: Grid,
        rounds: int,
        seconds: float,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    ) -> None:
        """Run Flower's own loop; its result is collected here, as it may end early."""

        def noted(number: int, current: ArrayRecord) -> MetricRecord | None:
            found = None if evaluate_fn is None else evaluate_fn(number, current)
            if found is not None:
                self._result.evaluate_metrics_serverapp[number] = found
            return found

        with suppress(Finished):
            super().start(
                grid,
                self._result.arrays,
                rounds,
                seconds,
                evaluate_fn=None if evaluate_fn is None else noted,
            )

    def _serve(self, transport: GridTransport, until: Collection[str] = ()) -> None:
        """Send outside of Flower's loop, until the solver ends or asks one of these."""
        while True:
            pending = self._pending
            if isinstance(pending, Ended):
                if pending.error is not None:
                    raise pending.error
                self.solution = pending.solution
                return
            if pending.kind in until:
                return
            replies = transport.exchange(
                pending.requests, pending.seconds, pending.kind
            )
            if self._handover is not None:
                self._handover.answer(list(replies))

    def _messages(self, kinds: Collection[str]) -> list[Message]:
        pending = self._pending
        self._sent = {}
        if isinstance(pending, Ended) or pending.kind not in kinds:
            return []
        self._sent = messages_of(pending.requests, pending.seconds, pending.kind)
        return list(self._sent.values())

    def _deliver(self, replies: Iterable[Message]) -> int:
        """Hand replies to the solver; return how many sites answered."""
        # A message has its id from when Flower sent it.
        ids = {m.metadata.message_id: address for address, m in self._sent.items()}
        found = [
            reply_of(ids[message.metadata.reply_to_message_id], message)
            for message in replies
            if message.metadata.reply_to_message_id in ids
        ]
        self._sent = {}
        if self._handover is not None:
            self._handover.answer(found)
        return sum(reply.content is not None for reply in found)


class _Limit(Callback):
    """Stop after so many Flower rounds, and keep what a round showed."""

    def __init__(self, rounds: int = ROUNDS) -> None:
        self.rounds = rounds
        self.now = 0
        self.over = False
        self.metrics: dict[str, float] = {}

    def after_round(self, problem: Problem, row: Round) -> bool:
        """Note the round; say whether it was the last."""
        self.metrics = {"risk": row.risk}
        if problem.n_cells and not np.isnan(row.violation).all():
            self.metrics["worst_violation"] = float(np.nanmax(row.violation))
        if row.gap is not None:
            self.metrics["gap"] = row.gap
        return self.now >= self.rounds

    def after(self, problem: Problem) -> None:
        """Note that the method is done: what is still asked is for the verdict."""
        self.over = True


def _weights(asked: Asked) -> ArrayRecord | None:
    """Return the w that a question asks at."""
    request = read_request(next(iter(asked.requests.values())))
    w = request.bodies[0].arrays.get(WEIGHTS)
    return None if w is None else ArrayRecord({WEIGHTS: Array(np.array(w))})
