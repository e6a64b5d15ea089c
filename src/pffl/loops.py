"""`solve_loaders`: a torch module under bounds, with its own loaders and optimiser.

For what a `Federation` of flat rows cannot hold: a Dataset with augmentation, inputs
that are dictionaries (Hugging Face), any optimiser, frozen layers, mixed precision. The
silos are in this process, one loader each; a round is FedAvg: every silo trains a copy
of the model for some epochs on weighted losses, and the copies are averaged by rows.
λ, the model that is kept and what is said of it are as for a Flower app
(`pffl.external`).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from pffl.admission import Gate, Policy
from pffl.callbacks import Callback
from pffl.constraints.base import Constraint
from pffl.data.encoding import TableEncoding
from pffl.data.federation import Federation
from pffl.data.schema import Attribute, Schema
from pffl.errors import DataError, MissingExtraError, UsageError
from pffl.external import Bounding, Groups, Kept, Outside, named
from pffl.models.network import LOSSES, Network, numbers, seeded
from pffl.models.reported import CLASSES, NUMBERS, Reported
from pffl.prepare import Options
from pffl.queries import Census, CensusTotal, Evaluate, Query, Total, View, add_all
from pffl.solution import Solution
from pffl.typing import FloatArray, IntArray

try:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.utils.data import DataLoader, Dataset
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("torch", "solve_loaders") from error

T = TypeVar("T", bound=Total)
Rows: TypeAlias = "DataLoader[Any] | Dataset[Any]"
Split: TypeAlias = Callable[[Any], tuple[Any, Any, Any]]
SPLITS = ("train", "test", "validation")
AT_ONCE = 256  # rows of a Dataset that are evaluated at a time
STEP = 32  # rows of a Dataset in a step of training
LABELS = ("label", "labels", "y", "target")
GROUPS = ("group", "groups", "sensitive_features")


def solve_loaders(
    network: Network | nn.Module,
    silos: Mapping[str, Rows | tuple[Rows, ...]],
    constraint: Constraint,
    *,
    groups: Groups,
    labels: Sequence[str] | None,
    optimizer: Callable[[nn.Module], Optimizer] | None = None,
    rounds: int = 20,
    local_epochs: int = 1,
    split: Split | None = None,
    autocast: torch.dtype | None = None,
    multiplier_bound: float = 10.0,
    risk_weight: float = 1.0,
    dual_step_size: float | None = None,
    iterate: Kept = "best",
    options: Options | None = None,
    seed: int = 0,
    name: str = "data",
    callbacks: Sequence[Callback] = (),
) -> Solution:
    """Train a torch module over silos of Datasets or DataLoaders, under bounds.

    Parameters
    ----------
    network
        A `Network` (its module, loss and device are taken) or a module. It is changed
        in nothing; ``solution.model.arrays(solution.w)`` is the trained state.
        Parameters that need no gradient stay as they are.
    silos
        From a silo's name to its training rows, to training and test rows, or to these
        and validation rows: a DataLoader, or a Dataset, which is then taken in batches.
        Where all have validation rows, their losses move the multipliers: a network
        fits its own rows better than others.
    constraint
        What is promised to whom.
    groups, labels
        Names in the order of the codes; of several attributes a mapping to their
        values. None as labels: a numeric target.
    optimizer
        Makes one for a copy of the module in every round and silo: default, Adam over
        what needs a gradient.
    rounds, local_epochs
        Rounds, and epochs of each silo in a round.
    split
        From a batch to (inputs, labels, groups). Default: a tuple of three, or a
        mapping with ``label`` (``labels``, ``y``, ``target``) and ``group``; all else
        of it goes to the module by name. Inputs that are a mapping are passed as
        keywords, others as they are; outputs may have ``.logits``.
    autocast
        A type of mixed precision, such as ``torch.bfloat16``; losses are measured
        without.
    multiplier_bound, risk_weight, dual_step_size, iterate, options
        As for `pffl.deploy.BoundedGroupLossMixin`.
    seed
        Of the order of rows and of what training draws.
    name, callbacks
        What the data are called; who is told of rounds.

    Returns
    -------
    Solution
        With three verdicts, certificate and history.

    Raises
    ------
    UsageError, DataError
        Where settings, or batches, are not what they should be.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> import pffl
    >>> x = torch.tensor([[0.0], [1.0]]).repeat(40, 1)
    >>> y, group = x[:, 0].long(), torch.arange(80) % 4 // 2
    >>> solution = pffl.solve_loaders(
    ...     torch.nn.Linear(1, 2),
    ...     {"north": TensorDataset(x, y, group)},
    ...     pffl.BoundedGroupLoss(0.5),
    ...     groups=["f", "m"],
    ...     labels=["no", "yes"],
    ...     optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=1.0),
    ...     rounds=6,
    ... )
    >>> bool(solution.cells["train_loss"].max() < 0.5)
    True
    """
    owner = "solve_loaders"
    prices = (multiplier_bound, risk_weight, dual_step_size)
    settings = Bounding(constraint, *prices, iterate, options or Options())
    bounding = settings.checked(owner)
    attributes, classes = named(groups, labels, owner)
    listed = tuple(Attribute(n, tuple(values)) for n, values in attributes)
    schema = Schema((), listed, tuple(classes))
    own = network if isinstance(network, Network) else _network(network, schema)
    begun = time.monotonic()
    engine = Loops(own, schema, _loaders(silos), split or taken_apart, name)
    trainer = LoopTraining(engine, optimizer or _adam, local_epochs, autocast, seed)
    module = copy.deepcopy(own.module).to(own.torch_device)
    first = engine.vector(module)
    run = Outside.begin(bounding, engine, engine.model, first, rounds, begun)
    checks = "validation" in engine.splits
    for number in range(1, rounds + 1):
        run.sent = engine.vector(module)
        counts = run.problem.silo_counts.astype(np.float64)
        before = len(run.history)
        others = engine.sums(run.sent, "validation") if checks else None
        run.step(counts, engine.sums(run.sent, "train")[1], number, others)
        for row in run.history[before:]:
            for callback in callbacks:
                callback.after_round(row)
        weights, _ = run.weights()
        w = trainer.round(run.sent, weights, run.problem.masses, number)
        run.reach(w, number)
        if run.diverged or not np.isfinite(w).all():
            run.diverged = True
            break
        engine.load(module, w)
    for callback in callbacks:
        callback.ended()
    described = {"kind": "torch-loop", "local_epochs": local_epochs}
    solution = run.concluded(engine, described, len(run.history))
    for callback in callbacks:
        callback.solved(solution)
    return solution


def taken_apart(batch: Any) -> tuple[Any, Any, Any]:
    """Return inputs, labels and groups of a batch of one of the usual forms."""
    if isinstance(batch, Mapping):
        label = next((key for key in LABELS if key in batch), None)
        group = next((key for key in GROUPS if key in batch), None)
        if label is not None and group is not None:
            rest = {k: v for k, v in batch.items() if k not in (label, group)}
            inputs = next(iter(rest.values())) if list(rest) == ["x"] else rest
            return inputs, batch[label], batch[group]
    elif isinstance(batch, Sequence) and len(batch) == 3:
        return batch[0], batch[1], batch[2]
    raise DataError(
        "[bad-batch] a batch must be (inputs, labels, groups), or a mapping with "
        "'label' and 'group'; `split=` turns any other into the three"
    )


def _network(module: nn.Module, schema: Schema) -> Network:
    """Return a module with the loss that its labels ask for."""
    return Network(module, "cross_entropy" if schema.labels else "squared")


def _adam(module: nn.Module) -> Optimizer:
    return torch.optim.Adam(p for p in module.parameters() if p.requires_grad)


def _loaders(
    silos: Mapping[str, Rows | tuple[Rows, ...]],
) -> dict[str, dict[str, Rows]]:
    if not silos:
        raise UsageError("[no-silos] solve_loaders: there are no silos")
    pairs = {
        name: rows if isinstance(rows, tuple) else (rows,)
        for name, rows in silos.items()
    }
    return {str(n): dict(zip(SPLITS, r, strict=False)) for n, r in pairs.items()}


def _moved(value: Any, device: torch.device) -> Any:
    """Return a batch, or a part of one, on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: _moved(one, device) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_moved(one, device) for one in value)
    return value


@dataclass(eq=False)
class Loops:
    """An engine over loaders in this process: answers `census` and `evaluate`."""

    network: Network
    schema: Schema
    rows: dict[str, dict[str, Rows]]
    split: Split
    name: str
    federation: Federation | None = None
    notes: tuple[str, ...] = ()
    partial: bool = False
    pooled: int = 0
    _counts: dict[tuple[int, str], IntArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        loss = LOSSES[self.network.loss]
        needed = loss.outputs_for(self.schema)
        self.encoding = TableEncoding.of_numbers(self.schema)
        self.device = self.network.torch_device
        self.module = copy.deepcopy(self.network.module).to(self.device)
        state = self.module.state_dict()
        arrays = {n: _plain(t) for n, t in state.items()}
        kind = CLASSES if self.schema.labels else NUMBERS
        self.model = Reported.of(arrays, kind).bind(
            self.schema, self.network.inputs.identity(0)
        )
        self._outputs, self._loss = needed, loss
        self.gate = Gate(Policy(), self.schema)

    @property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the silos, in order."""
        return tuple(self.rows)

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that every silo has."""
        return tuple(s for s in SPLITS if all(s in rows for rows in self.rows.values()))

    def ask(self, query: Query[T]) -> T:
        """Ask every silo, and add the answers."""
        answer: Any
        if isinstance(query, Census):
            parts = [self._census(query, k) for k in range(len(self.rows))]
            return add_all(parts)  # type: ignore[return-value]
        if not isinstance(query, Evaluate):
            raise UsageError(f"[unknown-query] loaders do not answer '{query.kind}'")
        self.load(self.module, query.w)
        totals = [self._evaluated(query, k) for k in range(len(self.rows))]
        answer = query.keeping(add_all(totals), totals)
        return answer

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask one after the other."""
        return [self.ask(query) for query in queries]

    def sums(self, w: FloatArray, split: str) -> tuple[FloatArray, FloatArray]:
        """Return rows, and sums of their losses, by silo and atom, (K, atoms) each."""
        self.load(self.module, w)
        counts, sums = [], []
        for k in range(len(self.rows)):
            view, losses, _ = self._measured(k, split)
            counts.append(view.atom_sums(np.ones_like(losses), self.schema.n_atoms))
            sums.append(view.atom_sums(losses, self.schema.n_atoms))
        return np.array(counts), np.array(sums)

    def batches(self, index: int, split: str, *, training: bool) -> Iterable[Any]:
        """Return the batches of a silo: its own loader's, or those of its Dataset."""
        rows = list(self.rows.values())[index][split]
        if isinstance(rows, DataLoader):
            return rows
        size = STEP if training else AT_ONCE
        return DataLoader(rows, batch_size=size, shuffle=training)

    def outputs(self, module: nn.Module, inputs: Any) -> Tensor:
        """Return a module's scores for inputs of any form, as the loss takes them."""
        given = _moved(inputs, self.device)
        found = module(**given) if isinstance(given, Mapping) else module(given)
        found = getattr(found, "logits", found)
        rows = len(found)
        self._loss.check_outputs(tuple(found.shape), rows, self._outputs)
        return self._loss.scores(found)

    def example_losses(self, scores: Tensor, labels: Any) -> Tensor:
        """Return the loss of each example."""
        y = torch.as_tensor(labels, device=self.device)
        kind = y.long() if self._loss.per_class else y.to(scores.dtype)
        return self._loss.of_scores(scores, kind, self.network.delta)

    def atoms(self, labels: Any, groups: Any) -> IntArray:
        """Return codes of (group, label); refuse those that have no name."""
        group = np.asarray(torch.as_tensor(groups).cpu()).astype(np.int64).reshape(-1)
        y = np.asarray(torch.as_tensor(labels).cpu()).astype(np.float64).reshape(-1)
        limits = [("group", group, len(self.schema.groups))]
        if self.schema.labels:
            limits.append(("label", y.astype(np.int64), len(self.schema.labels)))
        for what, codes, many in limits:
            if len(codes) and not (codes.min() >= 0 and codes.max() < many):
                raise DataError(
                    f"[unknown-group] a {what} has a code that is not from 0 to "
                    f"{many - 1}"
                )
        return self.schema.atoms(group, y)

    def vector(self, module: nn.Module) -> FloatArray:
        """Return a module's state as w."""
        return self.model.vector({n: _plain(t) for n, t in module.state_dict().items()})

    def load(self, module: nn.Module, w: FloatArray) -> None:
        """Give a module the state w."""
        state = module.state_dict()
        arrays = self.model.arrays(w)
        module.load_state_dict(
            {n: torch.as_tensor(a).to(state[n].dtype) for n, a in arrays.items()}
        )

    def _measured(
        self, index: int, split: str
    ) -> tuple[View, FloatArray, FloatArray | None]:
        """Return the rows of a silo, their losses and predicted classes."""
        self.module.eval()
        losses, atoms, targets, guesses = [], [], [], []
        for batch in self.batches(index, split, training=False):
            inputs, labels, groups = self.split(batch)
            with torch.inference_mode():
                scores = self.outputs(self.module, inputs).float()
                losses.append(numbers(self.example_losses(scores, labels)))
            atoms.append(self.atoms(labels, groups))
            targets.append(np.asarray(torch.as_tensor(labels).cpu(), np.float64))
            classes = self._loss.classes(scores)
            if classes is not None:
                guesses.append(numbers(classes))
        atom = np.concatenate([np.zeros(0, np.int64), *atoms])
        y = np.concatenate([np.zeros(0), *targets])
        known = self._counts.setdefault(
            (index, split), np.bincount(atom, minlength=self.schema.n_atoms)
        )
        if not np.array_equal(known, np.bincount(atom, minlength=len(known))):
            raise DataError(
                f"[changed-rows] {self.silo_names[index]}: its {split} rows are "
                "others than at first: a loader must give every row once (no "
                "drop_last, no sampler)"
            )
        view = View(index, np.zeros((len(atom), 0)), y, atom)
        guess = np.concatenate(guesses) if guesses else None
        return view, np.concatenate([np.zeros(0), *losses]), guess

    def _census(self, query: Census, index: int) -> CensusTotal:
        view, _, _ = self._measured(index, query.split)
        return self.gate.census(index, query.split, query.answer(view), 0)

    def _evaluated(self, query: Evaluate, index: int) -> Any:
        view, losses, classes = self._measured(index, query.split)
        counted = Census(self.schema, query.split)
        self.gate.census(index, query.split, counted.answer(view), 0)
        bounded = partial(self.model.bounded, losses)
        total = query.total(view, losses, classes, bounded)
        return self.gate.report(query, index, total)


@dataclass(frozen=True, eq=False)
class LoopTraining:
    """Trains copies of a module, one for each silo, and averages them by rows."""

    engine: Loops
    optimizer: Callable[[nn.Module], Optimizer]
    epochs: int
    autocast: torch.dtype | None
    seed: int

    def round(
        self, w: FloatArray, weights: FloatArray, masses: FloatArray, number: int
    ) -> FloatArray:
        """Return the mean of the silos' models after a round from w."""
        engine, total = self.engine, np.zeros_like(w)
        for k, mass in enumerate(masses.tolist()):
            module = copy.deepcopy(engine.network.module).to(engine.device)
            engine.load(module, w)
            with seeded((self.seed, number, k), engine.device):
                self.train(module, k, weights[k])
            total += mass * engine.vector(module)
        return np.asarray(total / masses.sum())

    def train(self, module: nn.Module, index: int, weights: FloatArray) -> None:
        """Train a module on one silo's rows; examples weigh as λ says."""
        engine, flat = self.engine, weights.reshape(-1)
        optimizer = self.optimizer(module)
        module.train()
        for _ in range(self.epochs):
            for batch in engine.batches(index, "train", training=True):
                inputs, labels, groups = engine.split(batch)
                atoms = engine.atoms(labels, groups)
                own = torch.tensor(flat[atoms], dtype=torch.float32)
                optimizer.zero_grad()
                with self._precision():
                    scores = engine.outputs(module, inputs)
                losses = engine.example_losses(scores.float(), labels)
                (losses * own.to(losses.device)).mean().backward()
                optimizer.step()

    def _precision(self) -> AbstractContextManager[Any]:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.engine.device.type, dtype=self.autocast)


def _plain(tensor: Tensor) -> Any:
    """Return a tensor in NumPy; bfloat16, which it has not, as float32."""
    here = tensor.detach().cpu()
    return (here.float() if here.dtype == torch.bfloat16 else here).numpy()
