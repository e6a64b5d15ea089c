"""Every kind of folder that has a page, made of drawn people."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pffl
from pffl import runs
from tests.deploy.sites import remote
from tests.inside import Judged, render
from tests.reports.folders import NAMES, NASTY, federation
from tests.test_monitoring import of_people, people
from tests.test_path import unlike

BOUND = pffl.BoundedGroupLoss


def _saved(place: Path, solution: pffl.Solution) -> str:
    runs.save(solution, place, "[data]\n")
    return render(place)


def infeasible(place: Path) -> str:
    data = federation(NAMES, rows=1_500)
    return _saved(place, pffl.solve(data, BOUND(0.3), random_state=0))


def many_groups(place: Path) -> str:
    """Two hundred groups, each with both labels: 400 cells."""
    groups = tuple(f"group {i:03d} of those who live in a place" for i in range(200))
    bounds, quick = (
        pffl.ConditionalBoundedGroupLoss(0.9),
        pffl.Options(smallest_bound=False),
    )
    found = pffl.solve(
        federation(groups, rows=12_000), bounds, random_state=0, options=quick
    )
    return _saved(place, found)


def deployed(place: Path) -> str:
    data = federation(("here", NASTY), rows=900)
    found = pffl.solve(remote(data), BOUND(0.69), random_state=0)
    return _saved(place, found)


def noisy(place: Path) -> str:
    data = pffl.datasets.synthetic(6_000, silos=3, features=3, groups=2, random_state=0)
    ranges = dict.fromkeys(data.schema.features, (-200.0, 200.0))
    budget = pffl.Privacy(epsilon=4.0, delta=1e-6, ranges=ranges)
    return _saved(place, pffl.solve(data, BOUND(0.66), random_state=0, privacy=budget))


def comparison(place: Path) -> str:
    data = federation(NAMES, rows=1_500)
    named = {"fedavg": "fedavg", NASTY: "exact", "q": "qffl"}
    grid = {"bound": [0.5, 0.6, 0.69], "q": [0.1, 1.0]}
    pffl.compare(data, methods=named, grid=grid, seeds=3, budget=10, out=place)
    return render(place)


def _promised(place: Path, bound: float, *, shown: bool) -> str:
    quick = pffl.Options(smallest_bound=False)
    found = pffl.solve(
        unlike(), BOUND(bound), random_state=0, certify=True, options=quick
    )
    assert Judged(found.evidence).by_path is shown
    return _saved(place, found)


def promise_shown(place: Path) -> str:
    return _promised(place, 0.75, shown=True)


def promise_not_shown(place: Path) -> str:
    return _promised(place, 0.67, shown=False)


def monitor_alarm(place: Path) -> str:
    found = None
    for week in range(1, 9):
        table = people(150, week, wrong=0.5 * (week > 4))
        found = pffl.monitor(of_people(), table, state=found, id="who")
    assert found is not None
    assert found.alarms
    return render(found)


def regression(place: Path) -> str:
    some: dict[str, Any] = {"groups": 4, "silos": 4, "features": 4, "random_state": 0}
    data = pffl.datasets.synthetic(2_000, task="regression", **some)
    return _saved(place, pffl.solve(data, BOUND(2.0), random_state=0))


def three_labels(place: Path) -> str:
    some: dict[str, Any] = {"groups": 3, "silos": 4, "features": 4, "random_state": 0}
    data = pffl.datasets.synthetic(2_000, classes=3, **some)
    return _saved(place, pffl.solve(data, BOUND(1.05), random_state=0))


MADE: tuple[Callable[[Path], str], ...] = (
    *(infeasible, many_groups, deployed, noisy, comparison),
    *(promise_shown, promise_not_shown, monitor_alarm, regression, three_labels),
)
KINDS = {kind.__name__: kind for kind in MADE}
