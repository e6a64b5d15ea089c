"""Hosts with addresses of their own: network namespaces, and the scripts as written.

One namespace for the server, with a bridge, and one for each site. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from pffl import config, runs
from pffl.records import read_toml
from pffl.site import prepare
from tests.inside import Address, deploy

if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
    pytest.skip("needs root and `ip netns`", allow_module_level=True)

from tests.cli.helpers import program
from tests.flower.processes import MINUTES, end_tree, entries, unlimited, wait_for
from tests.flower.runs import local, run_file

if find_spec("flwr") is None:
    pytest.skip("needs Flower", allow_module_level=True)

pytestmark = pytest.mark.netns

SERVER = "10.77.0.1"
CUT = 25.0  # seconds: longer than a round, shorter than Flower's patience with a node


class Hosts:
    """A server and sites on one network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []
        self.started: list[subprocess.Popen[bytes]] = []
        self.stem = f"pf{os.getpid() % 100_000}"

    def add(self, name: str) -> str:
        """Add a host; the first has the bridge."""
        host = f"{self.stem}{name}"
        ip("netns", "add", host)
        self.names.append(host)
        ip("-n", host, "link", "set", "lo", "up")
        if len(self.names) == 1:
            ip("-n", host, "link", "add", "br0", "type", "bridge")
            ip("-n", host, "address", "add", f"{SERVER}/24", "dev", "br0")
            ip("-n", host, "link", "set", "br0", "up")
            return host
        number = len(self.names)
        ends = ("eth0", "netns", host, "type", "veth", "peer", self.port(number))
        ip("link", "add", *ends, "netns", self.names[0])
        ip("-n", self.names[0], "link", "set", self.port(number), "master", "br0")
        ip("-n", self.names[0], "link", "set", self.port(number), "up")
        ip("-n", host, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
        ip("-n", host, "link", "set", "eth0", "up")
        return host

    def port(self, number: int) -> str:
        """Name of the bridge's end of a host's cable."""
        return f"port{number}"

    def cable(self, number: int, state: str) -> None:
        """Cut a host off, or put it back."""
        ip("-n", self.names[0], "link", "set", self.port(number), state)

    def start(self, host: str, script: Path) -> None:
        """Start a script on a host."""
        with open(self.folder / f"{host}.log", "ab") as log:
            self.started.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", host, str(script)],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    env=environment(),
                    cwd="/",
                )
            )

    def call(self, host: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end."""
        return subprocess.run(
            ["ip", "netns", "exec", host, *command],
            capture_output=True,
            text=True,
            env=environment(),
            cwd=self.folder,
            timeout=MINUTES,
            check=False,
        )

    def logs(self) -> str:
        """The last of what all hosts wrote."""
        paths = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {p.name}\n{p.read_text()[-2000:]}" for p in paths)

    def stop(self) -> None:
        """End all processes, and take the network away."""
        for process in reversed(self.started):
            end_tree(process)
        for name in reversed(self.names):
            subprocess.run(["ip", "netns", "delete", name], check=False)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def environment() -> dict[str, str]:
    """What an administrator's shell has, and where pffl is installed."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "PFFL_BIN": str(Path(sys.executable).parent),
        "PFFL_ALLOW_ROOT": "1",  # namespaces need root
    }


@pytest.fixture
def hosts(tmp_path):
    made = Hosts(tmp_path)
    try:
        yield made
    finally:
        made.stop()


def test_three_sites_on_their_own_hosts_one_of_them_cut_off_and_back(hosts, tmp_path):
    path, out = tmp_path / "run.toml", tmp_path / "out"
    policy = "seconds = 150.0\njoin_seconds = 300.0"
    path.write_text(run_file(tmp_path, policy=policy, secure_sum=True))
    made = deploy(
        config.load(path),
        read_toml(path),
        tmp_path / "deployment",
        address=Address.parse(f"{SERVER}:8443"),
        trial_certificates=True,
        trial_data=True,
    )
    server = made.folder / "server"
    host = hosts.add("s")
    hosts.start(host, server / "start.sh")
    listening = ("sh", "-c", f"ss -ltn | grep -q '{SERVER}:8443'")
    wait_for(lambda: hosts.call(host, *listening).returncode == 0, "the server", 60)
    for number, site in enumerate(made.sites.values(), start=2):
        prepare(unlimited(site))
        key = server / "keys" / f"{site.name}.pub"
        done = hosts.call(
            host, str(server / "flwr.sh"), "supernode", "register", str(key)
        )
        assert done.returncode == 0, done.stdout + done.stderr
        hosts.start(hosts.add(str(number)), site / "start.sh")

    command = program("run", path)
    command += ["--app", str(made.folder / "app"), "--out", str(out), "--no-extras"]
    run = subprocess.Popen(
        ["ip", "netns", "exec", host, *command],
        env=environment(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    hosts.started.append(run)
    wait_for(lambda: any(e.get("event") == "round" for e in entries(out)), "round 1")
    hosts.cable(3, "down")
    before = len(entries(out))
    time.sleep(CUT)
    assert len(entries(out)) <= before + 2, "the run went on without a site"
    hosts.cable(3, "up")

    said, _ = run.communicate(timeout=MINUTES)
    assert run.returncode == 0, said + hosts.logs()
    found = runs.load(out, require_verified=True)
    here = local(path)
    np.testing.assert_allclose(found.w, here.w, rtol=0, atol=1e-9)
    assert found.result["rounds"] == here.rounds
