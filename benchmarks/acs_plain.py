"""ACS 2024, all rows: `pffl.solve` and `pffl run` against a plain scikit-learn fit.

    .venv/bin/python benchmarks/acs_plain.py [TURNS] [FILE]

Processor seconds of processes that take turns: `LogisticRegression` (lbfgs, its
defaults, weights that make it minimise the same F, inputs standardised beforehand), its
`fit` alone; `pffl.solve` at bound 0.58, once the file is read; the command `pffl run`,
from start to exit, with certificate, report and card. Medians over the turns, and peak
memory against the matrix of all inputs in double precision. Also the one-off cost of
finding equal rows against the passes that it saves.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from acs import FILE, load, peak, timed
from ratios import header, show

import pffl
from pffl._solve import prepared
from pffl.engines import Local
from pffl.engines.layout import Layout
from pffl.prepare import Options
from pffl.queries import Expand

BOUND, L2 = 0.58, 1e-3


def plain(path: Path) -> dict[str, float]:
    """Fit without any bound, to the same weighted rows."""
    from sklearn.linear_model import LogisticRegression

    parts = [silo.rows() for silo in load(path).silos]
    sizes = np.array([len(rows) for rows in parts])
    X = np.concatenate([rows.X for rows in parts])
    y = np.concatenate([rows.y for rows in parts])
    X -= X.mean(axis=0)
    X /= np.maximum(X.std(axis=0), 1e-12)
    weight = np.repeat(len(X) / len(sizes) / sizes, sizes)
    model = LogisticRegression(C=1 / (L2 * len(X)), max_iter=1000)
    _, spent = timed(lambda: model.fit(X, y, sample_weight=weight))
    return {"processor": spent.processor, "rounds": float(model.n_iter_[0])}


def solved(path: Path) -> dict[str, float]:
    """Solve, with everything that it measures."""
    federation = load(path)
    parts = [rows.X for silo in federation.silos for rows in silo.splits.values()]
    matrix = float(sum(part.nbytes for part in parts))
    constraint = pffl.BoundedGroupLoss(BOUND)
    done, spent = timed(lambda: pffl.solve(federation, constraint, seed=0))
    return {
        "processor": spent.processor,
        "rounds": float(done.rounds),
        "asked": float(done.training.queries["asked"]),
        "memory": peak() / matrix,
    }


def ran(path: Path) -> dict[str, float]:
    """Run the command, from start to exit."""
    options = (f"data.source={path}", "data.year=2024", "data.filter=filtered")
    settings = [part for option in options for part in ("--set", option)]
    bound = ["--bound", str(BOUND), "--seed", "0", "--quiet"]
    command = [sys.executable, "-m", "pffl", "run", "acs", *settings, *bound]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"processor": own.ru_utime + own.ru_stime, "peak": own.ru_maxrss * 1024.0}


def merged(path: Path) -> dict[str, float]:
    """One pass over rows by silo, over merged rows, and what merging them costs."""
    federation = load(path)
    engine = Local(federation)
    constraint = pffl.BoundedGroupLoss(BOUND)
    problem, _ = prepared(engine, constraint, None, pffl.Exact(), Options(), seed=0)
    query = Expand(problem.task, np.zeros(problem.n_parameters), 2)
    _, first = timed(lambda: engine.ask(query))
    pass_of = min(timed(lambda: engine.ask(query))[1].processor for _ in range(5))
    rows = len(engine.layout([query]))
    inputs = problem.task.model.inputs
    layout, laid = timed(lambda: Layout.of(federation, "train", inputs, apart=True))
    engine._layouts = dict.fromkeys(engine._layouts, layout)
    apart = min(timed(lambda: engine.ask(query))[1].processor for _ in range(5))
    return {
        "rows": float(len(layout)),
        "distinct": float(rows),
        "merging": first.processor - pass_of,
        "by silo": laid.processor,
        "pass": pass_of,
        "pass by silo": apart,
    }


# Packages are compiled where they are installed, whatever this shell says.
COMPILED = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
KINDS = {"plain": plain, "solve": solved, "run": ran, "merged": merged}


def child(kind: str, path: Path) -> dict[str, float]:
    """Measure one of them in a process of its own."""
    command = [sys.executable, __file__, kind, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=COMPILED)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(turns: int, path: Path) -> None:
    """Take turns, and print ratios."""
    header()
    found: dict[str, list[dict[str, float]]] = {}
    for turn in range(turns):
        for kind in ("plain", "solve", "run"):
            began = time.perf_counter()
            one = child(kind, path)
            found.setdefault(kind, []).append(one)
            words = ", ".join(f"{k} {v:.4g}" for k, v in one.items())
            print(f"turn {turn + 1} {kind}: {words}", end=" ")
            print(f"({time.perf_counter() - began:.0f} s)", flush=True)
    once = child("merged", path)
    print("merging: " + ", ".join(f"{k} {v:.4g}" for k, v in once.items()))

    def middle(kind: str, what: str = "processor") -> float:
        return float(np.median([one[what] for one in found[kind]]))

    show("pffl.solve against a plain fit", middle("solve") / middle("plain"), "≤ 0.6")
    show("pffl run against a plain fit", middle("run") / middle("plain"), "at most 1.5")
    show("memory of solve against the matrix", middle("solve", "memory"), "at most 2.5")
    show("a pass against one by silo", once["pass"] / once["pass by silo"], "")
    extra = (once["merging"] - once["by silo"]) / (once["pass by silo"] - once["pass"])
    show("passes after which merging has paid", extra, "")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in KINDS:
        print(json.dumps(KINDS[sys.argv[1]](Path(sys.argv[2]))))
    else:
        given = Path(sys.argv[2]) if len(sys.argv) > 2 else FILE
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, given.resolve())
