"""The experiment layer: methods × parameters × seeds, and what may be said of them.

`compare`, `sweep --seeds` and `reproduce` all run here, under the same rules:

- every arm has the same number of trials, at least eight, or says why not;
- an arm's trial is chosen on validation rows, by the measure that is reported, among
  those whose error is within an allowance of the smallest that any arm has there; an
  arm with no such trial has no value on that seed, and that is said;
- a cell in which fewer than `least` people are, on any seed, is left out of "the worst"
  on all of them, and named; silos, which may be drawn anew, on that seed;
- what is undefined is None, never 0;
- differences are paired by seed and judged together (`decisions`);
- what was chosen on test rows, which is the paper's way, is shown and gets no word.

`Study.audit` checks all of this from the rows alone.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from pffl.errors import ArtefactError, UsageError
from pffl.study.decisions import Decision, bootstrapped, decide
from pffl.study.trial import NOBODY, Few, Row, Trial, measures

LEAST_PEOPLE = 30  # in a cell that may be the worst
LEAST_POINTS = 8  # of a search
SEEDS = 10
WITHIN = 0.01  # error above the smallest that a chosen trial may have
SPLITS = ("validation", "test")

Split: TypeAlias = Literal["validation", "test"]
Plans: TypeAlias = Mapping[str, Sequence[Trial]]
Report: TypeAlias = Callable[[str, int, int], None]


class Trains(Protocol):
    """What trains trials on one seed; `trial.Footing` does."""

    def rows(self, trials: Sequence[Trial], *splits: str) -> Any:
        """Yield each trial's rows, one per split."""


@dataclass(frozen=True)
class Seeds:
    """What the draws of one replicate come from, each from its own seed."""

    silos: int
    split: int
    training: int

    @classmethod
    def of(cls, number: int, vary: Sequence[str] = ()) -> Seeds:
        """Return replicate `number`, of which only what is named varies (all if none).

        >>> Seeds.of(3, ["split"])
        Seeds(silos=0, split=3, training=0)
        """
        known = ("silos", "split", "training")
        unknown = sorted(set(vary) - set(known))
        if unknown:
            raise UsageError(
                f"[unknown-draws] no draws {unknown}: there are {', '.join(known)}"
            )
        return cls(*(number if not vary or name in vary else 0 for name in known))


def combinations(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of a grid; one value may stand without a list."""
    listed = [v if isinstance(v, list | tuple) else [v] for v in grid.values()]
    return [dict(zip(grid, v, strict=True)) for v in itertools.product(*listed)]


def drawn(points: Sequence[Any], number: int, seed: int = 0) -> list[Any]:
    """Return so many of the points: the first, then drawn without repeat, in order."""
    if len(points) <= number:
        return list(points)
    others = 1 + np.random.default_rng(seed).permutation(len(points) - 1)
    return [points[i] for i in sorted([0, *others[: number - 1].tolist()])]


def check_plans(plans: Plans, reasons: Mapping[str, str]) -> None:
    """Refuse arms with unequal numbers of trials, unless they say why."""
    counts = {arm: len({_point(t) for t in trials}) for arm, trials in plans.items()}
    most = max(counts.values(), default=0)
    fewer = {arm: n for arm, n in counts.items() if n < most and not reasons.get(arm)}
    if fewer:
        told = ", ".join(f"'{arm}' {n}" for arm, n in fewer.items())
        raise UsageError(
            f"[unequal-trials] unequal trials: {told}, and others {most}: give each "
            "arm as many points, or say why not (`fewer`)"
        )
    if 1 < most < LEAST_POINTS and not all(reasons.get(arm) for arm in plans):
        raise UsageError(
            f"[unequal-trials] {most} trials are no search: give each arm at least "
            f"{LEAST_POINTS}, or one, for its defaults"
        )


def _point(trial: Trial | Row) -> str:
    """What a trial is, apart from arm, seed and split."""
    return json.dumps(
        [trial.method, trial.bound, dict(trial.parameters)], sort_keys=True
    )


def run(
    plans: Plans,
    seeds: Sequence[int],
    open_seed: Callable[[int], Trains],
    *,
    measure: str,
    within: float = WITHIN,
    least: int = LEAST_PEOPLE,
    overlap: float = 0.0,
    reasons: Mapping[str, str] | None = None,
    all_on_test: bool = False,
    report: Report = lambda what, done, total: None,
) -> Study:
    """Train all arms on all seeds; what is in a journal is not trained again.

    Parameters
    ----------
    plans
        The trials of each arm.
    open_seed
        What trains on a seed.
    measure, within
        By which trials are chosen, and within how much of the smallest error.
    least
        People that a cell must have to be the worst.
    overlap
        Test rows / training rows, where seeds split the same people; see `decisions`.
    reasons
        Why an arm has fewer trials than others.
    all_on_test
        Whether all trials are measured on test rows, for fronts, or the chosen alone.
    """
    told = dict(reasons or {})
    check_plans(plans, told)
    alone = max(map(len, plans.values())) == 1  # nothing to choose
    splits = ("test",) if alone else SPLITS if all_on_test else ("validation",)
    total = len(seeds) * sum(map(len, plans.values()))
    rows: list[Row] = []
    done = 0
    for number in seeds:
        at = open_seed(number)
        for arm, trials in plans.items():
            report(f"{arm}, seed {number}", done, total)
            for found in at.rows(trials, *splits):
                rows += found
                done += 1
                report(f"{arm}, seed {number}", done, total)
    shared = (measure, within, least, overlap, told)
    study = Study(tuple(rows), *shared)
    if "test" not in splits:
        for number in seeds:
            at = open_seed(number)
            for arm, trials in plans.items():
                row = study.chosen(measure)[arm].get(number)
                if row is not None:
                    trial = next(t for t in trials if _point(t) == _point(row))
                    rows += next(iter(at.rows([trial], "test")))
        study = Study(tuple(rows), *shared)
    return study


@dataclass(frozen=True, repr=False)
class Study:
    """All rows of an experiment; everything that is said of it follows from them.

    Attributes
    ----------
    rows
        One per trial, seed and split.
    measure, within, least, overlap, reasons
        As for `run`.
    """

    rows: tuple[Row, ...]
    measure: str
    within: float = WITHIN
    least: int = LEAST_PEOPLE
    overlap: float = 0.0
    reasons: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return tuple(dict.fromkeys(row.arm for row in self.rows))

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """Numbers of the seeds."""
        return tuple(sorted({row.seed for row in self.rows}))

    @cached_property
    def tuned(self) -> bool:
        """Whether trials were chosen on validation rows."""
        return any(row.split == "validation" for row in self.rows)

    @cached_property
    def trials(self) -> dict[str, int]:
        """How many different trials each arm had."""
        found: dict[str, set[str]] = {arm: set() for arm in self.arms}
        for row in self.rows:
            found[row.arm].add(_point(row))
        return {arm: len(points) for arm, points in found.items()}

    # Cells with too few people

    @cached_property
    def few(self) -> dict[int, Few]:
        """Who is left out on each seed when figures are reported."""
        return self._few(SPLITS)

    @cached_property
    def few_to_choose(self) -> dict[int, Few]:
        """Who is left out when trials are chosen: test rows play no part."""
        return self._few(("validation",))

    def _few(self, splits: Sequence[str]) -> dict[int, Few]:
        seen: dict[tuple[int, str], Few] = {}
        for row in self.rows:
            if row.split in splits and row.sums and (row.seed, row.split) not in seen:
                seen[row.seed, row.split] = Few.of(row, self.least)
        every = NOBODY
        for one in seen.values():
            every = every | one
        by_silo = self._by_silo
        out = {}
        for seed in self.seeds:
            own = NOBODY
            for (number, _), one in seen.items():
                own = own | one if number == seed else own
            cells = own.cells if by_silo else every.cells
            kept = (cells, every.groups, every.positives, every.negatives, own.silos)
            out[seed] = Few(*kept)
        return out

    @cached_property
    def _by_silo(self) -> bool:
        """Whether cells are silos, which may be drawn anew on each seed."""
        row = next((row for row in self.rows if row.sums), None)
        return row is not None and (
            row.sums["cells"]["names"] == row.sums["silos"]["names"]
        )

    @property
    def left_out(self) -> list[str]:
        """Sentences that name who is left out of the measure that is reported."""
        few = self.few.values()
        silos = self.measure == "worst_silo_loss" or (
            self.measure == "worst_cell_loss" and self._by_silo
        )
        if silos:
            lost = sum(len(one.silos) for one in few)
            words = f"{lost} silos over {len(self.few)} seeds" if lost else ""
        else:
            kind = {
                "worst_cell_loss": "cells",
                "eo_gap": "positives",
                "error": None,
                "risk": None,
            }.get(self.measure, "groups")
            names: set[str] = set()
            for one in few if kind is not None else ():
                names |= getattr(one, str(kind))
            words = ", ".join(sorted(names))
        if not words:
            return []
        return [f"left out, with fewer than {self.least} people on some seed: {words}"]

    # Values

    @cached_property
    def _measured(self) -> dict[int, dict[str, float | None]]:
        """Measures of every row, by the row's id: rows live as long as the study."""
        few = {"test": self.few, "validation": self.few_to_choose}
        return {id(row): measures(row, few[row.split][row.seed]) for row in self.rows}

    @cached_property
    def _tested(self) -> dict[tuple[str, str, int], Row]:
        """Rows on test, by arm, point and seed."""
        return {
            (row.arm, _point(row), row.seed): row
            for row in self.rows
            if row.split == "test"
        }

    def values(self, row: Row) -> dict[str, float | None]:
        """Measures of a row of this study."""
        return self._measured[id(row)]

    @cached_property
    def _by_arm(self) -> dict[tuple[str, int, str], list[Row]]:
        out: dict[tuple[str, int, str], list[Row]] = {}
        for row in self.rows:
            out.setdefault((row.arm, row.seed, row.split), []).append(row)
        return out

    def choose(
        self, measure: str, within: float, chosen_on: Split = "validation"
    ) -> dict[str, dict[int, Row | None]]:
        """Choose each arm's trial on each seed: smallest measure within the allowance.

        None where the arm has no trial within it. What is returned is the row on the
        split that chose.
        """
        place = (measure, within, chosen_on)
        if place not in self._choices:
            self._choices[place] = self._choose(*place)
        return self._choices[place]

    @cached_property
    def _choices(self) -> dict[Any, dict[str, dict[int, Row | None]]]:
        """What was chosen before; fronts, areas and tables ask again."""
        return {}

    def _choose(
        self, measure: str, within: float, chosen_on: Split
    ) -> dict[str, dict[int, Row | None]]:
        out: dict[str, dict[int, Row | None]] = {arm: {} for arm in self.arms}
        for seed in self.seeds:
            limit = self.smallest_error(seed, chosen_on) + within
            for arm in self.arms:
                inside = [
                    (value, row)
                    for row in self._by_arm.get((arm, seed, chosen_on), [])
                    if (value := self.values(row)[measure]) is not None
                    and (error := self.values(row)["error"]) is not None
                    and error <= limit
                ]
                best = min(inside, key=lambda pair: pair[0], default=None)
                out[arm][seed] = None if best is None else best[1]
        return out

    def smallest_error(self, seed: int, split: str) -> float:
        """Smallest error of any trial of any arm on a seed."""
        found = [
            error
            for arm in self.arms
            for row in self._by_arm.get((arm, seed, split), [])
            if (error := self.values(row)["error"]) is not None
        ]
        return min(found, default=float("nan"))

    def chosen(self, measure: str | None = None) -> dict[str, dict[int, Row | None]]:
        """The trial that stands for each arm on each seed, chosen on validation rows.

        Where arms had one trial each, that one.
        """
        if self.tuned:
            return self.choose(measure or self.measure, self.within)
        return {
            arm: {
                s: next(iter(self._by_arm.get((arm, s, "test"), [])), None)
                for s in self.seeds
            }
            for arm in self.arms
        }

    def on_test(self, row: Row | None) -> Row | None:
        """The same trial on test rows."""
        return None if row is None else self._same.get(id(row))

    @cached_property
    def _same(self) -> dict[int, Row | None]:
        """From each row to the same trial on test rows."""
        return {
            id(row): self._tested.get((row.arm, _point(row), row.seed))
            for row in self.rows
        }

    def reported(
        self, measure: str, *, by: str | None = None
    ) -> dict[str, dict[int, float | None]]:
        """A measure on test rows of the trials chosen `by` a measure, seed by seed."""
        out: dict[str, dict[int, float | None]] = {}
        for arm, rows in self.chosen(by or self.measure).items():
            tested = {seed: self.on_test(row) for seed, row in rows.items()}
            out[arm] = {
                seed: None if row is None else self.values(row)[measure]
                for seed, row in tested.items()
            }
        return out

    def decisions(
        self, better: str, others: Sequence[str], measure: str, *, by: str | None = None
    ) -> dict[str, Decision]:
        """Judge an arm against others, all comparisons together."""
        found = self.reported(measure, by=by)
        apart = {
            other: [
                np.nan if a is None or b is None else a - b
                for a, b in ((found[better][s], found[other][s]) for s in self.seeds)
            ]
            for other in others
        }
        return decide(apart, overlap=self.overlap)

    # Fronts

    def front(
        self,
        measure: str,
        allowances: Sequence[float],
        chosen_on: Split = "validation",
    ) -> dict[str, list[dict[str, Any]]]:
        """Each arm's trade-off on test rows: a point for each allowance of error.

        On each seed the trial with the smallest measure within the allowance is taken,
        by the rows that choose; error and measure are means over the seeds on test
        rows, with the 95 % interval of the mean measure. Only where every seed has one.
        """
        out: dict[str, list[dict[str, Any]]] = {arm: [] for arm in self.arms}
        for allowance in allowances:
            for arm, rows in self.choose(measure, allowance, chosen_on).items():
                tested = [self.on_test(row) for row in rows.values()]
                pairs = [
                    (values["error"], values[measure])
                    for row in tested
                    if row is not None and (values := self.values(row))
                ]
                if len(pairs) < len(self.seeds) or any(None in pair for pair in pairs):
                    continue
                errors, found = np.array(pairs, dtype=float).T
                ends = bootstrapped(found) or (None, None)
                out[arm].append(
                    {
                        "allowance": allowance,
                        "error": float(errors.mean()),
                        "value": float(found.mean()),
                        "low": ends[0],
                        "high": ends[1],
                    }
                )
        return out

    def areas(
        self, measure: str, allowances: Sequence[float], chosen_on: Split = "validation"
    ) -> dict[str, dict[int, float]]:
        """Mean of the measure on test rows over allowances, seed by seed.

        The area under the front, divided by its width: over those allowances at which
        every arm has a trial on that seed.
        """
        taken = [self.choose(measure, a, chosen_on) for a in allowances]
        out: dict[str, dict[int, float]] = {arm: {} for arm in self.arms}
        for seed in self.seeds:
            values: dict[str, list[float]] = {arm: [] for arm in self.arms}
            for one in taken:
                rows = {arm: self.on_test(one[arm][seed]) for arm in self.arms}
                found = {
                    arm: None if row is None else self.values(row)[measure]
                    for arm, row in rows.items()
                }
                if None not in found.values():
                    for arm, value in found.items():
                        values[arm].append(float(value or 0.0))
            for arm, own in values.items():
                if own:
                    out[arm][seed] = float(np.mean(own))
        return out

    # Checks

    def audit(self) -> None:
        """Refuse a study that was not fair, from its rows alone; all that is wrong."""
        problems = []
        counts: dict[tuple[str, int], int] = {}
        if self.tuned:
            for arm, seed in itertools.product(self.arms, self.seeds):
                rows = self._by_arm.get((arm, seed, "validation"), [])
                counts[arm, seed] = len({_point(row) for row in rows})
            most = max(counts.values(), default=0)
            problems += [
                f"'{arm}' had {n} trials on seed {seed}, and others {most}"
                for (arm, seed), n in counts.items()
                if n < most and not self.reasons.get(arm)
            ]
        tested = {
            (arm, seed): {_point(row) for row in rows}
            for (arm, seed, split), rows in self._by_arm.items()
            if split == "test"
        }
        everything = all(
            len(points) == counts.get(place, len(points))
            for place, points in tested.items()
        )
        if self.tuned and not everything:
            for arm, chosen in self.chosen().items():
                problems += [
                    f"'{arm}' was measured on test rows of seed {seed} with a trial "
                    "that validation rows did not choose"
                    for seed, row in chosen.items()
                    if tested.get((arm, seed), set())
                    - ({_point(row)} if row is not None else set())
                ]
        if problems:
            raise ArtefactError(
                "[unfair-study] not a fair study:\n  " + "\n  ".join(problems)
            )

    @property
    def terms(self) -> list[str]:
        """Sentences on how it was run: trials, choice, seeds, who was left out."""
        each = sorted(set(self.trials.values()))
        told = ["1 seed." if len(self.seeds) == 1 else f"{len(self.seeds)} seeds."]
        if not self.tuned:
            told.append(
                "Every method ran once on each, at its defaults: nothing is tuned."
            )
        else:
            many = f"{each[-1]} trials for each method"
            fewer = [
                f"{arm} has {n}, because {self.reasons.get(arm)}"
                for arm, n in self.trials.items()
                if n < each[-1]
            ]
            told.append("; ".join([many, *fewer]) + ".")
            told.append(
                "Trials are chosen on validation rows: the smallest measure among "
                f"those within {self.within:g} of the smallest error of any trial."
            )
        return told + [f"{one[0].upper()}{one[1:]}." for one in self.left_out]
