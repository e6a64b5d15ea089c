"""Faults 53–56 on real Flower processes, killed by id and turned away at the door."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from pffl import runs
from tests.inside import Address, tls

if sys.platform != "linux" or find_spec("flwr") is None:
    pytest.skip("needs Flower, and /proc", allow_module_level=True)

from pffl.site import Agreement
from tests.cli.helpers import program
from tests.flower.processes import (
    MINUTES,
    Net,
    descendants,
    ended,
    entries,
    running,
    wait_for,
)
from tests.flower.runs import local, run_file

pytestmark = pytest.mark.slow

TURNED_AWAY = 90.0  # seconds in which a node must be refused


@pytest.fixture(scope="module", params=[True, False], ids=["masked", "plain"])
def net(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("net")
    policy = "seconds = 150.0\njoin_seconds = 300.0"
    text = run_file(folder, policy=policy, secure_sum=request.param)
    with running(folder / "net", text) as net:
        yield net


def rounds(out):
    return [e["round"] for e in entries(out) if e.get("event") == "round"]


def in_round(out, number):
    """Wait until a round is over, and the next query is out."""
    wait_for(lambda: number in rounds(out), f"round {number}")


def masked(net):
    """Whether the sites answer under masks."""
    return Agreement.read(net.app / "federation.json").secure_sum


def assert_same_model(net, out):
    found = runs.load(out, require_verified=True)
    here = local(net.folder / "deployment.toml")
    tolerance = 1e-9 if masked(net) else 1e-12
    np.testing.assert_allclose(found.w, here.w, rtol=0, atol=tolerance)
    assert found.result["status"] == here.status
    assert found.result["rounds"] == here.rounds


def test_fault_53_the_serverapp_is_killed_and_the_run_resumed(net):
    out = net.folder / "out-53"
    net.submit(net.app, out)
    in_round(out, 2)
    (server_app,) = net.server_apps()
    os.kill(server_app, signal.SIGKILL)
    assert (out / "checkpoint.log").exists()
    seen = len(entries(out))
    done = net.pffl("run", "--resume", str(out), "--app", str(net.app), "--no-extras")
    assert done.returncode == 0, done.stdout + done.stderr + net.logs()
    assert_same_model(net, out)
    later = entries(out)[seen:]
    # A round may be told twice, from what was recorded; it is not asked for twice.
    assert list(dict.fromkeys(rounds(out)))[:3] == [1, 2, 3]
    if not masked(net):  # a step may be repeated, from the sites' caches
        asked = [e for e in entries(out) if e.get("query") not in (None, "census")]
        assert len(asked) == runs.load(out).result["queries"]["messages"]
    assert {e["session"] for e in later if "session" in e} == {1}
    assert not any("checkpoint" in path.name for path in out.iterdir())


def test_fault_53_the_superlink_is_killed_and_the_run_resumed(net):
    out = net.folder / "out-link"
    net.submit(net.app, out)
    in_round(out, 2)
    net.kill("link")
    net.start_link()
    done = net.pffl("run", "--resume", str(out), "--app", str(net.app), "--no-extras")
    assert done.returncode == 0, done.stdout + done.stderr + net.logs()
    assert_same_model(net, out)


def test_ctrl_c_stops_the_run_and_resume_goes_on(net):
    out = net.folder / "out-stopped"
    command = program("run", net.folder / "deployment.toml")
    command += ["--app", str(net.app), "--out", str(out), "--no-extras"]
    run = subprocess.Popen(
        command, env=net.environment, stderr=subprocess.PIPE, text=True
    )
    net.started.append(run)
    in_round(out, 1)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=MINUTES)
    assert run.returncode == 130, said
    wait_for(lambda: not net.server_apps(), "the end of the ServerApp")
    assert ended(out) is None or ended(out)["code"] != 0
    done = net.pffl("run", "--resume", str(out), "--app", str(net.app), "--no-extras")
    assert done.returncode == 0, done.stdout + done.stderr + net.logs()
    assert_same_model(net, out)


@pytest.mark.parametrize("what", ["node", "executor"])
def test_fault_54_a_node_is_killed_mid_round_and_started_again(net, what):
    name = list(net.sites)[1]
    out = net.folder / f"out-54-{what}"
    net.submit(net.app, out)
    in_round(out, 2)
    if what == "node":
        net.kill(name)
    else:  # the node ends with the process that answers, and says goodbye
        os.kill(descendants(net.processes[name].pid)[0], signal.SIGKILL)

    def back():
        # Its old heartbeat must expire first: until then its key is refused.
        if net.processes.get(name) is None or net.processes[name].poll() is not None:
            net.start_node(name)
        return ended(out)

    last = wait_for(back, "the run")
    assert last["code"] == 0, last["message"]
    assert_same_model(net, out)
    lost = [who for e in entries(out) for who, why in e.get("refused", [])]
    assert set(lost) <= {name}


def test_fault_56_a_site_that_stays_away_is_named(net):
    name = list(net.sites)[2]
    net.kill(name)
    out = net.folder / "out-56"
    app, path = net.folder / "impatient" / "app", net.folder / "impatient.toml"
    shutil.copytree(net.app, app)
    for old, new in (
        (net.app / "run.toml", app / "run.toml"),
        (net.folder / "deployment.toml", path),
    ):
        text = old.read_text().replace("seconds = 150.0", "seconds = 80.0")
        new.write_text(text.replace("seconds = 300.0", "seconds = 20.0"))
    done = net.pffl(
        "run", str(path), "--app", str(app), "--out", str(out), "--no-extras"
    )
    assert done.returncode == 5, done.stdout + done.stderr
    assert f"'{name}'" in done.stderr


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """A SuperLink alone, which knows the key of one site."""
    folder = tmp_path_factory.mktemp("door")
    net = Net(folder / "net", run_file(folder))
    try:
        net.start_link()
        net.register(next(iter(net.sites)))
        yield net
    finally:
        net.stop()


def turned_away(net, log, **given):
    """Start a node that must not get in; return what it said."""
    name = next(iter(net.sites))
    process = net.start_node(name, log=log, **given)
    said = wait_for(
        lambda: net.log(log) if refused(process, net.log(log)) else "",
        f"{log}: turned away",
        TURNED_AWAY,
    )
    assert "SuperNode ID" not in said
    net.kill(log)
    return said


def refused(process, text):
    return process.poll() is not None or "rror" in text or "retrying" in text


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        ({"key": "node_key"}, ("305", "not registered")),
        ({"key": None}, ("305", "auth")),
        ({"key": None, "authority": None}, ("",)),
        ({"authority": "ca.crt"}, ("certificate", "ssl")),
    ],
    ids=["unregistered", "keyless", "plaintext", "other authority"],
)
def test_fault_55_strangers_are_turned_away(door, tmp_path, given, reasons, request):
    tls.write_node_key(tmp_path)
    tls.write_server(tmp_path, Address.parse(door.address))
    shown = {what: name and tmp_path / name for what, name in given.items()}
    said = turned_away(door, request.node.callspec.id, **shown)
    assert any(reason in said.lower() for reason in reasons), said


def test_fault_55_an_expired_certificate(door, tmp_path, monkeypatch):
    monkeypatch.setattr(tls, "DAYS", -0.001)
    folder = tmp_path / "expired"
    folder.mkdir()
    authority = tls.write_server(folder, Address.parse(door.address))
    assert authority
    door.kill("link")
    door.start_link(folder)
    try:
        said = turned_away(door, "expired", authority=folder / "ca.crt")
        assert "certificate" in said.lower() or "ssl" in said.lower(), said
        door.write_connection(folder / "ca.crt")
        done = door.pffl(
            "run", str(door.folder / "deployment.toml"), "--app", str(door.app)
        )
        assert done.returncode == 5
    finally:
        door.write_connection(door.server / "ca.crt")
        door.kill("link")
        door.start_link()
