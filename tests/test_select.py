"""bound = "auto": chosen on training rows that are set aside, and by nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

import pffl
from pffl import runs
from pffl.config import parse
from pffl.data import Federation, Rows
from pffl.errors import UsageError
from pffl.methods import Exact, FedAvg
from pffl.prepare import Options
from pffl.select import BOUND_TRIALS, pick, set_aside
from tests.cli.helpers import SMALL
from tests.cli.helpers import pffl as command
from tests.helpers import make_federation
from tests.inside import Address, Choice, Training, deploy
from tests.inside import evidence_evidence_Trial as Trial
from tests.raising import raises

AUTO = pffl.BoundedGroupLoss("auto")
FEW = Options(baseline=False, smallest_bound=False)


def unlike(seed: int = 5, rows: int = 300) -> Federation:
    """Two groups whose labels follow different inputs: one model cannot suit both."""
    rng = np.random.default_rng(seed)
    group = (rng.uniform(size=2 * rows) < 0.25).astype(int)
    X = rng.normal(size=(2 * rows, 3))
    score = np.where(group == 1, 1.5 * X[:, 1] + 0.5, 1.5 * X[:, 0])
    y = (rng.uniform(size=2 * rows) < expit(score)).astype(int)
    return Federation.from_arrays(
        X,
        y,
        sensitive_features=np.array(["a", "b"])[group],
        silo=np.arange(2 * rows) % 2,
        random_state=seed,
    )


def with_other_test_rows(federation: Federation) -> Federation:
    def flipped(rows: Rows) -> Rows:
        return replace(rows, X=-5.0 * rows.X, y=1.0 - rows.y)

    silos = tuple(
        replace(silo, splits={**silo.splits, "test": flipped(silo.rows("test"))})
        for silo in federation.silos
    )
    return replace(federation, silos=silos)


def choice_of(solution: pffl.Solution) -> Choice:
    assert isinstance(solution.evidence.training, Training)
    choice = solution.evidence.training.choice
    assert choice is not None
    return choice


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


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 2), max_size=8), st.integers(0, 4))
def test_the_rule(pairs, limit):
    trials = [Trial(1.0, worst, "z", error) for worst, error in pairs]
    place = pick(trials, limit)
    within = [worst for worst, error in pairs if error <= limit]
    assert (place is None) == (not within)
    if place is not None:
        assert pairs[place][1] <= limit
        assert pairs[place][0] == min(within)
        assert pairs[:place].count(pairs[place]) == 0  # of equal ones the first


def test_the_figures_are_those_of_models_trained_without_the_rows_set_aside():
    federation = unlike()
    solution = pffl.solve(federation, AUTO, options=FEW, random_state=0)
    choice, apart = choice_of(solution), set_aside(federation, 0)
    free, *others = choice.trials
    assert (choice.aside, choice.rows) == (apart.rows("validation"), 480)
    assert len(others) == BOUND_TRIALS
    bounds = [trial.bound for trial in others]
    assert bounds == sorted(bounds, reverse=True)
    for trial in (free, others[0], others[4]):
        bound = None if trial.bound is None else pffl.BoundedGroupLoss(trial.bound)
        found = pffl.solve(apart, bound, options=FEW, random_state=0)
        worst, error = measured(found, apart)
        assert trial.worst == pytest.approx(worst, abs=1e-4)
        assert trial.error == pytest.approx(error, abs=1e-9)
    assert choice.error_at_most == pytest.approx(free.error + 0.01)
    assert choice.bound == others[pick(others, choice.error_at_most)].bound
    assert choice.bound < others[0].bound  # it does something
    assert solution.evidence.bounds.tolist() == [choice.bound] * 2
    assert solution.status == "met"


def measured(solution: pffl.Solution, apart: Federation) -> tuple[float, float]:
    """Worst group's mean loss, and error, on validation rows, by plain NumPy."""
    rows, model = apart.pooled("validation"), solution.problem.task.model
    X = (rows.X - model.inputs.mean) / model.inputs.scale
    score = X @ solution.w[:-1] + solution.w[-1]
    low = np.exp(-float(solution.loss_bound or 0.0))
    right = np.clip(expit(np.where(rows.y == 1, score, -score)), low, 1 - low)
    losses = [-np.log(right[rows.group == a]).mean() for a in (0, 1)]
    return max(losses), float(np.mean((score > 0) != (rows.y == 1)))


def test_test_rows_play_no_part_and_the_run_is_that_of_what_was_chosen():
    federation = unlike(4)
    chosen = pffl.solve(federation, AUTO, options=FEW, random_state=3)
    bound = pffl.BoundedGroupLoss(choice_of(chosen).bound)
    again = pffl.solve(federation, bound, options=FEW, random_state=3)
    np.testing.assert_array_equal(chosen.w, again.w)
    other = with_other_test_rows(federation)
    found = pffl.solve(other, AUTO, options=FEW, random_state=3)
    assert choice_of(found) == choice_of(chosen)
    np.testing.assert_array_equal(chosen.w, found.w)
    assert found.test != chosen.test


def test_numeric_targets_count_their_mean_loss():
    federation = make_federation(0, sizes=(150, 100), test=0, labels=0)
    choice = choice_of(pffl.solve(federation, AUTO, options=FEW, random_state=0))
    assert choice.error_at_most == pytest.approx(1.01 * choice.trials[0].error)


def test_where_there_is_nothing_to_choose_it_is_refused() -> None:
    federation, address = make_federation(0), Address.parse("server.test:9092")

    def deployed(**more: object) -> object:
        spec = parse({"data": {"name": "synthetic"}, **more})
        return deploy(spec, {}, {}, "nowhere", address=address)

    for wrong in (
        lambda: pffl.solve(federation, AUTO, method=FedAvg()),
        lambda: pffl.solve(federation, AUTO, method=Exact(risk_weight=0.0)),
        lambda: pffl.feasible(federation, AUTO),
        lambda: pffl.solve(federation, AUTO & pffl.PerSilo(0.9)),
        lambda: deployed(constraint={"bound": "auto"}),
    ):
        with raises(UsageError, "auto-refused"):
            wrong()


def test_run_files_and_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    data = {"data": {"name": "compas"}}
    assert parse({**data, "constraint": {"bound": "auto"}}).constraint == AUTO
    some = {"Female": "auto", "Male": 0.5}
    spec = parse({**data, "constraint": {"bound": some}})
    assert spec.constraint == pffl.BoundedGroupLoss(some)
    out = tmp_path / "run"
    seen = command(capsys, "run", *SMALL, "--bound", "auto", "--out", out)
    assert seen.code == 0, seen.err
    written = (out / "run.toml").read_text()
    assert 'bound = "auto"' in written
    assert command(capsys, "verify", out).code == 0
    done = command(capsys, "run", out / "run.toml", "--out", tmp_path / "two")
    assert done.code == 0, done.err
    np.testing.assert_array_equal(
        runs.read_run(out).w, runs.read_run(tmp_path / "two").w
    )
    for wrong in (("--bound", "atuo"),):
        assert command(capsys, "run", *SMALL, *wrong).code == 2
