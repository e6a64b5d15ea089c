"""The experiment layer: its rules, and studies that break them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import pffl
from pffl.constraints import PerSilo
from pffl.driver import drive
from pffl.errors import ArtefactError, UsageError
from pffl.files import Journal
from pffl.methods import METHODS
from pffl.preparation import Options
from tests.inside import (
    Few,
    Footing,
    Seeds,
    Study,
    check_plans,
    default_model,
    measures,
)
from tests.inside import study_experiment_run as run
from tests.inside import study_trial_Row as Row
from tests.inside import study_trial_Trial as Trial
from tests.raising import raises

BOUND = pffl.BoundedGroupLoss(0.6)


def row(arm, losses, error=0.3, *, seed=0, split="test", people=200, point=0, **more):
    """A row of two groups with these mean losses, and as many people in each."""
    names, counts = list(losses), np.full(len(losses), people, dtype=float)
    sums = np.array(list(losses.values())) * people
    half = np.repeat(counts / 2, 2)
    cells = {"names": names, "count": counts.tolist(), "weight": counts.tolist()}
    made = {
        "atoms": {
            "names": [(name, y) for name in names for y in ("no", "yes")],
            "count": half.tolist(),
            "weight": half.tolist(),
            "loss": np.repeat(sums / 2, 2).tolist(),
            "correct": (half * (1 - error)).tolist(),
            "positive": (half * 0.5).tolist(),
        },
        "cells": {**cells, "loss": sums.tolist()},
        "silos": {**cells, "names": ["s", "t"][: len(names)], "loss": sums.tolist()},
        "risk": float(sums.sum() / counts.sum()),
        "share": 1.0,
    }
    head = (arm, "fedavg", seed, split, {"q": point})
    return Row(*head, sums=made, costs={"passes": 1.0}, **more)


class Simulated:
    """Trains nothing: losses are drawn around what each arm's truth is."""

    def __init__(self, seed, rng, truth, spread=0.01):
        self.seed, self.rng, self.truth, self.spread = seed, rng, truth, spread
        self.shared = {split: rng.normal(0, 0.05) for split in ("validation", "test")}

    def rows(self, trials, *splits):
        for trial in trials:
            found = []
            for split in splits:
                base = self.truth[trial.arm] + self.shared[split]
                a, b = base + self.spread * self.rng.normal(size=2)
                error = 0.3 + 0.002 * self.rng.normal()
                one = row(
                    trial.arm, {"a": a, "b": b}, error, seed=self.seed, split=split
                )
                found.append(replace(one, parameters=dict(trial.parameters)))
            yield found


def plans(arms, trials=8):
    return {
        arm: [Trial(arm, "fedavg", {"q": i}, BOUND) for i in range(trials)]
        for arm in arms
    }


def simulated(truth, *, studies=1, trials=8, seeds=10, first=0, **more):
    for number in range(studies):
        rng = np.random.default_rng([first, number])
        yield run(
            plans(truth, trials),
            range(seeds),
            lambda seed, rng=rng: Simulated(seed, rng, truth),
            measure="worst_cell_loss",
            all_on_test=True,
            **more,
        )


# Measures


def test_measures_are_those_of_a_run():
    federation = pffl.datasets.synthetic(600, silos=3, features=3, seed=0)
    solution = pffl.solve(federation, BOUND, method=pffl.Exact(multiplier_bound=10.0))
    at = footing(federation)
    trial = Trial("exact", "exact", {"multiplier_bound": 10.0}, BOUND)
    ((one,),) = list(at.rows([trial], "test"))
    found = measures(one)
    # The run's predictor is bounded, a trial's is not: rates are the same.
    for name in ("error", "dp_gap", "eo_gap", "equalized_odds_gap"):
        assert found[name] == pytest.approx(solution.test.as_dict()[name], abs=1e-3)
    assert found["worst_cell_loss"] == pytest.approx(found["worst_group_loss"])


def footing(federation, journal=None, budget=60):
    model = default_model(federation.schema)
    kept = Journal(None) if journal is None else journal
    shared = (budget, 0, 0, Options(), kept)
    return Footing(federation, model, *shared)


def test_who_is_left_out_does_not_count_and_what_is_undefined_is_not_zero():
    one = row("a", {"x": 0.9, "y": 0.5})
    assert measures(one)["worst_cell_loss"] == pytest.approx(0.9)
    few = Few(cells=frozenset({"x"}), groups=frozenset({"x"}))
    found = measures(one, few)
    assert found["worst_cell_loss"] == pytest.approx(0.5)
    assert found["worst_group_loss"] == pytest.approx(0.5)
    assert found["dp_gap"] is None  # of one group
    assert found["error"] == pytest.approx(0.3)  # counts everybody
    both = frozenset({"x", "y"})
    none = measures(one, Few(both, both, both, both, frozenset({"s", "t"})))
    undefined = {name for name, value in none.items() if value is None}
    assert undefined == set(none) - {"error", "risk"}
    failed = replace(one, sums={}, reason="no")
    assert set(measures(failed).values()) == {None}


def test_a_small_cell_is_left_out_on_every_seed_and_named():
    rows = [
        row("a", {"x": 0.9, "y": 0.5}, seed=0),
        row("a", {"x": 0.9, "y": 0.5}, seed=1, people=20),
    ]
    small = {**rows[1].sums["cells"], "count": [20.0, 100.0]}
    atoms = {**rows[1].sums["atoms"], "count": [10.0, 10.0, 50.0, 50.0]}
    rows[1] = replace(rows[1], sums={**rows[1].sums, "cells": small, "atoms": atoms})
    study = Study(tuple(rows), "worst_cell_loss", least=30)
    values = [study.values(one)["worst_cell_loss"] for one in rows]
    assert values == pytest.approx([0.5, 0.5])
    assert any("fewer than 30 people on some seed: x" in t for t in study.left_out)
    assert Study(tuple(rows), "worst_cell_loss", least=5).left_out == []


# Rules


def test_unequal_trials_are_refused_or_told():
    unequal = {**plans("ab"), "b": plans("b", 3)["b"]}
    with raises(UsageError, "unequal-trials", "b", "3", "8"):
        check_plans(unequal, {})
    twice = {**plans("ab"), "b": 8 * plans("b", 1)["b"]}  # one point, eight times
    with raises(UsageError, "unequal-trials", "b", "1", "8"):
        check_plans(twice, {})
    check_plans(unequal, {"b": "each takes a day"})
    with raises(UsageError, "unequal-trials", "4"):
        check_plans(plans("ab", 4), {})
    check_plans(plans("ab", 1), {})
    rng = np.random.default_rng(0)
    study = run(
        unequal,
        range(2),
        lambda seed: Simulated(seed, rng, {"a": 0.6, "b": 0.6}),
        measure="worst_cell_loss",
        reasons={"b": "each takes a day"},
    )
    assert any("each takes a day" in text for text in study.terms)


def test_planted_unfairness_is_caught_from_the_rows_alone():
    (study,) = simulated({"a": 0.6, "b": 0.6})
    study.audit()
    kept = [r for r in study.rows if r.arm != "b" or r.parameters["q"] < 5]
    with raises(ArtefactError, "unfair-study", "b", "5", "0"):
        replace(study, rows=tuple(kept)).audit()
    # Chosen on test rows: only the trial that is best there was kept.
    best = {}
    for one in study.rows:
        place, value = (one.arm, one.seed), study.values(one)["worst_cell_loss"]
        if one.split == "test" and value < best.get(place, (np.inf, None))[0]:
            best[place] = (value, one)
    honest = tuple(r for r in study.rows if r.split == "validation")
    chosen = tuple(one for _, one in best.values())
    with raises(ArtefactError, "unfair-study"):
        replace(study, rows=honest + chosen).audit()
    tested = [study.on_test(r) for by in study.chosen().values() for r in by.values()]
    replace(study, rows=honest + tuple(t for t in tested if t is not None)).audit()


def test_the_front_on_test_flatters_and_is_given_no_word():
    gains = []
    for study in simulated({"a": 0.6, "b": 0.6}, studies=3):
        fair, flattered = (
            study.areas("worst_cell_loss", [0.0, 0.01], on)["a"]
            for on in ("validation", "test")
        )
        gains.append(np.mean(list(fair.values())) - np.mean(list(flattered.values())))
    assert min(gains) > 0  # the best of eight, by the rows that it is reported on


def test_trials_are_chosen_on_validation_within_the_error_allowed():
    def trial(point, error, loss, tested):
        return [
            row("a", {"x": loss, "y": 0.1}, error, split="validation", point=point),
            row("a", {"x": tested, "y": 0.1}, error, point=point),
        ]

    rows = [*trial(0, 0.30, 0.7, 0.7), *trial(1, 0.305, 0.6, 0.9)]
    rows += trial(2, 0.40, 0.1, 0.1)
    rows += [replace(r, arm="b") for r in trial(0, 0.32, 0.2, 0.2)]
    study = Study(tuple(rows), "worst_cell_loss", within=0.01, least=1)
    assert study.chosen()["a"][0].parameters == {"q": 1}
    assert study.reported("worst_cell_loss")["a"][0] == pytest.approx(0.9)
    assert study.chosen()["b"][0] is None  # no trial is accurate enough, and
    assert study.reported("worst_cell_loss")["b"][0] is None  # none stands for it
    found = study.decisions("a", ["b"], "worst_cell_loss")["b"]
    assert (found.mean, found.pairs, found.word) == (None, 0, "no difference shown")
    wide = replace(study, within=0.2)
    assert wide.chosen()["a"][0].parameters == {"q": 2}


def test_only_the_chosen_trials_look_at_test_rows_unless_all_are_to():
    rng = np.random.default_rng(0)
    study = run(
        plans("ab"),
        range(3),
        lambda seed: Simulated(seed, rng, {"a": 0.6, "b": 0.6}),
        measure="worst_cell_loss",
    )
    splits = [one.split for one in study.rows]
    assert splits.count("validation") == 2 * 8 * 3
    assert splits.count("test") == 2 * 3
    study.audit()


def test_draws_are_separable():
    assert Seeds.of(3) == Seeds(3, 3, 3)
    assert Seeds.of(3, ["silos", "training"]) == Seeds(3, 0, 3)
    with raises(UsageError, "unknown-draws"):
        Seeds.of(0, ["rows"])
    some = {"silos": 3, "seed": 1}
    one = pffl.datasets.synthetic(300, **some)
    other = pffl.datasets.synthetic(300, split_seed=5, **some)
    for a, b in zip(one.silos, other.silos, strict=True):
        rows = [
            np.vstack([silo.rows("train").X, silo.rows("test").X]) for silo in (a, b)
        ]
        order = [part[np.lexsort(part.T)] for part in rows]
        np.testing.assert_array_equal(*order)  # the same people
    assert one.fingerprint != other.fingerprint  # split otherwise


# Training


def test_methods_that_ignore_cells_are_trained_once_for_all_constraints(tmp_path):
    federation = pffl.datasets.synthetic(400, silos=3, features=3, seed=0)
    journal = Journal(tmp_path / "rows.jsonl")
    at = footing(federation, journal)
    others = [
        pffl.BoundedGroupLoss(0.1),
        pffl.ConditionalBoundedGroupLoss(0.2),
        PerSilo(0.3),
    ]
    ignoring = [name for name in METHODS if METHODS[name].ignores_cells]
    assert {"fedavg", "group-weighted", "pooled", "qffl"} <= set(ignoring)
    for name in ignoring:
        before = len(journal)
        found = [
            next(iter(at.rows([Trial("x", name, {}, c)], "test")))[0] for c in others
        ]
        assert len(journal) == before + 1
        for constraint, one in zip(others, found, strict=True):
            fresh = footing(federation)
            flow = fresh.trying(Trial("x", name, {}, constraint), ["test"])
            direct = drive(fresh.engine, flow).sums[0]
            assert one.sums["cells"]["names"] == direct["cells"]["names"]
            for key in ("count", "weight", "loss"):
                np.testing.assert_allclose(
                    one.sums["cells"][key], direct["cells"][key], rtol=1e-9
                )


# False alarms through the whole layer


def said(truth, studies, **more):
    """What arm a against the others comes to in each study: all words."""
    others = [arm for arm in truth if arm != "a"]
    return [
        {one.word for one in study.decisions("a", others, "worst_cell_loss").values()}
        for study in simulated(truth, studies=studies, **more)
    ]


def shown(truth, studies, **more):
    """In how many studies anything is said."""
    return sum(
        words != {"no difference shown"} for words in said(truth, studies, **more)
    )


EQUAL = dict.fromkeys("abcd", 0.6)


def test_equal_methods_are_hardly_ever_told_apart():
    assert shown(EQUAL, 10) <= stats.binom.ppf(0.999, 10, 0.05)


def test_different_methods_are():
    assert shown({**EQUAL, "a": 0.57}, 3) == 3


@pytest.mark.slow
def test_over_200_studies_no_more_than_one_in_twenty_says_that_a_claim_holds():
    """In which all arms are equal; and how often a difference is found, if there is."""
    found = said(EQUAL, 200, first=1)
    holds = sum("holds" in words for words in found)
    either = sum(words != {"no difference shown"} for words in found)
    gaps = (0.003, 0.01, 0.02)  # a cell's mean is drawn with a spread of 0.01
    powers = [shown({**EQUAL, "a": 0.6 - gap}, 50, first=2) for gap in gaps]
    print(f"holds: {holds}, either: {either} of 200; at {gaps}: {powers} of 50")
    assert holds <= 10
    assert either <= stats.binom.ppf(0.999, 200, 0.05)
    assert powers[0] < powers[1] < powers[2]
    assert powers[2] >= 48
