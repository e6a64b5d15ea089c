"""`PFFLStrategy`: a native Flower strategy, for those who have a Flower app already.

A Flower round carries what the method, and all that goes out with it, asks at once. The
evaluation half takes `evaluate`, the training half all else: `train` (Algorithm 1,
FedAvg, …), `query.curvature` (Exact), `query.slopes` (FirstOrder), `query.witness`
(proofs), `query.questions` (of several kinds). The census and what step sizes need,
which come before the first round, and the measurements on which the verdict stands,
which come after the last, go through the same Grid, outside the rounds.

The run is a generator of steps (`_run`), and Flower's loop is what carries them: a
`Post` waits in `_pending` until `configure_…` sends it, and `aggregate_…` gives the
replies back. There is no second thread.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
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
from pffl.driver import Driver
from pffl.engines.remote import Post, Remote, Reply, Steps, take
from pffl.errors import UsageError
from pffl.flower.transport import GridTransport, messages_of, reply_of
from pffl.methods.base import Method
from pffl.models.base import Model
from pffl.preparation import Options
from pffl.problem import Problem
from pffl.questions import Question
from pffl.solution import Solution
from pffl.solving import noted, setting_of, solving
from pffl.wire import Policy, read_request

WEIGHTS = "w"
BEFORE = ("census", "moments", "smoothness")  # asked before the first round
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
        self._steps: Steps[Solution] | None = None
        self._transport: GridTransport | None = None
        self._pending: Post | None = None  # what is to be sent next
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
        self.solution, self._sent = None, {}
        transport = GridTransport(grid)
        engine = Remote(transport, self.schema, self.silos, policy=self.policy)
        with closing(self._run(engine)) as steps:
            self._steps, self._transport = steps, transport
            try:
                self._advance(None)
                self._serve(only=BEFORE)
                if self._pending is not None:
                    seconds = self.policy.seconds if timeout is None else timeout
                    self._result.arrays = _weights(self._pending) or ArrayRecord()
                    self._loop(grid, rounds, seconds, evaluate_fn)
                self._serve()
            finally:
                self._steps = self._transport = self._pending = None
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
        if self._steps is None:
            raise UsageError("a PFFLStrategy runs by its method `start` only")
        self._limit.now = server_round
        if self._pending is None or self._limit.over:
            raise Finished
        return self._messages(evaluation=False)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Give the replies to the method; return the iterate that it asks at next."""
        if not self._sent:
            return None, None
        answered = self._deliver(replies)
        if self._pending is not None and not self._limit.over:
            self._result.arrays = _weights(self._pending) or self._result.arrays
        metrics = MetricRecord({"silos": answered, **self._limit.metrics})
        self._result.train_metrics_clientapp[server_round] = metrics
        return self._result.arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the method's question, if it is one of evaluation."""
        return self._messages(evaluation=True)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Give the replies to the method."""
        if not self._sent:
            return None
        metrics = MetricRecord({"silos": self._deliver(replies)})
        self._result.evaluate_metrics_clientapp[server_round] = metrics
        return metrics

    def _run(self, engine: Remote) -> Steps[Solution]:
        """Solve, step by step."""
        yield from engine.meeting()
        flow = solving(
            setting_of(engine),
            self.constraint,
            model=self.model,
            method=self.method,
            options=self.options,
            seed=secrets.randbits(32) if self.seed is None else self.seed,
        )
        driver = Driver(len(self.silos), callbacks=[*self.callbacks, self._limit])
        with closing(driver.exchanges(flow)) as exchanges:
            step: Callable[[Any], list[Question[Any]]] = exchanges.send
            value: Any = None
            while True:
                try:
                    questions = step(value)
                except StopIteration as done:
                    return noted(done.value, engine.notes)
                try:
                    value = yield from engine.asking(questions)
                    step = exchanges.send
                except Exception as error:
                    value, step = error, exchanges.throw

    def _advance(self, value: object) -> None:
        """Let the run go on until it has something to send, or ends."""
        self._pending = None
        if self._steps is None or self._transport is None:
            return
        try:
            while not isinstance(step := self._steps.send(value), Post):
                value = take(self._transport, step)
        except StopIteration as done:
            self.solution = done.value
            for callback in self.callbacks:
                callback.solved(done.value)
        else:
            self._pending = step

    def _serve(self, only: Collection[str] | None = None) -> None:
        """Send outside of Flower's loop, while the run asks, and one of these."""
        while self._transport is not None and self._pending is not None:
            if only is not None and self._pending.kind not in only:
                return
            self._advance(take(self._transport, self._pending))

    def _loop(
        self,
        grid: Grid,
        rounds: int,
        seconds: float,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    ) -> None:
        """Run Flower's own loop; its result is collected here, as it may end early."""

        def kept(number: int, current: ArrayRecord) -> MetricRecord | None:
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
                evaluate_fn=None if evaluate_fn is None else kept,
            )

    def _messages(self, *, evaluation: bool) -> list[Message]:
        """Return what is asked; each of Flower's halves takes its own kinds."""
        post, self._sent = self._pending, {}
        if post is not None and (post.kind == "evaluate") is evaluation:
            self._sent = messages_of(post.requests, post.seconds, post.kind)
        return list(self._sent.values())

    def _deliver(self, replies: Iterable[Message]) -> int:
        """Hand replies to the run; return how many sites answered."""
        # A message has its id from when Flower sent it.
        ids = {m.metadata.message_id: address for address, m in self._sent.items()}
        found: list[Reply] = [
            reply_of(ids[message.metadata.reply_to_message_id], message)
            for message in replies
            if message.metadata.reply_to_message_id in ids
        ]
        self._sent = {}
        self._advance(found)
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


def _weights(post: Post) -> ArrayRecord | None:
    """Return the w that the first question about a model asks at."""
    bodies = read_request(next(iter(post.requests.values()))).bodies
    found = [body.arrays[WEIGHTS] for body in bodies if WEIGHTS in body.arrays]
    return ArrayRecord({WEIGHTS: Array(np.array(found[0]))}) if found else None
