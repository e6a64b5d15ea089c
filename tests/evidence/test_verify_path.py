"""`verify` walks the path of a promise again, and notices what was changed in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl import runs
from pffl.certifying import Request, examine
from pffl.data import Federation
from pffl.files import json_text
from pffl.solution import Solution
from pffl.solving import open_engine
from tests.evidence.test_verify import add, apart, forged, module, wrong
from tests.helpers import make_federation
from tests.inside import Evidence, ModelPath, Sample, conclude, keeps
from tests.test_path import QUICK

FOUR = pffl.Promise(models=4)


def people(weighted: bool) -> Federation:
    """Rows of people of whom some have several, or that do not count alike."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.normal(size=(500, 2)), columns=["x", "z"])
    table["sex"] = rng.choice(["f", "m"], size=500)
    drawn = rng.normal(size=500) * 1.5
    table["hired"] = (np.where(table["sex"] == "f", table["x"], table["z"]) > drawn) * 1
    table["site"] = 0
    more: dict[str, Any] = {"id": "person"}
    table["person"] = rng.integers(300, size=500)
    if weighted:
        del table["person"]
        more, table["count"] = {"weight": "count"}, rng.uniform(0.5, 1.5, size=500)
    return Federation.from_table(
        table,
        label="hired",
        group="sex",
        silo="site",
        seed=0,
        test_fraction=0.5,
        **more,
    )


#: Rows, constraint and what else is asked for; and the place of the model that is
#: shipped, and of how many.
Case = tuple[Callable[[], Federation], Any, dict[str, Any], tuple[int, int]]
BGL = pffl.BoundedGroupLoss
ONE = {"promise": pffl.Promise(models=1)}
WEIGHED = {"options": replace(QUICK, weight_bound=1.5)}
RANGE = {"model": pffl.LeastSquares(target_range=(-6.0, 6.0))}
CASES: dict[str, Case] = {
    "shown": (apart, BGL(0.8), {}, (1, 4)),
    "not certified": (apart, BGL(0.7), {}, (0, 4)),
    "impossible": (apart, BGL(0.4), {}, (0, 1)),
    "one model": (apart, BGL(0.9), ONE, (0, 1)),
    "calibration rows apart": (
        lambda: apart().with_calibration(0.5, seed=0),
        BGL({"a": 0.82, "b": 0.86}),
        {},
        (0, 4),
    ),
    "weighted": (lambda: people(True), BGL(0.82), WEIGHED, (3, 4)),
    "several rows": (lambda: people(False), BGL(0.8), {}, (3, 4)),
    "numbers": (
        lambda: make_federation(1, sizes=(200, 200), test=150, labels=0),
        BGL(2.0),
        RANGE,
        (0, 4),
    ),
}


@cache
def solved(case: str) -> tuple[Federation, Solution]:
    rows, constraint, more, _ = CASES[case]
    asked = {"options": QUICK, "promise": FOUR, "seed": 0, **more}
    federation = rows()
    return federation, pffl.solve(federation, constraint, **asked)


def path_of(case: str) -> ModelPath:
    path = solved(case)[1].evidence.path
    assert isinstance(path, ModelPath)
    return path


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Run directories, with their rows beside them, each made once."""
    top = tmp_path_factory.mktemp("paths")

    @cache
    def made(case: str) -> Path:
        federation, solution = solved(case)
        with runs.lock(top / case) as directory:
            directory.save(solution, "")
            later = Request(confidence=0.999 if solution.exit_code == 0 else 0.5)
            engine = open_engine(federation, "local")
            directory.certify(examine(solution, engine, later), "later")
        federation.export(top / f"{case}.npz")
        return top / case

    return made


@pytest.mark.parametrize("case", CASES)
def test_honest_paths_agree(case, shelf):
    """With rows and without, also a later certificate at another confidence."""
    place, path = shelf(case), path_of(case)
    assert (path.chosen, len(path.candidates)) == CASES[case][3]
    rows = place.parent / f"{case}.npz"
    assert wrong(place, rows) == []
    assert wrong(place) == []
    assert wrong(place / "certificate-later.json", rows) == []


def rewritten(place: Path, to: Path, change: Callable[[Any], None]) -> Path:
    """A forger changes evidence, and writes all that follows from it anew."""
    plain = json.loads((place / "evidence.json").read_bytes())
    change(plain["path"])
    e = Evidence.from_dict(plain)
    for name, new in (
        ("evidence.json", plain),
        ("result.json", conclude(e).result()),
        ("certificate.json", conclude(e).certified()),
    ):
        text = json_text(new)
        place = forged(place, to / name, name, lambda _, t=text: t)
    return place


def swap(path: Any) -> None:
    first, second, *others = path["candidates"]
    path["candidates"] = [second, first, *others]


def drop_last(path: Any) -> None:
    path["candidates"].pop()


def drop_failed(path: Any) -> None:
    del path["candidates"][path["chosen"] + 1]


def next_one(path: Any) -> None:
    path["chosen"] += 1


def replace_shipped(path: Any) -> None:
    path["candidates"][path["chosen"]]["model"] = path["candidates"][0]["model"]


def replace_other(path: Any) -> None:
    path["candidates"][3]["model"] = path["candidates"][0]["model"]


def change(path: str, by: float) -> Callable[[Any], None]:
    """Nudge one number."""
    return lambda plain: add(plain, path, by)


OTHER = "candidates/2"  # a model that is not shipped
HELD = f"{OTHER}/calibration"
FORGED: list[tuple[Callable[[Any], None], str, bool]] = [
    (swap, "path: the safest first", False),
    (drop_last, "path: spread", False),
    (drop_failed, "looks: settings", False),
    (next_one, "path: the model chosen", False),
    (replace_shipped, "path: the shipped model", False),
    (replace_other, "model 4, training: cells, loss", True),
    (change("confidence", 0.04), "bets of cell", False),
    (change("spread/1", 1e-4), "path: spread", False),
    (change("overlap", 1), "calibration rows that were trained on", True),
    (change(f"{OTHER}/margin", -1e-3), "path: margins, 2", False),
    (change(f"{OTHER}/loss_bound", 2.0), "model 3: M, chosen", True),
    (change(f"{OTHER}/loss_bound", 1.0), "model 3: M", False),
    (change(f"{HELD}/bets/0/0", -1e-3), "model 3, calibration: bets of cell 0", False),
    (change(f"{HELD}/bet_weights/0/1", -1e-3), "weights of bets of cell 0", False),
    (change(f"{HELD}/below/1/0", 5.0), "model 3, calibration: below, 1, 0", True),
    (change(f"{HELD}/cells/loss/1", 1e-3), "calibration: cells, loss, 1", True),
]


@pytest.mark.parametrize(("forge", "said", "by_rows"), FORGED)
def test_a_path_that_was_not_walked_is_noticed(forge, said, by_rows, shelf, tmp_path):
    """Without rows where the files contradict each other, else by the rows."""
    place = shelf("shown")
    bad = rewritten(place, tmp_path, forge)
    rows = place.parent / "shown.npz" if by_rows else None
    assert any(said in one for one in wrong(bad, rows))


def test_the_smallest_risk_is_where_the_upper_end_meets_the_bound():
    """Verify tests at the bound; the product inverts: both decide alike."""
    for case in ("shown", "weighted", "several rows"):
        e, path = solved(case)[1].evidence, path_of(case)
        weighs, decided = e.heldout_weighted, 0
        for one in path.candidates:
            plain = {"loss_bound": one.loss_bound, "calibration": vars(one.calibration)}
            risk = module.least_risk(plain, e.bounds.tolist(), weighted=weighs)
            if risk < 0.99:
                decided += 1
                for factor, shown in ((1 + 1e-6, True), (1 - 1e-6, False)):
                    kept = keeps(one, e.bounds, factor * risk, weighs=weighs)
                    assert kept is shown
        assert decided > 0


def test_the_smallest_risk_at_the_edges():
    one = path_of("shown").candidates[0]
    M = one.loss_bound

    def risk(bound: float, held: Sample) -> float:
        plain = {"loss_bound": M, "calibration": vars(held)}
        return float(module.least_risk(plain, [0.8, bound], weighted=False))

    held = one.calibration
    assert risk(M, held) == risk(9.0, held) < risk(0.8, held)
    assert risk(0.0, held) == float("inf")
    none = {key: [column[0], 0] for key, column in held.people.items()}
    assert risk(0.8, replace(held, people=none)) == float("inf")
    assert risk(M, replace(held, people=none)) == risk(M, held)
    assert module.shown_up_to([0.01, 0.2, 0.01], 0.05) == 1
    assert module.shown_up_to([0.2], 0.05) == 0
    assert module.shown_up_to([0.01, 0.05], 0.05) == 2
