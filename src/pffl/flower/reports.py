"""An engine over clients that speak the weights protocol: `census` and `evaluate`.

Both are asked by Flower's own `evaluate` messages, so that the user's function measures
the model with the user's code. What comes back is judged as the answers of sites are
(`wire.Gate`). A client that cannot answer is named, with what it lacks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from logging import INFO
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from pffl.data.checks import listing
from pffl.data.encoding import TableEncoding
from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.errors import FederationError, Malformed, Refused
from pffl.flower.weights import KEY, VERSION, Order, numbers, total_of
from pffl.models.reported import Reported
from pffl.queries import Census, CensusTotal, Evaluate, Query, Total, add_all
from pffl.typing import FloatArray, IntArray
from pffl.wire import Gate, Policy

T = TypeVar("T", bound=Total)
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
    partial = False
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

    def ask(self, query: Query[T]) -> T:
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
                total, hidden = census_of(self.schema, split, record, index)
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
                parts.append(self.gate.report(query, k, total).total)
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
                log(INFO, "Waiting for nodes: %d of %d are there.", len(nodes), many)
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


def census_of(
    schema: Schema, split: str, told: ConfigRecord, index: int
) -> tuple[CensusTotal, int]:
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
        np.array([index]),
        np.array([int(whole.sum())]),
        whole[None].astype(np.int64),
        np.array([counts.sum()]),
        counts[None],
        targets.sum(axis=0)[None],
        targets[None],
        np.zeros(0),
        np.zeros(0),
        np.zeros(1, np.int64),
        schema.hash,
    )
    return total, hidden


def _natural(name: str) -> tuple[str, int, str]:
    """Order 'partition 10' after 'partition 2'."""
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0), name
