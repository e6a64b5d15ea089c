"""The weights protocol on the app of examples/flower_torch: `weights_protocol.md`.

    python benchmarks/weights_protocol.py process            # a Grid in one process
    python benchmarks/weights_protocol.py simulation 0 1 2   # flwr run, Ray
    python benchmarks/weights_protocol.py nodes 0 1 2        # flwr run, 3 warm nodes
    python benchmarks/weights_protocol.py supernodes 0       # the same, Flower's own

Each line of the output is a run: group losses on training rows, status, rounds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parents[1]
APPS = HERE / "examples" / "flower_torch"
BIN = Path(sys.executable).parent
ROUNDS = 15
sys.path[:0] = [str(HERE), str(APPS / "after")]


def told(what: str, result: dict, seconds: float) -> None:
    """Print a run."""
    cells = {c["cell"]: round(c["train_loss"], 3) for c in result["cells"]}
    held = {c["cell"]: round(c["test_loss"], 3) for c in result["cells"]}
    line = {"run": what, "status": result["status"], "train": cells, "held-out": held}
    line |= {"rounds": result["rounds"] + 1, "seconds": round(seconds)}
    print(json.dumps(line, ensure_ascii=False), flush=True)


def environment(home: Path) -> dict[str, str]:
    """What every process is started with: no calls home, loopback only."""
    kept = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PFFL_ALLOW_ROOT": "1",  # in a container
        "OMP_NUM_THREADS": "1",
        "NO_PROXY": "127.0.0.1",
        "PATH": path,
    }
    return kept | own


def app_in(folder: Path) -> Path:
    """A copy of the app, without Flower's own evaluation of every round."""
    app = folder / "app"
    shutil.copytree(APPS / "after", app)
    server = app / "quickstart" / "server_app.py"
    line = 'labels=["0", "1"])'
    text = server.read_text()
    assert text.count(line) == 1
    more = 'labels=["0", "1"], fraction_evaluate=0.0)'
    server.write_text(text.replace(line, more))
    return app


def flwr_run(app: Path, link: list[str], out: Path, seed: int, home: Path) -> None:
    """Run an app with Flower's own command, and wait for its run directory."""
    rounds = int(os.environ.get("ROUNDS", ROUNDS))
    config = f'seed={seed} num-server-rounds={rounds} out="{out}"'
    command = [str(BIN / "flwr"), "run", str(app), *link, "--stream", "-c", config]
    with (out.parent / f"{out.name}.log").open("wb") as log:
        own = {"env": environment(home), "cwd": out.parent}  # the app writes a model
        subprocess.run(command, stdout=log, stderr=log, check=True, **own)


def process() -> None:
    """All strategies, over a Grid in this process: real messages and ClientApps."""
    import logging

    logging.disable(logging.CRITICAL)
    import torch
    from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
    from flwr.serverapp.strategy import FedAdam, FedAvg, FedProx
    from quickstart.client_app import app
    from quickstart.task import Net

    import pffl
    from pffl.deploy import BoundedGroupLossMixin
    from tests.deploy.memory import MemoryGrid, travelled

    class Partitions(MemoryGrid):
        config: dict | None = None

        def deliver(self, message):
            own, node = self.nodes[message.metadata.dst_node_id]
            context = Context(1, 1, dict(node), RecordDict(), self.config)
            return travelled(own(message, context))

    def run(what, base, seed, rounds, **given):
        kind = type(f"Fair{base.__name__}", (BoundedGroupLossMixin, base), {})
        torch.manual_seed(seed)
        grid = Partitions({10 + k: (app, {"partition-id": k}) for k in range(4)})
        grid.config = {"seed": seed, "local-epochs": 1}
        strategy = kind(
            pffl.BoundedGroupLoss(0.68),
            groups=["a", "b"],
            labels=["0", "1"],
            fraction_evaluate=0.0,
            **given,
        )
        begun = time.monotonic()
        arrays, lr = ArrayRecord(Net().state_dict()), ConfigRecord({"lr": 0.01})
        strategy.start(grid, arrays, rounds, train_config=lr)
        found = strategy.solution
        told(f"{what}, seed {seed}", found.as_dict(), time.monotonic() - begun)
        end = found.training.settling
        swing, weights = ([round(s, 3) for s in x] for x in (end.swing, end.weights))
        print(f"    swing {swing}, weights {weights}, first met in round {met(found)}")

    def met(solution):
        return next(
            (row.number for row in solution.rows if row.violation.max() <= 0), 0
        )

    torch.set_num_threads(1)
    gentle, none = {"eta": 0.03, "beta_1": 0.0}, {"multiplier_bound": 1e-9}
    for what, base, rounds, given in (
        ("FedAvg", FedAvg, ROUNDS, {}),
        ("FedProx, mu 0.1", FedProx, ROUNDS, {"proximal_mu": 0.1}),
        ("FedAdam, eta 0.03, beta_1 0", FedAdam, ROUNDS, gentle),
        ("FedAdam as it comes", FedAdam, 2 * ROUNDS, {}),
        ("FedAdam, unchanged", FedAdam, 2 * ROUNDS, none),
        ("FedAvg, unchanged (B of nearly 0)", FedAvg, ROUNDS, none),
    ):
        for seed in range(3):
            run(what, base, seed, rounds, **given)


def simulation(seeds: list[int]) -> None:
    """`flwr run` with Ray, four partitions."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app, home = app_in(folder), folder / "home"
        size = "num-supernodes=4 client-resources-num-cpus=1"
        for seed in seeds:
            out, begun = folder / f"seed-{seed}", time.monotonic()
            flwr_run(app, ["--federation-config", size], out, seed, home)
            result = json.loads((out / "result.json").read_text())
            told(f"simulation, seed {seed}", result, time.monotonic() - begun)
        end(home)


def nodes(seeds: list[int]) -> None:
    """`flwr run` over Flower's SuperLink and three nodes, on loopback.

    Nodes are Flower's own.
    """
    from tests.deploy.processes import free_ports as free_port
    from tests.deploy.processes import wait_for

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app, home, port = app_in(folder), folder / "home", free_port()
        home.mkdir()
        text = f'[superlink.trial]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        (home / "config.toml").write_text(text)
        started = []

        def spawn(place: Path, *command: str) -> None:
            place.mkdir(exist_ok=True)
            with (folder / f"process-{len(started)}.log").open("wb") as log:
                more = {"PYTHONPATH": str(app), "FLWR_HOME": str(home / place.name)}
                started.append(
                    subprocess.Popen(
                        [str(BIN / command[0]), *command[1:]],
                        env=environment(home) | more,
                        stdout=log,
                        stderr=log,
                        cwd=place,
                    )
                )

        node = ["flower-supernode", "--host=127.0.0.1"]

        try:
            at = ["--host=127.0.0.1", f"--port={port}"]
            spawn(folder / "link", "flower-superlink", "--insecure", *at)
            wait_for(lambda: listens(port), "the SuperLink", 300)
            for k in range(3):
                own = [f"--port={free_port()}", "--insecure"]
                config = f"partition-id={k} silo='site {k}'"
                link = f"--superlink=127.0.0.1:{port}"
                spawn(
                    folder / f"node-{k}", *node, link, f"--node-config={config}", *own
                )
            for seed in seeds:
                out, begun = folder / f"seed-{seed}", time.monotonic()
                flwr_run(app, ["trial"], out, seed, home)
                try:
                    wait_for((out / "report.html").exists, "the run", 60)
                except AssertionError:
                    print((folder / f"{out.name}.log").read_text(), file=sys.stderr)
                    raise
                result = json.loads((out / "result.json").read_text())
                told(f"three nodes, seed {seed}", result, time.monotonic() - begun)
        finally:
            for one in started:
                one.terminate()
            for place in (home, *(home / one.name for one in folder.iterdir())):
                end(place)


def listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def end(home: Path) -> None:
    """End what was started with this home of Flower's."""
    import signal

    from tests.deploy.processes import strays

    for pid in strays(f"FLWR_HOME={home}"):
        if pid != os.getpid():
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or ["process"]
    seeds = [int(seed) for seed in rest] or [0, 1, 2]
    {
        "process": lambda seeds: process(),
        "simulation": simulation,
        "nodes": nodes,
    }[what](seeds)
