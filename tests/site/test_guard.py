"""What the guard refuses, that it says why, and that it remembers."""

from __future__ import annotations

import json
import multiprocessing
import stat
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.errors import Malformed, UsageError
from pffl.methods import FCFL
from pffl.models import Inputs
from pffl.queries import (
    Evaluate,
    Expand,
    Task,
    Train,
    Witness,
    read_query,
)
from pffl.site import Rules, Site
from tests.inside import Log
from tests.raising import raises
from tests.site.sites import (
    OPEN,
    ask,
    census,
    message,
    problem_of,
    send,
    small_site,
)


def evaluate(site: Site, **changes: Any) -> Evaluate:
    task = problem_of(site).task
    w = changes.pop("w", np.zeros(task.model.n_parameters))
    return replace(Evaluate(task, w, "train"), **changes)


def with_scale(query: Evaluate, factor: float) -> Evaluate:
    model = query.task.model
    inputs = Inputs(model.inputs.mean, model.inputs.scale * factor)
    return replace(query, task=replace(query.task, model=replace(model, inputs=inputs)))


def with_cells(query: Evaluate, seed: int) -> Evaluate:
    cells = query.task.cells
    chosen = np.random.default_rng(seed).integers(0, 2, cells.membership.shape) > 0
    return replace(
        query,
        task=Task(
            query.task.model, replace(cells, membership=chosen), query.task.shares
        ),
    )


def train(query: Evaluate, **changes: Any) -> Train:
    z = np.zeros(len(query.task.cells))
    start = Train(query.task, query.w, 1.0, z, np.array([0.1]))
    return replace(start, **changes)


def test_numbers_only_grow() -> None:
    site = small_site()
    query = evaluate(site)
    assert not send(site, query, (0, 5)).refusal
    for number in [(0, 5), (0, 4)]:
        refusal = send(site, query, number).refusal
        assert "no number is answered twice" in refusal
        assert str(number) in refusal
    assert not send(site, query, (0, 6)).refusal
    assert not send(site, query, (1, 0)).refusal  # a restarted server
    assert send(site, query, (0, 7)).refusal
    assert not send(site, query, (0, 1), run="another").refusal


def test_census_takes_a_number_but_no_budget() -> None:
    site = small_site(Rules(queries=1, floor=1))
    for sequence in range(5):
        assert not send(site, census(site), (0, sequence)).refusal
    assert send(site, census(site), (0, 3)).refusal
    assert not send(site, evaluate(site), (0, 5)).refusal


def test_budget_of_queries_and_runs() -> None:
    site = small_site(Rules(queries=3, runs=2, floor=1))
    query = evaluate(site)
    refusals = [send(site, query, (0, i)).refusal for i in range(5)]
    assert refusals[:3] == ["", "", ""]
    assert all("3 queries, which is the site's budget" in r for r in refusals[3:])
    assert not send(site, query, run="second").refusal
    assert "answers 2 runs" in send(site, query, run="third").refusal


def test_layouts_of_cells() -> None:
    site = small_site(Rules(layouts=2, floor=1))
    query = evaluate(site)
    asked = [query, with_cells(query, 1), query, with_cells(query, 1)]
    for number, one in enumerate(asked):
        assert not send(site, one, (0, number)).refusal
    refusal = send(site, with_cells(query, 2), (0, 9)).refusal
    assert "the site allows 2 in a run" in refusal
    assert not send(site, with_cells(query, 2), (0, 1), run="another").refusal


@pytest.mark.parametrize(
    "change",
    [
        lambda q: with_scale(q, 2.0),
        lambda q: replace(
            q,
            task=replace(q.task, model=replace(q.task.model, intercept=False)),
            w=q.w[:-1],
        ),
    ],
    ids=["scaling", "model"],
)
def test_scaling_and_model_are_fixed(change: Callable[[Evaluate], Evaluate]) -> None:
    site = small_site()
    query = evaluate(site)
    assert not send(site, query, (0, 1)).refusal
    refusal = send(site, change(query), (0, 2)).refusal
    assert refusal == "the input scaling or model changed within the run"
    ridge = replace(query.task, model=replace(query.task.model, l2=0.5))
    assert not send(site, replace(query, task=ridge), (0, 3)).refusal


def test_norm_ball() -> None:
    site = small_site(Rules(radius=2.0, floor=1))
    p = problem_of(site).task.model.n_parameters
    w = np.zeros(p)
    w[0] = 2.0
    assert not send(site, evaluate(site, w=w), (0, 1)).refusal
    refusal = send(site, evaluate(site, w=w * 1.001), (0, 2)).refusal
    assert "norm ball of 2" in refusal


def test_steep_inputs_do_not_evade_the_ball() -> None:
    site = small_site()
    refusal = send(site, with_scale(evaluate(site), 1e-5)).refusal
    assert "below a thousandth of its spread" in refusal


def test_a_mean_far_away_is_no_free_intercept() -> None:
    """10⁴ spreads away, a column is an intercept that costs no norm."""
    site = small_site()
    query = evaluate(site)
    model = query.task.model
    for spreads, refused in ((9.0, False), (11.0, True), (1e4, True)):
        mean = model.inputs.mean + spreads * site.silo.rows().spread
        moved = Inputs(mean, model.inputs.scale)
        task = replace(query.task, model=model.bind(site.schema, moved))
        refusal = send(site, replace(query, task=task), run=str(spreads)).refusal
        assert ("spreads from what it is at this site" in refusal) == refused


def test_what_missing_values_are_filled_with_does_not_evade_it() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(5, 1, 400), "sex": rng.choice(["f", "m"], 400)}
    )
    frame["sick"] = (frame["x"] + rng.normal(size=400) > 5).astype(int)
    frame.loc[::10, "x"] = np.nan
    people = pffl.Federation.from_table(
        frame, label="sick", group="sex", missing="indicator", test_fraction=0.0
    )
    site = Site(people.silos[0], people.schema, OPEN)
    model = evaluate(site).task.model
    for far, refused in ((0.0, False), (10.0, False), (1e5, True)):
        inputs = replace(model.inputs, fill=model.inputs.fill + far)
        moved = replace(model, inputs=inputs)
        query = evaluate(site)
        query = replace(query, task=replace(query.task, model=moved))
        refusal = send(site, query, run=str(far)).refusal
        assert ("below a thousandth of its spread" in refusal) == refused


def test_raw_inputs_of_large_spread_do_not_evade_it_either() -> None:
    site = small_site()
    rows = site.silo.rows("train")
    rows.X[:] *= 1e4
    problem = problem_of(site, model=pffl.LogisticRegression(standardize=False))
    w = np.zeros(problem.task.model.n_parameters)
    assert (
        "needs scaled inputs" in send(site, Evaluate(problem.task, w, "train")).refusal
    )


def test_a_site_that_is_steeper_than_the_others_counts_in_its_own_units() -> None:
    """Scales of a thousandth would make a ball of 20 one of 20,000."""
    site = small_site(Rules())
    w = np.array([1.4, 0.0, 0.0, 0.0])
    assert not send(site, with_scale(evaluate(site, w=w), 0.1)).refusal
    steep = with_scale(evaluate(site, w=w), 0.01)
    assert "norm ball of 15" in send(site, steep, (0, 2)).refusal


@pytest.mark.parametrize(
    "steps", [{"step_sizes": np.array([-1.0])}, {"ridge": 1e6}, {"proximal": 1e6}]
)
def test_local_steps_do_not_lead_out_of_the_ball(steps: dict[str, Any]) -> None:
    """With a ridge of 10⁶, w is 10⁵ times as long after one step."""
    site = small_site(Rules())
    query = train(evaluate(site, w=np.array([1.0, 0.0, 0.0, 0.0])))
    assert not send(site, query).refusal
    refusal = send(site, replace(query, **steps), (0, 2)).refusal
    assert "out of the norm ball" in refusal


def test_nor_do_those_that_depend_on_the_rows() -> None:
    """A first step of length 10⁴ leads far out; a last one leads nowhere."""
    site = small_site(Rules())
    w = np.array([1.0, 0.0, 0.0, 0.0])
    for number, (sizes, good) in enumerate(
        (([1e4], True), ([0.1, 1e4], True), ([1e4, 0.1], False), ([0.1] * 5, True))
    ):
        steps = {"step_sizes": np.array(sizes), "ridge": 0.0}
        refusal = send(site, train(evaluate(site, w=w), **steps), (0, number)).refusal
        assert ("out of the norm ball" in refusal) != good, refusal


def test_a_correction_does_not_lead_out_of_the_ball() -> None:
    """A gradient of one's own choice moves w anywhere before the second step."""
    site = small_site(Rules())
    w, chosen = np.array([1.0, 0.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0, 0.0])
    plain = train(evaluate(site, w=w))
    past = {"anchor": w, "anchor_weights": plain.cell_weights}
    sizes = np.full(2, 0.5)
    near = replace(plain, **past, anchor_gradient=9 * chosen, step_sizes=sizes)
    assert not send(site, near).refusal
    for turned in (-1.0, 1.0):
        far = replace(near, anchor_gradient=turned * 1e4 * chosen)
        assert "norm ball of 15" in send(site, far, (0, 2)).refusal


def test_sharp_scores_do_not_single_out_a_row() -> None:
    """With w = e_1 − x_1 of a row and s large, only that row has a slope."""
    site = small_site(OPEN)
    task = problem_of(site).task
    rows = task.model.inputs.apply(site.silo.rows("train").X)
    w = np.array([1.0, 0.0, 0.0, -rows[60, 0]])
    site.rules = Rules(floor=1, radius=1e12)
    found = ask(site, Expand(task, w, sharpness=1e9)).score_gradients[:, 0]
    (read,) = found[found[:, -1] != 0]
    assert read[:-1] / read[-1] == pytest.approx(rows[60], rel=1e-9)
    site.rules = Rules()
    sharp = Expand(task, w, sharpness=1e9)
    assert "norm ball of 15" in send(site, sharp, (0, 2)).refusal
    usual = Expand(task, w, sharpness=FCFL.sharpness)
    assert not send(site, usual, (0, 3)).refusal


def test_a_witness_does_not_single_out_a_row_either() -> None:
    """Slopes that are moved far are cut to 0 or 1: by which side a row stands on."""
    site = small_site(Rules())
    task = problem_of(site).task
    w, weights = np.zeros(4), np.full(len(task.cells), 0.1)
    far = Witness(task, w, 0.0, weights, np.array([1e9, 0.0, 0.0, 1.0]))
    assert "norm ball of 15" in send(site, far, (0, 1)).refusal
    usual = replace(far, direction=np.array([1.0, 0.0, 0.0, 1.0]))
    assert not send(site, usual, (0, 2)).refusal


def rows_read(site: Site, batch_size: int) -> int:
    """How many of 60 steps on a batch, with weight on one cell, are one row's."""
    base = evaluate(site)
    rows = site.silo.rows("train")
    inputs = base.task.model.inputs.apply(rows.X)
    weights = np.eye(len(base.task.cells))[0]
    read = 0
    for turn in range(60):
        asked = {"risk_weight": 0.0, "cell_weights": weights, "round": turn}
        answer = send(site, train(base, batch_size=batch_size, **asked), (0, turn))
        if answer.refusal:
            continue
        update = answer.bodies[0].arrays["update"]
        if update[-1]:
            read += np.isclose(inputs, update[:-1] / update[-1]).all(axis=1).any()
    return read


def test_batches_are_refused_unless_the_site_allows_them() -> None:
    """A cell with one row in a batch sends that row, whatever the batch's size."""
    assert rows_read(small_site(replace(OPEN, floor=10)), 10) > 0
    site = small_site(Rules())
    assert rows_read(site, 10) == 0
    refusal = send(site, train(evaluate(site), batch_size=10)).refusal
    assert "'batches' in site.toml" in refusal
    assert not send(site, train(evaluate(site), batch_size=160)).refusal  # all rows


def test_batches_below_the_floor_and_other_batches() -> None:
    """A batch of one row, or of all but one, would send that row's gradient."""
    site = small_site(Rules(floor=10, batches=True))
    base = evaluate(site)
    for size in (1, 159):
        assert "site's floor is 10" in send(site, train(base, batch_size=size)).refusal
    assert not send(site, train(base, batch_size=20), (0, 2)).refusal
    for other in ({"batch_size": 21}, {"batch_size": 20, "seed": 9}):
        refusal = send(site, train(base, **other), (0, 3)).refusal
        assert refusal == "the batch size or its seed changed within the run"
    assert not send(site, train(base, batch_size=20, round=3), (0, 4)).refusal


def test_loss_bounds_are_few() -> None:
    site = small_site()
    bounds = [3.0, 5.0, 3.0, np.inf]
    for number, bound in enumerate(bounds):
        assert not send(site, evaluate(site, loss_bound=bound), (0, number)).refusal
    tried = evaluate(site, trials=np.array([3.0, 5.0, 8.0, 12.0, 20.0, 7.0, 6.0]))
    assert not send(site, tried, (0, 8)).refusal
    assert not send(site, evaluate(site, loss_bound=4.0), (0, 9)).refusal
    assert "loss bounds" in send(site, evaluate(site, loss_bound=9.0), (0, 10)).refusal


def test_bets_that_would_count_single_rows_are_refused() -> None:
    """With a bet of nearly 1 a sum says how many rows are wholly wrong."""
    site = small_site()
    header, arrays = evaluate(site, loss_bound=3.0).plain(0)
    z = len(problem_of(site).cells)
    read_query(header, {**arrays, "bets": np.full((z, 9), 0.5)}, site.schema)
    for bets in (np.full((z, 1), 0.9999), np.full((z, 17), 0.5), np.zeros((z, 1))):
        with pytest.raises((UsageError, Malformed)):
            read_query(header, {**arrays, "bets": bets}, site.schema)
    with raises(Malformed, "bad-message", "trials", "9"):
        read_query(header, {**arrays, "trials": 3.0 + np.arange(9)}, site.schema)


def test_refused_queries_cost_nothing() -> None:
    site = small_site(Rules(queries=2, radius=1.0, floor=1))
    far = evaluate(site, w=np.full(4, 9.0))
    for number in range(5):
        assert send(site, far, (0, number)).refusal
    assert not send(site, evaluate(site), (0, 0)).refusal
    assert not send(site, evaluate(site), (0, 1)).refusal


def test_the_guard_remembers_over_processes(tmp_path: Path) -> None:
    rules = Rules(queries=2, floor=1)
    first = small_site(rules, tmp_path)
    query = evaluate(first)
    assert not send(first, query, (0, 1)).refusal
    second = small_site(rules, tmp_path)
    assert "answered twice" in send(second, query, (0, 1)).refusal
    assert not send(second, query, (0, 2)).refusal
    third = small_site(rules, tmp_path)
    assert "budget" in send(third, query, (0, 3)).refusal
    assert stat.S_IMODE((tmp_path / "guard.json").stat().st_mode) == 0o600


def test_a_damaged_memory_answers_nothing(tmp_path: Path) -> None:
    site = small_site(OPEN, tmp_path)
    assert not send(site, census(site)).refusal
    (tmp_path / "guard.json").write_text("{}")
    assert send(site, census(site), (0, 2)).refusal == "ArtefactError at the site"


def test_no_figure_of_the_rows_is_remembered_or_logged(tmp_path: Path) -> None:
    site = small_site(Rules(floor=10), tmp_path, f1=7, f0=23)
    query = evaluate(site)
    send(site, query)
    send(site, query)
    send(site, census(site), (0, 2), schema="0" * 64)
    kept = json.loads((tmp_path / "guard.json").read_text())["runs"]["run"]
    assert set(kept) == {"last", "queries", "layouts", "kept", "caps"}
    assert set(kept["kept"]) == {"the input scaling or model"}
    lines = Log(tmp_path).read()
    assert [line.queries for line in lines] == [
        ("evaluate",),
        ("evaluate",),
        ("census",),
    ]
    assert [bool(line.refused) for line in lines] == [False, True, True]
    assert set(asdict(lines[0])) == {
        *("time", "run", "number", "step", "queries", "size", "refused", "left"),
    }
    assert stat.S_IMODE((tmp_path / "answers.jsonl").stat().st_mode) == 0o600


def _ask_many(folder: Path, contents: list[bytes], answered: Any) -> None:
    from pffl.wire import read_answer

    for content in contents:
        site = small_site(Rules(queries=10, floor=1), folder)
        if not read_answer(site.answer(content)).refusal:
            with answered.get_lock():
                answered.value += 1


def test_processes_at_once_answer_no_number_twice(tmp_path: Path) -> None:
    site = small_site()
    query = evaluate(site)
    contents = [message(site, query, (0, i)) for i in range(1, 9)]
    context = multiprocessing.get_context("spawn")
    answered = context.Value("i", 0)
    workers = [
        context.Process(target=_ask_many, args=(tmp_path, contents, answered))
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert 1 <= answered.value <= 8
    kept = json.loads((tmp_path / "guard.json").read_text())["runs"]["run"]
    assert kept["queries"] == answered.value
    assert kept["last"] == [0, 8]
