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
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from pffl.callbacks import Callback, Round
from pffl.constraints.base import Constraint
from pffl.driver import drive
from pffl.errors import FederationError, Problems, UsageError, wrong
from pffl.evidence.evidence import Missing, Proofs, Settling, Training
from pffl.evidence.looks import Looks
from pffl.evidence.measure import Measured, Wanted, expected_rows, heldout_sample
from pffl.fitting import RISE, bounded_sample
from pffl.flow import Flow
from pffl.flower.reports import Keys, Naming, Reports, losses_of, record_of
from pffl.flower.weights import KEY, Order
from pffl.methods.ascent import Ascent, example_weights
from pffl.methods.pffl import PFFL
from pffl.models.reported import CLASSES, NUMBERS, Reported
from pffl.numerics import is_number
from pffl.preparation import Options
from pffl.problem import Point, Problem, upper_value
from pffl.reports.card import write_card
from pffl.reports.page import write_report
from pffl.runs.directory import lock
from pffl.solution import Solution
from pffl.solving import evidence_of, noted, prepared, setting_of, terms_of
from pffl.text import words
from pffl.typing import FloatArray

Kept: TypeAlias = Literal["best", "average", "last"]
Groups: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
SWING = 0.05  # of a cell's scale: losses that swing by more at the end did not settle
UNMEASURED = Missing(
    "needs gradients of all losses, and clients of the weights protocol report sums"
)
ONCE = Missing("an app trains one model: run it without bounds to compare")


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
        η_θ; None finds one, see `methods.step_sizes.anytime_dual_step`.
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
        named = groups if isinstance(groups, Mapping) else {"group": groups}
        with Problems(type(self).__name__, UsageError) as problems:
            if not isinstance(constraint, Constraint):
                problems.add(
                    wrong("constraint", type(self).__name__, "a constraint", constraint)
                )
            elif constraint.open:
                problems.add("bound = 'auto' needs rows at hand: give a number")
            if iterate not in get_args(Kept):
                kept = ", ".join(get_args(Kept))
                problems.add(
                    wrong("iterate", type(self).__name__, f"one of {kept}", iterate)
                )
            if dual_step_size is not None and not (
                is_number(dual_step_size) and dual_step_size > 0
            ):
                problems.add(
                    wrong("dual_step_size", type(self).__name__, "> 0", dual_step_size)
                )
            if any(isinstance(values, str) for values in named.values()):
                problems.add("`groups=` are a list of names, or a mapping to such")
            if isinstance(labels, str) or (labels is not None and len(labels) < 2):
                problems.add("`labels=` are two names or more, or None for a number")
        super().__init__(*strategy, **more)
        self.constraint = constraint
        self.order = Order(
            [(str(n), [str(v) for v in values]) for n, values in named.items()],
            [] if labels is None else [str(label) for label in labels],
            "train",
            [],
        )
        self.method = PFFL(multiplier_bound=multiplier_bound, risk_weight=risk_weight)
        self.dual_step_size, self.iterate = dual_step_size, iterate
        self.silos, self.out, self.data_name = silos, out, name
        self.options = replace(options or Options(), weighting="rows")
        self.callbacks = tuple(callbacks)
        self.order.schema  # noqa: B018 - names that clash are refused here
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
        log(INFO, "Bounds: %s, for %s", self.constraint.describe(), _who(engine))
        for callback in self.callbacks:
            callback.before(run.problem, num_rounds)
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
                callback.after(run.problem)
        self.solution = self._concluded(run, engine, num_rounds)
        model = run.model
        result.arrays = _record(model.arrays(self.solution.w))
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
            raise UsageError("there is nothing to save before `start` has ended")
        with lock(directory) as place:
            looks = Looks.of(place.directory)
            evidence = looks.counted(self.solution.evidence)
            self.solution = replace(self.solution, evidence=evidence)
            place.save(self.solution, "")
            write_card(place)
            write_report(place)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Add the weights to the strategy's own messages."""
        run = self._running()
        messages: Iterable[Message] = super().configure_train(  # type: ignore[misc]
            server_round, arrays, config, grid
        )
        run.sent = run.model.vector(_arrays(arrays))
        if run.tells is False:  # clients tell of losses in `evaluate` only
            counts = run.problem.silo_counts.astype(np.float64)
            self._step(run, counts, run.engine.losses(arrays), server_round)
        lam = run.ascent.multipliers(run.problem.multiplier_bound)
        weights = example_weights(run.problem, lam)
        elsewhere = example_weights(
            run.problem, np.where(run.problem.cells.everywhere, lam, 0.0)
        )[0]
        run.multipliers = lam

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
            run.reached = run.model.vector(_arrays(arrays))
            run.average(self.iterate, run.reached, server_round)
        if run.history:
            last = run.history[-1]
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
        log(INFO, "\t├──> Bounded: %s", self.constraint.describe())
        super().summary()  # type: ignore[misc]

    def _running(self) -> _Run:
        if self._run is None:
            raise UsageError(
                "a strategy with BoundedGroupLossMixin runs by its own `start`: put "
                "the mixin before the outermost class, also before a wrapper"
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
        problem, notes = prepared(
            engine, self.constraint, model, self.method, self.options, 0
        )
        theta = np.zeros(problem.n_cells)
        return _Run(
            engine,
            problem,
            model,
            Ascent(theta, self.dual_step_size),
            {client.node: k for k, client in enumerate(engine.clients)},
            engine.silo_names,
            rounds,
            begun,
            list(notes),
            sent=(first := model.vector(_arrays(arrays))),
            reached=first,
            multipliers=theta,
            minimax=self.constraint.minimax,
        )

    def _heard(self, run: _Run, replies: Sequence[Message], number: int) -> None:
        """Read the loss sums that came with training, if clients send them there."""
        good = [reply for reply in replies if not reply.has_error()]
        records = [record_of(reply) for reply in good]
        run.tells = bool(good) and None not in records
        if not run.tells:
            return
        known = run.problem.silo_counts
        counts, losses = np.zeros(known.shape), np.zeros(known.shape)
        asked = {m.metadata.message_id: m.metadata.dst_node_id for m in run.messages}
        for reply, record in zip(good, records, strict=True):
            about = reply.metadata
            node = asked.get(about.reply_to_message_id, about.src_node_id)
            if record is None:
                continue
            k = run.place(record.get("name"), node)
            with Naming(run.names[k]):
                losses[k] = losses_of(run.problem.schema, record, known[k])
            counts[k] = known[k]
        self._step(run, counts, losses, number)

    def _step(
        self, run: _Run, counts: FloatArray, losses: FloatArray, number: int
    ) -> None:
        before = len(run.history)
        run.step(counts, losses, number)
        for row in run.history[before:]:
            for callback in self.callbacks:
                callback.after_round(run.problem, row)

    def _concluded(self, run: _Run, engine: Reports, rounds: int) -> Solution:
        """Measure the model, and put together what is known of it."""
        setting = setting_of(engine)
        wanted = Wanted(
            setting.splits,
            loss_bound=self.options.loss_bound,
            weighted=False,
            confidence=self.options.confidence,
        )
        flow = concluding(run, self.iterate, wanted)
        w, lam, M, measured = drive(engine, flow)
        minimax = self.constraint.minimax
        terms = terms_of(setting.data, run.problem, self.options, self.method, M)
        training = Training(
            self._described(rounds),
            dict(self.constraint.describe()),
            0,
            len(run.history),
            "diverged" if run.diverged else None,
            {
                "asked": len(run.history) + engine.messages // len(run.names),
                "distinct": len(run.history) + engine.messages // len(run.names),
                "messages": len(run.history) + engine.messages // len(run.names),
            },
            time.monotonic() - run.begun,
            settling=run.settling(),
        )
        evidence = evidence_of(
            setting.data,
            run.problem,
            Point(w, lam),
            measured,
            replace(terms, target_gap=None),
            training=training,
            promise=not minimax,
            minimax=minimax,
            notes=[*run.notes, *_told_of(self, measured, run, M)],
        )
        solution = Solution(
            w, lam, run.problem, tuple(run.history), evidence, engine.encoding
        )
        return noted(solution, engine.notes)

    def _described(self, rounds: int) -> dict[str, Any]:
        inner = getattr(self, "strategy", None)
        bases = [b.__name__ for b in type(self).__mro__ if _is_flowers(b)]
        named = bases[0] if inner is None else f"{bases[0]}({type(inner).__name__})"
        problem = self._running().problem
        return {
            "kind": "weights-protocol",
            "strategy": named,
            "rounds": rounds,
            "multiplier_bound": problem.multiplier_bound,
            "risk_weight": problem.risk_weight,
            "dual_step_size": self.dual_step_size,
            "iterate": self.iterate,
        }


class FairFedAvg(BoundedGroupLossMixin, FedAvg):  # type: ignore[misc]
    """FedAvg under bounds."""


@dataclass
class _Run:
    """Where a run stands; `reached` is the model after the last round.

    `tells`: whether clients send loss sums with training; None before the first round.
    """

    engine: Reports
    problem: Problem
    model: Reported
    ascent: Ascent
    places: dict[int, int]
    names: tuple[str, ...]
    rounds: int
    begun: float
    notes: list[str]
    sent: FloatArray
    reached: FloatArray
    multipliers: FloatArray
    history: list[Round] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    minimax: bool = False
    best: tuple[tuple[bool, float], FloatArray, FloatArray] | None = None
    multiplier_sum: FloatArray | None = None
    total: FloatArray | None = None
    summed: int = 0
    tells: bool | None = None
    diverged: bool = False

    def place(self, name: object, node: int) -> int:
        """Return which silo a client is; a node that started again has a new id."""
        if isinstance(name, str) and name in self.names:
            self.places[node] = self.names.index(name)
        if node not in self.places:
            raise FederationError(
                f"{name or f'node {node}'} came after the first round, and was not "
                f"counted: there are {', '.join(self.names)}. Say who must be there "
                "before it starts (`silos=`)"
            )
        return self.places[node]

    def step(self, counts: FloatArray, losses: FloatArray, number: int) -> None:
        """Take the sums of a round: r at the model that was sent, and the next λ."""
        problem, cells = self.problem, self.problem.cells
        many, sums = cells.totals(counts), cells.totals(losses)
        means = np.full(len(many), np.nan)
        np.divide(sums, many, out=means, where=many > 0)
        r = means - cells.bounds
        risk = float(losses.sum() / max(counts.sum(), 1.0))
        if not (np.isfinite(losses).all() and np.isfinite(self.sent).all()):
            self.diverged = True
            return
        upper = upper_value(risk, r, problem)
        self.history.append(
            Round(
                number,
                risk,
                r,
                self.multipliers,
                upper,
                None,
                time.monotonic() - self.begun,
                max(risk, float(np.nanmax(means, initial=0.0))),
            )
        )
        reached = self.worth(risk, r)
        if not np.isnan(reached[1]) and (self.best is None or reached < self.best[0]):
            self.best = (reached, self.sent, self.multipliers)
        self.ascent = self.ascent.after(r)

    def worth(self, risk: float, violation: FloatArray) -> tuple[bool, float]:
        """Return whether a bound is missed, and βF + B·max(0, max r): less is better.

        With room for what bounding the predictor costs: otherwise the best would be a
        model right at a bound, and above it once its probabilities are kept from 0.
        """
        room = RISE if self.model.loss == CLASSES else 0.0
        value = upper_value(risk, violation + room, self.problem)
        met = bool((violation + room <= 0).all())
        return not (met or self.minimax), value

    def average(self, kept: Kept, w: FloatArray, number: int) -> None:
        """Add a model to the average of the last half of the rounds."""
        if kept != "average" or 2 * number <= self.rounds:
            return
        zero = np.zeros_like(w), np.zeros_like(self.multipliers)
        self.total = (zero[0] if self.total is None else self.total) + w
        lam = zero[1] if self.multiplier_sum is None else self.multiplier_sum
        self.multiplier_sum, self.summed = lam + self.multipliers, self.summed + 1

    def settling(self) -> Settling:
        """Say how far losses swung over the last half of the rounds."""
        last = self.history[-((len(self.history) + 1) // 2) :]
        table = np.array([row.violation for row in last])
        scales = self.problem.scales
        if len(last) < 2:
            return Settling(len(last), [None] * len(scales), SWING)
        swing = table.std(axis=0) / scales
        known: list[float | None] = [
            float(one) if np.isfinite(one) else None for one in swing
        ]
        return Settling(len(last), known, SWING)


def concluding(
    run: _Run, kept: Kept, wanted: Wanted
) -> Flow[tuple[FloatArray, FloatArray, float | None, Measured]]:
    """Choose the model, M on training rows, and measure held-out rows once, at last."""
    problem = run.problem
    w, lam = run.reached, run.multipliers
    if kept == "average" and run.total is not None and run.multiplier_sum is not None:
        w, lam = run.total / run.summed, run.multiplier_sum / run.summed
        w = run.model.vector(run.model.arrays(w))  # in the arrays' own types
    if not np.isfinite(w).all() and run.best is not None:
        run.diverged, (_, w, lam) = True, run.best
    M, seen = yield from bounded_sample(problem, w, wanted)
    own = run.worth(seen.risk / seen.share, seen.uncut_means - problem.cells.bounds)
    if kept == "best" and run.best is not None and run.best[0] < own:
        _, w, lam = run.best
        M, seen = yield from bounded_sample(problem, w, wanted)
    rows = yield from expected_rows(problem, wanted.present)
    wanted = replace(wanted, loss_bound=M)
    held = yield from heldout_sample(problem, w, wanted, seen, rows)
    proofs = Proofs(UNMEASURED, UNMEASURED, UNMEASURED)
    return w, lam, M, Measured(seen, held, ONCE, proofs)


def _told_of(
    strategy: BoundedGroupLossMixin, measured: Measured, run: _Run, M: float | None
) -> list[str]:
    """Say what a reader must know of a model that an app of one's own trained."""
    told = [
        "the model was trained by an app of its own, by its own seeds: a run with the "
        "same settings may end in another model"
    ]
    if M is not None:
        own, cut = measured.seen.uncut_means, measured.seen.means
        far = float(np.nanmax(np.abs(own - cut), initial=0.0))
        told.append(
            "what is said is of the model with its probabilities kept so far from 0 "
            f"that no loss is above {words(M)} (pffl.flower.bounded does it); without, "
            f"no cell's mean training loss differs by more than {words(max(far, RISE))}"
        )
    if any("Differential" in b.__name__ for b in type(strategy).__mro__):
        told.append(
            "differential privacy of the strategy covers the model's updates only: "
            "the sums of groups were sent without noise"
        )
    return told


def bounded(probabilities: Any, loss_bound: float) -> Any:
    """Return class probabilities kept so far from 0 that no loss is above a bound.

    Parameters
    ----------
    probabilities
        Of all classes, shape (n, classes).
    loss_bound
        M, as ``solution.loss_bound`` says.
    """
    from pffl.numerics import bounded_probabilities

    own = np.asarray(probabilities, dtype=np.float64)
    return bounded_probabilities(own, loss_bound, clip=own.shape[1] == 2)


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
