"""Where a run stands between two rounds, and the file that says so.

One file: a parcel (safetensors with a JSON header) of format, version, identity, the
trees of the states, the history as columns, and a SHA-256 over all of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.callbacks import Round
from pffl.checkpoint.tree import Reader, Unreadable, Writer
from pffl.parcel import LARGEST, Malformed, Parcel, pack, unpack

FORMAT = "pffl checkpoint"
VERSION = 1
NUMBERS = ("risk", "upper", "seconds", "loss")  # of a `Round`
VECTORS = ("violation", "multipliers")
HEADER = {
    *("format", "version", "identity", "rounds", "seconds", "ended"),
    *("state", "good", "sha256"),
}


@dataclass(frozen=True, eq=False)
class Standing:
    """Where a run stands.

    Attributes
    ----------
    state, good
        State of the method, and the one before, to return to if the run diverges.
    rounds
        Questions asked so far.
    log, recorded
        Rounds that were recorded: the first `recorded` entries of a list that grows.
    seconds
        Time spent so far.
    ended
        Whether a callback has ended the run.
    """

    state: Any
    good: Any
    rounds: int
    log: list[Round]
    recorded: int
    seconds: float = 0.0
    ended: bool = False

    @property
    def history(self) -> tuple[Round, ...]:
        """The rounds that were recorded."""
        return tuple(self.log[: self.recorded])

    def after(self, state: Any, row: Round | None, seconds: float) -> Standing:
        """Return where the run stands after one more round."""
        del self.log[self.recorded :]
        if row is not None:
            self.log.append(row)
        return Standing(
            state, self.state, self.rounds + 1, self.log, len(self.log), seconds
        )


class Damaged(Exception):
    """Why a file is not a checkpoint that can be used."""


def encode(standing: Standing, identity: Mapping[str, Any]) -> bytes:
    """Return the content of a checkpoint; `tree.NotFinite` if there is no use in it."""
    writer, kind = Writer(), type(standing.state)
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "identity": dict(identity),
        "rounds": standing.rounds,
        "seconds": standing.seconds,
        "ended": standing.ended,
        "state": writer.write(standing.state, kind),
        "good": writer.write(standing.good, kind),
    }
    arrays = {**writer.arrays, **_columns(standing.history)}
    header["sha256"] = _digest(header, arrays)
    return pack(Parcel(header, arrays))


def read(path: Path) -> Parcel:
    """Read a checkpoint and check its hash, or say how it is damaged."""
    try:
        parcel = unpack(files.read(path, largest=LARGEST))
    except Malformed as error:
        raise Damaged(f"is not a checkpoint: {error}") from error
    header = dict(parcel.header)
    if header.get("format") != FORMAT:
        raise Damaged(f"is not a checkpoint: its format is not '{FORMAT}'")
    if header.pop("sha256", None) != _digest(header, parcel.arrays):
        raise Damaged("is damaged: its content does not have the SHA-256 it states")
    return parcel


def decode(parcel: Parcel, like: Any) -> Standing:
    """Return what a checkpoint holds; `like` is a first state of the same method."""
    header, kind = parcel.header, type(like)
    reader = Reader(parcel.arrays)
    try:
        if set(header) != HEADER:
            raise Unreadable("the header has other fields")
        log = _rows(parcel.arrays)
        return Standing(
            reader.read(header["state"], kind, like),
            reader.read(header["good"], kind, like),
            reader.read(header["rounds"], int, where="rounds"),
            log,
            len(log),
            reader.read(header["seconds"], float, where="seconds"),
            reader.read(header["ended"], bool, where="ended"),
        )
    except Unreadable as error:
        raise Damaged(f"cannot be used: {error}") from error


def _digest(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over the header and every array with its name, type and shape."""
    text = json.dumps(header, sort_keys=True, ensure_ascii=True, allow_nan=False)
    names = sorted(arrays)
    known = files.digest_arrays(*(arrays[name] for name in names))
    return files.digest(text, json.dumps(names), known)


def _columns(history: tuple[Round, ...]) -> dict[str, NDArray[Any]]:
    """Return the history as arrays; a gap that was not measured is unknown."""
    numbers = {n: np.array([getattr(r, n) for r in history], float) for n in NUMBERS}
    vectors = {
        n: np.array([getattr(r, n) for r in history], float).reshape(len(history), -1)
        if history
        else np.zeros((0, 0))
        for n in VECTORS
    }
    gaps = [0.0 if row.gap is None else row.gap for row in history]
    known = [row.gap is not None for row in history]
    columns = {
        **numbers,
        **vectors,
        "number": np.array([row.number for row in history], dtype=np.int64),
        "gap": np.array(gaps, dtype=float),
        "measured": np.array(known, dtype=np.uint8),
    }
    return {f"history.{name}": column for name, column in columns.items()}


def _rows(arrays: Mapping[str, NDArray[Any]]) -> list[Round]:
    names = (*NUMBERS, *VECTORS, "number", "gap", "measured")
    try:
        columns = {name: arrays[f"history.{name}"] for name in names}
    except KeyError as error:
        raise Unreadable(f"the history has no column {error}") from error
    if len({len(column) if column.ndim else -1 for column in columns.values()}) != 1:
        raise Unreadable("the columns of the history have different lengths")
    if any(columns[n].ndim != 1 + (n in VECTORS) for n in names):
        raise Unreadable("a column of the history has the wrong shape")
    plain = {name: columns[name].tolist() for name in names if name not in VECTORS}
    vectors = {name: np.array(columns[name]) for name in VECTORS}
    return [
        Round(
            number=plain["number"][i],
            risk=plain["risk"][i],
            violation=vectors["violation"][i],
            multipliers=vectors["multipliers"][i],
            upper=plain["upper"][i],
            gap=plain["gap"][i] if plain["measured"][i] else None,
            seconds=plain["seconds"][i],
            loss=plain["loss"][i],
        )
        for i in range(len(plain["number"]))
    ]
