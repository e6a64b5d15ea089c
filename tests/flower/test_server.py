"""What the ServerApp does over a Grid in this process: run directory, resume."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pffl
from pffl import config, runs
from pffl.errors import ArtefactError, FederationError, UsageError
from pffl.site import Agreement
from tests.helpers import make_federation
from tests.raising import raises
from tests.site.secure import agree

RUN_FILE = """
[data]
federation = "federation.json"

[constraint]
kind = "bgl"
bound = {bound}

[method]
{method}

[run]
engine = "flower"
seed = 7
baseline = false

[policy]
seconds = 3.0
join_seconds = 1.0
retries = 0
"""
EXACT = 'kind = "exact"'
PFFL = 'kind = "pffl"\ndual_rounds = 3\nrounds_per_dual = 2'


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global Context, RecordDict, GridTransport, server, server_app
    global Dying, Killed, MemoryGrid, grid_of
    pytest.importorskip("flwr")
    from flwr.app import Context, RecordDict

    from pffl.flower import GridTransport, server_app
    from tests.flower.memory import Dying, Killed, MemoryGrid, grid_of
    from tests.inside import server


@pytest.fixture
def federation():
    return make_federation(sizes=(200, 150, 250), test=60)


@pytest.fixture
def folder(tmp_path, federation):
    place = tmp_path / "app"
    place.mkdir()
    (place / "federation.json").write_text(Agreement.of(federation).text())
    write(place)
    return place


def write(folder, bound=0.6, method=EXACT):
    (folder / "run.toml").write_text(RUN_FILE.format(bound=bound, method=method))


def run(grid, folder, out, **given):
    transport = GridTransport(grid, pause=0.001)
    return server.run(transport, folder, out, **{"extras": False, **given})


def entries(out):
    text = (out / "record.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def local(federation, folder):
    job = config.load(folder / "run.toml")
    return pffl.solve(
        federation,
        job.constraint,
        model=job.model,
        method=job.method,
        options=job.options,
        seed=7,
    )


def test_leaves_the_run_directory_of_a_local_run(tmp_path, federation, folder):
    out = tmp_path / "out"
    run(grid_of(federation, tmp_path), folder, out, extras=True)
    found, here = runs.load(out), local(federation, folder)
    assert found.verified
    np.testing.assert_allclose(found.w, here.w, rtol=0, atol=1e-12)
    assert found.result["status"] == here.status
    names = {path.name for path in out.iterdir()}
    assert names >= {
        "result.json",
        "model.safetensors",
        "history.csv",
        "run.toml",
        "certificate.json",
        "report.html",
        "record.jsonl",
        "session.json",
        "manifest.json",
    }
    assert not any("checkpoint" in name for name in names)


@pytest.mark.parametrize(("bound", "code"), [(0.7, 0), (0.3, 4)])
def test_the_record_ends_with_the_exit_code(tmp_path, federation, folder, bound, code):
    write(folder, bound)
    run(grid_of(federation, tmp_path), folder, tmp_path / "out")
    last = entries(tmp_path / "out")[-1]
    assert (last["event"], last["code"]) == ("ended", code)
    assert last["message"] == local(federation, folder).message


@pytest.mark.parametrize("method", [EXACT, PFFL], ids=["exact", "pffl"])
@pytest.mark.parametrize("message", [4, 5, 8])
def test_fault_53_a_server_killed_mid_round_goes_on_to_the_same_model(
    tmp_path, federation, folder, method, message
):
    write(folder, method=method)
    out, state = tmp_path / "out", tmp_path / "state"
    grid = grid_of(federation, state, grid=Dying)
    grid.count = message
    with pytest.raises(Killed):
        run(grid, folder, out)
    assert entries(out)[-1]["message"] == "Killed"
    again = run(grid_of(federation, state), folder, out, resume=True)
    here = local(federation, folder)
    np.testing.assert_allclose(again.w, here.w, rtol=0, atol=1e-12)
    assert (again.status, again.rounds) == (here.status, here.rounds)
    assert runs.load(out).verified
    session = json.loads((out / "session.json").read_text())
    assert session["session"] == 1
    refused = [pair for e in entries(out) for pair in e.get("refused", [])]
    assert refused == []


def test_killed_while_it_concludes(tmp_path, federation, folder):
    write(folder, bound=0.7)
    out, state = tmp_path / "out", tmp_path / "state"
    whole = grid_of(federation, tmp_path / "whole")
    run(whole, folder, tmp_path / "never killed")
    asked = len(whole.kinds) - whole.kinds.count("query.census")
    grid = grid_of(federation, state, grid=Dying)
    grid.count = asked - 1  # the second site's last message
    with pytest.raises(Killed):
        run(grid, folder, out)
    later = grid_of(federation, state)
    again = run(later, folder, out, resume=True)
    np.testing.assert_allclose(again.w, local(federation, folder).w, atol=1e-12)
    assert set(later.kinds) == {"query.census", "evaluate"}
    assert later.kinds.count("evaluate") == 3  # training is not repeated


def test_a_missing_site_ends_the_run_with_its_name_and_a_checkpoint(
    tmp_path, federation, folder
):
    class OneLeaves(MemoryGrid):
        def deliver(self, message):
            if self.kinds.count("query.curvature") == 4:
                gone = [n for n, (_, c) in self.nodes.items() if c["silo"] == "site 1"]
                for node in gone:
                    del self.nodes[node]
            return super().deliver(message)

    out, state = tmp_path / "out", tmp_path / "state"
    with raises(FederationError, "sites-missing", "site 1"):
        run(grid_of(federation, state, grid=OneLeaves), folder, out)
    last = entries(out)[-1]
    assert last["code"] == 5
    assert "'site 1'" in last["message"]
    assert (out / "checkpoint.log").exists()
    again = run(grid_of(federation, state), folder, out, resume=True)
    np.testing.assert_allclose(again.w, local(federation, folder).w, atol=1e-12)


def test_a_stopped_run_is_not_started_anew_by_mistake(tmp_path, federation, folder):
    out, state = tmp_path / "out", tmp_path / "state"
    grid = grid_of(federation, state, grid=Dying)
    grid.count = 5
    with pytest.raises(Killed):
        run(grid, folder, out)
    with raises(ArtefactError, "stopped-run"):
        run(grid_of(federation, state), folder, out)


def test_the_app_takes_its_settings_from_the_run(tmp_path, federation, folder):
    grid = grid_of(federation, tmp_path)
    out = tmp_path / "out"
    settings = {"out": str(out), "extras": False, "seconds": 2.0}
    context = Context(1, 1, {}, RecordDict(), settings)
    server_app(folder)(grid, context)
    assert config.load(out / "run.toml").policy.seconds == 2.0
    assert (out / "certificate.json").exists()
    assert not (out / "report.html").exists()


def test_the_app_needs_a_directory(federation, tmp_path, folder):
    context = Context(1, 1, {}, RecordDict(), {"out": ""})
    with raises(pffl.PFFLError, "needs-directory"):
        server_app(folder)(grid_of(federation, tmp_path), context)


def test_the_record_of_a_finished_run_is_not_written_over(folder, federation, tmp_path):
    out = tmp_path / "out"
    grid = GridTransport(grid_of(federation, tmp_path / "sites"))
    server.run(grid, folder, out, extras=False)
    with raises(UsageError, "finished-run"):  # fault 88
        server.run(grid, folder, out, extras=False)
    assert runs.load(out).verified


@pytest.mark.parametrize(
    ("change", "section"),
    [
        ({"constraint": {"kind": "bgl", "bound": 0.61}}, "constraint"),
        ({"model": {"l2": 0.5}}, "model"),
        ({"method": {"kind": "first-order"}}, "method"),
        ({"run": {"seed": 8, "baseline": False}}, "run"),
    ],
)
def test_another_run_than_sites_agreed_on_is_refused_before_anything_is_asked(
    tmp_path, federation, folder, change, section
):
    agreed = {
        "constraint": {"kind": "bgl", "bound": 0.6},
        "method": {"kind": "exact"},
        "run": {"seed": 7, "baseline": False},
    }
    secure = agree(federation, run={**agreed, **change})
    (folder / "federation.json").write_text(secure.text())
    grid = grid_of(federation, tmp_path / "sites")
    with raises(UsageError, "other-run", f"[{section}]"):
        run(grid, folder, tmp_path / "out")
    assert grid.kinds == []
