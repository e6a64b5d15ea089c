"""The gate: freezes the census, judges every report against it, remembers series."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from pffl.admission.ceilings import Ceilings
from pffl.admission.policy import Policy, Refused
from pffl.admission.reports import (
    Known,
    check_census,
    check_curvature,
    check_evaluate,
    check_train,
)
from pffl.admission.series import Series, Updates
from pffl.data.schema import Schema
from pffl.models.base import Model
from pffl.questions import (
    CensusTotal,
    Curvature,
    Evaluate,
    ModelQuestion,
    Total,
    Train,
)
from pffl.typing import FloatArray

HUGE = 1e150  # sums of any number of silos, and their squares, stay finite


@dataclass(frozen=True, eq=False)
class Verdict:
    """An admitted report: as it was sent, or clipped; and what is odd about it."""

    total: Any
    clipped: bool = False
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Frozen:
    """A silo's census of one split."""

    total: CensusTotal
    withheld: int

    def same(self, other: Frozen) -> bool:
        """Whether another census says the same (sums up to the order of addition)."""
        a, b = self.total, other.total
        return (
            self.withheld == other.withheld
            and np.array_equal(a.rows, b.rows)
            and np.array_equal(a.counts, b.counts)
            and np.allclose(a.feature_sums, b.feature_sums, rtol=1e-9, atol=1e-9)
            and np.allclose(a.feature_squares, b.feature_squares, rtol=1e-9, atol=1e-9)
        )


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
        self._series: dict[tuple[int, str, bytes], Series] = {}
        self._updates = Updates()

    def census(
        self, index: int, split: str, total: CensusTotal, withheld: int
    ) -> CensusTotal:
        """Freeze a silo's census, or compare it with the frozen one (fault 48)."""
        _check_size(total)
        check_census(total, withheld, split, self.schema, self.policy)
        found = Frozen(total, withheld)
        known = self._frozen.setdefault((index, split), found)
        if not known.same(found):
            raise Refused("the census changed since it was frozen")
        return known.total

    def frozen(self, index: int, split: str) -> Frozen | None:
        """Return a silo's frozen census."""
        return self._frozen.get((index, split))

    def counts(self, index: int, split: str) -> FloatArray:
        """Rows per atom of a silo."""
        return self._frozen[index, split].total.counts[0].astype(np.float64)

    def report(self, question: ModelQuestion[Any], index: int, total: Total) -> Verdict:
        """Judge one silo's report, or raise `Refused`."""
        _check_size(total)
        known = self.known(question, index)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._judged(question, index, known, total)

    def known(self, question: ModelQuestion[Any], index: int) -> Known:
        """Gather what is known of a silo for a question."""
        census = self._frozen[index, question.split].total
        counts, task = self.counts(index, question.split), question.task
        member = task.cells.of_silo(index)
        return Known(
            int(census.rows[0]),
            counts,
            float(task.shares[index]),
            member,
            member @ counts,
            self._ceiling(question, index, census),
            self.policy,
            self.schema,
        )

    def _ceiling(
        self, question: ModelQuestion[Any], index: int, census: CensusTotal
    ) -> Ceilings:
        model, key = question.task.model, (index, question.split)
        cached = self._ceilings.get(key)
        if cached and cached[0] is model:
            return cached[1]
        rows = int(census.rows[0])
        found = Ceilings.of(model, rows, census.feature_sums, census.feature_squares)
        self._ceilings[key] = (model, found)
        return found

    def _judged(
        self, question: ModelQuestion[Any], index: int, known: Known, total: Any
    ) -> Verdict:
        flags: tuple[str, ...] = ()
        admitted = total
        if isinstance(question, Train):
            admitted = check_train(known, question, total)
            losses = total.cell_losses
            flags = self._updates.flags(index, question, total, known)
        elif isinstance(question, Evaluate):
            check_evaluate(known, question, total)
            losses = total.column("loss", of="cells")
        elif isinstance(question, Curvature):
            check_curvature(known, question, total)
            losses = total.cell_losses
        else:
            raise TypeError(f"{type(question).__name__} is none of the four questions")
        key = (index, question.split, known.member.tobytes())
        series = self._series.setdefault(key, Series())
        if series.add(question.w, losses, known.sizes, known.ceilings):
            flags = ("jump", *flags)
        return Verdict(admitted, admitted is not total, flags)


def missing_cells(gate: Gate, question: Train, missing: tuple[int, ...]) -> FloatArray:
    """Mark with NaN the cells in which silos that did not answer have rows.

    Their sums would be of some rows only: no dual step is made on them, and they never
    count as "no violation" (fault 41).
    """
    blank = np.zeros(len(question.task.cells))
    for k in missing:
        sizes = question.task.cells.of_silo(k) @ gate.counts(k, question.split)
        blank[sizes > 0] = np.nan
    return blank


def _check_size(total: Any) -> None:
    """Refuse numbers so large that sums of them could overflow."""
    for field in fields(total):
        value = getattr(total, field.name)
        if isinstance(value, str):
            continue
        if not (np.abs(np.asarray(value, np.float64)) <= HUGE).all():
            raise Refused("a number that is not finite, or larger than any sum")
