"""What a checkpoint belongs to: it is refused by any other run, with what differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from pffl.constraints.base import Constraint
from pffl.data.federation import Federation
from pffl.engines.base import Engine
from pffl.files import digest, digest_arrays
from pffl.methods.base import Method
from pffl.problem import Problem

LONGEST = 60  # characters of a value in a message


def identity(
    engine: Engine,
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
        "schema": engine.schema.hash,
        "silos": _short(list(engine.silo_names)),
        "census": _short(np.asarray(problem.silo_counts)),
    }
    federation = getattr(engine, "federation", None)
    if isinstance(federation, Federation):
        data["fingerprint"] = federation.fingerprint
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
    known = digest_arrays(value) if array else digest(repr(value))
    return f"sha256:{known[:32]}"
