"""The same work by others and by pffl, in turns, with one thread for everybody.

    python benchmarks/peers.py                   the five rows of README
    python benchmarks/peers.py --only sizes cells sparse acs start
        [--old SRC] [--turns 5] [--acs FILE]     more, one table each

A row has the medians of processor and wall seconds over interleaved turns, and the
contestant's CPU in parts of pffl's. SRC is the `src` of a checkout of another version
(`git worktree add /tmp/v02 v0.2.0`): `cells` and `start` then have its row, too. What
is not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import pffl
from pffl.methods import FedAvg

HERE = Path(__file__).resolve()
ACS = HERE.parents[2] / "shared/data/acs_employment_2024_48st_dc.parquet"
L2 = 1e-6
GAP = 1e-6
ROUNDS = 20
LARGEST_LOSS = 8.0
NAMED = "random_state" in inspect.signature(pffl.solve).parameters
SEED: Any = {"random_state" if NAMED else "seed": 0}  # as in version 0.2
HEAD = (
    "| work | who | CPU s | wall s | CPU, against pffl | |\n|---|---|---|---|---|---|"
)

Work = Callable[[], Any]


class Spent(NamedTuple):
    """Seconds of processors and on the clock, and what came of it."""

    cpu: float
    wall: float
    found: Any = None


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


def one_hot(kind: str, strength: float) -> tuple[Any, np.ndarray, np.ndarray]:
    """Twenty columns of a thousand categories each, one-hot: 20 ones a row.

    Categories are equally frequent, or as words are ("zipf").
    """
    from scipy import sparse

    rows, columns, values, groups = 60_000, 20, 1_000, 5
    rng = np.random.default_rng(0)
    frequency = np.ones(values) if kind == "uniform" else np.arange(1, values + 1.0)
    frequency = frequency**-1.1 / (frequency**-1.1).sum()
    where = rng.choice(values, size=(rows, columns), p=frequency)
    where = where + np.arange(columns) * values
    ends = np.arange(0, where.size + 1, columns)
    data = (np.ones(where.size), where.ravel(), ends)
    X = sparse.csr_array(data, shape=(rows, columns * values))
    score, group = X @ rng.standard_normal(X.shape[1]), rng.integers(0, groups, rows)
    score = strength * (score - score.mean()) / score.std()
    score = score * np.where(group == 0, 1, 0.6) + 0.5 * rng.normal(size=groups)[group]
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


def bound_for(X: Any, y: Any, group: Any, l2: float = L2, part: float = 0.95) -> float:
    """Return a part of the worst group's loss without bounds."""
    told = plain_fit(X, y, l2, 1e-4).predict_proba(X)[np.arange(len(y)), y]
    losses = -np.log(np.maximum(told, 1e-12))
    return round(part * max(losses[group == g].mean() for g in np.unique(group)), 4)


def model(l2: float = L2) -> pffl.models.LogisticRegression:
    return pffl.models.LogisticRegression(l2=l2)


def solved(data: pffl.Federation, bound: float, l2: float = L2) -> pffl.Solution:
    """Solve with all defaults: gap, certificate and the model without bounds."""
    constraint = pffl.BoundedGroupLoss(bound)
    return pffl.solve(data, constraint, model=model(l2), **SEED)


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


def spent(work: Work) -> Spent:
    """Measure some work on one thread."""
    with threadpool_limits(1):
        cpu, wall = time.process_time(), time.perf_counter()
        found = work()
    return Spent(time.process_time() - cpu, time.perf_counter() - wall, found)


def turns(works: Mapping[str, Work], count: int) -> dict[str, Spent]:
    """Run each in turn, once before it counts; a `Spent` was measured elsewhere."""
    told: dict[str, list[Spent]] = {who: [] for who in works}
    for turn in range(1 + count):
        for who, work in works.items():
            seen = spent(work)
            seen = seen.found if isinstance(seen.found, Spent) else seen
            if turn:
                told[who].append(seen)
    return {
        who: Spent(
            float(np.median([s.cpu for s in found])),
            float(np.median([s.wall for s in found])),
            found[-1].found,
        )
        for who, found in told.items()
    }


def rows_of(
    work: str,
    found: Mapping[str, Spent],
    says: Callable[[str, Any], str] = lambda who, found: "",
) -> Iterator[str]:
    """Compare each with the first."""
    ours = next(iter(found.values())).cpu
    for who, s in found.items():
        ratio = f"{s.cpu / ours:.2g}" if s.cpu < 10 * ours else f"{s.cpu / ours:,.0f}"
        said = says(who, s.found)
        yield f"| {work} | {who} | {s.cpu:.3g} | {s.wall:.3g} | {ratio} | {said} |"
        work = ""


def elsewhere(source: Path, *what: object) -> Spent:
    """Run a part of this file in another process, with another version of pffl."""
    env = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, str(HERE), "--child", *map(str, what)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return Spent(*json.loads(done.stdout.splitlines()[-1]))


def child_solve(rows: str, p: str, groups: str) -> list[Any]:
    """Solve once before it counts, and once; as plain figures."""
    X, y, group = people(int(rows), int(p), int(groups))
    data, bound = federation(X, y, group, 10), bound_for(X, y, group)
    solved(data, bound)
    s = spent(lambda: solved(data, bound))
    return [s.cpu, s.wall, f"{s.found.status}, gap {s.found.gap:.0e}"]


# ---------------------------------------------------------------- contests


def readme(given: argparse.Namespace) -> Iterator[str]:
    """A bound on the loss of each of five groups, and federated averaging."""
    X, y, group = people(5_000, 20, 5)
    data, bound = federation(X, y, group, 10), bound_for(X, y, group)
    works: dict[str, Work] = {
        "pffl": lambda: solved(data, bound),
        "scikit-learn, no bounds": lambda: plain_fit(X, y),
    }
    if importlib.util.find_spec("cvxpy"):
        works["cvxpy (Clarabel)"] = lambda: by_cvxpy(X, y, group, bound)
    if importlib.util.find_spec("fairlearn"):
        works["fairlearn, reductions"] = lambda: by_fairlearn(X, y, group, bound)

    def says(who: str, found: Any) -> str:
        if who == "pffl":
            rows, own = data.pooled("train"), found.model
            losses = own.losses(found.w, own.inputs.apply(rows.X), rows.y)
            return f"{found.status}, risk {losses.mean():.5f}, gap {found.gap:.0e}"
        return found if isinstance(found, str) else ""

    work = "bounded group loss, 5,000 × 20, 5 groups"
    yield from rows_of(work, turns(works, given.turns), says)
    yield from averaging(100, given.turns)


def by_cvxpy(X: Any, y: Any, group: Any, bound: float) -> str:
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
    return f"risk {(cp.sum(losses) / len(y)).value:.5f}"


class LogLoss:
    """The log loss of a probability, as fairlearn takes losses."""

    min, max = 0.0, LARGEST_LOSS

    def eval(self, y_true: Any, y_pred: Any) -> np.ndarray:
        least = np.exp(-LARGEST_LOSS)
        p, y = np.clip(np.asarray(y_pred), least, 1 - least), np.asarray(y_true)
        return -np.where(y == 1, np.log(p), np.log1p(-p))


def by_fairlearn(X: Any, y: Any, group: Any, bound: float) -> str:
    from fairlearn.reductions import BoundedGroupLoss, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    class Probabilities(LogisticRegression):
        """A model that predicts probabilities: the oracle for `LogLoss`."""

        def predict(self, X: Any) -> np.ndarray:
            return self.predict_proba(X)[:, 1]

    base = Probabilities(C=1 / (L2 * len(y)), tol=1e-6)
    found = ExponentiatedGradient(base, BoundedGroupLoss(LogLoss(), upper_bound=bound))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.fit(X, y, sensitive_features=group)
    used = [(s, found.predictors_[t]) for t, s in found.weights_.items() if s > 0]
    losses = sum(s * LogLoss().eval(y, one.predict(X)) for s, one in used)
    return f"{len(used)} models, risk {np.mean(losses):.5f}"


def averaging(clients: int, count: int) -> Iterator[str]:
    """Federated averaging without bounds: what the engine itself costs."""
    from pffl.engines import Local

    X, y, _ = people(200 * clients, 20, 2)
    data = federation(X, y, np.arange(len(y)) % 2, clients)
    own = FedAvg(rounds=ROUNDS, local_steps=5, step_size=0.1)
    problem, ours = ready(Local(data), 1.0, own)
    scaled = problem.task.model.inputs.apply
    each = [
        (np.column_stack([scaled(r.X), np.ones(len(r))]), r.y)
        for r in (silo.rows("train") for silo in data.silos)
    ]
    found = turns({"pffl": ours, "NumPy loop": lambda: numpy_loop(each)}, count)
    apart = np.abs(found["pffl"].found.point.w - found["NumPy loop"].found).max()
    work = f"federated averaging, {clients} clients × 200 rows, {ROUNDS} rounds"
    same = f"same w to {apart:.0e}"
    yield from rows_of(work, found, lambda who, _: "" if who == "pffl" else same)


def numpy_loop(parts: list[Any]) -> np.ndarray:
    """Plain federated averaging: five steps of size 0.1 each, then the mean."""
    w = np.zeros(parts[0][0].shape[1])
    for _ in range(ROUNDS):
        found = np.zeros_like(w)
        for X, y in parts:
            v = w.copy()
            for _ in range(5):
                p = 1 / (1 + np.exp(-(X @ v)))
                v -= 0.1 * (X.T @ (p - y) / len(y) + L2 * v)
            found += v / len(parts)
        w = found
    return w


def sizes(given: argparse.Namespace) -> Iterator[str]:
    """A whole solve against a plain fit, for more and more rows."""
    for n, p, groups in ((5_000, 20, 5), (50_000, 50, 10), (500_000, 50, 50)):
        X, y, group = people(n, p, groups)
        data, bound = federation(X, y, group, 10), bound_for(X, y, group)
        works: dict[str, Work] = {
            "pffl": lambda data=data, bound=bound: solved(data, bound),
            "scikit-learn, no bounds": lambda X=X, y=y: plain_fit(X, y),
        }
        yield from in_plain_fits(f"{n:,} × {p}, {groups} groups", works, given.turns)


def in_plain_fits(work: str, works: Mapping[str, Work], many: int) -> Iterator[str]:
    """Rows of a solve and of a plain fit, and how many of the latter it costs."""
    found = turns(works, many)
    times = found["pffl"].cpu / found["scikit-learn, no bounds"].cpu
    said = f"{found['pffl'].found.status}; {times:.2g} plain fits"
    yield from rows_of(work, found, lambda who, _: said if who == "pffl" else "")


def cells(given: argparse.Namespace) -> Iterator[str]:
    """Hundreds of groups, and inputs by the thousand, against another version."""
    for shape in ((30_000, 50, 300), (50_000, 100, 500), (20_000, 1_000, 10)):
        sources = {"pffl": Path(pffl.__file__).parents[1]}
        if given.old is not None:
            sources |= {given.old.parent.name: given.old}
        works: dict[str, Work] = {
            who: lambda source=source, shape=shape: elsewhere(source, "solve", *shape)
            for who, source in sources.items()
        }
        n, p, groups = shape
        work = f"{n:,} × {p:,}, {groups} groups"
        yield from rows_of(work, turns(works, given.turns), lambda _, said: said)


def sparse(given: argparse.Namespace) -> Iterator[str]:
    """Twenty thousand one-hot inputs, against plain L-BFGS on the same problem."""
    from pffl.engines import Local

    for kind, strength, part in (
        *(("uniform", 1.0, 0.95), ("uniform", 3.0, 0.95), ("zipf", 1.0, 0.95)),
        *(("uniform", 3.0, 0.5), ("zipf", 1.0, 0.5)),
    ):
        X, y, group = one_hot(kind, strength)
        l2 = 1 / len(y)  # scikit-learn's own
        data, bound = federation(X, y, group, 10), bound_for(X, y, group, l2, part)
        auto = pffl.methods.Auto(multiplier_bound=10.0, target_gap=GAP)
        problem, rounds = ready(Local(data), bound, auto, l2)
        inputs = problem.task.model.inputs.apply(data.pooled("train").X)
        signs = 1.0 - 2.0 * data.pooled("train").y
        works: dict[str, Work] = {
            "pffl, the method's rounds": rounds,
            "pffl, whole solve": lambda d=data, b=bound, l2=l2: solved(d, b, l2),
            "SciPy's L-BFGS, no bounds": lambda X=inputs, s=signs, l2=l2: lbfgs(
                X, s, l2
            ),
        }
        found = turns(works, given.turns)
        plain = found["SciPy's L-BFGS, no bounds"].cpu

        def says(who: str, one: Any, found: Any = found, plain: float = plain) -> str:
            if "L-BFGS" in who:
                return f"{one.nfev} evaluations"
            times = f"{found[who].cpu / plain:.1f} plain fits"
            if who.endswith("rounds"):
                gap = one.bounds[0] - one.bounds[1]
                part = gap / (1 + one.point.multipliers.sum())
                return f"{one.rounds} queries, gap {part:.0e} of β + Σλ; {times}"
            return f"{one.status}; {times}"

        bounds = "an impossible bound" if part == 0.5 else "a bound"
        work = f"60,000 × 20,000, {kind}, signal {strength:g}, {bounds}"
        yield from rows_of(work, found, says)


def lbfgs(X: Any, signs: np.ndarray, l2: float) -> Any:
    """Fit the same scaled problem without bounds, as far as rounding allows."""
    from scipy.optimize import minimize

    def value(w: np.ndarray) -> tuple[float, np.ndarray]:
        z = (X @ w[:-1] + w[-1]) * signs
        slope = signs / (1 + np.exp(-z)) / len(z)
        gradient = np.append(slope @ X, slope.sum()) + l2 * w
        return float(np.logaddexp(0, z).mean() + 0.5 * l2 * w @ w), gradient

    most = {"maxcor": 30, "gtol": 1e-12, "ftol": 1e-15, "maxiter": 600, "maxfun": 600}
    start = np.zeros(X.shape[1] + 1)
    return minimize(value, start, jac=True, method="L-BFGS-B", options=most)


def acs(given: argparse.Namespace) -> Iterator[str]:
    """All of the ACS: employment of 1.8 million people in 49 states."""
    data = pffl.datasets.acs(year=2024, filter="filtered", source=given.acs)
    rows = data.pooled("train")
    X, y = np.asarray(rows.X), rows.y.astype(int)
    bound = bound_for(scaled(X), y, rows.group, 1e-4)
    works: dict[str, Work] = {
        "pffl": lambda: solved(data, bound, 1e-4),
        "scikit-learn, no bounds": lambda: plain_fit(scaled(X), y, 1e-4),
    }
    work = f"ACS, {len(X):,} × {X.shape[1]}, {len(data.schema.groups)} groups"
    yield from in_plain_fits(work, works, given.turns)


def scaled(X: np.ndarray) -> np.ndarray:
    """Scale inputs as pffl does."""
    from sklearn.preprocessing import StandardScaler

    return StandardScaler().fit_transform(X)


def start(given: argparse.Namespace) -> Iterator[str]:
    """`pffl run compas` as a command, byte code compiled."""
    sources = {"pffl": Path(pffl.__file__).parents[1]}
    if given.old is not None:
        sources |= {given.old.parent.name: given.old}
    works: dict[str, Work] = {
        who: lambda source=source: command(source) for who, source in sources.items()
    }
    found = turns(works, given.turns)
    yield from rows_of("`pffl run compas`", found, lambda _, mb: f"{mb:.0f} MB")


def command(source: Path) -> Spent:
    """Run COMPAS in a folder of its own."""
    compiled = Path(tempfile.gettempdir()) / "pffl-benchmark-bytecode"
    env = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": ""}
    env["PYTHONPYCACHEPREFIX"] = str(compiled)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        done = subprocess.Popen(
            [sys.executable, "-m", "pffl", "run", "compas"],
            cwd=folder,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, _, used = os.wait4(done.pid, 0)
        wall = time.perf_counter() - began
    return Spent(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024)


# ---------------------------------------------------------------- the tables


CONTESTS: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
    "readme": readme,
    "sizes": sizes,
    "cells": cells,
    "sparse": sparse,
    "acs": acs,
    "start": start,
}


def machine() -> str:
    """Say on what this was measured."""
    load = os.getloadavg()[0]
    return (
        f"{len(os.sched_getaffinity(0))} cores, load {load:.0f}, Python "
        f"{sys.version.split()[0]}, NumPy {np.__version__}, {time.strftime('%Y-%m-%d')}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CONTESTS, default=["readme"])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--acs", type=Path, default=ACS)
    parser.add_argument("--child", nargs="+")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PFFL_THREADS")
    os.environ.update(dict.fromkeys(names, "1"))
    if given.child:
        print(json.dumps(child_solve(*given.child[1:])))
        return
    print(f"{machine()}; one thread each, medians of {given.turns} turns\n\n{HEAD}")
    for name in given.only:
        for line in CONTESTS[name](given):
            print(line, flush=True)


if __name__ == "__main__":
    main()
