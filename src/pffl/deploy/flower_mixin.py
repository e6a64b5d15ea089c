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

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache, partial
from logging import INFO, getLogger
from typing import Any, TypeVar

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

from pffl._report.page import write_report
from pffl.callbacks import Callback
from pffl.constraints import EVERY_SILO, Cells, Constraint
from pffl.data.checks import listing
from pffl.data.encoding import TableEncoding
from pffl.data.federation import Federation
from pffl.data.schema import Attribute, Schema, withheld
from pffl.errors import DataError, FederationError, Malformed, Refused, UsageError
from pffl.evidence.looks import Looks
from pffl.external import (
    ExternalSettings,
    ExternalTraining,
    Groups,
    Iterate,
    external_schema,
)
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
from pffl.queries.evaluate import COLUMNS
from pffl.queries.validation import Gate, Policy
from pffl.records import Record, read
from pffl.runs import lock
from pffl.solution import Solution
from pffl.typing import FloatArray, IntArray

T = TypeVar("T")
A = TypeVar("A", bound=Total)
KEY = "pffl"
LOG = getLogger("flwr")
VERSION = 1
FLOOR = 10  # rows of a group and label, for a client to tell of them
NAMES = ("silo", "site", "name")  # of a client, in its node's configuration
PARTITION = "partition-id"


@dataclass(frozen=True)
class Order(Record):
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
    cells
        The cells of this client: for each, which (group, label)s belong to it.
    counts
        Whether only rows are to be counted.
    loss_bound, trials, bets
        As for `Evaluate`.
    """

    attributes: list[tuple[str, list[str]]]
    labels: list[str]
    split: str
    weights: list[list[float]]
    cells: list[list[int]] = field(default_factory=list)
    counts: bool = False
    loss_bound: float | None = None
    trials: list[float] = field(default_factory=list)
    bets: list[list[float]] = field(default_factory=list)
    version: int = VERSION

    @property
    def text(self) -> str:
        """The order as it is sent."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @cached_property
    def schema(self) -> Schema:
        """Names of groups and labels; there are no inputs."""
        named = tuple(Attribute(n, tuple(values)) for n, values in self.attributes)
        return Schema((), named, tuple(self.labels))

    def query(self) -> Evaluate:
        """Return the query, as the one silo that there is sees it."""
        schema = self.schema
        bare = Reported(loss=CLASSES if schema.labels else "squared")
        member = np.array(self.cells, dtype=bool).reshape(-1, schema.n_atoms)
        names, zero = tuple(map(str, range(len(member)))), np.zeros(len(member))
        cells = Cells(names, zero, member, np.full(len(member), EVERY_SILO))
        task = Task(bare.bind(schema, bare.inputs), cells, np.ones(1))
        bets = np.array(self.bets, np.float64).reshape(len(member), -1)
        M = np.inf if self.loss_bound is None else self.loss_bound
        trials = np.array(self.trials, np.float64)
        return Evaluate(task, np.zeros(0), self.split, M, trials=trials, bets=bets)


def order_of(message: Message | ConfigRecord) -> Order | None:
    """Return what a message asks; None where it is of another strategy."""
    if isinstance(message, ConfigRecord):
        configs = [message]
    elif message.has_content():
        configs = list(message.content.config_records.values())
    else:
        configs = []
    for record in configs:
        if isinstance(text := record.get(KEY), str):
            return _read(text)
    return None


@lru_cache(maxsize=8)
def _read(text: str) -> Order:
    try:
        plain = json.loads(text)
    except ValueError as error:
        raise Malformed(f"the message's '{KEY}' cannot be read: {error}") from None
    version = plain.get("version") if isinstance(plain, dict) else None
    if version != VERSION:
        raise Malformed(
            f"[other-version] the server speaks version {version} of the weights "
            f"protocol, and this client {VERSION}: use the same pffl on both"
        )
    return read(Order, plain, source=f"the message's '{KEY}'", error=Malformed)


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
    if order is None:
        found = np.ones(len(groups))
    else:
        group, label = _codes(order, groups, labels)
        found = np.array(order.weights, np.float64)[group, label]
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
        self._order = order_of(msg)
        self._floor = floor
        self._name = name_of(context)
        self._parts: list[tuple[FloatArray, IntArray, FloatArray, FloatArray]] = []

    @property
    def split(self) -> str:
        """The rows that the server asks about; "test" under any other strategy."""
        return "test" if self._order is None else self._order.split

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
        order, loss = self._order, _array(losses).reshape(-1)
        mean = float(loss.mean()) if len(loss) else 0.0
        if order is None:
            return mean
        group, label = _codes(order, groups, labels)
        if len(loss) != len(group):
            raise DataError(
                "[wrong-length] "
                f"{len(loss)} losses for {len(group)} examples: give one for each "
                '(reduction="none")'
            )
        if (loss < 0).any():
            raise DataError(
                "[negative-loss] a loss is negative: cross-entropy and squares are not"
            )
        atom = group * order.schema.n_labels + label
        y, guess = label.astype(np.float64), np.zeros(len(loss))
        if not order.labels:
            if labels is None:
                raise UsageError(
                    "[needs-labels] GroupSums: a numeric target needs `labels` as well"
                )
            y = _array(labels).reshape(-1)
        elif predicted is not None:
            guess = _array(predicted).reshape(-1)
        elif len(order.labels) == 2:
            guess = np.where(loss < np.log(2.0), y, 1.0 - y)
        else:
            raise UsageError(
                "[needs-predictions] GroupSums: of more than two classes give "
                "`predicted`, too: a loss does not tell which one it was"
            )
        self._parts.append((loss, atom, y, guess))
        return mean

    def record(self) -> ConfigRecord:
        """Return what to send back, as the record "pffl" of the reply."""
        if self._order is None:
            return ConfigRecord()
        order = self._order
        columns = zip(*self._parts, strict=True) if self._parts else [()] * 4
        kinds = (np.float64, np.int64, np.float64, np.float64)
        loss, atom, y, guess = (
            np.concatenate([np.zeros(0, kind), *part])
            for part, kind in zip(columns, kinds, strict=True)
        )
        counts = np.bincount(atom, minlength=order.schema.n_atoms)
        hidden = withheld(counts, counts < self._floor, self._floor)
        kept = ~hidden[atom]
        view = View(0, np.zeros((int(kept.sum()), 0)), y[kept], atom[kept])
        told: dict[str, Any] = {
            "version": VERSION,
            "name": self._name or "",
            "withheld": int(hidden.sum()),
            "counts": np.where(hidden, 0, counts).tolist(),
        }
        if not order.labels:
            powers = np.stack([view.y, view.y**2], axis=1)
            told["target"] = _flat(view.atom_sums(powers, len(counts)))
        if not order.counts:
            told |= _sums(order, view, loss[kept], guess[kept])
        return ConfigRecord(told)


def _sums(
    order: Order, view: View, losses: FloatArray, guess: FloatArray
) -> dict[str, list[float]]:
    """Return the fields of the query's answer that tell something of their own."""
    if not order.cells:  # a round of training needs no more
        atoms = order.schema.n_atoms
        return {"losses": np.bincount(view.atom, losses, atoms).tolist()}
    query = order.query()
    bounded = partial(query.task.model.bounded, losses)
    classes = guess if order.labels else None
    total = query.total(view, losses, classes, bounded)
    return {name: _flat(getattr(total, name)) for name in FIELDS}


FIELDS = ("atoms", "trials", "people", "below")


def total_of(
    query: Evaluate, told: ConfigRecord, index: int, share: float
) -> EvaluateTotal:
    """Return what a client told as an answer to the query that it was asked."""
    dims = query.dims
    shapes = {
        "atoms": (dims["strata"], len(COLUMNS)),
        "trials": (dims["z"], dims["trials"]),
        "people": (dims["z"], 3),
        "below": (dims["z"], dims["bets"]),
    }
    parts = {name: numbers(told, name, shape) for name, shape in shapes.items()}
    atoms, here = parts["atoms"], query.task.cells.of_silo(index)
    column = {name: atoms[:, COLUMNS.index(name)].sum() for name in COLUMNS}
    rows = column["weight"]
    mean = {n: column[n] / rows if rows else 0.0 for n in ("loss", "bounded_loss")}
    share = share if rows else 0.0
    unweighted = [np.zeros((dims["z"], *empty)) for empty in ((0,), (0, 0), (0,))]
    sums = [*(parts[name] for name in FIELDS[1:]), *unweighted]
    return EvaluateTotal(
        atoms,
        here @ atoms,
        share * mean["loss"],
        share * mean["bounded_loss"],
        share,
        *sums,
    )


def numbers(told: ConfigRecord, name: str, shape: tuple[int, ...]) -> FloatArray:
    """Return a list of numbers that a client told; refuse any other."""
    try:
        found = np.array(told[name], dtype=np.float64).reshape(shape)
    except (KeyError, TypeError, ValueError):
        raise Malformed(f"its sums have no '{name}' of the shape {shape}") from None
    return found


def name_of(context: Context | None) -> str | None:
    """Return who a client is, by its node's configuration; None if that is silent."""
    config = {} if context is None else context.node_config
    for key in NAMES:
        if isinstance(found := config.get(key), str) and found:
            return found
    return None if PARTITION not in config else f"partition {config[PARTITION]}"


def _codes(order: Order, groups: Any, labels: Any) -> tuple[IntArray, IntArray]:
    """Return codes of groups and labels; refuse what the strategy does not name."""
    schema = order.schema
    group = _coded(groups, schema.groups, "group")
    if not order.labels:
        return group, np.zeros(len(group), np.int64)
    if labels is None:
        raise UsageError(
            "[needs-labels] the strategy tells labels apart: give `labels`, too"
        )
    label = _coded(labels, tuple(order.labels), "label")
    if len(label) != len(group):
        raise DataError(
            f"[wrong-length] {len(group)} groups and {len(label)} labels in one batch"
        )
    return group, label


def _coded(given: Any, names: Sequence[str], what: str) -> IntArray:
    values = _array(given, numeric=False).reshape(-1)
    if values.dtype.kind in "OUS":
        places = {name: place for place, name in enumerate(names)}
        found = [places.get(str(value), -1) for value in values.tolist()]
        codes = np.array(found, np.int64).reshape(-1)
    else:
        codes = values.astype(np.int64)
        if not np.array_equal(codes, values):
            raise DataError(f"[not-numbers] a {what} is not a whole number")
    if len(codes) and not (codes.min() >= 0 and codes.max() < len(names)):
        raise DataError(
            f"[unknown-group] a {what} that the strategy does not name: it names "
            f"{', '.join(names)}, in this order; give these names, or codes from 0 to "
            f"{len(names) - 1}"
        )
    return codes


def _is_tensor(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "torch"


def _array(value: Any, *, numeric: bool = True) -> Any:
    """Return anything array-like in NumPy; tensors from wherever they are."""
    if _is_tensor(value):
        value = (
            value.detach().cpu().double().numpy() if numeric else value.cpu().numpy()
        )
    return np.asarray(value, np.float64) if numeric else np.asarray(value)


def _flat(values: FloatArray) -> list[float]:
    found: list[float] = values.reshape(-1).tolist()
    return found


SPLITS = ("train", "test")
PAUSE = 1.0  # seconds between two looks for nodes
NO_EVALUATE = "it has no `@app.evaluate()`, by which the model is measured"
NO_RECORD = (
    'its reply has no record "pffl": make `sums = GroupSums(msg, context)`, call '
    "`sums.add(losses, groups, labels)` for every batch, and put "
    '`"pffl": sums.record()` into the reply'
)


@dataclass(frozen=True)
class Client:
    """Who answered: the name that it gave itself, and its node."""

    name: str
    node: int

    @classmethod
    def of(cls, told: ConfigRecord, node: int) -> Client:
        """Return the client that told something."""
        name = told.get("name")
        return cls(name if isinstance(name, str) and name else f"node {node}", node)


@dataclass(frozen=True)
class Keys:
    """Where a strategy puts its records in a message."""

    arrays: str = "arrays"
    config: str = "config"


class Reports:
    """Ask clients by `evaluate` messages.

    Parameters
    ----------
    grid
        What Flower gives to a ServerApp.
    order
        Names of groups and labels; what it asks is replaced.
    arrays
        The model that the first census is asked with.
    config
        What the user sends with evaluations.
    keys
        Names of the records in a message.
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
        arrays: ArrayRecord,
        *,
        config: ConfigRecord | None = None,
        keys: Keys | None = None,
        seconds: float = 3600.0,
        name: str = "data",
    ) -> None:
        self._grid, self._order, self._first = grid, order, arrays
        self._config = dict(config or {})
        self._keys, self._seconds = keys or Keys(), seconds
        self.name, self.schema = name, order.schema
        self.encoding = TableEncoding.of_numbers(self.schema)
        self.gate = Gate(Policy(), self.schema)
        self.clients: tuple[Client, ...] = ()
        self.withheld = 0
        self.messages = 0
        self._census: dict[str, CensusTotal] = {}

    @property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the clients, in order."""
        return tuple(client.name for client in self.clients)

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits in which somebody has rows."""
        found = {split: self.ask(Census(self.schema, split)) for split in SPLITS}
        return tuple(s for s, census in found.items() if census.rows.any())

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the clients, for the result."""
        told: tuple[str, ...] = (UNGUARDED,)
        if self.withheld:
            told += (
                f"clients withheld the sums of {self.withheld} of their groups and "
                "labels, which have too few rows: these rows are trained on, and "
                "nothing here speaks of them",
            )
        return told

    def meet(self, expected: Sequence[str] | int | None) -> None:
        """Wait for clients, and find out who they are; refuse those who cannot speak.

        Parameters
        ----------
        expected
            Their names, in order; or how many there are at least.
        """
        many = expected if isinstance(expected, int) else len(expected or ())
        nodes = self._nodes(max(1, many))
        told = self._told(nodes, replace(self._order, counts=True, split="train"))
        found = sorted(
            (Client.of(record, node) for node, record in told.items()),
            key=lambda client: _natural(client.name),
        )
        names = [client.name for client in found]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FederationError(
                "[repeated-name] "
                f"several nodes call themselves {listing(twice)}: give each a name of "
                "its own, --node-config \"silo='…'\""
            )
        if expected is not None and not isinstance(expected, int):
            absent = [name for name in expected if name not in names]
            if absent:
                raise FederationError(
                    f"[sites-missing] {listing(absent)} did not answer; there are "
                    f"{', '.join(names)}"
                )
            known = {client.name: client for client in found}
            others = [name for name in names if name not in expected]
            found = [known[name] for name in [*expected, *others]]
        self.clients = tuple(found)
        self._take_census("train", told)

    def ask(self, query: Query[A]) -> A:
        """Ask every client, and add the answers."""
        answer: Any
        if isinstance(query, Census):
            answer = self._counted(query.split)
        elif isinstance(query, Evaluate):
            answer = self._evaluated(query)
        else:
            raise FederationError(
                "[unknown-query] clients of the weights protocol do not answer "
                f"'{query.kind}'"
            )
        return answer  # type: ignore[no-any-return]

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask one after the other: a message brings one model and one split."""
        return [self.ask(query) for query in queries]

    def losses(self, arrays: ArrayRecord) -> FloatArray:
        """Return loss sums of the training rows, by client and atom, shape (K, atoms).

        Rows are those of the census: it is compared.
        """
        order = replace(self._order, split="train")
        told = self._told(self._known_nodes(), order, arrays)
        census, out = self._counted("train"), []
        for k, record in enumerate(self._in_order(told)):
            with self._naming(k):
                out.append(losses_of(self.schema, record, census.counts[k]))
        return np.array(out)

    def _counted(self, split: str) -> CensusTotal:
        if split not in self._census:
            order = replace(self._order, counts=True, split=split)
            self._take_census(split, self._told(self._known_nodes(), order))
        return self._census[split]

    def _take_census(self, split: str, told: Mapping[int, ConfigRecord]) -> None:
        parts = []
        for index, record in enumerate(self._in_order(told)):
            with self._naming(index):
                total, hidden = census_of(self.schema, record)
                parts.append(self.gate.census(index, split, total, hidden))
            self.withheld += hidden
        self._census[split] = add_all(parts)

    def _evaluated(self, query: Evaluate) -> Any:
        model, cells = query.task.model, query.task.cells
        if not isinstance(model, Reported):
            raise FederationError(
                "[unknown-query] clients evaluate the model of their own app only"
            )
        arrays = ArrayRecord(
            {
                n: Array(np.ascontiguousarray(a))
                for n, a in model.arrays(query.w).items()
            }
        )
        self._counted(query.split)
        M = query.loss_bound
        orders = [
            replace(
                self._order,
                split=query.split,
                cells=cells.of_silo(k).astype(int).tolist(),
                loss_bound=float(M) if np.isfinite(M) else None,
                trials=query.trials.tolist(),
                bets=query.bets.tolist(),
            )
            for k in range(len(self.clients))
        ]
        told = self._told(self._known_nodes(), orders, arrays)
        parts = []
        for k, record in enumerate(self._in_order(told)):
            with self._naming(k):
                share = float(query.task.shares[k])
                total = total_of(query, record, k, share)
                parts.append(self.gate.report(query, k, total))
        return query.keeping(add_all(parts), parts)

    def _known_nodes(self) -> list[int]:
        """Return the nodes of the clients; those that started again have new ones."""
        there = self._nodes(len(self.clients))
        if all(client.node in there for client in self.clients):
            return [client.node for client in self.clients]
        known = self.silo_names
        told = self._told(there, replace(self._order, counts=True, split="train"))
        found = {Client.of(record, n).name: n for n, record in told.items()}
        absent = [name for name in known if name not in found]
        if absent:
            raise FederationError(
                f"[sites-missing] {listing(absent)} did not answer when the model was "
                "measured: what is said of it would not speak of everybody it was "
                "trained on"
            )
        self.clients = tuple(Client(name, found[name]) for name in known)
        return [client.node for client in self.clients]

    def _nodes(self, many: int) -> list[int]:
        """Wait until so many nodes are there."""
        deadline, told = time.monotonic() + self._seconds, False
        while len(nodes := sorted(self._grid.get_node_ids())) < many:
            if time.monotonic() >= deadline:
                raise FederationError(
                    f"[sites-missing] {len(nodes)} of {many} nodes are there after "
                    f"{self._seconds:g} s: start the others, or raise `timeout`"
                )
            if not told:
                LOG.log(
                    INFO, "Waiting for nodes: %d of %d are there.", len(nodes), many
                )
            told = True
            time.sleep(min(PAUSE, self._seconds))
        return nodes

    def _told(
        self,
        nodes: Sequence[int],
        orders: Order | Sequence[Order],
        arrays: ArrayRecord | None = None,
    ) -> dict[int, ConfigRecord]:
        """Send an order to each node, and return what it told, by node."""
        each = [orders] * len(nodes) if isinstance(orders, Order) else orders
        model = self._first if arrays is None else arrays
        messages = [
            Message(
                RecordDict(
                    {
                        self._keys.arrays: model,
                        self._keys.config: ConfigRecord(
                            {**self._config, KEY: order.text}
                        ),
                    }
                ),
                node,
                MessageType.EVALUATE,
            )
            for node, order in zip(nodes, each, strict=True)
        ]
        self.messages += len(messages)
        replies = list(self._grid.send_and_receive(messages, timeout=self._seconds))
        sent = {m.metadata.message_id: m.metadata.dst_node_id for m in messages}
        return told_by(replies, sent, "evaluate")

    def _in_order(self, told: Mapping[int, ConfigRecord]) -> list[ConfigRecord]:
        return [told[client.node] for client in self.clients]

    def _naming(self, index: int) -> Naming:
        return Naming(self.clients[index].name)


UNGUARDED = (
    "sites unguarded: weights protocol. Clients run code of their own and answer "
    "whatever weights and models the server sends; of a site's rules only the floor "
    "of small groups is kept, and nothing counts what is let out"
)


class Naming:
    """Names the client whose answer is refused, and what to look at."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, Refused | Malformed):
            hint = ""
            if "census" in str(error):
                hint = (
                    ". Every training row must be added once in each call: let "
                    "`@app.evaluate()` take `sums.pick(trainloader, testloader)`, and "
                    "look for a loader that drops its last batch, or draws rows"
                )
            raise FederationError(
                f"[node-failed] {self.name}: {error}{hint}"
            ) from error


def told_by(
    replies: Iterable[Message], sent: Mapping[str, int], asked: str
) -> dict[int, ConfigRecord]:
    """Return what each node told; or name all that did not, with what they lack."""
    told: dict[int, ConfigRecord] = {}
    lacking: dict[int, str] = {}
    for reply in replies:
        # The sender of an error may be the SuperLink: the message tells whom it asked.
        node = sent.get(reply.metadata.reply_to_message_id, reply.metadata.src_node_id)
        if reply.has_error():
            lacking[node] = _failed(reply.error.reason or "", asked)
        elif (record := record_of(reply)) is None:
            lacking[node] = NO_RECORD
        else:
            told[node] = record
    lacking |= {
        node: "it did not answer in time"
        for node in sent.values()
        if node not in told and node not in lacking
    }
    if lacking:
        by_reason: dict[str, list[int]] = {}
        for node, reason in sorted(lacking.items()):
            by_reason.setdefault(reason, []).append(node)
        parts = [
            f"node{'s' * (len(nodes) > 1)} {', '.join(map(str, nodes))}: {reason}"
            for reason, nodes in by_reason.items()
        ]
        raise FederationError(
            f"[node-failed] {len(lacking)} of {len(sent)} nodes do not speak the "
            f"weights protocol or failed. {'. '.join(parts)}."
        )
    return told


def record_of(reply: Message) -> ConfigRecord | None:
    """Return what a client told in a reply; None where it does not speak to us."""
    found = reply.content.get(KEY)
    if not isinstance(found, ConfigRecord) or found.get("version") != VERSION:
        return None
    return found


def _failed(reason: str, asked: str) -> str:
    """Say in our words what Flower says of a node that failed."""
    plain = " ".join(reason.split())
    if f"No {asked} function registered" in plain:
        return NO_EVALUATE
    return f"it failed with: {plain[:300] or 'no reason was given'}"


def losses_of(schema: Schema, told: ConfigRecord, known: IntArray) -> FloatArray:
    """Return a client's loss sums by atom; refuse those of other rows."""
    counts = numbers(told, "counts", (schema.n_atoms,))
    if not np.array_equal(counts, known):
        raise Refused(
            f"[wrong-count] {int(counts.sum()):,} rows were added, and "
            f"{int(known.sum()):,} at the census of the training rows"
        )
    return numbers(told, "losses", (schema.n_atoms,))


def census_of(schema: Schema, told: ConfigRecord) -> tuple[CensusTotal, int]:
    """Return a client's census, and how many groups and labels it withholds."""
    counts = numbers(told, "counts", (schema.n_atoms,))
    hidden = told.get("withheld")
    if not isinstance(hidden, int) or not np.isfinite(counts).all():
        raise Malformed("its counts cannot be read")
    whole: FloatArray = np.rint(counts)
    many = 0 if schema.labels else 2
    targets = np.zeros((schema.n_atoms, many))
    if many:
        targets = numbers(told, "target", (schema.n_atoms, many))
    total = CensusTotal(
        np.array([int(whole.sum())]),
        whole[None].astype(np.int64),
        np.array([counts.sum()]),
        counts[None],
        targets.sum(axis=0)[None],
        targets[None],
        np.zeros(0),
        np.zeros(0),
        np.zeros(1, np.int64),
    )
    return total, hidden


def _natural(name: str) -> tuple[str, int, str]:
    """Order 'partition 10' after 'partition 2'."""
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0), name


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
        self.order = Order(attributes, list(schema.labels), "train", [])
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
        own = self._keys()
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
        LOG.log(INFO, "Bounds: %s, for %s", self._bounds, _who(engine))
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
        self.solution = run.at.conclude(
            engine, self._described(), messages, self._notes()
        )
        result.arrays = _record(run.at.model.arrays(self.solution.w))
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
        at = ExternalTraining.begin(self.bounding, engine, model, first, rounds, begun)
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
        run.at.step(counts, losses, number, callbacks=self.callbacks)

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
    at: ExternalTraining
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
