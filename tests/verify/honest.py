"""Honest runs of every kind: rows, what is asked for, and whether it is slow.

Each is saved once, with its rows beside it: every one must be accepted by `verify`, and
all forgeries begin with one of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import pffl
from pffl import runs
from pffl.data import Federation, Rows
from pffl.methods import METHODS, PFFL, Exact, FedAvg, FirstOrder
from pffl.models import (
    HuberRegression,
    LeastSquares,
    LogisticRegression,
    SoftmaxRegression,
)
from tests.golden import people
from tests.helpers import make_federation, make_schema

BGL, CBGL = pffl.BoundedGroupLoss, pffl.ConditionalBoundedGroupLoss
QUICK = pffl.Options(baseline=False, smallest_bound=False)
RANGE = (-50.0, 50.0)


class Run(NamedTuple):
    """What is solved: rows, constraint, and keywords of `solve`."""

    rows: Callable[[], Federation]
    constraint: Any
    more: dict[str, Any] = {}  # noqa: RUF012
    slow: bool = False


@cache
def binary() -> Federation:
    schema = make_schema(features=2)
    return make_federation(5, sizes=(60, 45), test=40, schema=schema)


@cache
def three() -> Federation:
    return make_federation(7, sizes=(60, 45, 30), test=30, labels=3)


@cache
def numeric() -> Federation:
    return make_federation(7, sizes=(60, 45, 30), test=30, labels=0)


@cache
def unlike(rows: int = 900, seed: int = 5) -> Federation:
    """Two groups that differ, of which enough are held out to certify something."""
    groups = ["a", "b"]
    return pffl.datasets.synthetic(
        rows, silos=3, groups=groups, random_state=seed, test_fraction=0.5
    )


@cache
def table(kind: str) -> Federation:
    """People of whom some have several rows, or whose rows do not count alike."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(600, 2)), columns=["x", "z"])
    frame["sex"] = rng.choice(["f", "m"], size=600)
    drawn = rng.normal(size=600) * 1.5
    frame["hired"] = (np.where(frame["sex"] == "f", frame["x"], frame["z"]) > drawn) * 1
    frame["site"] = rng.integers(2, size=600)
    more: dict[str, Any] = {}
    if kind in ("several", "both"):
        frame["person"], more["id"] = rng.integers(350, size=600), "person"
    if kind in ("weighted", "both"):
        frame["count"], more["weight"] = rng.uniform(0.5, 1.5, size=600), "count"
    if kind == "missing":
        frame.loc[rng.random(600) < 0.2, "x"] = np.nan
        more["missing"] = "indicator"
    if kind == "crossed":
        frame["old"] = rng.choice(["0", "1"], size=600)
        more["group"] = ["sex", "old"]
    if kind == "units":
        frame["x"], frame["z"] = 1e9 + 1e7 * frame["x"], 1e-9 * frame["z"]
    settings = {"label": "hired", "group": "sex", "silo": "site", "random_state": 0}
    return Federation.from_table(frame, **settings | {"test_fraction": 0.5} | more)


@cache
def separable() -> Federation:
    """Classes that a line tells apart: losses go to 0 as weights grow."""
    federation = binary()
    silos = []
    for silo in federation.silos:
        splits = {}
        for split, rows in silo.splits.items():
            X = np.array(rows.X, dtype=float)
            X[:, 0] = np.where(rows.y == 1, 1.0, -1.0) * (0.5 + np.abs(X[:, 0]))
            splits[split] = Rows.of(X, rows.y, rows.group)
        silos.append(replace(silo, splits=splits))
    return replace(federation, silos=tuple(silos))


@cache
def letters() -> Federation:
    settings = {
        "label": "granted",
        "group": "region",
        "silo": "office",
        "random_state": 0,
    }
    return Federation.from_table(
        people.letters(400), columns={"letter": {"hash": 512}}, **settings
    )


@cache
def floats() -> Federation:
    return make_federation(5, sizes=(60, 45), test=40, dtype=np.float32)


@cache
def apart() -> Federation:
    return unlike().with_calibration(0.4, random_state=0)


def private(noise_seed: int = 1, **more: Any) -> dict[str, Any]:
    ends = [(0.0, 100.0), (0.0, 1.0), (0.0, 10.0)]
    names = drawn().schema.features
    ranges = {name: ends[k % 3] for k, name in enumerate(names)}
    terms = {"epsilon": 4.0, "delta": 1e-6, "ranges": ranges, "noise_seed": noise_seed}
    return {"privacy": pffl.Privacy(**terms | more)}


@cache
def drawn() -> Federation:
    return pffl.datasets.synthetic(3000, silos=3, groups=["f", "m"], random_state=0)


@cache
def small_groups() -> Federation:
    """Sites that have fewer people of a group than the floor, in some splits."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(size=500), "z": rng.normal(size=500)})
    frame["sex"] = rng.choice(["f", "m", "n"], p=[0.3, 0.5, 0.2], size=500)
    frame["hired"] = (frame["x"] > rng.normal(size=500)) * 1
    frame["site"] = rng.choice(4, p=[0.4, 0.3, 0.2, 0.1], size=500)
    frame["person"] = rng.integers(400, size=500)
    frame["count"] = rng.uniform(0.5, 1.5, size=500)
    columns = {"label": "hired", "group": "sex", "silo": "site", "id": "person"}
    return Federation.from_table(frame, weight="count", random_state=0, **columns)


@cache
def equal_rows() -> Federation:
    """Rows that are equal as numbers: of zeros, some have a minus."""
    rng = np.random.default_rng(2)
    X = np.round(rng.normal(size=(400, 2)))
    y, sex = (X[:, 0] > rng.normal(size=400)) * 1, rng.choice(["f", "m"], size=400)
    return Federation.from_arrays(X, y, sensitive_features=sex)


def network() -> dict[str, Any]:
    from pffl.models import Network, mlp

    method = PFFL(
        dual_rounds=2, rounds_per_dual=2, local_steps=2, step_size=0.2, batch_size=32
    )
    return {"model": Network(mlp(2, (4,)), loss="binary"), "method": method}


def method(kind: str, **settings: Any) -> dict[str, Any]:
    return {"method": METHODS[kind](**settings)}


FOUR = {"options": replace(QUICK, certify=True, models=4)}
HEAVY = {"options": replace(QUICK, weight_bound=1.5)}
ONE = {"options": replace(QUICK, certify=True, models=1)}
HEAVY_FOUR = {"options": replace(FOUR["options"], weight_bound=1.5)}
ONCE = PFFL(dual_rounds=1, rounds_per_dual=1)
NO_RIDGE = {"model": LogisticRegression(l2=0.0)}
SQUARES = {"model": LeastSquares(target_range=RANGE)}
HUBER = {"model": HuberRegression(delta=1.0, target_range=RANGE)}

RUNS: dict[str, Run] = {
    "met": Run(binary, BGL(0.685), {"method": Exact(multiplier_bound=10.0)}),
    "price left open": Run(binary, BGL(0.685)),
    "impossible": Run(binary, BGL(0.4)),
    "impossible, bounds differ": Run(binary, BGL({"f": 0.3, "m": 0.5})),
    "one label": Run(binary, CBGL(0.9, labels=["class 1"])),
    "both labels": Run(binary, CBGL(0.9)),
    "bounds by label": Run(binary, CBGL({"class 0": 0.8, "class 1": 0.95})),
    "one group only": Run(binary, BGL({"f": 0.69})),
    "minimax": Run(binary, pffl.MinMax()),
    "joined": Run(binary, BGL(0.685) & pffl.PerSilo(0.7)),
    "per silo": Run(binary, pffl.PerSilo(0.7)),
    "no bound": Run(binary, None),
    "softmax": Run(three, BGL(0.9)),
    "softmax, two classes": Run(binary, BGL(0.7), {"model": SoftmaxRegression()}),
    "softmax, by label": Run(three, CBGL(1.4)),
    "least squares": Run(numeric, BGL(1.2), SQUARES),
    "no range": Run(numeric, BGL(1.2)),
    "huber": Run(numeric, BGL(1.2), HUBER),
    "huber, certified": Run(numeric, BGL(4.0), HUBER | FOUR),
    "numbers, certified": Run(numeric, BGL(6.0), SQUARES | FOUR),
    "by rows, 99 %": Run(
        binary, BGL(0.683), {"options": pffl.Options(weighting="rows", confidence=0.99)}
    ),
    "within slack": Run(binary, BGL(0.682), {"method": Exact(multiplier_bound=0.02)}),
    "not converged": Run(binary, BGL(0.682), {"method": ONCE}),
    "no ridge": Run(binary, BGL(0.682), {"method": ONCE} | NO_RIDGE),
    "no ridge, exact": Run(binary, BGL(0.685), NO_RIDGE),
    "separable, no ridge": Run(separable, BGL(0.3), NO_RIDGE),
    "separable, no ridge, no bound": Run(separable, None, NO_RIDGE),
    "separable, both labels": Run(separable, CBGL(0.2), NO_RIDGE),
    "separable": Run(separable, BGL(0.3)),
    "a declared ball": Run(binary, BGL(0.685), {"options": pffl.Options(radius=3.0)}),
    "auto": Run(unlike, BGL("auto"), slow=True),
    "auto, both labels": Run(unlike, CBGL("auto"), slow=True),
    "auto, certified": Run(unlike, BGL("auto"), FOUR, slow=True),
    "many digits": Run(unlike, BGL(0.7543219876543211)),
    "many digits, certified": Run(unlike, BGL(0.7543219876543211), FOUR),
    "certified": Run(unlike, BGL(0.8), FOUR),
    "not certified": Run(unlike, BGL(0.7), FOUR),
    "certify the impossible": Run(unlike, BGL(0.4), FOUR),
    "one candidate": Run(unlike, BGL(0.9), ONE),
    "calibration rows": Run(apart, BGL({"a": 0.82, "b": 0.86}), FOUR),
    "calibration rows, by label": Run(apart, CBGL(0.95), FOUR),
    "weights": Run(lambda: table("weighted"), BGL(0.7), HEAVY),
    "weights, no bound of them": Run(lambda: table("weighted"), BGL(0.7)),
    "weights, certified": Run(lambda: table("weighted"), BGL(0.9), HEAVY_FOUR),
    "several rows": Run(lambda: table("several"), BGL(0.7)),
    "several rows, certified": Run(lambda: table("several"), BGL(0.85), FOUR),
    "several rows and weights": Run(lambda: table("both"), BGL(0.7), HEAVY),
    "missing values": Run(lambda: table("missing"), BGL(0.7)),
    "crossed groups": Run(lambda: table("crossed"), BGL(0.75)),
    "crossed, by one": Run(lambda: table("crossed"), CBGL(0.9, by="sex")),
    "crossed, joined": Run(
        lambda: table("crossed"), BGL(0.75, by="sex") & BGL(0.74, by="old")
    ),
    "hostile units": Run(lambda: table("units"), BGL(0.7)),
    "sparse": Run(letters, BGL(0.6), {"model": LogisticRegression(l2=0.05)}, slow=True),
    "sparse, first order": Run(
        letters,
        BGL(0.6),
        {"model": LogisticRegression(l2=0.05), "method": FirstOrder()},
        slow=True,
    ),
    "float32": Run(floats, BGL(0.69)),
    "first order": Run(binary, BGL(0.685), {"method": FirstOrder()}),
    "pffl": Run(binary, BGL(0.69), {"method": PFFL()}, slow=True),
    "reductions, unconverged": Run(
        binary, BGL(0.682), method("reductions", iterations=2)
    ),
    "fedavg": Run(binary, BGL(0.685), {"method": FedAvg(rounds=5)}),
    "fedminmax": Run(binary, pffl.MinMax(), method("fedminmax", rounds=5)),
    "afl": Run(binary, pffl.PerSilo(0.7), method("afl", rounds=5)),
    "q-ffl": Run(binary, BGL(0.69), method("qffl", rounds=5)),
    "no test rows": Run(lambda: make_federation(5, sizes=(60, 45), test=0), BGL(0.7)),
    "smallest bound": Run(
        binary, BGL(0.685), {"options": pffl.Options(smallest_bound=True)}
    ),
    "masked, small groups": Run(small_groups, BGL(0.66), {"secure_sum": True}),
    "masked, no bounds": Run(small_groups, None, {"secure_sum": True}),
    "equal rows": Run(equal_rows, BGL(0.69), {}),
    "masked": Run(drawn, BGL(0.66), {"secure_sum": True}, slow=True),
    "network": Run(binary, BGL(0.7), {}),
    "noise": Run(drawn, BGL({"f": 0.6, "m": 0.72}), {}, slow=True),
    "noise under masks": Run(drawn, BGL(0.7), {"secure_sum": True}, slow=True),
    "noise, both labels": Run(drawn, CBGL(0.9), {}, slow=True),
}
RUNS_LATER = {"network": network} | {n: private for n in RUNS if n[:5] == "noise"}


def solved(name: str) -> tuple[Federation, Any]:
    """Solve one of them."""
    run = RUNS[name]
    more = dict(run.more)
    if name in RUNS_LATER:
        more |= RUNS_LATER[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows that are alike, weights without a bound
        rows = run.rows()
        return rows, pffl.solve(rows, run.constraint, random_state=0, **more)


def run_file(solution: Any) -> str:
    """What a run file says of it, as far as it is compared."""
    e = solution.evidence
    lines = ["[run]", f"seed = {e.training.seed}", f"confidence = {e.terms.confidence}"]
    lines += [f'weighting = "{e.terms.weighting}"', "[constraint]"]
    rule = e.training.constraint
    if isinstance(rule.get("bound"), float) and e.training.choice is None:
        lines += [f'kind = "{rule["kind"]}"', f"bound = {rule['bound']!r}"]
    return "\n".join(lines) + "\n"


def saved(name: str, top: Path) -> tuple[Path, Path]:
    """Save one of them: its folder, and its rows."""
    rows, solution = solved(name)
    place, table = top / name.replace(" ", "-"), top / f"{name.replace(' ', '-')}.npz"
    with runs.lock(place) as directory:
        directory.save(solution, run_file(solution))
    rows.export(table)
    return place, table
