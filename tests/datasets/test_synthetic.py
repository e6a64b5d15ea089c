from __future__ import annotations

import numpy as np

from pffl.datasets import synthetic
from pffl.errors import UsageError
from tests.raising import raises


def group_rates(federation):
    """How often the label agrees with the sign of the best common linear score."""
    pooled = federation.pooled()
    Z = (pooled.X - pooled.X.mean(axis=0)) / pooled.X.std(axis=0)
    w = np.linalg.lstsq(Z, 2 * pooled.y - 1, rcond=None)[0]
    right = ((Z @ w > 0) == (pooled.y > 0)).astype(float)
    sizes = np.bincount(pooled.group)
    return np.bincount(pooled.group, weights=right) / sizes


def test_same_seed_same_rows_and_said_to_be_synthetic():
    federation = synthetic(500, random_state=3)
    assert federation.fingerprint == synthetic(500, random_state=3).fingerprint
    assert federation.fingerprint != synthetic(500, random_state=4).fingerprint
    assert federation.synthetic
    assert "synthetic" in federation.name
    assert "synthetic" in federation.notes[0]


def test_shape_is_as_asked():
    federation = synthetic(
        1_000, silos=7, groups={"sex": ("f", "m"), "race": 3}, features=5
    )
    assert len(federation) == 7
    assert federation.rows("train") + federation.rows("test") == 1_000
    assert federation.schema.groups[:2] == ("f × A", "f × B")
    assert len(federation.schema.groups) == 6
    assert federation.schema.n_features == 5
    assert federation.pooled().X[:, 1].max() <= 1


def test_heterogeneity_spreads_sizes_and_inputs():
    def spread(heterogeneity):
        silos = synthetic(20_000, heterogeneity=heterogeneity, random_state=1).silos
        means = np.array([silo.rows().X.mean(axis=0) for silo in silos])
        sizes = np.array([len(silo) for silo in silos])
        return sizes.std() / sizes.mean(), means.std(axis=0)[0]

    calm, wild = spread(0.1), spread(1.0)
    assert wild[0] > 2 * calm[0]
    assert wild[1] > 2 * calm[1]


def test_hardness_and_conflict_do_what_they_say():
    def rates(**knobs):
        knobs = {"group_conflict": 0.0, **knobs}
        return group_rates(synthetic(20_000, groups=2, **knobs))

    easy, hard = rates()
    assert easy > hard + 0.03  # labels of later groups are noisier
    assert hard > rates(group_conflict=1.0).min() + 0.03  # one model, worse for all


def test_several_classes_and_regression():
    federation = synthetic(2_000, classes=4)
    assert federation.schema.n_labels == 4
    assert set(federation.pooled().y.tolist()) == {0.0, 1.0, 2.0, 3.0}
    numbers = synthetic(2_000, task="regression")
    assert numbers.schema.labels == ()
    assert np.isfinite(numbers.pooled().y).all()


def test_every_group_has_a_member():
    federation = synthetic(300, groups=30, silos=3, test_fraction=0.0)
    assert (np.bincount(federation.pooled().group, minlength=30) > 0).all()


def test_all_wrong_arguments_are_named_together():
    wrong = {"silos": 0, "features": 0, "groups": 2, "classes": 1}
    wrong |= {"group_conflict": 2}
    wrong |= {"heterogeneity": float("nan"), "task": "guess"}
    with raises(UsageError, "wrong-value") as caught:
        synthetic(0, **wrong)
    assert len(caught.value.codes) == 7
    with raises(UsageError, "too-few-rows", "3"):
        synthetic(2, silos=3)
    with raises(UsageError, "wrong-value", "groups", "1"):
        synthetic(10, groups=0)
