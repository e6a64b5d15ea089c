"""What a site remembers: one SQLite file, `site.db`, append-only and hash-chained.

Consents, answers, refusals and the privacy account are entries of one table. An entry
is on disk before its answer leaves, and holds the hash of the one before: what was
changed or taken out is noticed, and the site then answers nothing. `head` says where
the chain stands; answers carry it, signed, and a server brings the last one back with
its greeting. So a site whose folder was restored from an older copy stops.

For each run a site draws a secret key (X25519) and a seed of its noise. They lie in a
file of their own, mode 600, with the hash of the rows, of the federation and the
floor; the file is removed when the run ends, and is no part of `site.db`. An answer,
noise included, is a function of this record and of the transcript. So a folder that is
restored from a copy can only repeat itself: the same request has the same answer, and
another one another mask.

Under secure sums a request brings what all sites answered to the step before, signed:
to the first, their keys of the run. Sites that were shown different things have
different transcripts, and their masks do not cancel.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from pffl import files
from pffl.deploy import messages, secure_sum
from pffl.deploy.federation import Agreement
from pffl.deploy.keys import SiteKey, announced, shared
from pffl.deploy.messages import OURS, Request, framed_digest, read_answer
from pffl.deploy.secure_sum import Words
from pffl.errors import ArtefactError, Malformed, PrivacyBudgetError, Refused
from pffl.privacy.discrete import Source, keyed_source
from pffl.privacy.terms import SLACK, epsilon_of, mu_of
from pffl.tensors import Parcel

FILE = "site.db"
SECONDS = 30.0  # to wait for another process that answers at the same time
COLUMNS = "id, time, kind, run, mark, queries, mu2, body, hash"
SCHEMA = """
CREATE TABLE IF NOT EXISTS entries(
  id INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, run TEXT NOT NULL,
  mark TEXT NOT NULL, queries INTEGER NOT NULL, mu2 REAL NOT NULL, body TEXT NOT NULL,
  hash TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS marks ON entries(mark);
CREATE TABLE IF NOT EXISTS head(one INTEGER PRIMARY KEY, count INTEGER, hash TEXT);
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON entries
  BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON entries
  BEGIN SELECT RAISE(ABORT, 'append only'); END;
"""
BEGIN, CONSENT, REFUSAL = "begin", "consent", "refusal"
ANSWER, CHARGE = "answer", "charge"  # without noise, and with it


@dataclass(frozen=True)
class MemoryEntry:
    """One thing that a site remembers.

    Attributes
    ----------
    number, time, kind
        Its place, when it was written, and what it is.
    run, mark
        Of an answer or a charge: the run, and what tells the query from all others.
    queries, mu2
        What it counts for in the limit on queries, and in the privacy account.
    body
        What else there is to know; no figure of the rows.
    hash
        Of the entry and all before it.
    """

    number: int
    time: str
    kind: str
    run: str
    mark: str
    queries: int
    mu2: float
    body: Mapping[str, Any]
    hash: str


class SiteMemory:
    """The memory of a site.

    Parameters
    ----------
    folder
        The site's folder; None for the memory of this process.
    new
        Whether to make one that is not there.
    """

    def __init__(self, folder: Path | None, *, new: bool = True) -> None:
        self.path = None if folder is None else folder / FILE
        if self.path is not None and not self.path.exists():
            if not new:
                raise ArtefactError("no-memory", path=self.path)
            files.make_private(self.path)
        self._lock, self._seen = threading.RLock(), (0, "")
        where = ":memory:" if self.path is None else str(self.path)
        self._db = sqlite3.connect(
            where, timeout=SECONDS, isolation_level=None, check_same_thread=False
        )
        weakref.finalize(self, self._db.close)  # of sites in this process
        with self._errors():
            self._db.execute("PRAGMA journal_mode=DELETE")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(SCHEMA)

    def close(self) -> None:
        """Let the file go."""
        self._db.close()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one answer at a time be given, over all processes; all of it or none."""
        with self._lock, self._errors():
            if self._db.in_transaction:
                yield
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._check_chain()
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._seen = (0, "")
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def add(
        self,
        kind: str,
        body: Mapping[str, Any],
        *,
        run: str = "",
        mark: str = "",
        queries: int = 0,
        mu2: float = 0.0,
    ) -> None:
        """Append an entry; on disk when its turn ends."""
        with self.turn():
            number, before = self.head
            now = datetime.now(UTC).isoformat(timespec="seconds")
            text = json.dumps(body, sort_keys=True)
            known = (number + 1, now, kind, run, mark, queries, mu2, text)
            hashed = framed_digest(before, *map(repr, known))
            self._seen, places = (number + 1, hashed), "?,?,?,?,?,?,?,?,?"
            self._db.execute(f"INSERT INTO entries VALUES({places})", (*known, hashed))
            self._db.execute("INSERT OR REPLACE INTO head VALUES(1,?,?)", self._seen)

    def entries(self, *kinds: str) -> list[MemoryEntry]:
        """Return what is remembered, of these kinds, oldest first."""
        with self.turn():
            rows = self._db.execute(f"SELECT {COLUMNS} FROM entries ORDER BY id")  # noqa: S608
            return [
                MemoryEntry(*(*row[:7], json.loads(row[7]), row[8]))
                for row in rows
                if not kinds or row[2] in kinds
            ]

    def last(self, kind: str) -> MemoryEntry | None:
        """Return the last entry of a kind."""
        return next(reversed(self.entries(kind)), None)

    def knows(self, *, mark: str = "", run: str = "") -> bool:
        """Whether a query was answered or charged, or anything of a run."""
        of = "(mark=? OR run=?) AND kind IN ('answer', 'charge')"
        known = (mark or None, run or None)  # nothing equals NULL
        return bool(self._sum(f"SELECT COUNT(*) FROM entries WHERE {of}", *known))  # noqa: S608

    @property
    def answered(self) -> bool:
        """Whether anything was ever answered."""
        return bool(self.entries(ANSWER, CHARGE))

    @property
    def queries(self) -> int:
        """Queries that were answered about the site's people."""
        return int(self._sum("SELECT SUM(queries) FROM entries"))

    @property
    def spent(self) -> float:
        """Σμ² of all releases with noise about the site's people."""
        return self._sum("SELECT SUM(mu2) FROM entries")

    def _sum(self, text: str, *known: str | None) -> float:
        with self.turn():
            return float(self._db.execute(text, known).fetchone()[0] or 0)

    @property
    def head(self) -> tuple[int, str]:
        """How many entries there are, and the hash of the last."""
        found = self._db.execute("SELECT count, hash FROM head").fetchone()
        return (0, "") if found is None else (int(found[0]), str(found[1]))

    def signed_head(self, name: str, key: SiteKey) -> str:
        """Return the head for others to keep."""
        text = "{}:{}".format(*self.head)
        return f"{text}:{key.sign(_head(name, text))}"

    def check_head(self, name: str, key: SiteKey, brought: str) -> None:
        """Stop where its own head shows that this memory is older."""
        text, _, signature = brought.rpartition(":")
        if not key.public.verify(_head(name, text), signature):
            return  # not its own: nothing is known from it
        number, hashed = text.split(":")
        own = {entry.number: entry.hash for entry in self.entries()}
        if int(number) and own.get(int(number)) != hashed:
            raise Refused("older-copy")

    def allow(self, mu2: Sequence[float], epsilon: float, delta: float) -> None:
        """Refuse releases that would take the account above (ε, δ)."""
        spent = self.spent
        after = math.fsum([spent, *mu2])
        budget = mu_of(epsilon, delta) ** 2 if epsilon else 0.0
        if after > budget * (1 + SLACK):
            now = epsilon_of(math.sqrt(spent), delta) if spent else 0.0
            then = epsilon_of(math.sqrt(after), delta)
            raise PrivacyBudgetError(
                "budget-exceeded:allow",
                said=PrivacyBudgetError.said,
                now=now,
                then=then,
                epsilon=epsilon,
            )

    def _check_chain(self) -> None:
        """Stop where an entry was changed, taken out or lost."""
        number, before = self._seen
        if number and (number, before) == self.head:
            return
        rows = self._db.execute(
            f"SELECT {COLUMNS} FROM entries WHERE id>? ORDER BY id",  # noqa: S608
            (number,),
        )
        for row in rows:
            number += 1
            if row[0] != number or framed_digest(before, *map(repr, row[:8])) != row[8]:
                raise _broken(f"entry {number} was changed or is gone")
            before = row[8]
        if (number, before) != self.head:
            raise _broken("its last entries are gone")
        self._seen = (number, before)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say in our words what SQLite says of its file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "full" in str(error) or "disk I/O" in str(error):
                why = f"'{self.path}' cannot be written: no space left on the disk"
                raise ArtefactError(f"[disk-full] {why}") from error
            if "locked" in str(error):
                raise Refused("site-busy") from error
            raise _broken(str(error)) from error
        except sqlite3.DatabaseError as error:
            raise _broken(str(error)) from error


def _head(name: str, text: str) -> bytes:
    return framed_digest("pffl head", name, text).encode()


def _broken(why: str) -> ArtefactError:
    return ArtefactError("bad-memory:broken", file=FILE, why=why)


FOLDER, SUFFIX = "runs", ".json"
LASTS = 30 * 86400.0  # seconds after which a run that never ended is forgotten
NOTHING = messages.bodies_digest(())  # what a greeting asks


@dataclass(frozen=True, eq=False)
class RunRecord:
    """Where a run stands at a site, after its last answer.

    Attributes
    ----------
    transcript
        What was said before it.
    secret, seed
        Of this run alone, from which its masks and its noise come, in hexadecimal.
    step, asked, answer
        The last step that was answered, the digest of its queries, and what was sent.
    keys
        What all sites announced, in their order, once that was heard.
    identity
        What the run began with: it does not go on with another.
    shared_sets
        Of each split, which sets of people enough sites have; None before that is
        known, or without a question.
    """

    transcript: str
    secret: str = field(repr=False)
    seed: str = field(repr=False)
    step: int = 0
    asked: str = NOTHING
    keys: tuple[str, ...] = ()
    shared_sets: Mapping[str, list[bool]] | None = None
    identity: Mapping[str, str] = field(default_factory=dict)
    answer: bytes = field(default=b"", repr=False)

    __pydantic_config__: ClassVar = messages.KEPT

    @property
    def own_key(self) -> Words:
        """The site's key of the run, as words."""
        return np.frombuffer(announced(bytes.fromhex(self.secret)), "<u8")

    @property
    def words(self) -> Words:
        """The masked words that the site sent last: before the first step, its key."""
        if not self.step:
            return self.own_key
        return messages.read_masked(read_answer(self.answer))

    def said(self, request: Request) -> str:
        """Return a hash of all that was said, this request included."""
        return framed_digest(self.transcript, request.asked, str(request.step))

    def marks(self, request: Request) -> list[str]:
        """Return what tells each query of a step from all others."""
        said = self.said(request)
        return [framed_digest(said, str(k)) for k in range(len(request.bodies))]

    def source(self, request: Request) -> Source:
        """Return what this step's noise is drawn from: the same for the same step."""
        seed, said = bytes.fromhex(self.seed), self.said(request).encode()
        return keyed_source(hmac.digest(seed, b"pffl noise" + said, "sha256"))


KEEPER = TypeAdapter(RunRecord)


class Records:
    """The runs of a site.

    Parameters
    ----------
    name, agreement
        Which of the sites it is, and what they agreed on.
    known
        What answers follow from, besides the run's secrets and what was said: the hash
        of the rows, the floor. A run does not go on over others.
    folder
        The site's folder; None for the memory of this process.
    """

    def __init__(
        self,
        name: str,
        agreement: Agreement,
        known: Mapping[str, str],
        folder: Path | None,
    ) -> None:
        self.name, self.agreement = name, agreement
        self.index = agreement.sites.index(name)
        self._known = {"site": name, **known, "version": OURS}
        self._folder = None if folder is None else folder / FOLDER
        self.memory: dict[str, RunRecord] = {}

    def find(self, run: str) -> RunRecord | None:
        """Return where a run stands; None if the site knows nothing of it."""
        path = self._path(run)
        if path is None or not path.exists():
            return self.memory.get(run)
        try:
            found: RunRecord = KEEPER.validate_json(files.read(path))
        except ValidationError as error:
            why = f"'{path.name}' cannot be read, and the run does not go on"
            raise Refused(f"[memory-lost] {why}") from error
        own = self._identity(run)
        if others := [name for name in own if found.identity.get(name) != own[name]]:
            which = " and ".join(others)
            raise Refused("other-run:find", which=which)
        return found

    def first(self, run: str) -> str:
        """Return the transcript of a run in which nothing was said."""
        return messages.first_transcript(self.agreement.hash, run)

    def begin(self, run: str) -> RunRecord:
        """Draw a run's secrets: nothing was said, and no key but its own is known."""
        secret, seed = (os.urandom(32).hex() for _ in range(2))
        own = self._identity(run)
        return RunRecord(self.first(run), secret, seed, identity=own)

    def save(self, run: str, record: RunRecord) -> None:
        """Remember where a run stands; on disk when it returns."""
        path = self._path(run)
        if path is None:
            self.memory[run] = record
            return
        files.folder(path.parent, private=True)
        files.write(path, KEEPER.dump_json(record), private=True)

    def end(self, run: str | None = None) -> None:
        """Forget a run, with its secrets; of None, those that never ended in time."""
        if run is not None:
            self.memory.pop(run, None)
            shared.cache_clear()
        old = time.time() - LASTS
        for path in self._folder.glob(f"*{SUFFIX}") if self._folder else ():
            if path.stat().st_mtime < old or (run and path == self._path(run)):
                path.unlink()

    def hear(self, record: RunRecord, request: Request) -> tuple[RunRecord, Words]:
        """Check the answers to the last step, and go on with their transcript.

        Return also their sum, which tells totals over all sites.
        """
        if not self.agreement.secure_sum:
            if request.relay:
                raise Refused("wrong-relay:hear")
            said = messages.next_transcript(record.transcript, record.asked)
            return replace(record, transcript=said), np.zeros(0, np.uint64)
        flats = self._relayed(record, request)
        said = messages.next_transcript(record.transcript, record.asked, flats)
        record, keys = replace(record, transcript=said), record.keys
        if not record.step:
            keys = tuple(flat.astype("<u8").tobytes().hex() for flat in flats)
            if len(set(keys)) < len(keys):
                raise Refused("repeated-key:hear")
        return replace(record, keys=keys), secure_sum.add(flats)

    def masked(self, record: RunRecord, request: Request, flat: Words) -> Parcel:
        """Return an answer's numbers under masks."""
        every = zip(self.agreement.sites, record.keys, strict=True)
        others = {site: bytes.fromhex(k) for site, k in every if site != self.name}
        info = framed_digest(record.said(request), *record.keys).encode()
        secret = bytes.fromhex(record.secret)
        mask = secure_sum.mask(secret, self.name, others, info, len(flat))
        return messages.masked_body(secure_sum.add([flat, mask]))

    def _relayed(self, record: RunRecord, request: Request) -> list[Words]:
        """Return every site's masked words, in the sites' order."""
        sites, step = self.agreement.sites, record.step
        if len(request.relay) != len(sites):
            many = f"{len(request.relay)} answers of {len(sites)} sites"
            raise Refused("wrong-relay:relayed", many=many, step=step)
        own, flats = record.words, list[Words]()
        wanted = {"run": request.run, "step": step, "refusal": ""}
        wanted |= {"transcript": record.transcript, "asked": record.asked}
        for site, content in zip(sites, request.relay, strict=True):
            said = f"what was relayed as the answer of '{site}' to step {step}"
            try:
                answer = read_answer(content)
                for name, value in {"site": site, **wanted}.items():
                    if getattr(answer, name) != value:
                        raise Malformed(f"its '{name}' is another")
                flats.append(messages.read_masked(answer, len(own)))
            except Malformed as error:
                raise Refused(
                    "wrong-relay:relayed-2", said=said, error=error
                ) from error
            if not messages.is_signed(answer, self.agreement.keys[site]):
                raise Refused("not-signed:relayed", said=said)
        if not np.array_equal(flats[self.index], own):
            raise Refused("wrong-relay:relayed-3", step=step)
        return flats

    def _path(self, run: str) -> Path | None:
        """Where a run is remembered: its name is the server's to choose."""
        if self._folder is None:
            return None
        return self._folder / f"{files.digest(run)[:32]}{SUFFIX}"

    def _identity(self, run: str) -> dict[str, str]:
        return {**self._known, "run": run, "federation": self.agreement.hash}
