"""Bounds for every group over any strategy of Flower's, in a user's own app.

`BoundedGroupLossMixin` stands before a strategy, which trains as it always does. Before
a round the mixin adds to each message what an example of each group and label weighs;
after it, it reads loss sums of the model that was sent, and moves the weights
(`methods.ascent`). At the end the model is measured by the clients' own code, and
judged as every other model is.

At a client, `group_weights` are what its losses are multiplied by in `train`, and
`GroupSums` what it sends back from `evaluate` (and from `train`, which saves a message
a round). Without such a message both do nothing: the same client works under any
strategy. Nothing is masked here, and clients run code of their own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from logging import INFO, getLogger
from typing import Any, Literal, TypeVar

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from pydantic import BaseModel, ConfigDict, ValidationError

from pffl._report.page import write_report
from pffl._solve import noted
from pffl.callbacks import Callback
from pffl.constraints import EVERY_SILO, Cells, Constraint
from pffl.data.checks import listing
from pffl.data.columns import TableEncoding
from pffl.data.federation import Federation
from pffl.data.schema import Attribute, Schema, withheld
from pffl.deploy.messages import read_total, total_body
from pffl.errors import DataError, FederationError, Malformed, Refused, UsageError
from pffl.evidence.looks import Looks
from pffl.external import (
    ExternalSettings,
    ExternalTraining,
    Groups,
    Iterate,
    external_schema,
)
from pffl.files import digest
from pffl.models.external import CLASSES, NUMBERS, Reported
from pffl.prepare import Options
from pffl.queries import (
    Census,
    CensusTotal,
    Evaluate,
    EvaluateTotal,
    Query,
    Task,
    Total,
    View,
    add_all,
)
from pffl.queries.validation import Gate, Policy
from pffl.runs import lock
from pffl.solution import Solution
from pffl.tensors import pack, unpack
from pffl.typing import FloatArray, IntArray

T = TypeVar("T")
A = TypeVar("A", bound=Total)
KEY = "pffl"
LOG = getLogger("flwr")
VERSION = 2
FLOOR = 10  # rows of a group and label, for a client to tell of them
NAMES = ("silo", "site", "name")  # of a client, in its node's configuration
PARTITION = "partition-id"
SPLITS = ("train", "test")
PAUSE = 1.0  # seconds between two looks for nodes
NO_RECORD = (
    'its reply has no record "pffl": make `sums = GroupSums(msg, context)`, call '
    "`sums.add(losses, groups, labels)` for every batch, and put "
    '`"pffl": sums.record()` into the reply'
)
NEEDS_LABELS = "[needs-labels] the strategy needs `labels`, too"
NOT_ALL_ROWS = (
    ". Every training row must be added once in each call: let `@app.evaluate()` take "
    "`sums.pick(trainloader, testloader)`, and look for a loader that drops its last "
    "batch, or draws rows"
)
UNGUARDED = (
    "sites unguarded: weights protocol. Clients run code of their own and answer "
    "whatever weights and models the server sends; of a site's rules only the floor "
    "of small groups is kept, and nothing counts what is let out"
)
NOISE = (
    "differential privacy of the strategy covers the model's updates only: the sums of "
    "groups were sent without noise, and the weights of examples and the choice of the "
    "model follow from them. Neither these sums nor the model as it came about is "
    "differentially private"
)


# At a client


class Order(BaseModel):
    """What a message asks of a client.

    Attributes
    ----------
    attributes, labels
        The protected attributes with their values, and the labels, in order of their
        codes. No labels: the target is a number.
    split
        "train" or "test": the rows that are meant.
    weights
        Of an example in training, by group and label.
    cells, share
        The cells of this client, for each which (group, label)s belong to it, and its
        part of the risk.
    counts
        Whether only rows are to be counted.
    loss_bound, trials, bets
        As for `Evaluate`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    attributes: list[tuple[str, list[str]]]
    labels: list[str]
    split: str = "train"
    weights: list[list[float]] = []
    cells: list[list[int]] = []
    share: float = 1.0
    counts: bool = False
    loss_bound: float | None = None
    trials: list[float] = []
    bets: list[list[float]] = []
    version: Literal[2] = 2

    @property
    def text(self) -> str:
        """The order as it is sent."""
        return self.model_dump_json()

    def but(self, **changed: Any) -> Order:
        """Return the order with other fields."""
        return self.model_copy(update=changed)

    @cached_property
    def names(self) -> Schema:
        """Names of groups and labels; there are no inputs."""
        named = tuple(Attribute(n, tuple(values)) for n, values in self.attributes)
        return Schema((), named, tuple(self.labels))

    def query(self) -> Census | Evaluate:
        """Return the query, as the one silo that there is sees it."""
        schema = self.names
        if self.counts:
            return Census(schema, self.split)
        bare = Reported(loss=CLASSES if schema.labels else "squared")
        member = np.array(self.cells, dtype=bool).reshape(-1, schema.n_strata)
        names, zero = tuple(map(str, range(len(member)))), np.zeros(len(member))
        cells = Cells(names, zero, member, np.full(len(member), EVERY_SILO))
        task = Task(bare.bind(schema, bare.inputs), cells, np.array([self.share]))
        many = len(self.bets[0]) if self.bets else 0
        bets = np.array(self.bets, np.float64).reshape(len(member), many)
        M = np.inf if self.loss_bound is None else self.loss_bound
        trials = np.array(self.trials, np.float64)
        return Evaluate(task, np.zeros(0), self.split, M, trials=trials, bets=bets)


def order_of(message: Message | ConfigRecord) -> Order | None:
    """Return what a message asks; None where it is of another strategy."""
    configs: Iterable[ConfigRecord] = []
    if isinstance(message, ConfigRecord):
        configs = [message]
    elif message.has_content():
        configs = message.content.config_records.values()
    found = (record.get(KEY) for record in configs)
    return next((_read(text) for text in found if isinstance(text, str)), None)


@lru_cache(maxsize=8)
def _read(text: str) -> Order:
    try:
        return Order.model_validate_json(text)
    except ValidationError as error:
        wrong = {one["loc"]: one["input"] for one in error.errors()}
    if ("version",) in wrong:
        raise Malformed(
            f"[other-version] the server speaks version {wrong['version',]} of the "
            f"weights protocol, and this client {VERSION}: use the same pffl on both"
        )
    raise Malformed(f"the message's '{KEY}' cannot be read: {list(wrong)[:3]}")


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
    if order is not None:
        found = np.array(order.weights, np.float64)[_codes(order, groups, labels)]
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
        Fewest rows of a group and label that are told of.

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
        if type(floor) is not int or floor < 1:
            raise UsageError(f"a floor must be a whole number ≥ 1. Got {floor!r}")
        self._order, self._floor = order_of(msg), floor
        config = {} if context is None else context.node_config
        own = [config[k] for k in NAMES if isinstance(config.get(k), str)]
        part = [f"partition {config[PARTITION]}"] if PARTITION in config else []
        self._name = str(next(filter(None, [*own, *part]), ""))
        self._parts: list[tuple[Any, ...]] = [(np.zeros(0), np.zeros(0, np.int64)) * 2]
        self.split = "test" if self._order is None else self._order.split

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
        order, loss = self._order, _numbers(losses)
        mean = float(loss.mean()) if len(loss) else 0.0
        if order is None:
            return mean
        if labels is None:
            raise UsageError(NEEDS_LABELS)
        group, label = _codes(order, groups, labels)
        if len(loss) != len(group):
            raise DataError(
                f"[wrong-length] {len(loss)} losses for {len(group)} examples: give "
                'one for each (reduction="none")'
            )
        if (loss < 0).any():
            raise DataError(
                "[negative-loss] a loss is negative: cross-entropy and squares are not"
            )
        y = label.astype(np.float64)
        guess: Any = label
        if not order.labels:
            y = _numbers(labels)
        elif predicted is not None:
            guess = _numbers(predicted)
        elif len(order.labels) == 2:
            guess = np.where(loss < np.log(2.0), y, 1.0 - y)
        else:
            raise UsageError(
                "[needs-predictions] GroupSums: of more than two classes give "
                "`predicted`, too: a loss does not tell which one it was"
            )
        self._parts.append((loss, group * order.names.n_labels + label, y, guess))
        return mean

    def record(self) -> ConfigRecord:
        """Return what to send back, as the record "pffl" of the reply."""
        if (order := self._order) is None:
            return ConfigRecord()
        loss, stratum, y, guess = map(np.concatenate, zip(*self._parts, strict=True))
        counts = np.bincount(stratum, minlength=order.names.n_strata)
        hidden = withheld(counts, counts < self._floor, self._floor)
        kept = ~hidden[stratum]
        who: dict[str, Any] = {"version": VERSION, "name": self._name}
        if not np.isfinite(loss).all():
            return ConfigRecord({**who, "diverged": True})
        loss, guess = loss[kept], guess[kept].astype(np.float64)
        view = View(0, np.zeros((len(loss), 0)), y[kept], stratum[kept])
        query = order.query()
        total: Total
        if isinstance(query, Census):
            total = query.answer(view)
        else:
            bounded = partial(query.task.model.bounded, loss)
            total = query.total(view, loss, guess if order.labels else None, bounded)
        body = pack(total_body(query, total, int(hidden.sum())))
        return ConfigRecord({**who, "body": body})


def _codes(order: Order, groups: Any, labels: Any) -> tuple[IntArray, IntArray]:
    """Return codes of groups and labels; refuse what the strategy does not name."""
    group = _coded(groups, order.names.groups, "group")
    if not order.labels:
        return group, np.zeros(len(group), np.int64)
    if labels is None:
        raise UsageError(NEEDS_LABELS)
    label = _coded(labels, order.labels, "label")
    if len(label) != len(group):
        raise DataError(
            f"[wrong-length] {len(group)} groups and {len(label)} labels in one batch"
        )
    return group, label


def _coded(given: Any, names: Sequence[str], what: str) -> IntArray:
    values = np.asarray(given.cpu() if _is_tensor(given) else given).reshape(-1)
    if values.dtype.kind in "OUS":
        places = {name: place for place, name in enumerate(names)}
        values = np.array([places.get(str(v), -1) for v in values.tolist()], np.int64)
    codes: IntArray = values.astype(np.int64)
    if not np.array_equal(codes, values):
        raise DataError(f"[not-numbers] a {what} is not a whole number")
    if ((codes < 0) | (codes >= len(names))).any():
        raise DataError(
            f"[unknown-group] a {what} that the strategy does not name: it names "
            f"{', '.join(names)}, in this order; give these names, or codes from 0 to "
            f"{len(names) - 1}"
        )
    return codes


def _is_tensor(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "torch"


def _numbers(value: Any) -> FloatArray:
    """Return anything array-like in NumPy; tensors from wherever they are."""
    plain = value.detach().cpu().double() if _is_tensor(value) else value
    return np.asarray(plain, np.float64).reshape(-1)


# What clients told


def read_sums(told: ConfigRecord, query: Query[A]) -> tuple[A, int]:
    """Return a client's answer to a query, and how many groups it withholds."""
    body = told.get("body")
    if not isinstance(body, bytes):
        raise Malformed("its sums are not there, or a loss is not finite")
    return read_total(unpack(body), query)


def losses_of(order: Order, told: ConfigRecord, known: IntArray) -> FloatArray:
    """Return a client's loss sums by stratum; refuse those of other rows."""
    if told.get("diverged"):
        return np.full(len(known), np.nan)
    total: Any = read_sums(told, order.query())[0]
    counts = total.column("count")
    if not np.array_equal(counts, known):
        raise Refused(
            f"[wrong-count] {int(counts.sum()):,} rows were added, and "
            f"{int(known.sum()):,} at the census of the training rows"
        )
    found: FloatArray = total.column("loss")
    return found


@contextmanager
def _naming(client: str) -> Iterator[None]:
    """Name the client whose answer is refused, and what to look at."""
    try:
        yield
    except (Refused, Malformed) as error:
        hint = NOT_ALL_ROWS if "census" in str(error) else ""
        raise FederationError(f"[node-failed] {client}: {error}{hint}") from error


def told_by(
    replies: Iterable[Message], asked: Sequence[Message]
) -> dict[int, ConfigRecord]:
    """Return what each node told; or name all that did not, with what they lack."""
    sent = {m.metadata.message_id: m.metadata.dst_node_id for m in asked}
    told: dict[int, ConfigRecord] = {}
    lacking = dict.fromkeys(sent.values(), "it did not answer in time")
    for reply in replies:
        # The sender of an error may be the SuperLink: the message tells whom it asked.
        node = sent.get(reply.metadata.reply_to_message_id, reply.metadata.src_node_id)
        if reply.has_error():
            reason = " ".join((reply.error.reason or "no reason was given").split())
            lacking[node] = f"it failed with: {reason[:300]}"
            if "No evaluate function registered" in reason:
                lacking[node] = "it has no `@app.evaluate()`, which measures the model"
        elif (record := record_of(reply)) is None:
            lacking[node] = NO_RECORD
        else:
            told[node] = record
            lacking.pop(node, None)
    if lacking:
        parts = [
            f"node{'s' * (len(nodes) > 1)} {', '.join(nodes)}: {reason}"
            for reason in dict.fromkeys(lacking.values())
            if (nodes := [str(n) for n in sorted(lacking) if lacking[n] == reason])
        ]
        raise FederationError(
            f"[node-failed] {len(lacking)} of {len(sent)} nodes do not speak the "
            f"weights protocol or failed. {'. '.join(parts)}."
        )
    return told


def record_of(reply: Message) -> ConfigRecord | None:
    """Return what a client told in a reply; None where it does not speak to us."""
    found = reply.content.get(KEY)
    ours = isinstance(found, ConfigRecord) and found.get("version") == VERSION
    return found if ours else None  # type: ignore[return-value]


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
    grid
        What Flower gives to a ServerApp.
    order
        Names of groups and labels; what it asks is replaced.
    models, arrays
        How models are written, and the one that the first census is asked with.
    config
        What the user sends with evaluations.
    keys
        Names of the records of arrays and of the configuration in a message.
    seconds
        How long to wait for replies, and for clients that are not there.
    name
        What the data are called.
    """

    federation: Federation | None = None
    pooled = 0

    def __init__(
        self,
        grid: Grid,
        order: Order,
        models: Models,
        arrays: ArrayRecord,
        *,
        config: ConfigRecord | None = None,
        keys: tuple[str, str] = ("arrays", "config"),
        seconds: float = 3600.0,
        name: str = "data",
    ) -> None:
        self._grid, self._order, self._models = grid, order, models
        self._first, self._config = arrays, dict(config or {})
        self._keys, self._seconds = keys, seconds
        self.name, self.schema = name, order.names
        self.encoding = TableEncoding.of_numbers(self.schema)
        self.gate = Gate(Policy(), self.schema)
        self.clients: dict[str, int] = {}  # their nodes, by name
        self.withheld = self.messages = 0
        self._census: dict[str, CensusTotal] = {}

    @property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the clients, in order."""
        return tuple(self.clients)

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits in which somebody has rows."""
        return tuple(s for s in SPLITS if self._counted(s).rows.any())

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the clients, for the result."""
        if not self.withheld:
            return (UNGUARDED,)
        few = (
            f"clients withheld the sums of {self.withheld} of their groups and labels, "
            "which have too few rows: these rows are trained on, and nothing here "
            "speaks of them"
        )
        return (UNGUARDED, few)

    def meet(self, expected: Sequence[str] | int) -> None:
        """Wait for clients, and find out who they are; refuse those who cannot speak.

        `expected` are their names, in order, or how many there are at least.
        """
        many = expected if isinstance(expected, int) else len(expected)
        told, found = self._named(max(1, many))
        wanted = [] if isinstance(expected, int) else [*expected]
        if absent := [name for name in wanted if name not in found]:
            raise FederationError(
                f"[sites-missing] {listing(absent)} did not answer; there are "
                f"{', '.join(found)}"
            )
        others = sorted((n for n in found if n not in wanted), key=_natural)
        self.clients = {name: found[name] for name in [*wanted, *others]}
        self._take_census("train", told)

    def ask(self, query: Query[Any]) -> Any:
        """Ask every client, and add the answers."""
        if isinstance(query, Census):
            return self._counted(query.split)
        if isinstance(query, Evaluate) and isinstance(query.task.model, Reported):
            return self._evaluated(query)
        raise FederationError(
            "[unknown-query] clients of the weights protocol do not answer "
            f"'{query.kind}' of any model but their own app's"
        )

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask one after the other: a message brings one model and one split."""
        return [self.ask(query) for query in queries]

    def losses(self, arrays: ArrayRecord) -> FloatArray:
        """Return loss sums of training rows by client and stratum, shape (K, strata).

        Rows are those of the census: it is compared.
        """
        told = self._asked(self._nodes_now(), self._order, arrays)
        census, out = self._counted("train"), []
        for k, (name, node) in enumerate(self.clients.items()):
            with _naming(name):
                out.append(losses_of(self._order, told[node], census.counts[k]))
        return np.array(out)

    def _counted(self, split: str) -> CensusTotal:
        if split not in self._census:
            order = self._order.but(counts=True, split=split)
            self._take_census(split, self._asked(self._nodes_now(), order))
        return self._census[split]

    def _take_census(self, split: str, told: Mapping[int, ConfigRecord]) -> None:
        parts = []
        for k, (name, node) in enumerate(self.clients.items()):
            with _naming(name):
                total, hidden = read_sums(told[node], Census(self.schema, split))
                parts.append(self.gate.census(k, split, total, hidden))
            self.withheld += hidden
        self._census[split] = add_all(parts)

    def _evaluated(self, query: Evaluate) -> EvaluateTotal:
        task, M = query.task, query.loss_bound
        self._counted(query.split)
        order = self._order.but(
            split=query.split,
            loss_bound=float(M) if np.isfinite(M) else None,
            trials=query.trials.tolist(),
            bets=query.bets.tolist(),
        )
        cells = [task.cells.of_silo(k).astype(int) for k in range(len(self.clients))]
        orders = [
            order.but(cells=own.tolist(), share=share)
            for own, share in zip(cells, task.shares.tolist(), strict=True)
        ]
        arrays, parts = self._models.arrays(query.w), []
        told = self._asked(self._nodes_now(), orders, arrays)
        for k, (name, node) in enumerate(self.clients.items()):
            with _naming(name):
                total = read_sums(told[node], query)[0]
                parts.append(self.gate.report(query, k, total))
        return query.keeping(add_all(parts), parts)

    def _nodes_now(self) -> list[int]:
        """Return the nodes of the clients; those that started again have new ones."""
        there = self._nodes(len(self.clients))
        if not set(self.clients.values()) <= set(there):
            _, found = self._named(len(self.clients))
            if absent := [name for name in self.clients if name not in found]:
                raise FederationError(
                    f"[sites-missing] {listing(absent)} did not answer when the model "
                    "was measured: what is said of it would not speak of everybody it "
                    "was trained on"
                )
            self.clients = {name: found[name] for name in self.clients}
        return list(self.clients.values())

    def _named(self, many: int) -> tuple[dict[int, ConfigRecord], dict[str, int]]:
        """Ask all nodes who they are; return what they told, and nodes by name."""
        nodes = self._nodes(many)
        told = self._asked(nodes, self._order.but(counts=True))
        names = {
            n: str(record.get("name") or f"node {n}") for n, record in told.items()
        }
        found = {name: node for node, name in names.items()}
        if len(found) < len(names):
            twice = listing(sorted({s for n, s in names.items() if found[s] != n}))
            raise FederationError(
                f"[repeated-name] several nodes call themselves {twice}: give each a "
                "name of its own, --node-config \"silo='…'\""
            )
        return told, found

    def _nodes(self, many: int) -> list[int]:
        """Wait until so many nodes are there."""
        deadline = time.monotonic() + self._seconds
        while len(nodes := sorted(self._grid.get_node_ids())) < many:
            if time.monotonic() >= deadline:
                raise FederationError(
                    f"[sites-missing] {len(nodes)} of {many} nodes are there after "
                    f"{self._seconds:g} s: start the others, or raise `timeout`"
                )
            LOG.log(INFO, "Waiting for nodes: %d of %d are there.", len(nodes), many)
            time.sleep(min(PAUSE, self._seconds))
        return nodes

    def _asked(
        self,
        nodes: Sequence[int],
        orders: Order | Sequence[Order],
        arrays: ArrayRecord | None = None,
    ) -> dict[int, ConfigRecord]:
        """Send an order to each node, and return what it told, by node."""
        each = [orders] * len(nodes) if isinstance(orders, Order) else orders
        model, config = self._keys
        messages = [
            Message(
                RecordDict(
                    {
                        model: self._first if arrays is None else arrays,
                        config: ConfigRecord({**self._config, KEY: order.text}),
                    }
                ),
                node,
                MessageType.EVALUATE,
            )
            for node, order in zip(nodes, each, strict=True)
        ]
        self.messages += len(messages)
        replies = self._grid.send_and_receive(messages, timeout=self._seconds)
        return told_by(replies, messages)


def _natural(name: str) -> tuple[str, int]:
    """Order 'partition 10' after 'partition 2'."""
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0)


# At the server


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
        iterate: Iterate = "best",
        silos: Sequence[str] | int | None = None,
        options: Options | None = None,
        out: str | os.PathLike[str] | None = None,
        name: str = "data",
        callbacks: Sequence[Callback] = (),
        **more: Any,  # a mixin stands before classes that it does not know
    ) -> None:
        prices = (multiplier_bound, risk_weight, dual_step_size)
        self.bounding = ExternalSettings(
            constraint, *prices, iterate, options or Options()
        )
        schema = external_schema(groups, labels)
        attributes = [(a.name, list(a.values)) for a in schema.attributes]
        self.order = Order(attributes=attributes, labels=list(schema.labels))
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
        models = Models(initial_arrays, CLASSES if self.order.labels else NUMBERS)
        if models.bytes and self.bounding.iterate == "average":
            raise UsageError(
                "[wrong-value] iterate = 'average': a model that is bytes has no "
                "average; take 'best' or 'last'"
            )
        engine = Reports(
            grid,
            self.order,
            models,
            initial_arrays,
            config=evaluate_config,
            keys=self._keys,
            seconds=timeout,
            name=self.data_name,
        )
        asked = getattr(self._inner, "min_available_nodes", 1)
        engine.meet(int(asked) if self.silos is None else self.silos)
        first = models.vector(initial_arrays)
        at = ExternalTraining.begin(
            self.bounding, engine, models.model, first, num_rounds, begun
        )
        nodes = {node: k for k, node in enumerate(engine.clients.values())}
        self._run = _Run(engine, at, models, nodes)
        many, names = len(engine.clients), ", ".join(engine.clients)
        LOG.log(INFO, "Bounds: %s, for %d clients: %s", self._bounds, many, names)
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
        messages = len(at.history) + engine.messages // many
        found = at.conclude(engine, self._described(), messages, self._notes())
        self.solution = noted(found, models.note(found.w))
        result.arrays = models.arrays(found.w)
        LOG.log(INFO, "%s", self.solution)
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
        at.sent = run.models.vector(arrays)
        if run.tells is False:  # clients tell of losses in `evaluate` only
            counts = at.problem.silo_counts.astype(np.float64)
            self._step(run, counts, run.engine.losses(arrays), server_round)
        weights, elsewhere = at.weights()
        run.messages = []
        for message in messages:
            place = run.nodes.get(message.metadata.dst_node_id)
            own = elsewhere if place is None else weights[place]
            order = self.order.but(weights=own.tolist())
            run.messages.append(_with_order(message, order, self._keys[1]))
        return run.messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take sums out of replies, move the weights, and let the strategy go on."""
        run, found = self._running(), list(replies)
        self._heard(run, found, server_round)
        arrays, metrics = super().aggregate_train(  # type: ignore[misc]
            server_round, _without_sums(found)
        )
        at = run.at
        if arrays is not None:
            at.reach(run.models.vector(arrays), server_round)
            best = [at.best[1]] if at.best is not None else []
            run.models.forget(but=[at.sent, at.reached, *best])
        if at.history:
            last = at.history[-1]
            told = {"risk": last.risk, "worst-violation": float(last.violation.max())}
            metrics = MetricRecord({**(metrics or {}), **told})
        return arrays, metrics

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Take what is ours out of the replies to the strategy's own evaluation."""
        metrics: MetricRecord | None = super().aggregate_evaluate(  # type: ignore[misc]
            server_round, _without_sums(list(replies))
        )
        return metrics

    def summary(self) -> None:
        """Log what is bounded, and the strategy's own settings."""
        LOG.log(INFO, "\t├──> Bounded: %s", self._bounds)
        super().summary()  # type: ignore[misc]

    def _running(self) -> _Run:
        if self._run is None:
            raise UsageError(
                "[wrong-order] a strategy with BoundedGroupLossMixin runs by its own "
                "`start`: put the mixin before the outermost class, also before a "
                "wrapper"
            )
        return self._run

    @property
    def _inner(self) -> Any:
        """The strategy itself, also inside one of Flower's wrappers."""
        return getattr(self, "strategy", self)

    @property
    def _keys(self) -> tuple[str, str]:
        arrays = getattr(self._inner, "arrayrecord_key", "arrays")
        return arrays, getattr(self._inner, "configrecord_key", "config")

    def _heard(self, run: _Run, replies: Sequence[Message], number: int) -> None:
        """Read the loss sums that came with training, if clients send them there."""
        good = [reply for reply in replies if not reply.has_error()]
        records = [record for reply in good if (record := record_of(reply)) is not None]
        run.tells = bool(good) and len(records) == len(good)
        if not run.tells:
            return
        known = run.at.problem.silo_counts
        counts, losses = np.zeros(known.shape), np.zeros(known.shape)
        asked = {m.metadata.message_id: m.metadata.dst_node_id for m in run.messages}
        for reply, record in zip(good, records, strict=True):
            about = reply.metadata
            node = asked.get(about.reply_to_message_id, about.src_node_id)
            k = run.place(str(record.get("name")), node)
            with _naming(run.engine.silo_names[k]):
                losses[k] = losses_of(self.order, record, known[k])
            counts[k] = known[k]
        self._step(run, counts, losses, number)

    def _step(
        self, run: _Run, counts: FloatArray, losses: FloatArray, number: int
    ) -> None:
        run.at.step(counts, losses, number, callbacks=self.callbacks)

    @property
    def _bounds(self) -> Mapping[str, object]:
        return self.bounding.constraint.describe()

    def _described(self) -> dict[str, Any]:
        flowers = (b for b in type(self).__mro__ if b.__module__.startswith("flwr."))
        own = next(flowers).__name__
        if self._inner is not self:
            own = f"{own}({type(self._inner).__name__})"
        return {"kind": "weights-protocol", "strategy": own}

    def _notes(self) -> list[str]:
        noisy = any("Differential" in b.__name__ for b in type(self).__mro__)
        return [NOISE] if noisy else []


class FairFedAvg(BoundedGroupLossMixin, FedAvg):  # type: ignore[misc]
    """FedAvg under bounds."""


@dataclass
class _Run:
    """A run, and which node is which silo.

    `tells`: whether clients send loss sums with training; None before the first round.
    """

    engine: Reports
    at: ExternalTraining
    models: Models
    nodes: dict[int, int]
    messages: list[Message] = field(default_factory=list)
    tells: bool | None = None

    def place(self, name: str, node: int) -> int:
        """Return which silo a client is; a node that started again has a new id."""
        names = self.engine.silo_names
        if name in names:
            self.nodes[node] = names.index(name)
        if node not in self.nodes:
            raise FederationError(
                f"[late-node] {name or f'node {node}'} came after the first round, "
                f"and was not counted: there are {', '.join(names)}. Say who must be "
                "there before it starts (`silos=`)"
            )
        return self.nodes[node]


def _without_sums(replies: list[Message]) -> list[Message]:
    """Take our record out of replies, which a strategy would add up."""
    for reply in replies:
        if reply.has_content() and KEY in reply.content:
            del reply.content[KEY]
    return replies


def _with_order(message: Message, order: Order, key: str) -> Message:
    """Return a message of the strategy's with an order in its config.

    Strategies share one record among all messages, so it is not written into.
    """
    content, about = RecordDict(dict(message.content)), message.metadata
    configs = list(content.config_records)
    at = key if key in configs or not configs else configs[0]
    own = dict(content.config_records.get(at, {}))
    content[at] = ConfigRecord({**own, KEY: order.text})
    return Message(
        content,
        about.dst_node_id,
        about.message_type,
        ttl=about.ttl,
        group_id=about.group_id,
    )
