"""Admission: whether what silos tell can be true, judged by their frozen census."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pffl.data.schema import Schema
from pffl.errors import Problems, Refused, UsageError, wrong
from pffl.models.base import Model
from pffl.numerics import is_number
from pffl.parcel import LARGEST
from pffl.queries import Census, CensusTotal, ModelQuery, Query
from pffl.queries.plausible import Ceilings, Known
from pffl.typing import FloatArray

FEWEST_SITES = 3  # of a secure sum: of two, each would know the other's answer


@dataclass(frozen=True)
class Policy:
    """Rules of a deployed run.

    Parameters
    ----------
    seconds
        How long one message may take until its answer counts as missing.
    join_seconds
        How long to wait for sites that are not there.
    retries
        How often those who did not answer are asked again, byte for byte.
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

    seconds: float = 300.0
    join_seconds: float = 600.0
    retries: int = 2
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
                    wanted = "a finite number > 0"
                    problems.add(wrong(name, "[policy]", wanted, value))
            for name in ("retries", "largest_message", "largest_rows"):
                value, least = getattr(self, name), int(name != "retries")
                if type(value) is not int or value < least:
                    wanted = f"a whole number ≥ {least}"
                    problems.add(wrong(name, "[policy]", wanted, value))


def counts_rows(query: Query[Any]) -> bool:
    """Whether it is the census that is asked once, and frozen."""
    return isinstance(query, Census) and not (query.centred or query.released)


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
        known = self._frozen.setdefault((index, split), Frozen(total, withheld))
        if known.withheld != withheld or not known.total.same(total):
            raise Refused("[changed-census] the census changed since it was frozen")
        return known.total

    def frozen(self, index: int, split: str) -> Frozen | None:
        """Return a silo's frozen census."""
        return self._frozen.get((index, split))

    def counts(self, index: int, split: str) -> FloatArray:
        """Rows per atom of a silo."""
        return self._frozen[index, split].total.counts[0].astype(np.float64)

    def report(self, query: Query[Any], index: int, total: Any) -> Any:
        """Return one silo's report, or a harmless part of it, or raise `Refused`."""
        total.check_size()
        if isinstance(query, Census) and query.centred:
            query.check_centred(self._frozen[index, query.split].total, total)
        if not isinstance(query, ModelQuery):
            return total
        known = self.known(query, index)
        with np.errstate(over="ignore", invalid="ignore"):
            return query.check(known, total)

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
