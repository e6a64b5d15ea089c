"""Run the benchmark: python -m reproduction.tasks.run {power, run, table} [options].

    power                    what can be shown, by simulation, before anything is run
    run [TASK …] [--methods NAME …] [--seeds 30]     append to results.jsonl
    table                    what results.jsonl shows, as Markdown

A line of results.jsonl is one method on one task and track, with the hash of the task's
rows. For each seed and measure it holds test error and test measure, in 1/100,000, of
the trial with the smallest measure on validation rows among those whose validation
error is at most FedAvg's + 0.02 (otherwise: of the smallest validation error).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import pffl
from pffl.experiments import choose, judge
from reproduction.tasks.data import TASKS
from reproduction.tasks.methods import METHODS, Draw, Part

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
TRACKS = {"converged": None, "matched": 100}
MEASURES = ("worst group", "DP gap", "EO gap", "worst silo")
MARGINS = dict(zip(MEASURES, (0.005, 0.01, 0.01, 0.005), strict=True))
LEAST_ROWS = 30  # of a group or silo, in validation and in test rows, to be measured
ALLOWED = 0.02  # error above FedAvg's
UNIT = 100_000
WORDS = ("better", "same", "worse", "open")
#: Above that many silos, none has rows enough to be measured (and FCFL's linear
#: programme, with a variable for each, takes half a minute a seed).
MOST_SILOS = dict.fromkeys(("fcfl", "afl", "qffl", "pffl-silos"), 20)


def worst(values: np.ndarray, code: np.ndarray, names: np.ndarray, how: Any) -> float:
    """Reduce the means of groups or silos; NaN for fewer than two."""
    if len(names) < 2:
        return float("nan")
    return float(how([values[code == name].mean() for name in names]))


def measured(w: np.ndarray, part: Part, known: dict[str, np.ndarray]) -> list[float]:
    """Return the error, then `MEASURES`."""
    z = part.X @ w
    losses, said = np.logaddexp(0, z) - part.y * z, (z > 0).astype(float)
    real = part.y == 1
    return [
        float((said != part.y).mean()),
        worst(losses, part.group, known["group"], np.max),
        worst(said, part.group, known["group"], np.ptp),
        worst(said[real], part.group[real], known["positive"], np.ptp),
        worst(losses, part.silo, known["silo"], np.max),
    ]


def frequent(parts: list[np.ndarray]) -> np.ndarray:
    """Return the codes that are often enough in all parts."""
    most = max(int(part.max(initial=0)) for part in parts) + 1
    counts = [np.bincount(part.astype(int), minlength=most) for part in parts]
    return np.flatnonzero(np.min(counts, axis=0) >= LEAST_ROWS)


def draw_results(draw: Draw, names: list[str], budget: int | None) -> dict[str, Any]:
    """Train methods on one draw; of each, error and value of what is chosen."""
    parts = [draw.part("validation"), draw.part("test")]
    known = {
        "group": frequent([p.group for p in parts]),
        "positive": frequent([p.group[p.y == 1] for p in parts]),
        "silo": frequent([p.silo for p in parts]),
    }
    out: dict[str, Any] = {}
    limit = measured(METHODS["fedavg"](draw, budget)[0], parts[0], known)[0] + ALLOWED
    for name in names:
        if len(draw.federation) > MOST_SILOS.get(name, 10**9):
            continue
        began = time.process_time()
        weights = METHODS[name](draw, budget)
        seconds = time.process_time() - began
        seen, test = (
            np.array([measured(w, part, known) for w in weights]) for part in parts
        )
        chosen: list[int | None] = []
        for j in range(1, len(MEASURES) + 1):
            at = choose(seen[:, 0], seen[:, j], limit=limit)
            at = int(seen[:, 0].argmin()) if at is None else at
            pair = test[at, [0, j]]
            none = np.isnan(pair).any()
            chosen += [None if none else round(float(v) * UNIT) for v in pair]
        out[name] = (chosen, seconds)
    return out


def run(tasks: list[str], names: list[str], seeds: int) -> None:
    """Append lines: of each task, track and method."""
    for task in tasks:
        found: dict[Any, list[Any]] = defaultdict(list)
        for seed in range(seeds):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what tables look like
                draw = Draw(TASKS[task].load(seed), seed)
            for track, budget in TRACKS.items():
                for name, one in draw_results(draw, names, budget).items():
                    found[track, name].append(one)
        with RESULTS.open("a") as file:
            for (track, name), several in found.items():
                line = {
                    "task": task, "version": TASKS[task].version, "track": track,
                    "method": name, "pffl": pffl.__version__, "seeds": seeds,
                    "seconds": round(sum(one for _, one in several), 1),
                    "chosen": [chosen for chosen, _ in several],
                }  # fmt: skip
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
        print(task, round(time.process_time()), "CPU s", flush=True)


def read(path: Path = RESULTS) -> dict[Any, np.ndarray]:
    """Return arrays (seeds, measures, [error, value]); the last line of a kind counts.

    Lines of other rows than the newest line of their task are left out.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    newest = {line["task"]: line["version"] for line in lines}
    return {
        (line["track"], line["task"], line["method"]): np.array(
            line["chosen"], dtype=float
        ).reshape(line["seeds"], -1, 2)
        / UNIT
        for line in lines
        if line["version"] == newest[line["task"]]
    }


def table(path: Path = RESULTS) -> list[str]:
    """Compare every method with FedAvg, a table for each track.

    Words are of single tasks, with Holm's correction over methods. The mean over tasks
    has an interval in which tasks are the unit.
    """
    found, lines = read(path), []
    for track in TRACKS:
        cells: dict[str, list[str]] = defaultdict(list)
        for j, measure in enumerate(MEASURES):
            words: dict[str, list[str]] = defaultdict(list)
            means: dict[str, list[float]] = defaultdict(list)
            for task in dict.fromkeys(key[1] for key in found):
                here = (track, task)
                own = {key[2]: d[:, j] for key, d in found.items() if key[:2] == here}
                base = own.pop("fedavg")
                if np.isnan(base).any():
                    continue
                values = {m: (d - base)[:, 1] for m, d in own.items()}
                for m, judged in judge(values, margin=MARGINS[measure]).items():
                    words[m].append(judged.conditional.word)
                    means[m].append(float(values[m].mean()))
            for m, several in means.items():
                wide = judge({m: several})[m].conditional.interval
                ends = f" ({wide.low:+.3f} to {wide.high:+.3f})" if wide else ""
                said = "/".join(str(words[m].count(word)) for word in WORDS)
                cells[m].append(f"{said}, {np.mean(several):+.3f}{ends}")
        lines += ["", f"| {track} | {' | '.join(MEASURES)} |", "|---|---|---|---|---|"]
        lines += [f"| {m} | {' | '.join(parts)} |" for m, parts in cells.items()]
    return lines


def power(seeds: int = 30, methods: int = 10, draws: int = 100) -> list[str]:
    """Simulate: how often is a true difference of one method found on a task?"""
    rng = np.random.default_rng(0)
    lines = ["| mean / sd of the seeds' differences | found | wrong word |"]
    lines.append("|---|---|---|")
    for effect in (0.0, 0.5, 0.7, 0.9, 1.2):
        found = wrong = 0
        for _ in range(draws):
            rows = rng.normal(0.0, 1.0, (methods, seeds))
            rows[0] -= effect
            judged = judge({str(i): row for i, row in enumerate(rows)})
            said = [judged[str(i)].conditional.word for i in range(methods)]
            found += effect > 0 and said[0] == "better"
            wrong += any(word != "open" for word in said[effect > 0 :])
        lines.append(f"| {effect} | {found / draws:.2f} | {wrong / draws:.3f} |")
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("what", choices=("power", "run", "table"))
    parser.add_argument("tasks", nargs="*", default=[])
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=30)
    given = parser.parse_args(arguments)
    if given.what == "run":
        run(given.tasks or list(TASKS), given.methods, given.seeds)
    else:
        print("\n".join(power() if given.what == "power" else table()))


if __name__ == "__main__":
    main()
