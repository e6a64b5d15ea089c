"""Admission: how many sites must answer, and whether what they say can be true.

The gate freezes the census, and judges every report against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pffl.data.schema import Schema
from pffl.errors import Problems, Refused, UsageError
from pffl.models.base import Model
from pffl.numerics import is_number
from pffl.parcel import LARGEST
from pffl.queries import Census, CensusTotal, ModelQuery, Query
from pffl.queries.plausible import Ceilings, Known
from pffl.typing import FloatArray


@dataclass(frozen=True)
class Policy:
    """Rules for a federation's answers.

    Parameters
    ----------
    quorum
        How many silos must answer a round of training: a number, a fraction, or None
        for all that are asked. Every other query needs all of them.
    seconds
        How long one message may take until its answer counts as missing.
    join_seconds
        How long to wait for sites that are not there.
    retries
        How often those who did not answer are asked again, under new numbers.
    patience
        How many rounds in a row a silo may be missing.
    loss_bound
        M: no loss is larger. None: what the model and the census imply, if anything.
    update_clip
        Largest norm of a silo's update Δ_k. None: what step sizes and the census imply
        for models with bounded slopes, and no limit for others.
    largest_message
        Bytes of an answer.
    largest_rows
        Rows of a silo.
    weight_bound
        What no row weighs more than, where the sites' rows have weights. None: all
        rows count alike, and a site whose rows do not is refused.
    """

    quorum: int | float | None = None
    seconds: float = 300.0
    join_seconds: float = 600.0
    retries: int = 2
    patience: int = 3
    loss_bound: float | None = None
    update_clip: float | None = None
    largest_message: int = LARGEST
    largest_rows: int = 10**9
    weight_bound: float | None = None

    def __post_init__(self) -> None:
        with Problems("policy", UsageError) as problems:
            bounds = ("loss_bound", "update_clip", "weight_bound")
            for name in ("seconds", "join_seconds", *bounds):
                value = getattr(self, name)
                optional = value is None and name in bounds
                if not (optional or (is_number(value) and value > 0)):
                    problems.add(_wrong(name, "a finite number > 0", value))
            for name in ("retries", "patience", "largest_message", "largest_rows"):
                value = getattr(self, name)
                least = 0 if name in ("retries", "patience") else 1
                if type(value) is not int or value < least:
                    problems.add(_wrong(name, f"a whole number ≥ {least}", value))
            if not _is_quorum(self.quorum):
                wanted = "a whole number ≥ 1 or a fraction in (0, 1]"
                problems.add(_wrong("quorum", wanted, self.quorum))

    def needed(self, asked: int) -> int:
        """Return how many of those asked for training must answer.

        >>> [Policy(quorum=q).needed(10) for q in (None, 0.75, 3, 20)]
        [10, 8, 3, 10]
        """
        if self.quorum is None:
            return asked
        if isinstance(self.quorum, int):
            return min(self.quorum, asked)
        return math.ceil(self.quorum * asked - 1e-9)


@dataclass(frozen=True, eq=False)
class Verdict:
    """An admitted report: as it was sent, or clipped."""

    total: Any
    clipped: bool = False


@dataclass(frozen=True, eq=False)
class Frozen:
    """A silo's census of one split, and how many (group, label)s it leaves out."""

    total: CensusTotal
    withheld: int


class Gate:
    """Judges reports, silo by silo.

    Parameters
    ----------
    policy, schema
        The rules, and what the silos agreed on.
    """

    def __init__(self, policy: Policy, schema: Schema) -> None:
        self.policy, self.schema = policy, schema
        self._frozen: dict[tuple[int, str], Frozen] = {}
        self._ceilings: dict[tuple[int, str], tuple[Model, Ceilings]] = {}

    def census(
        self, index: int, split: str, total: CensusTotal, withheld: int
    ) -> CensusTotal:
        """Freeze a silo's census, or compare it with the frozen one (fault 48)."""
        limits = (self.policy.largest_rows, self.policy.weight_bound)
        Census(self.schema, split).check(total, withheld, *limits)
        return self.freeze(index, split, total, withheld)

    def freeze(
        self, index: int, split: str, total: CensusTotal, withheld: int
    ) -> CensusTotal:
        """Keep a census that was judged, or compare it with the one that is kept."""
        found = Frozen(total, withheld)
        known = self._frozen.setdefault((index, split), found)
        if known.withheld != withheld or not known.total.same(total):
            raise Refused("[changed-census] the census changed since it was frozen")
        return known.total

    def frozen(self, index: int, split: str) -> Frozen | None:
        """Return a silo's frozen census."""
        return self._frozen.get((index, split))

    def counts(self, index: int, split: str) -> FloatArray:
        """Rows per atom of a silo."""
        return self._frozen[index, split].total.counts[0].astype(np.float64)

    def report(self, query: Query[Any], index: int, total: Any) -> Verdict:
        """Judge one silo's report, or raise `Refused`."""
        total.check_size()
        if isinstance(query, Census) and query.centred:
            query.check_centred(self._frozen[index, query.split].total, total)
        if not isinstance(query, ModelQuery):
            return Verdict(total)
        known = self.known(query, index)
        with np.errstate(over="ignore", invalid="ignore"):
            admitted = query.check(known, total)
        return Verdict(admitted, admitted is not total)

    def known(self, query: ModelQuery[Any], index: int) -> Known:
        """Gather what is known of a silo for a query."""
        census = self._frozen[index, query.split].total
        counts, task = self.counts(index, query.split), query.task
        pool = task.pool
        member = task.cells.of_silo(index)
        return Known(
            int(census.rows[0]),
            counts,
            census.weights[0],
            float(task.shares[index]),
            member,
            member @ census.weights[0],
            self._ceiling(query, index, census),
            self.schema,
            self.policy.loss_bound,
            self.policy.update_clip,
            1 if pool is None else pool.silos,
            1.0 if pool is None else pool.uneven(query.split),
        )

    def _ceiling(
        self, query: ModelQuery[Any], index: int, census: CensusTotal
    ) -> Ceilings:
        model, key = query.task.model, (index, query.split)
        cached = self._ceilings.get(key)
        if cached and cached[0] is model:
            return cached[1]
        found = Ceilings.of(model, census)
        self._ceilings[key] = (model, found)
        return found


def _is_quorum(value: object) -> bool:
    if value is None:
        return True
    if type(value) is int:
        return value >= 1
    return type(value) is float and 0 < value <= 1


def _wrong(name: str, wanted: str, value: object) -> str:
    return (
        f"[wrong-value] The '{name}' parameter must be {wanted}. Got {value!r} instead."
    )
