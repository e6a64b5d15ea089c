"""`plan`: before training, whether a promise for people not seen can be made.

    1  of the training rows, only those are looked at that stay training rows however
       many of the others are set apart for calibration: 40 % of them
    2  these are cut into folds; on all but one the safest model of a path is trained,
       and measured on the one that is left (`path.find_safest`)
    3  from its losses on rows that it was fitted to, and on others, the mean loss for
       any number of training rows is forecast, and the upper end that any number of
       calibration rows will about show (`outlook`)
    4  the share of rows for calibration is taken at which all bounds are shown most
       probably; of about equal ones the smallest

It is a forecast, by which nothing is shown. Of all other rows, held-out ones first of
all, nothing but their number is known to it: a share, or a bound, may be chosen by it,
and the promise of the run that follows is as good as without it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pffl._solve import default_method
from pffl.constraints.base import Constraint
from pffl.data.federation import Federation
from pffl.data.partition import CALIBRATION
from pffl.engines.base import Engine
from pffl.errors import UsageError
from pffl.methods import method_of
from pffl.methods.base import Method
from pffl.models.base import Model
from pffl.models.linear import default_model
from pffl.planning import outlook
from pffl.planning.trial import FEWEST, Looked, Report, Trial
from pffl.prepare import Options
from pffl.text import decimals, element, few, text_table, up, words
from pffl.typing import FloatArray

#: Of the training rows, for calibration: shares to choose from.
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
ALIKE = 0.02  # of a chance: no reason to train on fewer rows
CONFIDENCES = (0.9, 0.95, 0.99, 0.999)


@dataclass(frozen=True)
class CellPlan:
    """What is forecast of one cell, at the split that is taken.

    Attributes
    ----------
    cell, bound
        Its name, and ζ.
    rows, calibration_rows
        Rows (people, where an id tells) for training and calibration together, and
        those of them that are for calibration.
    mean_loss, upper
        For people not seen, of the safest model: its mean loss, and the upper end that
        the calibration rows will about show; None where they were too few.
    rows_needed
        Rows for training and calibration together, split alike, with which its bound
        is shown in 4 of 5 cases; None where no number would do, or nothing is known.
    """

    cell: str
    bound: float
    rows: int
    calibration_rows: int
    mean_loss: float | None
    upper: float | None
    rows_needed: int | None


@dataclass(frozen=True)
class SplitPlan:
    """What is forecast of one way to split the rows.

    Attributes
    ----------
    calibration
        Share of the training rows that is set apart for calibration; None where other
        rows serve for it, those of the split `rows`.
    rows
        The split that they are.
    training_rows, calibration_rows
        How many there are.
    chance
        About how probable it is that every bound is shown.
    rise
        By how much all bounds would about have to rise to be shown in half of the
        cases; negative where there is room.
    """

    calibration: float | None
    rows: str
    training_rows: int
    calibration_rows: int
    chance: float
    rise: float

    @property
    def words(self) -> str:
        """What it is called."""
        if self.calibration is None:
            return f"{self.rows} rows"
        return f"{100 * self.calibration:.3g} % of the training rows"


@dataclass(frozen=True)
class ConfidencePlan:
    """What a confidence costs, at the split that is taken: see `SplitPlan`.

    `times` the rows that there are, split alike, every bound would be shown in 4 of 5
    cases; None where no number of rows would do.
    """

    confidence: float
    chance: float
    rise: float
    times: float | None


@dataclass(frozen=True, eq=False, repr=False)
class PromisePlan:
    """What is forecast of a promise for people not seen; see `pffl.plan`.

    Attributes
    ----------
    data, confidence
        What the data are called, and the confidence asked for.
    best, splits
        The split to take, and all that were compared.
    cells, confidences
        What is forecast of each cell, and what a confidence costs, at that split.
    looked_at
        Training rows that were looked at.
    report_rows
        Held-out rows that stay for the report: nothing but their number was looked at.
    few
        Cells with too few rows to be looked at: they are taken to be like all others
        together. If all are, nothing is forecast.
    several
        Whether people have several rows: then people are counted.
    notes
        What a reader must know.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(3000, silos=3, groups=["f", "m"], seed=0)
    >>> found = pffl.plan(people, pffl.BoundedGroupLoss(0.4))
    >>> found.hopeless
    ['f', 'm']
    """

    data: str
    confidence: float
    best: SplitPlan
    splits: tuple[SplitPlan, ...]
    cells: tuple[CellPlan, ...]
    confidences: tuple[ConfidencePlan, ...]
    looked_at: int
    report_rows: int
    few: tuple[str, ...] = ()
    several: bool = False
    notes: tuple[str, ...] = ()

    @property
    def unknown(self) -> bool:
        """Whether nothing is forecast."""
        return all(cell.upper is None for cell in self.cells)

    @property
    def who(self) -> str:
        """What is counted."""
        return "people" if self.several else "rows"

    @property
    def hopeless(self) -> list[str]:
        """Cells whose bound no number of rows would show."""
        none = [cell.cell for cell in self.cells if cell.rows_needed is None]
        return [] if self.unknown else none

    @property
    def common(self) -> float | None:
        """The common bound that can be promised in half of the cases, or so."""
        bounds = {cell.bound for cell in self.cells}
        return bounds.pop() + self.best.rise if len(bounds) == 1 else None

    @property
    def sentence(self) -> str:
        """How it stands, in words: a forecast."""
        sure = f"{100 * self.confidence:.6g} %"
        if self.unknown:
            return (
                f"{self.data}: no forecast. Of {few(self.few)} fewer than {FEWEST} "
                "training rows may be looked at; such cells can hardly be promised "
                "anything."
            )
        text = (
            f"{self.data}, forecast: with confidence {sure} every bound can be "
            f"promised for people not seen in {_share(self.best.chance)} of cases, "
            f"with {self.best.words} for calibration."
        )
        if self.common is not None:
            text += (
                f" A common bound of about {words(self.common)} can be promised in "
                "half of the cases."
            )
        return text

    @property
    def in_the_way(self) -> str:
        """Which cell lacks most, and what would help; nothing where none does."""
        if self.unknown:
            return ""
        if self.hopeless:
            none = [cell for cell in self.cells if cell.rows_needed is None]
            z = max(none, key=lambda cell: (cell.mean_loss or 0.0) - cell.bound)
            return (
                f"In the way stands '{z.cell}': even with many more rows its mean loss "
                f"would be about its bound of {words(z.bound)}, or above it. A larger "
                "bound, or other inputs, would help; more rows would not."
            )
        short = [cell for cell in self.cells if (cell.rows_needed or 0) > cell.rows]
        if not short:
            return ""
        worst = max(short, key=lambda cell: (cell.rows_needed or 0) / max(cell.rows, 1))
        needed = float(up(worst.rows_needed or 0, digits=2))
        return (
            f"In the way stands '{worst.cell}': to show its bound in 4 of 5 cases "
            f"takes about {needed:,.0f} {self.who} of it, split alike, and there are "
            f"{worst.rows:,}."
        )

    @property
    def price(self) -> str:
        """What a larger confidence costs, in words; nothing where that is not known."""
        more = [c for c in self.confidences if c.confidence > self.confidence]
        if not more:
            return ""
        own = next(c for c in self.confidences if c.confidence == self.confidence)
        other = more[0]
        text = (
            f"A confidence of {100 * other.confidence:.6g} % instead costs about "
            f"{words(other.rise - own.rise, digits=2)} in every bound"
        )
        if own.times and other.times:
            text += (
                f", or {words(other.times / own.times, digits=2)} times the rows for "
                "the same bounds"
            )
        return f"{text}."

    @property
    def _rough(self) -> str:
        """Name the cells of which little is known; nothing where there are none."""
        if not self.few:
            return ""
        return (
            f"Of {few(self.few)} fewer than {FEWEST} training rows may be looked at: "
            "taken to be like all others together, which is a guess."
        )

    @property
    def honest(self) -> str:
        """What it is, and what it looked at."""
        text = (
            f"This is a forecast, and shows nothing. It looked at {self.looked_at:,} "
            "training rows that stay training rows at every share"
        )
        if self.report_rows:
            text += (
                f", and at no held-out row: {self.report_rows:,} of them are counted, "
                "and stay for the report or serve for calibration"
            )
        return f"{text}."

    @property
    def sentences(self) -> list[str]:
        """All that there is to say, in order."""
        if self.unknown:
            return [self.sentence]
        parts = self.sentence, self.in_the_way, self.price, self._rough, self.honest
        return [part for part in parts if part]

    @property
    def table(self) -> list[dict[str, str]]:
        """A row per cell, as text."""
        return [
            {
                "cell": cell.cell,
                "bound": decimals(cell.bound),
                self.who: f"{cell.rows:,}",
                "to calibrate": f"{cell.calibration_rows:,}",
                "mean loss": _loss(cell.mean_loss),
                "shown at most": _loss(cell.upper),
                f"{self.who} needed": _needed(cell),
            }
            for cell in self.cells
        ]

    @property
    def split_table(self) -> list[dict[str, str]]:
        """A row per split, as text; the one to take is marked."""
        return [
            {
                "calibration": f"{one.words}{' ◀' * (one == self.best)}",
                "training rows": f"{one.training_rows:,}",
                "calibration rows": f"{one.calibration_rows:,}",
                "promised in": _percent(one.chance),
                "bounds rise by": f"{one.rise:+.4f}",
            }
            for one in self.splits
        ]

    @property
    def confidence_table(self) -> list[dict[str, str]]:
        """A row per confidence, as text."""
        return [
            {
                "confidence": f"{100 * one.confidence:.6g} %",
                "promised in": _percent(one.chance),
                "bounds rise by": f"{one.rise:+.4f}",
                f"{self.who} needed": "–" if one.times is None else _times(one.times),
            }
            for one in self.confidences
        ]

    @property
    def tables(self) -> list[list[dict[str, str]]]:
        """The tables that there are: of cells without a forecast only one."""
        if self.unknown:
            return [self.table]
        return [self.table, self.split_table, self.confidence_table]

    def as_dict(self) -> dict[str, Any]:
        """Plain form, for JSON."""
        return {
            "format": "pffl.plan",
            "version": 1,
            "forecast": True,
            "data": self.data,
            "confidence": self.confidence,
            "sentences": self.sentences,
            "chance": None if self.unknown else self.best.chance,
            "common_bound": None if self.unknown else self.common,
            "best": asdict(self.best),
            "cells": [asdict(cell) for cell in self.cells],
            "splits": [] if self.unknown else [asdict(one) for one in self.splits],
            "confidences": [asdict(c) for c in self.confidences],
            "looked_at": self.looked_at,
            "report_rows": self.report_rows,
            "too_few_rows": list(self.few),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        """Return tables and sentences, in plain lines."""
        lines = [line for rows in self.tables for line in ("", *text_table(rows))]
        return "\n".join([*lines, "", *self.sentences]).lstrip()

    def _repr_html_(self) -> str:
        """Show it in a notebook; every text is escaped."""
        return element("plan", "Promise: a forecast", self.sentences, self.table)


def _percent(chance: float) -> str:
    if not 0.01 <= chance <= 0.99:
        return "< 1 %" if chance < 0.01 else "> 99 %"
    return f"{100 * chance:.0f} %"


def _times(factor: float) -> str:
    return (
        f"{factor:.2g} ×" if factor < 100 else f"{float(up(factor, digits=2)):,.0f} ×"
    )


def _share(chance: float) -> str:
    if not 0.01 <= chance <= 0.99:
        return "less than 1 %" if chance < 0.01 else "more than 99 %"
    return f"about {100 * chance:.0f} %"


def _loss(number: float | None) -> str:
    return "–" if number is None else decimals(number)


def _needed(cell: CellPlan) -> str:
    if cell.upper is None:
        return "too few to tell"
    return "none would do" if cell.rows_needed is None else f"{cell.rows_needed:,}"


def plan(
    federation: Federation | Engine,
    constraint: Constraint | None,
    *,
    confidence: float = 0.95,
    model: Model | None = None,
    method: Method | str | None = None,
    options: Options | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> PromisePlan:
    """Forecast, before training, whether bounds can be promised for people not seen.

    Parameters
    ----------
    federation
        The silos; their rows must be at hand. Where calibration rows are set apart
        (`with_calibration`), the forecast is for these; else a share is proposed.
    constraint
        What is promised to whom.
    confidence
        1 − δ of the promise; that of `options` plays no part.
    model, method, options
        As for `solve`.
    seed
        Of `with_calibration`, as it will be called: rows that are looked at stay
        training rows only under the same seed (in a run file, that of [data]).
    report
        Called before each fold, with what is trained, its number, and how many.

    Returns
    -------
    PromisePlan
        How to split, and what is forecast of each cell; print it.

    Raises
    ------
    UsageError
        The rows are elsewhere, or a bound or the l2 is "auto".

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(3000, silos=3, groups=["f", "m"], seed=0)
    >>> found = pffl.plan(people, pffl.BoundedGroupLoss(0.75))
    >>> found.hopeless, found.best.calibration
    ([], 0.5)
    """
    here = federation if isinstance(federation, Federation) else federation.federation
    if here is None:
        raise UsageError(
            "[needs-rows] a plan trains on some of the training rows and looks at "
            "others, and they are elsewhere: each site can plan with its own"
        )
    settings = replace(options or Options(), confidence=confidence)
    settings = replace(settings, promise=None, models=None)
    if settings.l2 is not None or (constraint is not None and constraint.open):
        raise UsageError(
            "[auto-refused] a plan is for bounds and an l2 that are numbers, not 'auto'"
        )
    bare = model or default_model(here.schema)
    used = default_method(bare) if method is None else method_of(method)
    rows = here
    if CALIBRATION not in here.splits:
        rows = here.with_calibration(max(SHARES), seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself will warn
        looked = Trial(constraint, bare, used, settings).look(rows, report)
    many = {split: here.rows(split) for split in here.splits}
    return Forecast(looked, many, confidence).plan(here.name, rows.rows("train"))


@dataclass(frozen=True, eq=False)
class Cut:
    """A way to split.

    Attributes
    ----------
    share, split
        As `calibration` and `rows` of a `SplitPlan`.
    training, calibration
        Rows in all.
    people, others
        Calibration and training people of each cell.
    """

    share: float | None
    split: str
    training: int
    calibration: int
    people: FloatArray
    others: FloatArray


@dataclass(frozen=True, eq=False)
class Forecast:
    """From what was looked at to a plan.

    Attributes
    ----------
    looked
        What is known of the cells.
    rows
        How many there are in each split of the data, as they are.
    confidence
        1 − δ.
    """

    looked: Looked
    rows: Mapping[str, int]
    confidence: float

    def plan(self, name: str, looked_at: int) -> PromisePlan:
        """Compare the splits, and take the one with the best chance."""
        delta, cuts = 1.0 - self.confidence, self._cuts()
        splits = tuple(self._split(cut, delta) for cut in cuts)
        place = self._best(splits)
        sure = sorted({*CONFIDENCES, self.confidence})
        if not self.looked.cells:
            sure = []
        aside = (n for s, n in self.rows.items() if s not in ("train", CALIBRATION))
        return PromisePlan(
            name,
            self.confidence,
            splits[place],
            splits,
            self._cells(cuts[place], delta),
            tuple(self._sure(cuts[place], one) for one in sure),
            looked_at,
            sum(aside),
            self.looked.few,
            self.looked.several,
            tuple(dict.fromkeys(self.looked.notes)),
        )

    def _cuts(self) -> list[Cut]:
        """Return the ways to split that there are."""
        counts, rows = self.looked.counts, self.rows
        if CALIBRATION in rows:
            parts = rows["train"], rows[CALIBRATION]
            cells = counts[CALIBRATION], counts["train"]
            return [Cut(None, CALIBRATION, *parts, *cells)]
        T, whole = rows["train"], counts["train"] + counts[CALIBRATION]
        cuts = [
            Cut(c, "train", round((1 - c) * T), round(c * T), part, whole - part)
            for c, part in ((c, np.floor(c * whole)) for c in SHARES)
        ]
        if "test" in rows:
            cuts.append(Cut(None, "test", T, rows["test"], counts["test"], whole))
        return cuts

    def _best(self, splits: Sequence[SplitPlan]) -> int:
        """Return the place of the split to take.

        Of those about as good as the best the one with most training rows; where none
        has a chance, the one that lacks least.
        """
        top = max(one.chance for one in splits)
        if top < ALIKE:
            return min(range(len(splits)), key=lambda i: splits[i].rise)
        good = [i for i, one in enumerate(splits) if one.chance >= top - ALIKE]
        return max(good, key=lambda i: splits[i].training_rows)

    def _judged(self, cut: Cut, delta: float) -> tuple[float, float]:
        """Return the chance that all bounds are shown, and what they must rise by."""
        if not self.looked.cells:
            return 0.0, 0.0
        pairs = list(zip(self.looked.cells, cut.people, strict=True))
        rooms = [cell.room(n, cut.training, delta) for cell, n in pairs]
        rises = [cell.upper(n, cut.training, delta) - cell.bound for cell, n in pairs]
        return outlook.chance(rooms), max(rises)

    def _split(self, cut: Cut, delta: float) -> SplitPlan:
        return SplitPlan(
            cut.share,
            cut.split,
            cut.training,
            cut.calibration,
            *self._judged(cut, delta),
        )

    def _sure(self, cut: Cut, confidence: float) -> ConfidencePlan:
        delta, cells = 1.0 - confidence, list(self.looked.cells or ())
        by = outlook.times(cells, cut.people, cut.others, cut.training, delta)
        return ConfidencePlan(confidence, *self._judged(cut, delta), by)

    def _cells(self, cut: Cut, delta: float) -> tuple[CellPlan, ...]:
        """Say what is forecast of each cell at one split."""
        counts = self.looked.counts
        known = self.looked.cells or [None] * len(self.looked.names)
        whole = counts["train"] + counts[CALIBRATION]
        if cut.split == "test":
            whole = whole + counts["test"]
        out = []
        for z, cell in enumerate(known):
            mean = end = by = None
            if cell is not None:
                mean = cell.mean(cut.training)
                end = cell.upper(cut.people[z], cut.training, delta)
                own = cut.people[z : z + 1], cut.others[z : z + 1]
                by = outlook.times([cell], *own, cut.training, delta)
            out.append(
                CellPlan(
                    self.looked.names[z],
                    float(self.looked.bounds[z]),
                    int(whole[z]),
                    int(cut.people[z]),
                    mean,
                    end,
                    None if by is None else math.ceil(by * whole[z]),
                )
            )
        return tuple(out)
