"""Bounds on every label of a group bound the group: tried on random problems."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import pffl
from pffl.data import Federation, Rows

CBGL = pffl.ConditionalBoundedGroupLoss


def people(seed, rows, labels=2, shift=0.0):
    """Two crossed attributes; `shift` moves the labels' shares, not who they are."""
    population = np.random.default_rng([seed, labels])
    centres = population.normal(size=(4, labels, 3))
    rng = np.random.default_rng([seed, rows, int(100 * shift) + 100])
    group = rng.choice(4, rows, p=population.dirichlet(np.full(4, 5.0)))
    odds = population.dirichlet(np.full(labels, 6.0), 4)
    odds[:, 0] *= 1 + shift
    odds /= odds.sum(axis=1, keepdims=True)
    y = (rng.random((rows, 1)) > odds.cumsum(axis=1)[group]).sum(axis=1)
    y = np.minimum(y, labels - 1)
    X = centres[group, y] + 1.5 * rng.normal(size=(rows, 3))
    return X, y, group


@cache
def solved(seed):
    rng = np.random.default_rng([seed, 9])
    labels = int(rng.integers(2, 4))
    X, y, group = people(seed, 1500, labels)
    weight = rng.uniform(0.2, 3.0, len(y)) if seed % 3 == 0 else None
    federation = Federation.from_arrays(
        X,
        y,
        sensitive_features={"sex": group // 2, "old": group % 2},
        silo=rng.integers(0, 3, len(y)),
        sample_weight=weight,
        test_fraction=0.5,
        random_state=seed,
    )
    values = {name: rng.uniform(0.6, 1.1) for name in federation.schema.label_names}
    by = (None, "sex", "old")[seed % 3]
    asked = [
        CBGL(values, by=by),
        CBGL(float(rng.uniform(0.7, 1.2)), by=by),
        CBGL(values, by=by) & pffl.BoundedGroupLoss(1.0),
        CBGL(1.0, labels=[0], by=by),
    ]
    which = int(rng.integers(len(asked)))
    options = pffl.Options(weight_bound=None if weight is None else 3.0)
    solution = pffl.solve(federation, asked[which], options=options, random_state=0)
    return federation, labels, which, solution


def members(federation, name):
    return [federation.schema.groups.index(group) for group in name.split(" or ")]


@pytest.mark.parametrize("seed", range(16))
def test_no_group_is_above_what_its_labels_bounds_imply(seed):
    federation, _, which, solution = solved(seed)
    stated = solution.certificate.of_kind("implied")
    assert bool(stated) == (which < 3 and solution.status == "met")
    if not stated:
        return
    rows = Rows.joined([silo.rows("train") for silo in federation.silos])
    losses = -np.log(
        np.take_along_axis(
            solution.predict_proba(rows.X), rows.y.astype(int)[:, None], axis=1
        )[:, 0]
    )
    bounds = {cell.cell: cell.bound for cell in solution.cell_results}
    for row in stated[0].per_cell:
        own = np.isin(rows.group, members(federation, row["cell"]))
        mean = np.average(losses[own], weights=rows.weights[own])
        assert mean == pytest.approx(row["loss"], rel=2e-3)  # limits move it
        assert row["loss"] <= row["at most"] * (1 + 1e-6)
        most = max(bounds.values())
        assert min(bounds.values()) - 1e-12 <= row["at most"] <= most + 1e-12
        if row["unseen at most"] is not None:
            assert row["at most"] - 1e-12 <= row["unseen at most"] <= most


def test_whatever_the_labels_shares_new_people_stay_below():
    """Fresh people with other shares of the labels; promises fail for at most 5 %."""
    broken = shown = 0
    for seed in range(40):
        X, y, group = people(seed, 3000)
        federation = Federation.from_arrays(
            X, y, sensitive_features=group, test_fraction=0.5, random_state=seed
        )
        solution = pffl.solve(federation, CBGL(1.0), random_state=0)
        stated = solution.certificate.of_kind("implied")
        if not stated or stated[0].per_cell[0]["unseen at most"] is None:
            continue
        shown += 1
        for shift in (0.0, 3.0, -0.8):
            X, y, group = people(seed, 40_000, shift=shift)
            p = solution.predict_proba(X)[np.arange(len(y)), y]
            means = [-np.log(p[group == g]).mean() for g in range(4)]
            if max(means) > 1.0:
                broken += 1
                break
    assert shown >= 8
    assert broken <= 0.05 * shown + 1
