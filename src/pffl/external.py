"""A model that other code trains, under bounds: a torch loop, or a user's Flower app.

The other code is given w and a weight for each example, and returns loss sums of the
model that was sent. `ExternalTraining` moves λ (`methods.ascent`), keeps the best model
and measures it at the end, after which it is judged as every other. `solve_loaders` is
FedAvg over torch loaders in this process on top of it.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

import numpy as np

from pffl._solve import noted, prepared, setting_of
from pffl.callbacks import Callback
from pffl.constraints import Constraint
from pffl.data.columns import TableEncoder
from pffl.data.federation import Federation
from pffl.data.schema import Attribute, Schema
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import DataError, MissingExtraError, Problems, UsageError, wrong
from pffl.evidence.measure import (
    Known,
    Measured,
    Wanted,
    evidence_of,
    measure,
    terms_of,
)
from pffl.evidence.record import Missing, Training
from pffl.fit import shipped_sample
from pffl.flow import Flow, Round
from pffl.methods.ascent import Ascent, example_weights, rank
from pffl.methods.pffl import PFFL
from pffl.models.external import CLASSES, NUMBERS, Reported
from pffl.numerics import bounded_probabilities, is_number
from pffl.prepare import Options
from pffl.problem import Point, upper_value
from pffl.queries import Census, Evaluate, Query, Total, View, add_all
from pffl.solution import Solution
from pffl.text import words
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.utils.data import DataLoader, Dataset

    from pffl.models.network import Network

Iterate: TypeAlias = Literal["best", "last"]
Groups: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
LoaderRows: TypeAlias = "DataLoader[Any] | Dataset[Any]"
SplitBatch: TypeAlias = Callable[[Any], tuple[Any, Any, Any]]
T = TypeVar("T", bound=Total)

MAX_SWING = 0.05  # of a cell's scale, or of all weight: more has not settled
MAX_NOISE = 3 * MAX_SWING  # noise of the training that is more is too much
FEWEST_ROUNDS = 6  # that tell noise from a loss that just fell
LOADER_SPLITS = ("train", "test", "validation")
EVALUATION_BATCH, TRAINING_BATCH = 256, 32  # rows of a Dataset at a time
LABEL_KEYS = ("label", "labels", "y", "target")
GROUP_KEYS = ("group", "groups", "sensitive_features")
UNMEASURED = Missing("needs gradients of all losses; an external model gives sums only")
ONE_MODEL = Missing("one model was trained: train without bounds to compare")
OWN_SEEDS = (
    "the model was trained by external code with its own seeds: a run with the same "
    "settings may end in another model"
)


@dataclass(frozen=True)
class ExternalSettings:
    """The constraint, how λ moves, and which model is kept.

    Attributes
    ----------
    multiplier_bound, risk_weight, dual_step_size
        B, β and η of λ; None finds a step size.
    iterate
        The model that is returned: the best, or the last.
    options
        Confidence and empty cells. Rows weigh the same in all silos.
    """

    constraint: Constraint
    multiplier_bound: float = 10.0
    risk_weight: float = 1.0
    dual_step_size: float | None = None
    iterate: Iterate = "best"
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        owner, step = "external training", self.dual_step_size
        constraint: object = self.constraint
        with Problems(owner, UsageError) as problems:
            if not isinstance(constraint, Constraint):
                problems.add(wrong("constraint", owner, "a constraint", constraint))
            elif constraint.open:
                problems.add("auto-refused:externalsettings")
            if self.iterate not in ("best", "last"):
                problems.add(wrong("iterate", owner, "best or last", self.iterate))
            if step is not None and not (is_number(step) and step > 0):
                problems.add(wrong("dual_step_size", owner, "> 0", step))
        object.__setattr__(self, "options", replace(self.options, weighting="rows"))

    @property
    def method(self) -> PFFL:
        """Algorithm 1 with these weights."""
        B, beta = self.multiplier_bound, self.risk_weight
        return PFFL(multiplier_bound=B, risk_weight=beta)


def external_schema(groups: Groups, labels: Sequence[str] | None) -> Schema:
    """Return the schema of named groups and labels; it has no inputs."""
    attributes = groups if isinstance(groups, Mapping) else {"group": groups}
    with Problems("external training", UsageError) as problems:
        if any(isinstance(values, str) for values in attributes.values()):
            problems.add("wrong-value:external-schema")
        if isinstance(labels, str) or (labels is not None and len(labels) < 2):
            problems.add("wrong-value:external-schema-2")
    listed = (Attribute(str(n), tuple(map(str, v))) for n, v in attributes.items())
    return Schema((), tuple(listed), tuple(map(str, labels or ())))


class ExternalTraining:
    """A run, from its census on, which starts at the parameters given.

    `sent` and `reached` are the models before and after a round.
    """

    def __init__(
        self,
        settings: ExternalSettings,
        engine: Engine,
        model: Reported,
        first: FloatArray,
        rounds: int,
    ) -> None:
        self.settings, self.engine, self.rounds = settings, engine, rounds
        self.started, self.sent, self.reached = time.monotonic(), first, first
        self.problem, self.notes = prepared(
            engine, settings.constraint, model, settings.method, settings.options, 0
        )
        self.ascent = Ascent.begin(self.problem, settings.dual_step_size)
        self.multipliers = self.ascent.multipliers
        self.history, self.diverged = list[Round](), False
        self.best: tuple[tuple[bool, float], FloatArray, FloatArray] | None = None

    def weights(self) -> FloatArray:
        """Use the next λ; return the weights of examples by silo, group and label."""
        self.multipliers = self.ascent.multipliers
        return example_weights(self.problem, self.multipliers)

    def step(
        self,
        counts: FloatArray,
        losses: FloatArray,
        number: int,
        others: tuple[FloatArray, FloatArray] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Take sums per silo and stratum at the model that was sent, and move λ.

        `others` are counts and losses of rows that the model is not trained on. If
        given, λ moves by their violations.
        """
        if not (np.isfinite(losses).all() and np.isfinite(self.sent).all()):
            self.diverged = True
            return
        problem, r = self.problem, self.violation(counts, losses)
        risk = float(losses.sum() / max(counts.sum(), 1.0))
        row = Round(
            multipliers=self.multipliers,
            number=number,
            risk=risk,
            violation=r,
            upper=upper_value(risk, r, problem),
            seconds=time.monotonic() - self.started,
            loss=float(np.nanmax(r + problem.cells.bounds, initial=risk)),
            planned=self.rounds,
            problem=problem,
        )
        self.history.append(row)
        for callback in callbacks:
            callback.after_round(row)
        value = self.value(risk, r)
        if not np.isnan(value[1]) and (self.best is None or value < self.best[0]):
            self.best = (value, self.sent, self.multipliers)
        self.ascent = self.ascent.after(
            r if others is None else self.violation(*others)
        )

    def violation(self, counts: FloatArray, losses: FloatArray) -> FloatArray:
        """Return r from sums per silo and stratum; NaN for cells without rows."""
        cells = self.problem.cells
        rows, sums = cells.totals(counts), cells.totals(losses)
        means = np.full(len(rows), np.nan)
        np.divide(sums, rows, out=means, where=rows > 0)
        return np.asarray(means - cells.bounds)

    def value(self, risk: float, violation: FloatArray) -> tuple[bool, float]:
        """Return whether a bound is missed, and βF + B·max(0, max r): less is best."""
        minimax = self.settings.constraint.minimax
        return rank(self.problem, risk, violation, minimax=minimax)

    @property
    def settled(self) -> bool:
        """Whether losses settled over the last half of the rounds."""
        last = self.history[-((len(self.history) + 1) // 2) :]
        losses = np.array([row.violation for row in last]) / self.problem.scales
        lam = np.array([row.multipliers for row in last])
        weight = self.problem.risk_weight + lam.sum(axis=1, keepdims=True)
        return have_settled(losses, lam / weight)

    def conclude(
        self, described: Mapping[str, Any], messages: int, notes: Sequence[str] = ()
    ) -> Solution:
        """Measure the model that is kept, and return the solution."""
        settings, engine = self.settings, self.engine
        setting = setting_of(engine)
        options, constraint = settings.options, settings.constraint
        wanted = Wanted(setting.splits, weighted=False, confidence=options.confidence)
        point, M, measured = drive(engine, self._measured(wanted))
        problem = self.problem
        declared = replace(wanted, loss_bound=M)
        training = Training(
            {
                **described,
                "rounds": self.rounds,
                "multiplier_bound": problem.multiplier_bound,
                "risk_weight": problem.risk_weight,
                "dual_step_size": settings.dual_step_size,
                "iterate": settings.iterate,
            },
            dict(constraint.describe()),
            0,
            len(self.history),
            "diverged" if self.diverged else None,
            {"asked": messages, "distinct": messages, "messages": messages},
            time.monotonic() - self.started,
            settled=self.settled,
        )
        evidence = evidence_of(
            replace(setting.data, trained_on=setting.data.fingerprint),
            problem,
            point,
            measured,
            terms_of(problem, declared, options.weighting),
            training=training,
            promise=not constraint.minimax,
            minimax=constraint.minimax,
            notes=[*self.notes, OWN_SEEDS, *clipping_note(M), *notes],
        )
        found = Solution.of(point, problem, self.history, evidence, engine.encoding)
        return noted(found, engine.notes)

    def _measured(self, wanted: Wanted) -> Flow[tuple[Point, float | None, Measured]]:
        """Choose the model, M on training rows, and measure test rows once, at last."""
        problem, iterate = self.problem, self.settings.iterate
        w, lam = self.reached, self.multipliers
        if not np.isfinite(w).all() and self.best is not None:
            self.diverged, (_, w, lam) = True, self.best
        M, train = yield from shipped_sample(problem, w, wanted)
        value = self.value(
            train.risk / train.share, train.own_means - problem.cells.bounds
        )
        if iterate == "best" and self.best is not None and self.best[0] < value:
            _, w, lam = self.best
            M, train = yield from shipped_sample(problem, w, wanted)
        known = replace(Known.nothing(UNMEASURED, seen=train), free=ONE_MODEL)
        flow = measure(problem, Point(w, lam), replace(wanted, loss_bound=M), known)
        return Point(w, lam), M, (yield from flow)


def clipping_note(M: float | None) -> list[str]:
    """Say which predictor the figures on test rows and new people are of."""
    if M is None:
        return []
    return [
        "figures on test rows and new people are of the model with its probabilities "
        f"clipped so that no loss is above {words(M)} (pffl.external.bounded does it)"
    ]


def have_settled(losses: FloatArray, shares: FloatArray) -> bool:
    """Say whether losses settled: one row per round, one column per cell.

    Losses are in parts of the cells' scales, `shares` are the cells' parts of all
    weight. Losses that swing because of a step of λ that is too long take the shares
    with them. Where these stand still, and losses move from one round to the next as
    far as over all of them, it is noise of the training: there is nothing left to
    settle, unless it is so much that the best round is a matter of luck. Losses that
    drift, or go in slow waves, have not settled.
    """
    many = len(losses)
    if many < 2:
        return False
    swing, jumps = losses.std(axis=0), np.square(np.diff(losses, axis=0)).mean(axis=0)
    steady = many >= FEWEST_ROUNDS and shares.std(axis=0).max(initial=0.0) <= MAX_SWING
    noise = steady & (swing <= np.minimum(np.sqrt(jumps), MAX_NOISE))
    return bool((noise | (swing <= MAX_SWING)).all())


def bounded(probabilities: Any, loss_bound: float) -> FloatArray:
    """Clip class probabilities, shape (n, classes), so that no loss is above a bound.

    Examples
    --------
    >>> bounded([[0.001, 0.999]], 3.0).round(3).tolist()
    [[0.05, 0.95]]
    """
    own = np.asarray(probabilities, dtype=np.float64)
    return bounded_probabilities(own, loss_bound)


# Torch loaders in this process


def solve_loaders(
    network: Network | nn.Module,
    silos: Mapping[str, LoaderRows | tuple[LoaderRows, ...]],
    constraint: Constraint,
    *,
    groups: Groups,
    labels: Sequence[str] | None,
    optimizer: Callable[[nn.Module], Optimizer] | None = None,
    rounds: int = 20,
    local_epochs: int = 1,
    split: SplitBatch | None = None,
    random_state: int = 0,
    name: str = "data",
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> Solution:
    """Train a torch module over silos of Datasets or DataLoaders, under bounds.

    For data that a `Federation` of flat rows cannot hold: augmentation, inputs that are
    dictionaries, any optimiser, frozen layers. A round is FedAvg.

    Parameters
    ----------
    network
        A `Network` (its module, loss and device are used) or a module. It is not
        changed; ``solution.model.arrays(solution.w)`` is the trained state.
    silos
        From a silo's name to its training rows, to training and test rows, or to these
        and validation rows: a DataLoader, or a Dataset, which is then taken in batches.
        Where all have validation rows, their losses move the multipliers: a network
        fits its own rows better than others.
    constraint
        A bound for each group.
    groups, labels
        Names in the order of the codes; for several attributes a mapping to their
        values. None as labels: a numeric target.
    optimizer
        Makes an optimiser for a copy of the module in every round and silo. Default:
        Adam over the parameters that need a gradient.
    rounds, local_epochs
        Rounds, and epochs of each silo in a round.
    split
        From a batch to (inputs, labels, groups). Default: a tuple of three, or a
        mapping with ``label`` (``labels``, ``y``, ``target``) and ``group``, whose
        other entries go to the module by name. Inputs that are a mapping are passed as
        keywords; outputs may have ``.logits``.
    random_state
        Of the order of rows and of random draws in training.
    name, callbacks
        Name of the data; callbacks between rounds.
    settings
        ``multiplier_bound``, ``risk_weight``, ``dual_step_size``, ``iterate``,
        ``options``, as for `pffl.deploy.BoundedGroupLossMixin`.

    Returns
    -------
    Solution
        With three verdicts, certificate and history.

    Raises
    ------
    UsageError, DataError
        Wrong settings or batches.

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
    if not silos:
        raise UsageError("no-silos:solve-loaders")
    rows = {
        str(silo): dict(
            zip(LOADER_SPLITS, r if isinstance(r, tuple) else (r,), strict=False)
        )
        for silo, r in silos.items()
    }
    schema = external_schema(groups, labels)
    engine = LoaderEngine(network, schema, rows, split or split_batch, name)
    w = engine.vector(engine.module)
    bounds = ExternalSettings(constraint, **settings)
    run = ExternalTraining(bounds, engine, engine.model, w, rounds)
    apart = "validation" in engine.splits
    for number in range(1, rounds + 1):
        run.sent = w
        others = engine.sums(w, "validation") if apart else None
        run.step(*engine.sums(w, "train"), number, others, callbacks)
        weights = run.weights()
        total = np.zeros_like(w)
        for k, mass in enumerate(run.problem.masses.tolist()):
            total += mass * engine.train(
                w,
                k,
                weights[k].reshape(-1),
                optimizer,
                local_epochs,
                (random_state, number, k),
            )
        w = np.asarray(total / run.problem.masses.sum())
        run.reached = w
        if run.diverged or not np.isfinite(w).all():
            run.diverged = True
            break
    for callback in callbacks:
        callback.ended()
    described = {"kind": "torch-loop", "local_epochs": local_epochs}
    solution = run.conclude(described, len(run.history))
    for callback in callbacks:
        callback.solved(solution)
    return solution


def split_batch(batch: Any) -> tuple[Any, Any, Any]:
    """Return inputs, labels and groups of a batch in one of the usual forms."""
    if isinstance(batch, Mapping):
        label = next((key for key in LABEL_KEYS if key in batch), None)
        group = next((key for key in GROUP_KEYS if key in batch), None)
        if label is not None and group is not None:
            rest = {k: v for k, v in batch.items() if k not in (label, group)}
            inputs = next(iter(rest.values())) if list(rest) == ["x"] else rest
            return inputs, batch[label], batch[group]
    elif isinstance(batch, Sequence) and len(batch) == 3:
        return batch[0], batch[1], batch[2]
    raise DataError("bad-batch")


class LoaderEngine:
    """An engine over torch loaders: it trains, and answers `census` and `evaluate`."""

    federation: Federation | None = None
    notes: tuple[str, ...] = ()
    pooled, floor = 0, 1

    def __init__(
        self,
        network: Network | nn.Module,
        schema: Schema,
        rows: dict[str, dict[str, LoaderRows]],
        split: SplitBatch,
        name: str,
    ) -> None:
        try:
            from pffl.models.network import Network, loss_for
        except ModuleNotFoundError as error:  # pragma: no cover
            raise MissingExtraError("torch", "solve_loaders") from error
        loss: Any = CLASSES if schema.labels else NUMBERS
        if not isinstance(network, Network):
            network = Network(network, loss)
        self.network, self.schema, self.rows = network, schema, rows
        self.split, self.name = split, name
        self.link = loss_for(network.loss, schema)
        self.encoding = TableEncoder.of_numbers(schema)
        self.device = network.torch_device
        self.module = copy.deepcopy(network.module).to(self.device)
        reported = Reported.of(state_arrays(self.module), loss)
        self.model = reported.bind(schema, network.inputs)
        self._counts: dict[tuple[int, str], IntArray] = {}
        self.silo_names = tuple(rows)
        self.splits = tuple(
            s for s in LOADER_SPLITS if all(s in silo for silo in rows.values())
        )

    def ask(self, query: Query[T]) -> T:
        """Ask every silo, and add the answers."""
        if not isinstance(query, Census | Evaluate):
            raise UsageError("unknown-query:ask-2", kind=query.kind)
        if isinstance(query, Evaluate):
            self.load(self.module, query.w)
        answers: list[Any] = []
        for k in range(len(self.rows)):
            view, losses, classes = self._measured(k, query.split)
            if isinstance(query, Evaluate):
                cut = query.bounded(losses, losses, view.y)
                answers.append(query.total(view, losses, classes, cut))
            else:
                answers.append(query.answer(view))
        return cast("T", add_all(answers))

    def ask_many(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Ask one after the other."""
        return [self.ask(query) for query in queries]

    def sums(self, w: FloatArray, split: str) -> tuple[FloatArray, FloatArray]:
        """Return counts and loss sums at w per silo and stratum."""
        self.load(self.module, w)
        counts, sums = [], []
        for k in range(len(self.rows)):
            view, losses, _ = self._measured(k, split)
            counts.append(view.stratum_sums(np.ones_like(losses), self.schema.n_strata))
            sums.append(view.stratum_sums(losses, self.schema.n_strata))
        return np.array(counts), np.array(sums)

    def train(
        self,
        w: FloatArray,
        index: int,
        weights: FloatArray,
        optimizer: Callable[[nn.Module], Optimizer] | None,
        epochs: int,
        seed: tuple[int, int, int],
    ) -> FloatArray:
        """Return the model of one silo after its epochs from w; losses have weights."""
        import torch

        from pffl.models.network import numbers, seeded

        module = copy.deepcopy(self.network.module).to(self.device)
        self.load(module, w)
        with seeded(seed, self.device):
            steps = (
                torch.optim.Adam(p for p in module.parameters() if p.requires_grad)
                if optimizer is None
                else optimizer(module)
            )
            module.train()
            for _ in range(epochs):
                for batch in self._batches(index, "train", training=True):
                    inputs, labels, groups = self.split(batch)
                    weight = weights[self._strata(labels, groups)]
                    steps.zero_grad()
                    z = self._scores(module, inputs)
                    slopes = self.link.score_slopes(numbers(z), numbers(labels))
                    slopes = (slopes.T * weight).T / len(weight)
                    z.backward(torch.as_tensor(slopes).to(z))
                    steps.step()
        return self.vector(module)

    def vector(self, module: nn.Module) -> FloatArray:
        """Return a module's state as w."""
        return self.model.vector(state_arrays(module))

    def load(self, module: nn.Module, w: FloatArray) -> None:
        """Give a module the state w."""
        import torch

        state, arrays = module.state_dict(), self.model.arrays(w)
        module.load_state_dict(
            {n: torch.as_tensor(a).to(state[n].dtype) for n, a in arrays.items()}
        )

    def _batches(self, index: int, split: str, *, training: bool) -> Iterable[Any]:
        from torch.utils.data import DataLoader

        rows = self.rows[self.silo_names[index]][split]
        if isinstance(rows, DataLoader):
            return rows
        size = TRAINING_BATCH if training else EVALUATION_BATCH
        return DataLoader(rows, batch_size=size, shuffle=training)

    def _scores(self, module: nn.Module, inputs: Any) -> Tensor:
        """Return a module's scores for inputs of any form, as the loss takes them."""
        from pffl.models.network import scores_of

        inputs = _to_device(inputs, self.device)
        out = module(**inputs) if isinstance(inputs, Mapping) else module(inputs)
        return scores_of(getattr(out, "logits", out), self.link)

    def _strata(self, labels: Any, groups: Any) -> IntArray:
        """Return codes of (group, label); refuse codes that have no name."""
        from pffl.models.network import numbers

        group, y = numbers(groups).astype(np.int64).reshape(-1), numbers(labels)
        limits = [("group", group, len(self.schema.groups))]
        if self.schema.labels:
            limits.append(("label", y.astype(np.int64), len(self.schema.labels)))
        for what, codes, names in limits:
            if len(codes) and not (codes.min() >= 0 and codes.max() < names):
                raise DataError("unknown-group:strata", what=what, names=names - 1)
        return self.schema.strata(group, y)

    def _measured(
        self, index: int, split: str
    ) -> tuple[View, FloatArray, FloatArray | None]:
        """Return the rows of a silo, their losses and predicted classes."""
        import torch

        from pffl.models.network import numbers

        self.module.eval()
        strata, targets, scores = [], [], []
        for batch in self._batches(index, split, training=False):
            inputs, labels, groups = self.split(batch)
            with torch.inference_mode():
                scores.append(numbers(self._scores(self.module, inputs)))
            strata.append(self._strata(labels, groups))
            targets.append(numbers(labels))
        stratum = np.concatenate([np.zeros(0, np.int64), *strata])
        counts = np.bincount(stratum, minlength=self.schema.n_strata)
        known = self._counts.setdefault((index, split), counts)
        if not np.array_equal(known, counts):
            raise DataError(
                "changed-rows:measured", silo_name=self.silo_names[index], split=split
            )
        y = np.concatenate([np.zeros(0), *targets])
        view = View(index, np.zeros((len(stratum), 0)), y, stratum)
        if not scores:
            return view, np.zeros(0), np.zeros(0) if self.schema.labels else None
        z = np.concatenate(scores)
        return view, self.link.score_losses(z, y), self.link.score_classes(z)


def state_arrays(module: nn.Module) -> dict[str, Any]:
    """Return a module's state in NumPy; bfloat16, which NumPy lacks, as float32."""
    import torch

    return {
        name: (t.float() if t.dtype == torch.bfloat16 else t).detach().cpu().numpy()
        for name, t in module.state_dict().items()
    }


def _to_device(value: Any, device: torch.device) -> Any:
    """Return a batch, or a part of one, on a device."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: _to_device(one, device) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_to_device(one, device) for one in value)
    return value
