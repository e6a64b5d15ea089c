"""Bounds for every group over any strategy of Flower's, in a user's own app.

`BoundedGroupLossMixin` stands before a strategy, which trains as it always does. Before
a round the mixin asks the clients for loss sums of the model that is sent, moves the
weights (`methods.ascent`), and adds to each message what an example of each group and
label weighs. At the end the model is measured by the clients' own code, and judged as
every other model is.

At a client, `group_weights` are what its losses are multiplied by in `train`, and
`GroupSums` what it sends back from `evaluate`. Without such a message both do nothing:
the same client works under any strategy. Nothing is masked here, and clients run code
of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from logging import getLogger
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from pffl import external
from pffl._solve import noted
from pffl.constraints import Constraint
from pffl.data.checks import listing
from pffl.data.columns import TableEncoder
from pffl.data.federation import Federation
from pffl.data.schema import Attribute, Schema, withheld
from pffl.deploy.messages import query_body, read_total, total_body
from pffl.errors import DataError, FederationError, Malformed, Refused, UsageError
from pffl.files import digest
from pffl.models.external import CLASSES, NUMBERS, Reported
from pffl.prepare import Options
from pffl.queries import Census, Evaluate, Query, Task, View, add_all, read_query
from pffl.queries.validation import Gate, Policy
from pffl.solution import Solution
from pffl.tensors import Parcel, pack, unpack
from pffl.typing import FloatArray, IntArray

T = TypeVar("T")
KEY = "pffl"
LOG = getLogger("flwr")
VERSION = 3
FLOOR = 10  # rows of a group and label, for a client to tell of them
NO_RECORD = (
    'its reply has no record "pffl": `sums = GroupSums(msg, context)`, `sums.add(…)` '
    'for every batch, and `"pffl": sums.record()` in the reply'
)
NEEDS_LABELS = "[needs-labels] the strategy needs `labels`, too"
NOT_ALL_ROWS = (
    ". Add every row once in each call: `@app.evaluate()` takes `sums.pick(trainloader,"
    " testloader)`; a loader may drop its last batch, or draw rows"
)
UNGUARDED = (
    "sites unguarded: clients answer whatever weights and models the server sends. "
    "Only sums of small groups are withheld, and nothing is masked or counted"
)
NOISE = (
    "neither the sums of groups nor the model is differentially private: the strategy "
    "adds noise to updates, and group sums, which move the weights, had none"
)


# At a client


@dataclass(frozen=True, eq=False)
class Order:
    """What a message asks of a client.

    Attributes
    ----------
    schema
        Groups and labels, in order of their codes. No labels: the target is a number.
    weights
        Of an example in training, by group and label; None outside of training.
    query
        The sums that are asked for; None in training.
    index
        Which silo the client is.
    """

    schema: Schema
    weights: FloatArray | None = None
    query: Census | Evaluate | None = None
    index: int = 0

    def packed(self) -> bytes:
        """Return the order as it is sent."""
        asked = Parcel({}) if self.query is None else query_body(self.query, self.index)
        weights = {} if self.weights is None else {"weights": self.weights}
        header = {
            "version": VERSION,
            "attributes": [[a.name, list(a.values)] for a in self.schema.attributes],
            "labels": list(self.schema.labels),
            "query": dict(asked.header),
        }
        return pack(Parcel(header, {**asked.arrays, **weights}))


def order_of(message: Message | ConfigRecord) -> Order | None:
    """Return what a message asks; None where it is of another strategy."""
    if isinstance(message, ConfigRecord):
        records = [message]
    else:
        content = message.content if message.has_content() else RecordDict()
        records = [*content.config_records.values()]
    found = [one for record in records if isinstance(one := record.get(KEY), bytes)]
    return _read(found[0]) if found else None


@lru_cache(maxsize=8)
def _read(content: bytes) -> Order:
    parcel = unpack(content)
    header, arrays = parcel.header, dict(parcel.arrays)
    if header.get("version") != VERSION:
        raise Malformed(
            "other-version:read", version=header.get("version"), version_2=VERSION
        )
    try:
        named = tuple(Attribute(n, tuple(v)) for n, v in header["attributes"])
        schema = Schema((), named, tuple(header["labels"]))
        weights = arrays.pop("weights", None)
        if not header["query"]:
            return Order(schema, weights)
        own: Any = lambda plain, _: Reported.rebuilt(plain)  # noqa: E731
        asked: Any = read_query(header["query"], arrays, schema, own_model=own)
        return Order(schema, weights, *asked)
    except (KeyError, TypeError, ValueError, DataError, Malformed, UsageError) as error:
        raise Malformed(f"the message's '{KEY}' cannot be read: {error}") from error


def group_weights(msg: Message | ConfigRecord, groups: Any, labels: Any = None) -> Any:
    """Return what the examples of a batch weigh: multiply their losses by it.

    The mean weight over all rows is 1, so that step sizes stay as they were. Under a
    strategy that sends no weights all of them are 1.

    Parameters
    ----------
    msg
        The message that is answered, or its config.
    groups, labels
        Of each example: codes in the order in which the strategy names them, or the
        names; labels may be left out where the target is a number.

    Returns
    -------
    Tensor or ndarray
        As `groups` or `labels` are, on the same device.
    """
    order = order_of(msg)
    found = np.ones(len(groups))
    if order is not None and order.weights is not None:
        found = order.weights[_codes(order.schema, groups, labels)]
    for given in (labels, groups):
        if _is_tensor(given):
            import torch

            return torch.tensor(found, dtype=torch.float32, device=given.device)
    return found


class GroupSums:
    """Loss sums and counts per group and label, of the model that a message brought.

    Sums are of the rows that were added, and those of a group and label with fewer rows
    than the floor are withheld. No other rule of a site is kept here: the server is
    trusted with the weights that it sends.

    Parameters
    ----------
    msg
        The message that is answered.
    context
        Flower's context: who this client is, by ``silo="…"`` in its node's
        configuration, or by its partition in a simulation.
    floor
        Fewest rows of a group and label that are reported.

    Attributes
    ----------
    split
        The rows that the server asks about: "train" or "test".

    Examples
    --------
    >>> def evaluate(msg, context):  # doctest: +SKIP
    ...     sums = GroupSums(msg, context)
    ...     for x, y, group in sums.pick(trainloader, testloader):
    ...         sums.add(cross_entropy(net(x), y, reduction="none"), group, y)
    ...     content = RecordDict({"metrics": metrics, "pffl": sums.record()})
    ...     return Message(content, reply_to=msg)
    """

    def __init__(
        self, msg: Message, context: Context | None = None, *, floor: int = FLOOR
    ) -> None:
        self._order, self._floor = order_of(msg), floor
        config = {} if context is None else context.node_config
        self._name = str(config.get("silo", ""))
        if not self._name and "partition-id" in config:
            self._name = f"partition {config['partition-id']}"
        self._parts: list[tuple[Any, ...]] = [(np.zeros(0), np.zeros(0, np.int64)) * 2]
        query = getattr(self._order, "query", None)
        self.split = "test" if query is None else query.split

    def pick(self, train: T, test: T) -> T:
        """Return what belongs to the rows that the server asks about, of two loaders.

        Under a strategy that does not say which rows, those for testing.
        """
        return train if self.split == "train" else test

    def add(
        self, losses: Any, groups: Any, labels: Any = None, predicted: Any = None
    ) -> float:
        """Add a batch, and return its mean loss.

        Parameters
        ----------
        losses
            Of each example, not reduced: cross-entropy, or the squared error of a
            numeric target; at the model that came, in evaluation mode.
        groups, labels
            As for `group_weights`; of a numeric target, `labels` are the numbers.
        predicted
            Codes of predicted classes; may be left out for two classes, where they
            follow from the loss.
        """
        loss = _numbers(losses)
        mean = float(loss.mean()) if len(loss) else 0.0
        if self._order is None:
            return mean
        if labels is None:
            raise UsageError(NEEDS_LABELS)
        schema = self._order.schema
        group, label = _codes(schema, groups, labels)
        if len(loss) != len(group):
            raise DataError("wrong-length:add", n_loss=len(loss), n_group=len(group))
        if (loss < 0).any():
            raise DataError("negative-loss")
        y = guess = label.astype(np.float64) if schema.labels else _numbers(labels)
        if predicted is not None:
            guess = _numbers(predicted)
        elif len(schema.labels) == 2:
            guess = np.where(loss < np.log(2.0), y, 1.0 - y)
        elif schema.labels:
            raise UsageError("needs-predictions")
        self._parts.append((loss, group * schema.n_labels + label, y, guess))
        return mean

    def record(self) -> ConfigRecord:
        """Return what to send back, as the record "pffl" of the reply."""
        order = self._order
        if order is None or order.query is None:
            return ConfigRecord()
        query, schema = order.query, order.schema
        loss, stratum, y, guess = map(np.concatenate, zip(*self._parts, strict=True))
        who: dict[str, Any] = {"version": VERSION, "name": self._name}
        if not np.isfinite(loss).all():
            return ConfigRecord({**who, "diverged": True})
        counts = np.bincount(stratum, minlength=schema.n_strata)
        hidden = withheld(counts, counts < self._floor, self._floor)
        kept = ~hidden[stratum]
        loss, classes = loss[kept], guess[kept].astype(np.float64)
        view = View(order.index, np.zeros((len(loss), 0)), y[kept], stratum[kept])
        total: Any
        if isinstance(query, Census):
            total = query.answer(view)
        else:
            cut = query.bounded(loss, loss, view.y)
            total = query.total(view, loss, classes if schema.labels else None, cut)
        body = pack(total_body(query, total, int(hidden.sum())))
        return ConfigRecord({**who, "body": body})


def _codes(schema: Schema, groups: Any, labels: Any) -> tuple[IntArray, IntArray]:
    """Return codes of groups and labels; refuse what the strategy does not name."""
    group = _coded(groups, schema.groups, "group")
    if not schema.labels:
        return group, np.zeros(len(group), np.int64)
    if labels is None:
        raise UsageError(NEEDS_LABELS)
    label = _coded(labels, schema.labels, "label")
    if len(label) != len(group):
        raise DataError("wrong-length:codes", n_group=len(group), n_label=len(label))
    return group, label


def _coded(given: Any, names: Sequence[str], what: str) -> IntArray:
    values = np.asarray(given.cpu() if _is_tensor(given) else given).reshape(-1)
    if values.dtype.kind in "OUS":
        values = pd.Index(names).get_indexer(pd.Index(values.astype(str)))
    codes: IntArray = values.astype(np.int64)
    if ((codes != values) | (codes < 0) | (codes >= len(names))).any():
        raise DataError("unknown-group:coded", what=what, names=", ".join(names))
    return codes


def _is_tensor(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "torch"


def _numbers(value: Any) -> FloatArray:
    """Return anything array-like in NumPy; tensors from wherever they are."""
    plain = value.detach().cpu().double() if _is_tensor(value) else value
    return np.asarray(plain, np.float64).reshape(-1)


# What clients told


class Models:
    """A strategy's models as vectors, and back.

    Arrays of numbers are one vector. A model that is bytes (of XGBoost, say), as long
    as it likes, is known by a number instead, and never averaged.
    """

    def __init__(self, arrays: ArrayRecord, loss: str) -> None:
        plain = [array.numpy() for array in arrays.values()]
        self.bytes = any(a.dtype == np.uint8 and a.ndim == 1 for a in plain)
        self._known: dict[int, ArrayRecord] = {}
        shown = {"number": np.zeros(1)} if self.bytes else _plain(arrays)
        self.model = Reported.of(shown, loss)

    def vector(self, arrays: ArrayRecord) -> FloatArray:
        """Return the vector of a model."""
        if not self.bytes:
            return self.model.vector(_plain(arrays))
        number = max(self._known, default=-1) + 1
        self._known[number] = arrays
        return np.array([float(number)])

    def arrays(self, w: FloatArray) -> ArrayRecord:
        """Return the model of a vector."""
        if self.bytes:
            return self._known[int(w[0])]
        named = self.model.arrays(w).items()
        return ArrayRecord({n: Array(np.ascontiguousarray(a)) for n, a in named})

    def forget(self, but: Sequence[FloatArray]) -> None:
        """Keep no other models than these."""
        kept = {int(w[0]) for w in but} if self.bytes else set()
        self._known = {n: a for n, a in self._known.items() if n in kept}

    def note(self, w: FloatArray) -> list[str]:
        """Say what model bytes are, which a run directory does not hold."""
        if not self.bytes:
            return []
        content = b"".join(array.numpy().tobytes() for array in self.arrays(w).values())
        return [
            f"the model is {len(content):,} bytes of the app's own, with the SHA-256 "
            f"{digest(content)}: keep them (`result.arrays`); this directory does not"
        ]


def _plain(arrays: ArrayRecord) -> dict[str, Any]:
    return {name: array.numpy() for name, array in arrays.items()}


class Reports:
    """An engine that asks clients by `evaluate` messages.

    Parameters
    ----------
    strategy
        The one that trains: what it names, and how its messages are written.
    grid
        What Flower gives to a ServerApp.
    arrays
        The model that training starts from, with which rows are counted.
    config
        What the user sends with evaluations.
    seconds
        How long to wait for replies, and for clients that are not there.
    """

    federation: Federation | None = None
    pooled, floor = 0, 1

    def __init__(
        self,
        strategy: BoundedGroupLossMixin,
        grid: Grid,
        arrays: ArrayRecord,
        config: ConfigRecord | None,
        seconds: float,
    ) -> None:
        self.name, self.schema = strategy.data_name, strategy.schema
        self._strategy, self._grid, self._first = strategy, grid, arrays
        self._config, self._seconds = dict(config or {}), seconds
        self.models = Models(arrays, CLASSES if self.schema.labels else NUMBERS)
        self.encoding = TableEncoder.of_numbers(self.schema)
        self.gate = Gate(Policy(), self.schema)
        self.clients: dict[str, int] = {}  # their nodes, by name
        self.messages = 0
        self._census: dict[str, Any] = {}

    @property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the clients, in order."""
        return tuple(self.clients)

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that have rows."""
        names = ("train", "test")
        return tuple(s for s in names if self.ask(Census(self.schema, s)).rows.any())

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the clients, for the result."""
        few = sum(self.gate.withheld.values())
        left_out = (
            f"clients withheld the sums of {few} of their groups and labels, with too "
            "few rows: the model was trained on them, and no figure includes them"
        )
        return (UNGUARDED, left_out) if few else (UNGUARDED,)

    def meet(self, many: int) -> None:
        """Wait for clients, and find out who they are; refuse those who cannot speak.

        There are at least so `many`.
        """
        deadline = time.monotonic() + self._seconds
        while len(nodes := sorted(self._grid.get_node_ids())) < max(1, many):
            if time.monotonic() >= deadline:
                raise FederationError(
                    "sites-missing:meet",
                    n_nodes=len(nodes),
                    many=many,
                    seconds=self._seconds,
                )
            time.sleep(min(1.0, self._seconds))
        asked = Order(self.schema, query=Census(self.schema, "train"))
        told = self._asked(dict.fromkeys(nodes, asked), self._first)
        named = [(str(told[node].get("name") or f"node {node}"), node) for node in told]
        self.clients = dict(sorted(named, key=lambda one: (len(one[0]), one[0])))
        if len(self.clients) < len(named):
            raise FederationError(
                "repeated-name:meet", n_named=len(named), what=listing([*self.clients])
            )

    def ask(self, query: Query[Any]) -> Any:
        """Ask every client, and add the answers."""
        if isinstance(query, Census):
            if query.split not in self._census:
                parts = self._judged(query, self._told(query, self._first))
                self._census[query.split] = add_all(parts)
            return self._census[query.split]
        if not (isinstance(query, Evaluate) and query.task.model.name == Reported.name):
            raise FederationError("unknown-query:ask", kind=query.kind)
        self.ask(Census(self.schema, query.split))  # it is compared with
        bare = replace(query, task=_bare(query.task), w=np.zeros(1))
        told = self._told(bare, self.models.arrays(query.w))
        return add_all(self._judged(bare, told))

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask one after the other: a message brings one model and one split."""
        return [self.ask(query) for query in queries]

    def losses(self, task: Task, arrays: ArrayRecord) -> FloatArray:
        """Return loss sums of the training rows, by client and stratum; NaN if any is.

        Rows are those of the census: it is compared.
        """
        query = Evaluate(_bare(task), np.zeros(1), "train")
        told = self._told(query, arrays)
        if any(record.get("diverged") for record in told):
            return np.full((len(told), self.schema.n_strata), np.nan)
        return np.array([one.column("loss") for one in self._judged(query, told)])

    def _told(self, query: Census | Evaluate, arrays: ArrayRecord) -> list[Any]:
        """Ask all clients, and return what each told."""
        orders = {
            node: Order(self.schema, query=query, index=k)
            for k, node in enumerate(self.clients.values())
        }
        told = self._asked(orders, arrays)
        return [told[node] for node in orders]

    def _judged(self, query: Census | Evaluate, told: Sequence[Any]) -> list[Any]:
        """Read and judge the clients' answers; name the one that cannot be true."""
        parts: list[Any] = []
        for k, (name, record) in enumerate(zip(self.clients, told, strict=True)):
            try:
                if record.get("diverged"):
                    raise Refused("not-finite:judged")
                total: Any
                total, hidden = read_total(unpack(record.get("body", b"")), query)
                if isinstance(query, Census):
                    parts.append(self.gate.census(k, query.split, total, hidden))
                else:
                    parts.append(self.gate.report(query, k, total))
            except (Refused, Malformed) as error:
                hint = NOT_ALL_ROWS if "census" in str(error) else ""
                raise FederationError(f"[node-failed] {name}: {error}{hint}") from error
        return parts

    def _asked(self, orders: dict[int, Order], arrays: ArrayRecord) -> dict[int, Any]:
        """Send each node its order; return what they told, or name all that did not."""
        model, config = self._strategy.record_keys
        messages = []
        for node, order in orders.items():
            own = ConfigRecord({**self._config, KEY: order.packed()})
            content = RecordDict({model: arrays, config: own})
            messages.append(Message(content, node, "evaluate"))
        self.messages += len(messages)
        replies = list(self._grid.send_and_receive(messages, timeout=self._seconds))
        sent = {m.metadata.message_id: m.metadata.dst_node_id for m in messages}
        told: dict[int, Any] = {}
        lacking = dict.fromkeys(orders, "it did not answer in time")
        for reply in replies:
            # The sender of an error is the SuperLink: the message names the node.
            node = sent[reply.metadata.reply_to_message_id]
            if reply.has_error():
                reason = " ".join((reply.error.reason or "no reason was given").split())
                lacking[node] = f"it failed with: {reason[:300]}"
                continue
            told[node], lacking[node] = reply.content.get(KEY, {}), NO_RECORD
            if told[node].get("version") == VERSION:
                del lacking[node]
        if lacking:
            nodes = ", ".join(map(str, lacking))
            said = ". ".join(dict.fromkeys(lacking.values()))
            raise FederationError(
                "node-failed:asked",
                n_lacking=len(lacking),
                n_orders=len(orders),
                nodes=nodes,
                said=said,
            )
        return told


def _bare(task: Task) -> Task:
    """Return a task whose model is one number: a message has its arrays already."""
    model: Any = task.model
    return replace(task, model=replace(model, shapes=(("number", "<f8", (1,)),)))


# At the server


class BoundedGroupLossMixin:
    """Put it before a strategy: ``class Fair(BoundedGroupLossMixin, FedProx): …``.

    Over a wrapper, such as those for differential privacy, it stands before the
    wrapper, not before the strategy inside.

    Parameters
    ----------
    constraint
        What is bounded: `BoundedGroupLoss`, `ConditionalBoundedGroupLoss`,
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
        the smallest risk on the training rows, or misses them by the least), or the
        "last".
    options
        Confidence, loss bound and what to do with empty cells, as for `solve`.
    name
        What the data are called.
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
        groups: external.Groups,
        labels: Sequence[str] | None,
        multiplier_bound: float = 10.0,
        risk_weight: float = 1.0,
        dual_step_size: float | None = None,
        iterate: external.Iterate = "best",
        options: Options | None = None,
        name: str = "data",
        **more: Any,  # a mixin stands before classes that it does not know
    ) -> None:
        prices = (multiplier_bound, risk_weight, dual_step_size)
        known = (constraint, *prices, iterate, options or Options())
        self.bounding = external.ExternalSettings(*known)
        self.schema = external.external_schema(groups, labels)
        super().__init__(*strategy, **more)
        self.data_name = name
        self.solution: Solution | None = None
        self._run: tuple[Reports, external.ExternalTraining] | None = None

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
        engine = Reports(self, grid, initial_arrays, evaluate_config, timeout)
        models = engine.models
        engine.meet(getattr(self._inner, "min_available_nodes", 1))
        known = (models.model, models.vector(initial_arrays), num_rounds)
        at = external.ExternalTraining(self.bounding, engine, *known)
        self._run = engine, at
        bounds = self.bounding.constraint.describe()
        LOG.info("Bounds: %s, for %s", bounds, ", ".join(engine.clients))
        configs = [ConfigRecord(dict(c or {})) for c in (train_config, evaluate_config)]
        result: Result = super().start(  # type: ignore[misc]
            grid, initial_arrays, num_rounds, timeout, *configs, evaluate_fn
        )
        messages = num_rounds + engine.messages // len(engine.clients)
        noisy = any("Differential" in b.__name__ for b in type(self).__mro__)
        notes = [NOISE] if noisy else []
        found = at.conclude(self._described(), messages, notes)
        self.solution = noted(found, models.note(found.w))
        result.arrays = models.arrays(found.w)
        LOG.info("%s", self.solution)
        self._run = None
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Measure the model, move the weights, and add them to the messages.

        A client that came after the first round was not counted, and takes no part.
        """
        engine, at = self._running()
        at.sent = engine.models.vector(arrays)
        if server_round > 1:
            counts = at.problem.silo_counts.astype(np.float64)
            at.step(counts, engine.losses(at.problem.task, arrays), server_round)
        messages: Iterable[Message] = super().configure_train(  # type: ignore[misc]
            server_round, arrays, config, grid
        )
        own = dict(zip(engine.clients.values(), at.weights(), strict=True))
        return [
            _with_order(message, Order(self.schema, own[node]), self.record_keys[1])
            for message in messages
            if (node := message.metadata.dst_node_id) in own
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let the strategy make its model, and keep it."""
        engine, at = self._running()
        arrays, metrics = super().aggregate_train(  # type: ignore[misc]
            server_round, replies
        )
        if arrays is not None:
            at.reached = engine.models.vector(arrays)
            best = [at.best[1]] if at.best is not None else []
            engine.models.forget(but=[at.sent, at.reached, *best])
        for row in at.history[-1:]:
            told = {"risk": row.risk, "worst-violation": float(row.violation.max())}
            metrics = MetricRecord({**(metrics or {}), **told})
        return arrays, metrics

    def _running(self) -> tuple[Reports, external.ExternalTraining]:
        if self._run is None:
            raise UsageError("wrong-order:running")
        return self._run

    @property
    def _inner(self) -> Any:
        """The strategy itself, also inside one of Flower's wrappers."""
        return getattr(self, "strategy", self)

    @property
    def record_keys(self) -> tuple[str, str]:
        """Names of the records of arrays and configuration in a message."""
        arrays = getattr(self._inner, "arrayrecord_key", "arrays")
        return arrays, getattr(self._inner, "configrecord_key", "config")

    def _described(self) -> dict[str, Any]:
        flowers = (b for b in type(self).__mro__ if b.__module__.startswith("flwr."))
        inner = f"({type(self._inner).__name__})" if self._inner is not self else ""
        name = f"{next(flowers).__name__}{inner}"
        return {"kind": "weights-protocol", "strategy": name}


class FairFedAvg(BoundedGroupLossMixin, FedAvg):  # type: ignore[misc]
    """FedAvg under bounds."""


def _with_order(message: Message, order: Order, key: str) -> Message:
    """Return a message of the strategy's with an order in its config.

    Strategies share one record among all messages, so it is not written into.
    """
    content, about = RecordDict(dict(message.content)), message.metadata
    own = dict(content.config_records.get(key, {}))
    content[key] = ConfigRecord({**own, KEY: order.packed()})
    to, kind = about.dst_node_id, about.message_type
    return Message(content, to, kind, ttl=about.ttl, group_id=about.group_id)
