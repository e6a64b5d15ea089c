"""Whether an answer can be true, judged by the silo's frozen census.

Shapes and ranges follow from what a query declares; counts and weights must be those
that the silo told first. Every check refuses with a reason that holds no figure of the
report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from pffl.data.schema import Schema
from pffl.errors import Refused
from pffl.queries.base import ROUNDING, ModelQuery, Query
from pffl.queries.census import Census, CensusTotal
from pffl.queries.evaluate import Evaluate
from pffl.records import Positive, check_parameters
from pffl.typing import FloatArray

MIN_SITES = 3  # of a secure sum: of two, each would know the other's answer
MAX_ROWS = 10**9  # of a silo
POOLED_ROUNDING = 1e-6  # relative, of a share that several sites add up to


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
    weight_bound
        What no row weighs more than, where the sites' rows have weights. None: all
        rows are unweighted, and a site whose rows have weights is refused.
    """

    seconds: Positive = 300.0
    join_seconds: Positive = 600.0
    retries: Annotated[int, Field(ge=0, le=1000)] = 2
    weight_bound: Positive | None = None

    def __post_init__(self) -> None:
        check_parameters(self)


class Gate:
    """Judges reports, silo by silo.

    Parameters
    ----------
    policy, schema
        The rules, and what the silos agreed on.
    """

    def __init__(self, policy: Policy, schema: Schema) -> None:
        self.policy, self.schema = policy, schema
        self.frozen: dict[tuple[int, str], CensusTotal] = {}
        self.withheld: dict[tuple[int, str], int] = {}

    def census(
        self, index: int, split: str, total: CensusTotal, withheld: int
    ) -> CensusTotal:
        """Freeze a silo's census, or compare it with the frozen one (fault 48).

        `withheld` is the number of (group, label)s that the silo says it leaves out.
        """
        total.check_size()
        rows, counts = int(total.rows[0]), total.counts[0]
        require(0 <= rows <= MAX_ROWS, "an impossible number of rows")
        every = np.array(float(rows))
        total.check_ranges(None, {"": every}, {"": total.weight})
        require(rows == int(counts.sum()), "counts do not add up to the rows")
        empty = len(counts) - int(np.count_nonzero(counts))
        require(withheld <= empty, "counts that are withheld and given")
        self._check_weights(total)
        known = self.frozen.setdefault((index, split), total)
        hidden = self.withheld.setdefault((index, split), withheld)
        if hidden != withheld or not _same(known, total):
            raise Refused("changed-census")
        return known

    def _check_weights(self, total: CensusTotal) -> None:
        """Demand weights that n rows can have: of each stratum, and of all."""
        rows = np.append(total.rows, total.counts[0]).astype(np.float64)
        weights = np.append(total.weight, total.weights[0])
        if self.policy.weight_bound is None:
            equal = np.allclose(weights, rows)
            require(equal, "weights that are not those of the rows")
            return
        there = (weights > 0) == (rows > 0)
        require(bool(there.all()), "weights of no rows, or none")
        most = self.policy.weight_bound * rows * (1 + ROUNDING)
        require(bool((weights <= most).all()), "a weight outside what is possible")
        left = abs(float(total.weights.sum()) - weights[0])
        require(left <= ROUNDING * weights[0], "weights do not add up to that of all")

    def report(self, query: Query[Any], index: int, total: Any) -> Any:
        """Return one silo's report, or raise `Refused`; with noise any sum can be."""
        total.check_size()
        if isinstance(query, Census) and query.centred:
            names = ("rows", "counts", "weight", "weights", "stored")
            known = self.frozen[index, query.split]
            require(_same(known, total, names), "counts changed since the census")
        if isinstance(query, ModelQuery) and not query.released:
            with np.errstate(over="ignore", invalid="ignore"):
                self._judge(query, index, total)
        return total

    def _judge(self, query: ModelQuery[Any], index: int, total: Any) -> None:
        """Refuse sums that no rows of the silo can have, and another share."""
        census = self.frozen[index, query.split]
        member = query.task.cells.of_silo(index)
        if isinstance(query, Evaluate):
            same = bool((total.column("count") == census.counts[0]).all())
            require(same, "counts changed since the census")
        rows = _by_axis(census.counts[0], float(census.rows[0]), member)
        masses = _by_axis(census.weights[0], float(census.weight[0]), member)
        weighted = any((masses[axis] != rows[axis]).any() for axis in ("strata", ""))
        total.check_ranges(query, rows, masses if weighted else None)
        whole = float(query.task.shares[index]) if census.rows[0] else 0.0
        share, pool = getattr(total, "share", whole), query.task.pool
        agreed = share == whole
        if pool is not None and pool.silos > 1:
            agreed = 0 <= share <= whole * (1 + POOLED_ROUNDING)
        require(agreed, "another share than the agreed one")


def _by_axis(
    strata: FloatArray, whole: float, member: FloatArray
) -> dict[str, FloatArray]:
    """Return what is known per stratum for each axis of an answer, and of all ("")."""
    cells = member @ strata
    some = {"strata": strata, "z": cells, "": np.array(whole)}
    return {**some, "v": np.append(whole, cells)}


def _same(one: CensusTotal, other: CensusTotal, names: tuple[str, ...] = ()) -> bool:
    """Whether two censuses say the same, sums up to the order of addition."""
    pairs = ((getattr(one, n), getattr(other, n)) for n in names or one.declared)
    return all(
        np.array_equal(a, b)
        or (a.dtype == np.float64 and np.allclose(a, b, 1e-9, 1e-9))
        for a, b in pairs
    )


def require(condition: bool, reason: str) -> None:
    """Refuse, unless the condition holds."""
    if not condition:
        raise Refused(f"[implausible-answer] {reason}")
