"""An engine that stops a run at a chosen query, and a way to compare two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from pffl import Solution
from pffl.engines import Engine
from pffl.queries import Query, Total

ASIDE = ("seconds", "problem")  # of a round


class Stopping:
    """Pass everything on, and raise instead of answering query number `at`."""

    def __init__(
        self, engine: Engine, at: int, error: type[BaseException] = KeyboardInterrupt
    ) -> None:
        self.engine, self.at, self.error, self.asked = engine, at, error, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def ask(self, query: Query) -> Any:
        self._count()
        return self.engine.ask(query)

    def ask_many(self, queries: Sequence[Query]) -> list[Total]:
        self._count()
        return self.engine.ask_many(queries)

    def _count(self) -> None:
        self.asked += 1
        if self.asked == self.at:
            raise self.error(f"query {self.at}")


def assert_same_bits(a: Any, b: Any, where: str = "") -> None:
    """Compare to the last bit; NaN equals NaN, and 0 is not −0."""
    assert type(a) is type(b), where
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, where
        assert a.shape == b.shape, where
        assert a.tobytes() == b.tobytes(), where
    elif hasattr(a, "__dataclass_fields__"):
        for field in fields(a):
            name = field.name
            assert_same_bits(getattr(a, name), getattr(b, name), f"{where}.{name}")
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_same_bits(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, tuple | list):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same_bits(x, y, f"{where}[{i}]")
    elif isinstance(a, float):
        assert np.float64(a).tobytes() == np.float64(b).tobytes(), where
    else:
        assert a == b, where


def outcome(solution: Solution) -> dict[str, Any]:
    """Everything that a run comes to, times left out."""
    rows = [
        {f.name: getattr(row, f.name) for f in fields(row) if f.name not in ASIDE}
        for row in solution.rows
    ]
    plain = dict(solution.as_dict())
    plain.pop("seconds", None)
    return {
        "w": solution.w,
        "multipliers": solution.multipliers,
        "rounds": solution.rounds,
        "rows": [tuple(row.values()) for row in rows],
        "plain": plain,
    }


def assert_same_outcome(a: Solution, b: Solution) -> None:
    first, second = outcome(a), outcome(b)
    for key, value in first.items():
        assert_same_bits(value, second[key], key)
