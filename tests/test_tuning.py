"""l2 = "auto": chosen on training rows set aside, and on nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pffl
from pffl import runs
from pffl.config import parse
from pffl.data import Federation, Rows
from pffl.errors import UsageError
from pffl.select import L2_GRID as GRID
from pffl.select import set_aside
from tests.cli.helpers import SMALL
from tests.cli.helpers import pffl as command
from tests.helpers import make_federation
from tests.inside import Address, deploy
from tests.raising import raises

AUTO = pffl.Options(l2="auto", baseline=False, smallest_bound=False)
BOUND = pffl.BoundedGroupLoss(0.9)


def noisy(columns: int, *, seed: int = 0, rows: int = 60) -> Federation:
    """One column that tells something of the label, and many that tell nothing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3 * rows, columns))
    y = (X[:, 0] + rng.normal(size=3 * rows) > 0).astype(int)
    group = rng.choice(["a", "b"], size=3 * rows)
    return Federation.from_arrays(
        X, y, sensitive_features=group, silo=np.arange(3 * rows) % 3, seed=seed
    )


def chosen(solution: pffl.Solution) -> float:
    l2 = solution.problem.task.model.l2
    (note,) = [n for n in solution.evidence.notes if n.startswith("l2 =")]
    assert note.startswith(f"l2 = {l2:g} was chosen")
    told = re.findall(r"([\d.e-]+): ([\d.e+-]+)[,)]", note)
    assert [float(g) for g, _ in told] == list(GRID)
    losses = [float(loss) for _, loss in told]
    assert losses[GRID.index(l2)] == min(losses)
    return float(l2)


def test_noise_asks_for_a_large_ridge_and_it_helps() -> None:
    federation = noisy(40)
    plain = pffl.solve(federation, BOUND, seed=0)
    tuned = pffl.solve(federation, BOUND, options=AUTO, seed=0)
    assert chosen(tuned) >= 1e-2
    assert tuned.test is not None
    assert plain.test is not None
    assert tuned.test.risk < plain.test.risk
    few = pffl.solve(noisy(1, rows=2000), BOUND, options=AUTO, seed=0)
    assert chosen(few) < 1e-2


def test_the_run_is_that_of_the_l2_that_was_chosen() -> None:
    federation = noisy(10)
    tuned = pffl.solve(federation, BOUND, options=AUTO, seed=3)
    model = pffl.LogisticRegression(l2=chosen(tuned))
    again = pffl.solve(federation, BOUND, model=model, seed=3)
    np.testing.assert_array_equal(tuned.w, again.w)
    same = pffl.solve(federation, BOUND, options=AUTO, seed=3)
    assert same.evidence.notes == tuned.evidence.notes


def test_no_held_out_row_is_looked_at() -> None:
    federation = noisy(10)
    silos = tuple(
        replace(
            silo,
            splits={**silo.splits, "test": flipped(silo.rows("test"))},
        )
        for silo in federation.silos
    )
    other = replace(federation, silos=silos)
    first, second = (
        pffl.solve(one, BOUND, options=AUTO, seed=0) for one in (federation, other)
    )
    assert first.evidence.notes == second.evidence.notes
    np.testing.assert_array_equal(first.w, second.w)
    assert first.test != second.test


def flipped(rows: Rows) -> Rows:
    return replace(rows, X=-5.0 * rows.X, y=1.0 - rows.y)


def test_rows_set_aside_are_training_rows_and_people_stay_together() -> None:
    federation = make_federation(0, sizes=(40, 30), test=20)
    silos = tuple(
        replace(
            silo,
            splits={
                name: replace(rows, person=np.arange(len(rows)) // 2)
                for name, rows in silo.splits.items()
            },
        )
        for silo in federation.silos
    )
    apart = set_aside(replace(federation, silos=silos), 0)
    assert apart.splits == ("train", "validation")
    assert apart.rows("train") + apart.rows("validation") == federation.rows("train")
    assert apart.rows("validation") > 0
    people = {
        split: {p for s in apart.silos for p in s.rows(split).person.tolist()}
        for split in apart.splits
    }
    assert not people["train"] & people["validation"]
    every = {row.tobytes() for row in federation.pooled("train").X}
    assert {row.tobytes() for row in apart.pooled("validation").X} <= every


@pytest.mark.parametrize(
    ("labels", "model"),
    [(3, None), (0, None), (0, pffl.HuberRegression(delta=1.0))],
)
def test_other_models(labels: int, model: pffl.HuberRegression | None) -> None:
    federation = make_federation(1, labels=labels)
    loose = pffl.BoundedGroupLoss(9.0)
    chosen(pffl.solve(federation, loose, model=model, options=AUTO, seed=0))


@pytest.mark.parametrize("method", [pffl.PFFL(dual_rounds=2), pffl.FedAvg(rounds=3)])
def test_other_methods_get_the_same_ridge(method: object) -> None:
    solution = pffl.solve(noisy(10), BOUND, method=method, options=AUTO, seed=0)  # type: ignore[arg-type]
    assert chosen(solution) in GRID


def test_where_there_is_nothing_to_choose_it_says_so() -> None:
    federation = make_federation(0)
    with raises(UsageError, "auto-refused"):
        pffl.solve(federation, pffl.MinMax(), options=AUTO, seed=0)
    with raises(UsageError, "auto-refused"):
        pffl.solve_many(federation, [(BOUND, pffl.Exact())], options=AUTO)
    spec = parse({"data": {"name": "synthetic"}, "model": {"l2": "auto"}})
    address = Address.parse("server.test:9092")
    with raises(UsageError, "auto-refused"):
        deploy(spec, {}, {}, "nowhere", address=address)
    with raises(UsageError, "wrong-value", "l2"):
        pffl.Options(l2=0.1)  # type: ignore[arg-type]


def test_in_a_run_file_it_is_the_models() -> None:
    data = {"data": {"name": "synthetic"}}
    spec = parse({**data, "model": {"l2": "auto"}, "run": {"seed": 4}})
    assert spec.options.l2 == "auto"
    again = parse({**data, "model": {"l2": 0.1}})
    assert (again.options.l2, again.model.l2) == (None, 0.1)
    with raises(UsageError, "wrong-value"):
        parse({**data, "model": {"l2": "automatic"}})


def test_the_command_line_takes_it_and_the_run_can_be_repeated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    more = ("--bound", "0.9", "--no-extras", "--out")
    done = command(capsys, "run", *SMALL, "--l2", "auto", *more, places[0])
    assert done.code == 0, done.err
    spec = places[0] / "run.toml"
    assert 'l2 = "auto"' in spec.read_text()
    done = command(capsys, "run", spec, "--no-extras", "--out", places[1])
    assert done.code == 0, done.err
    one, two = (runs.read_run(place) for place in places)
    np.testing.assert_array_equal(one.w, two.w)
    bad = command(capsys, "run", *SMALL, "--l2", "much", *more, tmp_path / "three")
    assert (bad.code, bad.error) == (2, "wrong-value")
