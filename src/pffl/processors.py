"""How many processors there are for us, and how many of them BLAS may use.

A server's matrices are small: BLAS with a thread for each processor spends most of its
time waiting for itself (four to seven times the work at 100 to 1,000 parameters), and
the local engine has threads of its own. So `blas_threads` holds BLAS to a number while
a run is driven, and gives back what was there before.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from pffl.errors import UsageError

OVERRIDE = "PFFL_THREADS"


def processors(root: Path = Path("/")) -> int:
    """Return how many processors this process may use, as far as the system tells.

    The least of affinity and the quotas of its control groups (containers), at least 1.
    ``PFFL_THREADS`` says otherwise.
    """
    if (given := os.environ.get(OVERRIDE, "").strip()) != "":
        if not given.isdecimal() or int(given) < 1:
            raise UsageError(f"{OVERRIDE} must be a whole number ≥ 1. Got '{given}'.")
        return int(given)
    return max(1, math.ceil(min(_present(), _quota(root))))


def free_memory(root: Path = Path("/")) -> float:
    """Return the bytes that this process may take; infinite where nobody tells."""
    lines = [line.split() for line in _lines(root / "proc/meminfo")]
    free = [int(line[1]) for line in lines if line[0] in ("MemAvailable:", "SwapFree:")]
    limit = (_lines(root / "sys/fs/cgroup/memory.max") or ["max"])[0].strip()
    most = math.inf if limit == "max" else float(limit)
    return min(most, 1024.0 * sum(free)) if free else most


def _present() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        return os.process_cpu_count() or 1
    return os.cpu_count() or 1


@cache
def _quota(root: Path) -> float:
    """Return the least quota, in processors, of this process's control groups.

    A group's own quota does not tell of those above it, so all up to the mount are
    read. Reference: the kernel's cgroup-v2 (cpu.max) and sched-bwc (cfs_quota_us).
    """
    quotas = [math.inf]
    for folder, top in _groups(root):
        while folder.is_relative_to(top):
            quotas.append(_limit(folder))
            folder = folder.parent
    return min(quotas)


def _groups(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the folders of this process's groups, each with where it is mounted."""
    own: dict[bool, PurePosixPath] = {}  # by whether it is version 1
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, place = line.split(":", 2)
        if number == "0" or "cpu" in controllers.split(","):
            own[number != "0"] = PurePosixPath(place)
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, system = line.partition(" - ")
        (kind, _, options), (*_, start, point) = system.split()[:3], mount.split()[:5]
        first = kind == "cgroup" and "cpu" in options.split(",")
        if not (first or kind == "cgroup2") or first not in own:
            continue
        top, path = root / point.lstrip("/"), own[first]
        # In a container the mount may begin at the group, or the path lie outside it.
        inside = path.relative_to(start) if path.is_relative_to(start) else path
        folder = top / str(inside).lstrip("/")
        hidden = ".." in inside.parts or not folder.is_dir()
        yield (top if hidden else folder), top


def _limit(folder: Path) -> float:
    """Return the quota that a group has itself; infinite if none."""
    found = _lines(folder / "cpu.max")
    if found:
        quota, period = found[0].split()
        return math.inf if quota == "max" else int(quota) / int(period)
    given, per = (_lines(folder / f"cpu.cfs_{x}_us") for x in ("quota", "period"))
    if not (given and per) or int(given[0]) <= 0:
        return math.inf
    return int(given[0]) / int(per[0])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


class _Held:
    """BLAS, while some part of the process has it held to a number of threads.

    That number is one for the whole process, and whoever set it gives back what was
    there: what begins meanwhile, also in another thread, goes along with it. Were each
    to give back what it saw, the last of two would leave the first one's number behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None  # a thread
        self._limit = 1
        self._stack = ExitStack()
        self._controller: Any = None
        self._modules = 0

    def begin(self, limit: int) -> bool:
        """Hold BLAS; return whether it was not held yet."""
        with self._lock:
            first = self._owner is None
            if first:
                self._owner, self._limit = threading.get_ident(), limit
            elif self._owner != threading.get_ident() or not self._grown():
                return False
            if self._grown():  # a module may have brought a library
                self._controller, self._modules = _look(), len(sys.modules)
            several = [
                library.filepath
                for library in self._controller.lib_controllers
                if library.user_api == "blas" and library.num_threads > self._limit
            ]
            chosen = self._controller.select(filepath=several)
            self._stack.enter_context(chosen.limit(limits=self._limit))
            return first

    def end(self) -> None:
        """Give back what was there."""
        with self._lock:
            self._stack.close()
            self._owner = None

    def _grown(self) -> bool:
        return self._modules != len(sys.modules)


def _look() -> Any:
    """Find the libraries that are loaded, which takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


_HELD = _Held()


@contextmanager
def blas_threads(limit: int) -> Iterator[None]:
    """Hold BLAS to so many threads; fewer stay fewer, and what is held stays held."""
    first = _HELD.begin(limit)
    try:
        yield
    finally:
        if first:
            _HELD.end()
