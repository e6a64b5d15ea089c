"""What a promise says, where once it said what was not so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.data import Federation, Rows
from pffl.engines import Local
from pffl.prepare import Options
from pffl.queries import Evaluate, Query
from tests.inside import Conclusions, Evidence, Judged, Missing
from tests.interrupting import Stopping
from tests.test_path import certified, losses_of, path_of, unlike


class Recording(Stopping):
    """An engine that keeps what it was asked to evaluate, message by message."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine, at=0)
        self.asked_of: list[list[str]] = []

    def ask(self, query: Query) -> Any:
        self._note([query])
        return super().ask(query)

    def ask_many(self, queries: Sequence[Query]) -> Any:
        self._note(queries)
        return super().ask_many(queries)

    def _note(self, queries: Sequence[Query]) -> None:
        splits = [one.split for one in queries if isinstance(one, Evaluate)]
        self.asked_of += [splits] if splits else []


def test_no_calibration_row_is_asked_about_before_the_path_is_fixed():
    """Not even for the model without bounds; that is bounded as the shipped one is."""
    federation = unlike(rows=300)
    engine: Any = Recording(Local(federation))
    found = certified(engine, 0.75, options=Options(), models=3)
    first = next(splits for splits in engine.asked_of if set(splits) != {"train"})
    assert first == ["test"] * len(path_of(found).candidates) == ["test"] * 3
    before, M = found.evidence.before, found.evidence.terms.loss_bound
    assert not isinstance(before, Missing)
    assert set(before.samples) == {"train", "test"}
    for split, sample in before.samples.items():
        own = losses_of(found, rows_of(federation, split), np.array(before.model), M)
        assert sum(sample.strata["bounded_loss"]) == pytest.approx(own.sum())


def rows_of(federation: Federation, split: str) -> Rows:
    whole = federation.pooled(split)
    return Rows.of(whole.X, whole.y, whole.group)


@cache
def shown() -> pffl.Solution:
    """A promise of a model that is not the first of its path."""
    found = certified(unlike(), 0.76, models=12)
    assert path_of(found).chosen > 0
    return found


def later(e: Evidence, **terms: Any) -> Evidence:
    return replace(e, terms=replace(e.terms, **terms))


def test_models_that_the_rows_chose_among_multiply_the_candidates():
    e = shown().evidence
    sure = later(e, confidence=0.999999, candidates=3)
    one = later(e, confidence=0.999999, candidates=1)
    many = len(path_of(shown()).candidates)
    parts = [Judged(e).people.delta for e in (sure, one)]
    assert parts == pytest.approx([1e-6 / (3 * many), 1e-6 / many], rel=1e-6)
    assert Judged(sure).risk == pytest.approx(Judged(one).risk / 3)


def test_what_the_path_does_not_show_is_not_said_to_hold_by_other_figures():
    """The safest model fails now, the shipped one is within even at δ/s: not shown."""
    path, e = path_of(shown()), shown().evidence
    candidates = list(path.candidates)
    for place, factor in ((0, 1.3), (path.chosen, 0.7)):
        held = candidates[place].calibration
        other = replace(held, logs=(factor * np.array(held.logs)).tolist())
        candidates[place] = replace(candidates[place], calibration=other)
    e = replace(e, path=replace(path, candidates=candidates))
    found_now = Judged(e).upper
    assert (found_now <= e.bounds).all()
    told = Conclusions(e).verdicts["new_people"]
    assert told.word == "not certified"
    assert Judged(e).shown is False


def test_rows_that_chose_a_model_are_no_fresh_rows_for_another_certificate():
    """Of all models that they chose among each has a part."""
    federation = unlike(rows=400).with_calibration(0.3, random_state=0)
    found = certified(federation, 0.8, models=3)
    assert path_of(found).split == "calibration"
    bounds = pffl.BoundedGroupLoss(0.8)
    audits = [
        pffl.audit(found, federation, bounds, splits=(split,))
        for split in ("calibration", "test")
    ]
    deltas = [Judged(one.evidence).heldout.delta for one in audits]
    assert deltas == pytest.approx([0.05 / 3, 0.05])
