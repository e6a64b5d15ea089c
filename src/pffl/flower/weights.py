"""The weights protocol, at a client: a weight for each example, sums for the server.

A message of a strategy with `BoundedGroupLossMixin` has the text "pffl" in its config:
what an example of each group and label weighs, which rows are meant, and what to add up
(`Order`). In `train` the client multiplies its losses by `group_weights`; in `evaluate`
it sends back `GroupSums` of the model that came, in a record "pffl". If `train` does so
too, of the model that came and before training it, a message a round is saved. All
else stays as it was, and without such a message both do nothing: the same client works
under any strategy.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from flwr.app import ConfigRecord, Context, Message

from pffl.constraints.base import EVERY_SILO, Cells
from pffl.data.schema import Attribute, Schema, withheld
from pffl.errors import DataError, Malformed, UsageError
from pffl.models.reported import CLASSES, Reported
from pffl.queries import Evaluate, EvaluateTotal, Task, View
from pffl.queries.evaluate import COLUMNS
from pffl.records import Record, read
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")
KEY = "pffl"
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
    than the floor are withheld, as at a site of `pffl.flower.client_app`; no other
    rule of a site is kept here: the server is trusted with the weights that it sends.

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
        "atoms": (dims["atoms"], len(COLUMNS)),
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
