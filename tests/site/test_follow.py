"""A site follows the agreed run: a server cannot choose what it asks."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.callbacks import Callback
from pffl.errors import UsageError
from pffl.preparation import Options
from pffl.questions import Census, ModelQuestion, Question, Total
from pffl.site import Agreement, Rules
from pffl.site.follow import check_packages
from tests.helpers import make_federation
from tests.site.following import run
from tests.site.secure import Server, agree, sites_of
from tests.site.sites import OPEN

FEDERATION = make_federation(3, sizes=(90, 100, 80), test=30)
NAMES = FEDERATION.silo_names
EXACT = {"kind": "exact"}
PFFL = {"kind": "pffl", "dual_rounds": 1, "rounds_per_dual": 2}


def sections(method: Any = None, **run: Any) -> dict[str, Any]:
    return {
        "model": {"l2": 0.01},
        "constraint": {"kind": "bgl", "bound": 0.64},
        "method": method or EXACT,
        "run": {"seed": 7, "baseline": False, "least": False, **run},
    }


def serve(agreed: Agreement, folder: Path | None = None, rules: Rules = OPEN) -> Server:
    """Sites of which the first follows the run: the others would do the same."""
    sites = sites_of(FEDERATION, agreed, folder=folder, rules=rules)
    for name in NAMES[1:]:
        sites[name]._follower = None
    return Server(sites, FEDERATION.schema.hash)


def agreement(method: Any = None, *, floor: int = 2, **run: Any) -> Agreement:
    return agree(FEDERATION, run=sections(method, **run), floor=floor)


class Stop(Callback):
    """Ends the training after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def after_round(self, problem: Any, row: Any) -> bool:
        self.left -= 1
        return self.left <= 0


@pytest.mark.parametrize(("method", "rounds"), [(EXACT, 2), (PFFL, 1)])
def test_a_server_may_end_the_training_early(method: Any, rounds: int) -> None:
    agreed = agreement(method)
    server = serve(agreed)
    found = run(server, agreed, callbacks=[Stop(rounds)])
    training: Any = found.evidence.training
    assert training.rounds <= rounds + 1


def at(question: Question[Any], **changes: Any) -> Question[Any]:
    """A question with its inputs moved or scaled."""
    assert question.task is not None
    model = question.task.model
    moved = model.bind(FEDERATION.schema, replace(model.inputs, **changes))
    return replace(question, task=replace(question.task, model=moved))


def lies(asked: list[Question[Any]]) -> dict[str, list[Question[Any]]]:
    """Other questions in the place of those of a step, by what is said of them."""
    first, *rest = asked
    more = [*asked, Census(FEDERATION.schema, "train")]
    found = {f"where it asks {first.kind}": more}
    if isinstance(first, ModelQuestion):
        w, inputs = first.w, first.task.model.inputs
        far = w + 2e-4 * max(1.0, np.abs(w).max()) * np.eye(len(w))[0]
        found["'w' of question 1"] = [replace(first, w=far), *rest]
        mean, scale = inputs.mean.copy(), inputs.scale.copy()
        mean[0] += 1e-6 * scale[0]
        scale[1] *= 1 - 1e-6
        found["'input_mean' of question 1"] = [at(first, mean=mean), *rest]
        found["'input_scale' of question 1"] = [at(first, scale=scale), *rest]
        cells, pool = first.task.cells, first.task.pool
        assert pool is not None
        others = {
            "membership": {"cells": replace(cells, membership=~cells.membership)},
            "pool": {"pool": replace(pool, mass=pool.mass + 1)},
        }
        for name, change in others.items():
            task = replace(first.task, **change)
            found[f"'{name}' of question 1"] = [replace(first, task=task), *rest]
    if first.kind == "train":
        found["'seed' of question 1"] = [replace(first, seed=first.seed + 1), *rest]
        for name in ("step_sizes", "cell_weights"):
            other = replace(first, **{name: 1.0002 * getattr(first, name)})
            found[f"'{name}' of question 1"] = [other, *rest]
    if first.kind == "evaluate":
        found["'split' of question 1"] = [replace(first, split="validation"), *rest]
    return found


@pytest.mark.parametrize("method", [EXACT, PFFL])
def test_the_agreed_run_is_answered_to_its_end_and_nothing_else(method: Any) -> None:
    agreed = agreement(method)
    server = serve(agreed)
    told: set[tuple[str, str]] = set()

    def ask(asked: list[Question[Any]]) -> list[Total]:
        for said, lie in lies(asked).items():
            if (said, asked[0].kind) in told:
                continue
            refused = server.send(NAMES[0], server.request(lie)).refusal
            assert said in refused, (said, refused)
            told.add((said, asked[0].kind))
        return server.ask(asked)

    found = run(server, agreed, ask=ask)
    kinds = {"train"} if method is PFFL else {"curvature", "evaluate"}
    for kind in kinds:
        assert ("'w' of question 1", kind) in told
        assert ("'input_mean' of question 1", kind) in told
    over = server.request([Census(FEDERATION.schema, "train")])
    assert "is over, and asks nothing more" in server.send(NAMES[0], over).refusal
    if method is EXACT:
        alone = pffl.solve(
            FEDERATION,
            pffl.BoundedGroupLoss(0.64),
            model=pffl.LogisticRegression(l2=0.01),
            method=pffl.Exact(),
            options=Options(baseline=False, least=False),
            seed=7,
        )
        np.testing.assert_allclose(found.w, alone.w, atol=1e-6)


def test_rounding_by_another_processor_is_allowed() -> None:
    agreed = agreement()
    server, draw = serve(agreed), np.random.default_rng(0)

    def ask(asked: list[Question[Any]]) -> list[Total]:
        near = [
            replace(q, w=q.w + 2e-6 * draw.normal(size=len(q.w)))
            if isinstance(q, ModelQuestion) and server.step < 5
            else q
            for q in asked
        ]
        return server.ask(near)

    run(server, agreed, ask=ask)


@pytest.mark.parametrize("method", [EXACT, {"kind": "first-order"}, PFFL])
def test_a_site_goes_on_from_the_w_that_was_sent(method: Any) -> None:
    """Totals are of that w; and what processors round does not add up over steps."""
    agreed = agreement(method)
    server, draw, moved = serve(agreed), np.random.default_rng(0), [0]

    def ask(asked: list[Question[Any]]) -> list[Total]:
        for q in asked:  # the server's own state: it goes on from there, too
            if isinstance(q, ModelQuestion) and q.w.any() and q.kind != "evaluate":
                q.w[:] += 2e-5 * draw.normal(size=len(q.w))
                moved[0] += 1
        return server.ask(asked)

    run(server, agreed, ask=ask)
    assert moved[0] >= 3


@pytest.mark.parametrize(
    "other",
    [
        {"constraint": {"kind": "bgl", "bound": 0.5}},
        {"model": {"l2": 0.02}},
        {"method": {"kind": "first-order"}},
        {"run": {"seed": 8}},
    ],
)
def test_another_run_than_the_agreed_one_is_refused(other: Any) -> None:
    agreed = agreement(PFFL if "run" in other else EXACT)
    server = serve(agreed)
    with pytest.raises(AssertionError, match="not what the agreed run asks next"):
        run(server, agreed, sections={**agreed.run, **other})


def test_a_process_per_message_follows_too_and_small_groups_are_left_out(
    tmp_path: Path,
) -> None:
    agreed = agreement(PFFL, floor=20)
    kept, fresh = serve(agreed), serve(agreed, tmp_path)

    def ask(asked: list[Question[Any]]) -> list[Total]:
        fresh.sites = serve(agreed, tmp_path).sites
        return fresh.ask(asked)

    first, again = run(kept, agreed), run(fresh, agreed, ask=ask)
    assert np.array_equal(first.w, again.w)
    assert [content for _, content in kept.log] == [c for _, c in fresh.log]
    counted = first.problem.silo_counts
    assert 0 < counted.sum() < sum(len(silo) for silo in FEDERATION.silos)
    assert (counted == 0).any()


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"replay_seconds": 0}, "'replay_seconds' in site.toml"),
        ({"replay_memory": 100}, "'replay_memory' in site.toml"),
    ],
)
def test_a_replay_has_limits(rules: Any, said: str) -> None:
    agreed = agreement()
    server = serve(agreed, rules=replace(OPEN, **rules))
    with pytest.raises(AssertionError, match=said):
        run(server, agreed)


def test_an_agreed_run_that_cannot_be_followed_is_refused_at_once() -> None:
    for wrong, said in (
        ({"run": {}}, "no seed"),
        ({"method": {"kind": "none"}}, "no method 'none'"),
    ):
        agreed = agree(FEDERATION, run={**sections(), **wrong})
        with pytest.raises(UsageError, match=said):
            serve(agreed)
    check_packages({"numpy": np.__version__})
    for packages in ({"numpy": "0.1"}, {"no-such-package": "1"}):
        with pytest.raises(UsageError, match="and this site has"):
            check_packages(packages)


def test_a_site_loads_no_code_of_the_server() -> None:
    code = "import json, sys, pffl.site.follow; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout)
    assert "pffl.solving" in loaded
    others = ("cli", "flower", "engines.remote", "reports", "runs", "datasets", "spec")
    unwanted = tuple(f"pffl.{name}" for name in (*others, "study", "running"))
    assert [name for name in loaded if name.startswith(unwanted)] == []
    assert not {"flwr", "torch", "matplotlib", "pandas", "typer"} & set(loaded)
