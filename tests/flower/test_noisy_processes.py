"""Real processes with noise inside secure sums: one account, exit 7, kill −9.

A SuperLink and three nodes, as `pffl deploy` writes them.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec
from typing import Any

import pytest

if sys.platform != "linux" or find_spec("flwr") is None:
    pytest.skip("needs Flower, and /proc", allow_module_level=True)

from pffl import runs
from tests.flower.noisy import budget_of, noisy_run_file
from tests.flower.processes import Net, ended, entries, running, wait_for
from tests.inside import Account, Line, composed, epsilon_of

pytestmark = pytest.mark.slow

RELEASED = ("census", "expand", "evaluate")
RELEASES = 10  # messages of the run: census, curvature, five rounds, three measurements


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noisy")
    with running(folder / "net", noisy_run_file(6000)) as net:
        yield net


def allow(net: Net, epsilon: str) -> None:
    """Give all sites the same budget."""
    for site in net.sites.values():
        budget_of(site, epsilon)


def accounts(net: Net) -> list[list[Line]]:
    return [Account(site, 50.0, 1e-6).lines() for site in net.sites.values()]


def answered(out: Any) -> int:
    """How many messages of a run all sites have answered."""
    return sum(e.get("query") in RELEASED for e in entries(out))


def assert_one_account(net: Net, before: list[list[Line]]) -> None:
    """All sites entered the same since then: each release of the plan, once."""
    new = [lines[len(old) :] for lines, old in zip(accounts(net), before, strict=True)]
    marks = [[(line.query, line.split, line.mu) for line in one] for one in new]
    assert marks[0] == marks[1] == marks[2]
    assert len(set(marks[0])) == len(marks[0]) == RELEASES
    for split in ("train", "test"):
        spent = composed(mu for _, part, mu in marks[0] if part == split)
        assert epsilon_of(spent, 1e-6) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("what", ["node", "server"])
def test_killed_in_a_noisy_round(net, what):
    """Kill −9: no second draw (the masks cancel), and no second charge."""
    allow(net, "30.0")
    before, name = accounts(net), list(net.sites)[1]
    out = net.folder / f"out-{what}"
    net.submit(net.app, out)
    wait_for(lambda: answered(out) >= 3, "three releases")
    if what == "node":
        net.kill(name)

        def back() -> Any:
            # Its old heartbeat must expire first: until then its key is refused.
            node = net.processes.get(name)
            if node is None or node.poll() is not None:
                net.start_node(name)
            return ended(out)

        last = wait_for(back, "the run")
        assert last["code"] in (0, 4), last["message"]
    else:
        (server_app,) = net.server_apps()
        os.kill(server_app, signal.SIGKILL)
        done = net.pffl(
            "run", "--resume", str(out), "--app", str(net.app), "--no-extras"
        )
        assert done.returncode in (0, 4), done.stdout + done.stderr + net.logs()
    assert_one_account(net, before)
    assert runs.load(out, require_verified=True).result["privacy"]["shared"]
