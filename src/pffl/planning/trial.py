"""What a plan looks at: models for some training rows, measured on others.

    1  the rows are cut into folds, inside each silo, all rows of a person together
    2  on all but one fold the safest model of a path is trained (`path.find_safest`),
       and its losses are measured on the fold that is left
    3  what these come to is what `outlook` forecasts from

Of other splits nothing is asked but a census: how many rows each cell has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pffl._solve import setting_of
from pffl.bounds.mean import MOMENTS, Moments
from pffl.constraints.base import Constraint
from pffl.data.checks import listing
from pffl.data.federation import Federation
from pffl.data.partition import CALIBRATION
from pffl.data.silo import Rows, Silo
from pffl.driver import drive
from pffl.engines import Local
from pffl.errors import DataError, NotMetError, UsageError
from pffl.evidence.measure import Wanted, expected_rows, heldout_sample
from pffl.evidence.record import Missing, Sample
from pffl.flow import Flow, ask_all
from pffl.methods.base import Method
from pffl.models.base import Model
from pffl.path import check_bounded, find_safest
from pffl.planning.outlook import Outlook
from pffl.prepare import Options, Setting, prepare
from pffl.problem import Problem
from pffl.queries import Census
from pffl.typing import BoolArray, FloatArray, IntArray

FOLDS = 4
FEWEST = 4 * FOLDS  # rows of a cell to be looked at, for a forecast of it
LEFT = "validation"  # the fold that is not trained on
Report = Callable[[str, int, int | None], None]  # what, how many, of how many


@dataclass(frozen=True, eq=False)
class Looked:
    """What was looked at.

    Attributes
    ----------
    names, bounds
        Of the cells.
    counts
        Rows of each cell, by split; people, where an id says whom they are about.
    cells
        What is known of each cell; nothing where all have too few rows.
    few
        The cells with too few rows: they are taken to be like all others together.
    several
        Whether people have several rows.
    notes
        What a reader must know of the rows.
    """

    names: tuple[str, ...]
    bounds: FloatArray
    counts: dict[str, FloatArray]
    cells: tuple[Outlook, ...]
    few: tuple[str, ...]
    several: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Fold:
    """What came of one fold.

    Attributes
    ----------
    trained, rows
        Mean losses of the cells on the rows that were trained on, and how many these
        were in all.
    sums, people, found
        Of the rows that were not: sums of `weighted.MOMENTS` over people, shape (Z, 5),
        how many people each cell has, and how many rows.
    loss_bound
        M of the model.
    """

    trained: FloatArray
    rows: int
    sums: FloatArray
    people: FloatArray
    found: FloatArray
    loss_bound: float


@dataclass(frozen=True)
class Trial:
    """What all folds share."""

    constraint: Constraint | None
    model: Model
    method: Method
    options: Options

    def look(self, federation: Federation, report: Report | None = None) -> Looked:
        """Train and measure, fold by fold, on the training rows alone."""
        engine = Local(federation)
        setting = setting_of(engine)
        names, bounds, counts, notes = drive(engine, self._counted(setting))
        several, weighted = setting.data.several, bool(setting.data.weighted)
        if weighted and self.options.weight_bound is None:
            raise UsageError(
                "[needs-weight-bound] rows have weights, and it is not known what no "
                "weight is above: `weight_bound=NUMBER`"
            )
        short = counts["train"] < FEWEST
        if short.all():
            return Looked(names, bounds, counts, (), names, several, notes)
        found: list[Fold] = []
        for fold in folds(federation):
            if report is not None:
                report("safest model", len(found) + 1, FOLDS)
            here = replace(setting, splits=fold.splits)
            found.append(drive(Local(fold), self._fold(here, names)))
        rows, people = (
            np.sum([getattr(one, name) for one in found], axis=0)
            for name in ("found", "people")
        )
        short |= people < FEWEST / 2
        few = tuple(names[z] for z in np.flatnonzero(short).tolist())
        if short.all():
            return Looked(names, bounds, counts, (), few, several, notes)
        share = np.where(rows > 0, people / np.maximum(rows, 1.0), 1.0)
        counts = {split: np.floor(many * share) for split, many in counts.items()}
        enough = np.flatnonzero(~short).tolist()
        cells = [
            joined(found, enough if short[z] else [z], float(bound), weighted=weighted)
            for z, bound in enumerate(bounds)
        ]
        own = np.maximum(people, 1.0).tolist()
        cells = [replace(one, people=n) for one, n in zip(cells, own, strict=True)]
        return Looked(names, bounds, counts, tuple(cells), few, several, notes)

    def _counted(
        self, setting: Setting
    ) -> Flow[
        tuple[tuple[str, ...], FloatArray, dict[str, FloatArray], tuple[str, ...]]
    ]:
        """Ask for the cells, and how many rows each has in every split."""
        problem, notes = yield from self._prepared(setting)
        check_bounded(self.constraint, problem)
        cells = problem.cells
        if self.constraint is not None:  # those without rows here, too
            cells = self.constraint.cells(setting.schema, setting.silo_names)
        asked = [Census(setting.schema, split) for split in setting.splits]
        found = yield from ask_all(asked)
        counts = {
            split: cells.totals(one.counts.astype(np.float64))
            for split, one in zip(setting.splits, found, strict=True)
        }
        whole = counts["train"] + counts.get(CALIBRATION, 0.0)
        there = np.flatnonzero(whole)
        empty = [cells.names[z] for z in np.flatnonzero(whole == 0).tolist()]
        if empty and self.options.empty_cells == "refuse":
            raise DataError(
                f"[empty-cells] no training rows in any silo for {listing(empty)}: a "
                "promise to nobody cannot be kept or broken (`empty_cells='remove'` "
                "leaves these cells out)"
            )
        known = dict(zip(problem.cells.names, problem.cells.bounds, strict=True))
        names = tuple(cells.names[z] for z in there.tolist())
        own = cells.bounds[there].tolist()
        bounds = [known.get(name, ζ) for name, ζ in zip(names, own, strict=True)]
        counts = {split: many[there] for split, many in counts.items()}
        return names, np.array(bounds), counts, notes

    def _prepared(self, setting: Setting) -> Flow[tuple[Problem, tuple[str, ...]]]:
        """Build the problem; cells without rows among those looked at are left out."""
        options = replace(self.options, empty_cells="remove")
        parts = self.constraint, self.model, self.method, options, 0
        return (yield from prepare(setting, *parts))

    def _fold(self, setting: Setting, names: Sequence[str]) -> Flow[Fold]:
        """Train the safest model, and measure it on the fold that is left."""
        problem, _ = yield from self._prepared(setting)
        wanted = Wanted(
            setting.splits,
            heldout=(LEFT,),
            weighted=setting.data.weighted,
            weight_bound=self.options.weight_bound,
            confidence=self.options.confidence,
            open_price=self.method.multiplier_bound is None,
            baseline=False,
            least=False,
            excess=False,
        )
        rows = yield from expected_rows(problem, (LEFT,))
        method = self.method.resolved(problem)[0]
        best, _ = yield from find_safest(problem, method, wanted, rows)
        M, seen = best.loss_bound, best.measured.seen
        here = replace(wanted, loss_bound=M)
        held = yield from heldout_sample(problem, best.run.point.w, here, seen, rows)
        if isinstance(held, Missing) or M is None:
            raise NotMetError(
                "[unbounded-loss] the loss of the safest model has no bound: no number "
                "of rows can be planned"
            )
        sums, people = _people(held, M)
        at, Z = [names.index(name) for name in problem.cells.names], len(names)
        return Fold(
            _placed(seen.means, at, Z),
            seen.rows,
            _placed(sums, at, Z),
            _placed(people, at, Z),
            _placed(rows, at, Z),
            M,
        )


def _placed(values: FloatArray, at: Sequence[int], cells: int) -> FloatArray:
    """Return numbers of some cells at their places among all; 0 elsewhere."""
    out = np.zeros((cells, *values.shape[1:]))
    out[list(at)] = np.nan_to_num(values)
    return out


def _people(held: Sample, M: float) -> tuple[FloatArray, FloatArray]:
    """Return sums of the moments over people, and how many there are, per cell."""
    if held.stakes:
        sums = np.array([held.stakes[name] for name in MOMENTS]).T
        return sums, np.array(held.stakes["count"], dtype=np.float64)
    n = held.of_people("count")
    x = held.of_people("bounded_loss") / M
    square = held.of_people("bounded_loss_squared") / M**2
    return np.stack([n, x, n, x, square], axis=1), n


def joined(
    found: Sequence[Fold], places: Sequence[int], bound: float, *, weighted: bool
) -> Outlook:
    """Say what all folds together tell of some cells; M is the largest of theirs."""
    M, at = max(one.loss_bound for one in found), list(places)
    sums, people, trained = np.zeros(len(MOMENTS)), 0.0, 0.0
    for one in found:
        ratio = one.loss_bound / M
        powers = np.array([1.0, ratio, 1.0, ratio, ratio**2])
        sums += one.sums[at].sum(axis=0) * powers
        trained += float(one.people[at] @ one.trained[at])
        people += float(one.people[at].sum())
    known = Moments.of(sums, people)
    if known is None:
        raise TypeError("cells that are looked at have people")
    return Outlook.of(
        bound,
        trained=trained / people,
        rows=float(np.mean([one.rows for one in found])),
        moments=known,
        people=people,
        loss_bound=M,
        weighted=weighted,
    )


def folds(federation: Federation, seed: int = 0) -> Iterator[Federation]:
    """Cut the training rows of each silo into folds, and leave out one after another.

    All rows of a person are in one fold, in all silos. A silo that would have nothing
    left trains on all of its rows always.
    """
    parts = [silo.rows("train") for silo in federation.silos]
    people = [rows.person for rows in parts if rows.person is not None]
    many = max((int(who.max(initial=-1)) + 1 for who in people), default=0)
    drawn = np.random.default_rng(seed).permutation(many) % FOLDS
    places = [
        _places(rows, drawn, np.random.SeedSequence(seed, spawn_key=(k,)))
        for k, rows in enumerate(parts)
    ]
    for number in range(FOLDS):
        silos = [
            Silo(silo.name, silo.index, _cut(rows, place == number))
            for silo, rows, place in zip(federation.silos, parts, places, strict=True)
        ]
        yield replace(federation, silos=tuple(silos))


def _places(rows: Rows, drawn: IntArray, seed: np.random.SeedSequence) -> IntArray:
    """Return the fold of each row; −1 where they would all be in one."""
    if rows.person is not None:
        places = drawn[rows.person]
    else:
        places = np.random.default_rng(seed).permutation(len(rows)) % FOLDS
    return places if len(np.unique(places)) > 1 else np.full(len(rows), -1)


def _cut(rows: Rows, left: BoolArray) -> dict[str, Rows]:
    index = np.arange(len(rows))
    return {"train": rows.take(index[~left]), LEFT: rows.take(index[left])}
