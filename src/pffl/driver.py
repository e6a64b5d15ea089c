"""The driver: what carries a flow's queries to silos, and what it writes down.

`drive` is the only loop. It drops what is asked twice in a message, shows rounds to
callbacks, and writes down what it hears, so that a run that was stopped anywhere begins
anew, first hears what it heard, and ends as if it had not been stopped.

    checkpoint.log    what the run is, then one record per message
    checkpoint.toml   the run file (written by `pffl run` only)

A record is a length and a checksum of four bytes each, then a header (the digest of the
queries, the kinds of the totals, the seconds so far) and the arrays of the totals. What
a crash left unfinished at the end is dropped. The file is its owner's alone, and goes
away when the run is finished.
"""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.callbacks import Callback
from pffl.engines.base import Engine
from pffl.errors import ArtefactError, Malformed
from pffl.flow import Flow, Round, Signal
from pffl.processors import blas_threads
from pffl.queries import Query, ReleasedSums, Total
from pffl.tensors import Parcel, pack, unpack

R = TypeVar("R")
LOG = "checkpoint.log"
SPEC = "checkpoint.toml"
FORMAT = "pffl checkpoint"
VERSION = 6
MAX_LOG_BYTES = 2 << 30
SYNC_SECONDS = 1.0  # between two times that it is forced to the disk


def drive(
    engine: Engine,
    flow: Flow[R],
    *,
    callbacks: Sequence[Callback] = (),
    log: Log | None = None,
    meter: Meter | None = None,
) -> R:
    """Carry a flow's queries to an engine; return what the flow returns.

    An interruption (Ctrl-C) is thrown into the flow, which may end its training and go
    on; any other error ends it.
    """
    began = time.monotonic() - (0.0 if log is None else log.seconds)
    step: Callable[[Any], Signal] = flow.send
    value: Any = None
    number = 0
    try:
        with blas_threads(1), DeferredSignals() as signals:

            def ask(queries: list[Query[Any]]) -> list[Total]:
                for callback in callbacks:
                    callback.asking(queries)
                try:
                    with signals.allowed():
                        return engine.ask_many(queries)
                except Exception as error:
                    kinds = ", ".join(query.kind for query in queries)
                    error.add_note(f"while asking message {number}: {kinds}")
                    raise

            while True:
                try:
                    told = step(value)
                except StopIteration as done:
                    result: R = done.value
                    return result
                try:
                    step = flow.send
                    if isinstance(told, Round):
                        # All are called, whatever the first of them says.
                        seen = [callback.after_round(told) for callback in callbacks]
                        value = time.monotonic() - began, any(seen)
                        continue
                    number += 1
                    once: dict[bytes, Query[Any]] = {}
                    for query in told:
                        once.setdefault(query.digest, query)
                    asked = b"".join(once)
                    totals = None if log is None else log.recall(asked)
                    if totals is None:
                        totals = ask(list(once.values()))
                        if log is not None:
                            log.record(asked, totals, time.monotonic() - began)
                    elif number == 1 and log is not None and log.counted:
                        log.compare(totals, ask(list(once.values())))
                    found = dict(zip(once, totals, strict=True))
                    value = [found[query.digest] for query in told]
                    if meter is not None:
                        meter.count(told)
                except KeyboardInterrupt as stop:
                    # What is asked from here on is about a model that is unfinished.
                    log, value, step = None, stop, flow.throw
    finally:
        flow.close()
        for callback in callbacks:
            callback.ended()


class DeferredSignals:
    """Holds a signal such as Ctrl-C back until it is allowed, during an exchange.

    A flow has many parts, and an interruption must reach all of them, not the one at
    whose lines it happens to come. A second signal is not held back.
    """

    def __enter__(self) -> DeferredSignals:
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
            if signal.getsignal(number) == self._take:  # else it was replaced meanwhile
                signal.signal(number, handler)

    def _take(self, number: int, frame: Any) -> None:
        if self._open or self._due:
            self._before[number](number, frame)
        else:
            self._due.append(number)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let a signal come: the one that was held back, or one that comes now."""
        self._open = True
        try:
            while self._due:
                number = self._due.pop()
                self._before[number](number, None)
            yield
        finally:
            self._open = False


class Meter:
    """Counts what is asked, the census left out."""

    def __init__(self) -> None:
        self._asked: list[bytes] = []
        self._messages = 0

    def count(self, queries: Sequence[Query[Any]]) -> None:
        """Count a message."""
        new = {query.digest for query in queries if not query.counts_rows}
        self._asked += new
        self._messages += bool(new)

    @property
    def cost(self) -> dict[str, int]:
        """Queries, different ones among them, and messages."""
        asked, distinct = len(self._asked), len(set(self._asked))
        return {"asked": asked, "distinct": distinct, "messages": self._messages}


# The log


class Log:
    """What a run in a directory has heard.

    Parameters
    ----------
    directory
        Where the file lies; made with the first record.

    Attributes
    ----------
    seconds
        What the run took until its last record.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.path = self.directory / LOG
        self.seconds = 0.0
        self._identity: dict[str, Any] = {}
        self._records: list[bytes] = []
        self._size = self._recalled = 0
        self._forced = -math.inf
        if self.path.is_file():
            self._read(files.read(self.path, largest=MAX_LOG_BYTES))

    @property
    def seed(self) -> int | None:
        """Seed of the run that was stopped; None without one."""
        seed = self._identity.get("run", {}).get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def messages(self) -> int:
        """Messages that were recorded."""
        return len(self._records)

    def begin(self, **parts: Any) -> None:
        """Say what the run follows from: a log of another one is refused (fault 67)."""
        plain = json.dumps({"version": VERSION, **parts}, default=_plain)
        now = dict(json.loads(plain, parse_constant=str))
        listing = "\n".join(differences(self._identity or now, now))
        if listing:
            raise ArtefactError("other-run:begin", path=self.path, listing=listing)
        self._identity = now

    def recall(self, digest: bytes) -> list[Total] | None:
        """Return the totals of the next message, if it was recorded."""
        if self._recalled >= len(self._records):
            return None
        kinds = {q.total_type.__name__: q.total_type for q in Query.kinds.values()}
        kinds[ReleasedSums.__name__] = ReleasedSums
        try:
            parcel = unpack(self._records[self._recalled])
            names = list(map(str, parcel.header["kinds"]))
            found: list[dict[str, NDArray[Any]]] = [{} for _ in names]
            for key, array in parcel.arrays.items():
                place, name = key.split("/")
                found[int(place)][name] = array
            totals = [
                kinds[n].from_arrays(a) for n, a in zip(names, found, strict=True)
            ]
            self.seconds = float(parcel.header["seconds"])
            same = parcel.header["digest"] == digest.hex()
        except (Malformed, LookupError, TypeError, ValueError) as error:
            raise ArtefactError(
                "bad-checkpoint", path=self.path, error=error
            ) from error
        if not same:
            raise ArtefactError(
                "other-run:recall", path=self.path, recalled=self._recalled + 1
            )
        self._recalled += 1
        return totals

    @property
    def counted(self) -> bool:
        """Whether the first message counts rows, and may be sent again to compare."""
        return "privacy" not in self._identity

    def compare(self, recalled: Sequence[Total], heard: Sequence[Total]) -> None:
        """Refuse to go on where rows have changed that cannot be read here."""
        if pack(Parcel({}, _arrays(recalled))) != pack(Parcel({}, _arrays(heard))):
            raise ArtefactError("other-run:compare", path=self.path)

    def record(self, digest: bytes, totals: Sequence[Total], seconds: float) -> None:
        """Write down what was heard, as long as there is room."""
        header = {
            "digest": digest.hex(),
            "kinds": [type(total).__name__ for total in totals],
            "seconds": seconds,
        }
        framed = _framed(pack(Parcel(header, _arrays(totals))))
        if self._recalled > len(self._records):
            return
        if self._size + len(framed) > MAX_LOG_BYTES:
            self._recalled = len(self._records) + 1  # no record fits behind a gap
            warnings.warn(
                f"'{self.path}' is full: if this run is stopped, it resumes after "
                f"message {self.messages}",
                stacklevel=2,
            )
            return
        try:
            if not self._size:
                files.folder(self.directory)
                files.make_private(self.path)
                known = {"format": FORMAT, "identity": self._identity}
                framed = _framed(pack(Parcel(known))) + framed
            with open(self.path, "r+b") as stream:
                stream.seek(self._size)
                stream.truncate()  # what a crash left unfinished
                stream.write(framed)
                stream.flush()
                if time.monotonic() - self._forced >= SYNC_SECONDS:
                    os.fsync(stream.fileno())
                    self._forced = time.monotonic()
        except OSError as error:
            with suppress(OSError):
                os.truncate(self.path, self._size)
            raise files.cannot_write(self.path, error) from error
        self._size += len(framed)
        self._records.append(b"")  # not read again
        self._recalled, self.seconds = len(self._records), seconds

    def remove(self) -> None:
        """Remove the files: the run is over."""
        files.remove([self.path, self.directory / SPEC])

    def _read(self, content: bytes) -> None:
        """Read what a stopped run left, as far as it is whole."""
        bodies, place = [], 0
        while place + 8 <= len(content):
            size, known = struct.unpack_from("<II", content, place)
            body = content[place + 8 : place + 8 + size]
            if len(body) < size or zlib.crc32(body) != known:
                break
            bodies.append(body)
            place += 8 + size
        try:
            header = unpack(bodies[0]).header
            if header["format"] != FORMAT:
                raise Malformed("another format")
            self._identity = dict(header["identity"])
            if len(bodies) > 1:
                self.seconds = float(unpack(bodies[-1]).header["seconds"])
        except (Malformed, LookupError, TypeError, ValueError):
            if not self._identity:
                warnings.warn(
                    f"'{self.path}' cannot be read: the run begins anew", stacklevel=3
                )
                return
        self._records, self._size = bodies[1:], place


def _framed(body: bytes) -> bytes:
    return struct.pack("<II", len(body), zlib.crc32(body)) + body


def _arrays(totals: Sequence[Total]) -> dict[str, NDArray[Any]]:
    """Return the arrays of totals by place and name."""
    return {
        f"{place}/{name}": array
        for place, total in enumerate(totals)
        for name, array in total.arrays().items()
    }


def _plain(value: Any) -> Any:
    """Return what JSON can hold; an array is named by its hash."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return f"sha256:{files.digest_arrays(value)[:32]}"
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    return dict(value) if isinstance(value, Mapping) else str(value)


def differences(saved: Any, now: Any, key: str = "") -> Iterator[str]:
    """Yield a line for each value in which two tables differ.

    >>> list(differences({"run": {"seed": 1}}, {"run": {"seed": 2}}))
    ['  - run.seed: 1 in the checkpoint, 2 now']
    """
    if isinstance(saved, dict) and isinstance(now, dict):
        for name in sorted(saved.keys() | now.keys()):
            path = f"{key}.{name}" if key else name
            yield from differences(saved.get(name), now.get(name), path)
    elif saved != now:
        old, new = (str(value)[:60] for value in (saved, now))
        yield f"  - {key}: {old} in the checkpoint, {new} now"
