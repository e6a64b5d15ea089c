"""Real processes: a SuperLink and three SuperNodes, with TLS and registered keys."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pffl import runs
from pffl.engines import Local
from pffl.questions import Census
from pffl.spec import load

pytest.importorskip("flwr")
if sys.platform != "linux":
    pytest.skip("processes are looked after by /proc", allow_module_level=True)

from tests.flower.processes import entries, running
from tests.flower.runs import BGL, CBGL, EXACT, PFFL, local, run_file

SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    folder = tmp_path_factory.mktemp("net")
    with running(folder / "net", run_file(folder)) as net:
        yield net


@pytest.mark.parametrize(
    ("name", "method", "constraint"),
    [
        ("exact-bgl", EXACT, BGL),
        pytest.param("exact-cbgl", EXACT, CBGL, marks=SLOW),
        pytest.param("pffl-bgl", PFFL, BGL, marks=SLOW),
        pytest.param("pffl-cbgl", PFFL, CBGL, marks=SLOW),
    ],
)
def test_deployed_run_is_the_local_run(net, name, method, constraint):
    text = run_file(net.folder, method=method, constraint=constraint)
    app, _ = net.write(text, name)
    path, out = net.folder / f"{name}.toml", net.folder / f"{name}-out"
    done = net.pffl(
        "run", str(path), "--app", str(app), "--out", str(out), "--no-extras"
    )
    here = local(path)
    assert done.returncode == (0 if here.status == "met" else 4), (
        done.stdout + done.stderr + net.logs()
    )
    found = runs.load(out, require_verified=True)
    np.testing.assert_allclose(found.w, here.w, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.multipliers, here.multipliers, atol=1e-10)
    assert found.result["status"] == here.status
    assert found.result["rounds"] == here.rounds
    assert found.result["gap"] == pytest.approx(here.gap, abs=1e-10)

    live = [line for line in done.stderr.splitlines() if line.startswith("round ")]
    assert len(live) == len(here.rows)
    assert all("3 of 3 silos" in line and "worst" in line for line in live)
    assert here.message.split(":")[0] in " ".join(done.stdout.split())

    record = entries(out)
    assert all(e["missing"] == e["refused"] == [] for e in record if "missing" in e)

    federation = load(path).build().federation
    census = Local(federation).ask(Census(federation.schema))
    card = found.result["data"]["card"]
    assert card is not None
    assert found.result["data"]["schema"] == federation.schema.hash
    assert found.result["train"]["rows"] == census.rows.sum()
