"""Real processes: a SuperLink and three nodes, with TLS and registered keys.

During the first run another account of the machine tries to answer for the sites, and
the app that the server sends with its queries is a foreign one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from pffl import runs
from pffl.config import load
from pffl.engines import Local
from pffl.queries import Census
from pffl.site import Agreement

if sys.platform != "linux" or find_spec("flwr") is None:
    pytest.skip("needs Flower, and /proc", allow_module_level=True)

from tests.flower.processes import Net, descendants, entries, running, wait_for
from tests.flower.runs import CBGL, PFFL, local, run_file

INTRUDER = """
import json, os, sys, time
from pathlib import Path
import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.interceptors import (
    RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
)
from flwr.supercore.runtime import RuntimeHttpClient

secret, *ports = sys.argv[1:]
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
named = RuntimeVersionHttpInterceptor(component_name="SuperExec")
guess = SuperExecAuthHttpInterceptor(
    master_secret=b"x" * 32, protected_methods={"/flwr.proto.Runtime/AcquireTask"}
)
clients = [
    RuntimeHttpClient.from_server_address(f"127.0.0.1:{port}", True, None, interceptors)
    for port in ports for interceptors in ([named], [named, guess])
]
found = {"tasks": 0, "tokens": 0, "answers": {}}
try:
    found["read"] = len(Path(secret).read_bytes())
except OSError as error:
    found["read"] = type(error).__name__
parent = os.getppid()
while os.getppid() == parent:
    for client in clients:
        request = AcquireTaskRequest(supported_task_types=["flwr-clientapp"])
        try:
            task = client.AcquireTask(request)
            found["tasks"] += bool(task.token)
            said = "200"
        except httpx.HTTPStatusError as error:
            said = str(error.response.status_code)
        except httpx.HTTPError as error:
            said = type(error).__name__
        found["answers"][said] = found["answers"].get(said, 0) + 1
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if path.parent.name == str(os.getpid()):
            continue
        try:
            line = path.read_text()
        except OSError:
            continue
        found["tokens"] += "--token" in line and any(port in line for port in ports)
    print(json.dumps(found), flush=True)
    time.sleep(1.0)
"""
FOREIGN = """
from pathlib import Path
Path({marker!r}).touch()
app = None
raise SystemExit("foreign code")
"""


@contextmanager
def intruder(net: Net, log: Path) -> Iterator[None]:
    """Another account of the sites' machine, which asks their nodes for work."""
    secret = next(iter(net.sites.values())) / "executor_secret"
    command = [sys.executable, "-c", INTRUDER, secret, *map(str, net.ports.values())]
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=net.environment, stdout=out)
    net.started.append(process)
    try:
        yield
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    folder = tmp_path_factory.mktemp("net")
    text = run_file(folder, secure_sum=True)
    with running(folder / "net", text, limited=True) as net:
        yield net


def run(net, name, app):
    """Run an app as a user does; it must come to what the same run does here."""
    path, out = net.folder / f"{name}.toml", net.folder / f"{name}-out"
    done = net.pffl(
        "run", str(path), "--app", str(app), "--out", str(out), "--no-extras"
    )
    here = local(path)
    assert done.returncode == (0 if here.status == "met" else 4), (
        done.stdout + done.stderr + net.logs()
    )
    found = runs.load(out, require_verified=True)
    np.testing.assert_allclose(found.w, here.w, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.multipliers, here.multipliers, atol=1e-9)
    assert found.result["status"] == here.status
    assert found.result["rounds"] == here.rounds
    assert found.result["gap"] == pytest.approx(here.gap, abs=1e-10)

    live = [line for line in done.stderr.splitlines() if line.startswith("round ")]
    assert len(live) == len(here.rows)

    record = entries(out)
    assert all(e["missing"] == e["refused"] == [] for e in record if "missing" in e)

    federation = load(path).build().federation
    census = Local(federation).ask(Census(federation.schema))
    card = found.result["data"]["card"]
    assert card is not None
    assert found.result["data"]["schema"] == federation.schema.hash
    assert found.result["train"]["rows"] == census.rows.sum()


def test_everything_on(net):
    """Masks, signatures and sites that follow; foreign code and a foreign account."""
    assert Agreement.read(net.app / "federation.json").secure_sum
    marker, log = net.folder / "foreign", net.folder / "intruder.txt"
    (net.app / "client_app.py").write_text(FOREIGN.format(marker=str(marker)))
    with intruder(net, log):
        run(net, "deployment", net.app)
    assert not marker.exists(), "a site ran code of the server"
    got = json.loads(log.read_text().split("\n")[-2])
    assert (got["tasks"], got["tokens"]) == (0, 0)
    assert got["read"] == "PermissionError" or os.geteuid() != 0
    assert set(got["answers"]) <= {"401", "ConnectError"}  # not there yet
    assert got["answers"]["401"] >= 6


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    with running(folder / "net", run_file(folder)) as net:
        yield net


@pytest.mark.slow
def test_without_masks(plain):
    text = run_file(plain.folder, method=PFFL, constraint=CBGL)
    app, _ = plain.write(text, "cbgl")
    run(plain, "cbgl", app)


def test_a_server_that_is_stopped_ends_and_leaves_nobody_behind(net):
    """The last one: nodes are waiting for messages there."""
    link = net.processes["link"]
    below = descendants(link.pid)
    assert below, "the process that runs ServerApps"
    link.terminate()
    link.wait(60)
    assert "Traceback" not in net.log("link")

    def gone():
        return not any(Path(f"/proc/{pid}").exists() for pid in below)

    wait_for(gone, "the end of what the server had started", 60)
