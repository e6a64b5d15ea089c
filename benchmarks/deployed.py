"""Seconds a query and a run take with real processes: Flower's own nodes, and ours.

    python benchmarks/deployed.py [PAIRS]

A SuperLink and three nodes on this machine, TLS, registered keys, secure sums,
COMPAS, the folders that `pffl deploy` writes. Runs alternate
between Flower's own nodes and `pffl.flower.node`, on the same SuperLink; machines are
shared, so what counts is the ratio within a pair, and the processor time of all
processes of the federation.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.flower.processes import Net, descendants, entries, wait_for
from tests.flower.runs import run_file

TICKS = os.sysconf("SC_CLK_TCK")


def main(pairs: int) -> None:
    print("nodes      load  s a query  s a run  processor s a run  queries")
    with tempfile.TemporaryDirectory() as folder:
        net = Net(Path(folder) / "net", run_file(Path(folder), secure_sum=True))
        try:
            net.start_link()
            net.register(*net.sites)
            pairs_of = [
                (_run(net, f"{k}-flower", plain=True), _run(net, f"{k}-ours"))
                for k in range(pairs)
            ]
        finally:
            net.stop()
    for what, number in (("a query", 0), ("a run", 1), ("processor time", 2)):
        ratios = [before[number] / after[number] for before, after in pairs_of]
        print(f"{what}: {', '.join(f'{r:.1f}' for r in ratios)} times less")


def _run(net: Net, name: str, *, plain: bool = False) -> tuple[float, float, float]:
    """Start nodes, run, end the nodes; return seconds a query and a run."""
    logs = {site: f"{name}-{number}" for number, site in enumerate(net.sites)}
    for site, log in logs.items():
        net.start_node(site, log=log, plain=plain)
    for log in logs.values():
        wait_for(lambda log=log: "SuperNode ID" in net.log(log), log)
    out, before, begun = net.folder / name, _processor(net), time.monotonic()
    done = net.pffl(
        "run",
        str(net.folder / "deployment.toml"),
        *("--app", str(net.app), "--out", str(out), "--no-extras"),
    )
    seconds = time.monotonic() - begun
    assert done.returncode == 0, done.stdout + done.stderr + net.logs()
    used = _processor(net) - before
    asked = [e["seconds"] for e in entries(out) if "seconds" in e and "event" not in e]
    query = statistics.median(asked)
    for log in logs.values():
        net.processes[log].terminate()
    for log in logs.values():
        net.processes.pop(log).wait(60)
    print(
        f"{'Flower' if plain else 'ours':8}{os.getloadavg()[0]:7.1f}"
        f"{query:14.2f}{seconds:9.1f}{used:19.1f}{len(asked):11}",
        flush=True,
    )
    return query, seconds, used


def _processor(net: Net) -> float:
    """Return the processor seconds of all processes of a federation so far."""
    ticks = 0
    for process in net.processes.values():
        for pid in (process.pid, *descendants(process.pid)):
            with suppress(OSError):
                text = Path(f"/proc/{pid}/stat").read_text()
                ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / TICKS


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
