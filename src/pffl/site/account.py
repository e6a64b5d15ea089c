"""A site's privacy account: what all releases with noise about its people have cost.

`privacy.jsonl` has a line for every release, on disk before its answer leaves: append
only, each line with the hash of the one before. `privacy.head` says how many there are,
and the last hash, and `privacy.json` how the account was begun. If a line was changed,
taken out or lost, or a file is gone, the site answers nothing with noise any more:
nobody knows then what was spent.

An account is begun with the first rows that a site prepares, before anything was ever
answered. After that only an administrator begins one (`pffl site ledger --begin`), with
a declaration that the people are others; the account before is kept beside it. So a
site whose account is gone as a whole stops: its prepared rows, its log and the guard's
memory are there still.

There is one account for the site's people, whatever run, rows or preparation: who is in
which part may change with the rows, so that releases about training and held-out rows
are added up. A release that is asked for again, byte for byte, is answered with the
same numbers and costs nothing: they are kept in `released`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

from pffl import files
from pffl.errors import PrivacyBudgetError, Refused
from pffl.parcel import Parcel, pack, unpack
from pffl.privacy.accounting import SLACK, epsilon_of, mu_of

LINES, HEAD, LOCK, KEPT = "privacy.jsonl", "privacy.head", ".privacy.lock", "released"
OPENING = "privacy.json"
EARLIER = "privacy-before"  # accounts of other people
SECONDS = 30.0


@dataclass(frozen=True)
class Line:
    """One release.

    Attributes
    ----------
    number, time, run
        Which it is, when, and for which run.
    query
        Digest of what was asked.
    split, mu
        About which rows, and its μ.
    spent
        Σμ² with it.
    before
        Hash of the line before.
    """

    number: int
    time: str
    run: str
    query: str
    split: str
    mu: float
    spent: float
    before: str

    @property
    def hash(self) -> str:
        """SHA-256 of the line."""
        return files.digest(json.dumps(asdict(self), sort_keys=True))


class Account:
    """The account in a site's folder.

    Parameters
    ----------
    folder
        Where it lies.
    epsilon, delta
        What all releases together may come to: `[limits] epsilon, delta` of site.toml.
    """

    def __init__(self, folder: Path, epsilon: float, delta: float) -> None:
        self.folder, self.epsilon, self.delta = folder, epsilon, delta

    @property
    def budget(self) -> float:
        """μ that the limits allow."""
        return mu_of(self.epsilon, self.delta)

    @property
    def begun(self) -> bool:
        """Whether anything of an account is there."""
        names = (OPENING, LINES, HEAD, KEPT)
        return any((self.folder / name).exists() for name in names)

    def begin(self, declared: str = "") -> None:
        """Begin an account; one that is there is put beside, whole or not.

        Parameters
        ----------
        declared
            Why nobody of its people was ever in a release with noise of this site.
        """
        if self.begun:
            place = files.folder(self.folder / EARLIER, private=True)
            place = files.folder(place / f"{time.time_ns()}", private=True)
            for name in (KEPT, LINES, HEAD, OPENING):
                if (self.folder / name).exists():
                    (self.folder / name).rename(place / name)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        plain = {"begun": now, "declared": declared, "key": token_hex(32)}
        files.write(self.folder / LINES, b"", private=True)
        opening = json.dumps(plain)
        head = json.dumps([0, files.digest(opening)])
        files.write(self.folder / HEAD, head.encode(), private=True)
        files.write(self.folder / OPENING, opening.encode(), private=True)

    @property
    def key(self) -> bytes:
        """Key of the hash that says in which split a row is."""
        self.lines()
        return bytes.fromhex(json.loads((self.folder / OPENING).read_text())["key"])

    def lines(self) -> list[Line]:
        """Return all releases; refuse an account that is not whole, or not there."""
        place, head = self.folder / LINES, self.folder / HEAD
        opening = self.folder / OPENING
        if not self.begun:
            raise Refused(
                f"[no-account] this site has no privacy account ({LINES}): it is "
                "gone, or was never begun. Put it back from a copy; only for people "
                "of whom nothing was ever released with noise an administrator may "
                "begin one (pffl site ledger --begin), and prepare the rows again"
            )
        if not (place.is_file() and head.is_file() and opening.is_file()):
            raise Refused(self._broken("a part of it is gone"))
        try:
            first = files.digest(opening.read_text())
            found = [
                Line(**json.loads(text)) for text in place.read_text().splitlines()
            ]
            number, last = json.loads(head.read_text())
        except (OSError, ValueError, TypeError) as error:
            raise Refused(self._broken("it cannot be read")) from error
        before, spent = first, 0.0
        for at, line in enumerate(found, start=1):
            spent += line.mu**2
            same = math.isclose(line.spent, spent, rel_tol=1e-9)
            if (line.number, line.before) != (at, before) or not same:
                raise Refused(self._broken(f"line {at} was changed"))
            before = line.hash
        # A crash between line and head leaves the head one behind: it was charged.
        whole = [(len(found), before)]
        if found:
            whole.append((len(found) - 1, found[-1].before))
        if (number, last) not in whole:
            raise Refused(self._broken("lines were added or taken out"))
        return found

    def _broken(self, why: str) -> str:
        return (
            f"[damaged-account] the privacy account of this site ({LINES}) is not "
            f"whole: {why}. Nobody knows what was spent, and nothing is answered with "
            "noise"
        )

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one process at a time charge."""
        try:
            with files.lock(self.folder / LOCK, seconds=SECONDS, private=True):
                yield
        except files.Locked as error:
            raise Refused(
                "[site-busy] the site is busy with another release"
            ) from error

    @property
    def spent(self) -> float:
        """Σμ² so far."""
        found = self.lines()
        return found[-1].spent if found else 0.0

    def spent_epsilon(self) -> float:
        """Return ε of all releases so far."""
        return epsilon_of(math.sqrt(self.spent), self.delta)

    def kept(self, query: str) -> Parcel | None:
        """Return what was answered to the very same query; None if nothing was."""
        place = self.folder / KEPT / f"{query}.bin"
        if not place.is_file():
            return None
        if query not in {line.query for line in self.lines()}:
            raise Refused(self._broken("it does not know a release that was made"))
        return unpack(place.read_bytes())

    def allow(self, mus: Sequence[float]) -> float:
        """Return Σμ² with releases that come next; refuse them if that is too much."""
        spent = self.spent
        after = spent
        for mu in mus:
            after += mu**2
        if after > self.budget**2 * (1 + SLACK):
            raise PrivacyBudgetError(
                f"[budget-exceeded] {PrivacyBudgetError.said} would take this site's "
                f"account from ε = {epsilon_of(math.sqrt(spent), self.delta):.4g} to "
                f"{epsilon_of(math.sqrt(after), self.delta):.4g}, and "
                f"{self.epsilon:g} is allowed ('epsilon' of [limits] in site.toml)"
            )
        return after

    def charge(self, run: str, query: str, split: str, mu: float) -> None:
        """Enter a release, on disk when it returns; or refuse it and enter nothing."""
        found, after = self.lines(), self.allow([mu])
        first = files.digest((self.folder / OPENING).read_text())
        before = found[-1].hash if found else first
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = Line(len(found) + 1, now, run, query, split, mu, after, before)
        files.append(self.folder / LINES, asdict(line), private=True)
        head = json.dumps([line.number, line.hash])
        files.write(self.folder / HEAD, head.encode(), private=True)

    def keep(self, query: str, body: Parcel) -> None:
        """Keep an answer, to be repeated as it is."""
        place = files.folder(self.folder / KEPT, private=True)
        files.write(place / f"{query}.bin", pack(body), private=True)
