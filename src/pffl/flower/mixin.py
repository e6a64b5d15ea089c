"""`BoundedGroupLossMixin`: bounds for every group, over any strategy of Flower's.

The strategy trains as it always does. Before a round the mixin adds to each message
what an example of each group and label weighs; after it, it reads loss sums of the
model that was sent, and moves the weights (`methods.ascent`). At the end the model is
measured by the clients' own code, and judged as every other model is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from logging import INFO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from pffl.callbacks import Callback
from pffl.constraints.base import Constraint
from pffl.errors import FederationError, UsageError
from pffl.evidence.looks import Looks
from pffl.flower.reports import Keys, Naming, Reports, losses_of, record_of
from pffl.flower.transport import prompt
from pffl.flower.weights import KEY, Order
from pffl.models.reported import CLASSES, NUMBERS, Reported
from pffl.outside import Bounding, Groups, Kept, Outside, named
from pffl.preparation import Options
from pffl.reports.card import write_card
from pffl.reports.page import write_report
from pffl.runs.directory import lock
from pffl.solution import Solution
from pffl.typing import FloatArray


class BoundedGroupLossMixin:
    """Put it before a strategy: ``class Fair(BoundedGroupLossMixin, FedProx): …``.

    Over a wrapper, such as those for differential privacy, it stands before the
    wrapper, not before the strategy inside.

    Parameters
    ----------
    constraint
        What is promised to whom: `BoundedGroupLoss`, `ConditionalBoundedGroupLoss`,
        `PerSilo`, `MinMax`, and such with ``&``.
    groups
        Names of the groups in the order of the clients' codes; of several attributes a
        mapping to their values, and a code then counts through their combinations.
    labels
        Names of the classes in the order of their codes; None for a numeric target.
        Clients report the cross-entropy of classes, and squared errors of numbers;
        what they descend is their own.
    multiplier_bound, risk_weight
        B and β: λ sums to at most B, and an example weighs β + Σ λ_z m/m_z in parts of
        the mean.
    dual_step_size
        η of λ ← [λ + ηr]₊, which begins at 0; None finds one, see `methods.ascent`.
    iterate
        The model that is returned: the "best" of all rounds (that meets the bounds with
        the smallest risk on the training rows, or misses them by the least), the
        "average" of the models of the last half of the rounds, or the "last".
    silos
        Names of the clients that must be there, or how many; None: as many as the
        strategy asks for (`min_available_nodes`), and whoever else is there.
    options
        Confidence, loss bound and what to do with empty cells, as for `solve`.
    out
        A run directory to write: certificate, report, model, history.
    name
        What the data are called there.
    callbacks
        Told of every round, and of the solution.
    strategy, more
        What the strategy itself takes.

    Attributes
    ----------
    solution
        After `start`: three verdicts, certificate, evidence; see `pffl.Solution`.

    Examples
    --------
    >>> from flwr.serverapp.strategy import FedProx
    >>> from pffl import BoundedGroupLoss
    >>> class FairFedProx(BoundedGroupLossMixin, FedProx):
    ...     pass
    >>> strategy = FairFedProx(
    ...     BoundedGroupLoss(0.68), groups=["f", "m"], labels=["no", "yes"],
    ...     proximal_mu=0.1,
    ... )
    """

    def __init__(
        self,
        constraint: Constraint,
        *strategy: Any,
        groups: Groups,
        labels: Sequence[str] | None,
        multiplier_bound: float = 10.0,
        risk_weight: float = 1.0,
        dual_step_size: float | None = None,
        iterate: Kept = "best",
        silos: Sequence[str] | int | None = None,
        options: Options | None = None,
        out: str | os.PathLike[str] | None = None,
        name: str = "data",
        callbacks: Sequence[Callback] = (),
        **more: Any,  # a mixin stands before classes that it does not know
    ) -> None:
        owner = type(self).__name__
        prices = (multiplier_bound, risk_weight, dual_step_size)
        settings = Bounding(constraint, *prices, iterate, options or Options())
        self.bounding = settings.checked(owner)
        self.order = Order(*named(groups, labels, owner), "train", [])
        self.order.schema  # noqa: B018 - names that clash are refused here
        super().__init__(*strategy, **more)
        self.silos, self.out, self.data_name = silos, out, name
        self.callbacks = tuple(callbacks)
        self.solution: Solution | None = None
        self._run: _Run | None = None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Train as the strategy does, from the arrays given, under the bounds.

        Parameters are those of every strategy. In the result, `arrays` are those of
        the model that was measured and that `solution` speaks of.
        """
        begun = time.monotonic()
        grid, own = prompt(grid), self._keys()
        engine = Reports(
            grid,
            self.order,
            initial_arrays,
            config=evaluate_config,
            keys=own,
            seconds=timeout,
            name=self.data_name,
        )
        engine.meet(self._expected())
        run = self._run = self._begun(engine, initial_arrays, num_rounds, begun)
        log(INFO, "Bounds: %s, for %s", self._bounds, _who(engine))
        try:
            result: Result = super().start(  # type: ignore[misc]
                grid,
                initial_arrays,
                num_rounds,
                timeout,
                ConfigRecord(dict(train_config or {})),
                ConfigRecord(dict(evaluate_config or {})),
                evaluate_fn,
            )
        finally:
            for callback in self.callbacks:
                callback.ended()
        messages = len(run.at.history) + engine.messages // len(engine.clients)
        self.solution = run.at.concluded(
            engine, self._described(), messages, self._notes()
        )
        result.arrays = _record(run.at.model.arrays(self.solution.w))
        log(INFO, "%s", self.solution)
        if self.out is not None:
            self.save(self.out)
        for callback in self.callbacks:
            callback.solved(self.solution)
        self._run = None
        return result

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the run directory: certificate, report, card, model, history."""
        if self.solution is None:
            raise UsageError(
                "[not-started] there is nothing to save before `start` has ended"
            )
        with lock(directory) as place:
            looks = Looks.of(place.directory)
            evidence = looks.counted(self.solution.evidence)
            self.solution = replace(self.solution, evidence=evidence)
            place.save(self.solution, "")
            write_card(place, self.solution.conclusions)
            write_report(place, self.solution.conclusions)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Add the weights to the strategy's own messages."""
        run = self._running()
        messages: Iterable[Message] = super().configure_train(  # type: ignore[misc]
            server_round, arrays, config, grid
        )
        at = run.at
        at.sent = at.model.vector(_arrays(arrays))
        if run.tells is False:  # clients tell of losses in `evaluate` only
            counts = at.problem.silo_counts.astype(np.float64)
            self._step(run, counts, run.engine.losses(arrays), server_round)
        weights, elsewhere = at.weights()
        out = []
        for message in messages:
            place = run.places.get(message.metadata.dst_node_id)
            own = elsewhere if place is None else weights[place]
            order = replace(self.order, weights=own.tolist())
            out.append(_with_order(message, order, self._keys().config))
        run.messages = out
        return out

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take sums out of replies, move the weights, and let the strategy go on."""
        run, found = self._running(), list(replies)
        self._heard(run, found, server_round)
        for reply in found:
            if reply.has_content() and KEY in reply.content:
                del reply.content[KEY]
        arrays, metrics = super().aggregate_train(  # type: ignore[misc]
            server_round, found
        )
        if arrays is not None:
            run.at.reach(run.at.model.vector(_arrays(arrays)), server_round)
        if run.at.history:
            last = run.at.history[-1]
            told = {"risk": last.risk, "worst-violation": float(last.violation.max())}
            metrics = MetricRecord({**(metrics or {}), **told})
        return arrays, metrics

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Take what is ours out of the replies to the strategy's own evaluation."""
        found = list(replies)
        for reply in found:
            if reply.has_content() and KEY in reply.content:
                del reply.content[KEY]
        metrics: MetricRecord | None = super().aggregate_evaluate(  # type: ignore[misc]
            server_round, found
        )
        return metrics

    def summary(self) -> None:
        """Log what is bounded, and the strategy's own settings."""
        log(INFO, "\t├──> Bounded: %s", self._bounds)
        super().summary()  # type: ignore[misc]

    def _running(self) -> _Run:
        if self._run is None:
            raise UsageError(
                "[wrong-order] a strategy with BoundedGroupLossMixin runs by its own "
                "`start`: put the mixin before the outermost class, also before a "
                "wrapper"
            )
        return self._run

    def _keys(self) -> Keys:
        inner = getattr(self, "strategy", self)  # of Flower's wrappers
        return Keys(
            getattr(inner, "arrayrecord_key", Keys.arrays),
            getattr(inner, "configrecord_key", Keys.config),
        )

    def _expected(self) -> Sequence[str] | int:
        if self.silos is not None:
            return self.silos
        inner = getattr(self, "strategy", self)
        return int(getattr(inner, "min_available_nodes", 1))

    def _begun(
        self, engine: Reports, arrays: ArrayRecord, rounds: int, begun: float
    ) -> _Run:
        loss = CLASSES if self.order.labels else NUMBERS
        model = Reported.of(_arrays(arrays), loss)
        first = model.vector(_arrays(arrays))
        at = Outside.begin(self.bounding, engine, model, first, rounds, begun)
        places = {client.node: k for k, client in enumerate(engine.clients)}
        return _Run(engine, at, places, engine.silo_names)

    def _heard(self, run: _Run, replies: Sequence[Message], number: int) -> None:
        """Read the loss sums that came with training, if clients send them there."""
        good = [reply for reply in replies if not reply.has_error()]
        records = [record_of(reply) for reply in good]
        run.tells = bool(good) and None not in records
        if not run.tells:
            return
        known = run.at.problem.silo_counts
        counts, losses = np.zeros(known.shape), np.zeros(known.shape)
        asked = {m.metadata.message_id: m.metadata.dst_node_id for m in run.messages}
        for reply, record in zip(good, records, strict=True):
            about = reply.metadata
            node = asked.get(about.reply_to_message_id, about.src_node_id)
            if record is None:
                continue
            k = run.place(record.get("name"), node)
            with Naming(run.names[k]):
                losses[k] = losses_of(self.order.schema, record, known[k])
            counts[k] = known[k]
        self._step(run, counts, losses, number)

    def _step(
        self, run: _Run, counts: FloatArray, losses: FloatArray, number: int
    ) -> None:
        before = len(run.at.history)
        run.at.step(counts, losses, number)
        for row in run.at.history[before:]:
            for callback in self.callbacks:
                callback.after_round(row)

    @property
    def _bounds(self) -> Mapping[str, object]:
        return self.bounding.constraint.describe()

    def _described(self) -> dict[str, Any]:
        inner = getattr(self, "strategy", None)
        base = next(b.__name__ for b in type(self).__mro__ if _is_flowers(b))
        own = base if inner is None else f"{base}({type(inner).__name__})"
        return {"kind": "weights-protocol", "strategy": own}

    def _notes(self) -> list[str]:
        if not any("Differential" in b.__name__ for b in type(self).__mro__):
            return []
        return [
            "differential privacy of the strategy covers the model's updates only: "
            "the sums of groups were sent without noise, and the weights of examples "
            "and the choice of the model follow from them. Neither these sums nor the "
            "model as it came about is differentially private"
        ]


class FairFedAvg(BoundedGroupLossMixin, FedAvg):  # type: ignore[misc]
    """FedAvg under bounds."""


@dataclass
class _Run:
    """A run, and who its clients are.

    `tells`: whether clients send loss sums with training; None before the first round.
    """

    engine: Reports
    at: Outside
    places: dict[int, int]
    names: tuple[str, ...]
    messages: list[Message] = field(default_factory=list)
    tells: bool | None = None

    def place(self, name: object, node: int) -> int:
        """Return which silo a client is; a node that started again has a new id."""
        if isinstance(name, str) and name in self.names:
            self.places[node] = self.names.index(name)
        if node not in self.places:
            raise FederationError(
                f"[late-node] {name or f'node {node}'} came after the first round, "
                f"and was not counted: there are {', '.join(self.names)}. Say who "
                "must be there before it starts (`silos=`)"
            )
        return self.places[node]


def _who(engine: Reports) -> str:
    return f"{len(engine.clients)} clients: {', '.join(engine.silo_names)}"


def _is_flowers(kind: type) -> bool:
    return kind.__module__.startswith("flwr.")


def _arrays(record: ArrayRecord) -> dict[str, Any]:
    return {name: array.numpy() for name, array in record.items()}


def _record(arrays: Mapping[str, Any]) -> ArrayRecord:
    named = arrays.items()
    return ArrayRecord({n: Array(np.ascontiguousarray(a)) for n, a in named})


def _with_order(message: Message, order: Order, key: str) -> Message:
    """Return a message of the strategy's with an order in its config.

    Strategies share one record among all messages, so it is not written into.
    """
    content = RecordDict(dict(message.content))
    configs = list(content.config_records)
    at = key if key in configs or not configs else configs[0]
    own = dict(content.config_records.get(at, {}))
    content[at] = ConfigRecord({**own, KEY: order.text})
    about = message.metadata
    return Message(
        content,
        about.dst_node_id,
        about.message_type,
        ttl=about.ttl,
        group_id=about.group_id,
    )
