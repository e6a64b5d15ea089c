"""What a site remembers: one SQLite file, `site.db`, append-only and hash-chained.

Consents, answers, refusals and the privacy account are entries of one table. An entry
is on disk before its answer leaves, and holds the hash of the one before: what was
changed or taken out is noticed, and the site then answers nothing. `head` says where
the chain stands; answers carry it, signed, and a server brings the last one back with
its greeting. So a site whose folder was restored from an older copy stops.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pffl import files
from pffl.deploy.keys import SiteKey
from pffl.deploy.messages import framed_digest
from pffl.errors import ArtefactError, PrivacyBudgetError, Refused
from pffl.privacy.accounting import SLACK, epsilon_of, mu_of

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
BEGIN, CONSENT, ANSWER, CHARGE, REFUSAL = (
    "begin",
    "consent",
    "answer",
    "charge",
    "refusal",
)


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
                raise ArtefactError(
                    f"[no-memory] '{self.path}' is not there: put it back from a copy, "
                    "or join anew (pffl site join)"
                )
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
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                self._seen = (0, "")
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
            self._db.execute(
                "INSERT INTO entries VALUES(?,?,?,?,?,?,?,?,?)", (*known, hashed)
            )
            self._db.execute(
                "INSERT OR REPLACE INTO head VALUES(1,?,?)", (number + 1, hashed)
            )
            self._seen = (number + 1, hashed)

    def entries(self, *kinds: str) -> list[MemoryEntry]:
        """Return what is remembered, of these kinds, oldest first."""
        with self.turn():
            rows = self._db.execute(f"SELECT {COLUMNS} FROM entries ORDER BY id")  # noqa: S608
            found = [_entry(row) for row in rows]
        return [entry for entry in found if not kinds or entry.kind in kinds]

    def last(self, kind: str) -> MemoryEntry | None:
        """Return the last entry of a kind."""
        found = self.entries(kind)
        return found[-1] if found else None

    def knows(self, *, mark: str = "", run: str = "") -> bool:
        """Whether a query was answered or charged, or anything of a run."""
        column, value = ("mark", mark) if mark else ("run", run)
        kinds = "kind IN ('answer', 'charge')"
        with self.turn():
            text = f"SELECT 1 FROM entries WHERE {column}=? AND {kinds} LIMIT 1"  # noqa: S608
            return self._db.execute(text, (value,)).fetchone() is not None

    @property
    def answered(self) -> bool:
        """Whether anything was ever answered."""
        return bool(self.entries(ANSWER, CHARGE))

    @property
    def queries(self) -> int:
        """Queries that were answered about the site's people."""
        return int(self._sum("queries"))

    @property
    def spent(self) -> float:
        """Σμ² of all releases with noise about the site's people."""
        return float(self._sum("mu2"))

    def _sum(self, column: str) -> float:
        with self.turn():
            since = "SELECT COALESCE(MAX(id), 0) FROM entries WHERE kind='begin'"
            text = f"SELECT COALESCE(SUM({column}), 0) FROM entries WHERE id>({since})"  # noqa: S608
            return float(self._db.execute(text).fetchone()[0])

    @property
    def head(self) -> tuple[int, str]:
        """How many entries there are, and the hash of the last."""
        found = self._db.execute("SELECT count, hash FROM head").fetchone()
        return (0, "") if found is None else (int(found[0]), str(found[1]))

    def signed_head(self, name: str, key: SiteKey) -> str:
        """Return the head for others to keep."""
        number, hashed = self.head
        text = f"{number}:{hashed}"
        return f"{text}:{key.sign(_head(name, text))}"

    def check_head(self, name: str, key: SiteKey, brought: str) -> None:
        """Stop where a head of its own shows that this memory is older."""
        text, _, signature = brought.rpartition(":")
        if not key.public.verify(_head(name, text), signature):
            return  # not its own: nothing is known from it
        number, hashed = text.split(":")
        with self.turn():
            row = self._db.execute(
                "SELECT hash FROM entries WHERE id=?", (int(number),)
            ).fetchone()
        if int(number) and (row is None or row[0] != hashed):
            raise Refused(
                "[older-copy] this site's memory is older than what it has signed: its "
                "folder was restored from a copy. Put the newest site.db back"
            )

    def allow(self, mu2: Sequence[float], epsilon: float, delta: float) -> None:
        """Refuse releases that would take the account above (ε, δ)."""
        spent = self.spent
        after = math.fsum([spent, *mu2])
        budget = mu_of(epsilon, delta) ** 2 if epsilon else 0.0
        if after > budget * (1 + SLACK):
            now = epsilon_of(math.sqrt(spent), delta) if spent else 0.0
            raise PrivacyBudgetError(
                f"[budget-exceeded] {PrivacyBudgetError.said} would take this site's "
                f"account from ε = {now:.4g} to "
                f"{epsilon_of(math.sqrt(after), delta):.4g}, and {epsilon:g} is "
                "allowed (pffl site join --epsilon)"
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
                raise ArtefactError(
                    f"[disk-full] '{self.path}' cannot be written: no space left on "
                    "the site's disk"
                ) from error
            if "locked" in str(error):
                raise Refused(
                    "[site-busy] the site is busy with another query"
                ) from error
            raise _broken(str(error)) from error
        except sqlite3.DatabaseError as error:
            raise _broken(str(error)) from error


def _entry(row: Sequence[Any]) -> MemoryEntry:
    number, time, kind, run, mark, queries, mu2, body, hashed = row
    known = (number, time, kind, run, mark, queries, mu2)
    return MemoryEntry(*known, json.loads(body), hashed)


def _head(name: str, text: str) -> bytes:
    return framed_digest("pffl head", name, text).encode()


def _broken(why: str) -> ArtefactError:
    return ArtefactError(
        f"[bad-memory] the site's memory ({FILE}) is not whole: {why}. Nothing is "
        "answered any more: nobody knows what was. Put it back from a copy"
    )
