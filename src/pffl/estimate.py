"""About how long a run will take in this process, and how much memory.

Counted in passes over the rows and in numbers kept, with the constants of
`methods.auto` for a machine like the one they were measured on; a few milliseconds of
products tell how this one compares. Good to a factor of about three: enough to say that
something will take an hour, before it does, and what would not.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pffl.errors import UsageError
from pffl.methods.auto import PASS, costs
from pffl.methods.base import LARGEST, Method
from pffl.methods.exact import Exact
from pffl.methods.first_order import FirstOrder
from pffl.methods.quasi_newton import room
from pffl.models.linear import LinearModel
from pffl.problem import Problem
from pffl.processors import blas_threads, processors

LONG = 60.0  # seconds that are worth a word
MUCH = 0.7  # of the memory that is free, likewise
WHOLE = 1.5  # times the method alone: with all that is measured beside it
NEXT = 0.4  # of the method alone: the next model of a path, with its search for margins
READING = 8e-8  # seconds of an entry of the rows: laid out, evaluated, checked
BEGINNING, ROUND = 0.1, 1.5e-3  # seconds of a run, of a round, however few the rows
COPIES = 5  # of all Hessians: a total, three expansions, what is made of them
SHARED = 0.7  # of what another processor could do
PRODUCT = 3.4e-11  # seconds of a product in a Gram matrix where all this was measured
SAMPLE = (8192, 64)


@dataclass(frozen=True)
class Estimate:
    """What a run takes.

    Attributes
    ----------
    seconds
        Of one processor.
    memory
        Bytes, beside the rows as they were given.
    """

    seconds: float
    memory: float


def estimate(
    problem: Problem, method: Method[Any], *, threads: int, models: int = 1
) -> Estimate | None:
    """Foresee a run of a linear model; None of a network, whose layers are its own.

    `models` are those of a path, each of which may start where the last one ended.
    """
    if not isinstance(problem.task.model, LinearModel):
        return None
    p, z = problem.n_parameters, problem.n_cells
    entries = int(problem.silo_counts.sum()) * (problem.stored or p)
    exact, first = costs(p, z, entries=entries, elsewhere=False)
    # What is measured beside other methods is measured by the cheaper one.
    hessians = isinstance(method, Exact) or (
        not isinstance(method, FirstOrder) and exact < first and p <= LARGEST
    )
    warm = (models - 1) * NEXT
    seconds = WHOLE * (1 + warm) * (exact if hessians else first)
    seconds += BEGINNING + READING * entries
    if not isinstance(method, Exact | FirstOrder):
        steps = method.describe().get("local_steps")
        each = steps if isinstance(steps, int) else 1
        rounds = models * (method.planned_rounds or 0)
        seconds += rounds * (ROUND + each * PASS * entries)
    if hessians:
        atoms = problem.silo_counts.shape[1]
        kept = float(p) * p * (COPIES * (1 + z) + threads * (1 + atoms))
    else:
        kept = float(room(p, z) + COPIES) * (z + 2) * p
    return Estimate(seconds, 8.0 * (entries + kept))


def foretell(problem: Problem, method: Method[Any], *, models: int = 1) -> None:
    """Warn of a run that will be long, or large; refuse one that cannot be held."""
    threads = processors()
    found = estimate(problem, method, threads=threads, models=models)
    if found is None or problem.access.elsewhere:
        return
    free = free_memory()
    if free is not None and found.memory > MUCH * free:
        text = f"{_size(problem)} need about {_gigabytes(found.memory)} of memory"
        text += f", and {_gigabytes(free)} are free: {_instead(problem, method, found)}"
        if found.memory > 2.0 * free:
            raise UsageError(text)
        warnings.warn(text, stacklevel=2)
    elif found.seconds >= LONG / 10.0:  # this machine may be slower
        _tell(problem, method, found, threads)


def _tell(problem: Problem, method: Method[Any], found: Estimate, threads: int) -> None:
    """Warn of a run that will be long on this machine."""
    seconds = slowness() * found.seconds / max(1.0, SHARED * threads)
    if seconds >= LONG:
        warnings.warn(
            f"{_size(problem)} will take about {_time(seconds)} with "
            f"'{method.name}': {_instead(problem, method, found)}",
            stacklevel=2,
        )


def _instead(problem: Problem, method: Method[Any], found: Estimate) -> str:
    """Say what to do instead."""
    if not isinstance(method, FirstOrder):
        other = estimate(problem, FirstOrder(), threads=1)
        if other is not None and 2.0 * other.seconds < found.seconds:
            times = found.seconds / other.seconds
            return f"`method=FirstOrder()` would take about 1/{times:.0f} of the time"
        if other is not None and 2.0 * other.memory < found.memory:
            part = _gigabytes(other.memory)
            return f"`method=FirstOrder()` would need about {part}"
    return "fewer rows, inputs or cells take less (`rare=ROWS` joins rare categories)"


def _size(problem: Problem) -> str:
    rows = int(problem.silo_counts.sum())
    return (
        f"{rows:,} training rows, {problem.n_parameters:,} parameters and "
        f"{problem.n_cells:,} cells"
    )


def _time(seconds: float) -> str:
    """Say how long something takes, roughly.

    >>> _time(70.0), _time(4000.0), _time(3e5)
    ('1 min', '1.1 hours', '3.5 days')
    """
    for unit, length in (("days", 86_400.0), ("hours", 3600.0)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds / 60.0:.0f} min"


def _gigabytes(number: float) -> str:
    return f"{number / 1e9:.2g} GB" if number < 1e11 else f"{number / 1e9:,.0f} GB"


@cache
def slowness() -> float:
    """Return how much longer products take here than where all this was measured."""
    rows = np.ones(SAMPLE)
    taken = []
    with blas_threads(1):
        for _ in range(8):
            begun = time.process_time()
            rows.T @ rows
            taken.append(time.process_time() - begun)
    here = min(taken) / (SAMPLE[0] * SAMPLE[1] ** 2)
    return float(np.clip(here / PRODUCT, 0.1, 10.0))


def free_memory(root: Path = Path("/")) -> float | None:
    """Return the bytes that this process may still take; None where nobody tells."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    known = {line.split(":")[0]: line.split()[1] for line in lines if ":" in line}
    if "MemAvailable" not in known:
        return None
    free = 1024.0 * (int(known["MemAvailable"]) + int(known.get("SwapFree", 0)))
    group = root / "sys/fs/cgroup"
    for limit, used in (("memory.max", "memory.current"), (V1_LIMIT, V1_USED)):
        try:
            most = (group / limit).read_text().strip()
            taken = float((group / used).read_text())
        except OSError:
            continue
        if most != "max":
            taken -= _read_files((group / used).with_name("memory.stat"))
            free = min(free, max(0.0, float(most) - taken))
    return free


def _read_files(stat: Path) -> float:
    """Return the bytes of files that a container read, which it gives up if need be."""
    lines = stat.read_text().splitlines() if stat.is_file() else []
    sizes = [float(line.split()[1]) for line in lines if line.startswith(READ)]
    return sum(sizes)


READ = "inactive_file "
V1_LIMIT = "memory/memory.limit_in_bytes"
V1_USED = "memory/memory.usage_in_bytes"
