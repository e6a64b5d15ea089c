"""The same work by others and by pffl, in turns: one Markdown table.

    .venv/bin/python benchmarks/peers.py [--only bounds fedavg wide cells silos sparse]
        [--python OTHER] [--repeats 3]

CPU is processor time of all threads, the median of the turns; `×` is the contestant's
CPU over pffl's in the same run. OTHER is a Python that has ray, flwr or declearn, if
this one has not (`pip install declearn 'flwr[simulation]'` in an environment of its
own). What is not installed is named.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import pffl

HERE = Path(__file__).resolve()
L2 = 1e-6
GAP = 1e-6
CLIENTS, ROUNDS, FEWER = 10, 20, 3


class Spent(NamedTuple):
    """Seconds of processors and on the clock, and what came of it."""

    cpu: float
    wall: float
    found: Any = None


class Line(NamedTuple):
    """A row of the table; without `spent` it says why."""

    work: str
    who: str
    spent: Spent | None
    ratio: float | None
    said: str


# ---------------------------------------------------------------- work


def people(
    rows: int, p: int, groups: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gaussian inputs, labels by another w in each group, half of all in the first."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, p))
    group = np.where(
        rng.random(rows) < 0.5, 0, 1 + np.arange(rows) % max(1, groups - 1)
    )
    common = rng.standard_normal(p) / np.sqrt(p)
    own = rng.standard_normal((groups, p)) / np.sqrt(p)
    score = np.einsum("ij,ij->i", X, (common + 0.8 * own)[group])
    y = (score + rng.logistic(size=rows) / 2 > 0).astype(int)
    return X, y, group


def one_hot(rows: int, p: int, groups: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Twenty columns of categories, one-hot: sparse, 20 ones a row."""
    from scipy import sparse

    rng = np.random.default_rng(0)
    columns, values = 20, p // 20
    where = rng.integers(0, values, (rows, columns)) + np.arange(columns) * values
    X = sparse.csr_array(
        (np.ones(where.size), where.ravel(), np.arange(0, where.size + 1, columns)),
        shape=(rows, p),
    )
    w, group = 0.25 * rng.standard_normal(p), rng.integers(0, groups, rows)
    score = X @ w + 0.5 * rng.standard_normal(groups)[group]
    return X, (score + rng.logistic(size=rows) > 0).astype(int), group


def federation(X: Any, y: Any, group: Any, silos: int) -> pffl.Federation:
    """All rows for training, in equal silos."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pffl.Federation.from_arrays(
            X,
            y,
            sensitive_features=group,
            silo=np.arange(len(y)) % silos,
            test_fraction=0.0,
        )


def plain_fit(X: Any, y: Any, l2: float = L2, tol: float = 1e-6) -> Any:
    """Fit scikit-learn's logistic regression, which knows no bounds."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=1 / (l2 * len(y)), tol=tol, max_iter=1000).fit(X, y)


def bound_for(X: Any, y: Any, group: Any, l2: float = L2) -> float:
    """Return 0.95 of the worst group's loss without bounds."""
    told = plain_fit(X, y, l2, 1e-4).predict_proba(X)[np.arange(len(y)), y]
    losses = -np.log(np.maximum(told, 1e-12))
    return round(0.95 * max(losses[group == g].mean() for g in np.unique(group)), 4)


def losses_of(solution: pffl.Solution, data: pffl.Federation) -> np.ndarray:
    """Loss of each training row."""
    rows, fitted = data.pooled("train"), solution.model
    return fitted.losses(solution.w, fitted.inputs.apply(rows.X), rows.y)


def model(l2: float = L2) -> pffl.LogisticRegression:
    return pffl.LogisticRegression(l2=l2)


def ready(
    engine: Any, bound: float, method: Any, l2: float = L2
) -> tuple[Any, Callable[[], Any]]:
    """Return a problem, and a method's rounds on it."""
    from pffl._solve import prepared
    from pffl.driver import drive
    from pffl.flow import rounds
    from pffl.prepare import Options

    given = (engine, pffl.BoundedGroupLoss(bound), model(l2), method, Options())
    problem, _ = prepared(*given, seed=0)
    return problem, lambda: drive(engine, rounds(problem, method))


# ---------------------------------------------------------------- turns


def spent(work: Callable[[], Any]) -> Spent:
    cpu, wall = time.process_time(), time.perf_counter()
    found = work()
    return Spent(time.process_time() - cpu, time.perf_counter() - wall, found)


def turns(
    works: dict[str, Callable[[], Any]], repeats: int, slow: tuple[str, ...] = ()
) -> dict[str, Spent]:
    """Run each in turn; the slow ones only the first time."""
    told: dict[str, list[Spent]] = {who: [] for who in works}
    for turn in range(repeats):
        for who, work in works.items():
            if turn == 0 or who not in slow:
                told[who].append(spent(work))
    return {
        who: Spent(
            float(np.median([s.cpu for s in found])),
            float(np.median([s.wall for s in found])),
            found[-1].found,
        )
        for who, found in told.items()
    }


def lines(
    work: str,
    found: dict[str, Spent],
    says: Callable[[str, Spent], str] = lambda who, s: "",
    ours: str = "pffl",
) -> list[Line]:
    """Compare each with ours."""
    return [
        Line(work, who, s, s.cpu / found[ours].cpu, says(who, s))
        for who, s in found.items()
    ]


def child(python: str, what: str, *, path: Path | None = None) -> Any:
    """Run one part of this file in another process; return what it prints."""
    env = dict(os.environ)
    if path is not None:
        env["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [python, str(HERE), "--child", what],
        env=env,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode:
        return (done.stderr.strip() or "no word").splitlines()[-1][:100]
    return json.loads(done.stdout.splitlines()[-1])


# ---------------------------------------------------------------- contests


def bounds(repeats: int, python: str) -> list[Line]:
    """A bound on the loss of each of five groups."""
    rows, p, groups = 10_000, 20, 5
    X, y, group = people(rows, p, groups)
    data = federation(X, y, group, 10)
    bound = bound_for(X, y, group)
    works: dict[str, Callable[[], Any]] = {
        "pffl": lambda: pffl.solve(
            data, pffl.BoundedGroupLoss(bound), model=model(), random_state=0
        ),
        "scikit-learn, no bounds": lambda: plain_fit(X, y),
    }
    work = f"bounded group loss, {rows:,} × {p}, {groups} groups"
    missing = []
    if importlib.util.find_spec("cvxpy"):
        works["cvxpy, CLARABEL"] = lambda: by_cvxpy(X, y, group, bound)
    else:
        missing.append(Line(work, "cvxpy, CLARABEL", None, None, "not installed"))
    if importlib.util.find_spec("fairlearn"):
        works["fairlearn"] = lambda: by_fairlearn(X, y, group, bound)
    else:
        missing.append(Line(work, "fairlearn", None, None, "not installed"))
    found = turns(works, repeats, slow=("fairlearn", "cvxpy, CLARABEL"))

    def says(who: str, s: Spent) -> str:
        match who:
            case "pffl":
                mean = losses_of(s.found, data).mean()
                return f"{s.found.status}, risk {mean:.5f}, gap {s.found.gap:.0e}"
            case "fairlearn":
                return f"{s.found[0]} models, risk {s.found[1]:.5f}"
            case "cvxpy, CLARABEL":
                return f"risk {s.found:.5f}"
        return ""

    return lines(work, found, says) + missing


def by_cvxpy(X: Any, y: Any, group: Any, bound: float) -> float:
    import cvxpy as cp

    design = np.column_stack([X, np.ones(len(X))])
    w = cp.Variable(design.shape[1])
    losses = cp.logistic(cp.multiply(1 - 2.0 * y, design @ w))
    limits = [
        cp.sum(losses[group == g]) <= bound * (group == g).sum()
        for g in range(group.max() + 1)
    ]
    goal = cp.sum(losses) / len(y) + L2 / 2 * cp.sum_squares(w)
    cp.Problem(cp.Minimize(goal), limits).solve(solver=cp.CLARABEL)
    return float((cp.sum(losses) / len(y)).value)


def by_fairlearn(X: Any, y: Any, group: Any, bound: float) -> tuple[int, float]:
    from fairlearn.reductions import BoundedGroupLoss, ExponentiatedGradient
    from fairlearn_bgl import LogLoss, Probabilities

    base = Probabilities(C=1 / (L2 * len(y)), tol=1e-6)
    found = ExponentiatedGradient(base, BoundedGroupLoss(LogLoss(), upper_bound=bound))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.fit(X, y, sensitive_features=group)
    used = [(s, found.predictors_[t]) for t, s in found.weights_.items() if s > 0]
    losses = sum(s * LogLoss().eval(y, one.predict(X)) for s, one in used)
    return len(used), float(np.mean(losses))


def fedavg(repeats: int, python: str) -> list[Line]:
    """Federated averaging without bounds: what the engine itself costs."""
    out = []
    for clients in (100, CLIENTS):
        X, y, _ = people(200 * clients, 20, 2)
        data = federation(X, y, np.arange(len(y)) % 2, clients)
        from pffl.engines import Local

        own = pffl.FedAvg(rounds=ROUNDS, local_steps=5, step_size=0.1)
        problem, ours = ready(Local(data), 1.0, own)
        scaled = problem.task.model.inputs.apply
        each = [
            (np.column_stack([scaled(r.X), np.ones(len(r))]), r.y)
            for r in (silo.rows("train") for silo in data.silos)
        ]
        found = turns(
            {"pffl": ours, "NumPy loop": lambda p=each: numpy_loop(p)},
            repeats,
        )
        apart = np.abs(found["pffl"].found.point.w - found["NumPy loop"].found).max()
        work = f"federated averaging, {clients} clients × 200 rows, {ROUNDS} rounds"
        out += lines(
            work,
            found,
            lambda who, _, a=apart: f"same w to {a:.0e}" if who != "pffl" else "",
        )
    cpu = found["pffl"].cpu
    for what in ("flower", "declearn"):
        told = child(python, what, path=HERE.parents[1] / "src")
        who = {"flower": "Flower simulation (ray)", "declearn": "DecLearn"}[what]
        if isinstance(told, str):
            out.append(Line(work, who, None, None, told))
            continue
        other = Spent(told["cpu"], told["wall"])
        out.append(Line(work, who, other, other.cpu / cpu, told["said"]))
    return out


def numpy_loop(parts: list[Any]) -> np.ndarray:
    """Plain federated averaging: five steps of size 0.1 each, then the mean."""
    w = np.zeros(parts[0][0].shape[1])
    for _ in range(ROUNDS):
        found = np.zeros_like(w)
        for X, y in parts:
            found += local_steps(w, X, y) / len(parts)
        w = found
    return w


def rounds_and_solve(
    work: str, rows: int, p: int, groups: int, repeats: int, method: Any
) -> list[Line]:
    """A method's rounds, and a whole solve, against a fit without bounds."""
    from pffl.engines import Local

    X, y, group = people(rows, p, groups)
    data = federation(X, y, group, 10)
    bound = bound_for(X, y, group)
    constraint = pffl.BoundedGroupLoss(bound)
    works = {
        "pffl": ready(Local(data), bound, method)[1],
        "pffl, whole solve": lambda: pffl.solve(
            data, constraint, method=method, model=model(), random_state=0
        ),
        "scikit-learn, no bounds": lambda: plain_fit(X, y),
    }
    found = turns(works, repeats)
    name = type(method).__name__

    def says(who: str, s: Spent) -> str:
        if who == "pffl":
            return f"{name}, {s.found.rounds} rounds to {GAP:g}"
        return f"{s.found.status}" if who.startswith("pffl") else ""

    return lines(work, found, says)


def wide(repeats: int, python: str) -> list[Line]:
    """A thousand inputs."""
    method = pffl.FirstOrder(multiplier_bound=10.0, target_gap=GAP)
    work = "20,000 × 1,000, 10 groups, the method's rounds"
    return rounds_and_solve(work, 20_000, 1_000, 10, repeats, method)


def cells(repeats: int, python: str) -> list[Line]:
    """Five hundred groups."""
    method = pffl.FirstOrder(multiplier_bound=10.0, target_gap=GAP)
    work = "50,000 × 100, 500 groups, the method's rounds"
    return rounds_and_solve(work, 50_000, 100, 500, repeats, method)


def silos(repeats: int, python: str) -> list[Line]:
    """One pass for Hessians over ten thousand silos."""
    work = "one pass for Hessians, 10,000 silos × 20 rows × 20"
    return lines(work, one_pass(2 * repeats), lambda who, s: "")


def one_pass(repeats: int) -> dict[str, Spent]:
    """Time a pass, and the product that it cannot do without, on one thread each."""
    from pffl.engines import Local
    from pffl.queries import Expand

    silos = 10_000
    X, y, group = people(20 * silos, 20, 2)
    engine = Local(federation(X, y, group, silos), threads=1)
    problem, _ = ready(engine, 0.6, pffl.Exact())
    w, design = np.full(21, 0.01), np.column_stack([X, np.ones(len(X))])
    blocks = [design[i : i + 4096] for i in range(0, len(X), 4096)]
    ask = Expand(problem.task, w, 2)
    engine.ask(ask)
    with threadpool_limits(1):
        return turns(
            {
                "pffl": lambda: engine.ask(ask),
                "bare product": lambda: [b.T @ (0.25 * b) for b in blocks],
            },
            repeats,
        )


def sparse(repeats: int, python: str) -> list[Line]:
    """Twenty thousand one-hot inputs."""
    from pffl.engines import Local

    rows, p = 60_000, 20_000
    l2 = 1 / rows  # scikit-learn's own
    X, y, group = one_hot(rows, p, 5)
    data, bound = federation(X, y, group, 10), bound_for(X, y, group, l2)
    method = pffl.FirstOrder(multiplier_bound=10.0, target_gap=GAP)
    given = {"method": method, "model": model(l2), "random_state": 0}
    found = turns(
        {
            "pffl": ready(Local(data), bound, method, l2)[1],
            "pffl, whole solve": lambda: pffl.solve(
                data, pffl.BoundedGroupLoss(bound), **given
            ),
            "scikit-learn, no bounds": lambda: plain_fit(X, y, l2, 1e-4),
        },
        repeats,
    )
    plain = found["scikit-learn, no bounds"].cpu

    def says(who: str, s: Spent) -> str:
        match who:
            case "pffl":
                said = f"{s.found.rounds} rounds to {GAP:g}"
            case "pffl, whole solve":
                said = s.found.status
            case _:
                return f"{s.found.n_iter_[0]} iterations"
        return f"{said}; {s.cpu / plain:.1f} plain fits"

    return lines("60,000 × 20,000 one-hot, sparse, 5 groups", found, says)


# ---------------------------------------------------------------- other processes


def parts() -> list[Any]:
    """The rows of each client, for those who know nothing of pffl."""
    X, y, _ = people(200 * CLIENTS, 20, 2)
    design = np.column_stack([X, np.ones(len(X))])
    return [(design[k::CLIENTS], y[k::CLIENTS]) for k in range(CLIENTS)]


def family() -> float:
    """Processor seconds of this process and of all that it started, so far."""
    parent, ticks = {}, {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parent[int(entry.parent.name)] = int(fields[1])
        ticks[int(entry.parent.name)] = sum(map(int, fields[11:15]))
    own = {os.getpid()}
    while more := {pid for pid, of in parent.items() if of in own} - own:
        own |= more
    return sum(ticks.get(pid, 0) for pid in own) / os.sysconf("SC_CLK_TCK")


def flower() -> dict[str, Any]:
    """Flower's simulation: a message a client and round, the first round left out."""
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    import ray  # noqa: F401  what the simulation needs
    from flwr.app import Array, ArrayRecord, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    client, server, rows, marks = ClientApp(), ServerApp(), parts(), []

    def record(w: np.ndarray) -> RecordDict:
        return RecordDict({"w": ArrayRecord({"w": Array(w)})})

    @client.train()
    def train(message: Any, context: Any) -> Any:
        w = message.content["w"]["w"].numpy()
        found = local_steps(w, *rows[int(context.node_config["partition-id"])])
        return Message(record(found), reply_to=message)

    @server.main()
    def main(grid: Any, context: Any) -> None:
        while len(nodes := list(grid.get_node_ids())) < CLIENTS:
            time.sleep(0.1)
        w = np.zeros(21)
        for _ in range(1 + ROUNDS):
            sent = [
                Message(record(w), dst_node_id=n, message_type="train") for n in nodes
            ]
            back = list(grid.send_and_receive(sent))
            w = np.mean([r.content["w"]["w"].numpy() for r in back], axis=0)
            marks.append((family(), time.perf_counter()))

    run_simulation(server, client, num_supernodes=CLIENTS)
    (cpu, wall), (cpu_end, wall_end) = marks[0], marks[-1]
    said = "processes and messages; the first round left out"
    return {"cpu": cpu_end - cpu, "wall": wall_end - wall, "said": said}


def local_steps(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    v = w.copy()
    for _ in range(5):
        v -= 0.1 * (X.T @ (1 / (1 + np.exp(-(X @ v))) - y) / len(y) + L2 * v)
    return v


def declearn() -> dict[str, Any]:
    """DecLearn over websockets on this machine: five epochs of all rows a round."""
    from declearn.utils import run_as_processes

    wall = time.perf_counter()
    clients = [(declearn_client, (k, *rows)) for k, rows in enumerate(parts())]
    good, told = run_as_processes((declearn_server, ()), *clients)
    if not good:
        raise RuntimeError(next(str(t) for t in told if isinstance(t, Exception)))
    said = f"processes and websockets; {FEWER} rounds only, start included"
    wall = time.perf_counter() - wall
    return {"cpu": sum(told), "wall": wall, "said": said}


def declearn_server() -> float:
    from declearn.communication.websockets import WebsocketsServer
    from declearn.main import FederatedServer
    from declearn.main.config import FLOptimConfig, FLRunConfig
    from declearn.model.sklearn import SklearnSGDModel

    fitted = SklearnSGDModel.from_parameters(
        kind="classifier", loss="log_loss", penalty="l2", alpha=L2
    )
    way = FLOptimConfig.from_params(
        aggregator="averaging", client_opt=0.1, server_opt=1.0
    )
    run = FLRunConfig.from_params(
        rounds=FEWER,
        register=CLIENTS,
        training={"n_epoch": 5, "batch_size": 200},
    )
    with tempfile.TemporaryDirectory() as folder:
        netwk = WebsocketsServer("127.0.0.1", 8765)
        FederatedServer(fitted, netwk, way, checkpoint=folder).run(run)
    return time.process_time()


def declearn_client(index: int, X: np.ndarray, y: np.ndarray) -> float:
    from declearn.communication.websockets import WebsocketsClient
    from declearn.dataset import InMemoryDataset
    from declearn.main import FederatedClient

    rows = InMemoryDataset(X[:, :-1], y, expose_classes=True)
    netwk = WebsocketsClient("ws://127.0.0.1:8765", f"client {index}")
    with tempfile.TemporaryDirectory() as folder:
        FederatedClient(netwk, rows, checkpoint=folder, verbose=False).run()
    return time.process_time()


# ---------------------------------------------------------------- the table


CONTESTS = {
    "bounds": bounds,
    "fedavg": fedavg,
    "wide": wide,
    "cells": cells,
    "silos": silos,
    "sparse": sparse,
}
CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {
    "flower": flower,
    "declearn": declearn,
}


def machine() -> str:
    """Say on what this was measured."""
    load = os.getloadavg()[0]
    return (
        f"{len(os.sched_getaffinity(0))} cores, load {load:.0f}, Python "
        f"{sys.version.split()[0]}, NumPy {np.__version__}, {time.strftime('%Y-%m-%d')}"
    )


def row(line: Line, work: str) -> str:
    if line.spent is None:
        return f"| {work} | {line.who} | | | | {line.said} |"
    cpu, wall = line.spent[:2]
    ratio = f"{line.ratio:.2g}" if (line.ratio or 0) < 10 else f"{line.ratio:,.0f}"
    return f"| {work} | {line.who} | {cpu:.3g} | {wall:.3g} | {ratio} | {line.said} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CONTESTS, default=list(CONTESTS))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.child:
        what, *given = asked.child.split()
        print(json.dumps(CHILDREN[what](*given)))
        return
    print(f"{machine()}; median of {asked.repeats} turns\n")
    print("| work | who | CPU s | wall s | × pffl, CPU | |\n|---|---|---|---|---|---|")
    for name in asked.only:
        before = ""
        for line in CONTESTS[name](asked.repeats, asked.python):
            print(row(line, "" if line.work == before else line.work), flush=True)
            before = line.work


if __name__ == "__main__":
    main()
