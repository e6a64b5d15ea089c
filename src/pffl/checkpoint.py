"""Checkpoints: a run that is stopped goes on where it was, bit for bit.

    checkpoint.safetensors            where the run stands after its last save
    checkpoint.previous.safetensors   the one before, should the last one be damaged
    checkpoint.toml                   the run file (written by `pffl run` only)

A file is a parcel: its header has format, version, the identity of the run, a tree of
plain values, and a SHA-256 over all of it; arrays of the tree lie beside the header.

A method's state, a frozen dataclass, becomes such a tree by its values (`encode`), and
comes back with a first state of the same method as the pattern (`decode`). A file holds
no code, and names no class that the reader did not ask for.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.errors import ArtefactError, Malformed, PFFLError
from pffl.parcel import LARGEST, Parcel, pack, unpack
from pffl.problem import Expansion, Point, Problem

if TYPE_CHECKING:
    from pffl.constraints.base import Constraint
    from pffl.evidence.evidence import Data
    from pffl.methods.base import Method

CURRENT = "checkpoint.safetensors"
PREVIOUS = "checkpoint.previous.safetensors"
SPEC = "checkpoint.toml"
FORMAT = "pffl checkpoint"
VERSION = 3
SPARING = 10  # times the cost of a save must have passed before the next one
MOST_ARRAYS = 100_000
LONGEST = 60  # characters of a value in a message

#: Nested dict (of text), list, str, bool, int, float, None, and arrays; a dict at the
#: top, that has at least `rounds` (finished) and `seconds` (spent).
Tree: TypeAlias = Any


class Damaged(Exception):
    """Why a file is not a checkpoint that can be used."""


class Unreadable(ArtefactError):
    """A tree that does not hold what was asked for, and where."""

    code = "bad-checkpoint"

    def __init__(self, reason: str) -> None:
        super().__init__(f"{CURRENT} cannot be used: {reason}")


class NotFinite(Exception):
    """A state with a number in it that is none: there is no point in keeping it."""


class Checkpoint:
    """Where a run in a directory stands: saved while it runs, read when it goes on.

    A round is saved when ten times as long has passed since the last save as that save
    took. So a run of fast rounds spends a tenth of its time on saving, at most, and
    loses at most that little if it is killed, while a run of slow rounds, as over a
    network, is saved after each. An interruption or an error always saves the last
    finished round.

    A save is written beside its target, forced to the disk, and renamed; the one before
    is kept under another name. So there is a whole one at any time (faults 65, 66).

    Parameters
    ----------
    directory
        Where the files lie; made with the first save.
    identity
        What the run is; `solve` fills it in. A checkpoint of another one is refused.

    Attributes
    ----------
    elapsed
        Seconds that the run took before it went on here.
    ready
        Whether a later run can go on from what this one loaded or saved.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.identity: Mapping[str, Any] = identity or {}
        self.elapsed, self.ready = 0.0, False
        self._latest: Callable[[], Tree] | None = None  # offered, and not yet saved
        self._whole = False  # whether CURRENT is known to be good
        self._cost, self._saved = 0.0, -float("inf")

    def saved(self) -> tuple[int, int] | None:
        """Return seed and rounds of the run that was saved; None if there is none."""
        for path in filter(Path.exists, self._paths):
            with suppress(Damaged, KeyError, TypeError, ValueError):
                header = read_file(path).header
                seed = int(header["identity"]["run"]["seed"])
                return seed, int(header["tree"]["rounds"])
        return None

    def load(self) -> Tree | None:
        """Return where the run stood; None if nothing was saved.

        A file that is damaged is passed over for the previous one, with a warning; one
        of another run is refused.
        """
        reasons = []
        for path in filter(Path.exists, self._paths):
            try:
                parcel = read_file(path)
                self._refuse_other(path, parcel)
                tree = _tree_of(parcel)
            except Damaged as damage:
                reasons.append(f"'{path}' {damage}")
                continue
            if path.name == PREVIOUS:
                reasons = reasons or [f"'{self._paths[0]}' is not there"]
                warnings.warn(
                    f"{'; '.join(reasons)}: going on from the previous one, after "
                    f"round {tree['rounds']}",
                    stacklevel=2,
                )
            self._whole, self.ready = path.name == CURRENT, True
            self.elapsed = tree["seconds"]
            return tree
        if reasons:
            raise ArtefactError(
                f"[no-checkpoint] no checkpoint is left: {'; '.join(reasons)}"
            )
        return None

    def offer(self, make: Callable[[], Tree]) -> None:
        """Take where the run stands now, and save it if that is due.

        `make` is called when it is saved, and must then still give this standing.
        """
        self._latest = make
        if time.monotonic() - self._saved >= SPARING * self._cost:
            self.flush()

    def flush(self) -> None:
        """Save what was offered last, unless that is done."""
        if self._latest is None:
            return
        began = time.monotonic()
        try:
            self._write(content_of(self._latest(), self.identity))
        except NotFinite:
            pass  # the run is about to diverge; an earlier round will do so, too
        except ArtefactError:
            self._latest = None
            raise
        self._latest = None
        self._saved = time.monotonic()
        self._cost = self._saved - began

    def remove(self) -> None:
        """Remove the files: the run is over."""
        paths = (*self._paths, self.directory / SPEC)
        files.remove(p for path in paths for p in (path, _beside(path)))

    @property
    def _paths(self) -> tuple[Path, Path]:
        return self.directory / CURRENT, self.directory / PREVIOUS

    def _write(self, content: bytes) -> None:
        if len(content) > LARGEST:
            raise ArtefactError(
                f"[too-large] '{self._paths[0]}' would have {len(content):,} bytes; "
                f"at most {LARGEST:,} could be read back: run without a checkpoint"
            )
        files.folder(self.directory)
        kept = {CURRENT: PREVIOUS} if self._whole else {}
        files.write_all(self.directory, {CURRENT: content}, previous=kept)
        self._whole = self.ready = True

    def _refuse_other(self, path: Path, parcel: Parcel) -> None:
        """Refuse the checkpoint of another run, and say what differs (fault 67)."""
        header, known = parcel.header, parcel.header.get("identity")
        known = known if isinstance(known, Mapping) else {}
        found = differences(
            {"version": header.get("version"), **known},
            {"version": VERSION, **self.identity},
        )
        if found:
            listing = "\n".join(
                f"  - {key}: {old} in the checkpoint, {new} now"
                for key, old, new in found
            )
            raise ArtefactError(
                "[other-run] "
                f"'{path}' is of another run:\n{listing}\nRepeat that run exactly, or "
                "choose another directory"
            )


# The file


def content_of(tree: Tree, identity: Mapping[str, Any]) -> bytes:
    """Return the content of a checkpoint."""
    plain, arrays = lay_out(tree)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "identity": dict(identity),
        "tree": plain,
    }
    return pack(Parcel({**header, "sha256": digest_of(header, arrays)}, arrays))


def read_file(path: Path) -> Parcel:
    """Read a checkpoint and check its hash, or say how it is damaged."""
    try:
        parcel = unpack(files.read(path, largest=LARGEST), most=MOST_ARRAYS)
    except Malformed as error:
        raise Damaged(f"is not a checkpoint: {error}") from error
    header = dict(parcel.header)
    if header.get("format") != FORMAT:
        raise Damaged(f"is not a checkpoint: its format is not '{FORMAT}'")
    if header.pop("sha256", None) != digest_of(header, parcel.arrays):
        raise Damaged("is damaged: its content does not have the SHA-256 it states")
    return Parcel(header, parcel.arrays)


def digest_of(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over the header and every array with its name, type and shape."""
    text = json.dumps(header, sort_keys=True, ensure_ascii=True, allow_nan=False)
    names = sorted(arrays)
    known = files.digest_arrays(*(arrays[name] for name in names))
    return files.digest(text, json.dumps(names), known)


def _tree_of(parcel: Parcel) -> Tree:
    """Return the tree of a checkpoint, or say why it cannot be used."""
    try:
        if set(parcel.header) != {"format", "version", "identity", "tree"}:
            raise Unreadable("the header has other fields")
        tree = take_up(parcel.header["tree"], parcel.arrays)
        if type(tree["rounds"]) is not int or not isinstance(tree["seconds"], float):
            raise Unreadable("rounds or seconds are no numbers")
        return tree
    except Unreadable as error:
        raise Damaged(str(error).removeprefix(f"{CURRENT} ")) from error
    except (KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"cannot be used: {error!r}") from error


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


# Trees: plain values and arrays, as JSON and as the arrays of a parcel

# Bytes, such as those of a hash, are told from truth values by their type.
STORED = {
    "float64": np.float64,
    "int64": np.int64,
    "bool": np.uint8,
    "uint8": np.float32,
}
READ = {
    "float64": np.float64,
    "int64": np.int64,
    "uint8": np.bool_,
    "float32": np.uint8,
}
LARGE = 1 << 16  # numbers of an array that may be mostly 0
PLACES = " places"  # of those that are not
SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def lay_out(tree: Tree) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Return the tree as JSON holds it, and its arrays by name, each object once.

    The memory order of arrays is kept: sums over rows and over columns round
    differently. Of large ones that are mostly 0, the other numbers and their places.
    """
    names: dict[int, str] = {}  # by id: the tree holds the arrays while this runs
    arrays: dict[str, NDArray[Any]] = {}

    def out(value: Tree) -> Any:
        if isinstance(value, np.ndarray):
            axes = sorted(range(value.ndim), key=lambda axis: -value.strides[axis])
            if id(value) not in names:
                if value.dtype.name not in STORED:
                    raise TypeError(f"a checkpoint holds no arrays of {value.dtype}")
                names[id(value)] = name = str(len(names))
                stored = value.transpose(axes).astype(STORED[value.dtype.name])
                arrays.update(_stored(name, stored))
            name = names[id(value)]
            shape = [value.shape[axis] for axis in axes]
            sparse = {"$shape": shape} if f"{name}{PLACES}" in arrays else {}
            return {"$array": name, "$axes": axes, **sparse}
        if isinstance(value, Mapping):
            if any(not isinstance(k, str) or k.startswith("$") for k in value):
                raise TypeError(f"a checkpoint cannot hold the keys {list(value)}")
            return {key: out(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [out(entry) for entry in value]
        if isinstance(value, float) and not math.isfinite(value):
            return {"$number": str(float(value))}
        if isinstance(value, np.generic):
            return out(value.item())
        if value is None or isinstance(value, str | int | float):
            return value
        raise TypeError(f"a checkpoint cannot hold {value!r}")

    return out(tree), arrays


def take_up(plain: Any, arrays: Mapping[str, NDArray[Any]]) -> Tree:
    """Return the tree that was laid out."""
    made: dict[str, NDArray[Any]] = {}

    def back(value: Any) -> Tree:
        if isinstance(value, list):
            return [back(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        if "$array" in value:
            return _array(value, arrays, made)
        if "$number" in value:
            if len(value) == 1 and value["$number"] in SPECIAL:
                return SPECIAL[value["$number"]]
            raise Unreadable(f"{str(value)[:LONGEST]} is no number")
        return {key: back(entry) for key, entry in value.items()}

    return back(plain)


def _stored(name: str, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return an array as it is; or, of one that is mostly 0, what is not, and where."""
    if array.size < LARGE or array.dtype != np.float64:
        return {name: array}
    flat = array.reshape(-1)
    places = np.flatnonzero(flat.view(np.int64))  # −0.0 is kept
    if 3 * len(places) > len(flat):
        return {name: array}
    return {name: flat[places], f"{name}{PLACES}": places}


def _restored(
    value: dict[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> NDArray[Any]:
    """Return the stored array, its zeros where they were."""
    name, shape = value["$array"], value.get("$shape")
    if shape is None:
        return arrays[name]
    places, flat = arrays[f"{name}{PLACES}"], np.zeros(math.prod(shape))
    if places.dtype != np.int64 or (places < 0).any():
        raise TypeError
    flat[places] = arrays[name]
    return flat.reshape(shape)


def _array(
    value: dict[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    made: dict[str, NDArray[Any]],
) -> NDArray[Any]:
    try:
        name, axes = value["$array"], value["$axes"]
        stored = _restored(value, arrays)
        good = set(value) <= {"$array", "$axes", "$shape"}
        good = good and stored.dtype.name in READ
        good = good and sorted(axes) == list(range(stored.ndim))
    except (KeyError, TypeError, ValueError, IndexError, MemoryError):
        good = False
    if not good:
        raise Unreadable(f"{str(value)[:LONGEST]} is no array of this file")
    key = f"{name} {axes}"
    if key not in made:
        order = np.argsort(np.array(axes, dtype=np.int64))
        made[key] = np.array(stored, dtype=READ[stored.dtype.name]).transpose(order)
    return made[key]


# States: frozen dataclasses of arrays, numbers, text, None, tuples and dataclasses


def encode(value: Any, *, finite: bool = True) -> Tree:
    """Return the tree of a state; `NotFinite` if a number in it is none.

    Infinite numbers are kept, in arrays they are refused; all are kept unless `finite`.
    """
    if is_dataclass(value) and not isinstance(value, type):
        parts = {
            f.name: encode(getattr(value, f.name), finite=finite) for f in fields(value)
        }
        return {"kind": type(value).__name__, "fields": parts}
    if isinstance(value, tuple | list):
        return [encode(entry, finite=finite) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    lost = (
        not np.isfinite(value).all()
        if isinstance(value, np.ndarray)
        else isinstance(value, float) and math.isnan(value)
    )
    if finite and lost:
        raise NotFinite
    return value


def decode(
    tree: Tree,
    like: Any,
    *,
    known: Sequence[type[Any]] = (Point, Expansion),
    finite: bool = True,
    where: str = "state",
) -> Any:
    """Return the state of a tree, or raise `Unreadable`.

    Parameters
    ----------
    tree
        What `encode` returned.
    like
        The pattern: kinds, types and shapes are those that it has. A part that is None
        in it may be anything.
    known
        Dataclasses that may stand where the pattern has None.
    finite
        As for `encode`.
    where
        What to call it in messages.
    """
    kind = _kind(tree, like, known, where)
    if kind is not None:
        names = [f.name for f in fields(kind)]
        parts = tree["fields"]
        if not isinstance(parts, dict) or set(parts) != set(names):
            raise Unreadable(f"{where} does not have the fields {', '.join(names)}")
        patterns = {n: None if like is None else getattr(like, n) for n in names}
        options: dict[str, Any] = {"known": known, "finite": finite}
        values = {
            n: decode(parts[n], patterns[n], where=f"{where}.{n}", **options)
            for n in names
        }
        try:
            return kind(**values)
        except (PFFLError, TypeError, ValueError) as error:
            raise Unreadable(f"{where}: {error}") from error
    if isinstance(tree, list) and (like is None or isinstance(like, tuple)):
        patterns_of = like or (None,) * len(tree)
        if len(patterns_of) != len(tree):
            wanted = len(patterns_of)
            raise Unreadable(f"{where} has {len(tree)} entries, not {wanted}")
        return tuple(
            decode(entry, one, known=known, finite=finite, where=f"{where}[{i}]")
            for i, (entry, one) in enumerate(zip(tree, patterns_of, strict=True))
        )
    return _leaf(tree, like, finite, where)


def _kind(
    tree: Tree, like: Any, known: Sequence[type[Any]], where: str
) -> type[Any] | None:
    """Return the dataclass that a tree is of; None if it is none."""
    wanted = [type(like)] if is_dataclass(like) else known if like is None else ()
    if isinstance(tree, dict) and set(tree) == {"kind", "fields"}:
        for kind in wanted:
            if tree["kind"] == kind.__name__:
                return kind
    if isinstance(tree, dict) or is_dataclass(like):
        names = " or ".join(kind.__name__ for kind in wanted) or "plain"
        raise Unreadable(f"{where} is not {names}")
    return None


def _leaf(tree: Tree, like: Any, finite: bool, where: str) -> Any:
    """Return an array, a number, text, or None."""
    if isinstance(like, np.generic):
        like = like.item()
    if isinstance(like, float) and type(tree) is int:
        tree = float(tree)
    if like is not None and type(tree) is not type(like):
        raise Unreadable(
            f"{where} is {str(tree)[:LONGEST]!r}, which is not {type(like).__name__}"
        )
    if isinstance(tree, np.ndarray):
        if like is not None and tree.dtype != like.dtype:
            raise Unreadable(f"{where} is an array of {tree.dtype}, not {like.dtype}")
        if like is not None and tree.shape != like.shape:
            raise Unreadable(f"{where} has the shape {tree.shape}, not {like.shape}")
        if finite and not np.isfinite(tree).all():
            raise Unreadable(f"{where} holds numbers that are not finite")
    elif finite and isinstance(tree, float) and math.isnan(tree):
        raise Unreadable(f"{where} is not a number")
    return tree


# What a checkpoint belongs to


def identity(
    rows: Data,
    problem: Problem,
    constraint: Constraint | None,
    method: Method[Any],
    *,
    options: object,
    gap_every: int = 0,
) -> dict[str, Any]:
    """Return everything that the rounds of a run follow from, as plain values.

    The census stands for the data; where their rows are at hand, so does their
    fingerprint. Where a run is computed (the engine) is no part of it.
    """
    model = problem.task.model
    data: dict[str, Any] = {
        "schema": problem.schema.hash,
        "silos": _short(list(problem.silo_names)),
        "census": _short(np.asarray(problem.silo_counts)),
        "targets": _short(np.asarray(problem.silo_targets)),
    }
    if problem.weighted:
        data["weights"] = _short(np.asarray(problem.silo_weights))
    if rows.fingerprint is not None:
        data["fingerprint"] = rows.fingerprint
    return {
        "data": data,
        "model": {
            **_table(model.describe()),
            "start": _plain(model.start(problem.seed)),
        },
        "constraint": None if constraint is None else _table(constraint.describe()),
        "method": {"kind": method.name, **_plain(method)},
        "options": _plain(options),
        "run": {"seed": problem.seed, "gap_every": gap_every},
    }


def differences(
    saved: Mapping[str, Any], now: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """Return key, saved value and present value wherever two identities differ.

    >>> differences({"run": {"seed": 1}}, {"run": {"seed": 2}})
    [('run.seed', '1', '2')]
    """
    old, new = dict(_leaves(saved)), dict(_leaves(now))
    return [
        (key, _show(old.get(key)), _show(new.get(key)))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _leaves(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _show(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _table(described: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): _plain(value) for key, value in described.items()}


def _plain(value: Any) -> Any:
    """Return what JSON can hold; an array is named by its hash."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return _short(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return _table(value)
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return (
        value if value is None or isinstance(value, int | float | str) else str(value)
    )


def _short(value: Any) -> str:
    """Name a long value by its hash."""
    array = isinstance(value, np.ndarray)
    known = files.digest_arrays(value) if array else files.digest(repr(value))
    return f"sha256:{known[:32]}"
