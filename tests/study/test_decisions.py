"""What differences show: against scipy, against definitions, and by false alarms."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.inside import bootstrapped, decide, holm, permuted, student


@pytest.mark.parametrize("n", [2, 3, 10, 40])
def test_the_t_test_is_that_of_scipy(n):
    d = np.random.default_rng(n).normal(0.3, 1.0, n)
    low, high, p = student(d)
    other = stats.ttest_1samp(d, 0.0)
    assert p == pytest.approx(other.pvalue)
    assert [low, high] == pytest.approx(list(other.confidence_interval(0.95)))


def test_seeds_that_share_people_widen_the_interval_as_nadeau_and_bengio_do():
    d = np.random.default_rng(0).normal(0.3, 1.0, 10)
    low, high, p = student(d, overlap=1 / 3)
    error = d.std(ddof=1) * np.sqrt(1 / 10 + 1 / 3)
    t = stats.t.ppf(0.975, 9)
    assert [low, high] == pytest.approx([d.mean() - t * error, d.mean() + t * error])
    assert p == pytest.approx(2 * stats.t.sf(abs(d.mean()) / error, 9))


@pytest.mark.parametrize("n", [6, 8, 10])
def test_the_permutation_test_is_that_of_scipy(n):
    d = np.random.default_rng(n).normal(0.4, 1.0, n)
    found = stats.permutation_test(
        (d, np.zeros(n)),
        lambda a, b, axis: (a - b).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert permuted(d)[2] == pytest.approx(found.pvalue)


@pytest.mark.parametrize("n", [6, 7, 9])
def test_the_permutation_interval_holds_what_the_test_does_not_refuse(n):
    """By definition: turn all signs of d − δ, for δ on both sides of both ends."""
    d = np.random.default_rng(n).normal(0.0, 1.0, n)
    low, high, _ = permuted(d)
    signs = np.array(list(product((1, -1), repeat=n)))

    def refused(delta):
        sums = signs @ (d - delta)
        beyond = min((sums >= sums[0] - 1e-12).mean(), (sums <= sums[0] + 1e-12).mean())
        return 2 * beyond <= 0.05

    for end, outwards in ((low, -1), (high, 1)):
        assert refused(end + outwards * 1e-6)
        assert not refused(end - outwards * 1e-6)


def test_fewer_than_six_seeds_have_no_permutation_test_and_two_no_t_test():
    assert permuted(np.array([-1.0, -2.0, -1.5, -1.2, -3.0])) is None
    assert permuted(np.array([-1.0, -2.0, -1.5, -1.2, -3.0, -1.1])) is not None
    assert permuted(np.zeros(0)) is None
    assert student([1.0]) is None
    assert student([0.5, 0.5, 0.5]) is None  # drawn once, however often it was run
    many = np.random.default_rng(0).normal(-1.0, 0.1, 20)  # drawn signs, not all
    low, high, p = permuted(many)
    assert low < many.mean() < high < 0
    assert p < 0.01


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_the_step_down_test(values):
    """Refused at α by Holm's steps ⇔ corrected p ≤ α."""
    corrected = holm(values)
    for alpha in (0.01, 0.05, 0.2):
        refused = set()
        order = sorted(range(len(values)), key=lambda i: values[i])
        for step, i in enumerate(order):
            if values[i] * (len(values) - step) > alpha:
                break
            refused.add(i)
        assert refused == {i for i, p in enumerate(corrected) if p <= alpha}


def test_words_follow_from_the_intervals():
    rng = np.random.default_rng(1)
    lower = -0.1 + 0.01 * rng.normal(size=10)
    found = decide(
        {
            "lower": lower,
            "higher": -lower,
            "nothing": 0.1 * rng.normal(size=10),
            "lacking": [np.nan, *lower[1:]],
            "same": np.full(10, -0.2),
            "absent": np.full(10, np.nan),
        }
    )
    words = {name: one.word for name, one in found.items()}
    assert words == {
        "lower": "holds",
        "higher": "does not hold",
        "nothing": "no difference shown",
        "lacking": "no difference shown",
        "same": "no difference shown",
        "absent": "no difference shown",
    }
    assert (found["lacking"].pairs, found["lacking"].seeds) == (9, 10)
    assert found["absent"].mean is None
    assert found["same"].low is None


def test_one_wild_seed_decides_nothing():
    """t alone may be fooled by what the permutation test is not, and the reverse."""
    d = np.array([-1.0] * 9 + [40.0])
    assert decide({"a": d})["a"].word == "no difference shown"


def test_more_comparisons_ask_for_more():
    rng = np.random.default_rng(3)
    d = -0.95 + stats.zscore(rng.normal(size=10), ddof=1)  # t = −3.0, p = 0.015
    alone = decide({"a": d})["a"]
    others = {str(i): rng.normal(size=10) for i in range(30)}
    among = decide({"a": d, **others})["a"]
    assert alone.p == among.p
    assert among.adjusted > alone.adjusted
    assert (alone.word, among.word) == ("holds", "no difference shown")


def test_the_bootstrap_interval_is_that_of_resampled_means():
    v = np.random.default_rng(0).normal(size=30)
    low, high = bootstrapped(v)
    rng = np.random.default_rng(1)
    means = [rng.choice(v, len(v)).mean() for _ in range(4000)]
    assert [low, high] == pytest.approx(np.quantile(means, (0.025, 0.975)), abs=0.05)
    assert bootstrapped([1.0]) is None


# False alarms and power, on studies whose truth is known


def resplit(rng, effect=0.0, people=600, methods=4, seeds=10):
    """Seeds split the same people anew: each method's test loss by seed.

    A person's losses under all methods are exchangeable, so no method is better; on the
    few people of one study one of them always is.
    """
    hard = rng.gamma(1.0, 0.6, people)
    losses = hard + 0.3 * rng.normal(size=(methods, people))
    losses[0] += effect
    tests = [rng.permutation(people)[: people // 5] for _ in range(seeds)]
    return np.array([[own[test].mean() for test in tests] for own in losses])


def alarms(overlap, effect=0.0, studies=200, seeds=10):
    """How many panels of three comparisons say anything, and say that it holds."""
    rng = np.random.default_rng(7)
    said = held = 0
    for _ in range(studies):
        first, *others = resplit(rng, effect, seeds=seeds)
        found = decide(
            {str(i): first - other for i, other in enumerate(others)}, overlap=overlap
        )
        words = [one.word for one in found.values()]
        said += any(word != "no difference shown" for word in words)
        held += any(word == "holds" for word in words)
    return said, held


def most(studies, chance=0.05, sure=0.999):
    """So many alarms of chance ≤ 5 % each are exceeded in one study of a thousand."""
    return stats.binom.ppf(sure, studies, chance)


@pytest.mark.parametrize("seeds", [3, 10])
def test_where_all_methods_are_equal_hardly_a_panel_says_anything(seeds):
    said, held = alarms(1 / 3, seeds=seeds)  # a fifth for test, three for training
    assert held <= said <= most(200)


def test_without_the_correction_for_shared_people_every_other_panel_would():
    said, _ = alarms(0.0)
    assert said > 60


def test_a_difference_that_is_there_is_shown():
    quiet, loud = (alarms(1 / 3, effect)[1] for effect in (-0.05, -0.2))
    assert loud > 150
    assert quiet < loud
