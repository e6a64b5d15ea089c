"""What the methods on parity share: groups by name, any constraint, `solve`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.methods.biased import biased, fit
from tests.oracles import Federation, methods, pffl, solve, with_attribute

METHODS = {
    "fedfb": methods.FedFB(rounds=8),
    "fedfb, eo": methods.FedFB(notion="eo", rounds=8),
    "fedfair": methods.FedFair(rounds=8, dual_step_size=0.5),
    "fcfl": methods.FCFL(stage_one_rounds=8, stage_two_rounds=4),
    "fairfed": methods.FairFed(rounds=4),
    "fairgrad": methods.FairGrad(rounds=4, dual_step_size=1.0),
}


def crossed(federation: Federation) -> Federation:
    """Give everyone a second attribute, which says nothing."""
    rng = np.random.default_rng(0)
    eyes = ("blue", "brown")
    return with_attribute(federation, "eyes", eyes, lambda n: rng.integers(2, size=n))


@pytest.mark.parametrize("name", METHODS)
def test_groups_are_cut_by_the_attributes_named(name):
    federation, method = biased(0), METHODS[name]
    wide = crossed(federation)
    w = fit(federation, method)
    np.testing.assert_allclose(fit(wide, replace(method, by="group")), w, atol=1e-9)
    assert np.abs(fit(wide, method) - w).max() > 1e-6


@pytest.mark.parametrize("name", METHODS)
def test_the_constraint_judges_and_does_not_steer(name):
    federation, method = biased(1), METHODS[name]
    solutions = [
        solve(federation, constraint, method=method, random_state=0)
        for constraint in (
            None,
            pffl.BoundedGroupLoss(0.69),
            pffl.MinMax(),
            pffl.PerSilo(2.0),
        )
    ]
    for solution in solutions:
        np.testing.assert_allclose(solution.w, solutions[0].w, atol=1e-12)
        assert (solution.multipliers == 0).all()
        assert solution.rounds == method.planned_rounds + 1
    assert solutions[3].status == "met"
