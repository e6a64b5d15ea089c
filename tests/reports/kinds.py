"""Every kind of folder that has a page, made of drawn people; and pictures of all.

``python -m tests.reports.kinds FOLDER [KIND…]`` writes each page, and what it looks
like at 1440 and 390 pixels, in light and dark, for somebody to look at.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pffl
from pffl import runs
from pffl.evidence import promise
from pffl.reports.page import render
from pffl.study.sweep import full_grid, sweep
from tests.engines.sites import remote
from tests.reports.browsing import opened
from tests.reports.folders import NAMES, NASTY, federation, panel_of
from tests.test_monitoring import of_people, people
from tests.test_path import unlike

PICTURES = tuple((w, scheme) for w in (1440, 390) for scheme in ("light", "dark"))
ABOUT = pffl.About(
    purpose="to show what a page looks like",
    owner="the maintainers",
    date="2026-11-17",
    contact="maintainers@example.org",
)


def _saved(place: Path, solution: pffl.Solution) -> str:
    runs.save(solution, place, "[data]\n")
    return render([place])


def _solved(place: Path, bound: float, **options: Any) -> str:
    data = federation(NAMES, rows=1_500)
    found = pffl.solve(data, pffl.BoundedGroupLoss(bound), seed=0, **options)
    return _saved(place, found)


def met(place: Path) -> str:
    return _solved(place, 0.69, about=ABOUT)


def not_met(place: Path) -> str:
    few = pffl.PFFL(dual_rounds=2, rounds_per_dual=2)
    return _solved(place, 0.55, method=few)


def infeasible(place: Path) -> str:
    return _solved(place, 0.3)


def unbounded(place: Path) -> str:
    data = federation(NAMES, rows=1_500)
    return _saved(place, pffl.solve(data, None, seed=0))


def many_groups(place: Path) -> str:
    """Two hundred groups, each with both labels: 400 cells."""
    groups = tuple(f"group {i:03d} of those who live in a place" for i in range(200))
    data = federation(groups, rows=12_000)
    options = pffl.Options(least=False)
    bounds = pffl.ConditionalBoundedGroupLoss(0.9)
    return _saved(place, pffl.solve(data, bounds, seed=0, options=options))


def deployed(place: Path) -> str:
    data = federation(("here", NASTY), rows=900)
    found = pffl.solve(remote(data), pffl.BoundedGroupLoss(0.69), seed=0)
    runs.save(found, place)
    _recorded(place, list(data.silo_names))
    return render([place])


def _recorded(place: Path, sites: list[str]) -> None:
    """A server's record: everybody answers, but one site refuses twice."""
    *well, last = sites
    of_a_round = {"planned": 10, "answered": 2, "silos": len(sites), "worst": NASTY}
    of_a_round |= {"loss": 0.63, "violation": 0.01, "left": 45.0}
    entries: list[dict[str, Any]] = [
        {"event": "begun", "run": "a", "data": "d", "sites": sites},
        *({"asked": sites, "answered": sites, "refused": []} for _ in range(12)),
        *(
            {"asked": sites, "answered": well, "refused": [[last, f"paused {NASTY}"]]}
            for _ in range(2)
        ),
    ]
    entries += [
        {"event": "round", "round": t, "gap": 0.1**t, **of_a_round} for t in (1, 2, 3)
    ]
    with (place / "record.jsonl").open("w") as file:
        for i, entry in enumerate(entries):
            time = f"2026-01-02T03:04:{i:02d}+00:00"
            file.write(json.dumps({"time": time, **entry}) + "\n")


def live(place: Path) -> str:
    place.mkdir()
    _recorded(place, ["north", "south", NASTY])
    return render([place], refresh=3_600)  # not while it is looked at


def masked(place: Path) -> str:
    data = federation(("here", "there"), rows=900)
    bound = pffl.BoundedGroupLoss(0.69)
    return _saved(place, pffl.solve(data, bound, seed=0, secure_sum=True))


def noisy(place: Path) -> str:
    data = pffl.datasets.synthetic(6_000, silos=3, features=3, groups=2, seed=0)
    ranges = dict.fromkeys(data.schema.features, (-200.0, 200.0))
    budget = pffl.Privacy(epsilon=4.0, delta=1e-6, ranges=ranges)
    bound = pffl.BoundedGroupLoss(0.66)
    return _saved(place, pffl.solve(data, bound, seed=0, privacy=budget))


def audit(place: Path) -> str:
    data = federation(NAMES, rows=1_500)
    found = pffl.solve(data, None, seed=0)
    bounds = pffl.ConditionalBoundedGroupLoss(0.7)
    return render([pffl.audit(found, data, bounds)])


def of_a_sweep(place: Path) -> str:
    data = federation(NAMES, rows=1_500)
    grid = full_grid(["bgl", "cbgl"], [0.5, 0.6, 0.69], [1.0, 10.0])
    sweep(data, grid, out=place)
    return render([place])


def comparison(place: Path) -> str:
    data = federation(rows=400)
    methods = ["fedavg", "exact", "group-weighted", "qffl"]
    pffl.compare(data, methods=methods, seeds=3, budget=10, out=place)
    return render([place])


def _promised(place: Path, bound: float) -> tuple[pffl.Solution, str]:
    options = pffl.Options(least=False)
    found = pffl.solve(
        unlike(),
        pffl.BoundedGroupLoss(bound),
        seed=0,
        promise=pffl.Promise(),
        options=options,
    )
    return found, _saved(place, found)


def promise_shown(place: Path) -> str:
    found, page = _promised(place, 0.75)
    assert promise.rise(found.evidence) is None
    return page


def promise_not_shown(place: Path) -> str:
    found, page = _promised(place, 0.67)
    assert promise.rise(found.evidence) is not None
    return page


def _watched(weeks: int) -> str:
    found = None
    for week in range(1, 9):
        table = people(150, week, wrong=0.5 * (week > weeks))
        found = pffl.monitor(of_people(), table, state=found, id="who")
    assert found is not None
    assert bool(found.alarms) == (weeks < 8)
    return render([found])


def monitor_quiet(place: Path) -> str:
    return _watched(8)


def monitor_alarm(place: Path) -> str:
    return _watched(4)


def panel(place: Path) -> str:
    """A figure of the paper, run again."""
    place.mkdir()
    found = panel_of("PFFL", NASTY)
    (place / "compas.json").write_text(json.dumps(found))
    return render([place])


def several(place: Path) -> str:
    place.mkdir()
    _solved(place / "a run with a name that is long", 0.69)
    _solved(place / "another", 0.6)
    _solved(place / "a third", 0.3)
    return render(sorted(place.iterdir()))


def network(place: Path) -> str:
    from pffl.models import Network
    from pffl.models.architectures import mlp

    data = federation(("here", NASTY), rows=900)
    method = pffl.PFFL(dual_rounds=3, rounds_per_dual=2)
    found = pffl.solve(
        data,
        pffl.BoundedGroupLoss(0.69),
        model=Network(mlp(3, (4,), 2)),
        method=method,
        seed=0,
    )
    return _saved(place, found)


def regression(place: Path) -> str:
    data = pffl.datasets.synthetic(
        2_000, task="regression", groups=4, silos=4, features=4, seed=0
    )
    return _saved(place, pffl.solve(data, pffl.BoundedGroupLoss(2.0), seed=0))


def three_labels(place: Path) -> str:
    data = pffl.datasets.synthetic(
        2_000, classes=3, groups=3, silos=4, features=4, seed=0
    )
    return _saved(place, pffl.solve(data, pffl.BoundedGroupLoss(1.05), seed=0))


KINDS: dict[str, Callable[[Path], str]] = {
    kind.__name__.strip("_"): kind
    for kind in (
        met,
        not_met,
        infeasible,
        unbounded,
        many_groups,
        deployed,
        masked,
        noisy,
        live,
        audit,
        of_a_sweep,
        comparison,
        promise_shown,
        promise_not_shown,
        monitor_quiet,
        monitor_alarm,
        panel,
        several,
        network,
        regression,
        three_labels,
    )
}


def main(out: Path, names: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with opened() as window:
        for name in names or KINDS:
            path = out / f"{name}.html"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                path.write_text(KINDS[name](out / name), encoding="utf-8")
            for width, scheme in PICTURES:
                window.show(path, width, scheme)
                window.picture(out / f"{name}-{width}-{scheme}.png")
            print(f"{name}: {path.stat().st_size / 1e3:,.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
