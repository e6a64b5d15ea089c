"""Release is counted: how many numbers ever left about which rows, over all runs.

Inputs of n rows are n·d unknowns (no more than there are possible rows, of which it is
how often each is there; and where these can be listed, two a row are enough to find
who is there), and every number that leaves is an equation in them: with as
many equations as unknowns, rows can be computed. So no set of rows, and no
difference of sets, is told of in more than `release`·n·d numbers, over the life of the
rows. That is counting, and no proof: only noise proves.

The account is `release.jsonl`: lines are only ever added, and are on disk before the
answer leaves. A question that was answered before tells nothing new. Where rows have
changed in between, answers before and after tell of those that changed, also at another
w (one that hardly differs has hardly another answer): they have accounts of their own.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.data.schema import Schema
from pffl.data.silo import Rows, Silo
from pffl.errors import ArtefactError, Refused
from pffl.questions import Question
from pffl.questions.released import (
    Atoms,
    Charges,
    Told,
    bears,
    charges_of,
    crossed,
    summed,
    told_by,
)
from pffl.site import store
from pffl.typing import BoolArray, FloatArray, IntArray
from pffl.wire import Request

FILE = "release.jsonl"
FORMAT, VERSION = "pffl release", 1
GUARD = "guard.json"  # which is there once anything was answered
HASHES = "approved"  # folder with the hashes of rows, a file for each approval
SHORT = 32  # characters of a question's digest
LISTED = 1e6  # possible rows: so many can be listed, and fitted how often each is there
FITTED = 2.0  # numbers a person, from which such a fit finds everybody (not below)
SEEN = 5000  # rows, from which to see how many different ones there can be

OTHER_COLUMNS = (
    "columns, groups or labels are others than before, and nobody can tell which rows "
    "changed. If fewer than {} did, what was answered before and what would be now "
    "tells of these few"
)

Changed: TypeAlias = dict[str, IntArray]  # by split: rows of each atom


@dataclass(frozen=True, eq=False)
class Bearing:
    """Whose rows bear what is told: how many of each atom, and which are shown.

    In a plain run they are the site's own. In a secure sum they are those of all sites
    but this one, which knows its own; None before anybody counted them.
    """

    rows: IntArray | None
    shown: BoolArray
    pooled: bool = False

    @classmethod
    def own(cls, shown: IntArray) -> Bearing:
        """Return the bearing of a site's own rows, as far as they are shown."""
        return cls(shown, shown > 0)

    @classmethod
    def others(
        cls, total: IntArray | None, own: IntArray, hidden: BoolArray
    ) -> Bearing:
        """Return the bearing of all rows of a secure sum but the site's own."""
        if total is None:
            return cls(None, ~hidden, pooled=True)
        return cls(np.maximum(total - own, 0), (total > 0) & ~hidden, pooled=True)


@dataclass(frozen=True)
class Approval:
    """Rows that are answered about, and by how many they differ from earlier ones.

    Attributes
    ----------
    rows, schema
        Hashes of the rows, and of the schema that they were prepared with.
    atoms
        How many atoms that has.
    changed
        By earlier approval and split: rows of each atom that came or went since.
    """

    rows: str
    schema: str
    atoms: int
    changed: Mapping[str, Mapping[str, list[int]]] = field(default_factory=dict)


@dataclass
class Account:
    """What the file comes to.

    Attributes
    ----------
    key
        Under which rows are hashed.
    approvals
        All, the one in force last.
    asked, told
        By what the rows were: questions that were answered, and how many numbers of
        each split.
    spent
        By account: numbers about sets of rows. An account is a split, or what of it is
        different between two kinds of rows that were approved.
    """

    key: str = ""
    approvals: list[Approval] = field(default_factory=list)
    asked: dict[str, set[str]] = field(default_factory=dict)
    told: dict[str, dict[str, int]] = field(default_factory=dict)
    spent: dict[str, Told] = field(default_factory=dict)

    @property
    def rows(self) -> str:
        """Hash of the rows in force."""
        return self.approvals[-1].rows

    def add(self, asked: Iterable[str], spent: Mapping[str, Told]) -> None:
        """Enter what was told."""
        self.asked.setdefault(self.rows, set()).update(asked)
        told = self.told.setdefault(self.rows, {})
        for name, more in spent.items():
            self.spent[name] = summed([self.spent.get(name, {}), more])
            told[name] = told.get(name, 0) + sum(more.values())

    def between(self, split: str, more: Mapping[str, Told]) -> dict[str, Bearing]:
        """Return the accounts of what changed of a split, and the rows of each.

        Those in which something can be told apart still, beside what is about to be: no
        more can than was told when the rows were others.
        """
        found, now = {}, self.approvals[-1]
        for number, one in enumerate(self.approvals):
            changed = now.changed.get(str(number), {}).get(split)
            if changed is None or one.rows == now.rows:
                continue
            first, second = sorted((one.rows[:SHORT], now.rows[:SHORT]))
            name = f"{split} between {first} and {second}"
            apart = summed([self.spent.get(name, {}), more.get(name, {})])
            if sum(apart.values()) < self.told.get(one.rows, {}).get(split, 0):
                found[name] = Bearing.own(np.array(changed, dtype=np.int64))
        return found

    def approve(self, approval: Approval) -> None:
        """Put rows in force; under another schema sets of rows are not the same."""
        before = self.approvals[-1] if self.approvals else approval
        if before.schema != approval.schema:
            everybody = tuple(range(approval.atoms))
            self.spent = {
                name: {(everybody,): sum(charges_of(told).values())}
                for name, told in self.spent.items()
            }
        self.approvals.append(approval)


@dataclass(frozen=True)
class Charge:
    """What a message would add to the account."""

    asked: tuple[str, ...]
    spent: dict[str, Told]


class Ledger:
    """The account of a site's rows.

    Parameters
    ----------
    release
        Numbers that may leave about a set of rows, per input and row of it.
    silo, schema
        The rows.
    folder
        Where the account is kept; None for the memory of this process.
    """

    def __init__(
        self, release: float, silo: Silo, schema: Schema, folder: Path | None
    ) -> None:
        self.release, self.silo, self.schema = release, silo, schema
        self.path = None if folder is None else folder / FILE
        self._memory: Account | None = None
        self._possible: dict[str, float] = {}

    @property
    def fresh(self) -> bool:
        """Whether nothing was ever answered, and no account was begun.

        That of prepared rows is begun when they are prepared.
        """
        if self.path is None:
            return self._memory is None
        prepared = isinstance(self.silo.splits, store.Stored)
        answered = (self.path.parent / GUARD).exists()
        return not (prepared or answered or self.path.exists())

    def charge(
        self,
        posed: Sequence[tuple[Question[Any], str]],
        bearing: Callable[[str], Bearing],
    ) -> Charge:
        """Return what answers would add, or raise `Refused` where it is too much.

        Questions come with their digests; `bearing` says whose rows bear a split.
        """
        if self.path is None and math.isinf(self.release):
            return Charge((), {})  # nobody will ever ask how much it was
        account = self.account()
        known = account.asked.get(account.rows, set())
        rows: dict[str, Bearing] = {}
        spent: dict[str, Told] = {}
        asked: list[str] = []
        for question, digest in posed:
            short, split = digest[:SHORT], question.split
            if short in known or short in asked:
                continue  # told already
            asked.append(short)
            rows[split] = rows.get(split) or bearing(split)
            told = {split: rows[split], **account.between(split, spent)}
            for name, of in told.items():
                rows[name], more = of, told_by(question, of.shown)
                spent[name] = summed([spent.get(name, {}), more])
        for name, more in spent.items():
            self._check(name, summed([account.spent.get(name, {}), more]), rows[name])
        return Charge(tuple(asked), spent)

    def keep(self, request: Request, charge: Charge) -> None:
        """Enter a charge; on disk when it returns."""
        if not charge.asked:
            return
        self._append(
            {
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "run": request.run,
                "number": list(request.number),
                "asked": list(charge.asked),
                "spent": {name: _texts(told) for name, told in charge.spent.items()},
            }
        )

    def room(self, split: str, rows: IntArray) -> FloatArray:
        """Return how many numbers the rows of each atom can bear."""
        unknowns = np.minimum(rows * self._each(split), self._patterns(split) - 1)
        return np.where(rows > 0, self.release * np.maximum(unknowns, 1e-9), 0.0)

    def _patterns(self, split: str) -> float:
        """Return how many different rows there can be; counted once."""
        if split not in self._possible:
            self._possible[split] = patterns_of(self.silo.rows(split))
        return self._possible[split]

    def per_row(self, split: str) -> float:
        """Return how many numbers a row can bear, where there are many of them."""
        return self.release * self._each(split)

    def _each(self, split: str) -> float:
        """Return how many unknowns a row stands for."""
        inputs = float(inputs_of(self.silo.rows(split)))
        return min(inputs, FITTED) if self._patterns(split) <= LISTED else inputs

    def account(self) -> Account:
        """Return what is known; refuse rows that nobody approved."""
        account = self.read()
        if not self.approved:
            raise Refused(
                "the site's rows have changed since they were last answered about: its "
                "administrator must approve them (pffl site approve)"
            )
        return account

    @property
    def approved(self) -> bool:
        """Whether the rows are those that were approved last."""
        return self.read().approvals[-1].rows == self._approval().rows

    def read(self) -> Account:
        """Return what the file comes to, whatever the rows are now."""
        if self.fresh:
            return Account("", [self._approval()])
        if self.path is None:
            return self._memory or Account()
        if not self.path.exists():
            raise Refused(
                f"the account of what left this site ('{FILE}') is gone: nothing is "
                "answered without it"
            )
        return _account(self.path)

    def begin(self) -> None:
        """Begin an account: nothing was ever answered about these rows."""
        if self.path is None:
            self._memory = Account("", [self._approval()])
            return
        key = secrets.token_hex(16)
        head = {"format": FORMAT, "version": VERSION, "key": key}
        self._append(head)
        self._put(self._approval(), key)

    def changes(self) -> dict[int, Changed]:
        """Return how many rows came or went since each earlier approval."""
        account = self.read()
        now = hashes_of(self.silo, self.schema, bytes.fromhex(account.key))
        return {
            number: _differences(self._hashes(number), now, self.schema.n_atoms)
            for number, one in enumerate(account.approvals)
            if one.atoms == self.schema.n_atoms
        }

    @property
    def other_columns(self) -> bool:
        """Whether rows that were answered about had other columns, groups or labels.

        Then nobody can tell which rows changed.
        """
        account = self.read()
        told = [one for one in account.approvals if account.told.get(one.rows)]
        return any(one.schema != self.schema.hash for one in told)

    def approve(self, floor: int, *, other_columns: bool = False) -> dict[int, Changed]:
        """Put the rows as they are now in force, or raise `Refused`.

        In every (group, label) that changed, at least `floor` rows must have, since
        every earlier approval: what two runs tell apart is the sum over these rows.
        Where columns are others, somebody must say that it is so: `other_columns`.
        """
        account, changes = self.read(), self.changes()
        if self.other_columns and not other_columns:
            raise Refused(OTHER_COLUMNS.format(floor))
        few = sorted(
            {
                f"{self.schema.atom_name(atom)} ({split})"
                for changed in changes.values()
                for split, counts in changed.items()
                for atom in np.flatnonzero((counts > 0) & (counts < floor)).tolist()
            }
        )
        if few and account.spent:
            raise Refused(
                f"fewer than {floor} rows have changed of {', '.join(few)}: what was "
                "answered before and what would be now would tell of these few. Wait "
                "until more have changed"
            )
        plain = {
            str(number): {split: counts.tolist() for split, counts in of.items()}
            for number, of in changes.items()
        }
        self._put(self._approval(plain), account.key)
        return changes

    def _approval(self, changed: Mapping[str, Any] | None = None) -> Approval:
        rows = store.digest(self.silo) if self.path else ""
        schema = self.schema
        return Approval(rows, schema.hash, schema.n_atoms, changed or {})

    def _put(self, approval: Approval, key: str) -> None:
        """Write the rows' hashes, and then that they are in force."""
        if self.path is None:
            return
        number = len(_account(self.path).approvals)
        stream = io.BytesIO()
        hashes = hashes_of(self.silo, self.schema, bytes.fromhex(key))
        np.savez(stream, allow_pickle=False, **hashes)
        folder = files.folder(self.path.parent / HASHES, private=True)
        files.write(folder / f"{number}.npz", stream.getvalue(), private=True)
        self._append({"approved": vars(approval)})

    def _hashes(self, number: int) -> dict[str, NDArray[Any]]:
        """Return the rows' hashes and atoms, as they were approved."""
        path = (self.path or Path(FILE)).parent / HASHES / f"{number}.npz"
        try:
            with np.load(path, allow_pickle=False) as found:
                return dict(found)
        except (OSError, ValueError) as error:
            raise ArtefactError(
                f"'{path}' cannot be read, and without it nobody knows which rows "
                f"changed: {error}"
            ) from error

    def _check(self, name: str, total: Told, bearing: Bearing) -> None:
        """Refuse what the rows of an account cannot bear."""
        if bearing.rows is None or math.isinf(self.release):
            return
        split = name.partition(" ")[0]
        room = self.room(split, bearing.rows)
        both = (charges_of(total), crossed(total))
        heavy = next((charges for charges in both if not bears(charges, room)), None)
        if heavy is None:
            return
        atoms, told = _fullest(heavy, room)
        per_row = self.per_row(split)
        needed = f"{math.ceil(told / per_row):,} rows" if per_row else "no release at 0"
        needed += " beside this site's" if bearing.pooled else ""
        if self.release * (self._patterns(split) - 1) < told:
            needed = "more different rows, or how often each is there can be worked out"
        who = "rows" if name == split else "changed rows"
        other = "" if bearing.pooled else ", or secure sums,"
        raise Refused(
            f"with this, {told:,} numbers would have left about the {split} {who} of "
            f"{self.schema.set_name(atoms)}, and so many need {needed} (release = "
            f"{self.release:g} in site.toml). More rows, fewer questions (first-order, "
            f"no baseline or least){other} would do"
        )

    def _append(self, line: Mapping[str, Any]) -> None:
        """Add a line to the file; one that a crash cut short is taken off first."""
        if self.path is None:
            _enter(self.read(), line)
            return
        if self.path.exists():
            whole, _, torn = files.read(self.path).rpartition(b"\n")
            if torn:
                os.truncate(self.path, len(whole) + bool(whole))
        files.append(self.path, line, private=True)


def inputs_of(rows: Rows) -> int:
    """Return how many unknowns a row has: its inputs, of a sparse one those stored."""
    if isinstance(rows.X, np.ndarray):
        return int(rows.X.shape[1])
    return int(np.diff(rows.X.indptr).max(initial=0))


def patterns_of(rows: Rows) -> float:
    """Return how many different rows there can be, as far as the first ones show.

    Of few, as of answers yes and no, how often each is there is all that is unknown.
    Columns of two values count as they occur together: one may be several that a text
    column became.
    """
    if not isinstance(rows.X, np.ndarray):
        return math.inf
    X = np.asarray(rows.X[:SEEN])
    many = np.array([len(np.unique(column)) for column in X.T], dtype=np.float64)
    two = X[:, many <= 2]
    together = len(np.unique(two, axis=0)) if two.size else 1
    return float(together * np.exp(np.log(many[many > 2]).sum()))


def hashes_of(silo: Silo, schema: Schema, key: bytes) -> dict[str, NDArray[Any]]:
    """Return a keyed hash of each row, and its atom, by split."""
    found: dict[str, NDArray[Any]] = {}
    for split in silo.splits:
        rows = silo.rows(split)
        found[f"{split}.rows"] = np.fromiter(
            (
                int.from_bytes(
                    hashlib.blake2b(row, digest_size=8, key=key).digest(), "little"
                )
                for row in _contents(rows)
            ),
            dtype=np.uint64,
            count=len(rows),
        )
        found[f"{split}.atoms"] = schema.atoms(rows.group, rows.y)
    return found


def _contents(rows: Rows) -> Iterable[bytes]:
    """Yield each row as bytes."""
    rest = np.column_stack([rows.y, rows.group.astype(np.float64), rows.weights])
    if isinstance(rows.X, np.ndarray):
        for x, more in zip(rows.X, rest, strict=True):
            yield x.astype(np.float64).tobytes() + more.tobytes()
        return
    X = rows.X
    for start, stop, more in zip(X.indptr[:-1], X.indptr[1:], rest, strict=True):
        part = slice(start, stop)
        places = X.indices[part].astype(np.int64)
        yield places.tobytes() + X.data[part].tobytes() + more.tobytes()


def _differences(
    before: Mapping[str, NDArray[Any]], now: Mapping[str, NDArray[Any]], atoms: int
) -> Changed:
    """Count the rows of each atom that came or went, by split."""
    found: Changed = {}
    splits = {name.partition(".")[0] for name in (*before, *now)}
    for split in sorted(splits):
        counts = np.zeros(atoms, dtype=np.int64)
        sides = [side for side in (before, now) if f"{split}.rows" in side]
        rows = np.concatenate([side[f"{split}.rows"] for side in sides])
        codes = np.concatenate([side[f"{split}.atoms"] for side in sides])
        signs = np.repeat(
            [1 if side is now else -1 for side in sides],
            [len(side[f"{split}.rows"]) for side in sides],
        )
        _, first, which = np.unique(rows, return_index=True, return_inverse=True)
        more = np.abs(np.bincount(which.reshape(-1), signs, len(first)))
        np.add.at(counts, codes[first], more.astype(np.int64))
        found[split] = counts
    return found


def _fullest(charges: Charges, room: FloatArray) -> tuple[Atoms, int]:
    """Return the set with the most numbers told beside its room, and these."""
    whole = tuple(sorted({atom for atoms in charges for atom in atoms}))

    def told(atoms: Atoms) -> int:
        inside = set(atoms)
        return sum(many for one, many in charges.items() if inside.issuperset(one))

    def fill(atoms: Atoms) -> float:
        return told(atoms) / max(float(room[list(atoms)].sum()), 1e-9)

    fullest = max([*charges, whole], key=fill)
    return fullest, told(fullest)


def _texts(told: Told) -> dict[str, int]:
    """Write layouts as texts: `0 1 | 2` has atoms 0 and 1 together, and 2 alone."""
    return {
        " | ".join(" ".join(map(str, atoms)) for atoms in layout): many
        for layout, many in told.items()
    }


def _layout(text: str) -> tuple[Atoms, ...]:
    return tuple(tuple(map(int, atoms.split())) for atoms in text.split("|"))


def _account(path: Path) -> Account:
    """Add up a file; a last line that a crash cut short did not count."""
    account = Account()
    whole, _, _ = files.read(path).rpartition(b"\n")
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            plain = json.loads(line)
            if number == 1 and (plain["format"], plain["version"]) != (FORMAT, VERSION):
                raise ValueError("another format or version")
            _enter(account, plain)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArtefactError(
                f"{path}, line {number}: not an entry of ours: {error}"
            ) from error
    return account


def _enter(account: Account, line: Mapping[str, Any]) -> None:
    """Take a line into the account."""
    if "format" in line:
        account.key = line["key"]
    elif "approved" in line:
        account.approve(Approval(**line["approved"]))
    else:
        account.add(
            line["asked"],
            {
                name: {_layout(text): many for text, many in of.items()}
                for name, of in line["spent"].items()
            },
        )
