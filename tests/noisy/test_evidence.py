"""What is said under noise: coverage by simulation, and an auditor without rows."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

import pffl
from pffl import verify
from pffl.privacy import Privacy
from tests.helpers import make_federation
from tests.inside import Judged, fieller


@pytest.fixture(scope="module")
def solution():
    data = make_federation(0, sizes=(1500,) * 4, test=700)
    ranges = {str(name): (-6.0, 6.0) for name in data.schema.features}
    return pffl.solve(
        data,
        pffl.BoundedGroupLoss(0.69),
        method="exact",
        random_state=0,
        secure_sum=True,
        privacy=Privacy(4.0, ranges=ranges),
    )


def mean_ends(loss, people, s, t, z, M):
    """Enclose m with |L̃ − m·ñ| ≤ z√(s² + m²t²) in [0, M], by search."""

    def end(side):
        def off(m):
            return loss - m * people - side * z * math.sqrt(s * s + m * m * t * t)

        if off(0.0) <= 0 or off(M) >= 0:
            return 0.0 if off(0.0) <= 0 else M
        return brentq(off, 0.0, M, xtol=1e-16, rtol=1e-15)

    return (0.0, M) if people <= z * t else (end(1.0), end(-1.0))


def test_two_ways_to_the_same_ends():
    random = np.random.default_rng(1)
    for _ in range(300):
        n, s, t = random.uniform(50, 5000), random.uniform(0, 50), random.uniform(0, 12)
        L, z = random.uniform(0, 2) * n, random.uniform(1, 4)
        one, other = fieller(L, n, s, t, z, 3.0), mean_ends(L, n, s, t, z, 3.0)
        assert one == pytest.approx(other, abs=1e-9)


def test_bounds_inside_the_noise_are_not_decided(solution):
    e, part = solution.evidence, solution.evidence.privacy
    _, high = Judged(e).ends(part.seen)
    middle = Judged(e).losses["train"].means
    cells = [
        replace(c, bound=float(m + 0.4 * (h - m)))
        for c, m, h in zip(e.cells, middle, high, strict=True)
    ]
    undecided = replace(solution, evidence=replace(e, cells=cells))
    assert (undecided.status, undecided.exit_code) == ("not decided", 4)


def test_shares_of_wrong_predictions_are_enclosed(solution):
    """The ends hold the true share as often as they say, over draws of the noise."""
    e, part = solution.evidence, solution.evidence.privacy
    seen, random = part.seen, np.random.default_rng(4)
    n, right = np.array(seen.counts), np.array(seen.correct)  # taken for the truth
    (off,) = [r.deviation for r in part.releases if r.name == "final errors"]
    runs, held, true = 1000, 0, 1 - right[:2].sum() / n[:2].sum()
    for _ in range(runs):
        drawn = replace(
            seen,
            counts=(n + random.normal(0, seen.count_deviation, len(n))).tolist(),
            correct=(right + random.normal(0, off, len(n))).tolist(),
        )
        judged = Judged(replace(e, privacy=replace(part, seen=drawn)))
        low, high = judged.rate_ends("error", 0)
        held += low <= true <= high
    sure = e.terms.confidence
    assert abs(held / runs - sure) <= 4 * math.sqrt(sure * (1 - sure) / runs)


def saved(solution, folder):
    solution.save(folder)
    return folder


def test_an_auditor_needs_no_rows(solution, tmp_path):
    folder = saved(solution, tmp_path / "run")
    checks = verify(folder)
    assert [str(c) for c in checks if not c.agrees] == []
    assert len(checks) > 60


FORGED = {
    "a smaller ε": lambda e, r, c: e["privacy"].update(epsilon=1.0),
    "less noise than the account has": lambda e, r, c: e["privacy"]["releases"][
        3
    ].update(sigma=1.0),
    "a release left out": lambda e, r, c: e["privacy"]["releases"].pop(3),
    "a margin made smaller": lambda e, r, c: e["privacy"]["seen"].update(
        loss_deviation=0.1
    ),
    "a bound that is met": lambda e, r, c: r.update(status="met", message="All is met"),
    "a smaller upper end": lambda e, r, c: r["privacy"]["cells"][0].update(upper=0.1),
    "a promise": lambda e, r, c: r["verdicts"]["new_people"].update(
        verdict="certified"
    ),
    "a certificate's figure": lambda e, r, c: c["statements"][1]["per_cell"][0].update(
        upper=0.1
    ),
    "a longer clip": lambda e, r, c: e["privacy"].update(clip=40.0),
    "another loss": lambda e, r, c: e["privacy"]["seen"]["losses"].__setitem__(0, 1.0),
}


@pytest.fixture(scope="module")
def missed(solution, tmp_path_factory):
    """A run that does not meet its bounds: a forger has something to gain."""
    e, part = solution.evidence, solution.evidence.privacy
    pairs = zip(e.cells, Judged(e).ends(part.seen)[1], strict=True)
    cells = [  # the first is the furthest off: of equals either may be named
        replace(cell, bound=float(high) - 0.02 / (1 + z))
        for z, (cell, high) in enumerate(pairs)
    ]
    asked = {"bound": {cell.cell: cell.bound for cell in cells}}
    trained = replace(e.training, constraint={**e.training.constraint, **asked})
    other = replace(solution, evidence=replace(e, cells=cells, training=trained))
    folder = saved(other, tmp_path_factory.mktemp("missed") / "run")
    assert [str(c) for c in verify(folder) if not c.agrees] == []
    return folder


@pytest.mark.parametrize("name", FORGED)
def test_a_forger_is_found_out(missed, tmp_path, name):
    folder = tmp_path / "run"
    shutil.copytree(missed, folder)
    paths = [folder / f"{one}.json" for one in ("result", "certificate")]
    result, certificate = (json.loads(path.read_text()) for path in paths)
    FORGED[name](certificate["evidence"], result, certificate)
    for path, plain in zip(paths, (result, certificate), strict=True):
        path.write_text(json.dumps(plain))
    wrong = [c for c in verify(folder) if not c.agrees]
    assert any(not str(c.what).startswith("file ") for c in wrong), name
