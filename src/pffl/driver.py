"""Drivers: what carries a flow's questions to silos, and answers its events.

`drive` is the driver of an engine. Before an exchange it drops what is asked twice in
it; it counts the cost; it shows watched rounds to callbacks; and it keeps a journal, so
that a run that was stopped anywhere goes on and ends as if it had not been.

The journal has one entry per stage: the `Progress` of a method, if one runs there, and
the totals that came since. To go on, the flow is begun anew: its questions are answered
from the journal as long as it lasts, and a method begins at its `Progress`.
"""

from __future__ import annotations

import hashlib
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from pffl.callbacks import Callback, Round
from pffl.checkpoint import Unreadable, decode, encode
from pffl.engines.base import Engine
from pffl.errors import ArtefactError, Malformed
from pffl.flow import (
    Advanced,
    Asked,
    Began,
    Billed,
    Clock,
    Ended,
    Event,
    Flow,
    Identified,
    Planned,
    Progress,
    Recalled,
    Signal,
    Stage,
    together,
)
from pffl.models.base import Model
from pffl.problem import Expansion, Point, Problem
from pffl.processors import blas_threads
from pffl.questions import (
    CensusTotal,
    Question,
    Task,
    Total,
)

R = TypeVar("R")
BYTES = 8  # of a number
MOST_TASKS = 64  # whose content is remembered
MISSHAPEN = (KeyError, IndexError, TypeError, AttributeError, ValueError)
ROUND = "round"  # the stage of what is asked within a round, beside the round's own


class Keeper(Protocol):
    """Where a journal is kept."""

    identity: Mapping[str, Any]

    def load(self) -> Mapping[str, Any] | None:
        """Return the journal of the run that was stopped; None if there is none."""

    def offer(self, journal: Callable[[], Mapping[str, Any]]) -> None:
        """Take a journal, and save it if that is due."""

    def flush(self) -> None:
        """Save what was offered last."""


@dataclass(frozen=True)
class Cost:
    """What was asked of the federation.

    Attributes
    ----------
    asked, distinct
        Questions, and different ones among them; the census left out.
    messages
        Times that questions went out together.
    gradients
        Full passes over a silo's rows that compute a gradient, per silo: a local step
        on a batch counts as its share of the rows.
    sent, received
        Bytes from and to the server, all silos together.
    """

    asked: int = 0
    distinct: int = 0
    messages: int = 0
    gradients: float = 0.0
    sent: int = 0
    received: int = 0


def drive(
    engine: Engine,
    flow: Flow[R],
    *,
    callbacks: Sequence[Callback] = (),
    keeper: Keeper | None = None,
) -> R:
    """Carry a flow's questions to an engine; return what the flow returns."""
    silos = engine.pooled or len(engine.silo_names)
    driver = Driver(silos, callbacks=callbacks, keeper=keeper)
    return driver.run(flow, engine)


def drive_many(engine: Engine, flows: Sequence[Flow[R]]) -> list[R]:
    """Drive flows side by side: in each round, all that is asked goes out at once."""
    return list(drive(engine, together(*flows)))


@dataclass
class Entry:
    """What the journal has of one stage; `used` totals were given to the flow."""

    progress: Progress | Mapping[str, Any] | None = None
    totals: list[Any] = field(default_factory=list)
    used: int = 0


Exchanges: TypeAlias = Generator[list[Question[Any]], list[Any], R]


class Held:
    """Holds a signal such as Ctrl-C back until it may come, during an exchange.

    A flow has many parts, and an interruption must reach all of them, not the one at
    whose lines it happens to come. A second signal is not held back.
    """

    def __enter__(self) -> Held:
        self._due: list[int] = []
        self._open = False
        self._before: dict[int, Callable[[int, Any], Any]] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    self._before[number] = handler
                    signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._take:  # else somebody else has it now
                signal.signal(number, handler)

    def _take(self, number: int, frame: Any) -> None:
        if self._open or self._due:
            self._before[number](number, frame)
        else:
            self._due.append(number)

    @contextmanager
    def let(self) -> Iterator[None]:
        """Let a signal come: the one that was held back, or one that comes now."""
        self._open = True
        try:
            while self._due:
                number = self._due.pop()
                self._before[number](number, None)
            yield
        finally:
            self._open = False


class Driver:
    """Drives one flow: answers its events, and has its questions asked by somebody.

    Parameters
    ----------
    silos
        How many silos there are, for the cost.
    callbacks
        Shown the rounds that are watched.
    keeper
        Where the journal is kept; None to keep none.
    """

    def __init__(
        self,
        silos: int,
        *,
        callbacks: Sequence[Callback] = (),
        keeper: Keeper | None = None,
    ) -> None:
        self._callbacks, self._keeper = tuple(callbacks), keeper
        self._started = time.monotonic()
        self._journal: dict[Stage, Entry] = {}
        self._meter = Meter(silos)
        self._keeping = self._changed = False
        self._rounds = 0  # of the watched training
        self._watching: list[Problem] = []

    def run(self, flow: Flow[R], engine: Engine) -> R:
        """Have an engine asked all that a flow asks; return what the flow returns."""
        exchanges = self.exchanges(flow)
        step: Callable[[Any], list[Question[Any]]] = exchanges.send
        value: Any = None
        with blas_threads(1), Held() as signals:
            while True:
                try:
                    questions = step(value)
                except StopIteration as done:
                    result: R = done.value
                    return result
                try:
                    with signals.let():
                        value, step = engine.ask_many(questions), exchanges.send
                except BaseException as error:
                    value, step = error, exchanges.throw

    def exchanges(self, flow: Flow[R]) -> Exchanges[R]:
        """Drive a flow to its end: yield what goes out together, receive the totals.

        Whoever asks may do so in any way, also in somebody else's loop. An interruption
        (Ctrl-C) is thrown into the flow, which may end its training and go on; any
        other error ends it. Either way the journal is saved.
        """
        step: Callable[[Any], Signal] = flow.send
        value: Any = None
        try:
            while True:
                try:
                    with blas_threads(1):  # not while somebody else's loop has its turn
                        told = step(value)
                except StopIteration as done:
                    self._offer()
                    result: R = done.value
                    return result
                self._offer()
                try:
                    if isinstance(told, Event):
                        value = self.answer(told)
                    else:
                        value = yield from self._exchange(told)
                    step = flow.send
                except KeyboardInterrupt as stop:
                    # What is asked from here on is about a model that is unfinished.
                    self._flush()
                    self._keeping = False
                    value, step = stop, flow.throw
        except BaseException:
            self._flush()
            raise
        finally:
            flow.close()
            while self._watching:
                self._leave(self._watching.pop())
            for callback in self._callbacks:
                callback.ended()

    def answer(self, event: Event) -> Any:
        """Answer an event."""
        match event:
            case Recalled():
                return self._recall(event)
            case Clock():
                return time.monotonic() - self._started
            case Billed(stage=stage):
                return self._meter.cost(stage)
            case Identified(identity=identity):
                self._resume(identity)
            case Planned(lines=lines):
                for callback in self._callbacks:
                    callback.releasing(lines)
            case Began():
                return self._begin(event)
            case Advanced():
                return self._advance(event)
            case Ended(problem=problem, watched=True):
                self._watching.remove(problem)
                self._leave(problem)
        return None

    def _recall(self, event: Recalled) -> list[Total] | None:
        """Return what the journal has for the next questions of a stage."""
        entry = self._journal.get(event.stage)
        if entry is None or entry.used >= len(entry.totals):
            return None
        found = entry.totals[entry.used : entry.used + event.number]
        entry.used += event.number
        return [unpack_total(total) for total in found]

    def _exchange(self, asked: Sequence[Asked]) -> Exchanges[list[Total]]:
        """Ask, each question once, and record the totals."""
        totals = yield from self._ask(asked)
        if self._keeping:
            for a, total in zip(asked, totals, strict=True):
                entry = self._journal.setdefault(a.stage, Entry())
                entry.totals.append(total)
                entry.used += 1
            self._changed = True
        return totals

    def _ask(self, asked: Sequence[Asked]) -> Exchanges[list[Total]]:
        prints = [self._meter.print_of(a.question) for a in asked]
        once = dict(reversed(list(zip(prints, asked, strict=True))))
        marks = list(dict.fromkeys(prints))
        for callback in self._callbacks:
            callback.asking([a.stage for a in asked])
        try:
            totals = yield [once[mark].question for mark in marks]
        except Exception as error:
            error.add_note(self._where(asked))
            raise
        known = dict(zip(marks, totals, strict=True))
        self._meter.charge([(once[m], m, known[m]) for m in marks])
        return [known[mark] for mark in prints]

    def _where(self, asked: Sequence[Asked]) -> str:
        parts = [
            f"{a.question.kind} of '{' / '.join(a.stage) or 'run'}'" for a in asked
        ]
        return f"while asking question {self._meter.asked + 1}: {', '.join(parts)}"

    def print_of(self, question: Question[Any]) -> int:
        """Return a hash of all that the answer to a question depends on."""
        return self._meter.print_of(question)

    def _begin(self, event: Began) -> Progress:
        entry = self._journal.setdefault(event.stage, Entry())
        at = event.fresh
        if isinstance(entry.progress, Mapping):
            at = unpack_progress(entry.progress, at)
        if event.watched:
            self._watching.append(event.problem)
            for callback in self._callbacks:
                callback.before(event.problem, event.planned_rounds)
        return at

    def _advance(self, event: Advanced) -> bool:
        if self._keeping:
            within = (*event.stage, ROUND)
            for stage in [s for s in self._journal if s[: len(within)] == within]:
                del self._journal[stage]
            # One assignment: what came before this round is no longer needed.
            self._journal[event.stage] = Entry(event.progress)
            self._changed = True
        if event.watched:
            self._rounds = event.progress.rounds
        if not event.watched or event.row is None:
            return False
        # All are called, whatever the first of them says.
        seen = [c.after_round(event.problem, event.row) for c in self._callbacks]
        return any(seen)

    def _leave(self, problem: Problem) -> None:
        for callback in self._callbacks:
            callback.after(problem)

    def _resume(self, identity: Mapping[str, Any]) -> None:
        """Read the journal of the same run, if one was stopped."""
        if self._keeper is None or self._keeping:
            return
        self._keeping = True
        self._keeper.identity = identity
        saved = self._keeper.load()
        if saved is None:
            return
        self._started -= saved["seconds"]
        self._rounds = saved["rounds"]
        try:
            self._meter.restore(saved["cost"])
            self._journal = {
                tuple(name.split("/")): Entry(entry["progress"], list(entry["totals"]))
                for name, entry in saved["stages"].items()
            }
        except MISSHAPEN as error:
            raise Unreadable(f"its stages are none: {error!r}") from error

    def _offer(self) -> None:
        if self._changed and self._keeping and self._keeper is not None:
            self._changed = False
            self._keeper.offer(self._tree)

    def _flush(self) -> None:
        if self._keeper is not None:
            self._keeper.flush()

    def _tree(self) -> dict[str, Any]:
        """Return the journal as plain values and arrays."""
        return {
            "rounds": self._rounds,
            "seconds": time.monotonic() - self._started,
            "cost": self._meter.tree(),
            "stages": {
                "/".join(stage): {
                    "progress": pack_progress(entry.progress),
                    "totals": [pack_total(total) for total in entry.totals],
                }
                for stage, entry in self._journal.items()
                if entry.progress is not None or entry.totals
            },
        }


def pack_total(total: Any) -> Any:
    """Return a total as a tree; one that comes from a journal is a tree already."""
    if isinstance(total, Mapping):
        return total
    return {"total": type(total).__name__, "arrays": total.arrays()}


def unpack_total(tree: Any) -> Any:
    """Return a recorded total."""
    if not isinstance(tree, Mapping):
        return tree
    kinds = {q.total_type.__name__: q.total_type for q in Question.kinds.values()}
    try:
        return kinds[tree["total"]].from_arrays(tree["arrays"], {})
    except (Malformed, KeyError, TypeError, AttributeError) as error:
        raise ArtefactError(
            f"[bad-checkpoint] a recorded total cannot be read: {error}"
        ) from error


def pack_progress(progress: Progress | Mapping[str, Any] | None) -> Any:
    """Return where a method stands as a tree; the history as columns."""
    if not isinstance(progress, Progress):
        return progress
    return {
        "state": encode(progress.state),
        "good": encode(progress.good),
        "rounds": progress.rounds,
        "ended": progress.ended,
        "bounds": None if progress.bounds is None else list(progress.bounds),
        "history": _columns(progress.history),
    }


def unpack_progress(tree: Mapping[str, Any], fresh: Progress) -> Progress:
    """Return where a method stood; `fresh` is where it would begin."""
    try:
        log = _rows(tree["history"])
        known = (Point, Expansion, type(fresh.state))  # a state may keep another one
        return Progress(
            decode(tree["state"], fresh.state, known=known),
            decode(tree["good"], fresh.state, known=known),
            int(tree["rounds"]),
            log,
            len(log),
            bool(tree["ended"]),
            None if tree["bounds"] is None else tuple(tree["bounds"]),
        )
    except MISSHAPEN as error:
        raise Unreadable(f"where a method stood is missing: {error!r}") from error


NUMBERS = ("risk", "upper", "seconds", "loss")  # of a `Round`
VECTORS = ("violation", "multipliers")


def _columns(history: Sequence[Round]) -> dict[str, Any]:
    """Return the history as arrays; a gap that was not measured is NaN."""
    n = len(history)
    columns: dict[str, Any] = {
        name: np.array([getattr(row, name) for row in history], dtype=np.float64)
        for name in (*NUMBERS, *VECTORS)
    }
    gaps = [np.nan if row.gap is None else row.gap for row in history]
    numbers = [row.number for row in history]
    for name in VECTORS:
        columns[name] = columns[name].reshape(n, -1) if n else np.zeros((0, 0))
    return {
        **columns,
        "gap": np.array(gaps, dtype=np.float64),
        "number": np.array(numbers, dtype=np.int64),
    }


def _rows(columns: Mapping[str, Any]) -> list[Round]:
    plain = {name: columns[name].tolist() for name in (*NUMBERS, "gap", "number")}
    return [
        Round(
            number=plain["number"][i],
            risk=plain["risk"][i],
            violation=np.array(columns["violation"][i]),
            multipliers=np.array(columns["multipliers"][i]),
            upper=plain["upper"][i],
            gap=None if np.isnan(plain["gap"][i]) else plain["gap"][i],
            seconds=plain["seconds"][i],
            loss=plain["loss"][i],
        )
        for i in range(len(plain["number"]))
    ]


class Meter:
    """Counts what is asked, stage by stage."""

    def __init__(self, silos: int) -> None:
        self._silos = silos
        self._rows = 0.0  # of a silo, on average
        self._tallies: dict[Stage, Tally] = {}
        self._tasks: dict[int, tuple[Task, bytes]] = {}
        self._networks: list[Model] = []

    @property
    def asked(self) -> int:
        """Questions asked so far."""
        return sum(tally.asked for tally in self._tallies.values())

    def cost(self, stage: Stage) -> Cost:
        """What a stage, and the stages inside it, have cost so far."""
        found = [t for s, t in self._tallies.items() if s[: len(stage)] == stage]
        return Cost(
            sum(tally.asked for tally in found),
            len(set().union(*(tally.prints for tally in found))),
            sum(tally.messages for tally in found),
            sum(tally.gradients for tally in found),
            sum(tally.sent for tally in found),
            sum(tally.received for tally in found),
        )

    def charge(self, answered: Sequence[tuple[Asked, int, Total]]) -> None:
        """Count questions that went out together."""
        for place, (asked, mark, total) in enumerate(answered):
            if isinstance(total, CensusTotal):
                self._rows = float(total.rows.mean())
                continue
            tally = self._tallies.setdefault(asked.stage, Tally())
            some = asked.question.silos
            silos = self._silos if some is None else len(some)
            tally.asked += 1
            tally.messages += place == 0
            tally.prints.add(mark)
            tally.gradients += asked.question.gradients(self._rows)
            tally.sent += silos * BYTES * asked.question.numbers
            tally.received += silos * BYTES * total.numbers

    def print_of(self, question: Question[Any]) -> int:
        """Return a hash of all that the answer to a question depends on."""
        digest = hashlib.blake2b(type(question).__name__.encode(), digest_size=8)
        for part in fields(question):
            value = getattr(question, part.name)
            content = self._task(value) if isinstance(value, Task) else _bytes(value)
            digest.update(part.name.encode() + content)
        return int.from_bytes(digest.digest())

    def _task(self, task: Task) -> bytes:
        """Bounds are no part of it: no answer depends on them."""
        if id(task) not in self._tasks:
            if len(self._tasks) >= MOST_TASKS:  # some methods make one in every round
                self._tasks.clear()
            cells, inputs = task.cells, task.model.inputs
            scaling = (*inputs.arrays, str(task.model.target))
            parts = (self._model(task.model), *scaling)
            more = (cells.membership, cells.silo, task.shares)
            content = b"".join(map(_bytes, (*parts, *more)))
            self._tasks[id(task)] = (task, hashlib.blake2b(content).digest())
        return self._tasks[id(task)][1]

    def _model(self, model: Model) -> list[object]:
        """Tell models apart: linear ones by what they are, networks one by one."""
        place = 0
        if not model.linear:
            known = [place for place, one in enumerate(self._networks) if one is model]
            place = known[0] if known else len(self._networks)
            self._networks += [] if known else [model]
        return [dict(model.describe()), place]

    def tree(self) -> dict[str, Any]:
        """Plain form, for the journal."""
        return {
            "rows": self._rows,
            "stages": {
                "/".join(stage): {
                    **{k: v for k, v in vars(tally).items() if k != "prints"},
                    "prints": np.array(sorted(tally.prints), dtype=np.uint64).view(
                        np.int64
                    ),
                }
                for stage, tally in self._tallies.items()
            },
        }

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Go on counting where a journal stands."""
        for name, entry in tree["stages"].items():
            prints = np.asarray(entry["prints"], dtype=np.int64).view(np.uint64)
            self._tallies[tuple(name.split("/"))] = Tally(
                **{**entry, "prints": set(prints.tolist())}
            )


@dataclass
class Tally:
    """The meter of one stage; `prints` are hashes of its questions."""

    asked: int = 0
    messages: int = 0
    gradients: float = 0.0
    sent: int = 0
    received: int = 0
    prints: set[int] = field(default_factory=set)


def _bytes(value: object) -> bytes:
    if isinstance(value, np.ndarray):
        return repr(value.shape).encode() + np.ascontiguousarray(value).tobytes()
    return repr(value).encode()
